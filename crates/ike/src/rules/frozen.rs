//! The rules of a frozen engine, which its plane keeps.

use super::Rules;
use crate::frozen::values::{traffic, write_traffic};
use crate::policy_index::PolicyIndex;
use ::frozen::{Field, Reader, Unthawable, Writer};
use esp::plane::{RuleId, TrafficSelectors};
use policy::{ChildTunnel, IkeTunnel, Role};
use std::sync::Arc;

const MADE: Field = Field::new(1);
const RULES: Field = Field::new(2);
const FRESH: Field = Field::new(3);

const ID: Field = Field::new(1);
const NAME: Field = Field::new(2);
const TRAFFIC: Field = Field::new(3);
/// The phase 1 tunnel of a rule that a peer has asked for.
const ASKED_FOR_BY: Field = Field::new(4);
const UNPLACED: Field = Field::new(5);

impl Rules {
    pub fn freeze(&self, to: &mut Writer<'_>) {
        // The others are indexes of these.
        let Self { by_tunnel: _, by_id, by_traffic: _, asked_for, unplaced, fresh, made } = self;
        to.number(MADE, *made);
        let owner = |name: &Arc<str>| {
            let owner = asked_for.iter().find(|(_, names)| names.contains(name));
            owner.map_or("", |(owner, _)| owner)
        };
        to.list(RULES, by_id, |to, (id, ruled)| {
            let ChildTunnel { local, remote, .. } = &*ruled.child;
            let traffic = TrafficSelectors { local: local.clone(), remote: remote.clone() };
            to.number(ID, id.0);
            to.text(NAME, &ruled.name);
            to.record(TRAFFIC, |to| write_traffic(to, &traffic));
            to.text(ASKED_FOR_BY, owner(&ruled.name));
            to.flag(UNPLACED, unplaced.contains_key(&ruled.name));
        });
        to.flag(FRESH, *fresh);
    }

    /// Takes the rules of the plane for those of this policy.
    ///
    /// # Errors
    /// If the policy has other rules: it is not the one under which the engine was frozen.
    pub fn thaw(mut from: Reader<'_>, policy: &PolicyIndex) -> Result<Self, Unthawable> {
        let mut rules = Self { made: from.number(MADE)?, ..Self::default() };
        for mut from in from.list(RULES, "a rule")? {
            let id = RuleId(from.number(ID)?);
            let name = from.text(NAME)?;
            let traffic = traffic(from.record(TRAFFIC, "traffic selectors")?)?;
            let owner = from.text(ASKED_FOR_BY)?;
            let unplaced = from.flag(UNPLACED)?;
            let of_policy = policy.child(name).filter(|_| owner.is_empty());
            let found = of_policy.map(|(tunnel, child)| (tunnel, Arc::clone(child)));
            let (tunnel, child) = match found {
                Some(found) => found,
                None => {
                    let tunnel = policy.tunnel(owner);
                    let child = tunnel.and_then(|tunnel| asked_for(tunnel, name, &traffic));
                    tunnel.zip(child).ok_or_else(|| from.invalid(NAME))?
                }
            };
            if (&child.local, &child.remote) != (&traffic.local, &traffic.remote) {
                return Err(from.invalid(TRAFFIC));
            }
            if id.0 >= rules.made || rules.by_id.contains_key(&id) || rules.of(name).is_some() {
                return Err(from.invalid(ID));
            }
            from.end()?;
            rules.add(id, tunnel, &child);
            if !owner.is_empty() {
                let name: Arc<str> = Arc::from(name);
                rules.asked_for.entry(owner.to_owned()).or_default().push(Arc::clone(&name));
                if unplaced {
                    rules.unplaced.insert(name, owner.to_owned());
                }
            }
        }
        rules.fresh = from.flag(FRESH)?;
        from.end()?;
        Ok(rules)
    }
}

/// The phase 2 tunnel that a peer has asked for, as the generic policy of its phase 1 tunnel makes it.
fn asked_for(
    tunnel: &IkeTunnel,
    name: &str,
    traffic: &TrafficSelectors,
) -> Option<Arc<ChildTunnel>> {
    let generic = tunnel.generic.as_ref()?;
    Some(Arc::new(ChildTunnel {
        name: name.to_owned(),
        role: Role::Responder,
        mode: generic.mode,
        local: traffic.local.clone(),
        remote: traffic.remote.clone(),
        proposals: generic.proposals.clone(),
        pfs: generic.pfs.clone(),
        auto_start: false,
        on_demand: false,
    }))
}
