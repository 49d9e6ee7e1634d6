//! A plane that is frozen, and goes on here or in another process.
//!
//! ```text
//!  predecessor                     successor
//!                                  Listening::start: hears the kernel, beside the predecessor
//!  Xfrm::freeze ──► FrozenXfrm ──► Xfrm::adopt: frozen, too
//!     └──► Xfrm::thaw, or dropped     └──► Xfrm::thaw, or dropped
//! ```
//!
//! The kernel protects packets and numbers them all the time, so that no packet waits. Whoever drops a frozen plane
//! leaves states and policies as they are. A successor makes its policies without a word to the kernel, because they are
//! there. Only once it is thawed it compares both, puts back what is missing, and removes what it does not know.
//!
//! Not in the value, because they are found again: the SAs that wait for room in a card, and the reasons why a card has
//! declined others.

#![forbid(unsafe_code)]

use super::{Installed, Xfrm, arrival, single};
use crate::config::{Config, Hooks};
use crate::flow::Flow;
use crate::known::Known;
use crate::leftovers;
use crate::monitor::{Monitor, Place};
use crate::netlink::{Kernel, Netlink, Refused, refusal};
use crate::offload::Offload;
use crate::ownership::{Own, REQIDS};
use crate::state::{Form, Name, name_of};
use crypto::{Amount, Suite};
use esp::families::Families;
use esp::plane::{
    Limits, ManualKeying, Notice, Path, PlaneError, Resynced, Rule, RuleId, SaEntry, SaId, Spi,
    TrafficSelectors, Usage,
};
use netlink_packet_xfrm::XfrmMessage;
use netlink_packet_xfrm::state::{DelGetMessage, ModifyMessage};
use policy::{Binding, Mode, Secret};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The state of a plane, as another process goes on with it. It has the keys of all SAs, which are wiped when it is
/// dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrozenXfrm {
    /// The rules, in the order in which they are matched.
    pub rules: Vec<FrozenRule>,
    /// The SAs: first those that receive, of each rule the youngest last, and then those that send, in the order of
    /// their turns.
    pub sas: Vec<FrozenSa>,
    /// The last reqid given.
    pub reqid: u32,
    /// The address families that tunnels may use.
    pub families: Families,
    /// The place at which the plane hears the kernel.
    pub hears: Place,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrozenRule {
    /// The rule.
    pub rule: Rule,
    /// The number by which its policies find its SAs.
    pub reqid: u32,
    /// Its traffic is protected elsewhere, and passes the kernel.
    pub elsewhere: bool,
}

/// An SA in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrozenSa {
    /// Its name.
    pub id: SaId,
    /// The rule whose traffic it carries. It may be gone.
    pub rule: RuleId,
    /// The use of it.
    pub way: Way,
    /// Its SPI.
    pub spi: Spi,
    /// Its cipher.
    pub suite: Suite,
    /// Its key.
    pub key: Secret,
    /// Extended sequence numbers.
    pub esn: bool,
    /// Packets of its anti-replay window.
    pub replay_window: u32,
    /// Transport or tunnel mode.
    pub mode: Mode,
    /// The path of its packets.
    pub path: Path,
    /// The traffic that its packets may carry.
    pub selectors: Arc<TrafficSelectors>,
    /// The volume that is left to it where it is now.
    pub limits: Limits,
    /// The sequence number behind which it began where it is now.
    pub base: u64,
    /// The last sequence number that it may use for now.
    pub allowed: Option<u64>,
    /// The number by which policies find it.
    pub reqid: u32,
    /// The mark and the interface of its packets.
    pub binding: Binding,
    /// The device that protects its packets.
    pub offload: Option<Offload>,
    /// Its counters before its last move.
    pub before: FrozenUsage,
    /// Its counters when they were read last.
    pub last: FrozenUsage,
    /// The highest sequence number that the kernel has told of.
    pub seen: u64,
    /// Key management knows that it is near its end.
    pub dying: bool,
    /// The kernel has ended it, at a limit.
    pub expired: bool,
}

/// The use of an SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It receives.
    In,
    /// It sends.
    Out,
    /// It waits to send.
    Standby,
}

/// The counters of an SA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrozenUsage {
    /// Packets.
    pub packets: u64,
    /// Octets of inner packets.
    pub bytes: u64,
    /// The time since the last packet.
    pub unused_for: Option<Duration>,
    /// Packets refused.
    pub refused: u64,
}

impl FrozenUsage {
    fn of(usage: Usage, now: Instant) -> Self {
        let Usage { packets, bytes, last_used, refused } = usage;
        let unused_for = last_used.map(|at| now.saturating_duration_since(at));
        Self { packets, bytes, unused_for, refused }
    }

    fn at(self, then: Instant) -> Usage {
        let Self { packets, bytes, unused_for, refused } = self;
        // On a machine that has just booted, nothing is before the beginning of its clock.
        let last_used = unused_for.map(|ago| then.checked_sub(ago).unwrap_or(then));
        Usage { packets, bytes, last_used, refused }
    }
}

/// A successor that hears the kernel, before its predecessor is frozen: so it misses nothing.
pub struct Listening {
    kernel: Netlink,
    known: Known,
    monitor: Monitor,
    notice: Arc<dyn Fn(Notice) + Send + Sync>,
}

impl Listening {
    /// Begins beside a plane that hears the kernel at `other`, in the network namespace of the calling thread. Needs
    /// CAP_NET_ADMIN.
    ///
    /// # Errors
    /// Where the kernel has no XFRM, or a third plane runs in this namespace.
    pub fn start(other: Place, hooks: Hooks) -> Result<Self, PlaneError> {
        let mut kernel = Netlink::open().map_err(|error| PlaneError::System {
            what: "opening the kernel's XFRM".to_owned(),
            why: error.to_string(),
        })?;
        let (known, notice) = (Known::default(), Arc::clone(&hooks.notice));
        let monitor = Monitor::start(other.other(), hooks, &known, kernel.port())?;
        kernel.hear_of_removals().map_err(|error| PlaneError::System {
            what: "listening to what becomes of SAs".to_owned(),
            why: error.to_string(),
        })?;
        Ok(Self { kernel, known, monitor, notice })
    }
}

impl Xfrm {
    /// Leaves everything in the kernel when this is dropped, until it is [thawed](Self::thaw), and returns the state with
    /// which another process goes on. Key management asks for nothing meanwhile.
    pub fn freeze(&mut self, now: Instant) -> FrozenXfrm {
        self.is_frozen = true;
        let mut order: Vec<SaId> = (self.ledger.rules())
            .flat_map(|ruled| ruled.receiving.iter().map(|(sa, _)| *sa))
            .collect();
        let placed: BTreeSet<SaId> = order.iter().copied().collect();
        let mut others: Vec<_> = (self.ledger.sas())
            .filter(|sa| !placed.contains(&sa.id))
            .map(|sa| (!sa.receives(), sa.turn(), sa.id))
            .collect();
        others.sort_unstable();
        order.extend(others.into_iter().map(|(.., id)| id));
        let sas = order.into_iter().filter_map(|id| self.frozen_sa(id, now));
        let rules = self.ledger.rules().map(|ruled| FrozenRule {
            rule: ruled.rule.clone(),
            reqid: ruled.reqid,
            elsewhere: ruled.elsewhere,
        });
        FrozenXfrm {
            rules: rules.collect(),
            sas: sas.collect(),
            reqid: self.reqid,
            families: self.families,
            hears: self.monitor.as_ref().map(Monitor::place).unwrap_or_default(),
        }
    }

    fn frozen_sa(&self, id: SaId, now: Instant) -> Option<FrozenSa> {
        let sa = self.ledger.sa(id)?;
        let form = &sa.form;
        let (dying, expired) = self.known.limits_of(&form.name());
        Some(FrozenSa {
            id,
            rule: sa.rule,
            way: match (sa.receives(), sa.turn()) {
                (true, _) => Way::In,
                (false, Some(_)) => Way::Out,
                (false, None) => Way::Standby,
            },
            spi: form.spi,
            suite: form.suite,
            key: sa.key.clone(),
            esn: form.esn,
            replay_window: form.replay_window,
            mode: form.mode,
            path: form.path,
            selectors: Arc::clone(&sa.selectors),
            limits: form.limits,
            base: form.base,
            allowed: form.allowed,
            reqid: form.reqid,
            binding: form.binding,
            offload: form.offload,
            before: FrozenUsage::of(sa.before, now),
            last: FrozenUsage::of(sa.last, now),
            seen: sa.seen,
            dying,
            expired,
        })
    }

    /// The plane of another process, which was frozen at `then` by the clock of this process. It is frozen until it is
    /// [thawed](Self::thaw), and nothing was changed in the kernel.
    ///
    /// # Errors
    /// If no plane can have the state.
    pub fn adopt(
        listening: Listening,
        config: Config,
        frozen: FrozenXfrm,
        then: Instant,
    ) -> Result<Self, PlaneError> {
        let Listening { kernel, known, monitor, notice } = listening;
        config.placement.ask_kernel();
        let mut plane = Self::adopt_on(Box::new(kernel), config, known, frozen, then)?;
        (plane.monitor, plane.notice) = (Some(monitor), notice);
        Ok(plane)
    }

    pub(crate) fn adopt_on(
        kernel: Box<dyn Kernel>,
        config: Config,
        known: Known,
        frozen: FrozenXfrm,
        then: Instant,
    ) -> Result<Self, PlaneError> {
        let mut plane = Self::on(Box::new(Unasked), config, known, None);
        plane.is_frozen = true;
        plane.is_adopted = true;
        plane.families = frozen.families;
        for FrozenRule { rule, reqid, elsewhere } in frozen.rules {
            plane.adopt_rule(rule, reqid, elsewhere)?;
        }
        plane.reqid = frozen.reqid;
        for sa in frozen.sas {
            plane.adopt_sa(sa, then)?;
        }
        plane.kernel = kernel;
        Ok(plane)
    }

    fn adopt_rule(&mut self, rule: Rule, reqid: u32, elsewhere: bool) -> Result<(), PlaneError> {
        let id = rule.id;
        if self.ledger.rule(id).is_some() {
            return Err(twice(&format!("rule {}", id.0)));
        }
        // It gets the next one.
        let by_hand = !REQIDS.contains(&reqid);
        self.reqid = if by_hand { *REQIDS.start() } else { reqid } - 1;
        self.put_rule(rule, elsewhere)?;
        if by_hand { self.set_reqid(id, reqid) } else { Ok(()) }
    }

    fn adopt_sa(&mut self, sa: FrozenSa, then: Instant) -> Result<(), PlaneError> {
        let FrozenSa { id, rule, way, spi, key, selectors, last, .. } = &sa;
        let (id, inbound) = (*id, *way == Way::In);
        let leaving = Flow::leaving(selectors)?;
        let in_its_direction: Vec<Flow> = match inbound {
            true => leaving.iter().map(|flow| flow.reversed()).collect(),
            false => leaving.clone(),
        };
        let form = Form {
            inbound,
            spi: *spi,
            suite: sa.suite,
            esn: sa.esn,
            replay_window: sa.replay_window,
            mode: sa.mode,
            path: sa.path,
            flow: single(&in_its_direction),
            limits: sa.limits,
            base: sa.base,
            allowed: sa.allowed,
            reqid: sa.reqid,
            binding: sa.binding,
            offload: sa.offload,
        };
        let name = form.name();
        if self.ledger.sa(id).is_some() || self.known.find(&name).is_some() {
            return Err(twice(&format!("SA {spi}")));
        }
        let template = arrival(&form);
        let flows = if inbound { Vec::new() } else { leaving };
        let installed = Installed {
            before: sa.before.at(then),
            last: last.at(then),
            // Work of the process before.
            told: Amount { operations: last.packets, octets: last.bytes },
            seen: sa.seen,
            ..Installed::new(form, key, selectors, flows)
        };
        self.known.insert_at_limit(name, id, sa.dying, sa.expired);
        let entry = match inbound {
            true => SaEntry::receiving(id, *rule, *spi, installed),
            false => SaEntry::standing_by(id, *rule, *spi, installed),
        };
        self.ledger.enter_sa(entry);
        match way {
            Way::In => self.receive_by(*rule, id, template),
            Way::Standby => Ok(()),
            Way::Out => {
                self.ledger.promote(id)?;
                let is_at_limit = self.ledger.sa(id).is_some_and(|sa| sa.is_at_limit());
                match self.ledger.rule(*rule) {
                    Some(_) if is_at_limit => self.pause(id),
                    Some(_) => self.serve(id),
                    None => Ok(()),
                }
            }
        }
    }

    /// Goes on with everything in the kernel; no other process may do so. A plane of another process puts back what is
    /// missing there, and removes what it does not know.
    ///
    /// # Errors
    /// Where the kernel refuses a part; the rest is in force all the same.
    pub fn thaw(&mut self) -> Result<Resynced, PlaneError> {
        self.is_frozen = false;
        if !std::mem::take(&mut self.is_adopted) {
            return Ok(Resynced::default());
        }
        let names = self.known.names();
        let own = Own::list(&mut *self.kernel)
            .map_err(|e| refusal("listing the kernel's SAs and policies".to_owned(), &e))?;
        for notice in self.known.missed(&names, own.states.iter()) {
            (self.notice)(notice);
        }
        // Policies of no rule here go last: they keep traffic from leaking.
        let resynced = self.resync_all();
        self.remove_unknown(&own);
        resynced
    }

    fn remove_unknown(&mut self, own: &Own) {
        for state in &own.states {
            if self.known.find(&Name::of_info(&state.user_sa_info)).is_some() {
                continue;
            }
            let unknown = XfrmMessage::DeleteSa(name_of(&state.user_sa_info, &state.nlas));
            match self.kernel.order(unknown) {
                Err(error) if !error.is_absent() => {
                    tracing::warn!(%error, "an SA of no tunnel stays in the kernel");
                }
                _ => {}
            }
        }
        self.stale = leftovers::policies_of(own);
        super::KernelPlane::remove_stale_policies(self);
    }
}

fn twice(part: &str) -> PlaneError {
    PlaneError::System { what: format!("going on with {part}"), why: "it is there twice".into() }
}

/// The kernel while a plane makes policies that are there.
struct Unasked;

impl Kernel for Unasked {
    fn order(&mut self, _: XfrmMessage) -> Result<(), Refused> {
        Ok(())
    }

    fn ask(&mut self, _: XfrmMessage) -> Result<XfrmMessage, Refused> {
        Err(Refused { errno: libc::ESRCH, text: "it is not asked yet".to_owned() })
    }

    fn take(&mut self, _: DelGetMessage) -> Result<Option<ModifyMessage>, Refused> {
        Ok(None)
    }

    fn list(&mut self, _: XfrmMessage) -> Result<Vec<XfrmMessage>, Refused> {
        Ok(Vec::new())
    }
}
