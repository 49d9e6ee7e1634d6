//! `vpnd.toml`: what the policy does not say. Every field has a default, so that no file is needed.

use control::protocol::DEFAULT_SOCKET;
use esp::path_mtu::{DontFragment, Outer};
use policy::Policy;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tracing_subscriber::filter::Targets;
use userspace::workers::{Affinity, Count, Schedule, Settings};
use userspace::{Offering, Wait};
use vpn::manual::{ManualSaError, ManualSas};
use vpn::planes::Choice;
use vpn::{OffloadSettings, PlaneSettings};
use xfrm::placement::{self, Wanted};
use zeroize::Zeroizing;

mod certificates;
mod crypto;
mod filter;
mod manual;
mod tunnel;
mod workers;

pub use certificates::{Certificates, WithoutCrl};
pub use crypto::{Crypto, Named};
pub use filter::FilterSection;
pub use manual::Sa;
pub use tunnel::Tunnel;

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `[policy]`
    pub policy: PolicyStore,
    /// `[control]`
    pub control: Control,
    /// `[log]`
    pub log: Log,
    /// `[ike]`
    pub ike: Ike,
    /// `[esp]`
    pub esp: Esp,
    /// `[filter]`
    pub filter: FilterSection,
    /// `[certificates]`
    pub certificates: Certificates,
    /// `[crypto]`
    pub crypto: Crypto,
    /// `[[sa]]`: SAs that are keyed by hand.
    pub sa: Vec<Sa>,
    /// `[tunnel."NAME"]`, by the name of the phase 2 tunnel
    pub tunnel: BTreeMap<String, Tunnel>,
}

/// `[policy]`: where the policy is, unless the command line names a file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyStore {
    /// The directory of the policy store.
    pub directory: PathBuf,
}

/// `[control]`: how `vpnctl` reaches the daemon.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Control {
    /// Path of the socket.
    pub socket: PathBuf,
}

/// `[log]`: what is logged, and how.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug`, `trace`, `off`, or directives such as `info,ike=debug`.
    pub level: LogLevel,
    /// For people or for programs.
    pub format: LogFormat,
}

/// How a line of the log looks.
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

/// `[ike]`: timers and limits of IKE. The defaults are [`ike::Config`]'s.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ike {
    /// First retransmission.
    pub retransmit_after: Span,
    /// Retransmissions before the peer is given up.
    pub retransmissions: u32,
    /// Silence after which the peer is asked whether it lives; `off`: never.
    pub liveness_interval: Span,
    /// What becomes of a tunnel whose peer is gone.
    pub liveness_action: RestartAction,
    /// What becomes of a tunnel that the peer has deleted.
    pub close_action: RestartAction,
    /// Interval of NAT keepalives.
    pub nat_keepalive: Span,
    /// Half-open IKE SAs above which a cookie is asked for.
    pub cookie_threshold: usize,
    /// Half-open IKE SAs above which no more are begun.
    pub half_open_limit: usize,
    /// How long a replaced SA still receives.
    pub linger: Span,
    /// Whether IKE messages go and come in fragments where the peer takes them.
    pub fragmentation: bool,
    /// Octets of the largest IP datagram that is not fragmented.
    pub fragment_size: u16,
    /// How long before both sides prove anew who they are; `off`: for ever.
    pub reauthenticate: Span,
    /// Whether addresses may change where the peer agrees (MOBIKE).
    pub mobike: bool,
    /// Whether a peer that moves must show that it receives at its new address.
    pub return_routability: bool,
}

/// `[esp]`: the data plane.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Esp {
    /// Where packets are protected.
    pub dataplane: Named<Choice>,
    /// Anti-replay window in packets.
    pub replay_window: u32,
    /// When ESP is put into UDP.
    pub encap: Encap,
    /// MTU of the networks between the peers.
    pub outer_mtu: u16,
    /// The bit Don't Fragment of outer IPv4 headers.
    pub df: Df,
    /// How long networks are believed that say they carry less; `off`: never.
    pub path_mtu_lifetime: Span,
    /// What network cards are to do for SAs in the kernel.
    #[serde(deserialize_with = "workers::by_name")]
    pub offload: Wanted,
    /// Which card; empty: the one by which packets to the peer leave.
    pub offload_device: String,
    /// Name of the TUN device.
    pub device: String,
    /// Where a note is kept of what was changed in the system.
    pub state_dir: PathBuf,
    /// Where it is kept which sequence numbers SAs have used that are keyed by hand.
    pub sequences: PathBuf,
    /// How many threads carry packets.
    #[serde(deserialize_with = "workers::count")]
    pub workers: Count,
    /// After which schedule.
    #[serde(deserialize_with = "workers::by_name")]
    pub schedule: Schedule,
    /// What they do while there are none.
    #[serde(deserialize_with = "workers::by_name")]
    pub wait: Wait,
    /// Which CPUs they run on.
    #[serde(deserialize_with = "workers::affinity")]
    pub affinity: Affinity,
    /// What of the kernel's is left alone.
    #[serde(deserialize_with = "workers::without")]
    pub without: BTreeSet<Offering>,
}

/// The bit Don't Fragment of outer IPv4 headers in tunnel mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Df {
    /// Set.
    #[default]
    Set,
    /// Not set.
    Clear,
    /// As in the inner header.
    Copy,
}

impl From<Df> for DontFragment {
    fn from(df: Df) -> Self {
        match df {
            Df::Set => Self::Set,
            Df::Clear => Self::Clear,
            Df::Copy => Self::Copy,
        }
    }
}

/// When ESP is put into UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encap {
    /// Where a NAT is seen or UDP is faster.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Only where a NAT is seen.
    Never,
}

/// What becomes of a tunnel that was up and went, though nobody on this side took it down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RestartAction {
    /// What the policy says.
    #[default]
    Policy,
    /// It is started again.
    Restart,
    /// It waits for a packet.
    Trap,
    /// It stays down.
    Clear,
}

impl From<RestartAction> for ike::RestartAction {
    fn from(action: RestartAction) -> Self {
        match action {
            RestartAction::Policy => Self::Policy,
            RestartAction::Restart => Self::Restart,
            RestartAction::Trap => Self::Trap,
            RestartAction::Clear => Self::Clear,
        }
    }
}

/// A length of time, written as a number with `ms`, `s`, `m` or `h`, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Option<Duration>);

impl Default for PolicyStore {
    fn default() -> Self {
        Self { directory: PathBuf::from(vpn::store::DEFAULT_DIRECTORY) }
    }
}

impl Default for Control {
    fn default() -> Self {
        Self { socket: PathBuf::from(DEFAULT_SOCKET) }
    }
}

impl Default for Log {
    fn default() -> Self {
        let level = "info".parse().expect("info is a level");
        Self { level, format: LogFormat::Human }
    }
}

impl Default for Ike {
    fn default() -> Self {
        let ike = ike::Config::default();
        Self {
            retransmit_after: Span(Some(ike.retransmit_after)),
            retransmissions: ike.retransmissions,
            liveness_interval: Span(ike.liveness_interval),
            liveness_action: RestartAction::Policy,
            close_action: RestartAction::Policy,
            nat_keepalive: Span(Some(ike.nat_keepalive)),
            cookie_threshold: ike.cookie_threshold,
            half_open_limit: ike.half_open_limit,
            linger: Span(Some(ike.linger)),
            fragmentation: ike.fragment_size.is_some(),
            fragment_size: ike.fragment_size.unwrap_or(1280),
            reauthenticate: Span(ike.reauthenticate),
            mobike: ike.mobike,
            return_routability: ike.return_routability,
        }
    }
}

impl Default for Esp {
    fn default() -> Self {
        Self {
            dataplane: Named::default(),
            replay_window: ike::Config::default().replay_window,
            encap: Encap::Auto,
            outer_mtu: Outer::default().mtu(),
            df: Df::Set,
            path_mtu_lifetime: Span(Outer::default().learned_for),
            offload: Wanted::default(),
            offload_device: String::new(),
            device: "vpn0".to_owned(),
            state_dir: PathBuf::from("/run/vpnd"),
            sequences: PathBuf::from(vpn::manual::DEFAULT_LEDGER),
            workers: Count::default(),
            schedule: Schedule::default(),
            wait: Wait::default(),
            affinity: Affinity::default(),
            without: BTreeSet::new(),
        }
    }
}

/// The configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read the configuration {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no TOML, or has a field of another name or type.
    #[error("{}: {source}", .path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and what, with the line of the file.
        source: toml::de::Error,
    },
    /// The same in a line with a key, which is not shown.
    #[error("{}: TOML parse error at line {line}: {message}", .path.display())]
    Secret {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// It holds keys, and others may read it.
    #[error(
        "{} holds keys of SAs, and others may use it; close it with: chmod 600 {}; or put keys into files of their own: \
         key = {{ file = \"/etc/vpnd/sa.key\" }}",
        .0.display(), .0.display()
    )]
    Open(PathBuf),
    /// Its SAs do not go together.
    #[error("{}: {source}", .path.display())]
    Manual {
        /// The file.
        path: PathBuf,
        /// Which, and why.
        source: ManualSaError,
    },
    /// A value is out of range.
    #[error("{}: {field} = {value}: {rule}", .path.display())]
    Range {
        /// The file.
        path: PathBuf,
        /// Which field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        rule: String,
    },
}

impl ConfigError {
    /// What TOML says, with the lines of the file unless one of them has a key.
    fn syntax(path: &Path, text: &str, source: toml::de::Error) -> Self {
        let path = path.to_owned();
        let span = source.span().unwrap_or_default();
        let before = text.get(..span.start).unwrap_or_default();
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let shown = text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        if !shown.contains("key") {
            return Self::Syntax { path, source };
        }
        let line = before.lines().count() + usize::from(start == before.len());
        Self::Secret { path, line, message: source.message().to_owned() }
    }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// Where it cannot be read or a field is wrong; the text says which and what it may be.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Read { path: path.to_owned(), source };
        let text = Zeroizing::new(fs::read_to_string(path).map_err(unreadable)?);
        let config = Self::parse(path, &text)?;
        let mode = fs::metadata(path).map_err(unreadable)?.mode();
        if mode & 0o077 != 0 && config.sa.iter().any(|sa| sa.has_key) {
            return Err(ConfigError::Open(path.to_owned()));
        }
        Ok(config)
    }

    /// Reads the text of a file; `path` is for messages only.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let config: Self =
            toml::from_str(text).map_err(|source| ConfigError::syntax(path, text, source))?;
        let manual = config.manual().map(drop);
        manual.map_err(|source| ConfigError::Manual { path: path.to_owned(), source })?;
        config.validate().map_err(|(field, value, rule)| ConfigError::Range {
            path: path.to_owned(),
            field,
            value,
            rule,
        })?;
        Ok(config)
    }

    /// The SAs that are keyed by hand.
    ///
    /// # Errors
    /// Where they do not go together; never after [`Config::parse`].
    pub fn manual(&self) -> Result<ManualSas, ManualSaError> {
        let sas = self.sa.iter().map(|sa| sa.manual(self.esp.replay_window)).collect();
        ManualSas::new(sas, self.esp.sequences.clone())
    }

    /// What network cards are to do.
    fn offload(&self) -> OffloadSettings {
        let device = (!self.esp.offload_device.is_empty()).then(|| self.esp.offload_device.clone());
        let choice = placement::Choice { wanted: self.esp.offload, device };
        let tunnels = self.tunnel.iter().filter_map(|(name, tunnel)| {
            let wanted = tunnel.offload.map(|Named(wanted)| wanted);
            Some((name.clone(), choice.changed(wanted, tunnel.offload_device.as_deref())?))
        });
        let tunnels: BTreeMap<String, placement::Choice> = tunnels.collect();
        let manual =
            self.sa.iter().filter_map(|sa| sa.offload(tunnels.get(sa.name()).unwrap_or(&choice)));
        let manual = manual.collect();
        OffloadSettings { choice, tunnels, manual }
    }

    /// Where packets are to be protected.
    pub fn planes(&self) -> PlaneSettings {
        let (choice, tunnels) = (self.esp.dataplane.0, tunnel::planes(&self.tunnel));
        PlaneSettings { choice, tunnels, offload: self.offload() }
    }

    /// IKE's timers and limits.
    pub fn ike(&self) -> ike::Config {
        let defaults = ike::Config::default();
        ike::Config {
            retransmit_after: self.ike.retransmit_after.0.unwrap_or(defaults.retransmit_after),
            retransmissions: self.ike.retransmissions,
            liveness_interval: self.ike.liveness_interval.0,
            liveness_action: self.ike.liveness_action.into(),
            close_action: self.ike.close_action.into(),
            nat_keepalive: self.ike.nat_keepalive.0.unwrap_or(defaults.nat_keepalive),
            cookie_threshold: self.ike.cookie_threshold,
            half_open_limit: self.ike.half_open_limit,
            linger: self.ike.linger.0.unwrap_or(defaults.linger),
            replay_window: self.esp.replay_window,
            encap: match self.esp.encap {
                Encap::Auto => ike::Encap::Auto,
                Encap::Always => ike::Encap::Always,
                Encap::Never => ike::Encap::Never,
            },
            fragment_size: self.ike.fragmentation.then_some(self.ike.fragment_size),
            reauthenticate: self.ike.reauthenticate.0,
            mobike: self.ike.mobike,
            return_routability: self.ike.return_routability,
        }
    }

    /// A gateway with this policy, as the configuration wants it.
    pub fn gateway(&self, policy: impl Into<Arc<Policy>>) -> vpn::Builder {
        let workers = Settings {
            workers: self.esp.workers,
            schedule: self.esp.schedule,
            wait: self.esp.wait,
            affinity: self.esp.affinity.clone(),
        };
        let outer = Outer {
            mtu: Some(self.esp.outer_mtu),
            dont_fragment: self.esp.df.into(),
            learned_for: self.esp.path_mtu_lifetime.0,
        };
        vpn::Gateway::builder(policy)
            .ike(self.ike())
            .outer(outer)
            .workers(workers)
            .without(self.esp.without.clone())
            .device(self.esp.device.clone())
            .state_dir(self.esp.state_dir.clone())
            .crypto(self.crypto.choice())
            .filter(self.filter.filter())
            .manual(self.manual().unwrap_or_default())
            .planes(self.planes())
    }

    fn validate(&self) -> Result<(), (&'static str, String, String)> {
        let ms = Duration::from_millis;
        let s = Duration::from_secs;
        span("ike.retransmit_after", self.ike.retransmit_after, ms(100), s(60), false)?;
        span("ike.liveness_interval", self.ike.liveness_interval, s(1), s(86_400), true)?;
        span("ike.nat_keepalive", self.ike.nat_keepalive, s(1), s(3600), false)?;
        span("ike.reauthenticate", self.ike.reauthenticate, s(10), s(86_400 * 365), true)?;
        span("ike.linger", self.ike.linger, ms(0), s(300), false)?;
        range("ike.retransmissions", u64::from(self.ike.retransmissions), 1, 20)?;
        range("ike.half_open_limit", self.ike.half_open_limit as u64, 1, 1_000_000)?;
        range(
            "ike.cookie_threshold",
            self.ike.cookie_threshold as u64,
            0,
            self.ike.half_open_limit as u64,
        )?;
        range(
            "ike.fragment_size",
            u64::from(self.ike.fragment_size),
            u64::from(ike::SMALLEST_FRAGMENT),
            u64::from(u16::MAX),
        )?;
        let timeout = self.certificates.fetch_timeout;
        // Four addresses are tried within the minute that work with certificates may take.
        span("certificates.fetch_timeout", timeout, ms(100), s(15), false)?;
        let age = self.certificates.ocsp_max_age;
        span("certificates.ocsp_max_age", age, s(60), s(365 * 86_400), true)?;
        range("esp.replay_window", u64::from(self.esp.replay_window), 0, 65_536)?;
        // What every host takes in IPv4 (RFC 791 §3.1).
        range("esp.outer_mtu", u64::from(self.esp.outer_mtu), 576, u64::from(u16::MAX))?;
        // RFC 1191 §6.3: not more than once in two minutes; ten are usual.
        let learned_for = self.esp.path_mtu_lifetime;
        span("esp.path_mtu_lifetime", learned_for, s(120), s(86_400), true)?;
        let device = &self.esp.device;
        let valid = (1..=15).contains(&device.len())
            && device.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'/' | b':' | b'%'))
            && !matches!(device.as_str(), "." | ".." | "all" | "default");
        if !valid {
            let rule = "a device name has 1 to 15 printable characters without blanks, / : and %";
            return Err(("esp.device", format!("{device:?}"), rule.to_owned()));
        }
        Ok(())
    }
}

fn span(
    field: &'static str,
    Span(value): Span,
    min: Duration,
    max: Duration,
    off: bool,
) -> Result<(), (&'static str, String, String)> {
    match value {
        Some(value) if min <= value && value <= max => Ok(()),
        None if off => Ok(()),
        value => {
            let or_off = if off { " or \"off\"" } else { "" };
            Err((
                field,
                value.map_or("\"off\"".to_owned(), |v| format!("{v:?}")),
                format!("it must be between {min:?} and {max:?}{or_off}"),
            ))
        }
    }
}

fn range(
    field: &'static str,
    value: u64,
    min: u64,
    max: u64,
) -> Result<(), (&'static str, String, String)> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err((field, value.to_string(), format!("it must be between {min} and {max}")))
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
        let targets = text.parse().map_err(|_| BadLevel(text.to_owned()))?;
        Ok(Self { text: text.to_owned(), targets })
    }
}

impl<'de> Deserialize<'de> for LogLevel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
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

#[cfg(test)]
mod tests;
