//! The way in, once the SAD has found the SA:
//!
//! 1. the whole sequence number, and a first look at the anti-replay window (RFC 4303 §3.4.3);
//! 2. open into the receive queue; the window takes note only now;
//! 3. padding and next header;
//! 4. tunnel mode: the inner packet, with the congestion mark of the outer (RFC 6040);
//!    transport mode: a header made anew from the outer addresses;
//! 5. only traffic of the SA passes (RFC 4301 §5.2);
//! 6. lower the MSS of a SYN, and join segments of one flow.

#![forbid(unsafe_code)]

use crate::cipher::{Aad, Cipher, CipherError, Provider, Suite};
use crate::datapath::Arrival;
use crate::discard::Discard;
use crate::encap::{Placement, Room, clamp_mss};
use crate::header::Header;
use crate::ip::{self, IPIP, IPV6, NO_NEXT_HEADER};
use crate::plane::{
    Encapsulation, InboundSa, Limits, Notice, Path, SaId, Spi, TrafficSelectors, Usage,
};
use crate::queue::ReceiveQueue;
use crate::replay::Window;
use policy::Mode;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) const ESP_HEADER: usize = 8;
const TRAILER: usize = 2;

/// How often one SA may tell that its peer has moved: a peer can send from another port with every packet.
const MOVES_EVERY: Duration = Duration::from_millis(100);

/// Octets of the longest message that both families' length fields have room for.
const MAX_MESSAGE: usize = u16::MAX as usize - ip::IPV4_LEN;

/// An SA that receives, ready for use.
pub(crate) struct Inbound {
    pub(crate) id: SaId,
    pub(crate) spi: Spi,
    suite: Suite,
    esn: bool,
    mode: Mode,
    selectors: TrafficSelectors,
    limits: Limits,
    cipher: Box<dyn Cipher>,
    /// 0: not to be enforced.
    inner_mtu: AtomicUsize,
    state: Mutex<State>,
    refused: AtomicU64,
}

/// What authentic packets change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    /// Where it comes from; kept here because every packet is compared with it, and the lock is taken anyway.
    path: Path,
    window: Window,
    packets: u64,
    bytes: u64,
    last_used: Duration,
    /// Where the peer was last seen, if that is not where the path says.
    moved: Option<SocketAddr>,
    /// When that may be told again, since the epoch.
    next_move: Duration,
    told_soft: bool,
    told_hard: bool,
}

impl Inbound {
    pub(crate) fn new(sa: InboundSa, provider: Provider, room: Room) -> Result<Self, CipherError> {
        Ok(Self {
            id: sa.id,
            spi: sa.spi,
            suite: sa.suite,
            esn: sa.esn,
            mode: sa.mode,
            selectors: sa.selectors,
            limits: sa.limits,
            cipher: provider.cipher(sa.suite, &sa.key)?,
            inner_mtu: AtomicUsize::new(Placement::new(sa.path, sa.suite, sa.mode, room).inner_mtu),
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
            }),
            refused: AtomicU64::new(0),
        })
    }

    /// Follows a change of the device's MTU.
    pub(crate) fn refit(&self, room: Room) {
        let path = self.state().path;
        let placement = Placement::new(path, self.suite, self.mode, room);
        self.inner_mtu.store(placement.inner_mtu, Relaxed);
    }

    pub(crate) fn relocate(&self, path: Path, room: Room) {
        let placement = Placement::new(path, self.suite, self.mode, room);
        self.inner_mtu.store(placement.inner_mtu, Relaxed);
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

    /// Opens one ESP packet and appends the inner packet to `queue`. `now` is since the epoch.
    pub(crate) fn open(
        &self,
        now: Duration,
        datagram: &[u8],
        arrival: &Arrival,
        queue: &mut ReceiveQueue,
        notify: &dyn Fn(Notice),
    ) -> Result<(), Discard> {
        let header_len = match self.mode {
            Mode::Tunnel => 0,
            Mode::Transport => ip::header_len(arrival.path.remote.ip()),
        };
        let space = queue.begin(header_len + datagram.len(), self.mode == Mode::Tunnel);
        match self.open_into(space, header_len, now, datagram, arrival, notify) {
            Ok(header) => {
                queue.accept(&header);
                Ok(())
            }
            Err(discard) => {
                queue.abandon();
                // A dummy is not refused: the peer sent it to be thrown away.
                if discard != Discard::Dummy {
                    self.refused.fetch_add(1, Relaxed);
                }
                Err(discard)
            }
        }
    }

    fn open_into(
        &self,
        space: &mut [u8],
        header_len: usize,
        now: Duration,
        datagram: &[u8],
        arrival: &Arrival,
        notify: &dyn Fn(Notice),
    ) -> Result<Header, Discard> {
        let overhead = ESP_HEADER + self.suite.iv_len() + self.suite.icv_len() + TRAILER;
        if datagram.len() < overhead {
            return Err(Discard::InboundTruncated);
        }
        let (esp, sealed) = datagram.split_at(ESP_HEADER);
        let low = u32::from_be_bytes([esp[4], esp[5], esp[6], esp[7]]);
        let sequence = self.may_be_new(low)?;

        let aad = Aad::Esp { spi: self.spi.0, sequence, esn: self.esn };
        let plaintext = &mut space[header_len..];
        let len = self.cipher.open(aad, sealed, plaintext).map_err(|_| Discard::Forged)?;
        self.take_note(now, sequence, arrival, notify)?;

        let (payload_len, next_header) = trailer(&plaintext[..len])?;
        let packet = &mut space[..header_len + payload_len];
        let header = match self.mode {
            Mode::Tunnel => leave_tunnel(packet, next_header, arrival)?,
            Mode::Transport => rebuild(packet, header_len, next_header, arrival)?,
        };
        if !header.arrives_by(&self.selectors) {
            return Err(Discard::Selectors);
        }
        self.account(now, header.len as u64, notify)?;
        clamp_mss(packet, &header, self.inner_mtu.load(Relaxed));
        Ok(header)
    }

    fn may_be_new(&self, low: u32) -> Result<u64, Discard> {
        let state = self.state();
        let sequence = if self.esn { state.window.infer(low) } else { u64::from(low) };
        state.window.check(sequence)?;
        Ok(sequence)
    }

    /// Commits what an authentic packet proves: that its number is used, and where the peer is.
    fn take_note(
        &self,
        now: Duration,
        sequence: u64,
        arrival: &Arrival,
        notify: &dyn Fn(Notice),
    ) -> Result<(), Discard> {
        let mut state = self.state();
        let newest = state.window.commit(sequence)?;
        let remote = arrival.path.remote;
        // Packets overtaken by others say where the peer was, not where it is.
        if newest && arrival.path.encapsulation == Encapsulation::Udp {
            let path = state.path;
            if path.encapsulation == Encapsulation::Udp && path.remote != remote {
                if state.moved != Some(remote) && now >= state.next_move {
                    state.moved = Some(remote);
                    state.next_move = now + MOVES_EVERY;
                    drop(state);
                    notify(Notice::PeerMoved { sa: self.id, remote });
                }
            } else {
                state.moved = None;
            }
        }
        Ok(())
    }

    fn account(&self, now: Duration, octets: u64, notify: &dyn Fn(Notice)) -> Result<(), Discard> {
        let mut state = self.state();
        if self.limits.hard_bytes.is_some_and(|hard| state.bytes >= hard) {
            if !std::mem::replace(&mut state.told_hard, true) {
                drop(state);
                notify(Notice::Expiring { sa: self.id, hard: true });
            }
            return Err(Discard::InboundExhausted);
        }
        state.packets += 1;
        state.bytes += octets;
        state.last_used = now;
        if self.limits.soft_bytes.is_some_and(|soft| state.bytes >= soft)
            && !std::mem::replace(&mut state.told_soft, true)
        {
            drop(state);
            notify(Notice::Expiring { sa: self.id, hard: false });
        }
        Ok(())
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
        let mut window = Window::new(64);
        if top > 0 {
            window.commit(top).expect("an empty window");
        }
        self.state().window = window;
    }
}

/// Octets of payload, and the next header (RFC 4303 §2.4, §2.6).
fn trailer(plaintext: &[u8]) -> Result<(usize, u8), Discard> {
    let [body @ .., pad_len, next_header] = plaintext else { return Err(Discard::Padding) };
    let pad_len = usize::from(*pad_len);
    let payload = body.len().checked_sub(pad_len).ok_or(Discard::Padding)?;
    if body[payload..].iter().zip(1..=u8::MAX).any(|(octet, expected)| *octet != expected) {
        return Err(Discard::Padding);
    }
    if *next_header == NO_NEXT_HEADER {
        return Err(Discard::Dummy);
    }
    Ok((payload, *next_header))
}

/// Reads the inner packet; what follows it is padding for traffic flow confidentiality (RFC 4303 §2.7).
fn leave_tunnel(packet: &mut [u8], next_header: u8, arrival: &Arrival) -> Result<Header, Discard> {
    if next_header != IPIP && next_header != IPV6 {
        return Err(Discard::NextHeader);
    }
    let header = Header::parse(packet).ok_or(Discard::InboundMalformed)?;
    if header.ipv6 != (next_header == IPV6) {
        return Err(Discard::InboundMalformed);
    }
    if let Some(outer) = arrival.tos {
        let ecn = ip::leave_tunnel(header.tos, outer).ok_or(Discard::Congestion)?;
        if ecn != header.tos & 3 {
            ip::set_ecn(packet, ecn);
        }
    }
    Ok(header)
}

/// Puts a header in front of an upper layer message.
fn rebuild(
    packet: &mut [u8],
    header_len: usize,
    protocol: u8,
    arrival: &Arrival,
) -> Result<Header, Discard> {
    let (source, destination) = (arrival.path.remote.ip(), arrival.path.local.ip());
    let (header, message) = packet.split_at_mut(header_len);
    if source.is_ipv4() != destination.is_ipv4() || message.len() > MAX_MESSAGE {
        return Err(Discard::InboundMalformed);
    }
    let tos = arrival.tos.unwrap_or(0);
    ip::write_header(header, source, destination, protocol, message.len(), tos, arrival.ttl);
    if arrival.path.encapsulation == Encapsulation::Udp {
        // RFC 3948 §3.1.2: addresses may have changed on the way, and the checksum covers them. ESP's integrity check
        // has vouched for the message itself.
        ip::rebuild_checksum(source, destination, protocol, message);
    }
    Header::parse(packet).ok_or(Discard::InboundMalformed)
}
