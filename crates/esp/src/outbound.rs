//! The way out, once the SPD has chosen the SA:
//!
//! 1. transport mode: the packet must be one that its own header can be taken off;
//! 2. fill in the checksum the device left open, or split the super-packet into segments; what is too long for the path
//!    is cut into fragments, or refused ([`fit_to_mtu`]);
//! 3. claim sequence numbers for all of it, or refuse it (RFC 4303 §3.3.3);
//! 4. lower the MSS of a SYN;
//! 5. header, IV, then plaintext and trailer sealed straight into the send queue.
//!
//! [`Outbound::protect`] does all of it. [`Outbound::admit`] goes as far as the sequence numbers, whose order is that of
//! the packets, and [`Outbound::seal`] does the rest on any thread.

#![forbid(unsafe_code)]

mod ah;
mod fit_to_mtu;

use crate::discard::Discard;
use crate::encap::{Placement, Room, alignment, clamp_mss};
use crate::fragment::Fragments;
use crate::gso::{Gso, Segmentation};
use crate::header::{Fragment, Header};
use crate::ip::{IPIP, IPV6};
use crate::plane::{Limits, Notice, OutboundSa, Path, SaId, Spi, TrafficSelectors, Usage};
use crate::prefetch;
use crate::queue::SendQueue;
use crate::segment::{Segments, complete_checksum, has_checksum};
use crate::sequence::{NoNumber, Sequence};
use crate::trace::SaFacts;
use arc_swap::ArcSwap;
use crypto::{Aad, Amount, Cipher, CipherError, Direction, Keyed, KeyedSa, Provider, Suite};
use fit_to_mtu::{MtuFit, tells_dont_fragment};
use policy::Mode;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const ESP_HEADER: usize = 8;
const MAX_IV: usize = 16;

/// The padding of RFC 4303 §2.4, for the widest alignment, and room for what follows it.
const PADDING: [u8; 17] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 0];

/// How many sequence numbers are left when a rekey should start: several minutes at millions of packets per second.
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
    placement: ArcSwap<Placement>,
    /// How many numbers it has given is how many packets were protected.
    sequence: Sequence,
    bytes: AtomicU64,
    /// Packets that had numbers and no place any more.
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
            placement: ArcSwap::from_pointee(Placement::new(sa.path, sa.suite, sa.mode, room)),
            sequence: Sequence::after(0),
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
        prefetch::soon(&**self.placement.load());
    }

    pub(crate) fn carries(&self, header: &Header) -> bool {
        header.leaves_by(&self.selectors)
    }

    pub(crate) fn facts(&self, header: &Header) -> SaFacts {
        let placement = self.placement.load();
        SaFacts {
            id: self.id,
            spi: self.spi,
            suite: self.suite,
            mode: self.mode,
            path: placement.path,
            inner_mtu: placement.inner_mtu,
            carries: self.carries(header),
        }
    }

    /// Where it goes.
    pub(crate) fn path(&self) -> Path {
        self.placement.load().path
    }

    /// Whether packets to this address go in transport mode.
    pub(crate) fn transports_to(&self, peer: IpAddr) -> bool {
        self.mode == Mode::Transport && self.path().remote.ip() == peer
    }

    /// Follows a change of what fits.
    pub(crate) fn refit(&self, room: Room) {
        let path = self.placement.load().path;
        self.relocate(path, room);
    }

    pub(crate) fn relocate(&self, path: Path, room: Room) {
        self.placement.store(Arc::new(Placement::new(path, self.suite, self.mode, room)));
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

    /// Protects no more packets, but for those that have their numbers: these are in its [`usage`](Self::usage) already,
    /// which does not change any more.
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

    /// Counts a packet that was refused. What becomes of a fragment in transport mode is decided elsewhere.
    fn refuse(&self, unsent: Unsent) {
        if !matches!(unsent, Unsent::Gone | Unsent::Refused(Discard::TransportFragment)) {
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
        let placement = self.placement.load();
        let cut = self.cut(packet, header, gso, &placement, None)?;
        let sequence = self.claim(cut.amount(), notify)?;
        self.seal_cut(now, sequence, cut, &placement, queue);
        Ok(())
    }

    /// Claims the sequence numbers that a packet or super-packet needs, or refuses it.
    pub(crate) fn admit(
        &self,
        packet: &mut [u8],
        header: Header,
        gso: Gso,
        notify: &dyn Fn(Notice),
    ) -> Result<Claim, Unsent> {
        self.cut(packet, &header, gso, &self.placement.load(), None)
            .map_err(Unsent::from)
            .and_then(|cut| {
                let (amount, fit_to_mtu) = (cut.amount(), cut.fit_to_mtu);
                Ok((self.claim(amount, notify)?, amount, fit_to_mtu))
            })
            .map(|(sequence, amount, fit_to_mtu)| Claim {
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
        claim: &Claim,
        packet: &mut [u8],
        queue: &mut SendQueue,
    ) -> Result<(), Discard> {
        let placement = self.placement.load();
        let cut = self
            .cut(packet, &claim.header, claim.gso, &placement, Some(claim.fit_to_mtu))
            .inspect_err(|discard| {
                self.given_up.fetch_add(claim.amount.operations, Relaxed);
                self.bytes.fetch_sub(claim.amount.octets, Relaxed);
                self.refuse(Unsent::Refused(*discard));
            })?;
        self.seal_cut(now, claim.sequence, cut, &placement, queue);
        Ok(())
    }

    /// What becomes of a packet, if it can be protected at all. `admitted` is what was found when its sequence numbers
    /// were claimed: there must not be more packets than numbers, whatever the path has come to carry since.
    // Inlined: what it gives is large, and would be moved in memory for every packet.
    #[inline(always)]
    fn cut<'p>(
        &self,
        packet: &'p mut [u8],
        header: &'p Header,
        gso: Gso,
        placement: &Placement,
        admitted: Option<MtuFit>,
    ) -> Result<Cut<'p>, Discard> {
        if self.mode == Mode::Transport {
            self.may_be_transported(header, &packet[..header.transport], &placement.path)?;
        }
        let may_fragment = !tells_dont_fragment(placement, self.mode, header, packet);
        let (form, longest) = if gso.segmentation == Segmentation::None {
            let packet = &mut packet[..header.len];
            if !has_checksum(packet, header, gso) {
                return Err(Discard::OutboundMalformed);
            }
            let len = packet.len();
            (Form::Whole(packet, gso), len)
        } else {
            let segments = Segments::new(packet, header, gso).ok_or(Discard::OutboundMalformed)?;
            let longest = segments.longest();
            (Form::Segments(segments), longest)
        };
        let fit_to_mtu = match admitted {
            Some(fit_to_mtu) => fit_to_mtu,
            None if longest > placement.unasked => {
                self.fit_to_mtu(placement, header, form.first_octets(), longest)?
            }
            None => MtuFit::Fits,
        };
        let may_fragment = may_fragment || fit_to_mtu == MtuFit::Outside;
        Ok(Cut { header, form, fit_to_mtu, may_fragment })
    }

    #[inline(always)]
    fn seal_cut(
        &self,
        now: Duration,
        mut sequence: u64,
        cut: Cut<'_>,
        placement: &Placement,
        queue: &mut SendQueue,
    ) {
        let count = cut.count();
        let Cut { header, form, fit_to_mtu, may_fragment } = cut;
        let (skip, next_header) = match self.mode {
            Mode::Tunnel => (0, if header.ipv6 { IPV6 } else { IPIP }),
            Mode::Transport => (header.transport, header.protocol),
        };
        let (path, tos) = (&placement.path, header.tos);
        let mut cover = Cover { path, tos, may_fragment, skip, next_header, alike: false };
        match form {
            Form::Whole(packet, gso) => {
                complete_checksum(packet, header, gso);
                clamp_mss(packet, header, placement.inner_mtu);
                queue.reserve(self.sealed_len(fit_to_mtu.longest(packet.len())) * count as usize);
                self.seal_pieces(&mut sequence, packet, header, fit_to_mtu, &cover, queue);
            }
            Form::Segments(mut segments) => {
                queue.reserve(
                    self.sealed_len(fit_to_mtu.longest(segments.longest())) * count as usize,
                );
                while let Some(segment) = segments.next() {
                    self.seal_pieces(&mut sequence, segment, header, fit_to_mtu, &cover, queue);
                    cover.alike = true;
                }
            }
        }
        self.last_used.store(now.as_nanos() as u64, Relaxed);
    }

    /// The first of the sequence numbers for so many packets, which nobody else has. They are counted by it: an SA that is
    /// closed has counted all that will ever be sealed.
    fn claim(&self, amount: Amount, notify: &dyn Fn(Notice)) -> Result<u64, Unsent> {
        let Amount { operations: count, octets } = amount;
        let last = if self.esn { Sequence::HIGHEST } else { u64::from(u32::MAX) };
        let volume_left = self.limits.hard_bytes.is_none_or(|hard| self.bytes.load(Relaxed) < hard);
        let first = match self.sequence.claim(count, if volume_left { last } else { 0 }) {
            Ok(first) => first,
            Err(NoNumber::Closed) => return Err(Unsent::Gone),
            Err(NoNumber::Exhausted) => {
                self.tell(true, notify);
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
        cover: &Cover<'_>,
        queue: &mut SendQueue,
    ) {
        let MtuFit::Fragments { mtu } = fit_to_mtu else {
            self.seal_one(*sequence, packet, cover, queue);
            *sequence += 1;
            return;
        };
        let mut fragments = Fragments::new(packet, header.transport, mtu);
        while let Some(fragment) = fragments.next() {
            self.seal_one(*sequence, fragment, cover, queue);
            *sequence += 1;
        }
    }

    fn seal_one(&self, sequence: u64, packet: &[u8], cover: &Cover<'_>, queue: &mut SendQueue) {
        if self.suite.is_ah() {
            return self.seal_ah(sequence, packet, cover, queue);
        }
        let plaintext = &packet[cover.skip..];
        let pad = self.pad_len(plaintext.len());
        let mut trailer = PADDING;
        trailer[pad] = pad as u8;
        trailer[pad + 1] = cover.next_header;

        let len = self.sealed_len(plaintext.len());
        let out = queue.space(len);
        out[..4].copy_from_slice(&self.spi.0.to_be_bytes());
        out[4..8].copy_from_slice(&(sequence as u32).to_be_bytes());
        let mut iv = [0; MAX_IV];
        let iv = &mut iv[..self.shape.iv];
        fill_iv(self.suite, sequence, iv);
        let aad = Aad::Esp { spi: self.spi.0, sequence, esn: self.esn };
        self.cipher.seal(iv, aad, plaintext, &trailer[..pad + 2], &mut out[ESP_HEADER..]);
        match cover.alike {
            true => queue.push_alike(len, cover.path, cover.tos, cover.may_fragment),
            false => queue.push(len, cover.path, cover.tos, cover.may_fragment),
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

    /// Whether transport mode can carry a packet: between the SA's own addresses and not a fragment (RFC 4301 §4.1, §7);
    /// in ESP, which leaves the IP header to the socket, with nothing beyond the fixed header.
    fn may_be_transported(
        &self,
        header: &Header,
        octets: &[u8],
        path: &Path,
    ) -> Result<(), Discard> {
        if header.fragment != Fragment::Whole {
            return Err(Discard::TransportFragment);
        }
        let local = path.local.ip();
        let between_the_ends = header.destination() == path.remote.ip()
            && (header.source() == local || local.is_unspecified());
        let keeps = if self.suite.is_ah() { ah::can_follow(octets) } else { header.is_plain() };
        if between_the_ends && keeps { Ok(()) } else { Err(Discard::TransportHeader) }
    }

    /// The last sequence number that was used.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.sequence.used()
    }

    /// Goes on after that sequence number; no packet may have been protected yet.
    pub(crate) fn resume(&self, used: u64) {
        self.sequence.reset(used);
    }
}

/// What the suite says of lengths, read for every packet.
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

/// Why an SA does not protect a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// It was removed after it had been found: what serves now is to be asked.
    Gone,
    Refused(Discard),
}

impl From<Discard> for Unsent {
    fn from(discard: Discard) -> Self {
        Self::Refused(discard)
    }
}

/// A packet with its sequence numbers, from `sequence` on.
pub(crate) struct Claim {
    header: Header,
    gso: Gso,
    sequence: u64,
    amount: Amount,
    fit_to_mtu: MtuFit,
}

/// A packet, and what it is sent as.
struct Cut<'p> {
    header: &'p Header,
    form: Form<'p>,
    fit_to_mtu: MtuFit,
    may_fragment: bool,
}

/// Lives on the stack for the time of one packet.
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation per packet")]
enum Form<'p> {
    Whole(&'p mut [u8], Gso),
    Segments(Segments<'p>),
}

impl Cut<'_> {
    fn count(&self) -> u64 {
        let pieces = |len| self.fit_to_mtu.pieces(len, self.header) as u64;
        match &self.form {
            Form::Whole(packet, _) => pieces(packet.len()),
            Form::Segments(segments) => {
                (segments.count() as u64 - 1) * pieces(segments.longest())
                    + pieces(segments.shortest())
            }
        }
    }

    /// What it counts as.
    fn amount(&self) -> Amount {
        let octets = match &self.form {
            Form::Whole(packet, _) => packet.len(),
            Form::Segments(segments) => segments.octets(),
        };
        Amount { operations: self.count(), octets: octets as u64 }
    }
}

impl Form<'_> {
    /// Octets that begin with the headers.
    fn first_octets(&self) -> &[u8] {
        match self {
            Self::Whole(packet, _) => packet,
            Self::Segments(segments) => segments.headers(),
        }
    }
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

/// What all packets of one super-packet are sent with.
struct Cover<'a> {
    path: &'a Path,
    tos: u8,
    may_fragment: bool,
    /// Octets in front that are not sent: the IP header in transport mode.
    skip: usize,
    next_header: u8,
    /// Whether the packet before was of the same super-packet.
    alike: bool,
}

/// An AEAD's and GMAC's IV must be unique, and the sequence number is (RFC 4106 §3.1, RFC 4543 §3.1, RFC 7634 §2);
/// CBC's must be unpredictable (RFC 3602 §3).
fn fill_iv(suite: Suite, sequence: u64, iv: &mut [u8]) {
    match suite {
        Suite::AesGcm16(_) | Suite::ChaCha20Poly1305 | Suite::AesGmac(_) => {
            iv.copy_from_slice(&sequence.to_be_bytes());
        }
        Suite::NullMac(_) => {}
        Suite::Ah(_) => fill_iv(suite.cipher(), sequence, iv),
        Suite::AesCbcMac(..) | Suite::DesCbcMac(..) => {
            crypto::fill_random(iv);
        }
    }
}
