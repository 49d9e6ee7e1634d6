//! An SA that receives, and the way of a packet once the SAD has found the SA:
//!
//! 1. the whole sequence number, and a first look at the anti-replay window (RFC 4303 §3.4.3);
//! 2. open into the receive queue; the window takes note only now;
//! 3. padding and next header;
//! 4. tunnel mode: the inner packet, with the congestion mark of the outer (RFC 6040);
//!    transport mode: a header made from the outer addresses;
//! 5. only traffic of the SA passes (RFC 4301 §5.2);
//! 6. lower the MSS of a SYN, and join segments of one flow.
//!
//! [`Receiving`] does all of it for packets in their order, and takes the SA's lock once for all that came together.
//! [`Inbound::open_ahead`] does what needs no order, on any thread, and [`Inbound::settle`] the rest when their turn
//! has come.

#![forbid(unsafe_code)]

mod ah;
mod ahead;
pub mod frozen;
mod unwrap;

pub(crate) use ahead::Ahead;

use crate::discard::Discard;
use crate::encap::{PathLimits, Room, clamp_mss};
use crate::families::FamilySwitch;
use crate::header::Header;
use crate::ip;
use crate::plane::{
    Encapsulation, InboundSa, Limits, Notice, Path, SaId, Spi, TrafficSelectors, Usage,
};
use crate::prefetch;
use crate::queue::ReceiveQueue;
use crate::replay::Window;
use crate::sa::Arrival;
use crate::spd::Flow;
use crate::trace::SaFacts;
use crypto::{Aad, Amount, Cipher, CipherError, Direction, Keyed, KeyedSa, Provider, Suite};
use policy::Mode;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use unwrap::{leave_tunnel, rebuild, trailer};

pub(crate) const ESP_HEADER: usize = 8;
const TRAILER: usize = 2;

/// The shortest time between two reports of one SA that its peer has moved: a peer can send from another port with
/// every packet.
const MOVES_EVERY: Duration = Duration::from_millis(100);

/// An SA that receives, ready for use.
pub(crate) struct Inbound {
    pub(crate) id: SaId,
    pub(crate) spi: Spi,
    pub(crate) suite: Suite,
    esn: bool,
    mode: Mode,
    selectors: Arc<TrafficSelectors>,
    families: Arc<FamilySwitch>,
    limits: Limits,
    cipher: Keyed,
    /// Octets of the shortest packet.
    shortest: usize,
    /// 0: not to be enforced.
    inner_mtu: AtomicUsize,
    state: Mutex<State>,
    refused: AtomicU64,
}

/// The state that authentic packets change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    /// The path of its packets. It stands here because every packet is compared with it, and the lock is taken anyway.
    path: Path,
    window: Window,
    packets: u64,
    bytes: u64,
    last_used: Duration,
    /// The peer's last address, if it differs from the path.
    moved: Option<SocketAddr>,
    /// The time of the next possible report of a move, since the epoch.
    next_move: Duration,
    told_soft: bool,
    told_hard: bool,
    /// It takes nothing, for this reason: it is gone, or frozen.
    refuses: Option<Discard>,
}

impl Inbound {
    pub(crate) fn new(
        sa: InboundSa,
        provider: Provider,
        room: Room,
        families: Arc<FamilySwitch>,
    ) -> Result<Self, CipherError> {
        Ok(Self {
            id: sa.id,
            spi: sa.spi,
            suite: sa.suite,
            esn: sa.esn,
            mode: sa.mode,
            selectors: sa.selectors,
            families,
            limits: sa.limits,
            cipher: Keyed::new(sa.suite, sa.key, provider)?,
            shortest: ESP_HEADER + sa.suite.iv_len() + sa.suite.icv_len() + TRAILER,
            inner_mtu: AtomicUsize::new(
                PathLimits::new(sa.path, sa.suite, sa.mode, room).inner_mtu,
            ),
            state: Mutex::new(State {
                path: sa.path,
                window: Window::new(sa.replay_window),
                packets: 0,
                bytes: 0,
                last_used: Duration::ZERO,
                moved: None,
                next_move: Duration::ZERO,
                told_soft: false,
                told_hard: false,
                refuses: None,
            }),
            refused: AtomicU64::new(0),
        })
    }

    /// Has what it refers to be in the cache, as it is itself.
    pub(crate) fn prefetch(&self) {
        prefetch::soon(self.cipher.first());
        self.selectors.prefetch();
    }

    /// The SA's description in a trace of a packet.
    pub(crate) fn facts(&self, header: &Header) -> SaFacts {
        SaFacts {
            id: self.id,
            spi: self.spi,
            suite: self.suite,
            mode: self.mode,
            path: self.state().path,
            inner_mtu: self.inner_mtu.load(Relaxed),
            carries: header.arrives_by(&self.selectors),
        }
    }

    /// The path of its packets.
    pub(crate) fn path(&self) -> Path {
        self.state().path
    }

    /// Follows a change of what fits.
    pub(crate) fn refit(&self, room: Room) {
        let path = self.state().path;
        let path_limits = PathLimits::new(path, self.suite, self.mode, room);
        self.inner_mtu.store(path_limits.inner_mtu, Relaxed);
    }

    pub(crate) fn relocate(&self, path: Path, room: Room) {
        let path_limits = PathLimits::new(path, self.suite, self.mode, room);
        self.inner_mtu.store(path_limits.inner_mtu, Relaxed);
        let mut state = self.state();
        state.path = path;
        state.moved = None;
    }

    pub(crate) fn usage(&self, epoch: Instant) -> Usage {
        let state = self.state();
        Usage {
            packets: state.packets,
            bytes: state.bytes,
            last_used: (state.packets > 0).then(|| epoch + state.last_used),
            refused: self.refused.load(Relaxed),
        }
    }

    /// Takes no more packets, also from those who have found it before: its [`usage`](Self::usage) is final.
    pub(crate) fn close(&self) {
        self.state().refuses = Some(Discard::UnknownSpi);
    }

    /// Accepts none of the next `count` sequence numbers, and none before them.
    pub(crate) fn skip(&self, count: u64) {
        self.state().window.skip(count);
    }

    /// Takes packets in their order from now on; nobody else can until [`Receiving::finish`].
    pub(crate) fn receive(&self) -> Receiving<'_> {
        Receiving {
            sa: self,
            state: self.state(),
            vetted: None,
            before: None,
            news: News::default(),
        }
    }

    /// The whole sequence number of a packet that may be new.
    #[inline]
    fn expect(&self, state: &State, datagram: &[u8]) -> Result<u64, Discard> {
        let [_, _, _, _, s0, s1, s2, s3, ..] = *datagram else {
            return Err(Discard::InboundTruncated);
        };
        if datagram.len() < self.shortest {
            return Err(Discard::InboundTruncated);
        }
        self.number(state, u32::from_be_bytes([s0, s1, s2, s3]))
    }

    /// The whole sequence number, which may be new, of a packet that carries its low half.
    #[inline]
    fn number(&self, state: &State, low: u32) -> Result<u64, Discard> {
        if let Some(discard) = state.refuses {
            return Err(discard);
        }
        let sequence = if self.esn { state.window.infer(low) } else { u64::from(low) };
        state.window.check(sequence)?;
        Ok(sequence)
    }

    /// Room for a packet, and how much of it is for a new header.
    #[inline(always)]
    fn begin<'q>(
        &self,
        datagram: &[u8],
        arrival: &Arrival,
        queue: &'q mut ReceiveQueue,
    ) -> (&'q mut [u8], usize) {
        let header_len = match self.mode {
            Mode::Tunnel => 0,
            Mode::Transport => ip::header_len(arrival.path.remote.ip()),
        };
        let space = queue.begin(header_len + datagram.len(), self.mode == Mode::Tunnel);
        (space, header_len)
    }

    /// Checks and opens; gives the octets of plaintext with its trailer.
    #[inline]
    fn unseal(
        &self,
        sequence: u64,
        datagram: &[u8],
        plaintext: &mut [u8],
    ) -> Result<usize, Discard> {
        let aad = Aad::Esp { spi: self.spi.0, sequence, esn: self.esn };
        let sealed = &datagram[ESP_HEADER..];
        self.cipher.open(aad, sealed, plaintext).map_err(|_| Discard::Forged)
    }

    /// Takes the packet out of `len` octets of plaintext.
    // Inlined with all it calls: a header that is moved in memory stalls the CPU, written in parts and read in one piece.
    #[inline(always)]
    fn unwrap(
        &self,
        space: &mut [u8],
        header_len: usize,
        len: usize,
        arrival: &Arrival,
        vetted: &mut Option<Flow>,
    ) -> Result<Header, Discard> {
        let (payload_len, next_header) = trailer(&space[header_len..header_len + len])?;
        self.leave(&mut space[..header_len + payload_len], header_len, next_header, arrival, vetted)
    }

    /// Makes it a packet that may pass.
    #[inline(always)]
    fn leave(
        &self,
        packet: &mut [u8],
        header_len: usize,
        next_header: u8,
        arrival: &Arrival,
        vetted: &mut Option<Flow>,
    ) -> Result<Header, Discard> {
        let header = match self.mode {
            Mode::Tunnel => leave_tunnel(packet, next_header, arrival)?,
            Mode::Transport => rebuild(packet, header_len, next_header, arrival)?,
        };
        self.vet(packet, &header, arrival, vetted)?;
        Ok(header)
    }

    /// Lets only the SA's traffic of families that are on pass, and TCP know how much fits. `vetted` is the last flow
    /// that has passed.
    fn vet(
        &self,
        packet: &mut [u8],
        header: &Header,
        arrival: &Arrival,
        vetted: &mut Option<Flow>,
    ) -> Result<(), Discard> {
        let flow = Flow::of(header, true);
        if *vetted != Some(flow) {
            if !header.arrives_by(&self.selectors) {
                return Err(Discard::Selectors);
            }
            if self.families.blocks(header.ipv6, arrival.path.remote.ip()) {
                return Err(Discard::InboundFamilyOff);
            }
            *vetted = Some(flow);
        }
        clamp_mss(packet, header, self.inner_mtu.load(Relaxed));
        Ok(())
    }

    /// Counts a packet that was refused. A dummy is not: the peer sent it to be thrown away; nor is what comes to an SA
    /// that is gone or frozen.
    #[inline]
    fn refuse(&self, discard: Discard) {
        if !matches!(discard, Discard::Dummy | Discard::UnknownSpi | Discard::Frozen) {
            self.refused.fetch_add(1, Relaxed);
        }
    }

    /// A thread that panicked left whole values behind: each is changed by one assignment.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that packets may change, apart from counters.
    #[cfg(test)]
    pub(crate) fn snapshot(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        self.state().clone()
    }

    /// As if so many packets had been received, and none of them lately.
    #[cfg(test)]
    pub(crate) fn set_top(&self, top: u64) {
        self.set_top_of(top, 64);
    }

    /// The same with a window of that size.
    #[cfg(test)]
    pub(crate) fn set_top_of(&self, top: u64, size: u32) {
        let mut window = Window::new(size);
        if top > 0 {
            window.commit(top).expect("an empty window");
        }
        self.state().window = window;
    }
}

/// An SA that takes packets in their order, its state held from the first to the last.
pub(crate) struct Receiving<'a> {
    sa: &'a Inbound,
    state: MutexGuard<'a, State>,
    /// The flow of the packet before, which the selectors cover.
    vetted: Option<Flow>,
    /// The next header of the packet before, if the queue took that in as it was in the tunnel.
    before: Option<u8>,
    news: News,
}

/// The notices that are sent once the lock is free again.
#[derive(Default)]
struct News {
    moved: Option<SocketAddr>,
    soft: bool,
    hard: bool,
}

impl Receiving<'_> {
    /// Opens one ESP packet and appends the inner packet to `queue`. `now` is since the epoch.
    pub(crate) fn open(
        &mut self,
        now: Duration,
        datagram: &[u8],
        arrival: &Arrival,
        queue: &mut ReceiveQueue,
    ) -> Result<(), Discard> {
        let (space, header_len) = self.sa.begin(datagram, arrival, queue);
        let plaintext = &mut space[header_len..];
        let outcome = self
            .authenticate(plaintext, now, datagram, arrival)
            .and_then(|opened| self.deliver(opened, header_len, now, arrival, queue));
        if let Err(discard) = outcome {
            self.before = None;
            queue.abandon();
            self.sa.refuse(discard);
        }
        outcome
    }

    /// Takes what was opened into the queue, or counts that it was refused.
    #[inline(always)]
    fn put(
        &self,
        outcome: Result<Header, Discard>,
        queue: &mut ReceiveQueue,
    ) -> Result<(), Discard> {
        match outcome {
            Ok(header) => {
                queue.accept(&header);
                Ok(())
            }
            Err(discard) => {
                queue.abandon();
                self.sa.refuse(discard);
                Err(discard)
            }
        }
    }

    /// Opens a packet and takes note of it; gives its octets of payload, and the next header.
    #[inline(always)]
    fn authenticate(
        &mut self,
        plaintext: &mut [u8],
        now: Duration,
        datagram: &[u8],
        arrival: &Arrival,
    ) -> Result<(usize, u8), Discard> {
        let sequence = self.sa.expect(&self.state, datagram)?;
        let len = self.sa.unseal(sequence, datagram, plaintext)?;
        self.take_note(now, sequence, arrival);
        trailer(&plaintext[..len])
    }

    /// Takes the packet that was opened into the queue, if it may pass.
    #[inline(always)]
    fn deliver(
        &mut self,
        (len, next_header): (usize, u8),
        header_len: usize,
        now: Duration,
        arrival: &Arrival,
        queue: &mut ReceiveQueue,
    ) -> Result<(), Discard> {
        // A packet that continues the flow of the one before has the same addresses, ports and flags: it passes the
        // checks below as that one did.
        if self.before == Some(next_header)
            && arrival.tos.is_none_or(ip::keeps_ecn)
            && let Some(next) = queue.continuation(len)
        {
            self.account(now, len as u64)?;
            queue.append(len, &next);
            return Ok(());
        }
        let packet = queue.opened(header_len + len);
        let header = self.sa.leave(packet, header_len, next_header, arrival, &mut self.vetted)?;
        self.account(now, header.len as u64)?;
        queue.accept(&header);
        self.before = (self.sa.mode == Mode::Tunnel).then_some(next_header);
        Ok(())
    }

    /// Commits what an authentic packet proves: that its number is used, and where the peer is. The number was found to
    /// be new since the state is held.
    #[inline(always)]
    fn take_note(&mut self, now: Duration, sequence: u64, arrival: &Arrival) {
        let state = &mut *self.state;
        let newest = state.window.note(sequence);
        let remote = arrival.path.remote;
        // Packets overtaken by others say where the peer was, not where it is.
        if newest && arrival.path.encapsulation == Encapsulation::Udp {
            let path = &state.path;
            if path.encapsulation == Encapsulation::Udp && path.remote != remote {
                if state.moved != Some(remote) && now >= state.next_move {
                    state.moved = Some(remote);
                    state.next_move = now + MOVES_EVERY;
                    self.news.moved = Some(remote);
                }
            } else {
                state.moved = None;
            }
        }
    }

    #[inline]
    fn account(&mut self, now: Duration, octets: u64) -> Result<(), Discard> {
        let (state, limits) = (&mut *self.state, &self.sa.limits);
        if limits.hard_bytes.is_some_and(|hard| state.bytes >= hard) {
            self.news.hard |= !std::mem::replace(&mut state.told_hard, true);
            return Err(Discard::InboundExhausted);
        }
        state.packets += 1;
        state.bytes += octets;
        state.last_used = now;
        if limits.soft_bytes.is_some_and(|soft| state.bytes >= soft) {
            self.news.soft |= !std::mem::replace(&mut state.told_soft, true);
        }
        Ok(())
    }

    /// Lets the SA go, and then tells what has happened to it: the receiver of a notice may ask the SA.
    pub(crate) fn finish(self, notify: &dyn Fn(Notice)) {
        let Self { sa, state, news, .. } = self;
        drop(state);
        if let Some(remote) = news.moved {
            notify(Notice::PeerMoved { sa: sa.id, remote });
        }
        for (told, hard) in [(news.soft, false), (news.hard, true)] {
            if told {
                notify(Notice::Expiring { sa: sa.id, hard });
            }
        }
    }
}

impl KeyedSa for Inbound {
    fn keyed(&self) -> &Keyed {
        &self.cipher
    }

    fn direction(&self) -> Direction {
        Direction::Decrypt
    }

    fn amount(&self) -> Amount {
        let state = self.state();
        Amount { operations: state.packets, octets: state.bytes }
    }
}
