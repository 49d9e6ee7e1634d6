//! The values of `[esp]` that say how packets are carried: how they are read and written.

use floor::KernelOffload;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, de::Unexpected};
use settings::Value;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use userspace::workers::{Affinity, Count};

/// Reads a value by its name.
pub(super) fn by_name<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err = String>,
{
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

/// Reads `"auto"` or a number.
pub(super) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Count, D::Error> {
    struct Number;
    impl Visitor<'_> for Number {
        type Value = Count;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("\"auto\" or a number of workers from 1 to 64")
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<Count, E> {
            let known = number.to_string().parse();
            known.map_err(|_: String| E::invalid_value(Unexpected::Signed(number), &self))
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Count, E> {
            text.parse().map_err(E::custom)
        }
    }
    deserializer.deserialize_any(Number)
}

/// Reads a list of what the kernel offers.
pub(super) fn without<'de, D>(deserializer: D) -> Result<BTreeSet<KernelOffload>, D::Error>
where
    D: Deserializer<'de>,
{
    let names: Vec<String> = Vec::deserialize(deserializer)?;
    names.iter().map(|name| name.parse().map_err(de::Error::custom)).collect()
}

/// Reads a list of CPUs.
pub(super) fn affinity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Affinity, D::Error> {
    Vec::deserialize(deserializer).map(Affinity::new)
}

/// Writes a value by its name.
pub(super) fn name_in_toml<T: fmt::Display>(value: &T) -> String {
    value.to_string().toml()
}

/// Writes `"auto"` or a number.
pub(super) fn count_in_toml(count: &Count) -> String {
    match count {
        Count::Auto => name_in_toml(count),
        Count::Exactly(number) => number.to_string(),
    }
}

/// Writes a list of what the kernel offers.
pub(super) fn without_in_toml(without: &BTreeSet<KernelOffload>) -> String {
    let names: Vec<String> = without.iter().map(ToString::to_string).collect();
    names.toml()
}

/// Writes a list of CPUs.
pub(super) fn affinity_in_toml(affinity: &Affinity) -> String {
    if *affinity == Affinity::default() {
        return "[]".to_owned();
    }
    format!("[{affinity}]")
}
