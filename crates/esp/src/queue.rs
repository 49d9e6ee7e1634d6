//! Packets on their way out of the datapath, laid out so that one system call moves many.

#![forbid(unsafe_code)]

use crate::coalesce::{FEW_HEADERS, Flow, MAX_HEADERS, Next};
use crate::gso::Gso;
use crate::header::Header;
use crate::plane::Path;
use std::ops::Range;

/// Most ESP packets of one run: what UDP_SEGMENT takes on every kernel that has it.
pub const RUN_PACKETS: usize = 64;

/// Most octets of one run.
pub const RUN_OCTETS: usize = 65_000;

/// ESP packets of equal length (the last may be shorter) to one path, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The path of the packets.
    pub path: Path,
    /// DSCP and ECN of the outer header (RFC 4301 §5.1.2, RFC 6040 §4.1).
    pub tos: u8,
    /// Routers may fragment: the Don't Fragment bit of IPv4 is clear (RFC 4301 §8.1).
    pub may_fragment: bool,
    /// Octets of each packet but the last.
    pub segment_len: usize,
    /// The number of packets.
    pub packets: usize,
    /// The position of the packets in the queue; [`SendQueue::octets`] returns them.
    pub range: Range<usize>,
}

/// ESP packets to be sent, from the SPI on: one contiguous buffer, and the runs in it.
pub struct SendQueue {
    buffer: Vec<u8>,
    used: usize,
    runs: Vec<Run>,
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

    /// Returns `true` if it is time to send: another super-packet might make the buffer grow.
    pub fn is_full(&self) -> bool {
        self.used > 0 && self.buffer.len() - self.used < 2 * RUN_OCTETS
    }

    /// Octets of all packets.
    pub fn len(&self) -> usize {
        self.used
    }

    /// The number of packets.
    pub fn packets(&self) -> usize {
        self.runs.iter().map(|run| run.packets).sum()
    }

    /// Returns `true` if there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Forgets all packets and keeps the buffer.
    pub fn clear(&mut self) {
        self.used = 0;
        self.runs.clear();
    }

    /// Makes room, once for a whole super-packet.
    pub(crate) fn reserve(&mut self, octets: usize) {
        if self.buffer.len() < self.used + octets {
            self.buffer.resize((self.used + octets).next_power_of_two(), 0);
        }
    }

    /// The space for the next packet.
    pub(crate) fn space(&mut self, len: usize) -> &mut [u8] {
        &mut self.buffer[self.used..self.used + len]
    }

    /// Takes the packet that was written to [`space`](Self::space) into the last run, or begins another.
    pub(crate) fn push(&mut self, len: usize, path: &Path, tos: u8, may_fragment: bool) {
        let alike = self.runs.last().is_some_and(|run| {
            run.tos == tos && run.may_fragment == may_fragment && run.path == *path
        });
        if !(alike && self.extend(len)) {
            self.begin_run(len, path, tos, may_fragment);
        }
    }

    /// The same for a packet that goes where the one before goes.
    pub(crate) fn push_alike(&mut self, len: usize, path: &Path, tos: u8, may_fragment: bool) {
        if !self.extend(len) {
            self.begin_run(len, path, tos, may_fragment);
        }
    }

    fn begin_run(&mut self, len: usize, path: &Path, tos: u8, may_fragment: bool) {
        let range = self.used..self.used + len;
        self.used = range.end;
        let path = *path;
        self.runs.push(Run { path, tos, may_fragment, segment_len: len, packets: 1, range });
    }

    fn extend(&mut self, len: usize) -> bool {
        let Some(run) = self.runs.last_mut() else { return false };
        let octets = run.range.len();
        // A last packet that was shorter ends its run.
        let fits = octets == run.packets * run.segment_len
            && len <= run.segment_len
            && run.packets < RUN_PACKETS
            && octets + len <= RUN_OCTETS;
        if fits {
            run.packets += 1;
            run.range.end += len;
            self.used += len;
        }
        fits
    }
}

/// The protocols whose packets are joined, if they are of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coalesce {
    /// Segments of TCP.
    pub tcp: bool,
    /// Datagrams of UDP.
    pub udp: bool,
}

/// Inner packets for the TUN device, coalesced into super-packets where that is allowed.
///
/// A packet is opened so that its headers fall on the end of the super-packet before it. If it turns out to continue
/// that one, putting the covered octets back leaves its payload where it belongs, and nothing was copied.
pub struct ReceiveQueue {
    coalesce: Coalesce,
    /// Begins with [`MAX_HEADERS`] octets that no packet has, and ends with as many: of those before and behind any
    /// packet a fixed number can be looked at.
    buffer: Vec<u8>,
    used: usize,
    packets: Vec<(Range<usize>, Gso)>,
    /// The number of packets taken in; joined packets are counted one by one.
    accepted: usize,
    lookups: SaLookups,
    /// The flow to which the last of `packets` belongs, if further packets can be joined to it.
    flow: Option<Flow>,
    /// The octets before `used`, while a packet is being opened over the last `overlap` of them.
    covered: [u8; MAX_HEADERS],
    overlap: usize,
}

/// The number of packets for which an inbound SA was looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaLookups {
    /// There was one.
    pub found: u64,
    /// There was none, or none yet.
    pub unknown: u64,
}

impl SaLookups {
    /// One.
    pub(crate) fn of(found: bool) -> Self {
        Self { found: u64::from(found), unknown: u64::from(!found) }
    }
}

impl std::ops::AddAssign for SaLookups {
    fn add_assign(&mut self, other: Self) {
        self.found += other.found;
        self.unknown += other.unknown;
    }
}

impl ReceiveQueue {
    /// The look-ups of SAs since the last call. They outlast [`Self::clear`].
    pub fn take_lookups(&mut self) -> SaLookups {
        std::mem::take(&mut self.lookups)
    }

    #[inline]
    pub(crate) fn looked_up(&mut self, lookups: SaLookups) {
        self.lookups += lookups;
    }

    /// Makes a queue that is full after about so many octets.
    pub fn new(capacity: usize, coalesce: Coalesce) -> Self {
        Self {
            coalesce,
            buffer: vec![0; capacity.max(2 * MAX_HEADERS)],
            used: MAX_HEADERS,
            packets: Vec::new(),
            accepted: 0,
            lookups: SaLookups::default(),
            flow: None,
            covered: [0; MAX_HEADERS],
            overlap: 0,
        }
    }

    /// Ends the super-packet being built and gives all packets, in the order they are to be written.
    pub fn packets(&mut self) -> impl Iterator<Item = (&[u8], Gso)> {
        self.finish_flow();
        self.packets.iter().map(|(range, gso)| (&self.buffer[range.clone()], *gso))
    }

    /// The number of packets taken in; joined packets are counted one by one.
    pub fn accepted(&self) -> usize {
        self.accepted
    }

    /// Ends the super-packet being built and says how many packets there are.
    pub(crate) fn cut(&mut self) -> usize {
        self.finish_flow();
        self.packets.len()
    }

    /// Some of the packets, which a [`cut`](Self::cut) has counted.
    pub(crate) fn part(&self, range: Range<usize>) -> impl Iterator<Item = (&[u8], Gso)> {
        self.packets[range].iter().map(|(range, gso)| (&self.buffer[range.clone()], *gso))
    }

    /// Returns `true` if it is time to write: the next datagrams might make the buffer grow.
    pub fn is_full(&self) -> bool {
        !self.packets.is_empty() && self.buffer.len() - self.used < 2 * RUN_OCTETS
    }

    /// Returns `true` if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Forgets all packets and keeps the buffer.
    pub fn clear(&mut self) {
        self.used = MAX_HEADERS;
        self.packets.clear();
        self.accepted = 0;
        self.flow = None;
    }

    /// Gives `len` octets to open a packet into. Every call is followed by [`accept`](Self::accept) or
    /// [`abandon`](Self::abandon). A caller that puts a header of its own in front cannot say where the packet's
    /// headers end, and forgoes `overlap`.
    #[inline(always)]
    pub(crate) fn begin(&mut self, len: usize, overlap: bool) -> &mut [u8] {
        let end = self.used + len + MAX_HEADERS;
        if self.buffer.len() < end {
            self.grow(end);
        }
        self.overlap = match &self.flow {
            Some(flow) if overlap => flow.headers_len(),
            _ => 0,
        };
        let before = &self.buffer[self.used - MAX_HEADERS..self.used];
        // Of the two fixed numbers the one that suffices.
        match self.overlap {
            0 => {}
            1..=FEW_HEADERS => copy_end::<FEW_HEADERS>(&mut self.covered, before),
            _ => copy_end::<MAX_HEADERS>(&mut self.covered, before),
        }
        self.opened(len)
    }

    #[cold]
    fn grow(&mut self, len: usize) {
        self.buffer.resize(len.next_power_of_two(), 0);
    }

    /// The first of the octets that [`begin`](Self::begin) gave.
    pub(crate) fn opened(&mut self, len: usize) -> &mut [u8] {
        let at = self.used - self.overlap;
        &mut self.buffer[at..at + len]
    }

    /// Takes back what [`begin`](Self::begin) gave.
    #[inline(always)]
    pub(crate) fn abandon(&mut self) {
        let before = &mut self.buffer[self.used - MAX_HEADERS..self.used];
        match std::mem::take(&mut self.overlap) {
            0 => {}
            1..=FEW_HEADERS => copy_end::<FEW_HEADERS>(before, &self.covered),
            _ => copy_end::<MAX_HEADERS>(before, &self.covered),
        }
    }

    /// The packet of `len` octets that was opened into [`begin`](Self::begin)'s, if it continues the super-packet
    /// before it.
    #[inline(always)]
    pub(crate) fn continuation(&self, len: usize) -> Option<Next> {
        self.flow.as_ref()?.next(&self.buffer[self.used - self.overlap..], len)
    }

    /// Takes in such a packet.
    #[inline(always)]
    pub(crate) fn append(&mut self, len: usize, next: &Next) {
        let flow = self.flow.as_mut().expect("a packet continues a flow");
        flow.append(next);
        let at = self.used - self.overlap;
        let payload = at + flow.headers_len()..at + len;
        let octets = payload.len();
        if payload.start != self.used {
            self.buffer.copy_within(payload, self.used);
        }
        self.abandon();
        self.accepted += 1;
        self.used += octets;
        let (range, _) = self.packets.last_mut().expect("a flow is that of the last packet");
        range.end = self.used;
    }

    /// Takes in the packet that was opened into [`begin`](Self::begin)'s octets; `header` is its.
    pub(crate) fn accept(&mut self, header: &Header) {
        if let Some(next) = self.continuation(header.len) {
            return self.append(header.len, &next);
        }
        self.accepted += 1;
        let at = self.used - self.overlap;
        let packet = at..at + header.len;
        let flow = Flow::begin(&self.buffer[at..], header, self.coalesce);
        if self.overlap > 0 {
            self.buffer.copy_within(packet, self.used);
            self.abandon();
        }
        self.finish_flow();
        let gso = Gso { checksum_verified: flow.is_some(), ..Gso::NONE };
        self.packets.push((self.used..self.used + header.len, gso));
        self.used += header.len;
        self.flow = flow;
    }

    fn finish_flow(&mut self) {
        if let Some(flow) = self.flow.take() {
            let (range, gso) = self.packets.last_mut().expect("a flow is that of the last packet");
            *gso = flow.finish(&mut self.buffer[range.clone()]);
        }
    }
}

/// Copies the last octets of as many as there are headers at most.
#[inline(always)]
fn copy_end<const N: usize>(to: &mut [u8], from: &[u8]) {
    let ends = (to.last_chunk_mut::<N>(), from.last_chunk());
    let (Some(to), Some(from)) = ends else { unreachable!("there are as many") };
    *to = *from;
}
