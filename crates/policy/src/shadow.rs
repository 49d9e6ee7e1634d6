//! Phase 2 tunnels that are never used, because an earlier one covers all their traffic.
//!
//! A packet takes the first phase 2 tunnel that covers it (RFC 4301 §4.4.1): phase 1 tunnels in the order of the
//! policy, and the phase 2 tunnels of each in their order. In the kernel, the mark and the XFRM interface of the packet
//! count, too ([`Bindings`]).

use crate::selector::covered;
use crate::{
    AddressRange, Binding, Bindings, ChildTunnel, IkeTunnel, Policy, Selector, TrafficIndex,
};

/// The comparisons that are made at most: a policy of many tunnels between the same addresses is not worth more.
const MOST_COMPARISONS: usize = 10_000_000;

/// A phase 2 tunnel that no packet takes. Both numbers count the phase 2 tunnels of all phase 1 tunnels, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadowed {
    /// The phase 2 tunnel.
    pub child: usize,
    /// An earlier one, which covers all its traffic.
    pub by: usize,
}

/// The packets that a tunnel takes: what decides between tunnels.
#[derive(Clone, Copy, Debug)]
pub struct Traffic<'a> {
    /// This side's selectors.
    pub local: &'a [Selector],
    /// The peer's selectors.
    pub remote: &'a [Selector],
    /// The mark and the interface of the packets.
    pub binding: Binding,
}

impl<'a> Traffic<'a> {
    /// The packets of a phase 2 tunnel.
    pub fn of(child: &'a ChildTunnel, binding: Binding) -> Self {
        Self { local: &child.local, remote: &child.remote, binding }
    }

    /// Returns `true` if it has every packet of another one.
    pub fn covers(&self, part: &Traffic<'_>) -> bool {
        self.binding.includes(part.binding)
            && covered(part.local, self.local)
            && covered(part.remote, self.remote)
    }

    /// Returns `true` if a packet may be of both.
    pub fn meets(&self, other: &Traffic<'_>) -> bool {
        self.binding.meets(other.binding)
            && intersect(self.remote, other.remote)
            && intersect(self.local, other.local)
    }
}

fn intersect(ours: &[Selector], theirs: &[Selector]) -> bool {
    ours.iter().any(|ours| theirs.iter().any(|theirs| ours.intersection(theirs).is_some()))
}

/// The phase 2 tunnels of a policy that are never used, in their order.
pub fn shadowed(policy: &Policy, bindings: &Bindings) -> Vec<Shadowed> {
    let children = policy.tunnels.iter().flat_map(|tunnel| &tunnel.children);
    let children: Vec<(&ChildTunnel, Traffic<'_>)> = children
        .map(|child| (child.as_ref(), Traffic::of(child, bindings.of(&child.name))))
        .collect();
    let mut earlier = TrafficIndex::default();
    let mut found = Vec::new();
    let mut left = MOST_COMPARISONS;
    for (number, (child, traffic)) in children.iter().enumerate() {
        // One that covers all of it covers its first addresses.
        let near = earlier.meeting(first(&child.local), first(&child.remote));
        let Some(rest) = left.checked_sub(near.len()) else { break };
        left = rest;
        let by = near.into_iter().find(|other| children[*other as usize].1.covers(traffic));
        found.extend(by.map(|by| Shadowed { child: number, by: by as usize }));
        // The shadower of a shadowed tunnel covers all of its traffic, so that only others are added, and those that
        // take packets of interfaces which the shadower does not have.
        if by.is_none() || traffic.binding.any_interface {
            let Ok(number) = u32::try_from(number) else { break };
            earlier.insert(number, child);
        }
    }
    found
}

/// The earlier phase 2 tunnel that takes all packets of a phase 2 tunnel, each with the phase 1 tunnel that carries it.
/// As [`shadowed`] finds it, without an index of all tunnels.
pub fn shadower<'p>(
    policy: &'p Policy,
    bindings: &Bindings,
    child: &str,
) -> Option<[Carried<'p>; 2]> {
    let all = || policy.tunnels.iter().flat_map(|t| t.children.iter().map(move |c| (&**t, &**c)));
    let (carrier, child) = all().find(|(_, other)| other.name == child)?;
    let traffic = Traffic::of(child, bindings.of(&child.name));
    let mut earlier = all().take_while(|(_, other)| !std::ptr::eq(*other, child));
    // The addresses first: the binding has to be looked up.
    let by = earlier.find(|(_, other)| {
        covered(traffic.local, &other.local)
            && covered(traffic.remote, &other.remote)
            && bindings.of(&other.name).includes(traffic.binding)
    })?;
    Some([(carrier, child), by])
}

/// A phase 2 tunnel, behind the phase 1 tunnel that carries it.
pub type Carried<'p> = (&'p IkeTunnel, &'p ChildTunnel);

fn first(selectors: &[Selector]) -> impl Iterator<Item = AddressRange> {
    selectors.first().map(|s| AddressRange::from(s.addresses.start())).into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Credential, Endpoint, PortRange, Secret};
    use proptest::prelude::*;
    use std::net::IpAddr;
    use std::sync::Arc;

    fn child(name: usize, local: (u8, u32), remote: (u8, u32), port: Option<u16>) -> ChildTunnel {
        let net = |(n, prefix)| {
            AddressRange::subnet(IpAddr::from([10, n, n, n]), prefix).expect("a subnet")
        };
        let mut child = ChildTunnel::new(format!("child{name}"), net(local), net(remote));
        if let Some(port) = port {
            let ports = PortRange::new(port, port).expect("in order");
            child.remote[0] = Selector { protocol: 6, ports, ..child.remote[0] };
            child.local[0].protocol = 6;
        }
        child
    }

    fn policy(children: Vec<ChildTunnel>) -> Policy {
        let of_ike = children.chunks(3).enumerate().map(|(n, children)| {
            let at = |last| Endpoint::from(IpAddr::from([192, 0, 2, last]));
            let key = Credential::PresharedKey(Secret::new(vec![1; 16]));
            let tunnel = IkeTunnel::new(format!("ike{n}"), at(1), at(n as u8 + 2), key);
            Arc::new(IkeTunnel {
                children: children.iter().cloned().map(Arc::new).collect(),
                ..tunnel
            })
        });
        Policy { tunnels: of_ike.collect() }
    }

    #[test]
    fn an_earlier_tunnel_with_all_the_traffic_shadows_a_later_one() {
        let narrow = || child(0, (1, 24), (2, 24), None);
        let wide = || child(1, (1, 16), (2, 16), None);
        let https = || child(2, (1, 24), (2, 24), Some(443));
        let found = |children| shadowed(&policy(children), &Bindings::default());
        assert_eq!(found(vec![https(), narrow(), wide()]), []);
        let found = found(vec![wide(), child(3, (4, 24), (5, 24), None), narrow(), https()]);
        assert_eq!(found, [Shadowed { child: 2, by: 0 }, Shadowed { child: 3, by: 0 }]);
    }

    #[test]
    fn tunnels_with_other_marks_or_interfaces_have_packets_of_their_own() {
        let all = |name| child(name, (0, 0), (0, 0), None);
        let found = |bindings: [Binding; 3]| {
            let named = (0..).zip(bindings).map(|(n, binding)| (format!("child{n}"), binding));
            shadowed(&policy(vec![all(0), all(1), all(2)]), &named.collect())
        };
        let mark = |value| Binding { mark: Some((value, u32::MAX)), ..Binding::default() };
        let interface = |if_id| Binding { if_id: Some(if_id), ..Binding::default() };
        let none = Binding::default();
        assert_eq!(found([mark(1), mark(2), none]), []);
        assert_eq!(found([interface(1), none, interface(2)]), []);
        // Equal ones are told, also with one between them.
        assert_eq!(found([mark(1), mark(2), mark(1)]), [Shadowed { child: 2, by: 0 }]);
        assert_eq!(found([interface(1), none, none]), [Shadowed { child: 2, by: 1 }]);
        // One that may be in userspace has them all.
        let both = [Shadowed { child: 1, by: 0 }, Shadowed { child: 2, by: 0 }];
        assert_eq!(found([Binding::ANY, interface(1), none]), both);
        let both = [Shadowed { child: 1, by: 0 }, Shadowed { child: 2, by: 1 }];
        assert_eq!(found([interface(1), Binding::ANY, interface(2)]), both);
        // A tunnel without a mark takes packets of any.
        assert_eq!(found([none, mark(1), interface(1)]), [Shadowed { child: 1, by: 0 }]);
    }

    proptest! {
        /// The index finds what a look at all earlier ones finds.
        #[test]
        fn finds_what_a_search_finds(
            children in prop::collection::vec(
                ((0..4_u8, 7..26_u32), (0..4_u8, 7..26_u32), prop::option::of(1..3_u16)), 0..30,
            ),
            marks in prop::collection::vec(prop::option::of(0..2_u32), 30),
        ) {
            let bound = |(n, mark): (usize, Option<u32>)| {
                let mark = mark.map(|value| (value, 1));
                (format!("child{n}"), Binding { mark, ..Binding::default() })
            };
            let bindings: Bindings = marks.into_iter().enumerate().map(bound).collect();
            let traffic = |child| Traffic::of(child, bindings.of(&child.name));
            let covers = |whole, part| traffic(whole).covers(&traffic(part));
            let children: Vec<ChildTunnel> =
                children.into_iter().enumerate().map(|(n, (l, r, p))| child(n, l, r, p)).collect();
            let searched: Vec<usize> = (0..children.len())
                .filter(|n| children[..*n].iter().any(|earlier| covers(earlier, &children[*n])))
                .collect();
            let found = shadowed(&policy(children.clone()), &bindings);
            prop_assert_eq!(found.iter().map(|s| s.child).collect::<Vec<_>>(), searched);
            let policy = policy(children.clone());
            for (number, child) in children.iter().enumerate() {
                let one = found.iter().find(|shadowed| shadowed.child == number);
                let of_one = shadower(&policy, &bindings, &child.name);
                let named = of_one.map(|[(_, child), (_, by)]| [child.name.clone(), by.name.clone()]);
                let expected = one.map(|s| [s.child, s.by].map(|at| children[at].name.clone()));
                prop_assert_eq!(named, expected);
            }
            for Shadowed { child, by } in found {
                prop_assert!(by < child && covers(&children[by], &children[child]));
            }
        }
    }
}
