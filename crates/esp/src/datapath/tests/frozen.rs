//! A datapath that is frozen, and goes on here or in another process.

use super::*;
use crate::datapath::frozen::{FrozenDatapath, FrozenRule};
use crate::plane::EarlyPackets;
use policy::AhIntegrity;
use std::collections::BTreeSet;

/// Freezes a datapath and makes the one of a successor, which is frozen, too.
fn succeeded(datapath: &Datapath, now: Instant) -> Datapath {
    let frozen = datapath.freeze(now);
    let successor = Datapath::import(Settings::default(), frozen.clone(), now).expect("as it was");
    assert!(successor.is_frozen());
    assert_eq!(successor.freeze(now), frozen, "nothing is lost or made up");
    successor
}

impl Pair {
    /// Has another process send, and yet another one receive.
    fn hand_over(&mut self) -> [Datapath; 2] {
        let successors = [&self.sender, &self.receiver].map(|d| succeeded(d, self.now));
        let [sender, receiver] = successors;
        sender.thaw();
        receiver.thaw();
        let receiver = std::mem::replace(&mut self.receiver, receiver);
        let before = self.sender.clone();
        self.send_by(sender);
        [before, receiver]
    }
}

fn packet(number: u16) -> Vec<u8> {
    sample::udp(false, (4000, number), &sample::payload(20))
}

fn number_of(datagram: &[u8]) -> u32 {
    u32::from_be_bytes(*datagram[4..].first_chunk().expect("a header"))
}

#[test]
fn every_kind_of_sa_goes_on_in_another_process() {
    for suite in SUITES {
        for mode in [Mode::Tunnel, Mode::Transport] {
            for (esn, encapsulation) in [(false, Encapsulation::Udp), (true, Encapsulation::Native)]
            {
                let kind = Kind { suite, mode, encapsulation, esn, ipv6: false };
                let mut pair = Pair::new(kind);
                let first = pair.protect(&packet(1)).expect("an SA serves it");
                pair.open(&first).expect("authentic");
                pair.hand_over();
                let second = pair.protect(&packet(2)).expect("an SA serves it");
                assert_eq!(number_of(&second), 2, "{kind:?}");
                assert_eq!(pair.open(&first), Err(Discard::Replayed), "{kind:?}");
                let opened = pair.open(&second).expect("authentic");
                assert_eq!(upper_layer(&opened), upper_layer(&packet(2)), "{kind:?}");
            }
        }
    }
}

#[test]
fn ah_goes_on_in_another_process() {
    let suite = Suite::Ah(AhIntegrity::Mac(Integrity::HmacSha2_256_128));
    let kind = Kind { suite, encapsulation: Encapsulation::Ah, ..Kind::PLAIN };
    let pair = Pair::new(kind);
    let frozen = [&pair.sender, &pair.receiver].map(|d| d.freeze(pair.now));
    let [sender, receiver] = [&pair.sender, &pair.receiver].map(|d| succeeded(d, pair.now));
    assert_eq!([sender.freeze(pair.now), receiver.freeze(pair.now)], frozen);
    receiver.thaw();
    assert!(receiver.0.ah_sad.find_any(Spi(SPI)).is_some());
    assert!(receiver.0.sad.find_any(Spi(SPI)).is_none());
}

#[test]
fn a_frozen_datapath_seals_and_takes_nothing_and_goes_on_where_it_was() {
    let pair = Pair::new(Kind::PLAIN);
    let sealed = [1, 2].map(|n| pair.protect(&packet(n)).expect("an SA serves it"));
    pair.open(&sealed[0]).expect("authentic");
    pair.sender.freeze(pair.now);
    pair.receiver.freeze(pair.now);
    assert_eq!(pair.protect(&packet(3)), Err(Discard::Frozen));
    assert!(pair.sender.sender().admit(pair.now, &mut packet(3), Gso::NONE).is_none());
    assert_eq!(pair.open(&sealed[1]), Err(Discard::Frozen));
    assert_eq!(pair.count(Discard::Frozen), 3);

    pair.sender.thaw();
    pair.receiver.thaw();
    assert_eq!(number_of(&pair.protect(&packet(3)).expect("an SA serves it")), 3);
    assert_eq!(pair.open(&sealed[0]), Err(Discard::Replayed));
    assert_eq!(pair.open(&sealed[1]), Ok(packet(2)));
    let [sent, received] = [(&pair.sender, OUT), (&pair.receiver, IN)]
        .map(|(datapath, sa)| datapath.clone().usage(sa).expect("it is there"));
    assert_eq!((sent.packets, sent.refused, received.packets), (3, 0, 2));
}

#[test]
fn a_predecessor_can_neither_seal_nor_take_what_its_successor_does() {
    let mut pair = Pair::new(Kind::PLAIN);
    let sealed = pair.protect(&packet(1)).expect("an SA serves it");
    let [sender, receiver] = pair.hand_over();
    let (mut queue, mut received) = (SendQueue::new(0), ReceiveQueue::new(0, Coalesce::default()));
    let outcome = sender.encapsulate(pair.now, &mut packet(2), Gso::NONE, &mut queue);
    assert_eq!((outcome, queue.is_empty()), (Err(Discard::Frozen), true));
    let outcome = receiver.decapsulate(pair.now, &sealed, Kind::PLAIN.arrival(), &mut received);
    assert_eq!(outcome, Err(Discard::Frozen));
    assert_eq!(pair.open(&sealed), Ok(packet(1)));
}

#[test]
fn an_sa_that_is_added_while_frozen_is_frozen_and_one_that_is_removed_is_gone() {
    let now = Instant::now();
    let mut datapath = Datapath::new(Settings::default(), now);
    datapath.add_rule(rule(false)).expect("a new rule");
    datapath.add_outbound(Kind::PLAIN.outbound()).expect("a new SA");
    datapath.freeze(now);
    let second = OutboundSa { id: SaId(11), spi: Spi(SPI + 1), ..Kind::PLAIN.outbound() };
    datapath.add_outbound(second).expect("a new SA");
    datapath.add_inbound(Kind::PLAIN.inbound()).expect("a new SA");
    let mut queue = SendQueue::new(0);
    let outcome = datapath.encapsulate(now, &mut packet(1), Gso::NONE, &mut queue);
    assert_eq!(outcome, Err(Discard::Frozen));
    assert_eq!(datapath.remove(OUT).expect("it was there").packets, 0);
    let successor = succeeded(&datapath, now);
    successor.thaw();
    successor.encapsulate(now, &mut packet(1), Gso::NONE, &mut queue).expect("the second SA");
    assert_eq!(datagrams(&queue)[0][..4], (SPI + 1).to_be_bytes());
}

#[test]
fn standby_and_the_order_of_sas_pass_over() {
    let now = Instant::now();
    let mut datapath = Datapath::new(Settings::default(), now);
    datapath.add_rule(rule(false)).expect("a new rule");
    let sa = |id, spi, standby| OutboundSa {
        id: SaId(id),
        spi: Spi(spi),
        standby,
        ..Kind::PLAIN.outbound()
    };
    for (id, standby) in [(11, false), (12, false), (13, true)] {
        datapath.add_outbound(sa(id, SPI + id as u32, standby)).expect("a new SA");
    }
    datapath.promote(SaId(11)).expect("it is there");
    let mut successor = succeeded(&datapath, now);
    successor.thaw();
    let spi_of_next = |datapath: &Datapath| {
        let mut queue = SendQueue::new(0);
        datapath.encapsulate(now, &mut packet(1), Gso::NONE, &mut queue).expect("one serves");
        u32::from_be_bytes(*datagrams(&queue)[0].first_chunk().expect("an SPI")) - SPI
    };
    assert_eq!(spi_of_next(&successor), 11);
    successor.remove(SaId(11));
    assert_eq!(spi_of_next(&successor), 12);
    successor.promote(SaId(13)).expect("it is there");
    assert_eq!(spi_of_next(&successor), 13);
}

#[test]
fn packets_that_wait_for_an_sa_pass_over_and_are_sent_once() {
    let now = Instant::now();
    let mut datapath = Datapath::new(Settings::default(), now);
    datapath.add_rule(rule(true)).expect("a new rule");
    let offer = |datapath: &Datapath, number| {
        let mut queue = SendQueue::new(0);
        datapath.encapsulate(now, &mut packet(number), Gso::NONE, &mut queue)
    };
    assert_eq!([offer(&datapath, 1), offer(&datapath, 2)], [Ok(()), Ok(())]);
    let mut successor = succeeded(&datapath, now);
    assert_eq!(offer(&datapath, 3), Err(Discard::Frozen), "nobody would send it");
    // It comes before the successor is thawed, as by the answer to the request for it.
    successor.add_outbound(Kind::PLAIN.outbound()).expect("a new SA");
    let mut queue = SendQueue::new(0);
    successor.flush_held(now, &mut queue);
    assert!(queue.is_empty(), "it is frozen");
    successor.thaw();
    successor.flush_held(now, &mut queue);
    successor.flush_held(now, &mut queue);
    let numbers: Vec<u32> = datagrams(&queue).iter().map(|datagram| number_of(datagram)).collect();
    assert_eq!(numbers, [1, 2]);
}

#[test]
fn packets_that_came_before_their_sa_pass_over_and_are_opened_once() {
    let pair = Pair::new(Kind::PLAIN);
    let sealed = [1, 2].map(|n| pair.protect(&packet(n)).expect("an SA serves it"));
    let mut receiver = Datapath::new(Settings::default(), pair.now);
    let arrival = Kind::PLAIN.arrival();
    receiver.expect_sa(Spi(SPI), arrival.path.remote.ip());
    let take = |datapath: &Datapath, datagram: &[u8]| {
        let mut queue = ReceiveQueue::new(0, Coalesce::default());
        datapath.decapsulate(pair.now, datagram, arrival, &mut queue)
    };
    assert_eq!(take(&receiver, &sealed[0]), Ok(()));
    let mut successor = succeeded(&receiver, pair.now);
    assert_eq!(take(&receiver, &sealed[1]), Err(Discard::Frozen));
    successor.add_inbound(Kind::PLAIN.inbound()).expect("a new SA");
    assert_eq!(successor.usage(IN).expect("it is there").packets, 0, "it is frozen");
    successor.thaw();
    assert_eq!(successor.usage(IN).expect("it is there").packets, 1);
    assert_eq!(take(&successor, &sealed[0]), Err(Discard::Replayed));
    assert_eq!(take(&successor, &sealed[1]), Ok(()));
}

#[test]
fn limits_and_the_notices_about_them_pass_over() {
    let kind = Kind::PLAIN;
    let len = packet(1).len() as u64;
    let limits = Limits { soft_bytes: Some(2 * len), hard_bytes: Some(3 * len) };
    let mut pair = Pair::with(
        kind,
        OutboundSa { limits, ..kind.outbound() },
        InboundSa { limits: Limits::default(), ..kind.inbound() },
    );
    let send = |pair: &Pair| pair.protect(&packet(1)).map(drop);
    assert_eq!((send(&pair), send(&pair)), (Ok(()), Ok(())));
    assert_eq!(pair.sender.take_notices(), [Notice::Expiring { sa: OUT, hard: false }]);
    pair.hand_over();
    assert_eq!(send(&pair), Ok(()));
    assert_eq!(pair.sender.take_notices(), [], "key management knows it");
    assert_eq!(send(&pair), Err(Discard::OutboundExhausted));
    assert_eq!(pair.sender.take_notices(), [Notice::Expiring { sa: OUT, hard: true }]);
    let usage = pair.sender.clone().usage(OUT).expect("it is there");
    assert_eq!((usage.packets, usage.bytes, usage.refused), (3, 3 * len, 1));
}

#[test]
fn the_bound_of_an_sa_that_is_keyed_by_hand_passes_over() {
    let mut pair = Pair::new(Kind::PLAIN);
    pair.sender.resume(OUT, 1000).expect("it is there");
    pair.sender.allow(OUT, 1002).expect("it is there");
    assert_eq!(number_of(&pair.protect(&packet(1)).expect("allowed")), 1001);
    pair.hand_over();
    assert_eq!(number_of(&pair.protect(&packet(2)).expect("allowed")), 1002);
    assert_eq!(pair.protect(&packet(3)), Err(Discard::OutboundExhausted));
    assert_eq!(pair.sender.retire(OUT), Some(1002));
}

#[test]
fn times_are_those_of_the_datapath_before() {
    let mut pair = Pair::new(Kind::PLAIN);
    let begun = pair.now;
    pair.now += Duration::from_secs(5);
    pair.protect(&packet(1)).expect("an SA serves it");
    pair.now += Duration::from_secs(5);
    let mut successor = succeeded(&pair.sender, pair.now);
    let usage = successor.usage(OUT).expect("it is there");
    assert_eq!(usage.last_used, Some(begun + Duration::from_secs(5)));
    // On a machine whose clock has just begun, nothing is before its beginning.
    let frozen = FrozenDatapath { age: Duration::MAX, ..pair.sender.freeze(pair.now) };
    assert!(Datapath::import(Settings::default(), frozen, pair.now).is_ok());
}

#[test]
fn a_value_that_no_datapath_can_have_is_refused() {
    let pair = Pair::new(Kind { esn: false, ..Kind::PLAIN });
    pair.open(&pair.protect(&packet(1)).expect("an SA serves it")).expect("authentic");
    let (sender, receiver) = (pair.sender.freeze(pair.now), pair.receiver.freeze(pair.now));
    let import = |frozen: &FrozenDatapath, change: &dyn Fn(&mut FrozenDatapath)| {
        let mut frozen = frozen.clone();
        change(&mut frozen);
        Datapath::import(Settings::default(), frozen, pair.now).map(drop)
    };
    assert_eq!(import(&sender, &|_| {}), Ok(()));
    assert_eq!(import(&receiver, &|_| {}), Ok(()));
    let of_sender: [&dyn Fn(&mut FrozenDatapath); 8] = [
        &|f| f.outbound[0].used = 1 << 32,
        &|f| f.outbound[0].used = u64::MAX,
        &|f| f.outbound[0].packets = 2,
        &|f| f.outbound[0].key = Secret::new(vec![1; 3]),
        &|f| f.outbound[0].rule = Some(RuleId(7)),
        &|f| f.outbound.push(f.outbound[0].clone()),
        &|f| f.rules.push(f.rules[0].clone()),
        &|f| f.rules[0].serving.push(SaId(77)),
    ];
    for (at, change) in of_sender.into_iter().enumerate() {
        assert!(import(&sender, change).is_err(), "{at}");
    }
    let of_receiver: [&dyn Fn(&mut FrozenDatapath); 6] = [
        &|f| f.inbound[0].received.top = 1 << 32,
        &|f| f.inbound[0].received.blocks.clear(),
        &|f| f.inbound[0].spi = Spi(5),
        &|f| f.inbound.push(f.inbound[0].clone()),
        &|f| f.paths[0].bound = Some(learned(100)),
        &|f| {
            let service = Default::default();
            f.rules.push(FrozenRule { rule: rule(false), serving: vec![IN], service });
        },
    ];
    for (at, change) in of_receiver.into_iter().enumerate() {
        assert!(import(&receiver, change).is_err(), "{at}");
    }
}

fn learned(mtu: usize) -> crate::path_mtu::Bound {
    crate::path_mtu::Bound { mtu, until: Duration::from_secs(600), learned: true }
}

#[test]
fn a_path_mtu_that_was_learned_passes_over_and_is_forgotten_in_time() {
    let pair = Pair::new(Kind::PLAIN);
    let mut frozen = pair.sender.freeze(pair.now);
    assert_eq!(frozen.paths.len(), 1);
    frozen.paths[0].bound = Some(learned(1300));
    let import = |frozen: &FrozenDatapath| {
        Datapath::import(Settings::default(), frozen.clone(), pair.now).expect("lawful")
    };
    let mut sender = import(&frozen);
    assert_eq!(sender.fit(OUT).map(|fit| (fit.path_mtu, fit.learned)), Some((1300, true)));
    assert_eq!(sender.freeze(pair.now).paths, frozen.paths);
    sender.age_paths(pair.now + Duration::from_secs(601));
    assert_eq!(sender.fit(OUT).map(|fit| fit.learned), Some(false));
    // A path to which no SA goes is forgotten at once.
    frozen.outbound.clear();
    frozen.rules[0].serving.clear();
    assert_eq!(import(&frozen).freeze(pair.now).paths, []);
}

#[test]
fn counters_pass_over_and_unknown_ones_are_left_out() {
    let pair = Pair::new(Kind::PLAIN);
    assert_eq!(pair.open(&[0; 60]), Err(Discard::UnknownSpi));
    let mut frozen = pair.receiver.freeze(pair.now);
    frozen.counters.insert("of_a_later_version".into(), 5);
    let successor = Datapath::import(Settings::default(), frozen, pair.now).expect("lawful");
    assert_eq!(successor.counters()["unknown_spi"], 1);
    assert_eq!(successor.counters().values().sum::<u64>(), 1);
}

/// Threads seal and take packets as fast as they can while the datapath is frozen, given away and thawed again.
#[test]
fn threads_that_do_not_know_of_it_use_no_number_twice() {
    const ROUNDS: usize = 30;
    let now = Instant::now();
    let pair = Pair::with(
        Kind::PLAIN,
        Kind::PLAIN.outbound(),
        InboundSa { replay_window: 65_536, ..Kind::PLAIN.inbound() },
    );
    let (mut sender, mut receiver) = (pair.sender.clone(), pair.receiver.clone());
    let (mut sent, mut accepted) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let work = || {
            let (mut sent, mut accepted) = (Vec::new(), Vec::new());
            let mut way_out = sender.sender();
            loop {
                let mut queue = SendQueue::new(0);
                match way_out.encapsulate(now, &mut packet(1), Gso::NONE, &mut queue) {
                    Ok(()) => sent.extend(datagrams(&queue)),
                    outcome => {
                        assert_eq!(outcome, Err(Discard::Frozen));
                        return (sent, accepted);
                    }
                }
                let mut queue = ReceiveQueue::new(0, Coalesce::default());
                let last = sent.last().expect("just sent");
                let arrival = Kind::PLAIN.arrival();
                if receiver.decapsulate(now, last, arrival, &mut queue).is_ok() {
                    accepted.push(number_of(last));
                }
            }
        };
        let (next_sender, next_receiver) = std::thread::scope(|scope| {
            let threads = [(); 3].map(|()| scope.spawn(work));
            while pair_usage(&sender) < 40 * (round as u64 + 1) {
                std::hint::spin_loop();
            }
            let next = (succeeded_by_value(&sender, now), succeeded_by_value(&receiver, now));
            for thread in threads {
                let (more, taken) = thread.join().expect("no panic");
                sent.extend(more.iter().map(|datagram| (number_of(datagram), datagram.clone())));
                accepted.extend(taken);
            }
            next
        });
        // Every other time nobody goes on, and the one before does.
        if round % 2 == 0 {
            (sender, receiver) = (next_sender, next_receiver);
        }
        sender.thaw();
        receiver.thaw();
    }
    let numbers: BTreeSet<u32> = sent.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers.len(), sent.len(), "a number was used twice");
    let distinct: BTreeSet<u32> = accepted.iter().copied().collect();
    assert_eq!(distinct.len(), accepted.len(), "a replay was accepted");
    // Each packet that was sent is taken now, or was before.
    for (number, datagram) in &sent {
        let mut queue = ReceiveQueue::new(0, Coalesce::default());
        let outcome = receiver.decapsulate(now, datagram, Kind::PLAIN.arrival(), &mut queue);
        match outcome {
            Ok(()) => assert!(!distinct.contains(number), "{number}"),
            Err(discard) => assert!(
                discard == Discard::ReplayTooOld
                    || discard == Discard::Replayed && distinct.contains(number),
                "{number}: {discard}"
            ),
        }
    }
}

fn pair_usage(sender: &Datapath) -> u64 {
    sender.clone().usage(OUT).expect("it is there").packets
}

/// As [`succeeded`], while threads count what they drop.
fn succeeded_by_value(datapath: &Datapath, now: Instant) -> Datapath {
    Datapath::import(Settings::default(), datapath.freeze(now), now).expect("as it was")
}

/// A happening of a random history.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// Packets are sent.
    Send(u8),
    /// One of the packets sent so far arrives, counted from the last one.
    Deliver(u16),
    /// The sender, or the receiver, is frozen, and another process goes on.
    HandOver { sender: bool },
    /// It is frozen, another process fails, and it is thawed.
    ThawAgain { sender: bool },
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => (1..40u8).prop_map(Happening::Send),
        6 => (0..300u16).prop_map(Happening::Deliver),
        1 => any::<bool>().prop_map(|sender| Happening::HandOver { sender }),
        1 => any::<bool>().prop_map(|sender| Happening::ThawAgain { sender }),
    ]
}

proptest! {
    // Each case has many SAs, and opens each packet twice.
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// No number is used twice and no replay accepted, whoever goes on; and nothing else is refused: a receiver that is
    /// never frozen decides the same about every packet.
    #[test]
    fn no_number_twice_and_no_replay_whoever_goes_on(
        happenings in proptest::collection::vec(happening(), 1..80),
        esn: bool,
        window in prop_oneof![Just(32u32), Just(64), Just(100), Just(1024)],
        start in prop_oneof![Just(0u64), Just(60), Just((1 << 32) - 40)],
    ) {
        let kind = Kind { esn, ..Kind::PLAIN };
        let start = if esn { start } else { start.min(60) };
        let inbound = || InboundSa { replay_window: window, ..kind.inbound() };
        let mut pair = Pair::with(kind, kind.outbound(), inbound());
        pair.outbound().resume(start);
        pair.inbound().set_top_of(start, window);
        let reference = Pair::with(kind, kind.outbound(), inbound());
        reference.inbound().set_top_of(start, window);
        let mut predecessors: Vec<Datapath> = Vec::new();
        let mut sent: Vec<Vec<u8>> = Vec::new();
        let (mut claimed, mut accepted) = (start, BTreeSet::new());
        for happening in happenings {
            match happening {
                Happening::Send(count) => for _ in 0..count {
                    let sealed = pair.protect(&packet(7)).expect("an SA serves it");
                    claimed += 1;
                    prop_assert_eq!(number_of(&sealed), claimed as u32);
                    sent.push(sealed);
                },
                Happening::Deliver(back) => {
                    let Some(at) = sent.len().checked_sub(usize::from(back) + 1) else { continue };
                    let (outcome, expected) = (pair.open(&sent[at]), reference.open(&sent[at]));
                    prop_assert_eq!(&outcome, &expected);
                    if outcome.is_ok() {
                        prop_assert!(accepted.insert(at), "a replay was accepted");
                    }
                    for before in &predecessors {
                        let mut queue = ReceiveQueue::new(0, Coalesce::default());
                        let late = before.decapsulate(pair.now, &sent[at], kind.arrival(), &mut queue);
                        prop_assert!(late.is_err());
                    }
                }
                Happening::HandOver { sender: true } => {
                    let successor = succeeded(&pair.sender, pair.now);
                    predecessors.push(pair.sender.clone());
                    successor.thaw();
                    pair.send_by(successor);
                }
                Happening::HandOver { sender: false } => {
                    let successor = succeeded(&pair.receiver, pair.now);
                    successor.thaw();
                    predecessors.push(std::mem::replace(&mut pair.receiver, successor));
                }
                Happening::ThawAgain { sender } => {
                    let datapath = if sender { &pair.sender } else { &pair.receiver };
                    drop(succeeded(datapath, pair.now));
                    datapath.thaw();
                }
            }
            for before in &predecessors {
                let mut queue = SendQueue::new(0);
                let late = before.encapsulate(pair.now, &mut packet(8), Gso::NONE, &mut queue);
                prop_assert!(late.is_err() && queue.is_empty());
            }
        }
    }
}
