//! The policy that a daemon has in force, with an index, so that a question about one tunnel looks at one tunnel.

use policy::xml::Definitions;
use policy::{ChildTunnel, IkeTunnel, Policy};
use std::sync::Arc;

/// The policy in force, where it is defined, and its tunnels by name.
#[derive(Debug, Default)]
pub struct InForce {
    policy: Arc<Policy>,
    definitions: Definitions,
    /// Places of phase 1 tunnels, in the order of their names.
    tunnels: Vec<u32>,
    /// Places of phase 2 tunnels: those of the phase 1 tunnel, and in its list. In the order of their names.
    children: Vec<(u32, u32)>,
}

impl InForce {
    /// The policy, and the elements that define it.
    pub fn new(policy: Arc<Policy>, definitions: Definitions) -> Self {
        let mut tunnels: Vec<u32> = (0..).zip(&policy.tunnels).map(|(at, _)| at).collect();
        let mut children: Vec<(u32, u32)> = (0..)
            .zip(&policy.tunnels)
            .flat_map(|(at, tunnel)| (0..).zip(&tunnel.children).map(move |(child, _)| (at, child)))
            .collect();
        tunnels.sort_unstable_by_key(|at| &*tunnel_at(&policy, *at).name);
        children.sort_unstable_by_key(|at| &*child_at(&policy, *at).name);
        Self { policy, definitions, tunnels, children }
    }

    /// The policy.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The elements that define its tunnels.
    pub fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// The phase 1 tunnel of that name.
    pub fn tunnel(&self, name: &str) -> Option<&Arc<IkeTunnel>> {
        let of = |at: u32| tunnel_at(&self.policy, at);
        let place = self.tunnels.binary_search_by(|at| (*of(*at).name).cmp(name)).ok()?;
        Some(of(self.tunnels[place]))
    }

    /// The phase 2 tunnel of that name.
    pub fn child(&self, name: &str) -> Option<&Arc<ChildTunnel>> {
        let of = |at: (u32, u32)| child_at(&self.policy, at);
        let place = self.children.binary_search_by(|at| (*of(*at).name).cmp(name)).ok()?;
        Some(of(self.children[place]))
    }

    /// Returns `true` if a tunnel of either phase has that name.
    pub fn has(&self, name: &str) -> bool {
        self.tunnel(name).is_some() || self.child(name).is_some()
    }

    /// The names of all tunnels, each phase 1 tunnel before its phase 2 tunnels.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.policy.tunnels.iter().flat_map(|tunnel| {
            let children = tunnel.children.iter().map(|child| &*child.name);
            std::iter::once(&*tunnel.name).chain(children)
        })
    }
}

fn tunnel_at(policy: &Policy, tunnel: u32) -> &Arc<IkeTunnel> {
    &policy.tunnels[tunnel as usize]
}

fn child_at(policy: &Policy, (tunnel, child): (u32, u32)) -> &Arc<ChildTunnel> {
    &policy.tunnels[tunnel as usize].children[child as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::Secret;
    use proptest::prelude::*;

    /// A policy whose tunnels have so many phase 2 tunnels each, with names in no order.
    fn policy(children: &[usize]) -> Arc<Policy> {
        let site = Policy::site_to_site("site")
            .local("192.0.2.1")
            .remote("192.0.2.2")
            .psk(Secret::new(b"secret".to_vec()))
            .protect("10.1.0.0/24", "10.2.0.0/24")
            .build()
            .expect("a good description");
        let mut number = 0_u32;
        let mut name = |kind: &str| {
            number += 1;
            format!("{kind}{}", number.wrapping_mul(2_654_435_761))
        };
        let tunnels = children.iter().map(|count| {
            let mut tunnel = (*site.tunnels[0]).clone();
            let child = (*tunnel.children[0]).clone();
            tunnel.name = name("site");
            tunnel.children = (0..*count)
                .map(|_| Arc::new(ChildTunnel { name: name("net"), ..child.clone() }))
                .collect();
            Arc::new(tunnel)
        });
        Arc::new(Policy { tunnels: tunnels.collect() })
    }

    proptest! {
        /// The index finds what a search finds.
        #[test]
        fn every_tunnel_is_found_by_its_name(children in prop::collection::vec(0..9_usize, 0..9)) {
            let policy = policy(&children);
            let in_force = InForce::new(Arc::clone(&policy), Definitions::default());
            for tunnel in &policy.tunnels {
                let found = in_force.tunnel(&tunnel.name);
                prop_assert!(found.is_some_and(|found| Arc::ptr_eq(found, tunnel)));
                prop_assert!(in_force.child(&tunnel.name).is_none());
                for child in &tunnel.children {
                    let found = in_force.child(&child.name);
                    prop_assert!(found.is_some_and(|found| Arc::ptr_eq(found, child)));
                    prop_assert!(in_force.tunnel(&child.name).is_none() && in_force.has(&child.name));
                }
            }
            prop_assert!(!in_force.has("net") && !in_force.has(""));
            let count = children.len() + children.iter().sum::<usize>();
            prop_assert_eq!(in_force.names().filter(|name| in_force.has(name)).count(), count);
        }
    }
}
