//! The inbound SAs by SPI.

#![forbid(unsafe_code)]

use crate::inbound::Inbound;
use crate::plane::Spi;
use crate::prefetch;
use arc_swap::{ArcSwap, Guard};
use std::ops::Deref;
use std::sync::Arc;

/// So many that with 20,000 SAs a shard is about as long as a line of a cache.
const SHARDS: usize = 4096;

/// Finds an SA without a lock. Readers see snapshots of small shards, so that a change copies a few entries and not
/// the table. Changes are made one at a time, which the caller sees to.
pub(crate) struct Sad(Box<[ArcSwap<Shard>]>);

/// Ordered by SPI.
type Shard = Vec<(Spi, Arc<Inbound>)>;

/// An SA that was found, which stays for as long as this does.
pub(crate) struct Found {
    shard: Guard<Arc<Shard>>,
    at: usize,
}

impl Deref for Found {
    type Target = Arc<Inbound>;

    fn deref(&self) -> &Arc<Inbound> {
        &self.shard[self.at].1
    }
}

impl Sad {
    pub(crate) fn new() -> Self {
        let empty = Arc::new(Shard::new());
        Self((0..SHARDS).map(|_| ArcSwap::new(Arc::clone(&empty))).collect())
    }

    pub(crate) fn find(&self, spi: Spi) -> Option<Found> {
        let shard = self.shard(spi).load();
        let at = shard.binary_search_by_key(&spi, |(spi, _)| *spi).ok()?;
        Some(Found { shard, at })
    }

    /// Has all that finding these will read be in the cache, and the SAs themselves.
    pub(crate) fn prefetch(&self, spis: impl Iterator<Item = Spi> + Clone) {
        spis.clone().for_each(|spi| prefetch::soon(&**self.shard(spi).load()));
        spis.clone().for_each(|spi| prefetch::soon(self.shard(spi).load().as_slice()));
        spis.clone().filter_map(|spi| self.find(spi)).for_each(|sa| prefetch::soon(&**sa));
        spis.filter_map(|spi| self.find(spi)).for_each(|sa| sa.prefetch());
    }

    pub(crate) fn insert(&self, sa: Arc<Inbound>) {
        let shard = self.shard(sa.spi);
        let before = shard.load();
        // There are thousands of shards, none with room to spare.
        let mut entries = Shard::with_capacity(before.len() + 1);
        entries.extend_from_slice(&before);
        match entries.binary_search_by_key(&sa.spi, |(spi, _)| *spi) {
            Ok(at) => entries[at].1 = sa,
            Err(at) => entries.insert(at, (sa.spi, sa)),
        }
        shard.store(Arc::new(entries));
    }

    pub(crate) fn remove(&self, spi: Spi) {
        let shard = self.shard(spi);
        let mut entries = Shard::clone(&shard.load());
        entries.retain(|(other, _)| *other != spi);
        shard.store(Arc::new(entries));
    }

    fn shard(&self, spi: Spi) -> &ArcSwap<Shard> {
        &self.0[spi.0 as usize % SHARDS]
    }
}
