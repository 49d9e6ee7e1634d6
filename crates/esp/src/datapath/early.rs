//! ESP packets that arrive before their SA.
//!
//! A peer may send on a new Child SA right behind the answer that creates it, and this side has to work on the answer
//! before it has the keys. So packets with an SPI that this side has offered are kept until the SA is there.

#![forbid(unsafe_code)]

use crate::plane::Spi;
use crate::sa::Arrival;
use crate::sync::{AtomicUsize, Mutex, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::DerefMut;
use std::sync::PoisonError;

/// SPIs that are expected at the same time. Packets of others are dropped.
const SPIS: usize = 1024;
/// Packets that are kept for one SPI.
const PACKETS: usize = 32;
/// Octets that are kept for all SPIs.
const OCTETS: usize = 1 << 20;

/// The SPIs for which SAs are to come, and the packets that came before them.
#[derive(Default)]
pub(crate) struct Early {
    /// How many SPIs are expected: while there is none, a packet with an unknown SPI takes no lock.
    count: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    expected: HashMap<Spi, Expected>,
    octets: usize,
}

struct Expected {
    peer: IpAddr,
    packets: Vec<Kept>,
}

/// A packet from its SPI on, and how it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The packet.
    pub octets: Vec<u8>,
    /// The outer fields with which it came.
    pub arrival: Arrival,
}

/// An SPI for which an SA is to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedSpi {
    /// The SPI.
    pub spi: Spi,
    /// The peer who may send with it.
    pub peer: IpAddr,
    /// Packets that came before the SA, in their order.
    pub packets: Vec<Kept>,
}

impl Early {
    /// Begins to keep a peer's packets with this SPI.
    pub fn expect(&self, spi: Spi, peer: IpAddr) {
        let mut state = self.state();
        if state.expected.len() < SPIS {
            state.expected.entry(spi).or_insert(Expected { peer, packets: Vec::new() });
            self.count.store(state.expected.len(), Release);
        }
    }

    /// Keeps a packet. Returns `false` if it is of no SA that is to come, or there is no room for it.
    #[cold]
    pub fn keep(&self, spi: Spi, datagram: &[u8], arrival: &Arrival) -> bool {
        // With a count of 0, the caller then finds the SA in the SAD if it has come.
        if self.count.load(Acquire) == 0 {
            return false;
        }
        let state = &mut *self.state();
        let Some(expected) = state.expected.get_mut(&spi) else { return false };
        if expected.peer != arrival.path.remote.ip()
            || expected.packets.len() == PACKETS
            || state.octets + datagram.len() > OCTETS
        {
            return false;
        }
        state.octets += datagram.len();
        expected.packets.push(Kept { octets: datagram.to_vec(), arrival: *arrival });
        true
    }

    /// Stops keeping packets with this SPI. Returns those that were kept, in their order.
    pub fn take(&self, spi: Spi) -> Vec<Kept> {
        if self.count.load(Relaxed) == 0 {
            return Vec::new();
        }
        let mut state = self.state();
        let Some(Expected { packets, .. }) = state.expected.remove(&spi) else { return Vec::new() };
        state.octets -= packets.iter().map(|kept| kept.octets.len()).sum::<usize>();
        self.count.store(state.expected.len(), Release);
        packets
    }

    /// Copies of all SPIs and packets, in the order of the SPIs.
    pub fn expected(&self) -> Vec<ExpectedSpi> {
        let state = self.state();
        let mut expected: Vec<ExpectedSpi> = (state.expected.iter())
            .map(|(spi, expected)| ExpectedSpi {
                spi: *spi,
                peer: expected.peer,
                packets: expected.packets.clone(),
            })
            .collect();
        expected.sort_by_key(|expected| expected.spi);
        expected
    }

    fn state(&self) -> impl DerefMut<Target = State> + '_ {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
