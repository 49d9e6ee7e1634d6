//! `[log]`

use serde::Deserialize;
use serde::de::{self, Deserializer};
use std::fmt;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// `[log]`: what is logged, and how.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug`, `trace`, `off`, or directives such as `info,ike=debug`.
    pub level: LogLevel,
    /// For people or for programs.
    pub format: LogFormat,
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

/// A valid log level.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLevel {
    text: String,
    targets: Targets,
}

/// A log level that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no log level; use error, warn, info, debug, trace or off, for one part of the daemon as in info,ike=debug"
)]
pub struct BadLevel(pub String);

impl Default for Log {
    fn default() -> Self {
        let level = "info".parse().expect("info is a level");
        Self { level, format: LogFormat::Human }
    }
}

impl LogLevel {
    /// The filter it stands for.
    pub fn targets(&self) -> Targets {
        self.targets.clone()
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The target of the library for PKCS#11 tokens.
const TOKENS: &str = "cryptoki";

/// A directive with the present name of the daemon's own part, which was `cli`.
fn of_today(directive: &str) -> String {
    match directive.strip_prefix("cli") {
        Some(rest) if rest.starts_with(['=', ':']) => format!("vpnd{rest}"),
        _ => directive.to_owned(),
    }
}

impl std::str::FromStr for LogLevel {
    type Err = BadLevel;

    fn from_str(text: &str) -> Result<Self, BadLevel> {
        // A bare word that is no level would be taken for the name of a target, and log everything of it.
        let known = |word: &str| {
            ["error", "warn", "info", "debug", "trace", "off"]
                .iter()
                .any(|level| level.eq_ignore_ascii_case(word))
        };
        let plausible = text.split(',').all(|directive| {
            let level = directive.rsplit('=').next().unwrap_or(directive);
            known(level)
        });
        if !plausible || text.contains(char::is_whitespace) {
            return Err(BadLevel(text.to_owned()));
        }
        let directives: Vec<String> = text.split(',').map(of_today).collect();
        let parsed = directives.join(",").parse::<Targets>();
        let mut targets = parsed.map_err(|_| BadLevel(text.to_owned()))?;
        // A target covers all whose names begin with it; `vpn`, the library, is not to cover this program.
        let names = |target: &str| {
            let mut named = directives.iter().filter_map(|directive| directive.split_once('='));
            named.any(|(name, _)| name == target)
        };
        if names("vpn") && !names("vpnd") {
            let level = targets.default_level().unwrap_or(LevelFilter::OFF);
            targets = targets.with_target("vpnd", level);
        }
        // The library for tokens also logs what it returns as an error, and that a session has ended.
        let wants_all = targets.default_level() >= Some(LevelFilter::DEBUG);
        let targets = match wants_all || text.contains(TOKENS) {
            true => targets,
            false => targets.with_target(TOKENS, LevelFilter::OFF),
        };
        Ok(Self { text: text.to_owned(), targets })
    }
}

impl<'de> Deserialize<'de> for LogLevel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
