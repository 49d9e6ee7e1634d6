//! The gateway of `vpnd proxy` and of `vpnd exec`: in this process, for an ordinary user, without a device of the host.

use crate::certificates::Keeper;
use crate::config::{Config, ConfigError, LogFormat, LogLevel};
use crate::daemon::{StartupError, logging, memory};
use crate::preflight;
use host::policy_file::{self, PolicyFileError};
use policy::{Bindings, Policy};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tracing::warn;
use vpn::{Builder, Gateway, InProcess};

/// The options that both commands have.
#[derive(Clone, Debug)]
pub struct Options {
    /// The policy file.
    pub policy: PathBuf,
    /// Unknown names in it cause a warning, not an error.
    pub lenient: bool,
    /// The configuration file that was named.
    pub config: Option<PathBuf>,
    /// Addresses of this end in the tunnels.
    pub addresses: Vec<IpAddr>,
    /// Addresses of this host at which peers can begin; `None`: the policy's.
    pub listen_ike: Option<Vec<IpAddr>>,
    /// The level of the log; `None`: the configuration's.
    pub log_level: Option<LogLevel>,
    /// The form of the log; `None`: the configuration's.
    pub log_format: Option<LogFormat>,
    /// Stop when the parent process ends.
    pub exit_with_parent: bool,
}

/// The gateway cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The configuration file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The policy file.
    #[error(transparent)]
    Policy(#[from] PolicyFileError),
    /// The process itself.
    #[error(transparent)]
    Startup(#[from] StartupError),
}

/// The files of a gateway that were read.
pub(crate) struct Opened {
    /// The policy.
    pub policy: Arc<Policy>,
    config: Config,
}

impl Options {
    /// Protects the memory of this process, begins its log, and reads the configuration and the policy.
    ///
    /// # Errors
    /// As [`OpenError`].
    pub(crate) fn open(&self) -> Result<Opened, OpenError> {
        memory::protect(self.exit_with_parent).map_err(StartupError::from)?;
        let (mut config, remark) = Config::find_unprivileged(self.config.as_deref())?;
        config.log.format = self.log_format.unwrap_or(config.log.format);
        if let Some(level) = &self.log_level {
            config.log.level = level.clone();
        }
        logging::start(&config.log);
        // Inside of this process there are neither marks nor interfaces.
        let none = Bindings::default();
        let file = policy_file::read_with(&self.policy, self.lenient, &none)?;
        for warning in remark.iter().chain(&file.warnings) {
            warn!("{warning}");
        }
        Ok(Opened { policy: Arc::new(file.policy), config })
    }
}

impl Opened {
    /// A gateway of these files, which is still to be started.
    pub fn builder(&self, options: &Options) -> Builder<InProcess> {
        let keeper = Keeper::new(self.config.certificates.clone());
        let certificates = keeper.read();
        for error in &certificates.errors {
            warn!("{error}");
        }
        for remark in preflight::in_process(&self.policy, &self.config, &certificates) {
            warn!("{remark}");
        }
        let builder = Gateway::builder(Arc::clone(&self.policy))
            .ike(self.config.ike())
            .trust(Arc::clone(&certificates.trust))
            .revocation_lists(Arc::clone(keeper.lists()))
            .in_process()
            .crypto(self.config.crypto.choice())
            .addresses(options.addresses.clone());
        match &options.listen_ike {
            Some(addresses) => builder.listen(addresses.clone()),
            None => builder,
        }
    }

    /// Has the events of the gateway written into the log, until it has stopped.
    pub fn log(&self, builder: &Builder<InProcess>) -> JoinHandle<()> {
        tokio::spawn(logging::follow(builder.subscribe(), self.config.log.format.into()))
    }
}

/// The runtime of the process.
///
/// # Errors
/// If the system refuses a thread.
pub(crate) fn runtime() -> Result<Runtime, OpenError> {
    let made = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    Ok(made.map_err(|source| StartupError::System { what: "start the runtime", source })?)
}
