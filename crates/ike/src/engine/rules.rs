//! The rules in the plane, by the phase 2 tunnel that each stands for and the other way round.

use esp::plane::RuleId;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// One rule for each phase 2 tunnel.
#[derive(Default)]
pub(crate) struct Rules {
    by_tunnel: HashMap<Arc<str>, RuleId>,
    by_id: BTreeMap<RuleId, Arc<str>>,
    made: u32,
}

impl Rules {
    /// Makes the rule of a tunnel that has none.
    pub fn add(&mut self, tunnel: &str) -> RuleId {
        let (id, name) = (RuleId(self.made), Arc::from(tunnel));
        self.made += 1;
        self.by_tunnel.insert(Arc::clone(&name), id);
        self.by_id.insert(id, name);
        id
    }

    /// Forgets the rule of a tunnel.
    pub fn remove(&mut self, tunnel: &str) -> Option<RuleId> {
        let id = self.by_tunnel.remove(tunnel)?;
        self.by_id.remove(&id);
        Some(id)
    }

    /// The rule of a tunnel.
    pub fn of(&self, tunnel: &str) -> Option<RuleId> {
        self.by_tunnel.get(tunnel).copied()
    }

    /// The tunnel of a rule.
    pub fn tunnel(&self, id: RuleId) -> Option<&Arc<str>> {
        self.by_id.get(&id)
    }
}
