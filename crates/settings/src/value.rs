//! Values as the file writes them.

use serde::Deserialize;
use serde::de::{self, Deserializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug, Display};
use std::path::PathBuf;
use std::str::FromStr;

/// A value that the file can have.
pub trait Value {
    /// The value in TOML.
    fn toml(&self) -> String;
}

/// Types that TOML writes as they are displayed.
macro_rules! displayed {
    ($($type:ty),*) => {$(
        impl Value for $type {
            fn toml(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

displayed!(bool, u16, u32, u64, usize);

impl Value for str {
    fn toml(&self) -> String {
        format!("{self:?}")
    }
}

impl Value for String {
    fn toml(&self) -> String {
        self.as_str().toml()
    }
}

impl Value for PathBuf {
    fn toml(&self) -> String {
        self.display().to_string().toml()
    }
}

impl<T: Value> Value for Vec<T> {
    fn toml(&self) -> String {
        list(self)
    }
}

impl<T: Value> Value for BTreeSet<T> {
    fn toml(&self) -> String {
        list(self)
    }
}

impl<K: Display, V: Value> Value for BTreeMap<K, V> {
    fn toml(&self) -> String {
        if self.is_empty() {
            return "{}".to_owned();
        }
        let pairs: Vec<String> =
            self.iter().map(|(name, value)| format!("{name} = {}", value.toml())).collect();
        format!("{{ {} }}", pairs.join(", "))
    }
}

fn list<'a, T: Value + 'a>(values: impl IntoIterator<Item = &'a T>) -> String {
    let values: Vec<String> = values.into_iter().map(Value::toml).collect();
    format!("[{}]", values.join(", "))
}

/// Writes a variant that the file names by its word in lower case.
pub fn word<T: Debug>(variant: &T) -> String {
    format!("{variant:?}").to_lowercase().toml()
}

/// Writes a value that may be absent as it is displayed; without a value, the file has empty text.
pub fn optional<T: Display>(value: &Option<T>) -> String {
    value.as_ref().map(ToString::to_string).unwrap_or_default().toml()
}

/// Reads a value that may be absent: the file then has empty text.
///
/// # Errors
/// The error of the value.
pub fn read_optional<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let text = String::deserialize(deserializer)?;
    (!text.is_empty()).then(|| text.parse().map_err(de::Error::custom)).transpose()
}

/// A value that the file writes by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named<T>(pub T);

impl<T: Display> Display for Named<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: Display> Value for Named<T> {
    fn toml(&self) -> String {
        self.to_string().toml()
    }
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map(Self).map_err(de::Error::custom)
    }
}
