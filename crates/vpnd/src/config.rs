//! `vpnd.toml`: what the policy does not say. Every field has a default, so that no file is needed.

use host::writers::{Changeable, check_file};
use policy::Policy;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vpn::manual::{ManualSaError, ManualSas};
use vpn::{GuardSettings, HostSettings, OffloadSettings, PlaneSettings};
use xfrm::placement;
use zeroize::Zeroizing;

mod advice;
mod certificates;
mod crypto;
mod esp;
mod families;
mod file;
mod filter;
mod ike;
mod log;
mod manual;
mod metrics;
mod policy_store;
mod ranges;
mod traces;
mod tunnel;
mod workers;
mod written;

pub use self::esp::{Df, Encap, Esp};
pub use self::ike::{Ike, RestartAction};
pub use self::log::{BadLevel, Log, LogFormat, LogLevel, Targeted};
pub use self::metrics::Metrics;
pub use self::traces::Traces;
pub use certificates::{Certificates, WithoutCrl};
pub use crypto::Crypto;
pub use families::FamiliesSection;
pub use file::{DEFAULT_FILE, Found, NO_FILE};
pub use filter::{FilterSection, GuardNeed, OnStop};
pub use manual::Sa;
pub(crate) use manual::{NATT_PORT, read_key};
pub use policy_store::PolicyStore;
pub(crate) use ranges::words as range_in_words;
pub use settings::{Control, Named, Span};
pub use tunnel::Tunnel;
pub use written::{HEAD, REPEATED, SECTIONS, text};

use settings::{Declared, OutOfRange};

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
    /// `[metrics]`
    pub metrics: Metrics,
    /// `[traces]`
    pub traces: Traces,
    /// `[ike]`
    pub ike: Ike,
    /// `[esp]`
    pub esp: Esp,
    /// `[families]`
    pub families: FamiliesSection,
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

/// The configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read the configuration {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Others may change it.
    #[error("the configuration {}: {problem}", .path.display())]
    Changeable {
        /// The file.
        path: PathBuf,
        /// The users who may change it, and the cure.
        problem: Changeable,
    },
    /// It is no TOML, or has a field of another name or type.
    #[error("{}: {}{}", .path.display(), .source.to_string().trim_end(), lines_of(.advice.as_ref()))]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The parser's error, with the line of the file.
        source: Box<toml::de::Error>,
        /// The change that mends it, where the parser's error does not tell it.
        advice: Option<String>,
    },
    /// The same in a line with a key, which is not shown.
    #[error("{}: TOML parse error at line {line}: {message}", .path.display())]
    Secret {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// The parser's message.
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
        /// The SA and the conflict.
        source: ManualSaError,
    },
    /// It has a line of `ip xfrm` that cannot be used.
    #[error("{}: {why}", .path.display())]
    Lines {
        /// The file.
        path: PathBuf,
        /// The line and the reason.
        why: String,
    },
    /// It has no SA.
    #[error("{}: there is no [[sa]] table in it; docs/operate/manual-sas.md shows one", .0.display())]
    NoSa(PathBuf),
    /// A value is out of range.
    #[error("{}: {}{} = {}: {}", .path.display(), before(*.line), .it.field, .it.value, .it.rule)]
    Range {
        /// The file.
        path: PathBuf,
        /// Its line, from 1; `None` if the setting has none of its own.
        line: Option<usize>,
        /// The field, as `section.key`, its value, and the rule that the value breaks.
        it: Box<OutOfRange>,
    },
}

impl ConfigError {
    /// The parser's error, without the line of the file if that may hold a key.
    pub(crate) fn syntax(path: &Path, text: &str, source: toml::de::Error) -> Self {
        let path = path.to_owned();
        let span = source.span().unwrap_or_default();
        let before = text.get(..span.start).unwrap_or_default();
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let shown = text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        if !shown.contains("key") {
            let advice = advice::advice(text, source.message(), source.span());
            return Self::Syntax { path, source: Box::new(source), advice };
        }
        let line = before.lines().count() + usize::from(start == before.len());
        Self::Secret { path, line, message: source.message().to_owned() }
    }
}

/// The number of a line before the text about it.
fn before(line: Option<usize>) -> String {
    line.map(|line| format!("line {line}: ")).unwrap_or_default()
}

/// A line of advice below an error.
fn lines_of(advice: Option<&String>) -> String {
    advice.map(|advice| format!("\n  {advice}")).unwrap_or_default()
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// Where it cannot be read or a field is wrong; the text says which and what it may be.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Read { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        // Reserved in one piece: a buffer that grows leaves copies of keys in freed memory.
        let size = usize::try_from(metadata.len()).unwrap_or(0);
        let mut text = Zeroizing::new(String::with_capacity(size + 1));
        file.read_to_string(&mut text).map_err(unreadable)?;
        // Before errors of its text: it may be the text of others.
        check_file(path, &metadata)
            .map_err(|problem| ConfigError::Changeable { path: path.to_owned(), problem })?;
        let config = Self::parse(path, &text)?;
        let mode = metadata.mode();
        if mode & 0o077 != 0 && config.sa.iter().any(Sa::has_key) {
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
        ranges::check(&config).map_err(|it| ConfigError::Range {
            path: path.to_owned(),
            line: advice::line_of(text, &it.field),
            it: Box::new(it),
        })?;
        Ok(config)
    }

    /// The settings in which two configurations differ and which only a restart applies, as `section.key`, and the
    /// tables that can stand more than once by their headers.
    ///
    /// The command line may have replaced `[control]` and `[log]`: they count as equal.
    pub fn needs_restart(&self, other: &Self) -> Vec<String> {
        let Self {
            policy,
            control: _,
            log: _,
            metrics,
            traces,
            ike,
            esp,
            families,
            filter,
            certificates,
            crypto,
            sa,
            tunnel,
        } = self;
        let mut names = policy.needs_restart(&other.policy);
        names.extend(metrics.needs_restart(&other.metrics));
        names.extend(traces.needs_restart(&other.traces));
        names.extend(ike.needs_restart(&other.ike));
        names.extend(esp.needs_restart(&other.esp));
        names.extend(families.needs_restart(&other.families));
        names.extend(filter.needs_restart(&other.filter));
        names.extend(certificates.needs_restart(&other.certificates));
        names.extend(crypto.needs_restart(&other.crypto));
        names.extend((*sa != other.sa).then(|| "[[sa]]".to_owned()));
        let either: BTreeSet<&String> = tunnel.keys().chain(other.tunnel.keys()).collect();
        let differing =
            either.into_iter().filter(|name| tunnel.get(*name) != other.tunnel.get(*name));
        names.extend(differing.map(|name| format!("[tunnel.{name:?}]")));
        names
    }

    /// The SAs that are keyed by hand.
    ///
    /// # Errors
    /// Where they do not go together; never after [`Config::parse`].
    pub fn manual(&self) -> Result<ManualSas, ManualSaError> {
        let sas = self.sa.iter().map(|sa| sa.manual(self.esp.replay_window)).collect();
        ManualSas::new(sas, self.esp.sequences.clone())
    }

    /// The offload settings of all SAs.
    fn offload(&self) -> OffloadSettings {
        let choice = self.esp.placement();
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

    /// The data plane of each tunnel.
    pub fn planes(&self) -> PlaneSettings {
        let (choice, tunnels) = (self.esp.dataplane.0, tunnel::planes(&self.tunnel));
        PlaneSettings { choice, tunnels, offload: self.offload() }
    }

    /// IKE's timers and limits.
    pub fn ike(&self) -> ::ike::Config {
        let config = self.esp.ike(self.ike.config());
        ::ike::Config { families: self.families.families(), ..config }
    }

    /// The data planes, and their traces on the host.
    pub fn host(&self) -> HostSettings {
        HostSettings {
            floor: self.esp.floor(),
            userspace: self.esp.userspace(),
            filter: Arc::new(self.filter.filter()),
            guard: GuardSettings {
                required: self.filter.guard == GuardNeed::Required,
                ..self.esp.guard()
            },
            crypto: self.crypto.choice(),
            workers: self.esp.threads(),
            planes: self.planes(),
            manual: self.manual().unwrap_or_default(),
            ..HostSettings::default()
        }
    }

    /// A gateway with this policy, as the configuration wants it.
    pub fn gateway(&self, policy: impl Into<Arc<Policy>>) -> vpn::Builder {
        vpn::Gateway::builder(policy).ike(self.ike()).host(self.host())
    }
}

#[cfg(test)]
mod tests;
