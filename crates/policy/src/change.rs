//! Compares two policies tunnel by tunnel, and says what happens to the SAs that are up.

use crate::{ChildTunnel, IkeTunnel, Policy};
use std::collections::HashMap;
use std::fmt;

/// The difference that a new policy makes to one tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Phase 1 tunnel.
    pub tunnel: String,
    /// Phase 2 tunnel, where it concerns one.
    pub child: Option<String>,
    /// Names of what differs; empty where it is new, gone or the same.
    pub fields: Vec<&'static str>,
    /// The effect on its SA, if that is up.
    pub effect: Effect,
}

/// The effect of a change on the SA of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Nothing has changed.
    Untouched,
    /// It stays; the change counts from its next rekey, or its next start.
    Kept,
    /// It is rekeyed with the new algorithms; where the peer refuses, it stays as it is.
    Rekeyed,
    /// It is deleted and established again.
    Reestablished,
    /// It is new.
    Added,
    /// It is deleted.
    Removed,
}

impl Effect {
    /// Stable name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Untouched => "untouched",
            Self::Kept => "kept",
            Self::Rekeyed => "rekeyed",
            Self::Reestablished => "reestablished",
            Self::Added => "added",
            Self::Removed => "removed",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Untouched => "untouched",
            Self::Kept => "stays as it is until its next rekey or start",
            Self::Rekeyed => "rekeyed if it is up",
            Self::Reestablished => "deleted, and established again if it is up",
            Self::Added => "new",
            Self::Removed => "deleted",
        })
    }
}

impl Policy {
    /// Lists every tunnel of both policies with the effect of replacing this policy by `new`: those of the new one
    /// first, each phase 1 tunnel before its phase 2 tunnels.
    pub fn changes(&self, new: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        let [old_by_name, new_by_name] =
            [self, new].map(|policy| by_name(&policy.tunnels, |t| &t.name));
        for after in &new.tunnels {
            let before = old_by_name.get(&*after.name).copied();
            let (effect, fields) = match before {
                None => (Effect::Added, Vec::new()),
                Some(before) => before.difference(after),
            };
            changes.push(Change { tunnel: after.name.clone(), child: None, fields, effect });
            let children_before = before.map_or(&[][..], |t| t.children.as_slice());
            let children_of = by_name(children_before, |c| &c.name);
            for child in &after.children {
                let was = children_of.get(&*child.name);
                let (own, fields) = match was {
                    None => (Effect::Added, Vec::new()),
                    Some(was) => was.difference(child),
                };
                // Without its IKE SA no Child SA stays.
                let effect = match (effect, own) {
                    (Effect::Reestablished, Effect::Added) => own,
                    (Effect::Reestablished, _) => effect,
                    _ => own,
                };
                let name = Some(child.name.clone());
                changes.push(Change { tunnel: after.name.clone(), child: name, fields, effect });
            }
            let present = by_name(&after.children, |c| &c.name);
            let gone = children_before.iter().filter(|c| !present.contains_key(&*c.name));
            changes.extend(gone.map(|c| removed(after, Some(c))));
        }
        for before in self.tunnels.iter().filter(|t| !new_by_name.contains_key(&*t.name)) {
            changes.push(removed(before, None));
            changes.extend(before.children.iter().map(|c| removed(before, Some(c))));
        }
        changes
    }
}

/// Values by their names; of those with the same name, the first one.
fn by_name<T>(values: &[T], name: impl Fn(&T) -> &String) -> HashMap<&str, &T> {
    let mut found = HashMap::with_capacity(values.len());
    for value in values {
        found.entry(&**name(value)).or_insert(value);
    }
    found
}

fn removed(tunnel: &IkeTunnel, child: Option<&std::sync::Arc<ChildTunnel>>) -> Change {
    Change {
        tunnel: tunnel.name.clone(),
        child: child.map(|c| c.name.clone()),
        fields: Vec::new(),
        effect: Effect::Removed,
    }
}

/// The gravest effect of those fields that differ, and their names.
fn gravest(fields: &[(&'static str, bool, Effect)]) -> (Effect, Vec<&'static str>) {
    let differ = fields.iter().filter(|(_, differs, _)| *differs);
    let effect = differ.clone().map(|(.., effect)| *effect).max().unwrap_or(Effect::Untouched);
    (effect, differ.map(|(name, ..)| *name).collect())
}

impl IkeTunnel {
    /// The effect on its IKE SA when this tunnel becomes `after`, and the fields that differ. Phase 2 tunnels are left
    /// out.
    pub fn difference(&self, after: &Self) -> (Effect, Vec<&'static str>) {
        // Every field is named, so that a new one cannot be forgotten here.
        let Self {
            name: _,
            role,
            local,
            remote,
            credential,
            ppk,
            resumption,
            proposals,
            lifetime,
            auto_start,
            children: _,
            generic,
        } = self;
        let newly_required = after.ppk.as_ref().is_some_and(|ppk| ppk.required)
            && ppk.as_ref().is_none_or(|ppk| !ppk.required);
        gravest(&[
            ("role", *role != after.role, Effect::Reestablished),
            ("local identity", *local != after.local, Effect::Reestablished),
            ("remote identity", *remote != after.remote, Effect::Reestablished),
            ("credential", *credential != after.credential, Effect::Reestablished),
            ("required PPK", newly_required, Effect::Reestablished),
            ("PPK", !newly_required && *ppk != after.ppk, Effect::Kept),
            ("resumption", *resumption != after.resumption, Effect::Kept),
            ("generic policy", *generic != after.generic, Effect::Reestablished),
            ("algorithms", *proposals != after.proposals, Effect::Rekeyed),
            ("lifetime", *lifetime != after.lifetime, Effect::Kept),
            ("AutoStart", *auto_start != after.auto_start, Effect::Kept),
        ])
    }
}

impl ChildTunnel {
    /// The effect on its Child SA when this tunnel becomes `after`, and the fields that differ.
    pub fn difference(&self, after: &Self) -> (Effect, Vec<&'static str>) {
        let Self { name: _, role, mode, local, remote, proposals, pfs, auto_start, on_demand } =
            self;
        let [algorithms, later_algorithms] = [proposals, &after.proposals]
            .map(|proposals| proposals.iter().map(|proposal| (proposal.protection, proposal.esn)));
        let other_algorithms = !algorithms.eq(later_algorithms);
        gravest(&[
            ("mode", *mode != after.mode, Effect::Reestablished),
            ("local traffic", *local != after.local, Effect::Reestablished),
            ("remote traffic", *remote != after.remote, Effect::Reestablished),
            ("OnDemand", *on_demand != after.on_demand, Effect::Reestablished),
            ("role", *role != after.role, Effect::Reestablished),
            ("algorithms", other_algorithms, Effect::Rekeyed),
            ("lifetime", !other_algorithms && *proposals != after.proposals, Effect::Kept),
            ("PFS", *pfs != after.pfs, Effect::Kept),
            ("AutoStart", *auto_start != after.auto_start, Effect::Kept),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    const SAMPLE: &str = include_str!("../../../tests/policies/site/left.xml");

    fn read(text: &str) -> Policy {
        crate::xml::read("left.xml", text).expect("a valid policy").policy
    }

    /// The changes after replacing some text of the sample: tunnel or child, fields, effect.
    fn changed(from: &str, to: &str) -> Vec<(String, Vec<&'static str>, Effect)> {
        assert!(SAMPLE.contains(from), "no {from:?}");
        let changes = read(SAMPLE).changes(&read(&SAMPLE.replace(from, to)));
        let touched = changes.into_iter().filter(|c| c.effect != Effect::Untouched);
        touched.map(|c| (c.child.unwrap_or(c.tunnel), c.fields, c.effect)).collect()
    }

    #[test]
    fn each_field_has_its_effect() {
        let site = |field, effect| vec![("site".to_owned(), vec![field], effect)];
        let lan = |field, effect| vec![("site_lan".to_owned(), vec![field], effect)];
        assert_eq!(changed("AES-CBC-256", "AES-CBC-256"), []);
        assert_eq!(changed("AES-CBC-256", "AES-CBC-128"), site("algorithms", Effect::Rekeyed));
        assert_eq!(
            changed("IKE_KeyRefreshMinutes=\"480\"", "IKE_KeyRefreshMinutes=\"240\""),
            site("lifetime", Effect::Kept)
        );
        assert_eq!(changed("AES256_GCM", "AES128_GCM"), lan("algorithms", Effect::Rekeyed));
        assert_eq!(
            changed("ESP_KeyRefreshMinutes=\"60\"", "ESP_KeyRefreshMinutes=\"30\""),
            lan("lifetime", Effect::Kept)
        );
        assert_eq!(
            changed("InitiatorDHGroup=\"19\"", "InitiatorDHGroup=\"20\""),
            lan("PFS", Effect::Kept)
        );
        assert_eq!(
            changed("10.2.0.255", "10.2.0.127"),
            lan("remote traffic", Effect::Reestablished)
        );
    }

    #[test]
    fn another_key_takes_the_children_along() {
        let changes = changed("replace-this-key", "another-key");
        let effects: Vec<_> =
            changes.iter().map(|(name, f, e)| (name.as_str(), f.len(), *e)).collect();
        assert_eq!(
            effects,
            [("site", 1, Effect::Reestablished), ("site_lan", 0, Effect::Reestablished)]
        );
    }

    /// As [`Policy::changes`], by searches.
    fn searched(old: &Policy, new: &Policy) -> Vec<(String, Option<String>, Effect)> {
        let mut found = Vec::new();
        for after in &new.tunnels {
            let before = old.tunnel(&after.name);
            let effect = before.map_or(Effect::Added, |before| before.difference(after).0);
            found.push((after.name.clone(), None, effect));
            for child in &after.children {
                let was = before.and_then(|t| t.children.iter().find(|c| c.name == child.name));
                let own = was.map_or(Effect::Added, |was| was.difference(child).0);
                let effect = match (effect, own) {
                    (Effect::Reestablished, own) if own != Effect::Added => effect,
                    _ => own,
                };
                found.push((after.name.clone(), Some(child.name.clone()), effect));
            }
            for child in before.into_iter().flat_map(|t| &t.children) {
                if after.children.iter().all(|a| a.name != child.name) {
                    found.push((after.name.clone(), Some(child.name.clone()), Effect::Removed));
                }
            }
        }
        for before in old.tunnels.iter().filter(|t| new.tunnel(&t.name).is_none()) {
            found.push((before.name.clone(), None, Effect::Removed));
            let children = before.children.iter();
            found.extend(
                children
                    .map(|child| (before.name.clone(), Some(child.name.clone()), Effect::Removed)),
            );
        }
        found
    }

    /// Tunnels of these numbers, with phase 2 tunnels of these, some of them with another lifetime.
    fn numbered(tunnels: &BTreeMap<u8, BTreeMap<u8, bool>>) -> Policy {
        let sample = read(SAMPLE);
        let tunnels = tunnels.iter().map(|(number, children)| {
            let mut tunnel = (*sample.tunnels[0]).clone();
            let child = (*tunnel.children[0]).clone();
            tunnel.name = format!("site{number}");
            let named = children.iter().map(|(number, on_demand)| {
                let (name, on_demand) = (format!("net{number}"), *on_demand);
                Arc::new(ChildTunnel { name, on_demand, ..child.clone() })
            });
            tunnel.children = named.collect();
            Arc::new(tunnel)
        });
        Policy { tunnels: tunnels.collect() }
    }

    proptest! {
        /// The maps find what searches find.
        #[test]
        fn changes_are_those_that_a_search_finds(
            policies in prop::array::uniform2(prop::collection::btree_map(
                0..6_u8, prop::collection::btree_map(0..6_u8, any::<bool>(), 0..6), 0..6,
            )),
        ) {
            let [old, new] = policies.each_ref().map(numbered);
            let changes = old.changes(&new);
            let found: Vec<_> =
                changes.into_iter().map(|c| (c.tunnel, c.child, c.effect)).collect();
            prop_assert_eq!(found, searched(&old, &new));
        }
    }

    #[test]
    fn added_and_removed_tunnels_are_named() {
        let effects = |changes: Vec<Change>| changes.iter().map(|c| c.effect).collect::<Vec<_>>();
        assert_eq!(effects(Policy::default().changes(&read(SAMPLE))), [Effect::Added; 2]);
        assert_eq!(effects(read(SAMPLE).changes(&Policy::default())), [Effect::Removed; 2]);
    }
}
