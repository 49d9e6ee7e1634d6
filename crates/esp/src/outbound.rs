//! An SA that sends, and the way of a packet once the SPD has chosen the SA:
//!
//! 1. transport mode: the packet must be one that its own header can be taken off;
//! 2. fill in the checksum the device left open, or split the super-packet into segments; a packet that is too long for
//!    the path is cut into fragments, or refused ([`fit_to_mtu`]);
//! 3. claim sequence numbers for all of it, or refuse it (RFC 4303 §3.3.3);
//! 4. lower the MSS of a SYN;
//! 5. header, IV, then plaintext and trailer sealed straight into the send queue.
//!
//! [`Outbound::protect`] does all of it. [`Outbound::admit`] goes as far as the sequence numbers, whose order is that
//! of the packets, and [`Outbound::seal`] does the rest on any thread.

#![forbid(unsafe_code)]

mod ah;
mod cut;
mod fit_to_mtu;
pub mod frozen;

use crate::discard::Discard;
use crate::encap::{PathLimits, Room, alignment, clamp_mss};
use crate::fragment::Fragments;
use crate::gso::Gso;
use crate::header::Header;
use crate::ip::{IPIP, IPV6};
use crate::plane::{Limits, Notice, OutboundSa, Path, SaId, Spi, TrafficSelectors, Usage};
use crate::prefetch;
use crate::queue::SendQueue;
use crate::segment::complete_checksum;
use crate::sequence::{NoNumber, Sequence};
use crate::trace::SaFacts;
use arc_swap::ArcSwap;
use crypto::{Aad, Amount, Cipher, CipherError, Direction, Iv, Keyed, KeyedSa, Provider, Suite};
use cut::{Cut, Form};
use fit_to_mtu::MtuFit;
use policy::Mode;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const ESP_HEADER: usize = 8;
const MAX_IV: usize = 16;

/// The padding of RFC 4303 §2.4, for the widest alignment, and room for what follows it.
const PADDING: [u8; 17] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 0];

/// The number of sequence numbers that are left when a rekey should start: several minutes at millions of packets per
/// second.
const SEQUENCE_MARGIN: u64 = 1 << 29;

/// An SA that sends, ready for use.
pub(crate) struct Outbound {
    pub(crate) id: SaId,
    pub(crate) spi: Spi,
    pub(crate) suite: Suite,
    shape: Shape,
    esn: bool,
    pub(crate) mode: Mode,
    selectors: Arc<TrafficSelectors>,
    limits: Limits,
    cipher: Keyed,
    path_limits: ArcSwap<PathLimits>,
    /// The sequence numbers. The numbers given are also the count of protected packets.
    sequence: Sequence,
    /// The last sequence number that it may use for now.
    allowed: AtomicU64,
    bytes: AtomicU64,
    /// Numbers without a packet: they were skipped, or their packets had no place any more.
    given_up: AtomicU64,
    refused: AtomicU64,
    /// Nanoseconds since the datapath's epoch; meaningful once a packet was protected.
    last_used: AtomicU64,
    told_soft: AtomicBool,
    told_hard: AtomicBool,
}

impl Outbound {
    pub(crate) fn new(sa: OutboundSa, provider: Provider, room: Room) -> Result<Self, CipherError> {
        Ok(Self {
            id: sa.id,
            spi: sa.spi,
            suite: sa.suite,
            shape: Shape::of(sa.suite),
            esn: sa.esn,
            mode: sa.mode,
            selectors: sa.selectors,
            limits: sa.limits,
            cipher: Keyed::new(sa.suite, sa.key, provider)?,
            path_limits: ArcSwap::from_pointee(PathLimits::new(sa.path, sa.suite, sa.mode, room)),
            sequence: Sequence::after(0),
            allowed: AtomicU64::new(highest(sa.esn)),
            bytes: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            last_used: AtomicU64::new(0),
            told_soft: AtomicBool::new(false),
            told_hard: AtomicBool::new(false),
        })
    }

    /// Has what it refers to be in the cache, as it is itself.
    pub(crate) fn prefetch(&self) {
        prefetch::soon(self.cipher.first());
        prefetch::soon(&**self.path_limits.load());
    }

    pub(crate) fn carries(&self, header: &Header) -> bool {
        header.leaves_by(&self.selectors)
    }

    pub(crate) fn facts(&self, header: &Header) -> SaFacts {
        let path_limits = self.path_limits.load();
        SaFacts {
            id: self.id,
            spi: self.spi,
            suite: self.suite,
            mode: self.mode,
            path: path_limits.path,
            inner_mtu: path_limits.inner_mtu,
            carries: self.carries(header),
        }
    }

    /// The path of its packets.
    pub(crate) fn path(&self) -> Path {
        self.path_limits.load().path
    }

    /// Returns `true` if packets to this address go in transport mode.
    pub(crate) fn transports_to(&self, peer: IpAddr) -> bool {
        self.mode == Mode::Transport && self.path().remote.ip() == peer
    }

    /// Follows a change of what fits.
    pub(crate) fn refit(&self, room: Room) {
        let path = self.path_limits.load().path;
        self.relocate(path, room);
    }

    pub(crate) fn relocate(&self, path: Path, room: Room) {
        self.path_limits.store(Arc::new(PathLimits::new(path, self.suite, self.mode, room)));
    }

    pub(crate) fn usage(&self, epoch: Instant) -> Usage {
        let packets = self.packets();
        let last_used = Duration::from_nanos(self.last_used.load(Relaxed));
        Usage {
            packets,
            bytes: self.bytes.load(Relaxed),
            last_used: (packets > 0).then(|| epoch + last_used),
            refused: self.refused.load(Relaxed),
        }
    }

    /// Packets that were protected, or will be by those who have their numbers.
    fn packets(&self) -> u64 {
        self.sequence.given().saturating_sub(self.given_up.load(Relaxed))
    }

    /// Protects no more packets, but for those that have their numbers: these are in its [`usage`](Self::usage)
    /// already, which does not change any more.
    pub(crate) fn close(&self) {
        self.sequence.close();
    }

    /// Protects a packet or super-packet, and appends what comes of it to `queue`. `now` is since the epoch.
    pub(crate) fn protect(
        &self,
        now: Duration,
        packet: &mut [u8],
        header: &Header,
        gso: Gso,
        queue: &mut SendQueue,
        notify: &dyn Fn(Notice),
    ) -> Result<(), Unsent> {
        self.protect_counted(now, packet, header, gso, queue, notify)
            .inspect_err(|unsent| self.refuse(*unsent))
    }

    /// Counts a packet that was refused. A fragment in transport mode is not counted here: the datapath keeps it for
    /// reassembly.
    fn refuse(&self, unsent: Unsent) {
        if !matches!(
            unsent,
            Unsent::Gone | Unsent::Refused(Discard::TransportFragment | Discard::Frozen)
        ) {
            self.refused.fetch_add(1, Relaxed);
        }
    }

    fn protect_counted(
        &self,
        now: Duration,
        packet: &mut [u8],
        header: &Header,
        gso: Gso,
        queue: &mut SendQueue,
        notify: &dyn Fn(Notice),
    ) -> Result<(), Unsent> {
        let path_limits = self.path_limits.load();
        let cut = self.cut(packet, header, gso, &path_limits, None)?;
        let sequence = self.claim(cut.amount(), notify)?;
        self.seal_cut(now, sequence, cut, &path_limits, queue);
        Ok(())
    }

    /// Claims the sequence numbers that a packet or super-packet needs, or refuses it.
    pub(crate) fn admit(
        &self,
        packet: &mut [u8],
        header: Header,
        gso: Gso,
        notify: &dyn Fn(Notice),
    ) -> Result<NumberedPacket, Unsent> {
        self.cut(packet, &header, gso, &self.path_limits.load(), None)
            .map_err(Unsent::from)
            .and_then(|cut| {
                let (amount, fit_to_mtu) = (cut.amount(), cut.fit_to_mtu);
                Ok((self.claim(amount, notify)?, amount, fit_to_mtu))
            })
            .map(|(sequence, amount, fit_to_mtu)| NumberedPacket {
                header,
                gso,
                sequence,
                amount,
                fit_to_mtu,
            })
            .inspect_err(|unsent| self.refuse(*unsent))
    }

    /// Protects the packet that was admitted. It is refused only if the path has changed since in a way that leaves no
    /// place for it.
    pub(crate) fn seal(
        &self,
        now: Duration,
        numbered: &NumberedPacket,
        packet: &mut [u8],
        queue: &mut SendQueue,
    ) -> Result<(), Discard> {
        let path_limits = self.path_limits.load();
        let cut = self
            .cut(packet, &numbered.header, numbered.gso, &path_limits, Some(numbered.fit_to_mtu))
            .inspect_err(|discard| {
                self.given_up.fetch_add(numbered.amount.operations, Relaxed);
                self.bytes.fetch_sub(numbered.amount.octets, Relaxed);
                self.refuse(Unsent::Refused(*discard));
            })?;
        self.seal_cut(now, numbered.sequence, cut, &path_limits, queue);
        Ok(())
    }

    #[inline(always)]
    fn seal_cut(
        &self,
        now: Duration,
        mut sequence: u64,
        cut: Cut<'_>,
        path_limits: &PathLimits,
        queue: &mut SendQueue,
    ) {
        let count = cut.count();
        let Cut { header, form, fit_to_mtu, may_fragment } = cut;
        let (skip, next_header) = match self.mode {
            Mode::Tunnel => (0, if header.ipv6 { IPV6 } else { IPIP }),
            Mode::Transport => (header.transport, header.protocol),
        };
        let (path, tos) = (&path_limits.path, header.tos);
        let mut outer = OuterFields { path, tos, may_fragment, skip, next_header, alike: false };
        match form {
            Form::Whole(packet, gso) => {
                complete_checksum(packet, header, gso);
                clamp_mss(packet, header, path_limits.inner_mtu);
                queue.reserve(self.sealed_len(fit_to_mtu.longest(packet.len())) * count as usize);
                self.seal_pieces(&mut sequence, packet, header, fit_to_mtu, &outer, queue);
            }
            Form::Segments(mut segments) => {
                queue.reserve(
                    self.sealed_len(fit_to_mtu.longest(segments.longest())) * count as usize,
                );
                while let Some(segment) = segments.next() {
                    self.seal_pieces(&mut sequence, segment, header, fit_to_mtu, &outer, queue);
                    outer.alike = true;
                }
            }
        }
        self.last_used.store(now.as_nanos() as u64, Relaxed);
    }

    /// The first of the sequence numbers for so many packets, which nobody else has. They are counted by it: an SA that
    /// is closed has counted all that will ever be sealed.
    fn claim(&self, amount: Amount, notify: &dyn Fn(Notice)) -> Result<u64, Unsent> {
        let Amount { operations: count, octets } = amount;
        let (last, allowed) = (highest(self.esn), self.allowed.load(Relaxed));
        let volume_left = self.limits.hard_bytes.is_none_or(|hard| self.bytes.load(Relaxed) < hard);
        let first = match self.sequence.claim(count, if volume_left { allowed } else { 0 }) {
            Ok(first) => first,
            Err(NoNumber::Closed) => return Err(Unsent::Gone),
            Err(NoNumber::Frozen) => return Err(Discard::Frozen.into()),
            Err(NoNumber::Exhausted) => {
                // A limit that may be raised ends nothing.
                if !volume_left || allowed == last {
                    self.tell(true, notify);
                }
                return Err(Discard::OutboundExhausted.into());
            }
        };
        let bytes = self.bytes.fetch_add(octets, Relaxed) + octets;
        let soft = self.limits.soft_bytes.is_some_and(|soft| bytes >= soft);
        if soft || first + count > last - SEQUENCE_MARGIN {
            self.tell(false, notify);
        }
        Ok(first)
    }

    fn tell(&self, hard: bool, notify: &dyn Fn(Notice)) {
        let told = if hard { &self.told_hard } else { &self.told_soft };
        if !told.load(Relaxed) && !told.swap(true, Relaxed) {
            notify(Notice::Expiring { sa: self.id, hard });
        }
    }

    /// Seals a packet, or each of its fragments.
    fn seal_pieces(
        &self,
        sequence: &mut u64,
        packet: &mut [u8],
        header: &Header,
        fit_to_mtu: MtuFit,
        outer: &OuterFields<'_>,
        queue: &mut SendQueue,
    ) {
        let MtuFit::Fragments { mtu } = fit_to_mtu else {
            self.seal_one(*sequence, packet, outer, queue);
            *sequence += 1;
            return;
        };
        let mut fragments = Fragments::new(packet, header.transport, mtu);
        while let Some(fragment) = fragments.next() {
            self.seal_one(*sequence, fragment, outer, queue);
            *sequence += 1;
        }
    }

    fn seal_one(
        &self,
        sequence: u64,
        packet: &[u8],
        outer: &OuterFields<'_>,
        queue: &mut SendQueue,
    ) {
        if self.suite.is_ah() {
            return self.seal_ah(sequence, packet, outer, queue);
        }
        let plaintext = &packet[outer.skip..];
        let pad = self.pad_len(plaintext.len());
        let mut trailer = PADDING;
        trailer[pad] = pad as u8;
        trailer[pad + 1] = outer.next_header;

        let len = self.sealed_len(plaintext.len());
        let out = queue.space(len);
        out[..4].copy_from_slice(&self.spi.0.to_be_bytes());
        out[4..8].copy_from_slice(&(sequence as u32).to_be_bytes());
        let mut iv = [0; MAX_IV];
        let iv = &mut iv[..self.shape.iv];
        fill_iv(self.suite, sequence, iv);
        let aad = Aad::Esp { spi: self.spi.0, sequence, esn: self.esn };
        self.cipher.seal(iv, aad, plaintext, &trailer[..pad + 2], &mut out[ESP_HEADER..]);
        match outer.alike {
            true => queue.push_alike(len, outer.path, outer.tos, outer.may_fragment),
            false => queue.push(len, outer.path, outer.tos, outer.may_fragment),
        }
    }

    fn pad_len(&self, plaintext: usize) -> usize {
        // Alignments are powers of two.
        (plaintext + 2).wrapping_neg() & (self.shape.alignment - 1)
    }

    /// Octets of the ESP packet, from the SPI on; of an AH packet the room that making it takes.
    fn sealed_len(&self, plaintext: usize) -> usize {
        if self.suite.is_ah() {
            return self.ah_room(plaintext);
        }
        let sealed = plaintext + 2 + self.pad_len(plaintext);
        ESP_HEADER + self.shape.iv + sealed + self.shape.icv
    }

    /// The last sequence number that was used.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.sequence.used()
    }

    /// Goes on after that sequence number; no packet may have been protected yet.
    pub(crate) fn resume(&self, used: u64) {
        self.sequence.reset(used);
    }

    /// Uses none of the next `count` sequence numbers. Returns `false` if it is closed.
    pub(crate) fn skip(&self, count: u64) -> bool {
        let skipped = self.sequence.skip(count, highest(self.esn));
        self.given_up.fetch_add(skipped.unwrap_or(0), Relaxed);
        skipped.is_some()
    }

    /// Uses no sequence number above `last` until it is allowed more.
    pub(crate) fn allow(&self, last: u64) {
        self.allowed.store(last.min(highest(self.esn)), Relaxed);
    }
}

/// The last sequence number that an SA has.
fn highest(esn: bool) -> u64 {
    if esn { Sequence::HIGHEST } else { u64::from(u32::MAX) }
}

/// The lengths that the suite has, read for every packet.
#[derive(Clone, Copy)]
struct Shape {
    iv: usize,
    icv: usize,
    alignment: usize,
}

impl Shape {
    fn of(suite: Suite) -> Self {
        Self { iv: suite.iv_len(), icv: suite.icv_len(), alignment: alignment(suite) }
    }
}

/// The reason why an SA does not protect a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// It was removed after it had been found: the SA that serves now is to be asked.
    Gone,
    Refused(Discard),
}

impl From<Discard> for Unsent {
    fn from(discard: Discard) -> Self {
        Self::Refused(discard)
    }
}

/// A packet with its sequence numbers, from `sequence` on.
pub(crate) struct NumberedPacket {
    header: Header,
    gso: Gso,
    sequence: u64,
    amount: Amount,
    fit_to_mtu: MtuFit,
}

impl KeyedSa for Outbound {
    fn keyed(&self) -> &Keyed {
        &self.cipher
    }

    fn direction(&self) -> Direction {
        Direction::Encrypt
    }

    fn amount(&self) -> Amount {
        Amount { operations: self.packets(), octets: self.bytes.load(Relaxed) }
    }
}

/// The outer fields that all packets of one super-packet share.
struct OuterFields<'a> {
    path: &'a Path,
    /// DSCP and ECN, copied from the inner packet.
    tos: u8,
    may_fragment: bool,
    /// Octets in front that are not sent: the IP header in transport mode.
    skip: usize,
    next_header: u8,
    /// The previous packet came from the same super-packet.
    alike: bool,
}

/// An AEAD's and GMAC's IV must be unique, and the sequence number is (RFC 4106 §3.1, RFC 4543 §3.1, RFC 7634 §2);
/// CBC's must be unpredictable (RFC 3602 §3).
fn fill_iv(suite: Suite, sequence: u64, iv: &mut [u8]) {
    match suite.iv() {
        Iv::Unique => iv.copy_from_slice(&sequence.to_be_bytes()),
        Iv::Random => crypto::fill_random(iv),
        Iv::None => {}
    }
}
