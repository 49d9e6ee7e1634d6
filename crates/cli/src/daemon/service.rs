//! What the daemon does for those who ask through the control socket or with a signal.

use super::numbers::Numbers;
use super::server::Service;
use super::{Gateway, LevelControl, Source};
use crate::certificates::{Certificates, Keeper};
use crate::config::Config;
use crate::crypto::{self, tunables::Tunables};
use crate::offload_advice;
use crate::policy_file::PolicyFile;
use crate::view;
use crate::why::explain;
use control::protocol::{
    Command, Explanation, Refusal, RefusalCode, Reloaded, Reply, Tunnel, WorkersChange, workers,
};
use ike::CommandError;
use policy::Policy;
use policy::xml::Places;
use sd_notify::NotifyState;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use tokio::sync::{Mutex, Notify};
use tracing::{error, info, warn};
use vpn::{Events, GatewayError};

/// A running daemon around a gateway.
pub struct Daemon<G> {
    gateway: G,
    pub(super) source: Source,
    pub(super) certificates: Arc<Keeper>,
    /// The policy in force, and where it is defined.
    in_force: std::sync::Mutex<(Arc<Policy>, Places)>,
    numbers: Numbers,
    levels: LevelControl,
    crypto: Tunables,
    pub(super) keys_exported_to: Option<PathBuf>,
    /// The configuration that the daemon was started with, and its file.
    pub(super) config: (Option<PathBuf>, Config),
    pub(super) started: Instant,
    pub(super) reloading: Mutex<()>,
    stop: Notify,
}

impl<G: Gateway> Daemon<G> {
    /// Puts the parts together; a reload reads the policy from `source` and what `certificates` keeps.
    pub fn new(
        gateway: G,
        source: impl Into<Source>,
        certificates: Arc<Keeper>,
        levels: LevelControl,
    ) -> Self {
        let reloading = Mutex::new(());
        let in_force = std::sync::Mutex::default();
        Self {
            gateway,
            source: source.into(),
            certificates,
            in_force,
            numbers: Numbers::default(),
            levels,
            crypto: Tunables::default(),
            keys_exported_to: None,
            config: Default::default(),
            started: Instant::now(),
            reloading,
            stop: Notify::new(),
        }
    }

    /// Lets it know what the gateway was started with, and where in the file that is defined.
    #[must_use]
    pub fn with_policy(self, policy: Arc<Policy>, places: Places) -> Self {
        self.keep_in_force(policy, places);
        self
    }

    /// Has it command the gateway's crypto facility.
    #[must_use]
    pub fn with_crypto(self, crypto: Tunables) -> Self {
        Self { crypto, ..self }
    }

    /// Lets it know where the gateway's keys are written to, so that it tells everybody who asks.
    #[must_use]
    pub fn exporting_keys_to(self, directory: Option<PathBuf>) -> Self {
        Self { keys_exported_to: directory, ..self }
    }

    /// Lets it know what it was started with, and where that was read from: a reload reads it again.
    #[must_use]
    pub fn configured(self, file: Option<PathBuf>, config: Config) -> Self {
        Self { config: (file, config), ..self }
    }

    /// The gateway.
    pub fn gateway(&self) -> &G {
        &self.gateway
    }

    /// Waits until a client asks the daemon to stop.
    pub async fn stop_wanted(&self) {
        self.stop.notified().await;
    }

    /// Reads the policy file and the certificates again and, unless `dry_run`, puts them in force as a whole, or keeps the old ones and
    /// says why in the log and to the caller.
    ///
    /// # Errors
    /// Where the file cannot be read or has errors.
    pub async fn reload(&self, dry_run: bool) -> Result<Reloaded, Refusal> {
        // One at a time, so that the file read last is the one in force.
        let _guard = self.reloading.lock().await;
        if dry_run {
            return self.replace_policy(true).await;
        }
        tell_reloading();
        let outcome = self.replace_policy(false).await;
        match &outcome {
            Ok(reloaded) => {
                for warning in &reloaded.warnings {
                    warn!("{warning}");
                }
                info!(tunnels = reloaded.tunnels, policy = %self.source, "policy reloaded");
            }
            Err(refusal) => error!("the old policy stays in force: {refusal}"),
        }
        super::tell_systemd(&[NotifyState::Ready]);
        outcome.map_err(|mut refusal| {
            refusal.message.push_str("\nthe old policy stays in force");
            refusal
        })
    }

    async fn replace_policy(&self, dry_run: bool) -> Result<Reloaded, Refusal> {
        let (source, keeper) = (self.source.clone(), Arc::clone(&self.certificates));
        let config = self.config.0.clone();
        let read =
            move || (source.read(), keeper.read(), config.as_deref().map(Config::read).transpose());
        let (file, certificates, config) = tokio::task::spawn_blocking(read)
            .await
            .map_err(|error| Refusal::new(RefusalCode::BadPolicy, error.to_string()))?;
        let file = file.map_err(|error| Refusal::new(RefusalCode::BadPolicy, error.to_string()))?;
        let config = config
            .map_err(|error| Refusal::new(RefusalCode::BadConfiguration, error.to_string()))?;
        usable(&certificates)?;
        // First, since it alone may be refused.
        let (filter, remark) = self.reconfigure(config, dry_run).await?;
        let mut reloaded = self.put_in_force(file, certificates, dry_run).await?;
        reloaded.filter = filter;
        reloaded.warnings.extend(remark);
        Ok(reloaded)
    }

    /// Gives the gateway another policy with what it is to trust, unless `dry_run`.
    pub(super) async fn put_in_force(
        &self,
        file: PolicyFile,
        certificates: Certificates,
        dry_run: bool,
    ) -> Result<Reloaded, Refusal> {
        let mut warnings = file.warnings;
        warnings.extend(certificates.remarks(&file.policy));
        warnings.extend(crypto::remarks::of(&file.policy, self.crypto.facility()));
        warnings.extend(offload_advice::of(&file.policy, &self.config.1.planes()));
        let policy = Arc::new(file.policy);
        let changes = self.current().changes(&policy).into_iter().map(view::change).collect();
        let (tunnels, filter) = (policy.tunnels.len(), Vec::new());
        let reloaded = Reloaded { tunnels, warnings, dry_run, changes, filter };
        if dry_run {
            return Ok(reloaded);
        }
        // Before the policy, whose new tunnels may want them at once.
        self.gateway.replace_trust(Arc::clone(&certificates.trust)).await.map_err(refusal)?;
        self.gateway.replace_policy(Arc::clone(&policy)).await.map_err(refusal)?;
        self.keep_in_force(Arc::clone(&policy), file.places);
        self.certificates.keep(policy, certificates.trust);
        // Whoever reloads may have mended what kept a revocation list from being fetched.
        self.certificates.lists().retry();
        Ok(reloaded)
    }

    pub(super) async fn tunnels(&self) -> Result<Vec<Tunnel>, Refusal> {
        let status = self.gateway.status().await.map_err(refusal)?;
        let directory = self.keys_exported_to.as_ref().map(|d| d.display().to_string());
        let tunnel =
            |status| Tunnel { keys_exported_to: directory.clone(), ..view::tunnel(status) };
        let mut tunnels: Vec<Tunnel> = status.iter().map(tunnel).collect();
        self.numbers.apply(&mut tunnels);
        self.place(&mut tunnels);
        let in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        view::describe(&mut tunnels, &in_force.0, &in_force.1);
        Ok(tunnels)
    }

    /// Finds a phase 1 tunnel, or a phase 2 tunnel with the phase 1 tunnel that carries it and no other child.
    async fn tunnel(&self, name: &str) -> Result<Tunnel, Refusal> {
        let tunnels = self.tunnels().await?;
        if let Some(tunnel) = tunnels.iter().find(|t| t.name == name) {
            return Ok(tunnel.clone());
        }
        for tunnel in &tunnels {
            if let Some(child) = tunnel.children.iter().find(|c| c.name == name) {
                return Ok(Tunnel { children: vec![child.clone()], ..tunnel.clone() });
            }
        }
        Err(unknown_tunnel(name, &tunnels))
    }

    async fn why(&self, name: &str) -> Result<Explanation, Refusal> {
        let status = self.gateway.status().await.map_err(refusal)?;
        let named = status.iter().find(|tunnel| tunnel.name == name);
        let carrying =
            || status.iter().find(|tunnel| tunnel.children.iter().any(|c| c.name == name));
        let Some(tunnel) = named.or_else(carrying) else {
            return Err(unknown_tunnel(name, &self.tunnels().await?));
        };
        let only = (tunnel.name != name).then_some(name);
        let in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(explain(tunnel, only, &in_force.1))
    }

    async fn set_workers(&self, change: &WorkersChange) -> Result<workers::Workers, Refusal> {
        let refused = |message: String| Refusal::new(RefusalCode::BadSetting, message);
        let change = view::workers_change(change).map_err(refused)?;
        let workers = self.gateway.workers().clone();
        // It waits for threads to end.
        let changed = tokio::task::spawn_blocking(move || {
            let settings = workers.change(&change).map_err(|error| error.to_string())?;
            info!(
                schedule = %settings.schedule,
                workers = %settings.workers,
                wait = %settings.wait,
                affinity = %settings.affinity,
                "workers changed"
            );
            Ok(view::workers(&workers.report()))
        });
        changed.await.unwrap_or_else(|error| Err(error.to_string())).map_err(refused)
    }

    fn keep_in_force(&self, policy: Arc<Policy>, places: Places) {
        *self.in_force.lock().unwrap_or_else(PoisonError::into_inner) = (policy, places);
    }

    pub(super) fn current(&self) -> Arc<Policy> {
        Arc::clone(&self.in_force.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Takes what the engine answers. Of a name that it does not know, every command says the same.
    async fn known<T>(&self, outcome: Result<T, GatewayError>) -> Result<T, Refusal> {
        match outcome {
            Err(GatewayError::Command(CommandError::NoSuchTunnel(name, _))) => {
                Err(unknown_tunnel(&name, &self.tunnels().await?))
            }
            outcome => outcome.map_err(refusal),
        }
    }

    /// Checks names that the engine never sees.
    async fn know(&self, names: &[String]) -> Result<(), Refusal> {
        if names.is_empty() {
            return Ok(());
        }
        let tunnels = self.tunnels().await?;
        let known = |name: &String| tunnels.iter().any(|t| t.name == *name || has_child(t, name));
        match names.iter().find(|name| !known(name)) {
            Some(name) => Err(unknown_tunnel(name, &tunnels)),
            None => Ok(()),
        }
    }
}

impl<G: Gateway> Service for Daemon<G> {
    fn events(&self) -> Events {
        self.gateway.events()
    }

    async fn answer(&self, command: Command) -> Result<Reply, Refusal> {
        match command {
            Command::Why { name } => self.why(&name).await.map(Reply::Why),
            Command::Events { names } => {
                self.know(&names).await?;
                Ok(Reply::Done)
            }
            Command::Activate { names } => {
                let activations = self.known(self.gateway.activate(names).await).await?;
                Ok(Reply::Activations(activations.into_iter().map(view::activation).collect()))
            }
            Command::Deactivate { name } => {
                self.known(self.gateway.deactivate(&name).await).await?;
                Ok(Reply::Done)
            }
            Command::List { all } => {
                let mut tunnels = self.tunnels().await?;
                tunnels.retain(|tunnel| all || tunnel.is_active());
                Ok(Reply::Tunnels(tunnels))
            }
            Command::Status { name } => Ok(Reply::Tunnels(vec![self.tunnel(&name).await?])),
            Command::Rekey { name } => {
                self.known(self.gateway.rekey(&name).await).await?;
                Ok(Reply::Done)
            }
            Command::Reload { dry_run } => self.reload(dry_run).await.map(Reply::Reloaded),
            Command::PolicyGet(wanted) => self.get_policy(wanted).await.map(Reply::Policy),
            command @ (Command::PolicyPut(_) | Command::PolicyDelete(_) | Command::PolicyPurge) => {
                self.change_store(command).await.map(Reply::Stored)
            }
            Command::Log { level } => match self.levels.set(&level) {
                Ok(()) => Ok(Reply::Done),
                Err(error) => Err(Refusal::new(RefusalCode::BadLevel, error.to_string())),
            },
            Command::Counters => self.counters().await.map(Reply::Counters),
            Command::Workers => Ok(Reply::Workers(view::workers(&self.gateway.workers().report()))),
            Command::WorkersSet(change) => self.set_workers(&change).await.map(Reply::Workers),
            Command::Certs => Ok(Reply::Certificates(self.certificates.describe())),
            Command::Crypto => Ok(Reply::Crypto(crypto::service::state(&self.crypto, 0))),
            Command::CryptoSet { tunable, value, persist } => {
                let state = crypto::service::set(&self.crypto, &tunable, value, persist)?;
                for line in crypto::report::tunables(&state.tunables).lines() {
                    info!("crypto: {line}");
                }
                Ok(Reply::Crypto(state))
            }
            Command::CryptoStats => {
                self.gateway.with_plane(|plane| plane.tell_work()).await.map_err(refusal)?;
                Ok(Reply::CryptoStats(crypto::service::stats(&self.crypto)))
            }
            Command::Overview => {
                self.overview().await.map(|overview| Reply::Overview(Box::new(overview)))
            }
            Command::Offload => Ok(Reply::Offload(self.offload())),
            Command::Xfrm { keys } => self.xfrm(keys).await.map(Reply::Xfrm),
            Command::Resync => self.resync().await.map(Reply::Resync),
            Command::ManualSas => self.manual_sas().await.map(Reply::ManualSas),
            Command::Filter => {
                self.filter().await.map(|status| Reply::Filter(view::filter(&status)))
            }
            Command::SetFilter { ipv4, ipv6 } => {
                // None of a reload is to get in between.
                let _guard = self.reloading.lock().await;
                self.set_defaults(ipv4, ipv6).await.map(Reply::Filter)
            }
            Command::Trace { packet } => self.trace(&packet).await.map(Reply::Trace),
            Command::Stop => {
                self.stop.notify_one();
                Ok(Reply::Done)
            }
        }
    }
}

fn has_child(tunnel: &Tunnel, name: &str) -> bool {
    tunnel.children.iter().any(|child| child.name == name)
}

fn unknown_tunnel(name: &str, tunnels: &[Tunnel]) -> Refusal {
    let names = tunnels
        .iter()
        .flat_map(|t| std::iter::once(&t.name).chain(t.children.iter().map(|c| &c.name)));
    let nearest = names
        .map(|known| (strsim::normalized_damerau_levenshtein(name, known), known))
        .filter(|(similarity, _)| *similarity >= 0.5)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let hint = match nearest {
        Some((_, known)) => format!("; did you mean {known:?}?"),
        None => "; vpnctl list --all shows all names".to_owned(),
    };
    Refusal::new(RefusalCode::UnknownTunnel, format!("no tunnel {name:?} in the policy{hint}"))
}

pub(super) fn refusal(error: GatewayError) -> Refusal {
    let message = error.to_string();
    match error {
        GatewayError::Command(CommandError::NoSuchTunnel(..)) => {
            Refusal::new(RefusalCode::UnknownTunnel, message)
        }
        GatewayError::Command(_) => Refusal::new(RefusalCode::NotPossible, message),
        GatewayError::Failed(failure) => Refusal {
            code: RefusalCode::Failed,
            message,
            failure: Some(failure.kind.name().to_owned()),
        },
        GatewayError::Policy(_) => Refusal::new(RefusalCode::BadPolicy, message),
        GatewayError::Plane(_) => Refusal::new(RefusalCode::DataPlane, message),
        GatewayError::Stopped => Refusal::new(RefusalCode::Stopping, message),
    }
}

/// Whether every file of certificates can be used.
pub(super) fn usable(certificates: &Certificates) -> Result<(), Refusal> {
    match certificates.errors.as_slice() {
        [] => Ok(()),
        errors => Err(Refusal::new(RefusalCode::BadCertificates, errors.join("\n"))),
    }
}

/// Tells the service manager that a reload began; `Type=notify-reload` wants the time with it.
fn tell_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => super::tell_systemd(&[NotifyState::Reloading, now]),
        Err(error) => warn!(%error, "cannot read the clock"),
    }
}
