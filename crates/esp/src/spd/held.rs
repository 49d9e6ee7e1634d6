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
pub(crate) struct HeldPacket {
    since: Duration,
    pub(crate) octets: Vec<u8>,
    pub(crate) gso: Gso,
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
        if queue.packets.len() == HELD_PACKETS || queue.octets + packet.len() > HELD_OCTETS {
            return Err(Discard::HoldFull);
        }
        queue.octets += packet.len();
        queue.packets.push_back(HeldPacket { since: now, octets: packet.to_vec(), gso });
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

    fn queue(&self) -> impl DerefMut<Target = Queue> + '_ {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn pop(&mut self) -> Option<HeldPacket> {
        let packet = self.packets.pop_front()?;
        self.octets -= packet.octets.len();
        Some(packet)
    }
}
