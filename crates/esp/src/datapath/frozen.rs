//! A datapath as a value, with which another process goes on.
//!
//! ```text
//!  predecessor                                    successor
//!  Datapath::freeze ──► FrozenDatapath ─────────► Datapath::import: frozen, too
//!     │                                              │
//!     └──► Datapath::thaw, if nobody goes on         └──► Datapath::thaw, once nobody else does
//! ```
//!
//! A frozen datapath gives no sequence number and takes no packet, whichever thread asks: it drops packets as
//! [`Discard::Frozen`](crate::discard::Discard::Frozen). So whoever keeps a frozen datapath may give the value away, and
//! thaw it again if the other one has not. Exactly one of the two may be thawed; the crate `host` has the means to decide
//! which (`crates/host/src/handover/baton.rs`).
//!
//! The successor goes on behind the last sequence number that any packet has, also one that was not sent, and refuses
//! every packet that the predecessor has accepted.
//!
//! Not in the value, because the owner has it: the filter, and the MTU of the device. Not in it, because it comes again by
//! itself: the flows that threads remember, and how much of the rate of messages and of changes of path MTUs is used up.
//! Fragments that are being collected for transport mode are lost, as by a network.

#![forbid(unsafe_code)]

pub use super::early::{ExpectedSpi, Kept};
pub use crate::inbound::frozen::FrozenInbound;
pub use crate::outbound::frozen::FrozenOutbound;
pub use crate::path_mtu::FrozenPath;
pub use crate::replay::Received;
pub use crate::spd::{FrozenService, HeldPacket};

use super::{Datapath, Installed, Settings, Shared, lock};
use crate::families::Families;
use crate::outbound::Outbound;
use crate::plane::{DataPlane, PlaneError, Rule, RuleId, SaId};
use crate::spd::Service;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Everything that a datapath knows, at the moment at which it was frozen. Times are since its epoch.
///
/// It has the keys of all SAs, which are wiped when it is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrozenDatapath {
    /// The time of the moment.
    pub age: Duration,
    /// The address families that tunnels may use.
    pub families: Families,
    /// The rules, in order.
    pub rules: Vec<FrozenRule>,
    /// The SAs that receive, by name.
    pub inbound: Vec<FrozenInbound>,
    /// The SAs that send, by name.
    pub outbound: Vec<FrozenOutbound>,
    /// The paths to the peers of all SAs.
    pub paths: Vec<FrozenPath>,
    /// SPIs for which SAs are to come.
    pub expected: Vec<ExpectedSpi>,
    /// Dropped packets by reason.
    pub counters: BTreeMap<String, u64>,
}

/// A rule, and what goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrozenRule {
    /// The rule.
    pub rule: Rule,
    /// The SAs that serve it, in the order in which they are asked. Others of its SAs are in standby.
    pub serving: Vec<SaId>,
    /// Its state beside the SAs.
    pub service: FrozenService,
}

impl Datapath {
    /// Seals and takes no packet any more until it is [thawed](Self::thaw), and returns what another process needs to go
    /// on with all of it. Once it is frozen, another call returns the same, but for its age.
    ///
    /// Packets that threads have in hand are lost, so that these are to end before. Packets without a sequence number that
    /// are kept for an SA are copied.
    pub fn freeze(&self, now: Instant) -> FrozenDatapath {
        let shared = &*self.0;
        let installed = lock(&shared.installed);
        shared.frozen.store(true, Relaxed);
        installed.values().for_each(|sa| match sa {
            Installed::Inbound(sa) => sa.freeze(),
            Installed::Outbound { sa, .. } => sa.freeze(),
        });
        let entries = shared.spd.entries();
        let rules: HashMap<*const Service, RuleId> =
            entries.iter().map(|entry| (Arc::as_ptr(&entry.service), entry.rule.id)).collect();
        let mut frozen = FrozenDatapath {
            age: shared.since_epoch(now),
            families: shared.families.get(),
            rules: entries
                .iter()
                .map(|entry| FrozenRule {
                    rule: entry.rule.clone(),
                    serving: entry.service.sas().iter().map(|sa| sa.id).collect(),
                    service: entry.service.frozen(),
                })
                .collect(),
            paths: shared.frozen_paths(),
            expected: shared.early.expected(),
            counters: (self.counters().into_iter())
                .filter(|(_, packets)| *packets > 0)
                .map(|(name, packets)| (name.to_owned(), packets))
                .collect(),
            ..FrozenDatapath::default()
        };
        for sa in installed.values() {
            match sa {
                Installed::Inbound(sa) => frozen.inbound.push(sa.frozen()),
                Installed::Outbound { sa, service } => {
                    frozen.outbound.push(sa.frozen(rules.get(&Arc::as_ptr(service)).copied()));
                }
            }
        }
        frozen
    }

    /// Makes a datapath that goes on where another one was frozen, at `then` by the clock of this process. It is frozen
    /// until it is [thawed](Self::thaw).
    ///
    /// # Errors
    /// If the value is none that a datapath can have, or a provider of ciphers is missing.
    pub fn import(
        settings: Settings,
        frozen: FrozenDatapath,
        then: Instant,
    ) -> Result<Self, PlaneError> {
        // The clock of a machine that has just booted may begin later; times are then a little too late.
        let datapath = Self::new(settings, then.checked_sub(frozen.age).unwrap_or(then));
        datapath.clone().go_on(frozen)?;
        Ok(datapath)
    }

    fn go_on(&mut self, frozen: FrozenDatapath) -> Result<(), PlaneError> {
        let FrozenDatapath { age: _, families, rules, .. } = frozen;
        let shared = Arc::clone(&self.0);
        shared.frozen.store(true, Relaxed);
        shared.families.set(families);
        shared.counters.go_on(&frozen.counters);
        // Before the SAs come to the paths, so that the system is asked about none.
        shared.go_on_with_paths(frozen.paths)?;

        let mut serving = Vec::new();
        for FrozenRule { rule, serving: sas, service } in rules {
            let (id, is_new) = (rule.id, shared.spd.rule(rule.id).is_none());
            self.add_rule(rule)?;
            let of_rule = shared.spd.service(id).filter(|_| is_new);
            let of_rule = of_rule.ok_or_else(|| unlawful(&format!("rule {}", id.0)))?;
            of_rule.go_on(service);
            serving.push((of_rule, sas));
        }
        for sa in &frozen.outbound {
            let service = match sa.rule {
                Some(rule) => shared.spd.service(rule).ok_or(PlaneError::NoSuchRule(rule))?,
                None => Arc::default(),
            };
            let mut installed = lock(&shared.installed);
            shared.install_outbound(&mut installed, sa.sa(), &service)?.go_on(sa)?;
        }
        for sa in &frozen.inbound {
            self.add_inbound(sa.sa())?;
            match lock(&shared.installed).get(&sa.id) {
                Some(Installed::Inbound(added)) => added.go_on(sa)?,
                _ => return Err(PlaneError::NoSuchSa(sa.id)),
            }
        }
        for (service, sas) in serving {
            for sa in sas.into_iter().rev() {
                service.put_first(shared.outbound_of(&service, sa)?);
            }
        }
        shared.spd.changed();
        for ExpectedSpi { spi, peer, packets } in frozen.expected {
            shared.early.expect(spi, peer);
            for Kept { octets, arrival } in packets {
                shared.early.keep(spi, &octets, &arrival);
            }
        }
        shared.settle_paths();
        Ok(())
    }

    /// Goes on with all SAs. Nobody else may do so: numbers would be used twice, and replays accepted.
    pub fn thaw(&self) {
        let shared = &*self.0;
        let receiving: Vec<_> = {
            let installed = lock(&shared.installed);
            shared.frozen.store(false, Relaxed);
            let thawed = installed.values().filter_map(|sa| match sa {
                Installed::Inbound(sa) => {
                    sa.thaw();
                    Some(Arc::clone(sa))
                }
                Installed::Outbound { sa, .. } => {
                    sa.thaw();
                    None
                }
            });
            thawed.collect()
        };
        // SAs that came meanwhile have left these waiting.
        for sa in receiving.iter().filter(|sa| !sa.suite.is_ah() && !sa.id.is_manual()) {
            shared.open_early(sa);
        }
        for entry in shared.spd.entries() {
            if entry.service.is_served() && entry.service.holds_packets() {
                shared.release(&entry.service);
            }
        }
    }

    /// Returns `true` if it is frozen.
    pub fn is_frozen(&self) -> bool {
        self.0.frozen.load(Relaxed)
    }
}

impl Shared {
    /// An SA that sends for a rule.
    fn outbound_of(&self, service: &Arc<Service>, sa: SaId) -> Result<Arc<Outbound>, PlaneError> {
        match lock(&self.installed).get(&sa) {
            Some(Installed::Outbound { sa, service: of }) if Arc::ptr_eq(of, service) => {
                Ok(Arc::clone(sa))
            }
            _ => Err(PlaneError::NoSuchSa(sa)),
        }
    }
}

fn unlawful(part: &str) -> PlaneError {
    PlaneError::System { what: format!("going on with {part}"), why: "it is there twice".into() }
}
