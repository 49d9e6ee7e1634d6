//! Two datapaths back to back.

use super::*;
use crate::cipher::Suite;
use crate::ip::{TCP, UDP};
use crate::offload::PartialChecksum;
use crate::plane::{Encapsulation, Limits, TrafficSelectors};
use crate::queue::{Coalesce, RUN_OCTETS, RUN_PACKETS};
use crate::sample::{self, ACK, checksums_hold};
use policy::{AddressRange, Integrity, KeyBits, Mode, PortRange, Secret, Selector};
use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};

mod published;

const RULE: RuleId = RuleId(1);
const OUT: SaId = SaId(1);
const IN: SaId = SaId(2);
const SPI: u32 = 0x1000_0001;

const SUITES: [Suite; 8] = [
    Suite::AesGcm16(KeyBits::B128),
    Suite::AesGcm16(KeyBits::B192),
    Suite::AesGcm16(KeyBits::B256),
    Suite::AesCbcHmac(KeyBits::B128, Integrity::HmacSha1_96),
    Suite::AesCbcHmac(KeyBits::B192, Integrity::HmacSha2_256_128),
    Suite::AesCbcHmac(KeyBits::B256, Integrity::HmacSha2_256_128),
    Suite::AesCbcHmac(KeyBits::B256, Integrity::HmacSha2_384_192),
    Suite::AesCbcHmac(KeyBits::B256, Integrity::HmacSha2_512_256),
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

/// What an SA pair is made with.
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
            selectors: between_any(),
            limits: Limits::default(),
            standby: false,
        }
    }

    fn inbound(self) -> InboundSa {
        InboundSa {
            id: IN,
            spi: Spi(SPI),
            suite: self.suite,
            key: self.key(),
            esn: self.esn,
            replay_window: 64,
            mode: self.mode,
            path: mirrored(self.path()),
            selectors: between_any(),
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
        Self { kind, now, sender, receiver }
    }

    fn protect(&self, packet: &[u8]) -> Result<Vec<u8>, Discard> {
        let mut packets = self.protect_all(packet, Offload::NONE)?;
        assert_eq!(packets.len(), 1);
        Ok(packets.remove(0))
    }

    fn protect_all(&self, packet: &[u8], offload: Offload) -> Result<Vec<Vec<u8>>, Discard> {
        let mut queue = SendQueue::new(0);
        self.sender.encapsulate(self.now, &mut packet.to_vec(), offload, &mut queue)?;
        Ok(datagrams(&queue))
    }

    fn open(&self, datagram: &[u8]) -> Result<Vec<u8>, Discard> {
        self.open_from(datagram, self.kind.arrival())
    }

    fn open_from(&self, datagram: &[u8], arrival: Arrival) -> Result<Vec<u8>, Discard> {
        let mut queue = ReceiveQueue::new(0, Coalesce::default());
        self.receiver.decapsulate(self.now, datagram, arrival, &mut queue)?;
        let (packet, offload) = queue.packets().next().expect("what was accepted");
        assert_eq!(offload, Offload::NONE);
        Ok(packet.to_vec())
    }

    fn outbound(&self) -> Arc<Outbound> {
        match lock(&self.sender.0.installed).get(&OUT) {
            Some(Installed::Outbound { sa, .. }) => Arc::clone(sa),
            _ => panic!("no outbound SA"),
        }
    }

    fn inbound(&self) -> Arc<Inbound> {
        self.receiver.0.sad.find(Spi(SPI)).expect("an inbound SA")
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

/// IPv4's checksum and identification belong to each node on the way; in transport mode the header is made anew.
fn upper_layer(packet: &[u8]) -> (IpAddr, IpAddr, u8, Vec<u8>) {
    let header = Header::parse(packet).expect("a whole packet");
    assert_eq!(header.len, packet.len());
    (header.source, header.destination, header.protocol, packet[header.transport..].to_vec())
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
                        assert!(sealed.len() % 4 == 0);
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
        let offload = Offload {
            segmentation: if tcp { Segmentation::Tcp } else { Segmentation::Udp },
            segment_len: 1348,
            header_len: 0,
            checksum: Some(PartialChecksum { start: 20, offset: if tcp { 16 } else { 6 } }),
            checksum_verified: false,
        };
        let mut queue = SendQueue::new(1 << 18);
        pair.sender.encapsulate(pair.now, &mut packet.clone(), offload, &mut queue).expect("an SA");
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
            pair.sender.encapsulate(pair.now, &mut packet, Offload::NONE, queue).expect("an SA");
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

#[test]
fn what_no_rule_covers_is_dropped() {
    let pair = Pair::new(Kind::PLAIN);
    let mut sender = pair.sender.clone();
    sender.remove_rule(RULE);
    assert_eq!(pair.protect(&sample::udp(false, (1, 2), &[])), Err(Discard::NoPolicy));
    sender.add_rule(rule(false)).expect("a new rule");
    // The SA went with its rule: a new one of that name starts without.
    assert_eq!(pair.protect(&sample::udp(false, (1, 2), &[])), Err(Discard::NoSa));
    assert_eq!(pair.protect(&[0x45; 19]), Err(Discard::OutboundMalformed));
    for discard in [Discard::NoPolicy, Discard::NoSa, Discard::OutboundMalformed] {
        assert_eq!(pair.count(discard), 1);
    }
    assert_eq!(pair.sender.counters().values().sum::<u64>(), 3);
}

#[test]
fn the_first_rule_that_covers_decides() {
    let pair = Pair::new(Kind::PLAIN);
    let mut sender = pair.sender.clone();
    let dns = |mut selectors: TrafficSelectors| {
        for selector in &mut selectors.remote {
            selector.protocol = UDP;
            selector.ports = PortRange::new(53, 53).expect("ordered");
        }
        selectors
    };
    let first = Rule { id: RuleId(0), selectors: dns(between_any()), ..rule(false) };
    sender.add_rule(first).expect("a new rule");
    assert_eq!(pair.protect(&sample::udp(false, (1, 53), &[])), Err(Discard::NoSa));
    assert!(pair.protect(&sample::udp(false, (1, 54), &[])).is_ok());
    // A later fragment shows no ports: only the rule for all of them covers it.
    let mut fragment = sample::udp(false, (1, 53), &[0; 16]);
    fragment[6..8].copy_from_slice(&[0, 9]);
    assert!(pair.protect(&fragment).is_ok());
}

#[test]
fn rekeyed_traffic_takes_the_sa_added_or_promoted_last() {
    let pair = Pair::new(Kind::PLAIN);
    let mut sender = pair.sender.clone();
    let spi = |pair: &Pair| {
        let sealed = pair.protect(&sample::udp(false, (1, 2), &[])).expect("an SA");
        u32::from_be_bytes(*sealed.first_chunk().expect("an SPI"))
    };
    let add = |sender: &mut Datapath, id, standby| {
        let sa =
            OutboundSa { id: SaId(id), spi: Spi(id as u32), standby, ..Kind::PLAIN.outbound() };
        sender.add_outbound(sa).expect("a new SA");
    };
    add(&mut sender, 1001, true);
    assert_eq!(spi(&pair), SPI);
    sender.promote(SaId(1001)).expect("installed");
    assert_eq!(spi(&pair), 1001);
    add(&mut sender, 1002, false);
    assert_eq!(spi(&pair), 1002);
    sender.promote(SaId(1001)).expect("installed");
    assert_eq!(spi(&pair), 1001);
    sender.remove(SaId(1001));
    assert_eq!(spi(&pair), 1002);
    sender.remove(SaId(1002));
    assert_eq!(spi(&pair), SPI);
    sender.remove(OUT);
    assert_eq!(pair.protect(&sample::udp(false, (1, 2), &[])), Err(Discard::NoSa));
    assert_eq!(sender.promote(OUT), Err(PlaneError::NoSuchSa(OUT)));
    assert_eq!(sender.usage(OUT), None);
}

#[test]
fn an_sa_carries_only_its_own_selectors() {
    let mut outbound = Kind::PLAIN.outbound();
    for selector in &mut outbound.selectors.local {
        selector.protocol = TCP;
    }
    let pair = Pair::with(Kind::PLAIN, outbound, Kind::PLAIN.inbound());
    assert_eq!(pair.protect(&sample::udp(false, (1, 2), &[])), Err(Discard::NoSa));
    assert!(pair.protect(&sample::tcp(false, 1, ACK, &[], &[])).is_ok());
}

#[test]
fn traffic_outside_the_selectors_is_refused_after_it_was_opened() {
    let mut inbound = Kind::PLAIN.inbound();
    let (peer, _) = sample::hosts(false);
    inbound.selectors.remote = vec![Selector {
        protocol: UDP,
        addresses: AddressRange::from(peer),
        ports: PortRange::new(1000, 2000).expect("ordered"),
    }];
    let pair = Pair::with(Kind::PLAIN, Kind::PLAIN.outbound(), inbound);
    let sealed = pair.protect(&sample::udp(false, (1000, 7), &[])).expect("an SA");
    assert!(pair.open(&sealed).is_ok());
    for packet in [
        sample::udp(false, (999, 7), &[]),
        sample::udp(true, (1000, 7), &[]),
        sample::tcp(false, 1, ACK, &[], &[]),
    ] {
        let sealed = pair.protect(&packet).expect("an SA");
        assert_eq!(pair.open(&sealed), Err(Discard::Selectors));
        // It was authentic, so that its number is used.
        assert_eq!(pair.open(&sealed), Err(Discard::Replayed));
    }
    let usage = pair.receiver.clone().usage(IN).expect("installed");
    assert_eq!((usage.packets, usage.refused), (1, 6));
}

#[test]
fn transport_mode_takes_off_only_a_plain_header_of_its_own() {
    let kind = Kind { mode: Mode::Transport, ..Kind::PLAIN };
    let pair = Pair::new(kind);
    let good = sample::udp(false, (1, 2), &[0; 16]);
    assert!(pair.protect(&good).is_ok());
    let mut fragment = good.clone();
    fragment[6] = 0x20;
    assert_eq!(pair.protect(&fragment), Err(Discard::TransportFragment));
    let mut options = good.clone();
    options[0] = 0x46;
    assert_eq!(pair.protect(&options), Err(Discard::TransportHeader));
    let mut elsewhere = good.clone();
    elsewhere[19] ^= 1;
    assert_eq!(pair.protect(&elsewhere), Err(Discard::TransportHeader));
    let mut forwarded = good;
    forwarded[15] ^= 1;
    assert_eq!(pair.protect(&forwarded), Err(Discard::TransportHeader));
}

#[test]
fn checksums_that_a_nat_broke_are_repaired() {
    for ipv6 in [false, true] {
        let kind = Kind { mode: Mode::Transport, ipv6, ..Kind::PLAIN };
        let pair = Pair::new(kind);
        let mut arrival = kind.arrival();
        let outside: IpAddr =
            if ipv6 { [0xfd0f, 0, 0, 0, 0, 0, 0, 9].into() } else { [203, 0, 113, 9].into() };
        arrival.path.remote = SocketAddr::new(outside, 31_000);
        for packet in [
            sample::udp(ipv6, (1, 2), &sample::payload(33)),
            sample::tcp(ipv6, 1, ACK, &[], &sample::payload(34)),
        ] {
            let opened = pair.open_from(&pair.protect(&packet).expect("an SA"), arrival);
            let opened = opened.expect("authentic");
            assert!(checksums_hold(&opened));
            assert_eq!(upper_layer(&opened).0, outside);
        }
        let moved = Notice::PeerMoved { sa: IN, remote: arrival.path.remote };
        assert_eq!(pair.receiver.take_notices(), [moved]);
    }
}

#[test]
fn congestion_marks_leave_the_tunnel() {
    let pair = Pair::new(Kind::PLAIN);
    let marked = Arrival { tos: Some(3), ..Kind::PLAIN.arrival() };
    let packet = sample::udp(false, (1, 2), &[]);
    let opened = pair.open_from(&pair.protect(&packet).expect("an SA"), marked);
    let opened = opened.expect("authentic");
    assert_eq!((packet[1], opened[1]), (2, 3));
    assert!(checksums_hold(&opened));
    let mut deaf = packet;
    crate::ip::set_ecn(&mut deaf, 0);
    let sealed = pair.protect(&deaf).expect("an SA");
    assert_eq!(pair.open_from(&sealed, marked), Err(Discard::Congestion));
}

#[test]
fn syns_are_held_to_the_inner_mtu_both_ways() {
    let now = Instant::now();
    let kind = Kind::PLAIN;
    let inner = crate::encap::inner_mtu(1400, kind.suite, kind.mode, kind.encapsulation, false);
    for (sender_mtu, receiver_mtu) in [(1400, 9000), (9000, 1400)] {
        let datapath =
            |outer_mtu| Datapath::new(Settings { outer_mtu, ..Settings::default() }, now);
        let (mut sender, mut receiver) = (datapath(sender_mtu), datapath(receiver_mtu));
        sender.add_rule(rule(false)).expect("a new rule");
        sender.add_outbound(kind.outbound()).expect("a new SA");
        receiver.add_inbound(kind.inbound()).expect("a new SA");
        let pair = Pair { kind, now, sender, receiver };
        let syn = sample::tcp(false, 1, 0x02, &[2, 4, 0x23, 0x28], &[]);
        let opened = pair.open(&pair.protect(&syn).expect("an SA")).expect("authentic");
        assert_eq!(usize::from(u16::from_be_bytes([opened[42], opened[43]])), inner - 40);
        assert!(checksums_hold(&opened));
    }
}

/// Seals octets that no sender of ours would make.
fn sealed_by_hand(kind: Kind, sequence: u64, plaintext: &[u8]) -> Vec<u8> {
    let cipher = Provider::AwsLc.cipher(kind.suite, &kind.key()).expect("it has the suite");
    let mut out = vec![0; 8 + kind.suite.iv_len() + plaintext.len() + kind.suite.icv_len()];
    out[..4].copy_from_slice(&SPI.to_be_bytes());
    out[4..8].copy_from_slice(&(sequence as u32).to_be_bytes());
    let aad = crate::cipher::Aad::Esp { spi: SPI, sequence, esn: kind.esn };
    cipher.seal(&sequence.to_be_bytes(), aad, plaintext, &[], &mut out[8..]);
    out
}

#[test]
fn trailers_are_checked() {
    let pair = Pair::new(Kind::PLAIN);
    let packet = sample::udp(false, (1, 2), &[5; 4]);
    let sealed = |sequence, tail: &[u8]| {
        sealed_by_hand(Kind::PLAIN, sequence, &[&packet[..], tail].concat())
    };
    assert_eq!(pair.open(&sealed(1, &[1, 2, 2, 4])), Ok(packet.clone()));
    // Padding for traffic flow confidentiality comes before the padding proper.
    assert_eq!(pair.open(&sealed(2, &[9, 9, 9, 9, 1, 2, 2, 4])), Ok(packet.clone()));
    assert_eq!(pair.open(&sealed(3, &[1, 3, 2, 4])), Err(Discard::Padding));
    assert_eq!(pair.open(&sealed(4, &[0, 0, 255, 4])), Err(Discard::Padding));
    assert_eq!(pair.open(&sealed(5, &[1, 2, 2, 59])), Err(Discard::Dummy));
    assert_eq!(pair.open(&sealed(6, &[1, 2, 2, 41])), Err(Discard::InboundMalformed));
    assert_eq!(pair.open(&sealed(7, &[1, 2, 2, 6])), Err(Discard::NextHeader));
    assert_eq!(pair.open(&sealed_by_hand(Kind::PLAIN, 8, &[0])), Err(Discard::InboundTruncated));
    assert_eq!(pair.open(&sealed_by_hand(Kind::PLAIN, 9, &[0, 4])), Err(Discard::InboundMalformed));
    assert_eq!(pair.open(&[0, 0, 0]), Err(Discard::InboundTruncated));
    assert_eq!(pair.open(&[0; 100]), Err(Discard::UnknownSpi));
    let refused = pair.receiver.clone().usage(IN).expect("installed").refused;
    assert_eq!(refused, 6);
    assert_eq!(pair.receiver.counters().values().sum::<u64>(), 9);
}

#[test]
fn sequence_numbers_end_and_never_begin_anew() {
    let pair = Pair::new(Kind::PLAIN);
    let packet = sample::udp(false, (1, 2), &[]);
    let soft = Notice::Expiring { sa: OUT, hard: false };
    let hard = Notice::Expiring { sa: OUT, hard: true };
    pair.outbound().set_sequence(u64::from(u32::MAX) - (1 << 29) - 2);
    pair.protect(&packet).expect("far from the end");
    assert_eq!(pair.sender.take_notices(), []);
    pair.protect(&packet).expect("near the end");
    pair.protect(&packet).expect("near the end");
    assert_eq!(pair.sender.take_notices(), [soft]);

    pair.outbound().set_sequence(u64::from(u32::MAX) - 1);
    let last = pair.protect(&packet).expect("the last one");
    assert_eq!(last[4..8], [0xff; 4]);
    for _ in 0..3 {
        assert_eq!(pair.protect(&packet), Err(Discard::OutboundExhausted));
    }
    assert_eq!(pair.sender.take_notices(), [hard]);
    assert_eq!(pair.sender.clone().usage(OUT).expect("installed").refused, 3);
}

#[test]
fn extended_sequence_numbers_go_on() {
    let kind = Kind { esn: true, ..Kind::PLAIN };
    let pair = Pair::new(kind);
    pair.outbound().set_sequence(u64::from(u32::MAX) - 3);
    let packet = sample::udp(false, (1, 2), &[]);
    let mut sealed: Vec<_> = (0..6).map(|_| pair.protect(&packet).expect("no end")).collect();
    assert_eq!(sealed[5][4..8], [0, 0, 0, 2]);
    // In another order, and each only once.
    sealed.swap(2, 5);
    for datagram in &sealed {
        assert_eq!(pair.open(datagram).as_ref(), Ok(&packet));
        assert_eq!(pair.open(datagram), Err(Discard::Replayed));
    }
    assert_eq!(pair.sender.take_notices(), []);
}

#[test]
fn volume_limits_hold_both_ways() {
    let limits = Limits { soft_bytes: Some(100), hard_bytes: Some(150) };
    let outbound = OutboundSa { limits, ..Kind::PLAIN.outbound() };
    let pair = Pair::with(Kind::PLAIN, outbound, Kind::PLAIN.inbound());
    let packet = sample::udp(false, (1, 2), &[0; 22]);
    let inbound = InboundSa { limits, ..Kind::PLAIN.inbound() };
    let other = Pair::with(Kind::PLAIN, Kind::PLAIN.outbound(), inbound);
    for sent in 1..=5 {
        let sealed = pair.protect(&packet);
        let opened = other.open(&other.protect(&packet).expect("no limit"));
        if sent > 3 {
            assert_eq!(sealed, Err(Discard::OutboundExhausted));
            assert_eq!(opened, Err(Discard::InboundExhausted));
        } else {
            assert!(sealed.is_ok() && opened.is_ok());
        }
    }
    let notices = |sa| [Notice::Expiring { sa, hard: false }, Notice::Expiring { sa, hard: true }];
    assert_eq!(pair.sender.take_notices(), notices(OUT));
    assert_eq!(other.receiver.take_notices(), notices(IN));
}

#[test]
fn a_moved_peer_is_reported_once_per_place() {
    let pair = Pair::new(Kind::PLAIN);
    let packet = sample::udp(false, (1, 2), &[]);
    let elsewhere = |port| {
        let mut arrival = Kind::PLAIN.arrival();
        arrival.path.remote = SocketAddr::from(([198, 51, 100, 7], port));
        arrival
    };
    let late = pair.protect(&packet).expect("an SA");
    let mut forged = pair.protect(&packet).expect("an SA");
    forged[20] ^= 1;
    let send = |arrival| pair.open_from(&pair.protect(&packet).expect("an SA"), arrival);
    assert_eq!(pair.open_from(&forged, elsewhere(1)), Err(Discard::Forged));
    assert_eq!(pair.receiver.take_notices(), []);
    send(elsewhere(1)).expect("authentic");
    send(elsewhere(1)).expect("authentic");
    let moved = |port| Notice::PeerMoved { sa: IN, remote: elsewhere(port).path.remote };
    assert_eq!(pair.receiver.take_notices(), [moved(1)]);
    // An older packet that was overtaken says nothing about now.
    pair.open_from(&late, elsewhere(2)).expect("authentic");
    assert_eq!(pair.receiver.take_notices(), []);
    let mut receiver = pair.receiver.clone();
    receiver.relocate(IN, elsewhere(1).path).expect("installed");
    send(elsewhere(1)).expect("authentic");
    assert_eq!(receiver.take_notices(), []);
    send(elsewhere(3)).expect("authentic");
    assert_eq!(receiver.take_notices(), [moved(3)]);
}

#[test]
fn relocated_sas_send_to_the_new_place() {
    let pair = Pair::new(Kind::PLAIN);
    let mut path = Kind::PLAIN.path();
    path.remote = SocketAddr::from(([198, 51, 100, 7], 7));
    pair.sender.clone().relocate(OUT, path).expect("installed");
    let mut queue = SendQueue::new(0);
    let mut packet = sample::udp(false, (1, 2), &[]);
    pair.sender.encapsulate(pair.now, &mut packet, Offload::NONE, &mut queue).expect("an SA");
    assert_eq!(queue.runs()[0].path, path);
}

#[test]
fn names_and_spis_are_unique() {
    let pair = Pair::new(Kind::PLAIN);
    let (mut sender, mut receiver) = (pair.sender.clone(), pair.receiver.clone());
    let again = InboundSa { id: SaId(9), ..Kind::PLAIN.inbound() };
    assert_eq!(receiver.add_inbound(again), Err(PlaneError::SpiInUse(Spi(SPI))));
    let again = InboundSa { spi: Spi(SPI + 1), ..Kind::PLAIN.inbound() };
    assert!(matches!(receiver.add_inbound(again), Err(PlaneError::System { .. })));
    let reserved = InboundSa { id: SaId(9), spi: Spi(255), ..Kind::PLAIN.inbound() };
    assert!(matches!(receiver.add_inbound(reserved), Err(PlaneError::System { .. })));
    let reserved = OutboundSa { id: SaId(9), spi: Spi(0), ..Kind::PLAIN.outbound() };
    assert!(matches!(sender.add_outbound(reserved), Err(PlaneError::System { .. })));
    let ruleless = OutboundSa { id: SaId(9), rule: RuleId(9), ..Kind::PLAIN.outbound() };
    assert_eq!(sender.add_outbound(ruleless), Err(PlaneError::NoSuchRule(RuleId(9))));
    receiver.remove(IN);
    assert_eq!(
        pair.open(&pair.protect(&sample::udp(false, (1, 2), &[])).expect("an SA")),
        Err(Discard::UnknownSpi)
    );
    receiver.add_inbound(Kind::PLAIN.inbound()).expect("free again");
}

#[test]
fn a_trap_asks_for_an_sa_and_keeps_packets_until_it_comes() {
    let now = Instant::now();
    let released = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let seen = Arc::clone(&released);
    let on_release: Arc<dyn Fn() + Send + Sync> =
        Arc::new(move || _ = seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let settings = Settings { on_release: Some(on_release), ..Settings::default() };
    let mut datapath = Datapath::new(settings, now);
    datapath.add_rule(rule(true)).expect("a new rule");
    let mut queue = SendQueue::new(0);
    let send = |after: Duration, len: usize, queue: &mut SendQueue| {
        let mut packet = sample::udp(false, (1, 2), &sample::payload(len));
        datapath.encapsulate(now + after, &mut packet, Offload::NONE, queue)
    };
    let second = Duration::from_secs(1);
    // One that will be too old, then as many as are kept.
    assert_eq!(send(Duration::ZERO, 1, &mut queue), Ok(()));
    assert_eq!(send(second / 2, 1, &mut queue), Ok(()));
    assert_eq!(datapath_notices(&datapath), 1);
    for i in 0..32 {
        assert_eq!(send(second * 11, i, &mut queue), Ok(()));
    }
    assert_eq!(datapath_notices(&datapath), 1);
    assert_eq!(send(second * 11, 1, &mut queue), Err(Discard::HoldFull));
    assert_eq!(datapath.counters()["hold_expired"], 2);
    assert!(queue.is_empty());

    datapath.flush_held(now + second * 11, &mut queue);
    assert!(queue.is_empty());
    let mut plane = datapath.clone();
    plane.add_outbound(OutboundSa { standby: true, ..Kind::PLAIN.outbound() }).expect("new");
    assert_eq!(released.load(std::sync::atomic::Ordering::Relaxed), 0);
    plane.promote(OUT).expect("installed");
    assert_eq!(released.load(std::sync::atomic::Ordering::Relaxed), 1);
    datapath.flush_held(now + second * 12, &mut queue);
    let sent = datagrams(&queue);
    assert_eq!(sent.len(), 32);
    // In the order they came.
    for (i, datagram) in sent.iter().enumerate() {
        assert_eq!(datagram[4..8], (i as u32 + 1).to_be_bytes());
    }
    datapath.flush_held(now + second * 12, &mut queue);
    assert_eq!(datagrams(&queue).len(), 32);
}

fn datapath_notices(datapath: &Datapath) -> usize {
    let notices = datapath.take_notices();
    assert!(
        notices
            .iter()
            .all(|n| matches!(n, Notice::Acquire { rule: RULE, packet } if packet.protocol == UDP))
    );
    notices.len()
}

#[test]
fn packets_kept_too_long_or_for_a_rule_that_goes_are_dropped() {
    let now = Instant::now();
    let mut datapath = Datapath::new(Settings::default(), now);
    datapath.add_rule(rule(true)).expect("a new rule");
    let mut queue = SendQueue::new(0);
    let mut packet = sample::udp(false, (1, 2), &[]);
    datapath.encapsulate(now, &mut packet, Offload::NONE, &mut queue).expect("kept");
    datapath.add_outbound(Kind::PLAIN.outbound()).expect("new");
    datapath.flush_held(now + Duration::from_secs(60), &mut queue);
    assert!(queue.is_empty());
    assert_eq!(datapath.counters()["hold_expired"], 1);
    datapath.remove(OUT);
    datapath.encapsulate(now, &mut packet, Offload::NONE, &mut queue).expect("kept");
    datapath.remove_rule(RULE);
    assert_eq!(datapath.counters()["no_policy"], 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is done to a packet without the key changes nothing at the receiver, and the packet itself still
    /// passes afterwards.
    #[test]
    fn hostile_datagrams_change_nothing(
        suite in 0..SUITES.len(), esn: bool, transport: bool, len in 0..300usize,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0..8u8), 1..40),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 1..20),
        junk: Vec<u8>,
    ) {
        let mode = if transport { Mode::Transport } else { Mode::Tunnel };
        let kind = Kind { suite: SUITES[suite], esn, mode, ..Kind::PLAIN };
        let pair = Pair::new(kind);
        let packet = sample::udp(false, (1, 2), &sample::payload(len));
        let seen = pair.protect(&packet).expect("an SA");
        pair.open(&seen).expect("authentic");
        let fresh = pair.protect(&packet).expect("an SA");
        let before = pair.inbound().snapshot();

        let mut queue = ReceiveQueue::new(0, Coalesce { tcp: true, udp: true });
        let mut hostile = vec![seen, junk.clone(), [&SPI.to_be_bytes()[..], &junk].concat()];
        for (index, bit) in flips {
            let mut datagram = fresh.clone();
            datagram[index.index(fresh.len())] ^= 1 << bit;
            hostile.push(datagram);
        }
        hostile.extend(cuts.iter().map(|cut| fresh[..cut.index(fresh.len())].to_vec()));
        for datagram in &hostile {
            prop_assert!(pair.receiver.decapsulate(pair.now, datagram, kind.arrival(), &mut queue).is_err());
        }
        prop_assert!(queue.is_empty());
        prop_assert_eq!(pair.inbound().snapshot(), before);
        prop_assert_eq!(pair.receiver.counters().values().sum::<u64>(), hostile.len() as u64);
        prop_assert!(pair.receiver.take_notices().is_empty());
        prop_assert!(pair.open(&fresh).is_ok());
    }

    /// A forged packet in the middle of a super-packet being put together leaves no mark on it.
    #[test]
    fn forgeries_between_segments_leave_the_super_packet_alone(at in 0..9usize, flip: prop::sample::Index) {
        let pair = Pair::new(Kind::PLAIN);
        let data = sample::payload(9 * 500);
        let packet = sample::tcp(false, 7, ACK, &[1; 12], &data);
        let offload = Offload { segmentation: Segmentation::Tcp, segment_len: 500, ..Offload::NONE };
        let mut sent = pair.protect_all(&packet, offload).expect("an SA");
        let mut forged = sent[at].clone();
        let flip = 8 + flip.index(forged.len() - 8);
        forged[flip] ^= 0x40;
        sent.insert(at, forged);
        let mut queue = ReceiveQueue::new(0, Coalesce { tcp: true, udp: true });
        for datagram in &sent {
            _ = pair.receiver.decapsulate(pair.now, datagram, Kind::PLAIN.arrival(), &mut queue);
        }
        let packets: Vec<_> = queue.packets().collect();
        prop_assert_eq!(packets.len(), 1);
        prop_assert!(packets[0].0[52..] == data);
        prop_assert_eq!(pair.count(Discard::Forged), 1);
    }
}
