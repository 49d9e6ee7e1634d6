//! Fragments, extension headers and padding on both ways.

use super::*;
use crate::datapath::Defragmented;
use crate::fragment::Fragments;
use crate::header::{DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP};
use crate::ip::{IPIP, IPV6, NO_NEXT_HEADER, put_word};
use crypto::{Aad, Cipher, Keyed};

/// A packet of IPv4 in fragments.
fn in_fragments(packet: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let mut packet = packet.to_vec();
    put_word(&mut packet, 6, 0);
    put_word(&mut packet, 10, 0);
    let sum = sample::checksum(&packet[..20]);
    put_word(&mut packet, 10, sum);
    let mut fragments = Fragments::new(&mut packet, 20, mtu);
    let mut all = Vec::new();
    while let Some(fragment) = fragments.next() {
        all.push(fragment.to_vec());
    }
    all
}

/// A packet of IPv6 in two fragments.
fn in_two(packet: &[u8]) -> [Vec<u8>; 2] {
    let payload = &packet[40..];
    let at = (payload.len() / 2) & !7;
    [(0, &payload[..at], 1), (at as u16, &payload[at..], 0)].map(|(offset, part, more)| {
        let mut fragment = packet[..40].to_vec();
        put_word(&mut fragment, 4, (8 + part.len()) as u16);
        let next = std::mem::replace(&mut fragment[6], FRAGMENT);
        fragment.extend([next, 0]);
        fragment.extend((offset | more).to_be_bytes());
        fragment.extend([0, 0, 0, 7]);
        fragment.extend(part);
        fragment
    })
}

#[test]
fn inner_fragments_travel_as_they_are() {
    for ipv6 in [false, true] {
        let pair = Pair::new(Kind { ipv6, ..Kind::PLAIN });
        let packet = sample::udp(false, (1, 2), &sample::payload(3000));
        let six = sample::udp(true, (1, 2), &sample::payload(3000));
        for fragment in in_fragments(&packet, 1000).into_iter().chain(in_two(&six)) {
            let sealed = pair.protect(&fragment).expect("an SA for all of it");
            assert_eq!(pair.open(&sealed), Ok(fragment));
        }
    }
}

#[test]
fn later_fragments_show_no_ports_to_selectors() {
    let kind = Kind::PLAIN;
    let port = |port| PortRange::new(port, port).expect("a range");
    let mut selectors = between_any();
    for selector in selectors.local.iter_mut().chain(&mut selectors.remote) {
        selector.protocol = UDP;
    }
    // Any port: all fragments pass (RFC 4301 §7.1). Ports: only what shows them does (§7.3).
    for (ports, expected) in [(None, [true, true]), (Some(port(1)), [true, false])] {
        let mut selectors = selectors.clone();
        if let Some(ports) = ports {
            selectors.local.iter_mut().for_each(|s| s.ports = ports);
        }
        let mirrored =
            TrafficSelectors { local: selectors.remote.clone(), remote: selectors.local.clone() };
        let outbound = OutboundSa { selectors: between_any().into(), ..kind.outbound() };
        let inbound = InboundSa { selectors: mirrored.into(), ..kind.inbound() };
        let pair = Pair::with(kind, outbound, inbound);
        let strict = Pair::with(
            kind,
            OutboundSa { selectors: selectors.into(), ..kind.outbound() },
            kind.inbound(),
        );
        let six = sample::udp(true, (1, 2), &sample::payload(1000));
        let four = in_fragments(&sample::udp(false, (1, 2), &sample::payload(1000)), 600);
        for fragments in [&four[..2], &in_two(&six)] {
            for (fragment, passes) in fragments.iter().zip(expected) {
                let opened = pair.open(&pair.protect(fragment).expect("an SA"));
                let wanted = if passes { Ok(fragment.clone()) } else { Err(Discard::Selectors) };
                assert_eq!(opened, wanted);
                assert_eq!(strict.protect(fragment).is_ok(), passes);
            }
        }
    }
}

#[test]
fn transport_mode_makes_fragments_whole_before_esp() {
    for ipv6 in [false, true] {
        let kind = Kind { mode: Mode::Transport, ipv6, ..Kind::PLAIN };
        let pair = Pair::new(kind);
        let packet = sample::udp(ipv6, (1, 2), &sample::payload(3000));
        let mut fragments = match ipv6 {
            false => in_fragments(&packet, 1000),
            true => in_two(&packet).to_vec(),
        };
        fragments.reverse();
        let (last, others) = fragments.split_last().expect("several");
        for fragment in others {
            assert_eq!(pair.protect_all(fragment, Gso::NONE), Ok(Vec::new()), "kept");
        }
        let opened = pair.open(&pair.protect(last).expect("whole")).expect("authentic");
        assert_eq!(upper_layer(&opened), upper_layer(&packet));
        assert!(checksums_hold(&opened));
        // In steps, as the pipeline has it.
        let mut sealed = Vec::new();
        for fragment in &fragments {
            let mut fragment = fragment.clone();
            if let Some(admitted) = pair.sender.sender().admit(pair.now, &mut fragment, Gso::NONE) {
                let mut queue = SendQueue::new(0);
                pair.sender.seal(pair.now, admitted, &mut fragment, &mut queue);
                sealed.extend(datagrams(&queue));
            }
        }
        assert_eq!(sealed.len(), 1);
        assert_eq!(pair.open(&sealed[0]).as_deref().map(upper_layer), Ok(upper_layer(&packet)));
        assert_eq!(pair.count(Discard::TransportFragment), 0);
        assert_eq!(pair.sender.clone().usage(OUT).expect("installed").refused, 0);
    }
}

#[test]
fn transport_mode_for_a_port_finds_the_fragments_that_show_none() {
    let kind = Kind { mode: Mode::Transport, ..Kind::PLAIN };
    let mut pair = Pair::new(kind);
    let mut rule = rule(false);
    for selector in &mut rule.selectors.remote {
        selector.protocol = UDP;
        selector.ports = PortRange::new(2, 2).expect("a range");
    }
    pair.sender.add_rule(rule).expect("in the place of the other");
    let packet = sample::udp(false, (1, 2), &sample::payload(3000));
    let fragments = in_fragments(&packet, 1000);
    let sealed: Vec<_> =
        fragments.iter().flat_map(|f| pair.protect_all(f, Gso::NONE).expect("kept")).collect();
    assert_eq!(sealed.len(), 1);
    // Of another port, the whole packet is refused.
    let other = in_fragments(&sample::udp(false, (1, 3), &sample::payload(1500)), 1000);
    assert_eq!(pair.protect(&other[0]), Err(Discard::NoPolicy));
    assert_eq!(pair.protect_all(&other[1], Gso::NONE), Ok(Vec::new()), "kept");
}

#[test]
fn fragments_of_a_packet_that_is_never_whole_are_counted() {
    let kind = Kind { mode: Mode::Transport, ..Kind::PLAIN };
    let mut pair = Pair::new(kind);
    let fragments = in_fragments(&sample::udp(false, (1, 2), &sample::payload(3000)), 1000);
    for fragment in &fragments[1..] {
        assert_eq!(pair.protect_all(fragment, Gso::NONE), Ok(Vec::new()));
    }
    pair.now += Duration::from_secs(16);
    assert_eq!(pair.protect_all(&fragments[0], Gso::NONE), Ok(Vec::new()));
    assert_eq!(pair.count(Discard::TransportFragment), fragments.len() as u64 - 1);
}

#[test]
fn fragments_are_counted_by_themselves() {
    let pair = Pair::new(Kind { mode: Mode::Transport, ..Kind::PLAIN });
    pair.protect(&sample::udp(false, (1, 2), &[])).expect("an SA");
    assert_eq!(pair.sender.defragmented(), Defragmented::default(), "that was whole");
    let fragments = in_fragments(&sample::udp(false, (1, 2), &sample::payload(3000)), 1000);
    for fragment in &fragments {
        pair.protect_all(fragment, Gso::NONE).expect("kept, or whole");
    }
    let octets = fragments.iter().map(|fragment| fragment.len() as u64).sum();
    let counted = Defragmented { fragments: fragments.len() as u64, octets, packets: 1 };
    assert_eq!(pair.sender.defragmented(), counted);
    // A refused fragment is counted as refused.
    let twice = &in_fragments(&sample::udp(false, (1, 2), &sample::payload(1500)), 1000)[0];
    pair.protect_all(twice, Gso::NONE).expect("kept");
    assert!(pair.protect_all(twice, Gso::NONE).is_err(), "they overlap");
    assert_eq!(pair.sender.defragmented().fragments, counted.fragments + 1);
}

#[test]
fn a_transport_mode_peer_may_send_no_fragment() {
    let kind = Kind { mode: Mode::Transport, ipv6: true, ..Kind::PLAIN };
    let pair = Pair::new(kind);
    let [first, _] = in_two(&sample::udp(true, (1, 2), &sample::payload(1000)));
    let datagram = sealed(kind, 1, &first[40..], FRAGMENT);
    assert_eq!(pair.open(&datagram), Err(Discard::InboundFragment));
}

/// An ESP packet as a peer could make it.
fn sealed(kind: Kind, sequence: u64, plaintext: &[u8], next_header: u8) -> Vec<u8> {
    let cipher = Keyed::new(kind.suite, kind.key(), Provider::default()).expect("supported");
    let pad = (2 - plaintext.len() as isize).rem_euclid(4) as usize;
    let trailer: Vec<u8> = (1..=pad as u8).chain([pad as u8, next_header]).collect();
    let sealed_len = kind.suite.iv_len() + plaintext.len() + trailer.len() + kind.suite.icv_len();
    let mut out = [&SPI.to_be_bytes()[..], &(sequence as u32).to_be_bytes()].concat();
    out.resize(8 + sealed_len, 0);
    let aad = Aad::Esp { spi: SPI, sequence, esn: kind.esn };
    cipher.seal(&sequence.to_be_bytes(), aad, plaintext, &trailer, &mut out[8..]);
    out
}

#[test]
fn padding_for_confidentiality_is_taken_off_and_dummies_are_dropped() {
    let pair = Pair::new(Kind::PLAIN);
    for (n, (ipv6, next)) in [(false, IPIP), (true, IPV6)].into_iter().enumerate() {
        let packet = sample::udp(ipv6, (1, 2), &sample::payload(100));
        // RFC 4303 §2.7: octets behind the packet are nobody's concern.
        let padded = [&packet[..], &[0xa5; 700]].concat();
        assert_eq!(pair.open(&sealed(Kind::PLAIN, n as u64 + 1, &padded, next)), Ok(packet));
    }
    for n in 3..6 {
        let dummy = sealed(Kind::PLAIN, n, &sample::payload(n as usize * 50), NO_NEXT_HEADER);
        assert_eq!(pair.open(&dummy), Err(Discard::Dummy));
        assert_eq!(pair.open(&dummy), Err(Discard::Replayed), "its number is used");
    }
    assert_eq!(pair.count(Discard::Dummy), 3);
}

#[test]
fn extension_headers_travel_and_selectors_see_behind_them() {
    let (a, b) = sample::hosts(true);
    let udp = sample::udp_between(a, b, (4000, 53), &sample::payload(40));
    let options = [[DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0], [UDP, 0, 1, 4, 0, 0, 0, 0]].concat();
    let packet = sample::ip(a, b, HOP_BY_HOP, &[&options[..], &udp].concat());
    let only = |port| {
        let mut selectors = between_any();
        for selector in &mut selectors.remote {
            selector.protocol = UDP;
            selector.ports = PortRange::new(port, port).expect("a range");
        }
        OutboundSa { selectors: selectors.into(), ..Kind::PLAIN.outbound() }
    };
    let pair = Pair::with(Kind::PLAIN, only(53), Kind::PLAIN.inbound());
    assert_eq!(pair.open(&pair.protect(&packet).expect("covered")).as_ref(), Ok(&packet));
    let pair = Pair::with(Kind::PLAIN, only(54), Kind::PLAIN.inbound());
    assert_eq!(pair.protect(&packet), Err(Discard::NoSa));
}

#[test]
fn segments_behind_extension_headers_stay_alone() {
    let pair = Pair::new(Kind::PLAIN);
    let (a, b) = sample::hosts(true);
    let sent: Vec<Vec<u8>> = (0..6u32)
        .map(|n| {
            let plain = sample::tcp(true, 1 + n * 500, ACK, &[], &sample::payload(500));
            let options = [TCP, 0, 1, 4, 0, 0, 0, n as u8 / 3];
            sample::ip(a, b, DESTINATION_OPTIONS, &[&options[..], &plain[40..]].concat())
        })
        .collect();
    let mut received = ReceiveQueue::new(1 << 16, Coalesce { tcp: true, udp: true });
    for packet in &sent {
        let sealed = pair.protect(packet).expect("an SA");
        pair.receiver
            .decapsulate(pair.now, &sealed, Kind::PLAIN.arrival(), &mut received)
            .expect("authentic");
    }
    // Splitting would not restore what differs between them, so that none is put together with another.
    let packets: Vec<_> = received.packets().map(|(packet, gso)| (packet.to_vec(), gso)).collect();
    assert_eq!(packets, sent.into_iter().map(|packet| (packet, Gso::NONE)).collect::<Vec<_>>());
}

#[test]
fn a_reassembled_packet_is_fragmented_after_esp() {
    for ipv6 in [false, true] {
        let kind = Kind { mode: Mode::Transport, ipv6, ..Kind::PLAIN };
        let mut pair = Pair::new(kind);
        let settings = Settings { outer: Outer::default(), ..Settings::default() };
        pair.send_by(Datapath::new(settings, pair.now));
        pair.sender.set_device_mtu(1400);
        pair.sender.add_rule(rule(false)).expect("a new rule");
        pair.sender.add_outbound(kind.outbound()).expect("a new SA");
        let packet = sample::udp(ipv6, (1, 2), &sample::payload(2000));
        let fragments = match ipv6 {
            false => in_fragments(&packet, 1400),
            true => in_two(&packet).to_vec(),
        };
        let mut queue = SendQueue::new(0);
        for mut fragment in fragments {
            let sender = &pair.sender;
            sender.encapsulate(pair.now, &mut fragment, Gso::NONE, &mut queue).expect("kept");
        }
        assert_eq!(queue.runs().len(), 1);
        assert!(queue.runs()[0].may_fragment);
    }
}
