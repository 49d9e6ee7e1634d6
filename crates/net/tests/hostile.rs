//! A peer with valid SAs that sends what it likes: segments of TCP in any order, with any flags and numbers,
//! overlapping fragments, floods of resets, and garbage. Octets arrive right and in order, or the stream ends with an
//! error; nothing hangs, and memory comes back. A stream whose numbers it does not know is not disturbed.

mod ends;

use ends::{PATIENCE, pair, perfect};
use esp::gso::Gso;
use net::device::PacketDevice;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Addresses of the honest end and of the hostile one.
const HONEST: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const HOSTILE: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);
const PORT: u16 = 80;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Octets that the hostile peer has for a stream.
const LENGTH: usize = 20_000;

/// The port of a stream between the same addresses that the hostile peer would like to break, and the number of its
/// first octet.
const BYSTANDER: u16 = 1024;
const BYSTANDER_START: u32 = 0x9000_0000;
/// Octets of a receive buffer of this test.
const WINDOW: u16 = 32 << 10;

/// The device of the hostile end: every packet that is put in leaves through the tunnel.
#[derive(Debug)]
struct Device {
    packets: Mutex<(VecDeque<Vec<u8>>, Option<Waker>)>,
    arrived: UnboundedSender<Vec<u8>>,
}

impl Device {
    fn send(&self, packet: Vec<u8>) {
        let mut packets = self.packets.lock().expect("no panic");
        packets.0.push_back(packet);
        packets.1.take().into_iter().for_each(Waker::wake);
    }
}

impl PacketDevice for Device {
    fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<(usize, Gso)>> {
        let mut packets = self.packets.lock().expect("no panic");
        let Some(packet) = packets.0.pop_front() else {
            packets.1 = Some(cx.waker().clone());
            return Poll::Pending;
        };
        buffer[..packet.len()].copy_from_slice(&packet);
        Poll::Ready(Ok((packet.len(), Gso::NONE)))
    }

    fn write(&self, packet: &[u8], _: Gso) -> io::Result<()> {
        let _ = self.arrived.send(packet.to_vec());
        Ok(())
    }
}

/// The octet of the hostile peer's stream at an offset.
fn octet(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 13) as u8
}

fn sum(octets: impl IntoIterator<Item = u8>) -> u32 {
    let weighed = |(at, octet): (usize, u8)| u32::from(octet) << (8 * (1 - at % 2));
    octets.into_iter().enumerate().map(weighed).sum()
}

fn folded(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An IPv4 packet; `fragment`: the flag and offset of its header.
fn packet(protocol: u8, id: u16, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(len.to_be_bytes());
    packet.extend(id.to_be_bytes());
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(HOSTILE.octets());
    packet.extend(HONEST.octets());
    let check = folded(sum(packet.iter().copied()));
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    packet.extend(payload);
    packet
}

/// A segment's header fields.
#[derive(Clone, Copy, Debug)]
struct Header {
    port: u16,
    seq: u32,
    ack: u32,
    flags: u8,
    window: u16,
}

fn segment(header: Header, data: &[u8]) -> Vec<u8> {
    let mut segment = Vec::from(header.port.to_be_bytes());
    segment.extend(PORT.to_be_bytes());
    segment.extend(header.seq.to_be_bytes());
    segment.extend(header.ack.to_be_bytes());
    segment.extend([5 << 4, header.flags]);
    segment.extend(header.window.to_be_bytes());
    segment.extend([0; 4]);
    segment.extend(data);
    let pseudo = [&HOSTILE.octets()[..], &HONEST.octets(), &[0, 6]].concat();
    let len = (segment.len() as u16).to_be_bytes();
    let all = pseudo.into_iter().chain(len).chain(segment.iter().copied());
    let check = folded(sum(all));
    segment[16..18].copy_from_slice(&check.to_be_bytes());
    segment
}

/// An action of the peer.
#[derive(Clone, Debug)]
enum Act {
    /// Octets of its stream, from anywhere, as often as it likes.
    Data { from: usize, len: usize },
    /// Flags, and numbers near those of the connection or far from them; it has no octets.
    Flags { flags: u8, seq: i32, ack: i32, window: u16 },
    /// Resets with numbers that it guesses.
    Resets { first: u32, count: u16 },
    /// Octets of its stream in fragments that overlap, some with other octets where they do.
    Fragments { from: usize, cut: usize, overlap: usize, other: bool },
    /// A packet with octets that mean nothing.
    Garbage { protocol: u8, octets: Vec<u8> },
    /// Another connection that it leaves half open.
    Opens { port: u16 },
    /// A segment of the stream of a bystander, whose ports are known, and whose numbers are not.
    Forges { flags: u8, seq: u32, ack: u32, len: usize },
    /// Resets of that stream that lie in its window, but not at the octet that it expects.
    ForgesResets { first: u16, step: u16 },
}

fn act() -> impl Strategy<Value = Act> {
    let near = -70_000..70_000_i32;
    prop_oneof![
        6 => (0..LENGTH, 1..1400_usize).prop_map(|(from, len)| Act::Data { from, len }),
        3 => (any::<u8>(), near.clone(), near, any::<u16>()).prop_map(|(flags, seq, ack, window)| {
            // The end of its stream is that of its octets, and a reset has its own act.
            Act::Flags { flags: flags & !(FIN | RST), seq, ack, window }
        }),
        1 => (any::<u32>(), 1..300_u16).prop_map(|(first, count)| Act::Resets { first, count }),
        2 => (0..LENGTH, 1..60_usize, 0..8_usize, any::<bool>())
            .prop_map(|(from, cut, overlap, other)| Act::Fragments { from, cut, overlap, other }),
        1 => (any::<u8>(), prop::collection::vec(any::<u8>(), 0..200))
            .prop_map(|(protocol, octets)| Act::Garbage { protocol, octets }),
        1 => (2000..3000_u16).prop_map(|port| Act::Opens { port }),
        2 => (any::<u8>(), any::<u32>(), any::<u32>(), 0..100_usize)
            .prop_map(|(flags, seq, ack, len)| Act::Forges { flags, seq, ack, len }),
        1 => (1..100_u16, 200..2000_u16).prop_map(|(first, step)| Act::ForgesResets { first, step }),
    ]
}

/// The hostile peer's side of a connection.
struct Peer {
    device: Arc<Device>,
    arrived: UnboundedReceiver<Vec<u8>>,
    port: u16,
    /// Of its first octet.
    start: u32,
    /// The number that it expects of the honest end.
    theirs: u32,
    id: u16,
}

impl Peer {
    fn send(&mut self, header: Header, data: &[u8]) {
        self.id = self.id.wrapping_add(1);
        self.device.send(packet(6, self.id, 0x4000, &segment(header, data)));
    }

    fn header(&self, offset: usize, flags: u8) -> Header {
        let seq = self.start.wrapping_add(offset as u32);
        Header { port: self.port, seq, ack: self.theirs, flags, window: 65_535 }
    }

    /// The next segment for its port: flags, sequence and acknowledgment numbers.
    async fn next(&mut self) -> (u8, u32, u32) {
        loop {
            let packet = self.arrived.recv().await.expect("the tunnel is there");
            let tcp = &packet[20.min(packet.len())..];
            if packet[9] != 6 || tcp.len() < 20 || tcp[2..4] != self.port.to_be_bytes() {
                continue;
            }
            let number = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().expect("four"));
            return (tcp[13], number(4), number(8));
        }
    }

    async fn opens(&mut self) {
        let syn = Header { seq: self.start.wrapping_sub(1), ack: 0, ..self.header(0, SYN) };
        self.send(syn, &[]);
        loop {
            let (flags, seq, _) = self.next().await;
            if flags & (SYN | ACK) == SYN | ACK {
                self.theirs = seq.wrapping_add(1);
                break;
            }
        }
        self.send(self.header(0, ACK), &[]);
    }

    fn data(&mut self, from: usize, len: usize) {
        let data: Vec<u8> = (from..LENGTH.min(from + len)).map(octet).collect();
        self.send(self.header(from, ACK), &data);
    }

    fn does(&mut self, act: &Act) {
        match *act {
            Act::Data { from, len } => self.data(from, len),
            Act::Flags { flags, seq, ack, window } => {
                let own = self.header(0, flags);
                let (seq, ack) =
                    (own.seq.wrapping_add_signed(seq), own.ack.wrapping_add_signed(ack));
                self.send(Header { seq, ack, window, ..own }, &[]);
            }
            Act::Resets { first, count } => {
                for number in 0..u32::from(count) {
                    let seq = first.wrapping_add(number.wrapping_mul(65_535));
                    self.send(Header { seq, ..self.header(0, RST) }, &[]);
                }
            }
            Act::Fragments { from, cut, overlap, other } => {
                let data: Vec<u8> = (from..LENGTH.min(from + 600)).map(octet).collect();
                let whole = segment(self.header(from, ACK), &data);
                self.id = self.id.wrapping_add(1);
                let cut = (8 * cut).min(whole.len() / 8 * 8);
                let again = cut.saturating_sub(8 * overlap);
                let mut second = whole[again..].to_vec();
                if other {
                    let changed = (cut - again).min(second.len());
                    second[..changed].iter_mut().for_each(|octet| *octet ^= 0x55);
                }
                self.device.send(packet(6, self.id, 0x2000, &whole[..cut]));
                self.device.send(packet(6, self.id, (again / 8) as u16, &second));
            }
            Act::Garbage { protocol, ref octets } => {
                self.device.send(packet(protocol, 1, 0, octets));
                self.device.send(octets.clone());
            }
            Act::Forges { flags, seq, ack, len } => {
                let header = Header { port: BYSTANDER, seq, ack, flags, window: 0 };
                self.send(header, &vec![0xee; len]);
            }
            Act::ForgesResets { first, step } => {
                for number in (first..WINDOW).step_by(step.into()) {
                    let seq = BYSTANDER_START.wrapping_add(number.into());
                    self.send(Header { port: BYSTANDER, seq, ..self.header(0, RST) }, &[]);
                }
            }
            Act::Opens { port } => {
                let seq = u32::from(port) << 16;
                self.send(Header { port, seq, ..self.header(0, SYN) }, &[]);
            }
        }
    }

    /// Sends everything in order until it is acknowledged, and then the end; stops if the connection is reset.
    async fn completes(&mut self) {
        let mut acknowledged = 0;
        while acknowledged <= LENGTH {
            match LENGTH - acknowledged {
                0 => self.send(self.header(LENGTH, FIN | ACK), &[]),
                left => self.data(acknowledged, left.min(1200)),
            }
            let (flags, _, ack) = self.next().await;
            if flags & RST != 0 {
                break;
            }
            let offset = ack.wrapping_sub(self.start) as usize;
            // An acknowledgment of the end counts one more.
            if offset <= LENGTH + 1 {
                acknowledged = acknowledged.max(offset);
            }
        }
    }
}

async fn stands(acts: Vec<Act>) {
    let (sender, arrived) = unbounded_channel();
    let device = Arc::new(Device { packets: Mutex::default(), arrived: sender });
    let of_hostile = Arc::clone(&device);
    let ends = pair(perfect(), |settings| {
        // Sockets have room for a few connections.
        settings.memory = 16 << 20;
        if settings.seed == 2 {
            settings.device = Some(of_hostile.clone());
        }
    });
    let listener = ends[0].network.listen(SocketAddr::from((HONEST, PORT))).expect("free");
    let (port, start) = (BYSTANDER, BYSTANDER_START);
    let mut peer = Peer { device, arrived, port, start, theirs: 0, id: 0 };
    let (_, accepted) = tokio::join!(peer.opens(), listener.accept());
    let (mut undisturbed, _) = accepted.expect("accepted");
    let of_bystander = peer.theirs;

    (peer.port, peer.start) = (1025, 7_000);
    let (_, accepted) = tokio::join!(peer.opens(), listener.accept());
    let (mut stream, _) = accepted.expect("accepted");
    let reading = tokio::spawn(async move {
        let mut received = Vec::new();
        let ended = stream.read_to_end(&mut received).await;
        (received, ended)
    });
    acts.iter().for_each(|act| peer.does(act));
    peer.completes().await;
    let (received, ended) = reading.await.expect("no panic");
    let expected: Vec<u8> = (0..received.len()).map(octet).collect();
    assert!(received == expected, "{} octets are not those of the stream", received.len());
    assert!(ended.is_err() || received.len() == LENGTH, "the end after {}", received.len());

    (peer.port, peer.start, peer.theirs) = (BYSTANDER, BYSTANDER_START, of_bystander);
    let mut received = Vec::new();
    let (_, ended) = tokio::join!(peer.completes(), undisturbed.read_to_end(&mut received));
    ended.expect("nobody else ends it");
    let expected: Vec<u8> = (0..LENGTH).map(octet).collect();
    assert!(received == expected, "{} octets of the bystander", received.len());

    // Others are served as before.
    peer.port = 1026;
    peer.start = 1 << 31;
    let (_, accepted) = tokio::join!(peer.opens(), async {
        loop {
            let (stream, from) = listener.accept().await.expect("accepted");
            if from.port() == 1026 {
                break stream;
            }
        }
    });
    let mut stream = accepted;
    let mut received = Vec::new();
    let (_, ended) = tokio::join!(peer.completes(), stream.read_to_end(&mut received));
    ended.expect("in order");
    assert_eq!(received.len(), LENGTH);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(32)
    ))]

    #[test]
    fn a_hostile_peer_harms_only_itself(acts in prop::collection::vec(act(), 0..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let ended = runtime.expect("a runtime").block_on(async {
            tokio::time::timeout(PATIENCE, stands(acts)).await
        });
        prop_assert!(ended.is_ok(), "it hangs");
    }
}
