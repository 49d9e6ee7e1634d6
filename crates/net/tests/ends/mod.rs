//! Two networks in one process, with an SA in each direction between them.

// Each test target uses its part.
#![allow(dead_code)]

use crypto::Suite;
use esp::plane::{
    DataPlane, Encapsulation, InboundSa, Limits, OutboundSa, Path, Rule, RuleId, SaId, Spi,
    TrafficSelectors,
};
use net::datagrams::{Fate, Memory, Wire};
use net::{Hooks, InProcess, Network, Parts, Settings, TcpStream};
use policy::{AddressRange, KeyBits, Mode, Secret, Selector};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SUITE: Suite = Suite::AesGcm16(KeyBits::B128);
/// Far above what an answer takes on a busy host.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub struct End {
    pub plane: InProcess,
    pub network: Network,
    pub outer: SocketAddr,
    pub number: u8,
}

fn range(number: u8, ipv6: bool) -> AddressRange {
    let (start, end): (IpAddr, IpAddr) = match ipv6 {
        false => ([10, number, 0, 0].into(), [10, number, 0, 255].into()),
        true => (
            [0xfd00, number.into(), 0, 0, 0, 0, 0, 0].into(),
            [0xfd00, number.into(), 0, 0, 0xffff, 0xffff, 0xffff, 0xffff].into(),
        ),
    };
    AddressRange::new(start, end).expect("in order")
}

fn selectors(local: u8, remote: u8) -> TrafficSelectors {
    let both = |n| [false, true].map(|ipv6| Selector::all_of(range(n, ipv6))).to_vec();
    TrafficSelectors { local: both(local), remote: both(remote) }
}

impl End {
    pub fn new(
        number: u8,
        datagrams: Memory,
        outer: SocketAddr,
        adapt: impl Fn(&mut Settings),
    ) -> Self {
        let hooks = Hooks { notice: Arc::new(|_| {}), ike: Arc::new(|_| {}) };
        let mut settings = Settings::new(u64::from(number));
        adapt(&mut settings);
        let Parts { plane, network, .. } = Network::start(settings, Arc::new(datagrams), hooks);
        Self { plane, network, outer, number }
    }

    pub fn add_rule(&mut self, peer: &Self) {
        let rule = Rule {
            id: RuleId(1),
            tunnel: "site".into(),
            selectors: selectors(self.number, peer.number),
            trap: false,
        };
        self.plane.add_rule(rule).expect("added");
    }

    pub fn path(&self, peer: &Self) -> Path {
        Path { local: self.outer, remote: peer.outer, encapsulation: Encapsulation::Udp }
    }

    /// SAs of a generation: a rekey adds the next one.
    pub fn receive(&mut self, peer: &Self, generation: u8) {
        let sa = InboundSa {
            id: SaId(u64::from(generation) * 2),
            rule: RuleId(1),
            spi: Spi(0x1000 + u32::from(generation) * 256 + u32::from(self.number)),
            suite: SUITE,
            key: Secret::new(vec![generation; SUITE.key_material_len()]),
            esn: true,
            replay_window: 4096,
            mode: Mode::Tunnel,
            path: self.path(peer),
            selectors: Arc::new(selectors(self.number, peer.number)),
            limits: Limits::default(),
        };
        self.plane.add_inbound(sa).expect("added");
    }

    pub fn send(&mut self, peer: &Self, generation: u8) {
        let sa = OutboundSa {
            id: SaId(u64::from(generation) * 2 + 1),
            rule: RuleId(1),
            spi: Spi(0x1000 + u32::from(generation) * 256 + u32::from(peer.number)),
            suite: SUITE,
            key: Secret::new(vec![generation; SUITE.key_material_len()]),
            esn: true,
            mode: Mode::Tunnel,
            path: self.path(peer),
            selectors: Arc::new(selectors(self.number, peer.number)),
            limits: Limits::default(),
            standby: false,
        };
        self.plane.add_outbound(sa).expect("added");
    }

    pub fn address(&self, ipv6: bool) -> IpAddr {
        let own = self.network.addresses();
        own.into_iter().find(|a| a.is_ipv6() == ipv6).expect("one of each family")
    }
}

/// Two ends without SAs.
pub fn unconnected(wire: Wire, adapt: impl Fn(&mut Settings)) -> [End; 2] {
    let outer = ["192.0.2.1:4500", "192.0.2.2:4500"].map(|a| a.parse().expect("an address"));
    let [one, two] = Memory::pair(outer, wire);
    let mut ends = [End::new(1, one, outer[0], &adapt), End::new(2, two, outer[1], &adapt)];
    let [left, right] = &mut ends;
    left.add_rule(right);
    right.add_rule(left);
    ends
}

pub fn rekey([left, right]: &mut [End; 2], generation: u8) {
    left.receive(right, generation);
    right.receive(left, generation);
    left.send(right, generation);
    right.send(left, generation);
}

pub fn pair(wire: Wire, adapt: impl Fn(&mut Settings)) -> [End; 2] {
    let mut ends = unconnected(wire, adapt);
    rekey(&mut ends, 1);
    ends
}

pub fn perfect() -> Wire {
    Arc::new(|_| Fate::Arrives)
}

/// A wire that harms one datagram in so many, each in its own way.
pub fn faulty(seed: u64, one_in: u64) -> Wire {
    Arc::new(move |number| {
        let mixed = (number ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20;
        match mixed % (one_in * 3) {
            0 => Fate::Lost,
            1 => Fate::Overtaken,
            2 => Fate::Twice,
            _ => Fate::Arrives,
        }
    })
}

pub fn octets(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

pub async fn connected(ends: &[End; 2], ipv6: bool) -> [TcpStream; 2] {
    let listener =
        ends[1].network.listen(SocketAddr::new(ends[1].address(ipv6), 80)).expect("free");
    let (connected, accepted) = tokio::join!(
        ends[0].network.connect_to(SocketAddr::new(ends[1].address(ipv6), 80)),
        listener.accept()
    );
    let (stream, peer) = accepted.expect("accepted");
    let connected = connected.expect("connected");
    assert_eq!(connected.local_addr(), peer);
    assert_eq!(connected.peer_addr(), stream.local_addr());
    [connected, stream]
}

/// Sends octets both ways at once, and compares them.
pub async fn exchange([left, right]: [TcpStream; 2], sizes: [usize; 2]) {
    let [to_right, to_left] = [octets(sizes[0], 3), octets(sizes[1], 5)];
    let both = |stream: TcpStream, sent: Vec<u8>, expected: Vec<u8>| async move {
        let (mut reader, mut writer) = stream.into_split();
        let writes = async {
            writer.write_all(&sent).await.expect("written");
            writer.shutdown().await.expect("shut down");
        };
        let mut received = Vec::new();
        let (_, read) = tokio::join!(writes, reader.read_to_end(&mut received));
        read.expect("read to the end");
        assert!(received == expected, "{} of {} octets", received.len(), expected.len());
    };
    let left = both(left, to_right.clone(), to_left.clone());
    let right = both(right, to_left, to_right);
    tokio::time::timeout(PATIENCE, async { tokio::join!(left, right) }).await.expect("in time");
}
