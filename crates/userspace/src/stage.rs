//! The stages that packets pass, and what each has done.

use esp::datapath::{Lookups, SaLookups};
use esp::discard::Discard;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A stage of the way out (the first five) or in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// From the device: (super-)packets; claims sequence numbers.
    Read,
    /// Puts together the fragments of this host's own packets that are to go in transport mode.
    Defrag,
    /// Finds the SA of a packet by its flow, or else by the rules.
    LookupOut,
    /// Cuts super-packets and seals each segment.
    Seal,
    /// To the sockets, in order.
    Send,
    /// From the sockets.
    Receive,
    /// Finds the SA of a packet by its SPI.
    LookupIn,
    /// Opens packets, and puts the segments of a flow together.
    Open,
    /// To the device, in order.
    Write,
}

impl Stage {
    /// Every stage, in the order packets pass them.
    pub const ALL: [Self; 9] = [
        Self::Read,
        Self::Defrag,
        Self::LookupOut,
        Self::Seal,
        Self::Send,
        Self::Receive,
        Self::LookupIn,
        Self::Open,
        Self::Write,
    ];

    /// Its stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Defrag => "defrag",
            Self::LookupOut => "lookup-out",
            Self::Seal => "seal",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::LookupIn => "lookup-in",
            Self::Open => "open",
            Self::Write => "write",
        }
    }

    /// The stage in which a packet is dropped for that reason. Replays are found in the stage that has the packets in
    /// order.
    pub fn of(discard: Discard) -> Self {
        match discard {
            Discard::TransportFragment => Self::Defrag,
            Discard::FilterDiscard
            | Discard::FilterBypass
            | Discard::NoPolicy
            | Discard::NoSa
            | Discard::HoldFull
            | Discard::HoldExpired => Self::LookupOut,
            Discard::InboundTruncated => Self::Receive,
            Discard::UnknownSpi => Self::LookupIn,
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
    found: AtomicU64,
    unknown: AtomicU64,
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

    /// Counts the look-ups for packets of so many octets. Their time is that of the stages around them.
    pub(super) fn looked_up(&self, lookups: Lookups, octets: usize) {
        let Lookups { known, searched } = lookups;
        if lookups == Lookups::default() {
            return;
        }
        add(&self.known, known);
        add(&self.searched, searched);
        self.count(Stage::LookupOut, (known + searched) as usize, octets, Duration::ZERO);
    }

    /// The same for packets from the network.
    pub(super) fn looked_up_inbound(&self, lookups: SaLookups, octets: usize) {
        let SaLookups { found, unknown } = lookups;
        // Only IKE came.
        if lookups == SaLookups::default() {
            return;
        }
        add(&self.found, found);
        add(&self.unknown, unknown);
        self.count(Stage::LookupIn, (found + unknown) as usize, octets, Duration::ZERO);
    }

    pub(super) fn inbound_lookups(&self) -> SaLookups {
        SaLookups { found: self.found.load(Relaxed), unknown: self.unknown.load(Relaxed) }
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

        stats.looked_up(Lookups { known: 3, searched: 1 }, 400);
        stats.looked_up_inbound(SaLookups { found: 5, unknown: 2 }, 700);
        stats.looked_up_inbound(SaLookups { found: 1, unknown: 0 }, 100);
        let of = |batches, packets, octets| Flow { batches, packets, octets, ..Flow::default() };
        assert_eq!(stats.flow(Stage::LookupOut), of(1, 4, 400));
        assert_eq!(stats.flow(Stage::LookupIn), of(2, 8, 800));
        assert_eq!(stats.lookups(), Lookups { known: 3, searched: 1 });
        assert_eq!(stats.inbound_lookups(), SaLookups { found: 6, unknown: 2 });
        for stage in [Stage::Read, Stage::Defrag, Stage::Receive, Stage::Open, Stage::Write] {
            assert_eq!(stats.flow(stage), Flow::default(), "{stage:?}");
        }
        assert_eq!(Stage::of(Discard::TransportFragment), Stage::Defrag);
        assert_eq!(Stage::of(Discard::NoSa), Stage::LookupOut);
        assert_eq!(Stage::of(Discard::UnknownSpi), Stage::LookupIn);
        let names: Vec<_> = Stage::ALL.iter().map(|stage| stage.name()).collect();
        let known: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(known.len(), names.len(), "each has its own name");
    }

    #[test]
    fn every_reason_ends_somewhere_on_its_way() {
        for discard in Discard::ALL {
            let outbound = discard.explanation().starts_with("Outbound");
            assert_eq!(Stage::of(*discard) <= Stage::Send, outbound, "{discard:?}");
        }
    }
}
