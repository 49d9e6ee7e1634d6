//! Two datapaths back to back.

use super::*;
use crate::filter::Filter;
use crate::gso::PartialChecksum;
use crate::ip::{TCP, UDP};
use crate::path_mtu::{Df, Outer};
use crate::plane::{
    DataPlane, Encapsulation, Filtering, InboundSa, Limits, ManualKeying, OutboundSa, Path,
    PathMtu, PlaneError, ReplayCounters, Rule, RuleId, TrafficSelectors,
};
use crate::queue::{Coalesce, RUN_OCTETS, RUN_PACKETS};
use crate::sample::{self, ACK, checksums_hold};
use crypto::{Provider, Suite};
use policy::{AddressRange, Integrity, KeyBits, Mode, PortRange, Secret, Selector};
use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};

mod authentication;
mod cost;
mod early;
mod families;
mod fit_to_mtu;
mod flows;
mod foreign;
mod fragments;
mod frozen;
mod hostile;
mod limits;
mod look_up;
mod path;
mod providers;
mod published;
mod removal;
mod rules;
mod scapy;
mod stages;
mod trace;

const RULE: RuleId = RuleId(1);
const OUT: SaId = SaId(1);
const IN: SaId = SaId(2);
const SPI: u32 = 0x1000_0001;

const SUITES: [Suite; 16] = [
    Suite::AesGcm16(KeyBits::B128),
    Suite::AesGcm16(KeyBits::B192),
    Suite::AesGcm16(KeyBits::B256),
    Suite::AesCbcMac(KeyBits::B128, Integrity::HmacSha1_96),
    Suite::AesCbcMac(KeyBits::B192, Integrity::HmacSha2_256_128),
    Suite::AesCbcMac(KeyBits::B256, Integrity::HmacSha2_256_128),
    Suite::AesCbcMac(KeyBits::B256, Integrity::HmacSha2_384_192),
    Suite::AesCbcMac(KeyBits::B256, Integrity::HmacSha2_512_256),
    Suite::ChaCha20Poly1305,
    Suite::AesGmac(KeyBits::B128),
    Suite::AesGmac(KeyBits::B192),
    Suite::AesGmac(KeyBits::B256),
    Suite::NullMac(Integrity::HmacSha1_96),
    Suite::NullMac(Integrity::HmacSha2_256_128),
    Suite::NullMac(Integrity::HmacSha2_384_192),
    Suite::NullMac(Integrity::HmacSha2_512_256),
];

const GCM: Suite = SUITES[0];

fn everything() -> Vec<Selector> {
    let range = |start: IpAddr, end: IpAddr| AddressRange::new(start, end).expect("ordered");
    vec![
        Selector::all_of(range([0; 4].into(), [255; 4].into())),
        Selector::all_of(range([0u16; 8].into(), [0xffff; 8].into())),
    ]
}

fn between_any() -> TrafficSelectors {
    TrafficSelectors { local: everything(), remote: everything() }
}

/// The parameters of an SA pair.
#[derive(Clone, Copy, Debug)]
struct Kind {
    suite: Suite,
    mode: Mode,
    encapsulation: Encapsulation,
    esn: bool,
    ipv6: bool,
}

impl Kind {
    const PLAIN: Self = Self {
        suite: GCM,
        mode: Mode::Tunnel,
        encapsulation: Encapsulation::Udp,
        esn: false,
        ipv6: false,
    };

    /// The path as the sender has it. In transport mode the gateways are the hosts of the samples.
    fn path(self) -> Path {
        let (local, remote) = match self.mode {
            Mode::Transport => sample::hosts(self.ipv6),
            Mode::Tunnel if self.ipv6 => {
                ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(), [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2].into())
            }
            Mode::Tunnel => ([192, 0, 2, 1].into(), [192, 0, 2, 2].into()),
        };
        Path {
            local: SocketAddr::new(local, 4500),
            remote: SocketAddr::new(remote, 4500),
            encapsulation: self.encapsulation,
        }
    }

    fn key(self) -> Secret {
        Secret::new((0..self.suite.key_material_len()).map(|i| i as u8 ^ 0x5a).collect())
    }

    fn outbound(self) -> OutboundSa {
        OutboundSa {
            id: OUT,
            rule: RULE,
            spi: Spi(SPI),
            suite: self.suite,
            key: self.key(),
            esn: self.esn,
            mode: self.mode,
            path: self.path(),
            selectors: between_any().into(),
            limits: Limits::default(),
            standby: false,
        }
    }

    fn inbound(self) -> InboundSa {
        InboundSa {
            id: IN,
            rule: RULE,
            spi: Spi(SPI),
            suite: self.suite,
            key: self.key(),
            esn: self.esn,
            replay_window: 64,
            mode: self.mode,
            path: mirrored(self.path()),
            selectors: between_any().into(),
            limits: Limits::default(),
        }
    }

    fn arrival(self) -> Arrival {
        Arrival { path: mirrored(self.path()), tos: None, ttl: None }
    }
}

fn mirrored(path: Path) -> Path {
    Path { local: path.remote, remote: path.local, encapsulation: path.encapsulation }
}

fn rule(trap: bool) -> Rule {
    Rule { id: RULE, tunnel: "branch".into(), selectors: between_any(), trap }
}

/// A sender, a receiver, and what is between them.
struct Pair {
    kind: Kind,
    now: Instant,
    sender: Datapath,
    receiver: Datapath,
    /// Kept from packet to packet: its memory must never show.
    way_out: Mutex<Sender>,
}

impl Pair {
    fn new(kind: Kind) -> Self {
        Self::with(kind, kind.outbound(), kind.inbound())
    }

    fn with(kind: Kind, outbound: OutboundSa, inbound: InboundSa) -> Self {
        let now = Instant::now();
        let mut sender = Datapath::new(Settings::default(), now);
        let mut receiver = Datapath::new(Settings::default(), now);
        sender.add_rule(rule(false)).expect("a new rule");
        sender.add_outbound(outbound).expect("a new SA");
        receiver.add_inbound(inbound).expect("a new SA");
        Self { kind, now, way_out: Mutex::new(sender.sender()), sender, receiver }
    }

    /// Has another datapath send.
    fn send_by(&mut self, sender: Datapath) {
        self.way_out = Mutex::new(sender.sender());
        self.sender = sender;
    }

    fn protect(&self, packet: &[u8]) -> Result<Vec<u8>, Discard> {
        let mut packets = self.protect_all(packet, Gso::NONE)?;
        assert_eq!(packets.len(), 1);
        Ok(packets.remove(0))
    }

    fn protect_all(&self, packet: &[u8], gso: Gso) -> Result<Vec<Vec<u8>>, Discard> {
        let mut queue = SendQueue::new(0);
        let mut way_out = lock(&self.way_out);
        way_out.encapsulate(self.now, &mut packet.to_vec(), gso, &mut queue)?;
        Ok(datagrams(&queue))
    }

    fn open(&self, datagram: &[u8]) -> Result<Vec<u8>, Discard> {
        self.open_from(datagram, self.kind.arrival())
    }

    fn open_from(&self, datagram: &[u8], arrival: Arrival) -> Result<Vec<u8>, Discard> {
        let mut queue = ReceiveQueue::new(0, Coalesce::default());
        match self.kind.encapsulation {
            Encapsulation::Ah => {
                let cut = crate::ah::split(datagram).expect("headers before AH");
                self.receiver.decapsulate_ah(self.now, cut, arrival, &mut queue)?;
            }
            _ => self.receiver.decapsulate(self.now, datagram, arrival, &mut queue)?,
        }
        let (packet, gso) = queue.packets().next().expect("what was accepted");
        assert_eq!(gso, Gso::NONE);
        Ok(packet.to_vec())
    }

    fn outbound(&self) -> Arc<Outbound> {
        match lock(&self.sender.0.installed).get(&OUT) {
            Some(Installed::Outbound { sa, .. }) => Arc::clone(sa),
            _ => panic!("no outbound SA"),
        }
    }

    fn inbound(&self) -> Arc<Inbound> {
        Arc::clone(&self.receiver.0.sad(self.kind.suite).find_any(Spi(SPI)).expect("an inbound SA"))
    }

    fn count(&self, discard: Discard) -> u64 {
        self.sender.counters()[discard.name()] + self.receiver.counters()[discard.name()]
    }
}

/// Every packet of every run.
fn datagrams(queue: &SendQueue) -> Vec<Vec<u8>> {
    let runs = queue.runs().iter();
    runs.flat_map(|run| queue.octets(run).chunks(run.segment_len).map(<[u8]>::to_vec)).collect()
}

/// IPv4's checksum and identification belong to each node on the way; in transport mode a new header is made.
fn upper_layer(packet: &[u8]) -> (IpAddr, IpAddr, u8, Vec<u8>) {
    let header = Header::parse(packet).expect("a whole packet");
    assert_eq!(header.len, packet.len());
    (header.source(), header.destination(), header.protocol, packet[header.transport..].to_vec())
}

#[test]
fn every_kind_of_sa_round_trips() {
    for suite in SUITES {
        for mode in [Mode::Tunnel, Mode::Transport] {
            for encapsulation in [Encapsulation::Native, Encapsulation::Udp] {
                for (esn, ipv6, inner_ipv6) in [
                    (false, false, false),
                    (true, false, true),
                    (false, true, false),
                    (true, true, true),
                    (true, false, false),
                    (false, true, true),
                ] {
                    let kind = Kind { suite, mode, encapsulation, esn, ipv6 };
                    let pair = Pair::new(kind);
                    let inner_ipv6 = if mode == Mode::Transport { ipv6 } else { inner_ipv6 };
                    for len in (0..70).chain([1399, 1400, 8999]) {
                        let packet = sample::udp(inner_ipv6, (4000, 53), &sample::payload(len));
                        let sealed = pair.protect(&packet).expect("an SA serves it");
                        assert!(sealed.len().is_multiple_of(4));
                        let grown = crate::encap::overhead(suite, mode, encapsulation, ipv6)
                            - if mode == Mode::Tunnel {
                                crate::encap::outer_header_len(ipv6)
                            } else {
                                0
                            }
                            - if encapsulation == Encapsulation::Udp { 8 } else { 0 };
                        let plain = match mode {
                            Mode::Tunnel => packet.len(),
                            Mode::Transport => packet.len() - crate::encap::outer_header_len(ipv6),
                        };
                        assert!(sealed.len() <= plain + grown, "{kind:?} {len}");
                        let opened = pair.open(&sealed).expect("authentic");
                        match mode {
                            Mode::Tunnel => assert_eq!(opened, packet, "{kind:?} {len}"),
                            Mode::Transport => {
                                assert_eq!(upper_layer(&opened), upper_layer(&packet), "{kind:?}");
                                assert!(checksums_hold(&opened));
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn super_packets_leave_in_runs_and_arrive_whole() {
    for tcp in [true, false] {
        let kind = Kind { esn: true, ..Kind::PLAIN };
        let pair = Pair::new(kind);
        let data = sample::payload(if tcp { 60_000 } else { 40_000 });
        let packet = if tcp {
            sample::tcp(false, 7, ACK, &[1; 12], &data)
        } else {
            sample::udp(false, (1, 2), &data)
        };
        let gso = Gso {
            segmentation: if tcp { Segmentation::Tcp } else { Segmentation::Udp },
            segment_len: 1348,
            header_len: 0,
            checksum: Some(PartialChecksum { start: 20, offset: if tcp { 16 } else { 6 } }),
            checksum_verified: false,
        };
        let mut queue = SendQueue::new(1 << 18);
        pair.sender.encapsulate(pair.now, &mut packet.clone(), gso, &mut queue).expect("an SA");
        assert_eq!(queue.runs().len(), 1);
        assert_eq!(datagrams(&queue).len(), data.len().div_ceil(1348));
        assert!(queue.runs()[0].range.len() <= RUN_OCTETS);
        assert_eq!(queue.runs()[0].tos, packet[1]);

        let mut received = ReceiveQueue::new(1 << 18, Coalesce { tcp: true, udp: true });
        let run = &queue.runs()[0];
        let accepted = pair.receiver.decapsulate_run(
            pair.now,
            queue.octets(run),
            run.segment_len,
            kind.arrival(),
            &mut received,
        );
        assert_eq!(accepted, data.len().div_ceil(1348));
        let packets: Vec<_> = received.packets().collect();
        assert_eq!(packets.len(), 1);
        let header_len = packet.len() - data.len();
        assert!(packets[0].0[header_len..] == data);
        assert_eq!(packets[0].1.segment_len, 1348);
        let mut plane = pair.receiver.clone();
        let usage = plane.usage(IN).expect("installed");
        assert_eq!(usage.packets, accepted as u64);
        assert_eq!(usage.last_used, Some(pair.now));
        let mut plane = pair.sender.clone();
        assert_eq!(plane.usage(OUT).expect("installed"), usage);
    }
}

#[test]
fn runs_hold_to_their_limits() {
    let pair = Pair::new(Kind::PLAIN);
    let mut queue = SendQueue::new(0);
    let send = |queue: &mut SendQueue, len: usize, tos: u8, times: usize| {
        for _ in 0..times {
            let mut packet = sample::udp(false, (1, 2), &sample::payload(len));
            crate::ip::set_ecn(&mut packet, tos);
            pair.sender.encapsulate(pair.now, &mut packet, Gso::NONE, queue).expect("an SA");
        }
    };
    send(&mut queue, 10, 0, RUN_PACKETS + 1);
    assert_eq!(queue.runs().len(), 2);
    // A shorter packet ends a run, a longer one or another type of service begins one.
    queue.clear();
    send(&mut queue, 100, 0, 2);
    send(&mut queue, 40, 0, 1);
    send(&mut queue, 40, 0, 1);
    send(&mut queue, 40, 1, 1);
    send(&mut queue, 80, 1, 1);
    let counts: Vec<_> =
        queue.runs().iter().map(|r| r.range.len().div_ceil(r.segment_len)).collect();
    assert_eq!(counts, [3, 1, 1, 1]);
    queue.clear();
    send(&mut queue, 9_000, 0, 8);
    assert!(queue.runs().iter().all(|r| r.range.len() <= RUN_OCTETS));
    assert_eq!(queue.runs().len(), 2);
}
