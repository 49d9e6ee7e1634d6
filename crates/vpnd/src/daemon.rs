//! `vpnd start`: everything around the engine, from the first check to the last undone change.

use self::server::{Limits, SocketError, serve};
use crate::config::{Config, ConfigError, Found, LogFormat};
use crate::wireshark::KeyDirectoryError;
use host::policy_file::PolicyFileError;
use host::socket_file::SocketFile;
use sd_notify::NotifyState;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use terminal::control_socket;
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tracing::{error, info, warn};

pub mod confinement;
mod crypto;
mod families;
pub mod helper;
mod journald;
mod listing;
pub(crate) mod logging;
mod manual;
pub(crate) mod memory;
pub mod metrics;
mod numbers;
mod offload;
mod options;
mod overview;
mod privilege;
mod refusal;
mod reload;
mod remarks;
pub mod server;
mod service;
mod service_manager;
mod source;
mod startup;
mod stored;
#[cfg(feature = "otlp")]
mod traces;
mod tunnels;
mod undo;
mod workers;

pub use logging::{LevelControl, follow, start as start_log};
pub use options::Options;
pub use privilege::PrivilegeError;
pub use service::Daemon;
pub use source::{Source, SourceError};

/// The exit status if the configuration or the policy has an error (EX_CONFIG of sysexits.h): only the operator can help, and
/// systemd does not start `vpnd` again (`RestartPreventExitStatus=`).
const MISCONFIGURED: u8 = 78;

/// The daemon could not be started; nothing is left behind.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    /// The configuration file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The policy.
    #[error(transparent)]
    Policy(#[from] SourceError),
    /// The control socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The endpoint for metrics.
    #[error(transparent)]
    Metrics(#[from] ::metrics::BindError),
    /// The collector of spans.
    #[error(
        "this vpnd was built without the feature otlp, and sends no spans to {0}: leave endpoint of [traces] in vpnd.toml empty, or \
         build vpnd with that feature"
    )]
    Traces(::traces::Endpoint),
    /// Capabilities or devices.
    #[error(transparent)]
    Privilege(#[from] privilege::PrivilegeError),
    /// The directory for exported keys.
    #[error(transparent)]
    Keys(#[from] KeyDirectoryError),
    /// The gateway itself.
    #[error("cannot start the gateway: {0}")]
    Gateway(#[from] vpn::StartError),
    /// Core dumps and the like.
    #[error(transparent)]
    Memory(#[from] memory::MemoryError),
    /// Something else of the system.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

impl StartupError {
    /// Tells the service manager, which shows it: the log of a process that ended at once may lack its name there. Returns
    /// the exit status.
    fn end(&self) -> ExitCode {
        service_manager::tell_failure(&self.to_string());
        match self.is_in_a_text() {
            true => ExitCode::from(MISCONFIGURED),
            false => ExitCode::FAILURE,
        }
    }

    /// Returns `true` if the text of a file is wrong, so that another attempt ends the same. A file that is not there, or a
    /// policy store that another process has, may be another thing a moment later.
    fn is_in_a_text(&self) -> bool {
        use PolicyFileError::{
            Changeable, DirectoryTooLarge, Invalid, Irregular, NotUtf8, TooLarge,
        };
        use vpn::store::StoreError;
        match self {
            Self::Config(error) => matches!(
                error,
                ConfigError::Syntax { .. }
                    | ConfigError::Open(_)
                    | ConfigError::Changeable { .. }
                    | ConfigError::Manual { .. }
            ),
            Self::Policy(SourceError::Store(error)) => matches!(
                error,
                StoreError::Changeable { .. }
                    | StoreError::Damaged(_)
                    | StoreError::Unreadable { .. }
            ),
            Self::Policy(SourceError::Refused(_)) => true,
            Self::Policy(SourceError::File(error)) => matches!(
                error,
                Irregular(_)
                    | TooLarge(_)
                    | DirectoryTooLarge(_)
                    | NotUtf8 { .. }
                    | Changeable { .. }
                    | Invalid(_)
            ),
            _ => false,
        }
    }
}

/// Runs the daemon until it is told to stop by a signal or through its socket.
///
/// Prints one line to standard output when it is ready, and logs to standard error; there it also says why it cannot
/// start, in the form of the log.
pub fn start(options: &Options) -> ExitCode {
    let protected = memory::protect(options.exit_with_parent).and_then(|()| memory::dump_none());
    let configured = protected.map_err(StartupError::from).and_then(|()| configure(options));
    let Found { file, config } = match configured {
        Ok(found) => found,
        Err(error) => {
            eprintln!("vpnd: {error}");
            return error.end();
        }
    };
    let options = &Options { config: file, ..options.clone() };
    let logging = logging::start_daemon(&config.log);
    let Err(error) = startup::run_gateway(options, &config, logging) else {
        return ExitCode::SUCCESS;
    };
    match config.log.format {
        LogFormat::Json => error!("{error}"),
        LogFormat::Human => eprintln!("vpnd: {error}"),
    }
    error.end()
}

fn configure(options: &Options) -> Result<Found, StartupError> {
    let Found { file, mut config } = Config::find(options.config.as_deref())?;
    config.control.socket =
        control_socket::of_daemon(options.control.as_deref(), &config.control.socket);
    config.log.format = options.log_format.unwrap_or(config.log.format);
    Ok(Found { file, config })
}

/// Serves until a signal or a client says stop, then stops the gateway and removes the control socket. The clients'
/// connections close last. `log` ends with the gateway's events, and `metrics` is ended then.
pub async fn run(
    daemon: Arc<Daemon>,
    control: SocketFile,
    listener: UnixListener,
    mut signals: Signals,
    log: JoinHandle<()>,
    mut metrics: JoinSet<()>,
    ready: &str,
) {
    let owner = nix::unistd::geteuid().as_raw();
    let (stopped, stopping) = watch::channel(false);
    let server =
        tokio::spawn(serve(listener, owner, Arc::clone(&daemon), Limits::default(), stopping));

    // On a terminal and in the journal, the line of the log is enough.
    if !logging::shares_standard_output() {
        println!("{ready}");
        if let Err(error) = io::stdout().flush() {
            warn!(%error, "nobody reads standard output");
        }
    }
    info!("{ready}");
    service_manager::tell(&[NotifyState::Ready, NotifyState::Status(ready)]);
    let watched = tokio::spawn(service_manager::be_watched(daemon.gateway().clone()));

    let undoing = Arc::clone(&daemon);
    let undoing = tokio::spawn(async move { undoing.undo_unconfirmed().await });
    let blocked = loop {
        tokio::select! {
            keep_guard = daemon.stop_wanted() => {
                info!("stopping: asked to by vpnctl");
                break keep_guard;
            }
            _ = signals.terminate.recv() => {
                info!("stopping: SIGTERM");
                break daemon.blocks_on_stop();
            }
            _ = signals.interrupt.recv() => {
                info!("stopping: SIGINT");
                break false;
            }
            _ = signals.hangup.recv() => {
                // The daemon says in its log what came of it.
                let _ = daemon.reload(false, None).await;
            }
        }
    };
    undoing.abort();
    watched.abort();
    service_manager::tell(&[NotifyState::Stopping]);
    match blocked {
        true => daemon.gateway().stop_blocked().await,
        false => daemon.gateway().stop().await,
    }
    // The client that asked gets the answer before the connection closes.
    stopped.send_replace(true);
    let connections = server.await;
    // The events have ended with the gateway.
    let _ = log.await;
    metrics.shutdown().await;
    info!("{}", daemon.after_stop(blocked));
    // A client that has seen its connection close may start another daemon at once.
    drop(control);
    drop(connections);
}

/// The signals that the daemon handles.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Takes the signals over; from now on none of them kills the process.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal that ends the process.
    pub async fn end(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
