//! The kernel's plane and the one of this process as one: each tunnel is of one of them, as its [`Choice`] says.
//!
//! The userspace plane is always there, for the tunnels that the kernel cannot take. Without a tunnel of its own it has no
//! thread, and beside the kernel no device and no route. Guard, filter and the port of IKE and ESP in UDP stand below
//! both planes (`crates/floor`).
//!
//! Nothing leaks while a tunnel changes its plane: the new plane takes the tunnel's traffic before the old one lets go.
//! The rules keep their order across planes: a packet of a tunnel of this process passes the kernel's policies in the
//! place of its rule.

mod capabilities;
mod choice;
mod data_plane;
mod definition;
mod restoration;
mod route_check;
mod table_watch;
#[cfg(test)]
mod tests;

pub(crate) use definition::{Definition, Held};
pub(crate) use floor::guard::{self, Hold};

pub use choice::{
    Choice, Config, Found, GuardSettings, KernelUse, NoSuchChoice, OffloadSettings, PlaneSettings,
    Report, Tunnel,
};
pub use route_check::Unrouted;

use crate::driver::{Completion, CounterReader};
use crypto::{CryptoProviders, Function};
use definition::{GuardedRule, Record};
use esp::filter::Filter;
use esp::plane::{
    DataPlane, InboundSa, Notice, OutboundSa, PacketSummary, PlaneError, Rule, RuleId, SaId,
    TrafficSelectors,
};
use floor::Floor;
use guard::{Dropped, Guard, HeldTable, Holder, Surroundings, Written};
use host::nft;
use policy::{ChildTunnel, Policy};
use restoration::Restoration;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use table_watch::{TableWatch, WatchedTable};
use userspace::Userspace;
use xfrm::{Disturbance, KernelPlane, Xfrm};

/// One sentence on a counter of the guard.
pub fn explanation(counter: &str) -> Option<&'static str> {
    match counter {
        "unprotected_leaving" => Some(
            "Outbound: a packet of a tunnel, or of this host to a tunnel's remote network, that was about to leave in the clear. The guard (nftables) dropped it.",
        ),
        "translated_leaving" => Some(
            "Outbound: a packet of a tunnel that the kernel did not protect, as a NAT rule of this host had changed its address. The guard (nftables) dropped it. Except the remote networks of tunnels from that rule: see docs/operate/planes.md.",
        ),
        "unprotected_arriving" => Some(
            "Inbound: a packet that arrived in the clear and should have been protected. The guard (nftables) dropped it.",
        ),
        _ => None,
    }
}

/// The plane that protects a tunnel's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlaneKind {
    Userspace,
    Kernel,
}

/// Both planes.
pub struct Planes<U = Userspace, K = Xfrm> {
    // In the order in which they end: until the guard goes, nothing of the tunnels leaves in the clear.
    userspace: U,
    /// `None` in tests, which touch no host.
    floor: Option<Floor>,
    kernel: Option<K>,
    /// `None` in tests, which touch no host.
    guard: Option<Guard>,
    config: Config,
    rules: BTreeMap<RuleId, (Rule, PlaneKind)>,
    /// Rules that no plane has taken, as the host refused something. They are guarded, and tried again when the host
    /// has changed.
    unplaced: BTreeMap<RuleId, Rule>,
    /// Tells key management of changes.
    notice: Option<Arc<dyn Fn(Notice) + Send + Sync>>,
    /// `None`: the definition of the guard is kept in no file.
    record: Option<Record>,
    /// The filter that is going to be in force.
    changing_filter: Option<Arc<Filter>>,
    restoration: Restoration,
    sas: BTreeMap<SaId, PlaneKind>,
    /// The last peer of each rule in the kernel.
    peers: BTreeMap<RuleId, IpAddr>,
    /// Tells which tables of nftables others have changed.
    watch: TableWatch,
    /// The SA that receives which the kernel has taken last: should it refuse the one that sends, the pair goes
    /// together.
    mate: Option<InboundSa>,
    /// Rules that have just gone to userspace, while SAs of theirs are still in the kernel, and none in userspace sends.
    moved: BTreeSet<RuleId>,
    /// Hears of packets that the guard drops.
    _drops: Option<nft::Log>,
}

impl Planes {
    /// Guards the traffic of the rules that are going to be added (`defined` by the policy, and `by_hand`). Then puts the
    /// filter in force, opens the port of ESP in UDP, and starts the userspace plane and, if a tunnel may use it and the
    /// kernel has it, the kernel's. [`Planes::remove_remains`] is to be called once the rules are there.
    ///
    /// # Errors
    /// If a plane that is wanted by name cannot be started. A guard that was in force before stays.
    pub fn start(
        config: Config,
        floor: floor::Config,
        userspace: userspace::Config,
        hooks: userspace::Hooks,
        defined: &[Rule],
        by_hand: &[Rule],
    ) -> Result<Self, PlaneError> {
        // Before the guard: that of a gateway which runs on the device is not to be replaced.
        let lock = Floor::lock(&floor.settings)?;
        let watch = TableWatch::start(&floor.settings.device, Arc::clone(&hooks.notice));
        let on_loss = watch.reporter(WatchedTable::Guard, Arc::clone(&hooks.notice));
        let held = HeldTable::First;
        let drops = log_drops(held.log_group(), Arc::clone(&hooks.notice));
        let rules = defined.iter().chain(by_hand).cloned();
        let definition = definition_of(&config, &floor, rules);
        let holder = Holder::Gateway { logs: drops.is_some(), held };
        let guard = definition.start(&floor.settings.state_dir, holder, on_loss)?;
        if config.guard.required {
            guard.in_force()?;
        }
        let file = config.guard.file.clone();
        let by_hand = guarded(&config, by_hand.iter().cloned());
        let record = file.map(|file| Record { file, definition, by_hand });
        let kernel = match config.wants_kernel() {
            true => start_kernel(&config, Arc::clone(&userspace.crypto), &hooks, &guard)?,
            false => None,
        };
        let floor = floor::Config { beside_kernel: kernel.is_some(), ..floor };
        let notice: Arc<dyn Fn(Notice) + Send + Sync> = Arc::clone(&hooks.notice);
        let mut floor = Floor::start_locked(lock, floor, &config.filter)?;
        let planes = Self::of(Userspace::start(&floor, userspace, hooks)?, kernel, config);
        floor.forget_left_filter();
        Ok(Self {
            floor: Some(floor),
            guard: Some(guard),
            record,
            notice: Some(notice),
            watch,
            _drops: drops,
            ..planes
        })
    }

    /// Counters of discarded packets by reason, as they are now. Reading them adds those that the guard has dropped:
    /// `nft` is asked for these, which takes time.
    pub(crate) fn counter_reader(&mut self) -> CounterReader {
        let mut counters = self.userspace.counters();
        let guarded = self.guard.as_ref().map(|guard| guard.table_in_force().map(str::to_owned));
        Box::new(move || {
            if let Some(table) = guarded {
                let dropped = table.map(|table| Dropped::of(&table)).unwrap_or_default();
                counters.extend([
                    ("unprotected_leaving", dropped.leaving),
                    ("unprotected_arriving", dropped.arriving),
                    ("translated_leaving", dropped.translated),
                ]);
            }
            counters
        })
    }

    /// The first rules are there: from now on they alone are guarded.
    pub fn remove_remains(&mut self) {
        if let Some(kernel) = &mut self.kernel {
            kernel.remove_stale_policies();
        }
        self.userspace.remove_stale_routes();
        self.forget_former_policy()();
    }

    /// Begins to guard the tunnels of a policy that is going to replace the present one. Waiting for this takes as long
    /// as `nft` does, so that another thread does it.
    pub(crate) fn expect_policy(&mut self, policy: &Policy) -> Completion {
        let present: HashMap<&str, &TrafficSelectors> =
            self.rules.values().map(|(rule, _)| (rule.tunnel.as_str(), &rule.selectors)).collect();
        let mut expected = rules_of(policy);
        if let Some(record) = &mut self.record {
            record.replace_rules(guarded(&self.config, expected.iter().cloned()));
        }
        expected.retain(|rule| present.get(rule.tunnel.as_str()) != Some(&&rule.selectors));
        let guarded = expected.iter().map(|rule| (rule, self.config.guarded(&rule.tunnel)));
        completion(self.guard.as_mut().map(|guard| guard.expect(guarded)))
    }

    /// If the guard of an expected policy was refused, begins to build it again. Waiting for this takes as long as
    /// `nft` does.
    pub(crate) fn retry_preparation(&mut self) -> Option<Completion> {
        self.guard.as_mut()?.retry_preparation().map(|written| completion(Some(written)))
    }

    /// The rules of the policy have replaced those of the former one: from now on they alone are guarded, and are so at
    /// the next boot.
    pub(crate) fn forget_former_policy(&mut self) -> Completion {
        let settled = completion(self.guard.as_mut().map(Guard::stop_expecting));
        let record = self.record.as_ref().map(Record::writing);
        Box::new(move || {
            settled();
            record.into_iter().for_each(|write| write());
        })
    }

    /// The plane of this process.
    pub fn userspace(&mut self) -> &mut Userspace {
        &mut self.userspace
    }

    /// Says whether the rules' traffic stays blocked when this is dropped, as if the process had been killed: until the
    /// next start with the same device cleans up. At first it does not.
    pub fn block_on_drop(&mut self, blocked: bool) {
        if let Some(floor) = &mut self.floor {
            floor.block_on_drop(blocked);
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.block_on_drop(blocked);
        }
        if let Some(guard) = &mut self.guard {
            guard.keep_on_drop(blocked);
        }
    }

    /// The kernel's, where it is in use.
    pub fn kernel(&mut self) -> Option<&mut Xfrm> {
        self.kernel.as_mut()
    }
}

fn completion(written: Option<Written>) -> Completion {
    Box::new(move || {
        if let Some(written) = written {
            written.wait();
        }
    })
}

/// The rules that the engine makes of a policy. Their numbers do not matter yet.
pub(crate) fn rules_of(policy: &Policy) -> Vec<Rule> {
    let rule = |child: &Arc<ChildTunnel>| Rule {
        id: RuleId(0),
        tunnel: child.name.clone(),
        selectors: TrafficSelectors { local: child.local.clone(), remote: child.remote.clone() },
        trap: false,
    };
    policy.tunnels.iter().flat_map(|tunnel| tunnel.children.iter().map(rule)).collect()
}

/// The pause between two notices about packets that the guard has dropped: others may log packets to its group, too.
const DROPS_PAUSE: Duration = Duration::from_millis(200);

/// Begins to hear of the packets that the guard drops instead of letting them leave in the clear. `None`: this host
/// cannot tell.
fn log_drops(group: u16, notice: Arc<dyn Fn(Notice) + Send + Sync>) -> Option<nft::Log> {
    let mut last: Option<Instant> = None;
    let logged = move |octets: &[u8]| {
        if last.is_some_and(|last| last.elapsed() < DROPS_PAUSE) {
            return;
        }
        last = Some(Instant::now());
        PacketSummary::of_beginning(octets)
            .into_iter()
            .for_each(|p| notice(Notice::Unprotected(p)));
    };
    let unable = |error: &dyn Display| {
        tracing::info!(
            "packets that the guard drops are counted, and not told with their tunnels: {error}"
        );
    };
    let log = nft::Log::start(group, logged).inspect_err(|error| unable(error)).ok()?;
    // The kernel's answer comes at once, and that of the program takes some milliseconds.
    if !nft::knows_log() {
        unable(&"nftables cannot log packets");
        return None;
    }
    Some(log)
}

/// Everything that the guard of these rules follows from, with these settings.
pub(crate) fn definition_of(
    config: &Config,
    floor: &floor::Config,
    rules: impl Iterator<Item = Rule>,
) -> Definition {
    let surroundings = Surroundings {
        device: floor.settings.device.clone(),
        mark: floor.settings.mark,
        natt_port: floor.natt_port,
        inbound: config.guard.inbound,
        kernel: config.wants_kernel(),
    };
    let filter = Arc::clone(&config.filter);
    Definition { surroundings, filter, rules: guarded(config, rules) }
}

/// Rules with the properties by which they are guarded.
fn guarded(config: &Config, rules: impl Iterator<Item = Rule>) -> Vec<GuardedRule> {
    let guarded = |rule: Rule| {
        let properties = config.guarded(&rule.tunnel);
        (rule, properties)
    };
    rules.map(guarded).collect()
}

/// The kernel's plane, or `None` where it is not available and not required.
fn start_kernel(
    config: &Config,
    crypto: Arc<CryptoProviders>,
    hooks: &userspace::Hooks,
    guard: &Guard,
) -> Result<Option<Xfrm>, PlaneError> {
    let suites: Vec<_> = Function::all().map(Function::suite).collect();
    let outcome = xfrm::probe(&suites).map_err(|error| error.to_string()).and_then(|ability| {
        match ability.suites.is_empty() {
            // Without ESP all are missing for the same reason.
            true => Err(ability.missing.first().map_or_else(String::new, |(_, why)| why.clone())),
            false => Ok(ability),
        }
    });
    let outcome = outcome.map_err(|why| {
        format!("{why}; is it built with XFRM and ESP, and are xfrm_user, esp4 and esp6 loaded?")
    });
    let outcome = outcome.and_then(|ability| match guard.knows_kernel() {
        true => Ok(ability),
        false => Err("nftables here lacks `rt ipsec` (nftables 0.9.1, Linux 5.0): the guard could not tell what the kernel \
                      protects from cleartext"
            .to_owned()),
    });
    let ability = match outcome {
        Ok(ability) => ability,
        Err(why) => {
            config.report.kernel(KernelUse::Unusable(why.clone()));
            if config.insists_on_kernel() {
                let what = "using the kernel's ESP, as dataplane = \"xfrm\" wants it".to_owned();
                return Err(PlaneError::System { what, why });
            }
            tracing::info!(%why, "packets are protected in userspace: the kernel cannot");
            return Ok(None);
        }
    };
    let missing = ability.missing.into_iter().map(|(suite, _)| suite.to_string()).collect();
    let hooks = xfrm::Hooks {
        notice: {
            let notice = Arc::clone(&hooks.notice);
            Arc::new(move |n: Notice| notice(n))
        },
        disturbance: {
            let notice = Arc::clone(&hooks.notice);
            let pending = Arc::clone(&config.disturbed);
            // One word is enough, however many SAs have been removed one by one.
            Arc::new(move |what| {
                if !pending.swap(true, Ordering::SeqCst) {
                    disturbed(what);
                    notice(Notice::Disturbed);
                }
            })
        },
    };
    let kernel = Xfrm::start(
        xfrm::Config {
            bindings: config.kernel_bindings(),
            placement: config.placement.clone(),
            crypto,
        },
        hooks,
    )?;
    tracing::info!(lacks = ?missing, "packets are protected by the kernel");
    config.report.kernel(KernelUse::Used { missing });
    Ok(Some(kernel))
}

fn no_fallback(tunnel: &str, why: &dyn Display) -> PlaneError {
    PlaneError::System {
        what: format!("protecting packets of {tunnel} in the kernel"),
        why: format!(
            "{why}; userspace does not serve it instead, as it looks at neither the mark nor the if_id of this tunnel"
        ),
    }
}

fn disturbed(what: Disturbance) {
    tracing::warn!(
        ?what,
        "another program has changed this daemon's SAs or policies in the kernel"
    );
}

impl<U: DataPlane, K: KernelPlane> Planes<U, K> {
    fn of(userspace: U, kernel: Option<K>, config: Config) -> Self {
        config.report.bind(config.bindings());
        Self {
            userspace,
            floor: None,
            kernel,
            guard: None,
            config,
            rules: BTreeMap::new(),
            unplaced: BTreeMap::new(),
            notice: None,
            record: None,
            changing_filter: None,
            restoration: Restoration::default(),
            sas: BTreeMap::new(),
            peers: BTreeMap::new(),
            watch: TableWatch::default(),
            mate: None,
            moved: BTreeSet::new(),
            _drops: None,
        }
    }

    /// The plane of a place; a rule is placed in the kernel only where there is one.
    fn plane(&mut self, place: PlaneKind) -> &mut dyn DataPlane {
        match (place, &mut self.kernel) {
            (PlaneKind::Kernel, Some(kernel)) => kernel,
            _ => &mut self.userspace,
        }
    }

    fn place(&self, rule: RuleId) -> Result<PlaneKind, PlaneError> {
        self.rules.get(&rule).map(|(_, place)| *place).ok_or(PlaneError::NoSuchRule(rule))
    }

    /// The plane that has an SA.
    fn plane_of(&mut self, sa: SaId) -> Result<&mut dyn DataPlane, PlaneError> {
        let place = *self.sas.get(&sa).ok_or(PlaneError::NoSuchSa(sa))?;
        Ok(self.plane(place))
    }

    /// Adds a rule, which is guarded already, to the plane that is to serve it. If the host refuses something, it is
    /// tried again later.
    fn place_rule(&mut self, rule: Rule) -> Result<(), PlaneError> {
        let again = rule.clone();
        self.unplaced.remove(&rule.id);
        self.try_to_place(rule).inspect_err(|error| {
            if matches!(error, PlaneError::System { .. }) {
                self.unplaced.insert(again.id, again);
                self.look_again();
            }
        })
    }

    /// Has key management call [`Maintenance::restore`](esp::plane::Maintenance::restore).
    fn look_again(&self) {
        self.notice.iter().for_each(|notice| notice(Notice::HostChanged));
    }

    /// Tries again to place the rules that no plane has taken.
    fn place_the_rest(&mut self) {
        for (id, rule) in std::mem::take(&mut self.unplaced) {
            let tunnel = rule.tunnel.clone();
            match self.try_to_place(rule.clone()) {
                Ok(()) => tracing::info!(tunnel, "the data plane has taken this tunnel now"),
                Err(error) => {
                    tracing::debug!(%error, tunnel, "the data plane still does not take this tunnel");
                    self.unplaced.insert(id, rule);
                }
            }
        }
    }

    fn try_to_place(&mut self, rule: Rule) -> Result<(), PlaneError> {
        let Some(rule) = self.add_to_kernel(rule)? else { return Ok(()) };
        self.userspace.add_rule(rule.clone())?;
        self.leave_alone(&rule);
        self.keep_in_userspace(rule);
        Ok(())
    }

    /// Adds a rule to the kernel where that is wanted and possible; gives it back where it is to go to userspace.
    fn add_to_kernel(&mut self, rule: Rule) -> Result<Option<Rule>, PlaneError> {
        if self.config.choice_of(&rule.tunnel) == Choice::Userspace {
            return Ok(Some(rule));
        }
        let Some(kernel) = &mut self.kernel else {
            return match self.config.is_bound_auto(&rule.tunnel) {
                true => Err(no_fallback(&rule.tunnel, &"the kernel's ESP is not in use")),
                false => Ok(Some(rule)),
            };
        };
        match kernel.add_rule(rule.clone()) {
            Ok(()) => {
                self.config.report.forget(&rule.tunnel);
                self.look_at_route(&rule);
                let id = rule.id;
                let before = self.rules.insert(id, (rule, PlaneKind::Kernel));
                if matches!(before, Some((_, PlaneKind::Userspace))) {
                    self.moved.remove(&id);
                    self.userspace.remove_rule(id);
                    self.report_userspace();
                }
                Ok(None)
            }
            Err(error) if self.config.has_fallback(&rule.tunnel) => {
                self.fell_back(&rule.tunnel, &error);
                Ok(Some(rule))
            }
            Err(error) => Err(self.explained(&rule.tunnel, error)),
        }
    }

    /// Guards these rules. They stay guarded until they are removed, whatever a plane says to them.
    fn guard(&mut self, rules: &[Rule]) {
        let Some(guard) = &mut self.guard else { return };
        guard.cover(rules.iter().map(|rule| (rule, self.config.guarded(&rule.tunnel))));
    }

    /// Has the kernel let pass what a rule of this process covers, in that rule's place.
    fn leave_alone(&mut self, rule: &Rule) {
        if let Some(kernel) = &mut self.kernel
            && let Err(error) = kernel.leave_alone(rule.clone())
        {
            // The kernel may still have the rule that this one replaces.
            kernel.remove_rule(rule.id);
            let tunnel = &rule.tunnel;
            tracing::warn!(%error, %tunnel, "what this tunnel and later ones in the kernel share goes to those");
        }
    }

    /// Moves a rule to userspace for an SA that the kernel does not take.
    fn fall_back(&mut self, rule: RuleId, error: &PlaneError) -> Result<(), PlaneError> {
        let Some((rule, _)) = self.rules.get(&rule).cloned() else { return Ok(()) };
        // First the new plane takes the traffic, then the kernel lets go of it.
        self.userspace.add_rule(rule.clone())?;
        if let Some(kernel) = &mut self.kernel
            && let Err(error) = kernel.leave_alone(rule.clone())
        {
            self.userspace.remove_rule(rule.id);
            return Err(error);
        }
        self.fell_back(&rule.tunnel, error);
        self.moved.insert(rule.id);
        // Userspace has routes of its own.
        self.config.report.routed(rule.id, None);
        self.keep_in_userspace(rule);
        Ok(())
    }

    fn keep_in_userspace(&mut self, rule: Rule) {
        self.rules.insert(rule.id, (rule, PlaneKind::Userspace));
        self.config.report.userspace(true);
    }

    fn report_userspace(&self) {
        let used = self.rules.values().any(|(_, place)| *place == PlaneKind::Userspace);
        self.config.report.userspace(used);
    }

    /// Has userspace serve an SA that sends, which the kernel does not take, and the one that receives with it.
    fn move_pair(
        &mut self,
        mate: InboundSa,
        mut sa: OutboundSa,
        error: &PlaneError,
    ) -> Result<(), PlaneError> {
        let (id, rule) = (mate.id, mate.rule);
        self.fall_back(rule, error)?;
        self.takes_over(&mut sa);
        // A new SA would accept replays of the packets received meanwhile. The tunnel's next SAs are in userspace from
        // the beginning.
        if self.usage(id).is_some_and(|usage| usage.packets > 0) {
            return Err(error.clone());
        }
        self.remove(id);
        self.userspace.add_inbound(mate)?;
        self.sas.insert(id, PlaneKind::Userspace);
        self.userspace.add_outbound(sa)
    }

    /// Has an SA send at once whose rule has just gone to userspace: the SA for whose end it was to wait has no traffic
    /// left.
    fn takes_over(&self, sa: &mut OutboundSa) {
        sa.standby &= !self.moved.contains(&sa.rule);
    }

    fn fell_back(&mut self, tunnel: &str, error: &PlaneError) {
        let why = error.to_string();
        if self.config.report.fell_back(tunnel, &why) {
            tracing::warn!(%tunnel, %why, "this tunnel is in userspace: the kernel does not take it");
        }
    }

    /// Returns `true` if an SA that the kernel has refused is to go to userspace.
    fn may_fall_back(&self, rule: RuleId, error: &PlaneError) -> bool {
        self.has_fallback(rule) && matches!(error, PlaneError::System { .. } | PlaneError::Suite(_))
    }

    fn has_fallback(&self, rule: RuleId) -> bool {
        let tunnel = self.rules.get(&rule).map(|(rule, _)| rule.tunnel.as_str());
        tunnel.is_some_and(|tunnel| self.config.has_fallback(tunnel))
    }

    /// The kernel's refusal of a rule or an SA of a tunnel, with the reason why userspace does not serve it.
    fn explained(&self, tunnel: &str, error: PlaneError) -> PlaneError {
        let of_kernel = matches!(error, PlaneError::System { .. } | PlaneError::Suite(_));
        match of_kernel && self.config.is_bound_auto(tunnel) {
            true => no_fallback(tunnel, &error),
            false => error,
        }
    }

    /// The same for an SA of a rule.
    fn explained_of(&self, rule: RuleId, error: PlaneError) -> PlaneError {
        match self.rules.get(&rule) {
            Some((rule, _)) => self.explained(&rule.tunnel, error),
            None => error,
        }
    }
}
