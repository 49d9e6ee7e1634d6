//! The inbound SAs by SPI, and by their destination where an SPI stands twice (RFC 4301 §4.1).

#![forbid(unsafe_code)]

use crate::inbound::Inbound;
use crate::plane::{Path, Spi};
use crate::prefetch;
use arc_swap::{ArcSwap, Guard};
use std::net::IpAddr;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// So many that with 20,000 SAs a shard is about as long as a line of a cache.
const SHARDS: usize = 4096;

/// Finds an SA without a lock. Readers see snapshots of small shards, so that a change copies a few entries and not
/// the table. Changes are made one at a time, which the caller sees to.
pub(crate) struct Sad(Box<[ArcSwap<Shard>]>);

/// Ordered by SPI.
type Shard = Vec<Entry>;

#[derive(Clone)]
struct Entry {
    spi: Spi,
    /// The entry beside it has the same SPI, for another local address.
    is_shared: bool,
    sa: Arc<Inbound>,
}

/// An SA that was found, which stays for as long as this does.
pub(crate) struct Found {
    shard: Guard<Arc<Shard>>,
    at: usize,
}

impl Deref for Found {
    type Target = Arc<Inbound>;

    fn deref(&self) -> &Arc<Inbound> {
        &self.shard[self.at].sa
    }
}

impl Sad {
    pub(crate) fn new() -> Self {
        let empty = Arc::new(Shard::new());
        Self((0..SHARDS).map(|_| ArcSwap::new(Arc::clone(&empty))).collect())
    }

    /// The SA of a packet that came this way. Only where several SAs have the SPI do its addresses count: an SA whose
    /// local address changes goes on receiving.
    #[inline]
    pub(crate) fn find(&self, spi: Spi, path: &Path) -> Option<Found> {
        let mut found = self.find_any(spi)?;
        if found.shard[found.at].is_shared {
            found.at = choose(&found.shard, spi, path)?;
        }
        Some(found)
    }

    /// An SA with that SPI, whatever its destination.
    #[inline]
    pub(crate) fn find_any(&self, spi: Spi) -> Option<Found> {
        let shard = self.shard(spi).load();
        let at = shard.binary_search_by_key(&spi, |entry| entry.spi).ok()?;
        Some(Found { shard, at })
    }

    /// Returns `true` if an SA with that SPI receives at this address.
    pub(crate) fn has(&self, spi: Spi, local: IpAddr) -> bool {
        let shard = self.shard(spi).load();
        shard[of_spi(&shard, spi)].iter().any(|entry| entry.sa.path().local.ip() == local)
    }

    /// Has all that finding these will read be in the cache, and the SAs themselves.
    pub(crate) fn prefetch(&self, spis: impl Iterator<Item = Spi> + Clone) {
        spis.clone().for_each(|spi| prefetch::soon(&**self.shard(spi).load()));
        spis.clone().for_each(|spi| prefetch::soon(self.shard(spi).load().as_slice()));
        spis.clone().filter_map(|spi| self.find_any(spi)).for_each(|sa| prefetch::soon(&**sa));
        spis.filter_map(|spi| self.find_any(spi)).for_each(|sa| sa.prefetch());
    }

    pub(crate) fn insert(&self, sa: Arc<Inbound>) {
        let spi = sa.spi;
        self.change(spi, |before| {
            // There are thousands of shards, none with room to spare.
            let mut entries = Shard::with_capacity(before.len() + 1);
            entries.extend_from_slice(before);
            entries.insert(of_spi(before, spi).end, Entry { spi, is_shared: false, sa });
            entries
        });
    }

    pub(crate) fn remove(&self, sa: &Arc<Inbound>) {
        self.change(sa.spi, |before| {
            before.iter().filter(|entry| !Arc::ptr_eq(&entry.sa, sa)).cloned().collect()
        });
    }

    fn change(&self, spi: Spi, change: impl FnOnce(&Shard) -> Shard) {
        let shard = self.shard(spi);
        let mut entries = change(&shard.load());
        let same = of_spi(&entries, spi);
        let is_shared = same.len() > 1;
        entries[same].iter_mut().for_each(|entry| entry.is_shared = is_shared);
        shard.store(Arc::new(entries));
    }

    fn shard(&self, spi: Spi) -> &ArcSwap<Shard> {
        &self.0[spi.0 as usize % SHARDS]
    }
}

/// The entries with that SPI.
fn of_spi(shard: &Shard, spi: Spi) -> Range<usize> {
    shard.partition_point(|entry| entry.spi < spi)..shard.partition_point(|entry| entry.spi <= spi)
}

/// Of several SAs with that SPI, the one for the packet's destination. If there is none, it is one that key management
/// has negotiated, whose address may be changing; one that is keyed by hand stays where it is. The source decides where
/// the destination does not.
#[cold]
fn choose(shard: &Shard, spi: Spi, path: &Path) -> Option<usize> {
    let ranked = of_spi(shard, spi).filter_map(|at| {
        let sa = &shard[at].sa;
        let own = sa.path();
        let is_destination = own.local.ip() == path.local.ip();
        let may_move = !sa.id.is_manual();
        let is_source = own.remote.ip() == path.remote.ip();
        let rank = (is_destination, is_source, may_move);
        (is_destination || may_move).then_some((rank, at))
    });
    ranked.max_by_key(|(rank, _)| *rank).map(|(_, at)| at)
}
