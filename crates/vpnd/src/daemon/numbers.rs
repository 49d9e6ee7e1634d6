//! Numbers of tunnels as AIX has them, for those who would rather not type names.

use crate::in_force::InForce;
use control::protocol::Tunnel;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// A number for each tunnel, apart for phase 1 and phase 2. It is the tunnel's for as long as the daemon knows the
/// tunnel, over all activations and reloads, and nobody else's after that, until the daemon knows no tunnel at all.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    phases: Mutex<[Phase; 2]>,
}

#[derive(Debug, Default)]
struct Phase {
    last: u32,
    by_name: BTreeMap<String, Numbered>,
}

/// A tunnel with a number.
#[derive(Clone, Copy, Debug)]
struct Numbered {
    number: u32,
    /// The policy in force has it; otherwise a peer has asked for it.
    is_of_policy: bool,
}

impl Numbers {
    /// Begins again with 1: the policy has no tunnel any more.
    pub fn restart(&self) {
        *self.phases.lock().unwrap_or_else(PoisonError::into_inner) = Default::default();
    }

    /// Numbers the tunnels of a policy that comes into force, and forgets those that only the former policy had.
    pub fn admit(&self, in_force: &InForce) {
        let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        let [first, second] = &mut *phases;
        let tunnels = &in_force.policy().tunnels;
        first.admit(tunnels.iter().map(|tunnel| &*tunnel.name), |name| {
            in_force.tunnel(name).is_some()
        });
        second.admit(
            tunnels.iter().flat_map(|tunnel| &tunnel.children).map(|child| &*child.name),
            |name| in_force.child(name).is_some(),
        );
    }

    /// Gives tunnels their numbers. `false`: one of them has none yet, so that all must be [numbered](Self::renew) first.
    pub fn apply(&self, tunnels: &mut [Tunnel]) -> bool {
        let phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        let [first, second] = &*phases;
        tunnels.iter_mut().all(|tunnel| {
            let mut children = tunnel.children.iter_mut();
            first.tell(&tunnel.name, &mut tunnel.number)
                && children.all(|child| second.tell(&child.name, &mut child.number))
        })
    }

    /// Numbers the tunnels of both phases with these names, and forgets others that the policy does not have.
    pub fn renew(&self, names: &[Vec<String>; 2]) {
        let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        phases.iter_mut().zip(names).for_each(|(phase, names)| phase.renew(names));
    }
}

impl Phase {
    fn tell(&self, name: &str, number: &mut u32) -> bool {
        self.by_name.get(name).map(|known| *number = known.number).is_some()
    }

    fn admit<'n>(&mut self, names: impl Iterator<Item = &'n str>, is_there: impl Fn(&str) -> bool) {
        self.by_name.retain(|name, known| !known.is_of_policy || is_there(name));
        for name in names {
            match self.by_name.get_mut(name) {
                Some(known) => known.is_of_policy = true,
                None => {
                    let number = self.next();
                    let numbered = Numbered { number, is_of_policy: true };
                    self.by_name.insert(name.to_owned(), numbered);
                }
            }
        }
    }

    fn next(&mut self) -> u32 {
        self.last = self.last.saturating_add(1);
        self.last
    }

    fn renew(&mut self, names: &[String]) {
        let mut before = std::mem::take(&mut self.by_name);
        for name in names {
            if self.by_name.contains_key(name) {
                continue;
            }
            let numbered = before.remove(name);
            let numbered =
                numbered.unwrap_or_else(|| Numbered { number: self.next(), is_of_policy: false });
            self.by_name.insert(name.clone(), numbered);
        }
        // The names may be those of the policy before.
        self.by_name.extend(before.into_iter().filter(|(_, known)| known.is_of_policy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stays_with_its_tunnel_and_is_not_used_again() {
        let mut phase = Phase::default();
        let mut number = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            phase.renew(&names);
            names.iter().map(|name| phase.by_name[name].number).collect::<Vec<_>>()
        };
        assert_eq!(number(&["a", "b", "c"]), [1, 2, 3]);
        assert_eq!(number(&["c", "d", "a"]), [3, 4, 1]);
        assert_eq!(number(&["b", "a"]), [5, 1], "b is another one");
    }

    #[test]
    fn a_reload_numbers_new_tunnels_and_leaves_those_that_a_peer_has_asked_for() {
        let mut phase = Phase::default();
        let admit = |phase: &mut Phase, names: &[&str]| {
            phase.admit(names.iter().copied(), |name| names.contains(&name));
            phase
                .by_name
                .iter()
                .map(|(name, known)| (name.clone(), known.number))
                .collect::<Vec<_>>()
        };
        let numbered = |of: &[(&str, u32)]| {
            of.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect::<Vec<_>>()
        };
        assert_eq!(admit(&mut phase, &["b", "a"]), numbered(&[("a", 2), ("b", 1)]));
        // A list shows one that the policy does not have.
        let listed = ["b", "a", "a:asked"].map(str::to_owned);
        phase.renew(&listed);
        assert_eq!(listed.map(|name| phase.by_name[&name].number), [1, 2, 3]);
        let expected = numbered(&[("a", 2), ("a:asked", 3), ("c", 4)]);
        assert_eq!(admit(&mut phase, &["c", "a"]), expected);
        assert_eq!(admit(&mut phase, &["b"]), numbered(&[("a:asked", 3), ("b", 5)]));
        // A list that was read before the reload; nobody asks for the other any more.
        phase.renew(&["a".to_owned()]);
        assert_eq!(admit(&mut phase, &["b"]), numbered(&[("a", 6), ("b", 5)]));
    }
}
