//! Effects of the path between the peers on packets.

use super::*;

#[test]
fn transport_mode_takes_off_only_a_plain_header_of_its_own() {
    let kind = Kind { mode: Mode::Transport, ..Kind::PLAIN };
    let pair = Pair::new(kind);
    let good = sample::udp(false, (1, 2), &[0; 16]);
    assert!(pair.protect(&good).is_ok());
    // Long enough for a fragment that others follow.
    let mut fragment = sample::udp(false, (1, 2), &[0; 48]);
    fragment[6] = 0x20;
    assert_eq!(pair.protect_all(&fragment, Gso::NONE), Ok(Vec::new()), "kept for the others");
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
fn marks_of_packets_are_copied_to_the_outside() {
    let pair = Pair::new(Kind { ipv6: true, ..Kind::PLAIN });
    // Best effort, EF, AF41 and CS6, each with one of the codepoints of ECN.
    for tos in [0x00, 0xb8 | 1, 0x88 | 2, 0xc0 | 3] {
        let mut packet = sample::udp(true, (1, 2), &[]);
        packet[0] = 0x60 | tos >> 4;
        packet[1] = tos << 4;
        let mut queue = SendQueue::new(0);
        let sent = pair.sender.encapsulate(pair.now, &mut packet.clone(), Gso::NONE, &mut queue);
        sent.expect("an SA");
        // RFC 4301 §5.1.2.2, RFC 6040 §4.1
        assert_eq!(queue.runs()[0].tos, tos);
        let arrival = Arrival { tos: Some(tos & 3), ..pair.kind.arrival() };
        let opened = pair.open_from(&datagrams(&queue)[0], arrival).expect("authentic");
        assert_eq!(opened[..2], packet[..2], "the inner DSCP stays, whatever the outer one is");
    }
}

#[test]
fn syns_are_held_to_the_inner_mtu_both_ways() {
    let now = Instant::now();
    let kind = Kind::PLAIN;
    let inner = crate::encap::inner_mtu(1400, kind.suite, kind.mode, kind.encapsulation, false);
    for (sender_mtu, receiver_mtu) in [(1400, 9000), (9000, 1400)] {
        let datapath = |mtu| {
            let outer = Outer { mtu: Some(mtu), ..Outer::UNKNOWN };
            Datapath::new(Settings { outer, ..Settings::default() }, now)
        };
        let (mut sender, mut receiver) = (datapath(sender_mtu), datapath(receiver_mtu));
        sender.add_rule(rule(false)).expect("a new rule");
        sender.add_outbound(kind.outbound()).expect("a new SA");
        receiver.add_inbound(kind.inbound()).expect("a new SA");
        let pair = Pair { kind, now, way_out: Mutex::new(sender.sender()), sender, receiver };
        let syn = sample::tcp(false, 1, 0x02, &[2, 4, 0x23, 0x28], &[]);
        let opened = pair.open(&pair.protect(&syn).expect("an SA")).expect("authentic");
        assert_eq!(usize::from(u16::from_be_bytes([opened[42], opened[43]])), inner - 40);
        assert!(checksums_hold(&opened));
    }
}

#[test]
fn syns_are_held_to_the_device_whichever_comes_first() {
    let now = Instant::now();
    let kind = Kind::PLAIN;
    for device_first in [true, false] {
        let mut sender = Datapath::new(Settings::default(), now);
        let mut receiver = Datapath::new(Settings::default(), now);
        let set = |datapath: &Datapath, then: bool, mtu| {
            if then == device_first {
                datapath.set_device_mtu(mtu);
            }
        };
        set(&sender, true, 1300);
        set(&receiver, true, 1280);
        sender.add_rule(rule(false)).expect("a new rule");
        sender.add_outbound(kind.outbound()).expect("a new SA");
        receiver.add_inbound(kind.inbound()).expect("a new SA");
        set(&sender, false, 1280);
        set(&receiver, false, 1300);
        let pair = Pair { kind, now, way_out: Mutex::new(sender.sender()), sender, receiver };
        let syn = sample::tcp(false, 1, 0x02, &[2, 4, 0x23, 0x28], &[]);
        let opened = pair.open(&pair.protect(&syn).expect("an SA")).expect("authentic");
        assert_eq!(u16::from_be_bytes([opened[42], opened[43]]), 1240);
    }
}

#[test]
fn a_moved_peer_is_reported_once_per_place() {
    let mut pair = Pair::new(Kind::PLAIN);
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
    pair.now += std::time::Duration::from_secs(1);
    pair.open_from(&pair.protect(&packet).expect("an SA"), elsewhere(3)).expect("authentic");
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
    pair.sender.encapsulate(pair.now, &mut packet, Gso::NONE, &mut queue).expect("an SA");
    assert_eq!(queue.runs()[0].path, path);
}

#[test]
fn a_peer_that_never_stands_still_is_told_of_now_and_then() {
    let mut pair = Pair::new(Kind::PLAIN);
    let packet = sample::udp(false, (1, 2), &[]);
    let begin = pair.now;
    for n in 0..1000 {
        pair.now = begin + std::time::Duration::from_millis(n);
        let mut arrival = Kind::PLAIN.arrival();
        arrival.path.remote.set_port(10_000 + (n % 2) as u16);
        pair.open_from(&pair.protect(&packet).expect("an SA"), arrival).expect("authentic");
    }
    let told = pair.receiver.take_notices().len();
    assert!((5..=10).contains(&told), "{told} times in a second");
}
