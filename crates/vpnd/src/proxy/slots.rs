//! Places for the connections of one listener in the tunnels, of which no host takes all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Places for connections. A source may have as many as are free beside its own: one alone half of them, the next one a
/// quarter. So there is a place for a source that has none, as long as sources are few.
pub struct Slots {
    total: usize,
    taken: Mutex<HashMap<IpAddr, usize>>,
}

/// A place, until it is dropped.
pub struct Slot {
    slots: Arc<Slots>,
    source: IpAddr,
}

/// A host of IPv6 may have every address of its /64, and is one source with all of them.
fn source(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

impl Slots {
    pub fn new(total: usize) -> Arc<Self> {
        Arc::new(Self { total, taken: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place. `None`: the source has its share, or no place is free.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Option<Slot> {
        let source = source(address);
        let mut taken = self.lock();
        let free = self.total.saturating_sub(taken.values().sum());
        let own = taken.get(&source).copied().unwrap_or(0);
        if own >= free {
            return None;
        }
        taken.insert(source, own + 1);
        Some(Slot { slots: Arc::clone(self), source })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        if let Some(own) = taken.get_mut(&self.source) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes_all(slots: &Arc<Slots>, source: &str) -> Vec<Slot> {
        let source = source.parse().expect("an address");
        std::iter::from_fn(|| slots.take(source)).collect()
    }

    #[test]
    fn no_source_takes_the_places_of_others() {
        let slots = Slots::new(512);
        let first = takes_all(&slots, "10.2.0.7");
        let second = takes_all(&slots, "10.2.0.8");
        assert_eq!((first.len(), second.len()), (256, 128));
        let others: usize = (1..=6)
            .map(|n| {
                let slots = takes_all(&slots, &format!("10.2.1.{n}"));
                let len = slots.len();
                std::mem::forget(slots);
                len
            })
            .sum();
        assert!(others >= 120, "{others}");
        drop(first);
        assert!(takes_all(&slots, "10.2.0.9").len() >= 128, "places that are given back are free");
    }

    #[test]
    fn a_host_with_many_addresses_of_ipv6_is_one_source() {
        let slots = Slots::new(64);
        let all: Vec<_> = (0..100)
            .map_while(|n| slots.take(format!("fd00::{n:x}").parse().expect("one")))
            .collect();
        assert_eq!(all.len(), 32);
        assert_eq!(takes_all(&slots, "fd00:0:0:1::1").len(), 16);
        drop(all);
        assert!(slots.lock().is_empty(), "nothing is kept of a source without connections");
    }
}
