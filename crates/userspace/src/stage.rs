//! The stages that packets pass, and what each has done.

use esp::datapath::Lookups;
use esp::discard::Discard;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A stage of the way out (the first three) or in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// From the device: (super-)packets; finds the SA and claims sequence numbers.
    Read,
    /// Cuts super-packets and seals each segment.
    Seal,
    /// To the sockets, in order.
    Send,
    /// From the sockets.
    Receive,
    /// Opens packets, and puts the segments of a flow together.
    Open,
    /// To the device, in order.
    Write,
}

impl Stage {
    /// Every stage, in the order packets pass them.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Seal, Self::Send, Self::Receive, Self::Open, Self::Write];

    /// Its stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Seal => "seal",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Open => "open",
            Self::Write => "write",
        }
    }

    /// The stage in which a packet is dropped for that reason. Replays are found in the stage that has the packets in order.
    pub fn of(discard: Discard) -> Self {
        match discard {
            Discard::InboundTruncated | Discard::UnknownSpi => Self::Receive,
            Discard::Replayed | Discard::ReplayTooOld | Discard::InboundExhausted => Self::Write,
            outbound if outbound.explanation().starts_with("Outbound") => Self::Read,
            _ => Self::Open,
        }
    }
}

/// The packets that have passed a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Times that something did: a system call, or what is handed from one stage to the next.
    pub batches: u64,
    /// Packets: super-packets where the device is concerned, ESP packets elsewhere.
    pub packets: u64,
    /// Octets of these.
    pub octets: u64,
    /// Time spent on them.
    pub busy: Duration,
}

impl std::ops::AddAssign for Flow {
    fn add_assign(&mut self, other: Self) {
        self.batches += other.batches;
        self.packets += other.packets;
        self.octets += other.octets;
        self.busy += other.busy;
    }
}

/// The counters of one thread for each stage. Only that thread writes them; any thread may read them.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct StageStats {
    stages: [Counts; Stage::ALL.len()],
    known: AtomicU64,
    searched: AtomicU64,
}

#[derive(Default)]
struct Counts {
    batches: AtomicU64,
    packets: AtomicU64,
    octets: AtomicU64,
    busy: AtomicU64,
}

impl StageStats {
    pub(super) fn count(&self, stage: Stage, packets: usize, octets: usize, busy: Duration) {
        let counts = &self.stages[stage as usize];
        add(&counts.batches, 1);
        add(&counts.packets, packets as u64);
        add(&counts.octets, octets as u64);
        add(&counts.busy, busy.as_nanos() as u64);
    }

    pub(super) fn looked_up(&self, lookups: Lookups) {
        add(&self.known, lookups.known);
        add(&self.searched, lookups.searched);
    }

    pub(super) fn lookups(&self) -> Lookups {
        Lookups { known: self.known.load(Relaxed), searched: self.searched.load(Relaxed) }
    }

    pub(super) fn flow(&self, stage: Stage) -> Flow {
        let counts = &self.stages[stage as usize];
        Flow {
            batches: counts.batches.load(Relaxed),
            packets: counts.packets.load(Relaxed),
            octets: counts.octets.load(Relaxed),
            busy: Duration::from_nanos(counts.busy.load(Relaxed)),
        }
    }
}

/// One thread writes, so that no locked instruction is needed.
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed) + n, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_counted_apart() {
        let stats = StageStats::default();
        stats.count(Stage::Seal, 44, 60_000, Duration::from_micros(9));
        stats.count(Stage::Seal, 1, 100, Duration::from_micros(1));
        let busy = Duration::from_micros(10);
        let flow = Flow { batches: 2, packets: 45, octets: 60_100, busy };
        assert_eq!(stats.flow(Stage::Seal), flow);
        assert_eq!(stats.flow(Stage::Send), Flow::default());
    }

    #[test]
    fn every_reason_ends_somewhere_on_its_way() {
        for discard in Discard::ALL {
            let outbound = discard.explanation().starts_with("Outbound");
            assert_eq!(Stage::of(*discard) <= Stage::Send, outbound, "{discard:?}");
        }
    }
}
