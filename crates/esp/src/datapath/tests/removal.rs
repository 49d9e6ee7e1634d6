//! An SA that is removed while threads have packets for it in hand: each of them is counted, and once.

use super::*;
use crate::datapath::stages::Opened;

/// The second generation of SAs.
const NEW: [SaId; 2] = [SaId(11), SaId(12)];

fn generation(n: u64) -> (OutboundSa, InboundSa) {
    let spi = Spi(SPI + n as u32);
    let (out, inb) = (Kind::PLAIN.outbound(), Kind::PLAIN.inbound());
    (
        OutboundSa { id: SaId(n * 10 + 1), spi, ..out },
        InboundSa { id: SaId(n * 10 + 2), spi, replay_window: 4096, ..inb },
    )
}

fn packet() -> Vec<u8> {
    sample::udp(false, (4000, 53), &sample::payload(20))
}

fn packets(usage: Option<Usage>) -> u64 {
    usage.expect("it was there").packets
}

#[test]
fn a_packet_with_numbers_is_counted_though_it_is_sealed_after_the_sa_is_gone() {
    let pair = Pair::new(Kind::PLAIN);
    let mut datapath = pair.sender.clone();
    let mut sender = datapath.sender();
    let mut whole = packet();
    let admitted = sender.admit(pair.now, &mut whole, Gso::NONE).expect("an SA serves it");
    let done = datapath.remove(OUT).expect("it was there");
    assert_eq!((done.packets, done.bytes), (1, whole.len() as u64));
    assert_eq!(datapath.remove(OUT), None);
    let mut queue = SendQueue::new(0);
    datapath.seal(pair.now, admitted, &mut whole, &mut queue);
    assert_eq!(pair.open(&datagrams(&queue)[0]), Ok(packet()));
    assert_eq!(pair.count(Discard::NoSa), 0);
}

#[test]
fn a_packet_whose_sa_goes_before_it_has_numbers_takes_the_next() {
    for ahead in [false, true] {
        let pair = Pair::new(Kind::PLAIN);
        let mut datapath = pair.sender.clone();
        let shared = Arc::clone(&datapath.0);
        let mut replaced = None;
        // The rekey comes between finding the SA and asking it for numbers.
        let mut look_up = |header: &Header| {
            let verdict = shared.spd.lookup(header);
            if replaced.is_none() {
                datapath.add_outbound(generation(1).0).expect("a new SA");
                replaced = Some(datapath.remove(OUT));
            }
            verdict
        };
        let mut queue = SendQueue::new(0);
        if ahead {
            let admitted = shared.claim(pair.now, &mut packet(), Gso::NONE, &mut look_up);
            pair.sender.seal(pair.now, admitted.expect("served"), &mut packet(), &mut queue);
        } else {
            shared
                .encapsulate(pair.now, &mut packet(), Gso::NONE, &mut queue, &mut look_up)
                .expect("the next SA takes it");
        }
        assert_eq!(packets(replaced.flatten()), 0);
        assert_eq!(datagrams(&queue)[0][..4], (SPI + 1).to_be_bytes());
        assert_eq!(packets(datapath.remove(NEW[0])), 1);
    }
}

#[test]
fn a_packet_whose_last_sa_goes_is_dropped_and_counted() {
    let pair = Pair::new(Kind::PLAIN);
    let mut datapath = pair.sender.clone();
    let shared = Arc::clone(&datapath.0);
    let mut look_up = |header: &Header| {
        let verdict = shared.spd.lookup(header);
        datapath.remove(OUT);
        verdict
    };
    let mut queue = SendQueue::new(0);
    let outcome = shared.encapsulate(pair.now, &mut packet(), Gso::NONE, &mut queue, &mut look_up);
    assert_eq!(outcome, Err(Discard::NoSa));
    assert!(queue.is_empty());
    assert_eq!(pair.count(Discard::NoSa), 1);
}

#[test]
fn a_packet_opened_ahead_for_a_removed_sa_is_dropped_and_counted() {
    let pair = Pair::new(Kind::PLAIN);
    let mut receiver = pair.receiver.clone();
    let sealed = [(); 3].map(|()| pair.protect(&packet()).expect("an SA serves it"));
    assert_eq!(pair.open(&sealed[0]), Ok(packet()));
    let (mut opened, mut queue) = (Opened::default(), ReceiveQueue::new(0, Coalesce::default()));
    for (run, datagram) in sealed.iter().enumerate().skip(1) {
        let (arrival, len) = (pair.kind.arrival(), datagram.len());
        receiver.open_ahead((run, 0), datagram, len, arrival, &mut opened, &mut queue);
    }
    let found = pair.inbound();
    assert_eq!(packets(receiver.remove(IN)), 1);
    let mut again = ReceiveQueue::new(0, Coalesce::default());
    let octets = |run: usize| -> &[u8] { &sealed[run] };
    let mut write = |_: &[u8], _| panic!("its SA has gone");
    receiver.settle(pair.now, &mut opened, &mut queue, &octets, &mut again, &mut write);
    assert_eq!(pair.count(Discard::UnknownSpi), 2);

    // A thread that found the SA before its removal finds it closed afterwards.
    let outcome =
        found.receive().open(Duration::ZERO, &sealed[2], &pair.kind.arrival(), &mut again);
    assert_eq!(outcome, Err(Discard::UnknownSpi));
    assert_eq!(found.usage(pair.now).packets, 1);
    assert_eq!(found.usage(pair.now).refused, 0);
}

/// Threads seal, open at once, and open ahead, while SAs are replaced all the time.
#[test]
fn every_packet_is_in_one_count_whatever_goes_meanwhile() {
    const PACKETS: u64 = 4_000;
    let now = Instant::now();
    let mut plane = Datapath::new(Settings::default(), now);
    plane.add_rule(rule(false)).expect("a new rule");
    let install = |plane: &mut Datapath, n| {
        let (outbound, inbound) = generation(n);
        plane.add_inbound(inbound).expect("a new SA");
        plane.add_outbound(outbound).expect("a new SA");
    };
    install(&mut plane, 0);
    let (mut sealed, mut accepted) = (0, 0);
    let taken = AtomicUsize::new(0);
    let mut goes = |plane: &mut Datapath, n: u64| {
        sealed += packets(plane.remove(SaId(n * 10 + 1)));
        accepted += packets(plane.remove(SaId(n * 10 + 2)));
    };
    let datapath = plane.clone();
    let work = |ahead: bool| {
        let mut sender = datapath.sender();
        let (mut send, mut receive) =
            (SendQueue::new(0), ReceiveQueue::new(0, Coalesce::default()));
        let (mut opened, mut again) =
            (Opened::default(), ReceiveQueue::new(0, Coalesce::default()));
        for _ in 0..PACKETS {
            send.clear();
            receive.clear();
            if ahead {
                let mut packet = packet();
                let admitted = sender.admit(now, &mut packet, Gso::NONE).expect("one serves");
                datapath.seal(now, admitted, &mut packet, &mut send);
            } else {
                let packet = &mut packet();
                sender.encapsulate(now, packet, Gso::NONE, &mut send).expect("one serves");
            }
            let datagram = datagrams(&send).remove(0);
            let arrival = Kind::PLAIN.arrival();
            if ahead {
                let len = datagram.len();
                datapath.open_ahead((0, 0), &datagram, len, arrival, &mut opened, &mut receive);
                let octets = |_: usize| -> &[u8] { &datagram };
                let mut write = |_: &[u8], _| _ = taken.fetch_add(1, Relaxed);
                datapath.settle(now, &mut opened, &mut receive, &octets, &mut again, &mut write);
            } else if datapath.decapsulate(now, &datagram, arrival, &mut receive).is_ok() {
                taken.fetch_add(1, Relaxed);
            }
        }
    };
    let mut last = 0;
    std::thread::scope(|scope| {
        let threads = [false, true, true].map(|ahead| scope.spawn(move || work(ahead)));
        while !threads.iter().all(|thread| thread.is_finished()) {
            install(&mut plane, last + 1);
            goes(&mut plane, last);
            last += 1;
        }
    });
    goes(&mut plane, last);
    assert_eq!(sealed, 3 * PACKETS);
    assert_eq!(accepted, taken.load(Relaxed) as u64);
    // Later than the window is what a thread was long about.
    let counters = plane.counters();
    let dropped: u64 = counters.values().sum();
    let expected = counters["unknown_spi"] + counters["replay_too_old"];
    assert_eq!(dropped, expected, "{counters:?}");
    assert_eq!(sealed, accepted + dropped, "{counters:?}");
}
