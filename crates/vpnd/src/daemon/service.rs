//! A running daemon, and the table of the commands that it answers.

use super::listing::Places;
use super::numbers::Numbers;
use super::refusal::bad_level;
use super::server::Service;
use super::undo::Pending;
use super::{LevelControl, Source};
use crate::certificates::Keeper;
use crate::config::{Config, FilterSection, Found, OnStop};
use crate::crypto::tunables::Tunables;
use crate::families::FamilySettings;
use crate::filter::FilterSettings;
use crate::in_force::InForce;
use control::protocol::{Command, ConfinementInfo, Refusal, Reply};
use policy::Policy;
use policy::xml::Definitions;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Notify};
use vpn::{Events, Gateway};

/// A running daemon around a gateway.
pub struct Daemon {
    pub(super) gateway: Gateway,
    pub(super) source: Source,
    pub(super) certificates: Arc<Keeper>,
    /// The policy in force, and where it is defined.
    in_force: std::sync::Mutex<Arc<InForce>>,
    pub(super) numbers: Numbers,
    pub(super) places: Places,
    pub(super) levels: LevelControl,
    pub(super) crypto: Tunables,
    pub(super) families: FamilySettings,
    pub(super) filter_settings: FilterSettings,
    /// The section `[filter]` that the last reload has put in force; `None`: that of the start.
    reloaded_filter: std::sync::Mutex<Option<FilterSection>>,
    pub(super) keys_exported_to: Option<PathBuf>,
    pub(super) confinement: Option<ConfinementInfo>,
    /// The configuration that the daemon was started with, and its file.
    pub(super) started_with: Found,
    pub(super) started: Instant,
    pub(super) reloading: Mutex<()>,
    pub(super) pending_filter: Pending,
    stop: Notify,
    /// The guard is to stay after the stop.
    keep_guard: AtomicBool,
}

impl Daemon {
    /// Puts the parts together; a reload reads the policy from `source` and what `certificates` keeps.
    pub fn new(
        gateway: Gateway,
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
            places: Places::default(),
            levels,
            crypto: Tunables::default(),
            families: FamilySettings::default(),
            filter_settings: FilterSettings::default(),
            reloaded_filter: std::sync::Mutex::default(),
            keys_exported_to: None,
            confinement: None,
            started_with: Found::default(),
            started: Instant::now(),
            reloading,
            pending_filter: Pending::default(),
            stop: Notify::new(),
            keep_guard: AtomicBool::new(false),
        }
    }

    /// Lets it know what the gateway was started with, and where in the file that is defined.
    #[must_use]
    pub fn with_policy(self, policy: Arc<Policy>, definitions: Definitions) -> Self {
        self.keep_in_force(policy, definitions);
        self
    }

    /// Has it command the gateway's crypto facility.
    #[must_use]
    pub fn with_crypto(self, crypto: Tunables) -> Self {
        Self { crypto, ..self }
    }

    /// Lets it know the settings of the address families that outlive a restart.
    #[must_use]
    pub fn with_families(self, families: FamilySettings) -> Self {
        Self { families, ..self }
    }

    /// Lets it know the defaults of the filter that outlive a restart.
    #[must_use]
    pub fn with_filter_settings(self, filter_settings: FilterSettings) -> Self {
        Self { filter_settings, ..self }
    }

    /// Lets it know where the gateway's keys are written to, so that it tells everybody who asks.
    #[must_use]
    pub fn exporting_keys_to(self, directory: Option<PathBuf>) -> Self {
        Self { keys_exported_to: directory, ..self }
    }

    /// Lets it know how its process is confined.
    #[must_use]
    pub fn confined(self, confinement: ConfinementInfo) -> Self {
        Self { confinement: Some(confinement), ..self }
    }

    /// Lets it know what it was started with, and where that was read from: a reload reads it again.
    #[must_use]
    pub fn configured(self, file: Option<PathBuf>, config: Config) -> Self {
        Self { started_with: Found { file, config }, ..self }
    }

    /// The gateway.
    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Waits until a client asks the daemon to stop. Returns `true` if the traffic of the tunnels is to stay blocked.
    pub async fn stop_wanted(&self) -> bool {
        self.stop.notified().await;
        self.keep_guard.load(Ordering::SeqCst)
    }

    /// Returns `true` if the traffic of the tunnels is to stay blocked when SIGTERM ends the daemon.
    pub(super) fn blocks_on_stop(&self) -> bool {
        self.started_with.config.filter.on_stop == OnStop::Block
    }

    /// Says what has become of the tunnels' traffic with the end of the gateway.
    pub(super) fn after_stop(&self, blocked: bool) -> &'static str {
        let esp = &self.started_with.config.esp;
        let held = vpn::guard::held_since(&esp.state_dir, &esp.device).is_ok_and(|h| h.is_some());
        match (blocked, held) {
            (true, _) => {
                "stopped; the traffic of the tunnels stays blocked until the next start; to release it: vpnd release"
            }
            (false, true) => {
                "stopped; vpnd guard keeps the traffic of the tunnels blocked; to release it: vpnd release"
            }
            (false, false) => {
                "stopped; the traffic of the tunnels is no longer blocked, and takes the host's other routes"
            }
        }
    }

    pub(super) fn keep_in_force(&self, policy: Arc<Policy>, definitions: Definitions) {
        let in_force = Arc::new(InForce::new(policy, definitions));
        self.numbers.admit(&in_force);
        *self.in_force.lock().unwrap_or_else(PoisonError::into_inner) = in_force;
    }

    /// Notes the section `[filter]` that a reload has put in force.
    pub(super) fn keep_filter_section(&self, section: FilterSection) {
        *self.reloaded_filter.lock().unwrap_or_else(PoisonError::into_inner) = Some(section);
    }

    /// The section `[filter]` in force.
    pub(super) fn filter_section(&self) -> FilterSection {
        let reloaded = self.reloaded_filter.lock().unwrap_or_else(PoisonError::into_inner).clone();
        reloaded.unwrap_or_else(|| self.started_with.config.filter.clone())
    }

    pub(super) fn current(&self) -> Arc<Policy> {
        Arc::clone(self.in_force().policy())
    }

    /// The policy in force, with its index.
    pub(super) fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.in_force.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Service for Daemon {
    fn events(&self) -> Events {
        self.gateway.events()
    }

    /// The table of commands. A new one is a line here, and a method in the file beside this one that it is about.
    async fn answer(&self, command: Command) -> Result<Reply, Refusal> {
        match command {
            Command::Why { name } => {
                self.why(&name, Duration::ZERO).await.map(|why| Reply::Why(Box::new(why)))
            }
            Command::Events { names } => self.know(&names).await.map(|()| Reply::Done),
            Command::Activate { names } => self.activate(names).await.map(Reply::Activations),
            Command::Deactivate { name } => self.deactivate(&name).await.map(|()| Reply::Done),
            Command::BeginActivation { names } => {
                self.start_activate(names).await.map(Reply::Activations)
            }
            Command::BeginDeactivation { name } => {
                self.start_deactivate(&name).await.map(|()| Reply::Done)
            }
            Command::List { all } => self.list(all).await.map(Reply::Tunnels),
            Command::ListPage { all, after, count } => {
                self.list_page(all, after.as_deref(), count).await.map(Reply::TunnelPage)
            }
            Command::Status { name } => self.status(&name).await.map(|t| Reply::Tunnels(vec![t])),
            Command::Rekey { name } => self.rekey(&name).await.map(|()| Reply::Done),
            Command::Reload { dry_run, undo_after_seconds } => {
                let undo_after = undo_after_seconds.map(Duration::from_secs);
                self.reload(dry_run, undo_after).await.map(Reply::Reloaded)
            }
            Command::PolicyGet(wanted) => self.get_policy(wanted).await.map(Reply::Policy),
            change @ (Command::PolicyPut(_) | Command::PolicyDelete(_) | Command::PolicyPurge) => {
                self.change_store(change).await.map(Reply::Stored)
            }
            Command::Log { level } => {
                self.levels.set(&level).map(|()| Reply::Done).map_err(bad_level)
            }
            Command::Counters => self.counters().await.map(Reply::Counters),
            Command::TunnelCounters => self.tunnel_counters().await.map(Reply::TunnelCounters),
            Command::CounterMeanings => self.counter_meanings().await.map(Reply::CounterMeanings),
            Command::Workers => Ok(Reply::Workers(self.workers())),
            Command::WorkersSet(change) => self.set_workers(&change).await.map(Reply::Workers),
            Command::Certs => Ok(Reply::Certificates(self.certificates.describe())),
            Command::Crypto => Ok(Reply::Crypto(self.crypto())),
            Command::CryptoSet { tunable, value, persist } => {
                self.set_crypto(&tunable, value, persist).map(Reply::Crypto)
            }
            Command::CryptoStats => self.crypto_stats().await.map(Reply::CryptoStats),
            Command::Families => self.families().await.map(Reply::Families),
            Command::SetFamily { family, on, persist } => {
                self.set_family(&family, on, persist).await.map(Reply::Families)
            }
            Command::Overview => self.overview().await.map(|all| Reply::Overview(Box::new(all))),
            Command::Offload => Ok(Reply::Offload(self.offload())),
            Command::Xfrm { keys } => self.xfrm(keys).await.map(Reply::Xfrm),
            Command::Resync => self.resync().await.map(Reply::Resync),
            Command::ManualSas => self.manual_sas().await.map(Reply::ManualSas),
            Command::SaList => self.sa_list().await.map(Reply::SaList),
            Command::SaAdd { text } => self.add_sas(&text).await.map(Reply::SaAdded),
            Command::SaRemove { name, keep_blocked } => {
                self.remove_sas(&name, keep_blocked).await.map(Reply::SaRemoved)
            }
            Command::Filter => self.described_filter().await.map(Reply::Filter),
            Command::SetFilter { ipv4, ipv6, undo_after_seconds, persist } => {
                let undo_after = undo_after_seconds.map(Duration::from_secs);
                self.set_defaults(ipv4, ipv6, undo_after, persist).await.map(Reply::Filter)
            }
            Command::ForgetFilter => self.forget_defaults().await.map(Reply::Filter),
            Command::Trace { packet } => self.trace(&packet).await.map(Reply::Trace),
            Command::Stop { keep_guard } => {
                self.keep_guard.store(keep_guard, Ordering::SeqCst);
                self.stop.notify_one();
                Ok(Reply::Done)
            }
        }
    }
}
