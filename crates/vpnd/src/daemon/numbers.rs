//! Numbers of tunnels as AIX has them, for those who would rather not type names.

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
    by_name: BTreeMap<String, u32>,
}

impl Numbers {
    /// Begins again with 1: the policy has no tunnel any more.
    pub fn restart(&self) {
        *self.phases.lock().unwrap_or_else(PoisonError::into_inner) = Default::default();
    }

    /// Numbers some of the tunnels. `false`: one of them has no number yet, so that all must be numbered first.
    pub fn apply_known(&self, tunnels: &mut [Tunnel]) -> bool {
        let phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        let [first, second] = &*phases;
        tunnels.iter_mut().all(|tunnel| {
            let mut children = tunnel.children.iter_mut();
            first.tell(&tunnel.name, &mut tunnel.number)
                && children.all(|child| second.tell(&child.name, &mut child.number))
        })
    }

    /// Numbers these tunnels, which are all there are.
    pub fn apply(&self, tunnels: &mut [Tunnel]) {
        let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        let [first, second] = &mut *phases;
        first.renew(tunnels.iter_mut().map(|tunnel| (&tunnel.name, &mut tunnel.number)));
        let children = tunnels.iter_mut().flat_map(|tunnel| &mut tunnel.children);
        second.renew(children.map(|child| (&child.name, &mut child.number)));
    }
}

impl Phase {
    fn tell(&self, name: &str, number: &mut u32) -> bool {
        self.by_name.get(name).map(|known| *number = *known).is_some()
    }

    fn renew<'t>(&mut self, tunnels: impl Iterator<Item = (&'t String, &'t mut u32)>) {
        let before = std::mem::take(&mut self.by_name);
        for (name, number) in tunnels {
            *number = before.get(name).copied().unwrap_or_else(|| {
                self.last = self.last.saturating_add(1);
                self.last
            });
            self.by_name.insert(name.clone(), *number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stays_with_its_tunnel_and_is_not_used_again() {
        let mut phase = Phase::default();
        let mut number = |names: &[&str]| {
            let mut numbered: Vec<(String, u32)> =
                names.iter().map(|name| ((*name).to_owned(), 0)).collect();
            phase.renew(numbered.iter_mut().map(|(name, number)| (&*name, number)));
            numbered.into_iter().map(|(_, number)| number).collect::<Vec<_>>()
        };
        assert_eq!(number(&["a", "b", "c"]), [1, 2, 3]);
        assert_eq!(number(&["c", "d", "a"]), [3, 4, 1]);
        assert_eq!(number(&["b", "a"]), [5, 1], "b is another one");
    }
}
