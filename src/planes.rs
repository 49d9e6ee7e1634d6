//! The kernel's plane and the one of this process as one: each tunnel is of one of them, as its [`Choice`] says.
//!
//! The userspace plane is always there: it has IKE's port, the filter, and what the kernel cannot take. Without a tunnel
//! of its own it has no thread, and beside the kernel no device and no route.
//!
//! Nothing leaks while a tunnel changes its plane: the new plane takes the tunnel's traffic before the old one lets go.
//! The rules keep their order across planes: what belongs to a tunnel of this process passes the kernel's policies in the
//! place of its rule.

mod choice;
mod guard;
mod route_check;
#[cfg(test)]
mod tests;

pub use route_check::Unrouted;

pub use choice::{Choice, Config, Found, KernelUse, NoSuchChoice, Report, Tunnel};

use crypto::{CryptoProviders, Function};
use esp::filter::{Filter, FilterStatus};
use esp::path_mtu::Fit;
use esp::plane::{
    DataPlane, InboundSa, Notice, OutboundSa, PacketSummary, Path, PlaneError, Resynced, Rule,
    RuleId, SaId, Usage,
};
use esp::trace::{DecidedBy, OneWayTrace, Trace};
use guard::Guard;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use userspace::Userspace;
use xfrm::{Disturbance, KernelPlane, Xfrm};

/// Where a tunnel's packets are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Userspace,
    Kernel,
}

/// Both planes.
pub struct Planes<U = Userspace, K = Xfrm> {
    // The kernel's goes last: until then it blocks what it knows.
    userspace: U,
    kernel: Option<K>,
    guard: Option<Guard>,
    config: Config,
    rules: BTreeMap<RuleId, (Rule, Place)>,
    sas: BTreeMap<SaId, Place>,
    /// The last peer of each rule in the kernel.
    peers: BTreeMap<RuleId, IpAddr>,
    /// The SA that receives which the kernel has taken last: should it refuse the one that sends, the pair goes together.
    mate: Option<InboundSa>,
}

impl Planes {
    /// Starts the userspace plane and, where a tunnel may want it and the kernel has it, the kernel's.
    ///
    /// # Errors
    /// Where a plane that is wanted by name cannot be had.
    pub fn start(
        config: Config,
        userspace: userspace::Config,
        hooks: userspace::Hooks,
    ) -> Result<Self, PlaneError> {
        let kernel = match config.wants_kernel() {
            true => start_kernel(&config, Arc::clone(&userspace.crypto), &hooks)?,
            false => None,
        };
        guard::clear(&userspace.device);
        let guard = kernel
            .as_ref()
            .map(|_| Guard::new(&userspace.device, userspace.natt_port, &userspace.filter));
        let userspace = userspace::Config { beside_kernel: kernel.is_some(), ..userspace };
        Ok(Self { guard, ..Self::of(Userspace::start(userspace, hooks)?, kernel, config) })
    }

    /// The plane of this process.
    pub fn userspace(&mut self) -> &mut Userspace {
        &mut self.userspace
    }

    /// Says whether the rules' traffic stays blocked when this is dropped, as if the process had been killed: until the next
    /// start with the same device cleans up. At first it does not.
    pub fn block_on_drop(&mut self, blocked: bool) {
        self.userspace.block_on_drop(blocked);
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

/// The kernel's plane, or `None` where it is not to be had and need not be.
fn start_kernel(
    config: &Config,
    crypto: Arc<CryptoProviders>,
    hooks: &userspace::Hooks,
) -> Result<Option<Xfrm>, PlaneError> {
    let suites: Vec<_> = Function::all().map(Function::suite).collect();
    let outcome = xfrm::probe(&suites).map_err(|error| error.to_string()).and_then(|ability| {
        match ability.suites.is_empty() {
            // Without ESP all are missing for the same reason.
            true => Err(ability.missing.first().map_or_else(String::new, |(_, why)| why.clone())),
            false => Ok(ability),
        }
    });
    let ability = match outcome {
        Ok(ability) => ability,
        Err(why) => {
            let why = format!(
                "{why}; is it built with XFRM and ESP, and are xfrm_user, esp4 and esp6 loaded?"
            );
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
        xfrm::Config { bindings: config.bindings(), placement: config.placement.clone(), crypto },
        hooks,
    )?;
    tracing::info!(lacks = ?missing, "packets are protected by the kernel");
    config.report.kernel(KernelUse::Used { missing });
    Ok(Some(kernel))
}

fn disturbed(what: Disturbance) {
    tracing::warn!(
        ?what,
        "another program has changed this daemon's SAs or policies in the kernel"
    );
}

impl<U: DataPlane, K: KernelPlane> Planes<U, K> {
    fn of(userspace: U, kernel: Option<K>, config: Config) -> Self {
        let (rules, sas, peers) = Default::default();
        Self { userspace, kernel, guard: None, config, rules, sas, peers, mate: None }
    }

    /// The plane of a place; a rule is placed in the kernel only where there is one.
    fn plane(&mut self, place: Place) -> &mut dyn DataPlane {
        match (place, &mut self.kernel) {
            (Place::Kernel, Some(kernel)) => kernel,
            _ => &mut self.userspace,
        }
    }

    fn place(&self, rule: RuleId) -> Result<Place, PlaneError> {
        self.rules.get(&rule).map(|(_, place)| *place).ok_or(PlaneError::NoSuchRule(rule))
    }

    /// Adds a rule to the kernel where that is wanted and possible; gives it back where it is to go to userspace.
    fn add_to_kernel(&mut self, rule: Rule) -> Result<Option<Rule>, PlaneError> {
        let choice = self.config.choice_of(&rule.tunnel);
        let Some(kernel) = &mut self.kernel else { return Ok(Some(rule)) };
        if choice == Choice::Userspace {
            return Ok(Some(rule));
        }
        match kernel.add_rule(rule.clone()) {
            Ok(()) => {
                self.config.report.forget(&rule.tunnel);
                self.look_at_route(&rule);
                self.rules.insert(rule.id, (rule, Place::Kernel));
                Ok(None)
            }
            Err(error) if choice == Choice::Auto => {
                self.fell_back(&rule.tunnel, &error);
                Ok(Some(rule))
            }
            Err(error) => Err(error),
        }
    }

    /// Guards those of these rules that the kernel has.
    fn guard(&mut self, rules: &[RuleId]) {
        let Some(guard) = &mut self.guard else { return };
        let in_kernel = rules.iter().filter_map(|id| match self.rules.get(id)? {
            (rule, Place::Kernel) => Some((rule, self.config.guarded(&rule.tunnel))),
            (_, Place::Userspace) => None,
        });
        guard.cover(in_kernel);
    }

    /// Has the kernel let pass what a rule of this process covers, in that rule's place.
    fn leave_alone(&mut self, rule: &Rule) {
        if let Some(kernel) = &mut self.kernel
            && let Err(error) = kernel.leave_alone(rule.clone())
        {
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
        // Userspace has routes of its own.
        self.config.report.routed(rule.id, None);
        self.keep_in_userspace(rule);
        Ok(())
    }

    fn keep_in_userspace(&mut self, rule: Rule) {
        self.rules.insert(rule.id, (rule, Place::Userspace));
        self.config.report.userspace(true);
    }

    /// Has userspace serve an SA that sends, which the kernel does not take, and the one that receives with it.
    fn move_pair(
        &mut self,
        mate: InboundSa,
        sa: OutboundSa,
        error: &PlaneError,
    ) -> Result<(), PlaneError> {
        let (id, rule) = (mate.id, mate.rule);
        self.fall_back(rule, error)?;
        // What has come meanwhile could be replayed to an SA made anew; the tunnel's next ones are in userspace from the
        // beginning.
        if self.usage(id).is_some_and(|usage| usage.packets > 0) {
            return Err(error.clone());
        }
        self.remove(id);
        self.userspace.add_inbound(mate)?;
        self.sas.insert(id, Place::Userspace);
        self.userspace.add_outbound(sa)
    }

    fn fell_back(&mut self, tunnel: &str, error: &PlaneError) {
        let why = error.to_string();
        if self.config.report.fell_back(tunnel, &why) {
            tracing::warn!(%tunnel, %why, "this tunnel is in userspace: the kernel does not take it");
        }
    }

    /// Whether an SA that the kernel has refused is to go to userspace.
    fn may_fall_back(&self, rule: RuleId, error: &PlaneError) -> bool {
        self.is_auto(rule) && matches!(error, PlaneError::System { .. } | PlaneError::Suite(_))
    }

    fn is_auto(&self, rule: RuleId) -> bool {
        let tunnel = self.rules.get(&rule).map(|(rule, _)| rule.tunnel.as_str());
        tunnel.is_some_and(|tunnel| self.config.choice_of(tunnel) == Choice::Auto)
    }

    /// What becomes of a packet: the first rule that covers it decides, in whichever plane it is.
    fn trace_one_way(
        &self,
        packet: &PacketSummary,
        leaves: bool,
        elsewhere: OneWayTrace,
    ) -> OneWayTrace {
        let PacketSummary { protocol, source, destination } = *packet;
        let (local, remote) = if leaves { (source, destination) } else { (destination, source) };
        let mut covering =
            self.rules.values().filter(|(rule, _)| rule.selectors.covers(protocol, local, remote));
        let Some((first, Place::Kernel)) = covering.next() else { return elsewhere };
        let course = self.kernel.as_ref().and_then(|k| k.trace_one_way(first.id, packet, leaves));
        let behind = covering.map(|(rule, _)| format!("tunnel {}", rule.tunnel)).collect();
        course.map_or(elsewhere, |course| OneWayTrace { behind, ..course })
    }
}

impl<U: DataPlane, K: KernelPlane> DataPlane for Planes<U, K> {
    fn add_rule(&mut self, rule: Rule) -> Result<(), PlaneError> {
        let id = rule.id;
        let Some(rule) = self.add_to_kernel(rule)? else {
            self.guard(&[id]);
            return Ok(());
        };
        self.userspace.add_rule(rule.clone())?;
        self.leave_alone(&rule);
        self.keep_in_userspace(rule);
        Ok(())
    }

    fn add_rules(&mut self, rules: Vec<Rule>) -> Vec<(RuleId, PlaneError)> {
        let (mut left, mut failed) = (Vec::new(), Vec::new());
        let ids: Vec<RuleId> = rules.iter().map(|rule| rule.id).collect();
        for rule in rules {
            let id = rule.id;
            match self.add_to_kernel(rule) {
                Ok(rule) => left.extend(rule),
                Err(error) => failed.push((id, error)),
            }
        }
        self.guard(&ids);
        let refused = self.userspace.add_rules(left.clone());
        for rule in left {
            if refused.iter().all(|(id, _)| *id != rule.id) {
                self.leave_alone(&rule);
                self.keep_in_userspace(rule);
            }
        }
        failed.extend(refused);
        failed
    }

    fn rename_rule(&mut self, rule: RuleId, to: RuleId) {
        let Some((renamed, place)) = self.rules.remove(&rule) else { return };
        if place == Place::Userspace {
            self.userspace.rename_rule(rule, to);
        }
        // It knows those of userspace, too.
        if let Some(kernel) = &mut self.kernel {
            kernel.rename_rule(rule, to);
        }
        if let Some(guard) = &mut self.guard {
            guard.rename(rule, to);
        }
        self.rules.insert(to, (Rule { id: to, ..renamed }, place));
        if let Some(peer) = self.peers.remove(&rule) {
            self.peers.insert(to, peer);
        }
        self.config.report.rename(rule, to);
    }

    fn set_trap(&mut self, rule: RuleId) {
        let Some((kept, place)) = self.rules.get_mut(&rule) else { return };
        kept.trap = true;
        let place = *place;
        self.plane(place).set_trap(rule);
    }

    fn set_reqid(&mut self, rule: RuleId, reqid: u32) -> Result<(), PlaneError> {
        let place = self.place(rule)?;
        self.plane(place).set_reqid(rule, reqid)
    }

    fn remove_rule(&mut self, rule: RuleId) {
        let Some((removed, place)) = self.rules.remove(&rule) else { return };
        self.config.report.forget(&removed.tunnel);
        self.config.report.routed(rule, None);
        self.peers.remove(&rule);
        if place == Place::Userspace {
            self.userspace.remove_rule(rule);
            let used = self.rules.values().any(|(_, place)| *place == Place::Userspace);
            self.config.report.userspace(used);
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.remove_rule(rule);
        }
        if let Some(guard) = &mut self.guard {
            guard.uncover(rule);
        }
    }

    fn expect_peer(&mut self, peer: IpAddr) {
        self.userspace.expect_peer(peer);
    }

    fn add_inbound(&mut self, sa: InboundSa) -> Result<(), PlaneError> {
        let (id, rule, mut place) = (sa.id, sa.rule, self.place(sa.rule)?);
        self.mate = None;
        let again = copy_of_inbound(&sa);
        match self.plane(place).add_inbound(sa) {
            Err(error) if place == Place::Kernel && self.may_fall_back(rule, &error) => {
                self.fall_back(rule, &error)?;
                place = Place::Userspace;
                self.userspace.add_inbound(again)?;
            }
            Ok(()) if place == Place::Kernel && self.is_auto(rule) => self.mate = Some(again),
            outcome => outcome?,
        }
        self.sas.insert(id, place);
        Ok(())
    }

    fn add_outbound(&mut self, sa: OutboundSa) -> Result<(), PlaneError> {
        let (id, rule, mut place) = (sa.id, sa.rule, self.place(sa.rule)?);
        let mate = self.mate.take().filter(|mate| place == Place::Kernel && mate.rule == rule);
        let again = mate.is_some().then(|| copy_of_outbound(&sa));
        let peer = sa.path.remote.ip();
        match (self.plane(place).add_outbound(sa), mate.zip(again)) {
            (Err(error), Some((mate, again))) if self.may_fall_back(rule, &error) => {
                self.move_pair(mate, again, &error)?;
                place = Place::Userspace;
            }
            (outcome, _) => outcome?,
        }
        self.sas.insert(id, place);
        if place == Place::Kernel && self.peers.insert(rule, peer) != Some(peer) {
            self.know_peer(rule);
        }
        Ok(())
    }

    fn promote(&mut self, sa: SaId) -> Result<(), PlaneError> {
        let place = *self.sas.get(&sa).ok_or(PlaneError::NoSuchSa(sa))?;
        self.plane(place).promote(sa)
    }

    fn relocate(&mut self, sa: SaId, path: Path) -> Result<(), PlaneError> {
        let place = *self.sas.get(&sa).ok_or(PlaneError::NoSuchSa(sa))?;
        self.plane(place).relocate(sa, path)
    }

    fn remove(&mut self, sa: SaId) -> Option<Usage> {
        let place = self.sas.remove(&sa)?;
        self.plane(place).remove(sa)
    }

    fn usage(&mut self, sa: SaId) -> Option<Usage> {
        let place = *self.sas.get(&sa)?;
        self.plane(place).usage(sa)
    }

    fn resume(&mut self, sa: SaId, used: u64) -> Result<(), PlaneError> {
        let place = *self.sas.get(&sa).ok_or(PlaneError::NoSuchSa(sa))?;
        self.plane(place).resume(sa, used)
    }

    fn resync(&mut self) -> Result<Resynced, PlaneError> {
        // Before it looks: what is disturbed meanwhile is told anew.
        self.config.disturbed.store(false, Ordering::SeqCst);
        match &mut self.kernel {
            Some(kernel) => kernel.resync(),
            None => Ok(Resynced::default()),
        }
    }

    fn use_room(&mut self) {
        if let Some(kernel) = &mut self.kernel {
            kernel.use_room();
        }
    }

    fn network_changed(&mut self) {
        if let Some(kernel) = &mut self.kernel {
            kernel.network_changed();
        }
        self.look_at_routes();
    }

    fn last_sequence(&mut self, sa: SaId) -> Option<u64> {
        let place = *self.sas.get(&sa)?;
        self.plane(place).last_sequence(sa)
    }

    fn tell_work(&mut self) {
        if let Some(kernel) = &mut self.kernel {
            kernel.tell_work();
        }
    }

    fn fit(&mut self, sa: SaId) -> Option<Fit> {
        let place = *self.sas.get(&sa)?;
        self.plane(place).fit(sa)
    }

    fn set_filter(&mut self, filter: Arc<Filter>) -> Result<(), PlaneError> {
        if let Some(guard) = &mut self.guard {
            guard.set_filter(&filter);
        }
        self.userspace.set_filter(filter)
    }

    fn filter(&mut self) -> Option<FilterStatus> {
        self.userspace.filter()
    }

    fn trace(&mut self, packet: &PacketSummary) -> Option<Trace> {
        let Trace { leaving, arriving, inbound_guard } = self.userspace.trace(packet)?;
        let leaving = self.trace_one_way(packet, true, leaving);
        let arriving = self.trace_one_way(packet, false, arriving);
        // The kernel's policies are a guard of their own.
        let in_kernel = matches!(arriving.decided_by, DecidedBy::Tunnel { kernel: Some(_), .. });
        Some(Trace { leaving, arriving, inbound_guard: inbound_guard || in_kernel })
    }
}

/// The plane that refuses an SA has wiped its key.
fn copy_of_inbound(sa: &InboundSa) -> InboundSa {
    let InboundSa { id, rule, spi, suite, esn, replay_window, mode, path, limits, .. } = *sa;
    let (key, selectors) = (sa.key.clone(), Arc::clone(&sa.selectors));
    InboundSa { id, rule, spi, suite, key, esn, replay_window, mode, path, selectors, limits }
}

fn copy_of_outbound(sa: &OutboundSa) -> OutboundSa {
    let OutboundSa { id, rule, spi, suite, esn, mode, path, limits, standby, .. } = *sa;
    let (key, selectors) = (sa.key.clone(), Arc::clone(&sa.selectors));
    OutboundSa { id, rule, spi, suite, key, esn, mode, path, selectors, limits, standby }
}
