//! The start of the daemon in three steps: it reads, takes hold of what it needs from the host, and serves.

use super::confinement::{Confinement, Paths, confine};
use super::journald::Journal;
use super::logging::{Form, Logging, follow};
use super::options::Options;
use super::remarks::lacking;
use super::server;
use super::{Daemon, LevelControl, Signals, Source, SourceError, StartupError};
use super::{helper, metrics, privilege, run, service_manager};
use crate::certificates::{Certificates, Keeper};
use crate::config::Config;
use crate::crypto::tunables::Tunables;
use crate::families::FamilySettings;
use crate::filter::FilterSettings;
use crate::preflight::{self, Surroundings};
use crate::remark::{DaemonState, Remark};
use crate::wireshark;
use ::crypto::CryptoProviders;
use host::policy_file::PolicyFile;
use host::socket_file::SocketFile;
use ike::key_log::Sink;
use std::os::unix::net::UnixListener as StdListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tracing::{error, warn};
use vpn::Gateway;

/// The files of a start that were read, and the policy, which the daemon can run.
struct Read {
    source: Source,
    file: PolicyFile,
    key_sink: Option<Sink>,
    filter: FilterSettings,
    families: FamilySettings,
}

/// Everything that this process has of the host from now on. It is confined.
struct Held {
    socket: SocketFile,
    listener: StdListener,
    metrics: Option<::metrics::Bound>,
    /// The process that has IKE's port.
    holder: Option<vpn::Process>,
    confinement: Confinement,
    keeper: Arc<Keeper>,
    certificates: Certificates,
}

/// Runs the daemon until it is told to stop.
pub(super) fn run_gateway(
    options: &Options,
    config: &Config,
    logging: Logging,
) -> Result<(), StartupError> {
    let Logging { levels, form, journal } = logging;
    let read = read(options, config)?;
    let held = take_hold(options, config, journal.as_ref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|source| StartupError::System { what: "start the runtime", source })?;
    runtime.block_on(serve(options, config, (levels, form), read, held))
}

fn read(options: &Options, config: &Config) -> Result<Read, StartupError> {
    privilege::check()?;
    let source = Source::find(options.policy.as_deref(), options.lenient, config)?;
    let file = source.read()?;
    preflight::refuse(&file, config).map_err(SourceError::from)?;
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
    // The remarks about both files come with all others.
    let (filter, _) = FilterSettings::read(&config.filter);
    let (families, _) = FamilySettings::read(&config.families);
    Ok(Read { source, file, key_sink, filter, families })
}

fn take_hold(
    options: &Options,
    config: &Config,
    journal: Option<&Journal>,
) -> Result<Held, StartupError> {
    let (socket, listener) = server::bind(&config.control.socket)?;
    if let Some(endpoint) = config.traces.endpoint.as_ref().filter(|_| cfg!(not(feature = "otlp")))
    {
        return Err(StartupError::Traces(endpoint.clone()));
    }
    let metrics = config.metrics.listen.as_ref();
    let metrics =
        metrics.map(|address| metrics::listen(address, config.metrics.page)).transpose()?;

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
        && let Some(Err(error)) = journal.map(Journal::leave_to_helper)
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
    Ok(Held { socket, listener, metrics, holder, confinement, keeper, certificates })
}

async fn serve(
    options: &Options,
    config: &Config,
    (levels, form): (LevelControl, Form),
    read: Read,
    held: Held,
) -> Result<(), StartupError> {
    let Read { source, file, key_sink, filter: filter_settings, families } = read;
    let Held { socket, listener, metrics, holder, confinement, keeper, certificates } = held;
    let signals = Signals::new()
        .map_err(|source| StartupError::System { what: "listen for signals", source })?;
    let listener = UnixListener::from_std(listener)
        .map_err(|source| StartupError::System { what: "serve the control socket", source })?;
    let policy = Arc::new(file.policy);
    keeper.keep(Arc::clone(&policy), Arc::clone(&certificates.trust));
    let filter = filter_settings.filter(&config.filter);
    let with = Surroundings {
        config,
        daemon: DaemonState::Running,
        filter_section: &config.filter,
        filter_settings: &filter_settings,
        filter: &filter,
        family_settings: &families,
        families: families.at_start(),
        providers: &CryptoProviders::new(config.crypto.choice()),
        certificates: Some(&certificates),
    };
    tell(preflight::preflight(&policy, &with));

    let of_ike = ike::Config { families: families.at_start(), ..config.ike() };
    let mut host = config.host();
    host.filter = Arc::new(filter);
    let mut builder = Gateway::builder(Arc::clone(&policy))
        .ike(of_ike)
        .host(host)
        .trust(Arc::clone(&certificates.trust))
        .revocation_lists(Arc::clone(keeper.lists()));
    if let Some(sink) = key_sink {
        builder = builder.log_keys(sink);
    }
    #[cfg(feature = "otlp")]
    let observed = {
        let collector = config.traces.endpoint.as_ref();
        collector.map(|place| (place, builder.subscribe_with_exchanges()))
    };
    let (events, counted) = (builder.subscribe(), builder.subscribe());
    let gateway = builder.start().await.map_err(|error| naming(error, holder))?;
    let log = tokio::spawn(follow(events, form));
    #[cfg(feature = "otlp")]
    let observed = observed.map(|(place, events)| super::traces::start(place, events));
    tell(preflight::of_gateway(&lacking(&gateway, &policy).await));
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
        .exporting_keys_to(options.export_keys.clone())
        .with_policy(Arc::clone(&policy), file.definitions);
    let daemon = Arc::new(daemon);
    let ready = format!(
        "ready: {} tunnel{}, control socket {}",
        policy.tunnels.len(),
        if policy.tunnels.len() == 1 { "" } else { "s" },
        socket.path().display()
    );
    let metrics = metrics.map(|bound| metrics::serve(bound, &daemon, counted)).unwrap_or_default();
    run(daemon, socket, listener, signals, log, metrics, &ready).await;
    #[cfg(feature = "otlp")]
    if let Some(traces) = observed {
        // It has ended with the events, unless the collector is slow.
        let _ = traces.await;
    }
    Ok(())
}

fn tell(remarks: Vec<Remark>) {
    for remark in remarks {
        warn!("{remark}");
    }
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
