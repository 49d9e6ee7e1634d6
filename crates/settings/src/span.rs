//! Lengths of time.

use crate::Value;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use std::fmt;
use std::time::Duration;

/// A length of time, written as a number with `ms`, `s`, `m` or `h`, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Option<Duration>);

impl Span {
    /// So many seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Some(Duration::from_secs(seconds)))
    }
}

/// The units that a file has, with their milliseconds, the longest first.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// In the longest unit that gives a whole number.
impl Value for Span {
    fn toml(&self) -> String {
        let Some(duration) = self.0 else { return "\"off\"".to_owned() };
        let milliseconds = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let whole = UNITS.iter().find(|(_, length)| milliseconds.is_multiple_of(*length));
        let (unit, length) = whole.unwrap_or(&UNITS[3]);
        format!("\"{}{unit}\"", milliseconds / length)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(duration) => write!(f, "{duration:?}"),
            None => f.write_str("\"off\""),
        }
    }
}

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let known = UNITS.iter().find(|(name, _)| *name == unit.trim_start());
        let milliseconds = known.map_or(0, |(_, length)| *length);
        number
            .parse::<u64>()
            .ok()
            .filter(|_| milliseconds != 0)
            .and_then(|n| n.checked_mul(milliseconds))
            .map(|n| Self(Some(Duration::from_millis(n))))
            .ok_or_else(|| {
                format!("{text:?} is no length of time; write \"500ms\", \"30s\", \"5m\", \"1h\"")
            })
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a length of time such as \"30s\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_written_as_it_is_read() {
        for text in ["500ms", "1s", "90s", "10m", "24h", "off"] {
            let span: Span = text.parse().expect("a length of time");
            assert_eq!(span.toml(), format!("{text:?}"));
        }
        assert_eq!(Span::seconds(600).toml(), "\"10m\"");
    }
}
