//! A data plane that protects no packet, but counts what the engine asks of it. A real one would hand rules and keys to
//! hardware, or to a packet processor of its own.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vpn::esp::plane::{
    Capabilities, DataPlane, InboundSa, OutboundSa, Path, PlaneError, Rule, RuleId, SaId, Usage,
};

/// The number of calls of each kind that the plane has had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rules added.
    pub rules: u32,
    /// SAs added that receive.
    pub inbound: u32,
    /// SAs added that send.
    pub outbound: u32,
    /// SAs removed, of either direction.
    pub removed: u32,
}

/// The plane.
#[derive(Debug, Default)]
pub struct Counting {
    counts: Arc<Mutex<Counts>>,
    sas: BTreeSet<SaId>,
}

impl Counting {
    /// The counts, to be read while the engine has the plane.
    pub fn counts(&self) -> Arc<Mutex<Counts>> {
        Arc::clone(&self.counts)
    }

    fn count(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, sa: SaId) -> Result<(), PlaneError> {
        if self.sas.contains(&sa) { Ok(()) } else { Err(PlaneError::NoSuchSa(sa)) }
    }
}

// A plane that has a filter, say, would return itself from `Capabilities::filtering`.
impl Capabilities for Counting {}

impl DataPlane for Counting {
    fn add_rule(&mut self, _rule: Rule) -> Result<(), PlaneError> {
        self.count().rules += 1;
        Ok(())
    }

    fn renumber_rule(&mut self, _rule: RuleId, _to: RuleId) {}

    fn set_trap(&mut self, _rule: RuleId) {}

    fn remove_rule(&mut self, _rule: RuleId) {}

    fn add_inbound(&mut self, sa: InboundSa) -> Result<(), PlaneError> {
        self.sas.insert(sa.id);
        self.count().inbound += 1;
        Ok(())
    }

    fn add_outbound(&mut self, sa: OutboundSa) -> Result<(), PlaneError> {
        self.sas.insert(sa.id);
        self.count().outbound += 1;
        Ok(())
    }

    fn promote(&mut self, sa: SaId) -> Result<(), PlaneError> {
        self.known(sa)
    }

    fn relocate(&mut self, sa: SaId, _path: Path) -> Result<(), PlaneError> {
        self.known(sa)
    }

    fn remove(&mut self, sa: SaId) -> Option<Usage> {
        self.sas.remove(&sa).then(|| {
            self.count().removed += 1;
            Usage::default()
        })
    }

    fn usage(&mut self, sa: SaId) -> Option<Usage> {
        self.sas.contains(&sa).then(Usage::default)
    }
}
