//! Packets on their way out of the datapath, laid out so that one system call moves many.

#![forbid(unsafe_code)]

use crate::offload::Offload;
use crate::plane::Path;
use std::ops::Range;

/// Most ESP packets of one run: what UDP_SEGMENT takes on every kernel that has it.
pub const RUN_PACKETS: usize = 64;

/// Most octets of one run.
pub const RUN_OCTETS: usize = 65_000;

/// ESP packets of equal length (the last may be shorter) to one path, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where they go.
    pub path: Path,
    /// DSCP and ECN of the outer header (RFC 4301 §5.1.2, RFC 6040 §4.1).
    pub tos: u8,
    /// Octets of each packet but the last.
    pub segment_len: usize,
    /// Where they lie in the queue; [`SendQueue::octets`] gives them.
    pub range: Range<usize>,
}

/// ESP packets to be sent, from the SPI on: one contiguous buffer, and the runs in it.
pub struct SendQueue {
    pub(crate) buffer: Vec<u8>,
    pub(crate) used: usize,
    pub(crate) runs: Vec<Run>,
}

impl SendQueue {
    /// Makes a queue that is full after about so many octets.
    pub fn new(capacity: usize) -> Self {
        Self { buffer: vec![0; capacity], used: 0, runs: Vec::new() }
    }

    /// The runs, in the order they are to be sent.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The packets of a run.
    pub fn octets(&self, run: &Run) -> &[u8] {
        &self.buffer[run.range.clone()]
    }

    /// Whether it is time to send: another super-packet might make the buffer grow.
    pub fn is_full(&self) -> bool {
        self.buffer.len() - self.used < 2 * RUN_OCTETS
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Forgets all packets and keeps the buffer.
    pub fn clear(&mut self) {
        self.used = 0;
        self.runs.clear();
    }
}

/// Which packets of one flow are put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coalesce {
    /// Segments of TCP.
    pub tcp: bool,
    /// Datagrams of UDP.
    pub udp: bool,
}

/// Inner packets for the TUN device, coalesced into super-packets where that is allowed.
pub struct ReceiveQueue {
    pub(crate) coalesce: Coalesce,
    pub(crate) buffer: Vec<u8>,
    pub(crate) used: usize,
    pub(crate) packets: Vec<(Range<usize>, Offload)>,
}

impl ReceiveQueue {
    /// Makes a queue that is full after about so many octets.
    pub fn new(capacity: usize, coalesce: Coalesce) -> Self {
        Self { coalesce, buffer: vec![0; capacity], used: 0, packets: Vec::new() }
    }

    /// Ends the super-packet being built and gives all packets, in the order they are to be written.
    pub fn packets(&mut self) -> impl Iterator<Item = (&[u8], Offload)> {
        self.packets.iter().map(|(range, offload)| (&self.buffer[range.clone()], *offload))
    }

    /// Whether it is time to write: the next datagrams might make the buffer grow.
    pub fn is_full(&self) -> bool {
        self.buffer.len() - self.used < 2 * RUN_OCTETS
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Forgets all packets and keeps the buffer.
    pub fn clear(&mut self) {
        self.used = 0;
        self.packets.clear();
    }
}
