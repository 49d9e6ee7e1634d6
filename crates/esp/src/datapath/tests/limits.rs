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
fn no_number_above_the_allowed_ones_is_used_and_the_limit_may_be_raised() {
    let pair = Pair::new(Kind::PLAIN);
    let mut sender = pair.sender.clone();
    let packet = sample::udp(false, (1, 2), &[]);
    sender.allow(OUT, 2).expect("it is there");
    pair.protect(&packet).expect("the first");
    // All of a super-packet, or nothing.
    let (mut whole, gso) = super_packet(2);
    let mut queue = SendQueue::new(1 << 16);
    let refused = sender.encapsulate(Instant::now(), &mut whole, gso, &mut queue);
    assert_eq!(refused, Err(Discard::OutboundExhausted));
    pair.protect(&packet).expect("the second");
    assert_eq!(pair.protect(&packet), Err(Discard::OutboundExhausted));
    assert_eq!(sender.last_sequence(OUT), Some(2));
    assert_eq!(pair.sender.take_notices(), [], "it has not come to its end");
    sender.allow(OUT, 3).expect("it is there");
    assert_eq!(pair.protect(&packet).expect("the third")[4..8], 3_u32.to_be_bytes());
    assert_eq!(pair.protect(&packet), Err(Discard::OutboundExhausted));
    assert_eq!(sender.retire(OUT), Some(3));
    assert_eq!(sender.allow(OUT, 4), Err(PlaneError::NoSuchSa(OUT)));
    assert_eq!(sender.retire(OUT), None);
}

#[test]
fn skipped_numbers_are_neither_used_nor_accepted_nor_counted() {
    for esn in [false, true] {
        let pair = Pair::new(Kind { esn, ..Kind::PLAIN });
        let (mut sender, mut receiver) = (pair.sender.clone(), pair.receiver.clone());
        let packet = sample::udp(false, (1, 2), &[]);
        let [first, late] = [(); 2].map(|()| pair.protect(&packet).expect("an SA serves it"));
        pair.open(&first).expect("authentic");
        receiver.skip(IN, 40).expect("it is there");
        // Number 2 has not come, and is no longer accepted; nor are those that the peer has not skipped.
        assert_eq!(pair.open(&late), Err(Discard::Replayed));
        let third = pair.protect(&packet).expect("an SA serves it");
        assert_eq!(pair.open(&third), Err(Discard::Replayed));
        sender.skip(OUT, 100).expect("it is there");
        let next = pair.protect(&packet).expect("an SA serves it");
        assert_eq!(next[4..8], 104_u32.to_be_bytes());
        assert_eq!(pair.open(&next).as_ref(), Ok(&packet));
        assert_eq!(pair.open(&next), Err(Discard::Replayed));
        assert_eq!(sender.usage(OUT).expect("installed").packets, 4);
        assert_eq!(receiver.usage(IN).expect("installed").packets, 2);
        assert_eq!(sender.skip(SaId(9), 1), Err(PlaneError::NoSuchSa(SaId(9))));
    }
}

#[test]
fn an_sa_that_has_not_as_many_numbers_as_it_skips_is_exhausted() {
    let pair = Pair::new(Kind::PLAIN);
    let packet = sample::udp(false, (1, 2), &[]);
    pair.protect(&packet).expect("the first");
    for count in [u64::from(u32::MAX) - 2, u64::MAX, u64::MAX] {
        pair.sender.clone().skip(OUT, count).expect("it is there");
        let last = pair.protect(&packet);
        assert_eq!(last.is_ok(), count < u64::from(u32::MAX), "{last:?}");
    }
    let hard = Notice::Expiring { sa: OUT, hard: true };
    assert!(pair.sender.take_notices().contains(&hard));
    let extended = Pair::new(Kind { esn: true, ..Kind::PLAIN });
    extended.sender.clone().skip(OUT, u64::MAX).expect("it is there");
    assert_eq!(extended.protect(&packet), Err(Discard::OutboundExhausted));
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

#[test]
fn the_widest_window_takes_what_is_as_late_as_it_says() {
    let widest = crate::replay::MAX_WINDOW;
    let inbound = InboundSa { replay_window: widest, ..Kind::PLAIN.inbound() };
    let pair = Pair::with(Kind::PLAIN, Kind::PLAIN.outbound(), inbound);
    let packet = sample::udp(false, (1, 2), &[]);
    let number = |n: u64| {
        pair.outbound().resume(n - 1);
        pair.protect(&packet).expect("an SA")
    };
    let (too_late, late, newest) = (number(1), number(2), number(u64::from(widest) + 1));
    assert!(pair.open(&newest).is_ok());
    assert!(pair.open(&late).is_ok(), "the last that the window spans");
    assert_eq!(pair.open(&late), Err(Discard::Replayed));
    assert_eq!(pair.open(&too_late), Err(Discard::ReplayTooOld));
    assert_eq!([pair.count(Discard::Replayed), pair.count(Discard::ReplayTooOld)], [1, 1]);
}

/// A super-packet of so many segments.
fn super_packet(segments: usize) -> (Vec<u8>, Gso) {
    let gso = Gso {
        segmentation: Segmentation::Tcp,
        segment_len: 10,
        header_len: 0,
        checksum: Some(PartialChecksum { start: 20, offset: 16 }),
        checksum_verified: false,
    };
    (sample::tcp(false, 1, ACK, &[], &sample::payload(10 * segments)), gso)
}

const THREADS: usize = 4;

/// Both ways at once, several threads sealing and several opening: run to completion has one thread do both halves of
/// the way out, the pipeline two.
#[test]
fn numbers_of_64_bits_roll_over_while_many_threads_seal_and_open() {
    const PACKETS: usize = 150;
    let kind = Kind { esn: true, ..Kind::PLAIN };
    let wide = || InboundSa { replay_window: 65_536, ..kind.inbound() };
    let ways = [false, true].map(|_| Pair::with(kind, kind.outbound(), wide()));
    for pair in &ways {
        let used = u64::from(u32::MAX) - 700;
        pair.outbound().resume(used);
        pair.inbound().set_top_of(used, 65_536);
    }
    std::thread::scope(|scope| {
        for (pair, steps) in ways.iter().zip([false, true]) {
            let (feed, fed) = crossbeam_channel::unbounded::<Vec<u8>>();
            for _ in 0..THREADS {
                let feed = feed.clone();
                scope.spawn(move || {
                    for _ in 0..PACKETS {
                        let (mut packet, gso) = super_packet(3);
                        let mut queue = SendQueue::new(0);
                        if steps {
                            let admitted = pair.sender.sender().admit(pair.now, &mut packet, gso);
                            let admitted = admitted.expect("an SA serves it");
                            std::thread::yield_now();
                            pair.sender.seal(pair.now, admitted, &mut packet, &mut queue);
                        } else {
                            let sender = &pair.sender;
                            let sealed = sender.encapsulate(pair.now, &mut packet, gso, &mut queue);
                            sealed.expect("no end");
                        }
                        datagrams(&queue).into_iter().for_each(|d| feed.send(d).expect("received"));
                    }
                });
                let fed = fed.clone();
                scope.spawn(move || {
                    for datagram in fed {
                        assert!(pair.open(&datagram).is_ok());
                    }
                });
            }
        }
    });
    for pair in &ways {
        let sent = (THREADS * PACKETS * 3) as u64;
        let usage = pair.receiver.clone().usage(IN).expect("installed");
        assert_eq!((usage.packets, usage.refused), (sent, 0));
        let next = pair.protect(&super_packet(1).0).expect("no end");
        assert_eq!(next[4..8], (sent as u32 - 701 + 1).to_be_bytes(), "the low half began anew");
        assert!(pair.open(&next).is_ok());
        assert_eq!(pair.open(&next), Err(Discard::Replayed));
    }
}

#[test]
fn the_end_of_the_numbers_is_the_end_for_all_threads() {
    const LEFT: u64 = 100;
    let pair = Pair::new(Kind::PLAIN);
    pair.outbound().resume(u64::from(u32::MAX) - LEFT);
    let sealed = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let (mut numbers, mut sender) = (Vec::new(), pair.sender.sender());
                    for n in 0..50 {
                        let (mut packet, gso) = super_packet(1 + n % 4);
                        let mut queue = SendQueue::new(0);
                        match sender.encapsulate(pair.now, &mut packet, gso, &mut queue) {
                            Ok(()) => numbers.extend(
                                datagrams(&queue)
                                    .iter()
                                    .map(|d| u32::from_be_bytes([d[4], d[5], d[6], d[7]])),
                            ),
                            Err(discard) => assert_eq!(discard, Discard::OutboundExhausted),
                        }
                    }
                    numbers
                })
            })
            .collect();
        threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect::<Vec<u32>>()
    });
    let distinct: std::collections::BTreeSet<u32> = sealed.iter().copied().collect();
    assert_eq!(distinct.len(), sealed.len(), "none twice");
    assert!(sealed.iter().all(|n| *n > u32::MAX - LEFT as u32), "none began anew");
    assert_eq!(sealed.len() as u64, LEFT, "and none was wasted");
    let notices = pair.sender.take_notices();
    let expiring = |hard| Notice::Expiring { sa: OUT, hard };
    assert_eq!(notices.iter().filter(|n| **n == expiring(true)).count(), 1);
    assert_eq!(notices.iter().filter(|n| **n == expiring(false)).count(), 1);
}

#[test]
fn no_sa_goes_on_after_a_sequence_number_that_does_not_exist() {
    let mut pair = Pair::new(Kind::PLAIN);
    let packet = sample::udp(false, (4000, 53), &sample::payload(20));
    let refused = pair.sender.resume(OUT, u64::MAX).expect_err("there is no such number");
    assert!(refused.to_string().contains("the highest sequence number"), "{refused}");
    let sealed = pair.protect(&packet).expect("it is at its first number");
    assert_eq!(pair.open(&sealed), Ok(packet));
}
