//! The memory of all connections together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Octets of the smallest buffer that is worth having.
const SMALLEST: usize = 32 << 10;
/// The part of what is left that one buffer may take.
const SHARE: usize = 512;

/// Octets that buffers of connections may still take.
#[derive(Debug)]
pub(crate) struct Budget(Arc<AtomicUsize>);

/// Octets that a connection has, until it is dropped.
#[derive(Debug)]
pub(crate) struct Allotted {
    left: Arc<AtomicUsize>,
    octets: usize,
}

impl Budget {
    pub fn new(octets: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(octets)))
    }

    /// Octets for the buffers of a connection: as many as wanted while there is plenty, fewer when it gets scarce.
    /// `None`: there is no room for one more connection.
    pub fn allot(&self, wanted: [usize; 2]) -> Option<([usize; 2], Allotted)> {
        let sizes = |left: usize| {
            let most = left / SHARE;
            let sizes = wanted.map(|wanted| wanted.min(most).max(SMALLEST.min(wanted)));
            (sizes.iter().sum::<usize>() <= left).then_some(sizes)
        };
        let take = |left: usize| sizes(left).map(|sizes| left - sizes.iter().sum::<usize>());
        let left = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok()?;
        let sizes = sizes(left)?;
        let octets = sizes.iter().sum();
        Some((sizes, Allotted { left: Arc::clone(&self.0), octets }))
    }
}

impl Drop for Allotted {
    fn drop(&mut self) {
        self.left.fetch_add(self.octets, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: usize = 1 << 30;

    #[test]
    fn connections_share_what_there_is_and_give_it_back() {
        let budget = Budget::new(TOTAL);
        let wanted = [1 << 20; 2];
        let mut all = Vec::new();
        while let Some((sizes, allotted)) = budget.allot(wanted) {
            all.push((sizes, allotted));
        }
        assert_eq!(all[0].0, wanted);
        let taken: usize = all.iter().flat_map(|(sizes, _)| sizes).sum();
        assert!(taken <= TOTAL && all.len() > 1000, "{taken} for {}", all.len());
        assert!(all.iter().flat_map(|(sizes, _)| sizes).all(|size| *size >= SMALLEST));
        all.clear();
        assert_eq!(budget.allot(wanted).map(|(sizes, _)| sizes), Some(wanted));
    }
}
