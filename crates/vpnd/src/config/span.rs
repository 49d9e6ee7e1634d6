//! Lengths of time.

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use std::fmt;
use std::time::Duration;

/// A length of time, written as a number with `ms`, `s`, `m` or `h`, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Option<Duration>);

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
        let milliseconds = match unit.trim_start() {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => 0,
        };
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
