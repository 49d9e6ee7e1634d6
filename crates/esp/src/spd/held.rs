//! The packets of a rule that wait for an SA.

use crate::discard::Discard;
use crate::gso::Gso;
use crate::sync::Mutex;
use std::collections::VecDeque;
use std::ops::DerefMut;
use std::sync::PoisonError;
use std::time::Duration;

/// Packets of one rule that are held, and octets of them.
const HELD_PACKETS: usize = 32;
const HELD_OCTETS: usize = 65_536;

/// The time after which a held packet is dropped.
const HELD_FOR: Duration = Duration::from_secs(10);

/// The packets, in their order.
#[derive(Default)]
pub(crate) struct Held(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    packets: VecDeque<HeldPacket>,
    octets: usize,
}

/// A packet that waits for an SA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldPacket {
    /// The time since which it waits, from the epoch of the datapath on.
    pub since: Duration,
    /// The packet.
    pub octets: Vec<u8>,
    /// The work that is left in it.
    pub gso: Gso,
}

impl HeldPacket {
    pub(crate) fn is_stale(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) > HELD_FOR
    }
}

impl Held {
    /// Keeps a copy of a packet. Those kept too long make room, each counted by `count`.
    pub(crate) fn hold(
        &self,
        now: Duration,
        packet: &[u8],
        gso: Gso,
        count: &dyn Fn(Discard),
    ) -> Result<(), Discard> {
        let mut queue = self.queue();
        while queue.packets.front().is_some_and(|p| p.is_stale(now)) {
            queue.pop();
            count(Discard::HoldExpired);
        }
        if !queue.has_room(packet) {
            return Err(Discard::HoldFull);
        }
        queue.push(HeldPacket { since: now, octets: packet.to_vec(), gso });
        Ok(())
    }

    /// Returns `true` if no packet waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue().packets.is_empty()
    }

    /// The packet kept longest, no longer kept.
    pub(crate) fn release(&self) -> Option<HeldPacket> {
        self.queue().pop()
    }

    /// Copies of the packets, in their order.
    pub(crate) fn packets(&self) -> Vec<HeldPacket> {
        self.queue().packets.iter().cloned().collect()
    }

    /// Keeps packets that another process has kept, as far as there is room.
    pub(crate) fn go_on(&self, packets: Vec<HeldPacket>) {
        let mut queue = self.queue();
        for packet in packets {
            if queue.has_room(&packet.octets) {
                queue.push(packet);
            }
        }
    }

    fn queue(&self) -> impl DerefMut<Target = Queue> + '_ {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn has_room(&self, packet: &[u8]) -> bool {
        self.packets.len() < HELD_PACKETS && self.octets + packet.len() <= HELD_OCTETS
    }

    fn push(&mut self, packet: HeldPacket) {
        self.octets += packet.octets.len();
        self.packets.push_back(packet);
    }

    fn pop(&mut self) -> Option<HeldPacket> {
        let packet = self.packets.pop_front()?;
        self.octets -= packet.octets.len();
        Some(packet)
    }
}
