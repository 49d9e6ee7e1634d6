//! AH (RFC 4302): both directions against each other, every field it covers and every one it does not.

use super::*;
use crate::ah;
use policy::AhIntegrity;
use serde_json::Value;

pub(super) const MACS: [Integrity; 7] = [
    Integrity::HmacMd5_96,
    Integrity::HmacSha1_96,
    Integrity::HmacSha2_256_128,
    Integrity::HmacSha2_384_192,
    Integrity::HmacSha2_512_256,
    Integrity::AesXcbc96,
    Integrity::AesCmac96,
];

fn suites() -> impl Iterator<Item = Suite> {
    let gmac = [KeyBits::B128, KeyBits::B192, KeyBits::B256].map(AhIntegrity::AesGmac);
    gmac.into_iter().chain(MACS.map(AhIntegrity::Mac)).map(Suite::Ah)
}

fn kinds() -> impl Iterator<Item = Kind> {
    let modes = [Mode::Tunnel, Mode::Transport];
    let kind =
        |suite, mode, esn, ipv6| Kind { suite, mode, esn, ipv6, encapsulation: Encapsulation::Ah };
    suites().flat_map(move |suite| {
        modes.into_iter().flat_map(move |mode| {
            [(false, false), (false, true), (true, false), (true, true)]
                .map(|(esn, ipv6)| kind(suite, mode, esn, ipv6))
        })
    })
}

const SHA256: Kind = Kind {
    suite: Suite::Ah(AhIntegrity::Mac(Integrity::HmacSha2_256_128)),
    mode: Mode::Transport,
    encapsulation: Encapsulation::Ah,
    esn: false,
    ipv6: false,
};

fn sealed(pair: &Pair, packet: &[u8]) -> Vec<u8> {
    pair.protect(packet).expect("an SA serves it")
}

/// Whole packets that scapy made: this datapath makes the same, and opens them.
#[test]
fn another_implementation_makes_the_same_packets() {
    let file = include_str!("../../../tests/vectors/scapy_ah.json");
    let file: Value = serde_json::from_str(file).expect("JSON");
    let cases = file["cases"].as_array().expect("a list");
    assert_eq!(cases.len(), suites().count() * 4);
    for case in cases {
        let number = |name: &str| {
            u64::from_str_radix(case[name].as_str().expect("a text"), 16).expect("a number")
        };
        let suite = suites().find(|suite| case["suite"] == suite.to_string());
        let packet = scapy::octets(&case["packet"]);
        let kind = Kind {
            suite: suite.expect("a suite of AH"),
            mode: if case["tunnel"] == true { Mode::Tunnel } else { Mode::Transport },
            esn: case["esn"] == true,
            ipv6: packet[0] >> 4 == 6,
            encapsulation: Encapsulation::Ah,
        };
        let spi = Spi(u32::try_from(number("spi")).expect("32 bits"));
        let key = Secret::new(scapy::octets(&case["key_material"]));
        let outbound = OutboundSa { spi, key: key.clone(), ..kind.outbound() };
        let inbound = InboundSa { spi, key, ..kind.inbound() };
        let mut pair = Pair::with(kind, kind.outbound(), inbound);
        // Scapy clears DF, too.
        let outer = Outer { df: Df::Clear, ..Outer::UNKNOWN };
        let settings = Settings { outer, ..Settings::default() };
        pair.send_by(Datapath::new(settings, pair.now));
        pair.sender.add_rule(rule(false)).expect("a new rule");
        pair.sender.add_outbound(outbound).expect("a new SA");
        pair.outbound().resume(number("sequence") - 1);
        pair.receiver.0.ah_sad.find_any(spi).expect("just added").set_top(number("sequence") - 1);
        let inner = scapy::octets(&case["inner"]);
        assert_eq!(sealed(&pair, &inner), packet, "{kind:?}");
        assert_eq!(pair.open(&packet), Ok(inner), "{kind:?}");
    }
}

#[test]
fn every_suite_mode_and_family_carries_packets() {
    for kind in kinds() {
        let pair = Pair::new(kind);
        for len in [0, 1, 7, 64, 1_300] {
            let inner = sample::udp(kind.ipv6, (1000, 2000), &vec![0xa5; len]);
            let outer = sealed(&pair, &inner);
            let header = Header::parse(&outer).expect("a whole IP packet");
            assert_eq!((header.len, header.protocol), (outer.len(), ah::AH), "{kind:?}");
            let grown = outer.len() - inner.len();
            let outer_header = if kind.mode == Mode::Tunnel { header.transport } else { 0 };
            assert_eq!(grown, outer_header + ah::header_len(kind.suite, kind.ipv6), "{kind:?}");
            assert_eq!(pair.open(&outer), Ok(inner), "{kind:?}, {len} octets");
        }
    }
}

/// RFC 4302 §2.2: the length counts words of 32 bits, without two.
#[test]
fn the_header_is_laid_out_as_registered() {
    let pair = Pair::new(Kind { mode: Mode::Tunnel, ..SHA256 });
    let outer = sealed(&pair, &sample::udp(false, (1, 2), b"x"));
    assert_eq!(outer[20..24], [4, 5, 0, 0]);
    assert_eq!(outer[24..28], SPI.to_be_bytes());
    assert_eq!(outer[28..32], [0, 0, 0, 1]);
    let pair = Pair::new(Kind { mode: Mode::Tunnel, ipv6: true, ..SHA256 });
    let outer = sealed(&pair, &sample::udp(true, (1, 2), b"x"));
    assert_eq!(outer[40..44], [41, 6, 0, 0]);
}

/// Every bit of a packet but those that may change on the way.
#[test]
fn exactly_the_immutable_is_covered() {
    let gmac = Suite::Ah(AhIntegrity::AesGmac(KeyBits::B256));
    for (suite, ipv6) in [(SHA256.suite, false), (SHA256.suite, true), (gmac, false), (gmac, true)]
    {
        let kind = Kind { suite, ipv6, ..SHA256 };
        // Without a window the same packet may come again and again.
        let pair =
            Pair::with(kind, kind.outbound(), InboundSa { replay_window: 0, ..kind.inbound() });
        let inner = sample::udp(ipv6, (7, 9), b"covered");
        let outer = sealed(&pair, &inner);
        for at in 0..outer.len() {
            for bit in 0..8 {
                let mask = 0x80u8 >> bit;
                let mutable = match (ipv6, at) {
                    (false, 1 | 8 | 10 | 11) => true,
                    // Reserved and Don't Fragment; the rest would make it a fragment.
                    (false, 6) => mask & 0xc0 != 0,
                    (true, 0) => mask & 0x0f != 0,
                    (true, 1..=3 | 7) => true,
                    _ => false,
                };
                let mut changed = outer.clone();
                changed[at] ^= mask;
                let Some(_) = ah::split(&changed) else { continue };
                let outcome = pair.open(&changed);
                assert_eq!(outcome.is_ok(), mutable, "octet {at}, mask {mask:#x}: {outcome:?}");
            }
        }
    }
}

#[test]
fn a_packet_arrives_with_the_header_fields_changed_on_the_way() {
    // Transport mode leaves what changed on the way as it came: hop limit, DSCP and ECN.
    for ipv6 in [false, true] {
        let pair = Pair::new(Kind { ipv6, ..SHA256 });
        let inner = sample::udp(ipv6, (7, 9), b"payload");
        let mut outer = sealed(&pair, &inner);
        outer[if ipv6 { 7 } else { 8 }] = 11;
        let opened = pair.open(&outer).expect("authentic");
        let mut expected = inner.clone();
        expected[if ipv6 { 7 } else { 8 }] = 11;
        ah::set_checksum(&mut expected[..if ipv6 { 40 } else { 20 }]);
        assert_eq!(opened, expected);
    }
}

#[test]
fn options_and_extension_headers_travel_before_ah() {
    let pair = Pair::new(SHA256);
    let plain = sample::udp(false, (7, 9), b"payload");
    // Record Route, which routers fill in, behind Router Alert, which they do not.
    let mut inner = plain[..20].to_vec();
    inner.extend([148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0]);
    inner.extend(&plain[20..]);
    inner[0] = 0x48;
    ah::set_len(&mut inner, plain.len() + 12);
    ah::set_checksum(&mut inner[..32]);
    let outer = sealed(&pair, &inner);
    assert_eq!(pair.open(&outer), Ok(inner));
    let fresh = Pair::new(SHA256);
    let mut recorded = outer.clone();
    recorded[26..31].copy_from_slice(&[8, 192, 0, 2, 7]);
    assert!(fresh.open(&recorded).is_ok());
    recorded[22] = 1;
    assert_eq!(Pair::new(SHA256).open(&recorded), Err(Discard::Forged));

    let kind = Kind { ipv6: true, ..SHA256 };
    let pair = Pair::new(kind);
    let plain = sample::udp(true, (7, 9), b"payload");
    let mut inner = plain[..40].to_vec();
    inner[6] = 60;
    inner.extend([17, 1, 0x3e, 2, 1, 2, 0x1e, 6, 1, 2, 3, 4, 5, 6, 0, 0]);
    inner.extend(&plain[40..]);
    ah::set_len(&mut inner, plain.len() + 16);
    let outer = sealed(&pair, &inner);
    assert_eq!(outer[40], ah::AH);
    assert_eq!(pair.open(&outer), Ok(inner));
    let mut changed = outer.clone();
    changed[44] ^= 1;
    assert!(Pair::new(kind).open(&changed).is_ok());
    changed[48] ^= 1;
    assert_eq!(Pair::new(kind).open(&changed), Err(Discard::Forged));
}

#[test]
fn replays_and_lies_about_lengths_are_refused() {
    for ipv6 in [false, true] {
        let pair = Pair::new(Kind { ipv6, ..SHA256 });
        let outer = sealed(&pair, &sample::udp(ipv6, (7, 9), b"payload"));
        let at = if ipv6 { 40 } else { 20 };
        for words in [0, 4, 8, 255] {
            let mut changed = outer.clone();
            changed[at + 1] = words;
            assert_eq!(pair.open(&changed), Err(Discard::AhHeader));
        }
        for len in at..at + 28 {
            assert!(pair.open(&outer[..len]).is_err());
        }
        assert!(pair.open(&outer).is_ok());
        assert_eq!(pair.open(&outer), Err(Discard::Replayed));
        let mut other = outer.clone();
        other[at + 4] ^= 1;
        assert_eq!(pair.open(&other), Err(Discard::UnknownSpi));
        if !ipv6 {
            let fragment = Pair::new(SHA256);
            let mut first = outer.clone();
            first[6] |= 0x20;
            assert_eq!(fragment.open(&first), Err(Discard::AhHeader));
        }
    }
}

/// An SPI names an SA of AH or of ESP, not of both (RFC 4301 §4.1).
#[test]
fn ah_and_esp_have_spis_of_their_own() {
    let now = Instant::now();
    let mut receiver = Datapath::new(Settings::default(), now);
    receiver.add_inbound(SHA256.inbound()).expect("AH");
    let mut queue = ReceiveQueue::new(0, Coalesce::default());
    let esp = [&SPI.to_be_bytes()[..], &[0; 60]].concat();
    let outcome = receiver.decapsulate(now, &esp, Kind::PLAIN.arrival(), &mut queue);
    assert_eq!(outcome, Err(Discard::UnknownSpi));
    let second = receiver.add_inbound(InboundSa { id: SaId(9), ..SHA256.inbound() });
    assert_eq!(second, Err(PlaneError::SpiInUse(Spi(SPI))));
    receiver.add_inbound(InboundSa { id: SaId(9), ..Kind::PLAIN.inbound() }).expect("ESP");
    receiver.remove(IN);
    let outer = sealed(&Pair::new(SHA256), &sample::udp(false, (7, 9), b"payload"));
    let cut = ah::split(&outer).expect("whole");
    let outcome = receiver.decapsulate_ah(now, cut, SHA256.arrival(), &mut queue);
    assert_eq!(outcome, Err(Discard::UnknownSpi));
}

#[test]
fn ah_never_goes_in_udp() {
    let in_udp = Kind { encapsulation: Encapsulation::Udp, ..SHA256 };
    let now = Instant::now();
    let mut plane = Datapath::new(Settings::default(), now);
    plane.add_rule(rule(false)).expect("rule");
    let refused = plane.add_inbound(in_udp.inbound()).expect_err("refused").to_string();
    assert!(refused.ends_with("passes no NAT and never goes in UDP; use ESP"), "{refused}");
    assert!(plane.add_outbound(in_udp.outbound()).is_err());
    plane.add_outbound(SHA256.outbound()).expect("natively");
    assert!(plane.relocate(OUT, in_udp.path()).is_err());
}

/// RFC 4302 §3.3.3.2.2, appendix B2: the high half of the sequence number is covered, though it does not travel.
#[test]
fn extended_sequence_numbers_roll_over() {
    for suite in [SHA256.suite, Suite::Ah(AhIntegrity::AesGmac(KeyBits::B128))] {
        let kind = Kind { suite, esn: true, ..SHA256 };
        let pair = Pair::new(kind);
        let near = u64::from(u32::MAX) - 1;
        pair.outbound().resume(near);
        pair.inbound().set_top(near);
        let inner = sample::udp(false, (7, 9), b"payload");
        let sent: Vec<_> = (0..4).map(|_| sealed(&pair, &inner)).collect();
        assert_eq!(sent[1][28..32], [0, 0, 0, 0]);
        for outer in &sent {
            assert_eq!(pair.open(outer), Ok(inner.clone()));
        }
        let elsewhere = Pair::new(kind);
        assert_eq!(elsewhere.open(&sent[2]), Err(Discard::Forged));
    }
}

#[test]
fn a_super_packet_is_cut_before_ah() {
    for (ipv6, mode) in [
        (false, Mode::Tunnel),
        (true, Mode::Tunnel),
        (false, Mode::Transport),
        (true, Mode::Transport),
    ] {
        let kind = Kind { ipv6, mode, ..SHA256 };
        let pair = Pair::new(kind);
        let mut packet = sample::tcp(ipv6, 7, ACK, &[], &sample::payload(10_300));
        let gso = Gso {
            segmentation: Segmentation::Tcp,
            segment_len: 1_000,
            header_len: 0,
            checksum: Some(PartialChecksum { start: if ipv6 { 40 } else { 20 }, offset: 16 }),
            checksum_verified: false,
        };
        let mut queue = SendQueue::new(0);
        pair.sender.encapsulate(pair.now, &mut packet, gso, &mut queue).expect("sealed");
        let mut received = ReceiveQueue::new(0, Coalesce { tcp: true, udp: true });
        let mut count = 0;
        for outer in datagrams(&queue) {
            let cut = ah::split(&outer).expect("whole");
            pair.receiver
                .decapsulate_ah(pair.now, cut, kind.arrival(), &mut received)
                .expect("authentic");
            count += 1;
        }
        assert_eq!(count, 11);
        // Joined again, for one write to the device.
        assert_eq!(received.packets().count(), 1, "{kind:?}");
    }
}

#[test]
fn fragments_and_others_packets_do_not_go_in_transport_mode() {
    let pair = Pair::new(SHA256);
    let refused = |packet: Vec<u8>| pair.protect(&packet).expect_err("refused");
    let mut fragment = sample::udp(false, (7, 9), b"payload");
    fragment[6] = 0x20;
    assert_eq!(refused(fragment), Discard::TransportFragment);
    let mut foreign = sample::udp(false, (7, 9), b"payload");
    foreign[15] ^= 1;
    assert_eq!(refused(foreign), Discard::TransportHeader);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// As for ESP: a change to the octets that the ICV covers changes nothing at the receiver, and the packet itself
    /// still passes afterwards.
    #[test]
    fn hostile_packets_change_nothing(
        suite in 0..10usize, esn: bool, transport: bool, ipv6: bool, len in 0..200usize,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0..8u8), 1..40),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 1..20),
        junk: Vec<u8>,
    ) {
        let mode = if transport { Mode::Transport } else { Mode::Tunnel };
        let suite = suites().nth(suite).expect("one of ten");
        let kind = Kind { suite, esn, mode, ipv6, encapsulation: Encapsulation::Ah };
        let pair = Pair::new(kind);
        let packet = sample::udp(ipv6, (1, 2), &sample::payload(len));
        let seen = sealed(&pair, &packet);
        pair.open(&seen).expect("authentic");
        let fresh = sealed(&pair, &packet);
        let before = pair.inbound().snapshot();

        let (headers, rest) = ah::split(&fresh).expect("whole");
        let mut hostile: Vec<Vec<u8>> = vec![seen[headers.len()..].to_vec(), junk];
        for (index, bit) in flips {
            let mut changed = rest.to_vec();
            changed[index.index(rest.len())] ^= 1 << bit;
            hostile.push(changed);
        }
        hostile.extend(cuts.iter().map(|cut| rest[..cut.index(rest.len())].to_vec()));
        let mut queue = ReceiveQueue::new(0, Coalesce::default());
        for rest in &hostile {
            let outcome =
                pair.receiver.decapsulate_ah(pair.now, (headers, rest), kind.arrival(), &mut queue);
            prop_assert!(outcome.is_err());
        }
        prop_assert!(queue.is_empty());
        prop_assert_eq!(pair.inbound().snapshot(), before);
        prop_assert_eq!(pair.receiver.counters().values().sum::<u64>(), hostile.len() as u64);
        prop_assert_eq!(pair.open(&fresh), Ok(packet));
    }
}
