//! Sequence numbers and volume come to an end.

use super::*;

#[test]
fn sequence_numbers_end_and_never_begin_anew() {
    let pair = Pair::new(Kind::PLAIN);
    let packet = sample::udp(false, (1, 2), &[]);
    let soft = Notice::Expiring { sa: OUT, hard: false };
    let hard = Notice::Expiring { sa: OUT, hard: true };
    pair.outbound().resume(u64::from(u32::MAX) - (1 << 29) - 2);
    pair.protect(&packet).expect("far from the end");
    assert_eq!(pair.sender.take_notices(), []);
    pair.protect(&packet).expect("near the end");
    pair.protect(&packet).expect("near the end");
    assert_eq!(pair.sender.take_notices(), [soft]);

    pair.outbound().resume(u64::from(u32::MAX) - 1);
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
    pair.outbound().resume(u64::from(u32::MAX) - 3);
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
