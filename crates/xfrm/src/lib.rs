//! The kernel plane: SAs and policies in Linux's XFRM, told over netlink.
//!
//! [`Xfrm`] is a [`DataPlane`]: rules become policies, SAs become states, and the kernel or a network card protects the
//! packets. The kernel's reports (`monitor`) become [`Notice`]s; what other programs remove becomes a [`Disturbance`]. No packet passes this process; no device and no route is
//! needed.
//!
//! ```text
//!  Rule ──► flow::Flow (prefixes, ports) ──► policies ──► spd::Spd ──► Change ──┐
//!                                        what there is to be   what differs     │    ┌─ policies ─┐
//!                                                                               ├──► │   kernel   │
//!  SA ──► placement::steps ──► place ──► state::Form ──► message ───────────────┘    └─  states  ─┘
//!          card or software?   tries, reads back                                           │
//!                                                                                          ▼
//!  Notice: Acquire, Expiring, PeerMoved; Disturbance ◄────────────────────────────────── monitor
//! ```
//!
//! # State in the kernel
//!
//! All of this is gone after a clean stop:
//!
//! - states with a reqid in [`REQIDS`]. A rule has one reqid for as long as it lives, which all its SAs share. An operator
//!   may have given SAs without IKE another reqid: they are known by the policies of this plane that name them;
//! - policies with a priority in [`PRIORITIES`]. Their order is that of the rules, and an administrator's own policies come
//!   before them. The traffic of a rule always has a policy in each direction: `block`, or a template that only its SAs
//!   fit. So nothing leaves or enters in the clear, whether an SA is up or not, and also after this process has crashed;
//! - with IPv6, policies that let neighbour discovery pass.
//!
//! There is one such plane in a network namespace. States and policies that lie in the two ranges when it starts were left by
//! one that crashed. SAs are removed at once; policies are removed by [`KernelPlane::settle`], when the new ones are there.
//!
//! # Example
//!
//! Two decisions that ask no kernel: the policies that a rule's traffic needs, and whether a card is tried for an SA:
//!
//! ```
//! use crypto::Suite;
//! use esp::plane::{Encapsulation, TrafficSelectors};
//! use policy::{AddressRange, KeyBits, Selector};
//! use xfrm::Flow;
//! use xfrm::placement::{Card, Need, Place, Wanted, steps};
//!
//! let range = |first, last| AddressRange::new([10, 2, 0, first].into(), [10, 2, 0, last].into()).expect("in order");
//! let local = vec![Selector::all_of(range(0, 127))];
//! let remote = vec![Selector::all_of(range(130, 132))];
//! // The kernel knows prefixes only: 10.2.0.130/31 and 10.2.0.132/32 make two policies in each direction.
//! let flows = Flow::leaving(&TrafficSelectors { local, remote })?;
//! assert_eq!(flows.len(), 2);
//!
//! let card = Card { index: 2, name: "eth0".to_owned(), esp: Some(true), checksum: true };
//! let suite = Suite::AesGcm16(KeyBits::B128);
//! let native = Need { suite, encapsulation: Encapsulation::Native };
//! let tries = steps(Wanted::Auto, Ok(card.clone()), &native).tries;
//! assert_eq!(tries.iter().map(|step| step.place).collect::<Vec<_>>(), [Place::Packet, Place::Crypto]);
//!
//! // The kernel offloads no ESP in UDP: no card is tried, and the reason is kept for the operator.
//! let in_udp = Need { encapsulation: Encapsulation::Udp, ..native };
//! let steps = steps(Wanted::Auto, Ok(card), &in_udp);
//! assert!(steps.tries.is_empty());
//! assert!(steps.passed.is_some());
//! # Ok::<(), esp::plane::PlaneError>(())
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Where are the attributes of a state written? | `state.rs`, `Form::message`; algorithm and key in `algorithm.rs` |
//! | Where are the attributes of a policy written? | `spd.rs`, `message` |
//! | Which policies does a rule have, with and without an SA? | `policies.rs`, `guard` (inbound), `hold` and `serve` (outbound) |
//! | How do selectors become prefixes and port masks? | `flow.rs` |
//! | Where is a card's offload decided? | `placement/steps.rs` (what to try), `place.rs` (tries it and reads back), `placement/cards.rs` (which card) |
//! | Who waits for room in a card? | `waiting.rs` |
//! | Which reports of the kernel become notices? | `monitor.rs`; `reports.rs` filters them in the kernel, `larval.rs` is about packets that wait for an SA |
//! | What is put back if another program removes it? | `restore.rs` |
//! | What did a crashed plane leave, and whose is a state? | `leftovers.rs`; `ownership.rs` |
//! | What happens if the peer's address changes? | `plane.rs`, `relocate` |
//! | Where are packets, octets and sequence numbers of an SA read? | `work.rs`, `state.rs` |
//! | Where is a packet without an SA or with an unknown SPI counted? | by the kernel, for the whole namespace: `statistics.rs` explains its counters |
//! | What does this kernel support? | `probe.rs` |
//! | How are states and policies shown as `ip xfrm` commands? | `command.rs` |
//! | How is the plane tested without a kernel? | `netlink.rs`, `Kernel`; `tests/twin.rs` is a kernel in memory |
//!
//! # Choices worth knowing
//!
//! - **Promotion is atomic.** An outbound policy names the SPI of the SA that it uses. An SA in standby is not used before it
//!   is promoted, and a promotion is one exchange of a policy.
//! - **An SA that moves is installed again** with its sequence numbers. `XFRM_MSG_MIGRATE` needs a kernel built for it, finds
//!   SAs by reqid and addresses rather than by SPI, and cannot put an SA into UDP.
//! - **Rules of other planes are bypass policies** in the place of the rule ([`KernelPlane::leave_alone`]), so that the order of
//!   the rules holds across planes.
//! - **A card that goes takes its policies along.** So a policy that a card keeps has a block policy behind it, with the next
//!   priority.
//! - **Counters are the kernel's.** What an SA has done counts for the card if the SA is offloaded, and for the kernel
//!   otherwise.
//! - **Policies may be removed by other programs.** Until they are put back, nftables drops the traffic that they protected
//!   (`src/planes/guard.rs` of the package `vpn`).
//!
//! [`Xfrm::install_inbound`] and [`Xfrm::install_outbound`] take a choice of [`Offload`] with the SA; [`Xfrm::read_back`]
//! tells what the kernel has made of it. A [`Disturbance`] tells what others have removed, and [`Xfrm::restore`] puts it back.

#![deny(unsafe_code)]

mod algorithm;
mod binding;
mod command;
mod flow;
mod known;
mod larval;
mod leftovers;
mod monitor;
mod netlink;
mod ownership;
mod place;
pub mod placement;
mod plane;
mod policies;
mod probe;
mod reports;
mod restore;
mod spd;
mod state;
mod statistics;
#[cfg(test)]
mod tests;
mod trace;
mod waiting;
mod work;

pub use command::commands;
pub use esp::trace::Binding;
pub use flow::{End, Flow, Port};
pub use monitor::Disturbance;
pub use netlink::{Kernel, Netlink, Refused};
pub use plane::KernelPlane;
pub use probe::{Ability, probe};
pub use statistics::{Statistic, statistics};

use crate::placement::{Place as Seat, Placement};
use crypto::{Amount, CryptoProviders};
use esp::plane::{
    DataPlane, InboundSa, Notice, OutboundSa, PlaneError, Rule, RuleId, SaId, TrafficSelectors,
    Usage,
};
use known::Known;
use monitor::Monitor;
use netlink_packet_xfrm::policy::DelGetMessage;
use netlink_packet_xfrm::state::ModifyMessage;
use netlink_packet_xfrm::{XfrmAttrs, XfrmMessage};
use policies::{keys, priority, tell};
use policy::Secret;
use spd::{Change, Place, Spd, Template, Way};
use state::{Form, Name};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use waiting::Waiting;

/// The reqids of this plane. strongSwan counts from 1, libreswan and the kernel itself from 0x4000.
pub const REQIDS: RangeInclusive<u32> = 0x7600_0001..=0x76ff_ffff;

/// The priorities of this plane's policies; 0, the first, is what `ip xfrm policy` gives by default.
pub const PRIORITIES: RangeInclusive<u32> = 0x7600_0000..=0x76ff_ffff;

/// How the plane appears in the kernel.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// What else besides their selectors decides which packets are the tunnels', by [`Rule::tunnel`].
    pub bindings: BTreeMap<String, Binding>,
    /// What network cards are to do. Whoever keeps a clone can see what they do.
    pub placement: Placement,
    /// Takes note of what kernel and network cards have done.
    pub crypto: Arc<CryptoProviders>,
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
    by_rule: BTreeSet<(RuleId, SaId)>,
    /// Of the last SA added or promoted.
    serial: u64,
    /// The last reqid given.
    reqid: u32,
    /// Policies that an earlier run has left: until this one has its own, they keep traffic from leaking.
    stale: Vec<DelGetMessage>,
    known: Known,
    /// The last attempt to put things right has failed.
    amiss: bool,
    /// Who is in software until a card has room again.
    waiting: Waiting,
    /// Tells that there is.
    notice: Arc<dyn Fn(Notice) + Send + Sync>,
    room_is_told: bool,
    /// Which offload was not to be had, why and of which device, as far as the log has it.
    told: BTreeSet<(Seat, &'static str, Option<String>)>,
    /// Whether dropping this leaves the policies, which block without SAs.
    blocked_on_drop: bool,
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
    /// How many sequence numbers it has passed over where it was made anew.
    skipped: u64,
}

impl fmt::Debug for Xfrm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Xfrm")
            .field("rules", &self.rules.len())
            .field("sas", &self.sas.len())
            .finish_non_exhaustive()
    }
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
        let notice = Arc::clone(&hooks.notice);
        let monitor = Monitor::start(hooks, &known, kernel.port())?;
        config.placement.ask_kernel();
        let mut kernel = kernel;
        let stale = leftovers::take(&mut kernel)?;
        kernel.hear_of_removals().map_err(|error| PlaneError::System {
            what: "listening to what becomes of SAs".to_owned(),
            why: error.to_string(),
        })?;
        let mut plane = Self::on(Box::new(kernel), config, known, Some(monitor));
        (plane.stale, plane.notice) = (stale, notice);
        Ok(plane)
    }

    fn on(kernel: Box<dyn Kernel>, config: Config, known: Known, monitor: Option<Monitor>) -> Self {
        Self {
            kernel,
            config,
            spd: Spd::default(),
            rules: BTreeMap::new(),
            sas: BTreeMap::new(),
            by_rule: BTreeSet::new(),
            serial: 0,
            reqid: REQIDS.start() - 1,
            stale: Vec::new(),
            known,
            amiss: false,
            waiting: Waiting::default(),
            notice: Arc::new(|_| {}),
            room_is_told: false,
            told: BTreeSet::new(),
            blocked_on_drop: false,
            _monitor: monitor,
        }
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
        let (before, last, told, skipped) = Default::default();
        let serial = None;
        let installed =
            Installed { form, key, rule, selectors, flows, serial, before, last, told, skipped };
        self.sas.insert(id, installed);
        self.by_rule.insert((rule, id));
        Ok(())
    }

    /// Removes an SA from the kernel. Returns what it was in the end; `None` where there is none.
    fn delete(&mut self, name: &Name, binding: &Binding) -> Result<Option<ModifyMessage>, Refused> {
        match self.kernel.take(name.message(binding)) {
            Ok(ended) => Ok(ended.filter(|state| !state::is_larval(state))),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Xfrm {
    /// Says whether the policies stay in the kernel when this is dropped, where they block without SAs, until the next start. At
    /// first they do not.
    pub fn block_on_drop(&mut self, blocked: bool) {
        self.blocked_on_drop = blocked;
    }

    fn remove_sas(&mut self) {
        let sas: Vec<SaId> = self.sas.keys().copied().collect();
        sas.into_iter().for_each(|sa| _ = self.remove(sa));
    }
}

impl Drop for Xfrm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // As if the process had been killed: traffic stops rather than leaks, and the next start cleans up.
            return;
        }
        if self.blocked_on_drop {
            // Without SAs the policies block.
            self.remove_sas();
            return;
        }
        let rules: Vec<RuleId> = self.rules.keys().copied().collect();
        rules.into_iter().for_each(|rule| self.remove_rule(rule));
        self.remove_sas();
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

fn single(flows: &[Flow]) -> Option<Flow> {
    match flows[..] {
        [flow] => Some(flow),
        _ => None,
    }
}

/// Gives the kernel an SA, in the place of a note that a packet has asked for it.
fn give(
    kernel: &mut dyn Kernel,
    (form, key): (&Form, &Secret),
    replay: &XfrmAttrs,
    what: &str,
) -> Result<(), PlaneError> {
    let refused = |e| refusal(format!("{what} SA {}", form.spi), &e);
    let message = || form.message(key, Some(replay.clone()));
    match kernel.order(XfrmMessage::AddSa(message()?)) {
        Err(error) if error.errno == libc::EEXIST => {
            let name = form.name().message(&form.binding);
            let mut there = kernel.ask(XfrmMessage::GetSa(name)).map_err(refused)?;
            netlink::wipe(&mut there);
            match there {
                XfrmMessage::AddSa(state) if state::is_larval(&state) => {
                    kernel.order(XfrmMessage::UpdateSa(message()?)).map_err(refused)
                }
                _ => Err(refused(error)),
            }
        }
        outcome => outcome.map_err(refused),
    }
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
