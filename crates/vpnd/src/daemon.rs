//! `vpnd start`: everything around the engine, from the first check to the last undone change.

use self::confinement::{Paths, confine};
use self::journald::Journal;
use self::logging::Logging;
use self::server::{Limits, SocketError, serve};
use crate::certificates::Keeper;
use crate::config::{Config, ConfigError, Found, LogFormat};
use crate::crypto::tunables::Tunables;
use crate::families::FamilySettings;
use crate::filter::{self, FilterSettings};
use crate::kernel_traffic;
use crate::preflight::{self, Surroundings};
use crate::wireshark::{self, KeyDirectoryError};
use ::crypto::CryptoProviders;
use host::policy_file::PolicyFileError;
use host::socket_file::SocketFile;
use policy::Policy;
use sd_notify::NotifyState;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
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
pub(crate) mod logging;
mod manual;
pub(crate) mod memory;
pub mod metrics;
mod numbers;
mod offload;
mod overview;
mod privilege;
mod refusal;
mod reload;
pub mod server;
mod service;
mod service_manager;
mod source;
mod stored;
#[cfg(feature = "otlp")]
mod traces;
mod tunnels;
mod undo;
mod workers;

pub use logging::{LevelControl, follow, start as start_log};
pub use privilege::PrivilegeError;
pub use service::Daemon;
pub use source::{Source, SourceError};

/// The exit status if the configuration or the policy has an error (EX_CONFIG of sysexits.h): only the operator can help, and
/// systemd does not start `vpnd` again (`RestartPreventExitStatus=`).
const MISCONFIGURED: u8 = 78;

/// The options of `vpnd start`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The policy file; `None`: the policy store.
    pub policy: Option<PathBuf>,
    /// Unknown names in the file cause a warning, not an error.
    pub lenient: bool,
    /// The configuration file that was named; `None`: `/etc/vpnd/vpnd.toml` if it exists.
    pub config: Option<PathBuf>,
    /// The control socket; `None`: the configuration's.
    pub control: Option<PathBuf>,
    /// The form of the log; `None`: the configuration's.
    pub log_format: Option<LogFormat>,
    /// Stop when the parent process ends.
    pub exit_with_parent: bool,
    /// The directory that the keys of all SAs are written to; `None`: they are not written.
    pub export_keys: Option<PathBuf>,
}

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
        use PolicyFileError::{Changeable, Invalid, Irregular, NotUtf8, TooLarge};
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
            Self::Policy(SourceError::NotInKernel(_)) => true,
            Self::Policy(SourceError::File(error)) => matches!(
                error,
                Irregular(_) | TooLarge(_) | NotUtf8 { .. } | Changeable { .. } | Invalid(_)
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
    let Err(error) = run_gateway(options, &config, logging) else { return ExitCode::SUCCESS };
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

fn run_gateway(options: &Options, config: &Config, logging: Logging) -> Result<(), StartupError> {
    let Logging { levels, form, journal } = logging;
    privilege::check()?;
    let source = Source::find(options.policy.as_deref(), options.lenient, config)?;
    let file = source.read()?;
    kernel_traffic::check(&file, config).map_err(SourceError::from)?;
    if options.policy.is_none() && file.policy.tunnels.is_empty() {
        warn!("{source} has no tunnel; define some with: vpnctl policy put FILE");
    }
    for warning in &file.warnings {
        warn!("{warning}");
    }
    if cfg!(feature = "insecure-null-cipher") {
        warn!("INSECURE: this is a build for measuring, which encrypts nothing");
    }
    let key_sink = options.export_keys.as_deref().map(wireshark::export_to).transpose()?;
    if let Some(directory) = &options.export_keys {
        warn!(
            "INSECURE: the keys of all SAs are written to {}: whoever reads them reads the traffic; they stay there",
            directory.display()
        );
    }
    let (filter_settings, remark) = FilterSettings::read(&config.filter);
    for remark in remark.into_iter().chain(filter_settings.remarks(&config.filter)) {
        warn!("{remark}");
    }
    let filter = filter_settings.filter(&config.filter);
    if let Some(warning) = filter::warning(&filter, &config.esp.device) {
        warn!("{warning}");
    }
    let (socket, listener) = server::bind(&config.control.socket)?;
    if let Some(endpoint) = config.traces.endpoint.as_ref().filter(|_| cfg!(not(feature = "otlp")))
    {
        return Err(StartupError::Traces(endpoint.clone()));
    }
    let listen = |address| metrics::listen(address, config.metrics.page);
    let endpoint = config.metrics.listen.as_ref().map(listen).transpose()?;

    // The last moment with one thread. The gateway starts confined.
    let paths = Paths::of(options, config);
    for remark in paths.remarks() {
        warn!("{remark}");
    }
    // A confined process cannot look at others, nor connect to them.
    let holder = host::udp_holder(ike::IKE_PORT);
    let helper = helper::start("/proc/self/exe").map_err(|error| error.to_string());
    if helper.is_err()
        && let Err(error) = service_manager::connect()
    {
        warn!(%error, "cannot connect to the service manager");
    }
    if helper.is_ok()
        && let Some(Err(error)) = journal.as_ref().map(Journal::leave_to_helper)
    {
        warn!(%error, "lines of the log have no fields (TUNNEL=): the helper does not reach the journal");
    }
    let mut confinement = confine(&paths, helper);
    // Modules of tokens are other people's code, with threads of their own: they are confined, too.
    let keeper = Arc::new(Keeper::new(config.certificates.clone()));
    let certificates = keeper.read();
    confinement.forbid_new_code();
    for missing in &confinement.info().missing {
        warn!("vpnd is not confined by {missing}");
    }
    // One file that cannot be used keeps no tunnel down that does without it.
    for error in &certificates.errors {
        error!("{error}");
    }

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|source| StartupError::System { what: "start the runtime", source })?;
    runtime.block_on(async {
        let signals = Signals::new()
            .map_err(|source| StartupError::System { what: "listen for signals", source })?;
        let listener = UnixListener::from_std(listener)
            .map_err(|source| StartupError::System { what: "serve the control socket", source })?;
        let policy = Arc::new(file.policy);
        let trust = Arc::clone(&certificates.trust);
        keeper.keep(Arc::clone(&policy), Arc::clone(&trust));
        let lists = Arc::clone(keeper.lists());
        for warning in config.manual().as_ref().map(manual::at_start).unwrap_or_default() {
            warn!("{warning}");
        }
        let with = Surroundings {
            config,
            filter: &filter,
            providers: &CryptoProviders::new(config.crypto.choice()),
            certificates: Some(&certificates),
        };
        for remark in preflight::remarks(&policy, &with) {
            warn!("{remark}");
        }
        let (families, remark) = FamilySettings::read(&config.families);
        if let Some(remark) = remark {
            warn!("{remark}");
        }
        let of_ike = ike::Config { families: families.at_start(), ..config.ike() };
        let builder = config.gateway(Arc::clone(&policy)).ike(of_ike).filter(filter);
        let builder = builder.trust(trust).revocation_lists(lists);
        let builder = match key_sink {
            Some(sink) => builder.log_keys(sink),
            None => builder,
        };
        #[cfg(feature = "otlp")]
        let observed = {
            let collector = config.traces.endpoint.as_ref();
            collector.map(|place| (place, builder.subscribe_with_exchanges()))
        };
        let (events, counted) = (builder.subscribe(), builder.subscribe());
        let gateway = builder.start().await.map_err(|error| naming(error, holder))?;
        let log = tokio::spawn(follow(events, form));
        #[cfg(feature = "otlp")]
        let observed = observed.map(|(place, events)| traces::start(place, events));
        warn_of_lacks(&gateway, &policy).await;
        let providers = gateway.crypto().providers();
        let (crypto, remarks) =
            Tunables::start(&config.crypto, Arc::clone(providers), Some(gateway.workers().clone()));
        for remark in remarks {
            warn!("{remark}");
        }
        tokio::spawn(remind(Arc::clone(&keeper)));
        let daemon = Daemon::new(gateway, source, keeper, levels)
            .with_crypto(crypto)
            .with_families(families)
            .with_filter_settings(filter_settings)
            .configured(options.config.clone(), config.clone())
            .confined(confinement.info().clone())
            .exporting_keys_to(options.export_keys.clone());
        let daemon = Arc::new(daemon.with_policy(Arc::clone(&policy), file.definitions));
        let ready = format!(
            "ready: {} tunnel{}, control socket {}",
            policy.tunnels.len(),
            if policy.tunnels.len() == 1 { "" } else { "s" },
            socket.path().display()
        );
        let metrics = endpoint.map(|endpoint| metrics::serve(endpoint, &daemon, counted));
        let metrics = metrics.unwrap_or_default();
        run(daemon, socket, listener, signals, log, metrics, &ready).await;
        #[cfg(feature = "otlp")]
        if let Some(traces) = observed {
            // It has ended with the events, unless the collector is slow.
            let _ = traces.await;
        }
        Ok(())
    })
}

/// The error of a start, with the process that had IKE's port before.
fn naming(error: vpn::StartError, holder: Option<vpn::Process>) -> vpn::StartError {
    match error {
        vpn::StartError::Socket(socket) if socket.holder.is_none() => {
            vpn::SocketError { holder, ..socket }.into()
        }
        error => error,
    }
}

/// Says which tunnels cannot come up on this host. Those that start by themselves say so when they fail.
async fn warn_of_lacks(gateway: &vpn::Gateway, policy: &Policy) {
    let starts = |name: &String| {
        let tunnel = policy.tunnel(name);
        tunnel.is_some_and(|t| t.auto_start || t.children.iter().any(|child| child.auto_start))
    };
    // A gateway that has ended already says so itself.
    let lacking = gateway.tunnels().lacking().await.unwrap_or_default();
    for (tunnel, lack) in lacking.into_iter().filter(|(name, _)| !starts(name)) {
        warn!("{}", tunnels::cannot_send(&tunnel, lack));
    }
}

/// Says every day which certificates have expired or soon will: it may be months since the start.
async fn remind(keeper: Arc<Keeper>) {
    let mut days = tokio::time::interval(Duration::from_secs(24 * 3600));
    // The first tick is at once, and the start has said it already.
    days.tick().await;
    loop {
        days.tick().await;
        for remark in keeper.expiring() {
            warn!("{remark}");
        }
    }
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
