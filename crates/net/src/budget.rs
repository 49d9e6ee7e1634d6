//! The memory of all connections together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Octets of the smallest buffer that is worth having.
const SMALLEST: usize = 32 << 10;
/// The n-th connection may take the n-th part of a twelfth of the memory for each of its buffers. So its buffers are
/// half as long as those of the connection in the middle, and all together find room up to several thousands.
const SHARE: usize = 12;

/// Octets that buffers of connections may still take.
#[derive(Debug)]
pub(crate) struct Budget {
    total: usize,
    left: Arc<Mutex<Left>>,
}

#[derive(Debug)]
struct Left {
    octets: usize,
    connections: usize,
}

/// Octets that a connection has, until it is dropped.
#[derive(Debug)]
pub(crate) struct Allotted {
    left: Arc<Mutex<Left>>,
    octets: usize,
}

fn lock(left: &Mutex<Left>) -> MutexGuard<'_, Left> {
    left.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Budget {
    pub fn new(octets: usize) -> Self {
        let left = Left { octets, connections: 0 };
        Self { total: octets, left: Arc::new(Mutex::new(left)) }
    }

    /// Octets for the buffers of a connection: as many as wanted while there are few connections, fewer when there are
    /// many. `None`: there is no room for one more connection.
    pub fn allot(&self, wanted: [usize; 2]) -> Option<([usize; 2], Allotted)> {
        let mut left = lock(&self.left);
        let most = self.total / (SHARE * (left.connections + 1));
        let sizes = wanted.map(|wanted| wanted.min(most).max(SMALLEST.min(wanted)));
        let octets = sizes.iter().sum();
        left.octets = left.octets.checked_sub(octets)?;
        left.connections += 1;
        Some((sizes, Allotted { left: Arc::clone(&self.left), octets }))
    }
}

impl Drop for Allotted {
    fn drop(&mut self) {
        let mut left = lock(&self.left);
        left.octets += self.octets;
        left.connections -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: usize = 1 << 30;
    const WANTED: [usize; 2] = [1 << 20; 2];

    #[test]
    fn connections_share_what_there_is_and_give_it_back() {
        let budget = Budget::new(TOTAL);
        let mut all = Vec::new();
        while let Some((sizes, allotted)) = budget.allot(WANTED) {
            all.push((sizes, allotted));
        }
        assert_eq!(all[0].0, WANTED);
        let taken: usize = all.iter().flat_map(|(sizes, _)| sizes).sum();
        assert!(taken <= TOTAL && all.len() > 5000, "{taken} for {}", all.len());
        assert!(all.iter().flat_map(|(sizes, _)| sizes).all(|size| *size >= SMALLEST));
        all.clear();
        assert_eq!(budget.allot(WANTED).map(|(sizes, _)| sizes), Some(WANTED));
    }

    #[test]
    fn the_last_connection_has_half_as_much_as_the_one_in_the_middle() {
        for number in [10, 100, 1000, 2000, 5000] {
            let budget = Budget::new(TOTAL);
            let all: Vec<_> = (0..number).map_while(|_| budget.allot(WANTED)).collect();
            assert_eq!(all.len(), number);
            let [middle, last] = [number / 2, number - 1].map(|at| all[at].0[1]);
            assert!(last * 21 >= middle * 10, "{last} and {middle} of {number}");
        }
    }

    #[test]
    fn buffers_of_connections_that_come_and_go_stay_within_the_memory() {
        let budget = Budget::new(TOTAL);
        let mut all = std::collections::VecDeque::new();
        for turn in 0..20_000_usize {
            all.extend(budget.allot(WANTED).map(|(_, allotted)| allotted));
            if turn % 3 == 0 {
                all.pop_front();
            }
        }
        let taken: usize = all.iter().map(|allotted| allotted.octets).sum();
        assert!(taken <= TOTAL);
        drop(all);
        assert_eq!(lock(&budget.left).octets, TOTAL);
    }
}
