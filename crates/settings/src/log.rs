//! `[log]`.

use crate::{Value, word};
use serde::Deserialize;
use serde::de::{self, Deserializer};
use std::fmt;
use std::str::FromStr;

crate::section! {
    /// `[log]`: what is logged, and how.
    pub struct Log = "log" {
        /// "error", "warn", "info", "debug", "trace" or "off". One part of the daemon can have a level of its own: "info,ike=debug".
        /// "vpnctl log LEVEL" changes it while vpnd runs.
        pub level: LogLevel = LogLevel("info".to_owned());
        /// "human", or "json": one object per line.
        pub format: LogFormat = LogFormat::Human, written word;
    }
}

/// The form of a line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One line of text.
    #[default]
    Human,
    /// One JSON object per line.
    Json,
}

/// A valid log level: a level, or directives such as `info,ike=debug`.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLevel(String);

/// A log level that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no log level; use error, warn, info, debug, trace or off, for one part of the daemon as in info,ike=debug"
)]
pub struct BadLevel(pub String);

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Value for LogLevel {
    fn toml(&self) -> String {
        self.0.toml()
    }
}

impl FromStr for LogLevel {
    type Err = BadLevel;

    fn from_str(text: &str) -> Result<Self, BadLevel> {
        if text.split(',').all(is_directive) && !text.contains(char::is_whitespace) {
            return Ok(Self(text.to_owned()));
        }
        Err(BadLevel(text.to_owned()))
    }
}

/// Whether text is `LEVEL`, `TARGET=LEVEL` or `TARGET[{FIELD}]=LEVEL`. A bare word that is no level would be taken for the
/// name of a target, and log everything of it.
fn is_directive(text: &str) -> bool {
    let (target, level) = text.split_once('=').unwrap_or(("", text));
    let is_target = match target.split_once("[{") {
        Some((_, fields)) => fields.ends_with("}]") && !fields.contains("[{"),
        None => true,
    };
    is_target && LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level))
}

impl<'de> Deserialize<'de> for LogLevel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
