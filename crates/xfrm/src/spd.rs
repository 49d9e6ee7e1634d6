//! The kernel's policies as they should be. Pure: it says what to change, and others tell the kernel.
//!
//! The kernel has one policy for a direction and a flow. Several rules and SAs may want one each; the one that comes
//! first is in force, and the next takes its rank when it goes.

#![forbid(unsafe_code)]

use super::flow::{Flow, family, wire};
use super::offload::Offload;
use super::ownership::PolicyName;
use super::state::{binding_attributes, mode};
use esp::plane::Spi;
use netlink_packet_xfrm::policy::{DelGetMessage, ModifyMessage};
use netlink_packet_xfrm::{
    Address, Id, LifetimeConfig, UserPolicyId, UserPolicyInfo, UserTemplate, XFRM_POLICY_ALLOW,
    XFRM_POLICY_BLOCK, XFRM_POLICY_FWD, XFRM_POLICY_IN, XFRM_POLICY_OUT, XfrmAttrs, XfrmMessage,
};
use policy::{Binding, Mode};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The packets for which the kernel looks up a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PolicyDirection {
    /// For this host.
    In,
    /// That leave.
    Out,
    /// For others, through this host.
    Forward,
}

/// The fields by which the kernel distinguishes policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub direction: PolicyDirection,
    pub flow: Flow,
    pub binding: Binding,
}

/// The order among those that want a policy: the lowest priority first, and then the youngest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub priority: u32,
    pub serial: Reverse<u64>,
}

/// The decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// It passes as it is.
    Bypass,
    /// It is dropped.
    Block,
    /// It must have come, or must leave, by an SA.
    Protect(Template),
    /// It may have come by an SA, or as it is.
    Tolerate(Template),
}

/// The SAs that a policy names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Template {
    /// ESP or AH.
    pub protocol: u8,
    pub mode: Mode,
    pub reqid: u32,
    /// This one alone.
    pub spi: Option<Spi>,
    /// Between these outer addresses, where it matters.
    pub ends: Option<(IpAddr, IpAddr)>,
    /// In whose device the policy is to be kept, too.
    pub offload: Option<Offload>,
}

/// A change that the kernel has to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Put(Key, u32, Action),
    Delete(Key),
}

#[derive(Default)]
pub(super) struct Spd(BTreeMap<Key, BTreeMap<Rank, Action>>);

impl Spd {
    /// Wants a policy, or another one in the same rank.
    pub(super) fn insert(&mut self, key: Key, rank: Rank, action: Action) -> Option<Change> {
        let wanted = self.0.entry(key).or_default();
        let before = wanted.insert(rank, action);
        let first = wanted.first_key_value().is_some_and(|(p, _)| *p == rank);
        (first && before != Some(action)).then_some(Change::Put(key, rank.priority, action))
    }

    /// No longer wants the policy in that rank.
    pub(super) fn remove(&mut self, key: Key, rank: Rank) -> Option<Change> {
        let wanted = self.0.get_mut(&key)?;
        let was_first = wanted.first_key_value().is_some_and(|(p, _)| *p == rank);
        wanted.remove(&rank)?;
        let next = wanted.first_key_value().map(|(p, action)| (p.priority, *action));
        if wanted.is_empty() {
            self.0.remove(&key);
        }
        was_first.then_some(match next {
            Some((priority, action)) => Change::Put(key, priority, action),
            None => Change::Delete(key),
        })
    }

    /// The action wanted with this rank.
    pub(super) fn get(&self, key: &Key, rank: &Rank) -> Option<Action> {
        self.0.get(key)?.get(rank).copied()
    }

    /// Everything that should be in force.
    pub(super) fn in_force(&self) -> impl Iterator<Item = Change> {
        self.0.iter().filter_map(|(key, wanted)| {
            let (rank, action) = wanted.first_key_value()?;
            Some(Change::Put(*key, rank.priority, *action))
        })
    }
}

impl Change {
    pub(super) fn message(&self) -> XfrmMessage {
        match self {
            Self::Put(key, priority, action) => {
                let info = UserPolicyInfo {
                    selector: wire(&key.flow),
                    lifetime_cfg: LifetimeConfig::default(),
                    priority: *priority,
                    direction: key.direction.number(),
                    action: match action {
                        Action::Block => XFRM_POLICY_BLOCK,
                        Action::Bypass | Action::Protect(_) | Action::Tolerate(_) => {
                            XFRM_POLICY_ALLOW
                        }
                    },
                    ..UserPolicyInfo::default()
                };
                let mut nlas = binding_attributes(key.binding);
                if let Action::Protect(template) | Action::Tolerate(template) = action {
                    let optional = u8::from(matches!(action, Action::Tolerate(_)));
                    let wire = UserTemplate { optional, ..template.wire(&key.flow) };
                    nlas.push(XfrmAttrs::Template(vec![wire]));
                    // The policy itself says its direction; the kernel refuses to be told twice.
                    nlas.extend(template.offload.map(|o| o.attribute(false)));
                }
                XfrmMessage::UpdatePolicy(ModifyMessage { user_policy_info: info, nlas })
            }
            Self::Delete(key) => {
                let (selector, direction) = (wire(&key.flow), key.direction.number());
                let user_policy_id = UserPolicyId { selector, index: 0, direction };
                let nlas = binding_attributes(key.binding);
                XfrmMessage::DeletePolicy(DelGetMessage { user_policy_id, nlas })
            }
        }
    }
}

impl Change {
    /// The fields by which the kernel finds the policy.
    pub(super) fn name(&self) -> PolicyName {
        let (Self::Put(key, ..) | Self::Delete(key)) = self;
        PolicyName::new(wire(&key.flow), key.direction.number(), &binding_attributes(key.binding))
    }
}

impl PolicyDirection {
    pub(super) fn number(self) -> u8 {
        match self {
            Self::In => XFRM_POLICY_IN,
            Self::Out => XFRM_POLICY_OUT,
            Self::Forward => XFRM_POLICY_FWD,
        }
    }
}

impl Template {
    fn wire(&self, flow: &Flow) -> UserTemplate {
        let any: IpAddr = match flow.source.address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let (source, destination) = self.ends.unwrap_or((any, any));
        let id = Id {
            daddr: Address::from_ip(&destination),
            spi: self.spi.map_or(0, |spi| spi.0),
            proto: self.protocol,
        };
        UserTemplate {
            id,
            family: family(destination),
            saddr: Address::from_ip(&source),
            reqid: self.reqid,
            mode: mode(self.mode),
            share: 0,
            optional: 0,
            // The SA says which algorithms.
            aalgos: u32::MAX,
            ealgos: u32::MAX,
            calgos: u32::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::flow::{End, Port};
    use super::*;

    fn key() -> Key {
        let address = IpAddr::from([10, 0, 0, 1]);
        let end = End { address, length: 32, port: Port::default() };
        let flow = Flow { source: end, destination: end, protocol: 0 };
        Key { direction: PolicyDirection::Out, flow, binding: Binding::default() }
    }

    fn rank(priority: u32, serial: u64) -> Rank {
        Rank { priority, serial: Reverse(serial) }
    }

    fn by(spi: u32) -> Action {
        Action::Protect(Template {
            protocol: 50,
            mode: Mode::Tunnel,
            reqid: 7,
            spi: Some(Spi(spi)),
            ends: None,
            offload: None,
        })
    }

    #[test]
    fn the_youngest_sa_of_the_first_rule_is_in_force_and_the_next_takes_over() {
        let (mut spd, key) = (Spd::default(), key());
        let put = |priority, action| Some(Change::Put(key, priority, action));
        assert_eq!(spd.insert(key, rank(11, 0), Action::Block), put(11, Action::Block));
        assert_eq!(spd.insert(key, rank(10, 1), by(1)), put(10, by(1)));
        assert_eq!(spd.insert(key, rank(10, 2), by(2)), put(10, by(2)));
        // Of a later rule.
        assert_eq!(spd.insert(key, rank(20, 3), by(3)), None);
        assert_eq!(spd.remove(key, rank(10, 1)), None);
        assert_eq!(spd.remove(key, rank(10, 2)), put(11, Action::Block));
        assert_eq!(spd.remove(key, rank(11, 0)), put(20, by(3)));
        assert_eq!(spd.remove(key, rank(20, 3)), Some(Change::Delete(key)));
        assert_eq!(spd.in_force().count(), 0);
    }

    #[test]
    fn an_unchanged_policy_is_not_written_again() {
        let (mut spd, key) = (Spd::default(), key());
        assert!(spd.insert(key, rank(1, 0), by(1)).is_some());
        assert_eq!(spd.insert(key, rank(1, 0), by(1)), None);
        assert!(spd.insert(key, rank(1, 0), by(2)).is_some());
    }
}
