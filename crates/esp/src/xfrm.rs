//! The kernel plane: SAs and policies in Linux's XFRM, told over netlink.
//!
//! [`Xfrm`] is a [`DataPlane`]: rules become policies, SAs become states, the kernel protects packets, and what it
//! reports (`monitor`) becomes [`Notice`]s. No packet passes this process, no device and no route is needed.
//!
//! What an operator sees of it, all of it gone after a clean stop:
//!
//! - states whose reqid lies in [`REQIDS`]; a rule has one reqid for as long as it lives, which all its SAs share. The
//!   operator may have given SAs without IKE another one: their policies name them;
//! - policies whose priority lies in [`PRIORITIES`]: the rules' order is theirs, and an administrator's own policies come
//!   before them. A rule's traffic always has one in each direction: `block`, or a template that only its SAs fit. So
//!   nothing leaves or enters in the clear, whether an SA is up or not, and also after this process has crashed;
//! - with IPv6, policies that let neighbour discovery pass.
//!
//! An outbound policy names the SPI of the SA that it uses: one in standby is not used before it is promoted, and a
//! promotion is one atomic exchange. There is one such plane in a network namespace; whatever lies in its two ranges when
//! it starts was left by one that crashed. SAs are removed at once, policies by [`KernelPlane::settle`], when the new ones
//! are there.
//!
//! An SA that moves is made anew with its sequence numbers: `XFRM_MSG_MIGRATE` needs a kernel built for it, finds SAs by
//! reqid and addresses rather than by SPI, and cannot put an SA into UDP.
//!
//! How to build on it: [`Xfrm::install_inbound`] and [`Xfrm::install_outbound`] take a choice of [`Offload`] besides the
//! SA; [`Xfrm::read_back`] tells what the kernel has made of it; a [`Disturbance`] tells what others have removed, and
//! [`Xfrm::restore`] puts everything back. [`Kernel`] is the seam to the kernel, for a twin in memory.

mod algorithm;
mod bypass;
mod command;
mod course;
mod flow;
mod larval;
mod leftovers;
mod monitor;
mod netlink;
mod ownership;
mod place;
mod probe;
mod spd;
mod state;
mod statistics;
#[cfg(test)]
mod tests;
mod work;

pub use bypass::{decapsulate, let_pass};
pub use command::commands;
pub use monitor::Disturbance;
pub use netlink::{Kernel, Netlink, Refused};
pub use probe::{Ability, probe};
pub use statistics::{Statistic, statistics};

use crate::cipher::{Amount, Facility};
use crate::placement::{Place as Seat, Placement};
use crate::plane::PacketSummary;
use crate::plane::{
    DataPlane, InboundSa, Notice, OutboundSa, Path, PlaneError, Resynced, Rule, RuleId, SaId,
    TrafficSelectors, Usage,
};
use crate::planes::KernelPlane;
use crate::trace::Course;
use flow::Flow;
use monitor::{Known, Monitor};
use netlink_packet_xfrm::policy::DelGetMessage;
use netlink_packet_xfrm::state::ModifyMessage;
use netlink_packet_xfrm::{Mark, XfrmAttrs, XfrmMessage};
use policy::{Mode, PortRange, Secret, Selector};
use spd::{Action, Change, Key, Place, Spd, Template, Way};
use state::{Form, Name};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// The reqids of this plane. strongSwan counts from 1, libreswan and the kernel itself from 0x4000.
pub const REQIDS: RangeInclusive<u32> = 0x7600_0001..=0x76ff_ffff;

/// The priorities of this plane's policies; 0, the first, is what `ip xfrm policy` gives by default.
pub const PRIORITIES: RangeInclusive<u32> = 0x7600_0000..=0x76ff_ffff;

/// Of what always passes.
const ALWAYS: u32 = *PRIORITIES.start();

/// Of the first rule's SAs and of what it lets in; of its traffic without an SA it is one more.
const RULES: u32 = ALWAYS + 16;

/// How the plane appears in the kernel.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// What else besides their selectors decides which packets are the tunnels', by [`Rule::tunnel`].
    pub bindings: BTreeMap<String, Binding>,
    /// What network cards are to do. Whoever keeps a clone can see what they do.
    pub placement: Placement,
    /// Takes note of what kernel and network cards have done.
    pub crypto: Arc<Facility>,
}

/// Marks and interfaces that a tunnel's packets must have, for tunnels that routes choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binding {
    /// Value and mask of the packets' mark.
    pub mark: Option<(u32, u32)>,
    /// Identifier of the XFRM interface that they pass (`ip link add type xfrm if_id`).
    pub if_id: Option<u32>,
}

/// That a device protects the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offload {
    /// Index of the device.
    pub device: u32,
    /// Whether it does all about them, and not their cryptography alone.
    pub packet: bool,
}

/// Whom the plane tells what; called on its thread, so neither may block.
#[derive(Clone)]
pub struct Hooks {
    /// Takes notices for key management.
    pub notice: Arc<dyn Fn(Notice) + Send + Sync>,
    /// Takes what was removed by others.
    pub disturbance: Arc<dyn Fn(Disturbance) + Send + Sync>,
}

/// A running kernel plane. Dropping it removes everything of it from the kernel.
pub struct Xfrm {
    kernel: Box<dyn Kernel>,
    config: Config,
    spd: Spd,
    rules: BTreeMap<RuleId, Ruled>,
    sas: BTreeMap<SaId, Installed>,
    /// Of the last SA added or promoted.
    serial: u64,
    /// The last reqid given.
    reqid: u32,
    /// Policies that an earlier run has left: until this one has its own, they keep traffic from leaking.
    stale: Vec<DelGetMessage>,
    known: Known,
    /// Which offload was not to be had, why and of which device, as far as the log has it.
    told: BTreeSet<(Seat, &'static str, Option<String>)>,
    _monitor: Option<Monitor>,
}

struct Ruled {
    rule: Rule,
    binding: Binding,
    reqid: u32,
    flows: Vec<Flow>,
    /// Its traffic is protected elsewhere, and passes the kernel.
    elsewhere: bool,
    /// How its SAs that receive are recognised, the youngest last.
    receiving: Vec<(SaId, Template)>,
}

struct Installed {
    form: Form,
    key: Secret,
    rule: RuleId,
    selectors: Arc<TrafficSelectors>,
    /// Of one that sends, and its turn; `None` in standby.
    flows: Vec<Flow>,
    serial: Option<u64>,
    /// What it had done before it moved last.
    before: Usage,
    /// What it had done when that was last seen.
    last: Usage,
    /// As much of this the crypto facility knows.
    told: Amount,
}

impl Xfrm {
    /// Starts the plane in the calling thread's network namespace. Needs CAP_NET_ADMIN.
    ///
    /// # Errors
    /// Where the kernel has no XFRM, or another plane runs in this namespace.
    pub fn start(config: Config, hooks: Hooks) -> Result<Self, PlaneError> {
        let kernel = Netlink::open().map_err(|error| PlaneError::System {
            what: "opening the kernel's XFRM".to_owned(),
            why: format!("{error}; is the module xfrm_user loaded, and CAP_NET_ADMIN granted?"),
        })?;
        let known = Known::default();
        let monitor = Monitor::start(hooks, &known, kernel.port())?;
        config.placement.ask_kernel();
        let mut kernel: Box<dyn Kernel> = Box::new(kernel);
        let stale = leftovers::take(&mut *kernel)?;
        let mut plane = Self::on(kernel, config, known, Some(monitor));
        plane.stale = stale;
        Ok(plane)
    }

    fn on(kernel: Box<dyn Kernel>, config: Config, known: Known, monitor: Option<Monitor>) -> Self {
        let (spd, rules, sas, told) = Default::default();
        let reqid = REQIDS.start() - 1;
        let stale = Vec::new();
        let _monitor = monitor;
        let serial = 0;
        Self { kernel, config, spd, rules, sas, serial, reqid, stale, known, told, _monitor }
    }

    /// As [`DataPlane::add_inbound`], with a choice of offload.
    pub fn install_inbound(
        &mut self,
        sa: InboundSa,
        offload: Option<Offload>,
    ) -> Result<(), PlaneError> {
        let ruled = self.rules.get(&sa.rule).ok_or(PlaneError::NoSuchRule(sa.rule))?;
        let flows: Vec<Flow> =
            Flow::leaving(&sa.selectors)?.into_iter().map(Flow::reversed).collect();
        let form = Form {
            inbound: true,
            spi: sa.spi,
            suite: sa.suite,
            esn: sa.esn,
            replay_window: sa.replay_window,
            mode: sa.mode,
            path: sa.path,
            flow: single(&flows),
            limits: sa.limits,
            reqid: ruled.reqid,
            binding: ruled.binding,
            offload,
        };
        // Another program may use this reqid, too, so that the policy has to say which SA is this plane's.
        let by_hand = !REQIDS.contains(&ruled.reqid);
        let template = Template {
            protocol: form.protocol(),
            mode: sa.mode,
            reqid: ruled.reqid,
            spi: by_hand.then_some(sa.spi),
            ends: by_hand.then(|| form.ends()),
            offload: offload.filter(|offload| offload.packet),
        };
        self.install(sa.id, (sa.rule, sa.selectors), form, sa.key, Vec::new())?;
        self.receive_by(sa.rule, sa.id, template).inspect_err(|_| _ = self.remove(sa.id))
    }

    /// As [`DataPlane::add_outbound`], with a choice of offload.
    pub fn install_outbound(
        &mut self,
        sa: OutboundSa,
        offload: Option<Offload>,
    ) -> Result<(), PlaneError> {
        let ruled = self.rules.get(&sa.rule).ok_or(PlaneError::NoSuchRule(sa.rule))?;
        let flows = Flow::leaving(&sa.selectors)?;
        let form = Form {
            inbound: false,
            spi: sa.spi,
            suite: sa.suite,
            esn: sa.esn,
            replay_window: 0,
            mode: sa.mode,
            path: sa.path,
            flow: single(&flows),
            limits: sa.limits,
            reqid: ruled.reqid,
            binding: ruled.binding,
            offload,
        };
        self.install(sa.id, (sa.rule, sa.selectors), form, sa.key, flows)?;
        match sa.standby {
            true => Ok(()),
            false => self.use_from_now(sa.id).inspect_err(|_| _ = self.remove(sa.id)),
        }
    }

    /// Points the traffic of an SA that sends at it.
    fn use_from_now(&mut self, sa: SaId) -> Result<(), PlaneError> {
        let before = self.sas.get(&sa).ok_or(PlaneError::NoSuchSa(sa))?.serial;
        self.serial += 1;
        if let Some(sa) = self.sas.get_mut(&sa) {
            sa.serial = Some(self.serial);
        }
        self.serve(sa)?;
        // In its former turn it has nothing left to do.
        if let (Some(serial), Some(sa)) = (before, self.sas.get(&sa)) {
            let place = Place { priority: priority(sa.rule)?, serial: Reverse(serial) };
            let keys = keys(sa.flows.iter().copied(), sa.form.binding, Way::Out);
            keys.into_iter().for_each(|key| self.unwant(key, place));
        }
        Ok(())
    }

    /// An SA as the kernel has it now, without its keys; `None` where it has none.
    pub fn read_back(&mut self, sa: SaId) -> Option<ModifyMessage> {
        let form = &self.sas.get(&sa)?.form;
        read(&mut *self.kernel, &form.name(), &form.binding).ok().flatten()
    }

    /// Puts everything back that is missing in the kernel: SAs, with sequence numbers behind those last seen, and policies.
    /// Returns how many of each.
    ///
    /// # Errors
    /// Where the kernel refuses one; the others are put back all the same.
    pub fn restore(&mut self) -> Result<(usize, usize), PlaneError> {
        let mut outcome = Ok(());
        // First what keeps traffic from leaking.
        let policies: Vec<Change> = self.spd.in_force().collect();
        let mut missing = 0;
        for change in &policies {
            match self.kernel.ask(change.question()) {
                Ok(_) => continue,
                Err(error) if error.is_absent() => missing += 1,
                Err(_) => {}
            }
            outcome = outcome.and(tell(&mut *self.kernel, change));
        }
        let mut states = 0;
        let ids: Vec<SaId> = self.sas.keys().copied().collect();
        for id in ids {
            if self.read_back(id).is_some() {
                continue;
            }
            let added = self.put_back(id);
            states += usize::from(added.is_ok());
            outcome = outcome.and(added);
        }
        outcome.map(|()| (states, missing))
    }

    /// Gives the kernel an SA again that others have removed.
    fn put_back(&mut self, id: SaId) -> Result<(), PlaneError> {
        let sa = self.sas.get_mut(&id).ok_or(PlaneError::NoSuchSa(id))?;
        sa.before = sa.last;
        let replay = state::replay_resumed(&sa.form, &sa.last);
        let message = sa.form.message(&sa.key, Some(replay))?;
        let refused = |e| refusal(format!("putting SA {} back", sa.form.spi), &e);
        self.kernel.order(XfrmMessage::AddSa(message)).map_err(refused)
    }

    fn install(
        &mut self,
        id: SaId,
        (rule, selectors): (RuleId, Arc<TrafficSelectors>),
        form: Form,
        key: Secret,
        flows: Vec<Flow>,
    ) -> Result<(), PlaneError> {
        let (name, spi) = (form.name(), form.spi);
        let message = form.message(&key, None)?;
        self.known.insert(name, id);
        if let Err(error) = self.kernel.order(XfrmMessage::AddSa(message)) {
            self.known.remove(&name);
            return Err(match error.errno {
                libc::EEXIST => PlaneError::SpiInUse(spi),
                _ => refusal(format!("giving SA {spi} with {} to the kernel", form.suite), &error),
            });
        }
        let (before, last, told) = Default::default();
        let serial = None;
        let installed = Installed { form, key, rule, selectors, flows, serial, before, last, told };
        self.sas.insert(id, installed);
        Ok(())
    }

    /// Lets traffic of the rule in that came by SAs like this one.
    fn receive_by(&mut self, rule: RuleId, sa: SaId, template: Template) -> Result<(), PlaneError> {
        let Some(ruled) = self.rules.get_mut(&rule) else { return Ok(()) };
        ruled.receiving.push((sa, template));
        self.guard(rule)
    }

    /// What must come by an SA: all of a rule's traffic, also while there is none.
    fn guard(&mut self, rule: RuleId) -> Result<(), PlaneError> {
        let Some(ruled) = self.rules.get(&rule) else { return Ok(()) };
        let template = ruled.receiving.last().map(|(_, template)| *template);
        let action = match (ruled.elsewhere, template) {
            (true, _) => Action::Bypass,
            (false, Some(template)) => Action::Protect(template),
            (false, None) => Action::Block,
        };
        let forward = |action| match action {
            // Devices keep none for these.
            Action::Protect(t) => Action::Protect(Template { offload: None, ..t }),
            other => other,
        };
        let place = Place { priority: priority(rule)?, serial: Reverse(0) };
        for key in keys(ruled.flows.iter().map(|f| f.reversed()), ruled.binding, Way::In) {
            if template.is_some_and(|template| template.offload.is_some()) {
                // Behind it, also once the card has gone and this policy has been made anew.
                self.net(key, place.priority + 1)?;
            }
            self.want(key, place, action)?;
            self.want(Key { way: Way::Forward, ..key }, place, forward(action))?;
        }
        Ok(())
    }

    /// What becomes of a rule's traffic that leaves while no SA serves it.
    fn hold(&mut self, rule: RuleId) -> Result<(), PlaneError> {
        let Some(ruled) = self.rules.get(&rule) else { return Ok(()) };
        let asking = Template {
            protocol: netlink_packet_xfrm::IPPROTO_ESP,
            // So that no outer addresses are needed to ask.
            mode: Mode::Transport,
            reqid: ruled.reqid,
            spi: None,
            ends: None,
            offload: None,
        };
        let action = match (ruled.elsewhere, ruled.rule.trap) {
            (true, _) => Action::Bypass,
            (false, true) => Action::Protect(asking),
            (false, false) => Action::Block,
        };
        let place = Place { priority: priority(rule)? + 1, serial: Reverse(0) };
        for key in keys(ruled.flows.iter().copied(), ruled.binding, Way::Out) {
            self.want(key, place, action)?;
        }
        Ok(())
    }

    /// Points the traffic of an SA that sends at it, as if it had just been promoted.
    fn serve(&mut self, id: SaId) -> Result<(), PlaneError> {
        let Some(sa) = self.sas.get(&id) else { return Ok(()) };
        let Some(serial) = sa.serial else { return Ok(()) };
        let form = &sa.form;
        let template = Template {
            protocol: form.protocol(),
            mode: form.mode,
            reqid: form.reqid,
            spi: Some(form.spi),
            ends: Some(form.ends()),
            offload: form.offload.filter(|offload| offload.packet),
        };
        let place = Place { priority: priority(sa.rule)?, serial: Reverse(serial) };
        for key in keys(sa.flows.iter().copied(), form.binding, Way::Out) {
            if template.offload.is_some() {
                self.net(key, place.priority + 1)?;
            }
            self.want(key, place, Action::Protect(template))?;
        }
        Ok(())
    }

    /// Where a device keeps a policy, the kernel forgets it together with the device, and packets would pass in the clear
    /// until that is noticed. So a second pair of policies drops them, told apart from the first by one bit of the mark.
    fn net(&mut self, key: Key, priority: u32) -> Result<(), PlaneError> {
        let place = Place { priority, serial: Reverse(0) };
        for half in halves(key) {
            self.want(half, place, Action::Block)?;
        }
        Ok(())
    }

    /// Has an SA that sends not used for a moment.
    fn pause(&mut self, id: SaId) -> Result<(), PlaneError> {
        let Some(sa) = self.sas.get(&id) else { return Ok(()) };
        let Some(serial) = sa.serial else { return Ok(()) };
        let place = Place { priority: priority(sa.rule)?, serial: Reverse(serial) };
        for key in keys(sa.flows.iter().copied(), sa.form.binding, Way::Out) {
            self.want(key, place, Action::Block)?;
        }
        Ok(())
    }

    /// Points traffic of an SA away from it.
    fn rest(&mut self, id: SaId) {
        let Some(sa) = self.sas.get_mut(&id) else { return };
        let (Some(serial), Ok(priority)) = (sa.serial.take(), priority(sa.rule)) else { return };
        let place = Place { priority, serial: Reverse(serial) };
        for key in keys(sa.flows.iter().copied(), sa.form.binding, Way::Out) {
            self.unwant(key, place);
        }
    }

    fn neighbour_discovery(&mut self) -> Result<(), PlaneError> {
        let place = Place { priority: ALWAYS, serial: Reverse(0) };
        for flow in neighbour_discovery() {
            for way in [Way::In, Way::Out, Way::Forward] {
                let key = Key { way, flow, binding: Binding::default() };
                self.want(key, place, Action::Bypass)?;
            }
        }
        Ok(())
    }

    fn want(&mut self, key: Key, place: Place, action: Action) -> Result<(), PlaneError> {
        let before = self.spd.get(&key, &place);
        let Some(change) = self.spd.insert(key, place, action) else { return Ok(()) };
        tell(&mut *self.kernel, &change).inspect_err(|_| {
            // It stays in force as it was.
            let _ = match before {
                Some(action) => self.spd.insert(key, place, action),
                None => self.spd.remove(key, place),
            };
        })
    }

    fn unwant(&mut self, key: Key, place: Place) {
        if let Some(change) = self.spd.remove(key, place)
            && let Err(error) = tell(&mut *self.kernel, &change)
        {
            tracing::warn!(%error, "a policy stays in the kernel");
        }
    }

    fn delete(&mut self, name: &Name, binding: &Binding) {
        self.known.remove(name);
        match self.kernel.order(XfrmMessage::DeleteSa(name.message(binding))) {
            Err(error) if !error.is_absent() => {
                tracing::warn!(%error, spi = %format!("{:08x}", name.spi), "an SA stays in the kernel");
            }
            _ => {}
        }
    }

    /// Forgets the policies of a rule that stand for traffic without an SA.
    fn release(&mut self, rule: RuleId, flows: &[Flow], binding: Binding) {
        let Ok(priority) = priority(rule) else { return };
        let [first, behind] =
            [priority, priority + 1].map(|priority| Place { priority, serial: Reverse(0) });
        for key in keys(flows.iter().copied(), binding, Way::Out) {
            self.unwant(key, behind);
            halves(key).into_iter().for_each(|half| self.unwant(half, behind));
        }
        for key in keys(flows.iter().map(|f| f.reversed()), binding, Way::In) {
            self.unwant(key, first);
            halves(key).into_iter().for_each(|half| self.unwant(half, behind));
            self.unwant(Key { way: Way::Forward, ..key }, first);
        }
    }
}

impl DataPlane for Xfrm {
    fn add_rule(&mut self, rule: Rule) -> Result<(), PlaneError> {
        self.put_rule(rule, false)
    }

    fn rename_rule(&mut self, rule: RuleId, to: RuleId) {
        let Some(mut ruled) = self.rules.remove(&rule) else { return };
        let (flows, binding) = (ruled.flows.clone(), ruled.binding);
        ruled.rule.id = to;
        self.rules.insert(to, ruled);
        let mut outcome = self.hold(to).and_then(|()| self.guard(to));
        let of_rule = |sa: &(&SaId, &Installed)| sa.1.rule == rule;
        let sas: Vec<SaId> = self.sas.iter().filter(of_rule).map(|(id, _)| *id).collect();
        for id in sas {
            let serial = self.sas.get(&id).and_then(|sa| sa.serial);
            // Its turn among those of the rule stays.
            self.rest(id);
            if let Some(sa) = self.sas.get_mut(&id) {
                (sa.rule, sa.serial) = (to, serial);
            }
            outcome = outcome.and(self.serve(id));
        }
        self.release(rule, &flows, binding);
        if let Err(error) = outcome {
            tracing::error!(%error, "a rule's traffic is blocked");
        }
    }

    fn set_trap(&mut self, rule: RuleId) {
        let Some(ruled) = self.rules.get_mut(&rule) else { return };
        ruled.rule.trap = true;
        if let Err(error) = self.hold(rule) {
            tracing::error!(%error, "packets that wait for a tunnel are not seen");
        }
    }

    fn set_reqid(&mut self, rule: RuleId, reqid: u32) -> Result<(), PlaneError> {
        let what = || format!("giving reqid {reqid} to SAs");
        let refused = |why: String| Err(PlaneError::System { what: what(), why });
        if reqid == 0 || REQIDS.contains(&reqid) {
            let (first, last) = (REQIDS.start(), REQIDS.end());
            return refused(format!("0 and {first} to {last} are not to be given by hand"));
        }
        if let Some(other) = self.rules.values().find(|r| r.reqid == reqid && r.rule.id != rule) {
            return refused(format!("those of {} have it", other.rule.tunnel));
        }
        self.rules.get_mut(&rule).ok_or(PlaneError::NoSuchRule(rule))?.reqid = reqid;
        self.hold(rule)
    }

    fn remove_rule(&mut self, rule: RuleId) {
        let Some(ruled) = self.rules.remove(&rule) else { return };
        let of_rule = |sa: &(&SaId, &Installed)| sa.1.rule == rule;
        let sas: Vec<SaId> = self.sas.iter().filter(of_rule).map(|(id, _)| *id).collect();
        sas.into_iter().for_each(|sa| self.rest(sa));
        self.release(rule, &ruled.flows, ruled.binding);
    }

    fn add_inbound(&mut self, sa: InboundSa) -> Result<(), PlaneError> {
        self.place_inbound(sa)
    }

    fn add_outbound(&mut self, sa: OutboundSa) -> Result<(), PlaneError> {
        self.place_outbound(sa)
    }

    fn promote(&mut self, sa: SaId) -> Result<(), PlaneError> {
        // The card may have taken the SA and not take its policy.
        self.use_from_now(sa).or_else(|error| self.leave_card_for(sa, error))
    }

    fn relocate(&mut self, id: SaId, path: Path) -> Result<(), PlaneError> {
        let sa = self.sas.get(&id).ok_or(PlaneError::NoSuchSa(id))?;
        if sa.form.path == path {
            return Ok(());
        }
        self.remake(id, &mut |form| form.path = path)
    }

    fn last_sequence(&mut self, id: SaId) -> Option<u64> {
        if self.sas.get(&id)?.form.inbound {
            return None;
        }
        state::last_sequence(&self.read_back(id)?)
    }

    fn resync(&mut self) -> Result<Resynced, PlaneError> {
        self.resync_all()
    }

    fn network_changed(&mut self) {
        if !self.cards_have_lost() {
            return;
        }
        match self.resync_all() {
            Ok(done) => tracing::warn!(moved = done.moved, "a network card has lost its SAs"),
            Err(error) => tracing::error!(%error, "a network card has lost its SAs"),
        }
    }

    fn remove(&mut self, sa: SaId) -> Option<Usage> {
        self.rest(sa);
        // What it has done is not to be lost with it.
        let usage = self.usage(sa);
        let removed = self.sas.remove(&sa)?;
        self.config.placement.forget(sa);
        if let Some(ruled) = self.rules.get_mut(&removed.rule) {
            ruled.receiving.retain(|(id, _)| *id != sa);
            if let Err(error) = self.guard(removed.rule) {
                tracing::warn!(%error, "the guard against cleartext stays as it was");
            }
        }
        self.delete(&removed.form.name(), &removed.form.binding);
        usage
    }

    fn usage(&mut self, sa: SaId) -> Option<Usage> {
        let installed = self.sas.get_mut(&sa)?;
        let (name, binding) = (installed.form.name(), installed.form.binding);
        // One that has expired is gone from the kernel.
        if let Ok(Some(state)) = read(&mut *self.kernel, &name, &binding) {
            let now = state::usage(&state, Instant::now(), SystemTime::now());
            let before = installed.before;
            installed.last = Usage {
                packets: before.packets + now.packets,
                bytes: before.bytes + now.bytes,
                last_used: now.last_used.or(before.last_used),
                refused: before.refused + now.refused,
            };
            installed.tell_work(&self.config.crypto);
        }
        Some(installed.last)
    }

    fn tell_work(&mut self) {
        let sas: Vec<SaId> = self.sas.keys().copied().collect();
        for sa in sas {
            let _ = self.usage(sa);
        }
    }

    /// Has the kernel make the SA anew, with that number behind it.
    fn resume(&mut self, id: SaId, used: u64) -> Result<(), PlaneError> {
        let sa = self.sas.get(&id).ok_or(PlaneError::NoSuchSa(id))?;
        let (form, name, binding) = (&sa.form, sa.form.name(), sa.form.binding);
        if form.inbound || sa.serial.is_some() {
            return Err(PlaneError::System {
                what: format!("going on with SA {} after packet {used}", form.spi),
                why: "it is not one that waits to send".to_owned(),
            });
        }
        let message = form.message(&sa.key, Some(state::replay_from(form, used)))?;
        self.delete(&name, &binding);
        self.known.insert(name, id);
        let refused = |e| refusal(format!("going on with SA {:08x}", name.spi), &e);
        self.kernel.order(XfrmMessage::AddSa(message)).map_err(refused)
    }
}

impl KernelPlane for Xfrm {
    fn leave_alone(&mut self, rule: Rule) -> Result<(), PlaneError> {
        self.put_rule(rule, true)
    }

    fn course(&self, rule: RuleId, packet: &PacketSummary, leaves: bool) -> Option<Course> {
        self.course_by(rule, packet, leaves)
    }

    fn settle(&mut self) {
        let in_force: Vec<XfrmMessage> =
            self.spd.in_force().map(|change| change.deletion()).collect();
        for stale in std::mem::take(&mut self.stale) {
            let order = XfrmMessage::DeletePolicy(stale);
            if in_force.contains(&order) {
                continue;
            }
            match self.kernel.order(order) {
                Err(error) if !error.is_absent() => {
                    tracing::warn!(%error, "a policy of an earlier run stays in the kernel");
                }
                _ => {}
            }
        }
    }
}

impl Xfrm {
    /// Adds a rule, or changes the one of that name, which keeps its SAs.
    fn put_rule(&mut self, rule: Rule, elsewhere: bool) -> Result<(), PlaneError> {
        let (id, flows) = (rule.id, Flow::leaving(&rule.selectors)?);
        priority(id)?;
        if flows.iter().any(|flow| flow.source.address.is_ipv6()) {
            self.neighbour_discovery()?;
        }
        let binding = self.config.bindings.get(&rule.tunnel).copied().unwrap_or_default();
        let before = self.rules.remove(&id);
        let (reqid, receiving) = match &before {
            Some(ruled) => (ruled.reqid, ruled.receiving.clone()),
            None => (self.next_reqid()?, Vec::new()),
        };
        let ruled = Ruled { rule, binding, reqid, flows: flows.clone(), elsewhere, receiving };
        self.rules.insert(id, ruled);
        let outcome = self.hold(id).and_then(|()| self.guard(id));
        let (gone, binding) = match (&outcome, before) {
            (Ok(()), Some(before)) => {
                let gone = before.flows.into_iter().filter(|flow| !flows.contains(flow));
                (gone.collect(), before.binding)
            }
            // What was in force stays in force.
            (Err(_), Some(before)) => {
                let gone = flows.into_iter().filter(|flow| !before.flows.contains(flow));
                let gone = gone.collect();
                self.rules.insert(id, before);
                if let Err(error) = self.hold(id).and_then(|()| self.guard(id)) {
                    tracing::error!(%error, "a rule's traffic is not as it was");
                }
                (gone, binding)
            }
            (Err(_), None) => {
                self.remove_rule(id);
                (Vec::new(), binding)
            }
            (Ok(()), None) => (Vec::new(), binding),
        };
        self.release(id, &gone, binding);
        outcome
    }

    fn next_reqid(&mut self) -> Result<u32, PlaneError> {
        let next = self.reqid + 1;
        if !REQIDS.contains(&next) {
            return Err(PlaneError::System {
                what: "numbering a rule for the kernel".to_owned(),
                why: "all reqids of this plane have been used; restart it".to_owned(),
            });
        }
        self.reqid = next;
        Ok(next)
    }
}

impl Drop for Xfrm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // As if the process had been killed: traffic stops rather than leaks, and the next start cleans up.
            return;
        }
        let rules: Vec<RuleId> = self.rules.keys().copied().collect();
        rules.into_iter().for_each(|rule| self.remove_rule(rule));
        let sas: Vec<SaId> = self.sas.keys().copied().collect();
        sas.into_iter().for_each(|sa| _ = self.remove(sa));
        self.settle();
        let rest: Vec<Change> = self.spd.in_force().collect();
        for change in rest {
            if let Change::Put(key, ..) = change
                && let Err(error) = tell(&mut *self.kernel, &Change::Delete(key))
            {
                tracing::warn!(%error, "a policy stays in the kernel");
            }
        }
    }
}

impl Binding {
    fn attributes(self) -> Vec<XfrmAttrs> {
        self.mark_attribute().into_iter().chain(self.if_id.map(XfrmAttrs::IfId)).collect()
    }

    fn mark_attribute(self) -> Option<XfrmAttrs> {
        self.mark.map(|(value, mask)| XfrmAttrs::Mark(Mark { value, mask }))
    }
}

/// The priority of policies that use a rule's SAs.
fn priority(rule: RuleId) -> Result<u32, PlaneError> {
    let priority = rule.0.checked_mul(2).and_then(|n| n.checked_add(RULES));
    priority.filter(|p| p < PRIORITIES.end()).ok_or_else(|| PlaneError::System {
        what: "ordering the rules in the kernel".to_owned(),
        why: "there have been too many; restart the daemon".to_owned(),
    })
}

/// The rule whose policy has a priority, and whether it stands for traffic without an SA.
fn rule_of(priority: u32) -> Option<(RuleId, bool)> {
    let place = priority.checked_sub(RULES).filter(|_| PRIORITIES.contains(&priority))?;
    Some((RuleId(place / 2), place % 2 == 1))
}

fn keys(flows: impl Iterator<Item = Flow>, binding: Binding, way: Way) -> Vec<Key> {
    flows.map(|flow| Key { way, flow, binding }).collect()
}

/// The same with either value of a bit of the mark that nothing else looks at; together they cover all of it.
fn halves(key: Key) -> Vec<Key> {
    const BIT: u32 = 1 << 31;
    let (value, mask) = key.binding.mark.unwrap_or_default();
    if mask & BIT != 0 {
        return Vec::new();
    }
    let half = |bit| {
        let binding = Binding { mark: Some((value | bit, mask | BIT)), ..key.binding };
        Key { binding, ..key }
    };
    vec![half(0), half(BIT)]
}

fn single(flows: &[Flow]) -> Option<Flow> {
    match flows[..] {
        [flow] => Some(flow),
        _ => None,
    }
}

/// Neighbour discovery cannot be protected: it finds the link addresses that protected packets need (RFC 4861).
fn neighbour_discovery() -> Vec<Flow> {
    let every = Ipv6Addr::UNSPECIFIED.into();
    let last = Ipv6Addr::from_bits(u128::MAX).into();
    let addresses =
        policy::AddressRange::new(every, last).expect("the first comes before the last");
    let types =
        PortRange::new(133 << 8, (137 << 8) + 0xff).expect("the first comes before the last");
    let any = Selector { protocol: flow::ICMPV6, addresses, ports: types };
    let traffic = TrafficSelectors { local: vec![any], remote: vec![any] };
    Flow::leaving(&traffic).expect("few blocks")
}

/// An SA as the kernel has it, without its keys.
fn read(
    kernel: &mut dyn Kernel,
    name: &Name,
    binding: &Binding,
) -> Result<Option<ModifyMessage>, Refused> {
    match kernel.ask(XfrmMessage::GetSa(name.message(binding))) {
        Ok(XfrmMessage::AddSa(mut state) | XfrmMessage::UpdateSa(mut state)) => {
            algorithm::wipe(&mut state.nlas);
            if state::is_larval(&state) {
                // Nor may it stand in the way of the SA.
                kernel.order(XfrmMessage::DeleteSa(name.message(binding)))?;
                return Ok(None);
            }
            Ok(Some(state))
        }
        Ok(_) => Ok(None),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

fn tell(kernel: &mut dyn Kernel, change: &Change) -> Result<(), PlaneError> {
    match kernel.order(change.message()) {
        Err(error) if error.is_absent() && matches!(change, Change::Delete(_)) => Ok(()),
        outcome => outcome.map_err(|e| refusal("changing a policy of the kernel".to_owned(), &e)),
    }
}

fn refusal(what: String, error: &Refused) -> PlaneError {
    let advice = match error.errno {
        libc::EPERM | libc::EACCES => "; is CAP_NET_ADMIN granted?",
        libc::ENOSYS | libc::EPROTONOSUPPORT | libc::ENOENT => {
            "; does this kernel have the algorithm, and the modules esp4, esp6, ah4, ah6?"
        }
        _ => "",
    };
    let why = format!("the kernel says: {error}{advice}");
    match error.errno {
        libc::ENOSPC => PlaneError::Full { what, why },
        _ => PlaneError::System { what, why },
    }
}
