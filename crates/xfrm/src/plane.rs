//! The plane itself: what it owns, how it starts and goes, and how SAs get into it.

use super::config::{Config, Hooks};
use super::flow::Flow;
use super::kernel_sa::read;
use super::known::Known;
use super::leftovers;
use super::monitor::{Monitor, Place};
use super::netlink::{Kernel, Netlink, Refused, refusal};
use super::offload::Offload;
use super::ownership::REQIDS;
use super::placement::OffloadMode;
use super::policies::tell;
use super::spd::{Change, Spd, Template};
use super::state::{self, Form, Name};
use super::waiting::Waiting;
use crypto::Amount;
use esp::families::Families;
use esp::plane::{
    DataPlane, InboundSa, Ledger, Notice, OutboundSa, PlaneError, RuleId, SaEntry, SaId,
    TrafficSelectors, Usage,
};
use netlink_packet_xfrm::XfrmMessage;
use netlink_packet_xfrm::policy::DelGetMessage;
use netlink_packet_xfrm::state::ModifyMessage;
use policy::{Binding, Secret};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

mod capabilities;
mod data_plane;
mod frozen;
mod place;
mod policies;
mod restore;
mod room;
mod trace;
mod work;

pub use data_plane::KernelPlane;
pub use frozen::{FrozenRule, FrozenSa, FrozenUsage, FrozenXfrm, Listening, Way};

/// A running kernel plane. Dropping it removes everything of it from the kernel.
pub struct Xfrm {
    kernel: Box<dyn Kernel>,
    pub(super) config: Config,
    spd: Spd,
    pub(super) ledger: Ledger<Ruled, Installed>,
    /// The last reqid given.
    reqid: u32,
    /// Policies that an earlier run has left: until this one has its own, they keep traffic from leaking.
    stale: Vec<DelGetMessage>,
    pub(super) known: Known,
    /// The error of the last resynchronisation, if it has failed.
    fault: Option<String>,
    /// The SAs that are in software until a card has room again.
    pub(super) waiting: Waiting,
    /// Tells that there is.
    pub(super) notice: Arc<dyn Fn(Notice) + Send + Sync>,
    room_is_told: bool,
    /// The failed offloads that the log already has: which one, why, and of which device.
    told: BTreeSet<(OffloadMode, &'static str, Option<String>)>,
    /// The address families that tunnels may use.
    families: Families,
    /// Dropping this leaves the policies, which block traffic without SAs.
    blocked_on_drop: bool,
    /// Another process may go on with everything in the kernel.
    is_frozen: bool,
    /// Another process has made everything in the kernel, and this plane has not compared it yet.
    is_adopted: bool,
    monitor: Option<Monitor>,
}

pub(super) struct Ruled {
    binding: Binding,
    reqid: u32,
    flows: Vec<Flow>,
    /// Its traffic is protected elsewhere, and passes the kernel.
    elsewhere: bool,
    /// The templates of its inbound SAs, the youngest last.
    receiving: Vec<(SaId, Template)>,
}

pub(super) struct Installed {
    pub(super) form: Form,
    key: Secret,
    selectors: Arc<TrafficSelectors>,
    /// Of one that sends.
    flows: Vec<Flow>,
    /// Its counters before its last move.
    before: Usage,
    /// Its counters when they were read last.
    last: Usage,
    /// The part of `last` that the crypto providers' counters contain.
    told: Amount,
    /// The highest sequence number that the kernel has told of, sent or received.
    seen: u64,
}

impl Installed {
    fn new(form: Form, key: &Secret, selectors: &Arc<TrafficSelectors>, flows: Vec<Flow>) -> Self {
        Self {
            form,
            key: key.clone(),
            selectors: Arc::clone(selectors),
            flows,
            before: Usage::default(),
            last: Usage::default(),
            told: Amount::default(),
            seen: 0,
        }
    }
}

impl fmt::Debug for Xfrm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Xfrm")
            .field("rules", &self.ledger.rules().count())
            .field("sas", &self.ledger.sas().count())
            .finish_non_exhaustive()
    }
}

/// Removes from the kernel everything that a plane which has ended left there. If another plane runs in the calling
/// thread's network namespace, or the kernel has no XFRM, nothing happens.
///
/// # Errors
/// If the kernel refuses it.
pub fn remove_leftovers() -> Result<(), PlaneError> {
    let Ok(mut kernel) = Netlink::open() else { return Ok(()) };
    if Monitor::runs_elsewhere() {
        return Ok(());
    }
    let policies = leftovers::take(&mut kernel)?;
    leftovers::remove_policies(&mut kernel, policies)
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
        let monitor = Monitor::start(Place::First, hooks, &known, kernel.port())?;
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

    pub(super) fn on(
        kernel: Box<dyn Kernel>,
        config: Config,
        known: Known,
        monitor: Option<Monitor>,
    ) -> Self {
        Self {
            kernel,
            config,
            spd: Spd::default(),
            ledger: Ledger::default(),
            reqid: REQIDS.start() - 1,
            stale: Vec::new(),
            known,
            fault: None,
            waiting: Waiting::default(),
            notice: Arc::new(|_| {}),
            room_is_told: false,
            told: BTreeSet::new(),
            families: Families::default(),
            blocked_on_drop: false,
            is_frozen: false,
            is_adopted: false,
            monitor,
        }
    }

    /// As [`DataPlane::add_inbound`], with a choice of offload.
    pub fn install_inbound(
        &mut self,
        sa: InboundSa,
        offload: Option<Offload>,
    ) -> Result<(), PlaneError> {
        let ruled = self.ledger.rule(sa.rule).ok_or(PlaneError::NoSuchRule(sa.rule))?;
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
            base: 0,
            allowed: None,
            reqid: ruled.reqid,
            binding: ruled.binding,
            offload,
        };
        let template = arrival(&form);
        let installed = Installed::new(form, &sa.key, &sa.selectors, Vec::new());
        self.install(SaEntry::inbound(&sa, installed))?;
        self.receive_by(sa.rule, sa.id, template).inspect_err(|_| _ = self.remove(sa.id))
    }

    /// As [`DataPlane::add_outbound`], with a choice of offload.
    pub fn install_outbound(
        &mut self,
        sa: OutboundSa,
        offload: Option<Offload>,
    ) -> Result<(), PlaneError> {
        let ruled = self.ledger.rule(sa.rule).ok_or(PlaneError::NoSuchRule(sa.rule))?;
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
            base: 0,
            allowed: None,
            reqid: ruled.reqid,
            binding: ruled.binding,
            offload,
        };
        let installed = Installed::new(form, &sa.key, &sa.selectors, flows);
        self.install(SaEntry::outbound(&sa, installed))?;
        self.serve(sa.id).inspect_err(|_| _ = self.remove(sa.id))
    }

    /// Points the traffic of an SA that sends at it.
    fn use_from_now(&mut self, sa: SaId) -> Result<(), PlaneError> {
        let before = self.ledger.promote(sa)?;
        self.serve(sa)?;
        // In its former turn it has nothing left to do.
        if let (Some(turn), Some(entry)) = (before, self.ledger.sa(sa)) {
            self.withdraw(sa, entry.rule, turn);
        }
        Ok(())
    }

    /// An SA as the kernel has it now, without its keys; `None` where it has none.
    pub fn read_back(&mut self, sa: SaId) -> Option<ModifyMessage> {
        let form = &self.ledger.sa(sa)?.form;
        read(&mut *self.kernel, &form.name(), &form.binding).ok().flatten()
    }

    fn install(&mut self, sa: SaEntry<Installed>) -> Result<(), PlaneError> {
        let name = sa.form.name();
        let message = sa.form.message(&sa.key, None)?;
        self.known.insert(name, sa.id);
        if let Err(error) = self.kernel.order(XfrmMessage::AddSa(message)) {
            self.known.remove(&name);
            if error.errno == libc::EEXIST {
                return Err(PlaneError::SpiInUse(sa.spi));
            }
            let what = format!("giving SA {} with {} to the kernel", sa.spi, sa.form.suite);
            return Err(refusal(what, &error));
        }
        self.ledger.enter_sa(sa);
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
    /// Says whether the policies stay in the kernel when this is dropped, where they block without SAs, until the next
    /// start. At first they do not.
    pub fn block_on_drop(&mut self, blocked: bool) {
        self.blocked_on_drop = blocked;
    }

    fn remove_sas(&mut self) {
        let sas: Vec<SaId> = self.ledger.sas().map(|sa| sa.id).collect();
        sas.into_iter().for_each(|sa| _ = self.remove(sa));
    }
}

impl Drop for Xfrm {
    fn drop(&mut self) {
        if self.is_frozen || std::thread::panicking() {
            // As if the process had been killed: traffic stops rather than leaks, and the next start cleans up.
            return;
        }
        if self.blocked_on_drop {
            // Without SAs the policies block.
            self.remove_sas();
            return;
        }
        let rules: Vec<RuleId> = self.ledger.rules().map(|ruled| ruled.rule.id).collect();
        rules.into_iter().for_each(|rule| self.remove_rule(rule));
        self.remove_sas();
        self.remove_stale_policies();
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

/// The template by which packets of an SA arrive.
fn arrival(form: &Form) -> Template {
    // Another program may use this reqid, too, so that the policy has to say which SA is this plane's.
    let by_hand = !REQIDS.contains(&form.reqid);
    Template {
        protocol: form.protocol(),
        mode: form.mode,
        reqid: form.reqid,
        spi: by_hand.then_some(form.spi),
        ends: by_hand.then(|| form.ends()),
        offload: form.offload.filter(|offload| offload.packet),
    }
}

fn single(flows: &[Flow]) -> Option<Flow> {
    match flows[..] {
        [flow] => Some(flow),
        _ => None,
    }
}
