//! The outcome for packets does not depend on whether one thread takes them or several do.

use super::*;
use crate::datapath::stages::Opened;

/// Everything that a receiver hands on, split again where it was put together.
type Handed = Vec<Vec<u8>>;

fn receiver(kind: Kind, window: u32, limits: Limits) -> Pair {
    let inbound = InboundSa { replay_window: window, limits, ..kind.inbound() };
    Pair::with(kind, kind.outbound(), inbound)
}

fn in_turn(pair: &Pair, batches: &[Vec<Vec<u8>>]) -> Handed {
    let mut queue = ReceiveQueue::new(0, Coalesce::default());
    for datagram in batches.iter().flatten() {
        let _ = pair.receiver.decapsulate(pair.now, datagram, pair.kind.arrival(), &mut queue);
    }
    queue.packets().map(|(packet, _)| packet.to_vec()).collect()
}

/// All batches are opened before the first is settled, the last one first.
pub(super) fn ahead(pair: &Pair, batches: &[Vec<Vec<u8>>]) -> Handed {
    let mut all: Vec<_> = batches
        .iter()
        .rev()
        .map(|batch| {
            let (mut opened, mut queue) =
                (Opened::default(), ReceiveQueue::new(0, Coalesce::default()));
            for (run, datagram) in batch.iter().enumerate() {
                let arrival = pair.kind.arrival();
                let (len, datapath) = (datagram.len(), &pair.receiver);
                datapath.open_ahead((run, 0), datagram, len, arrival, &mut opened, &mut queue);
            }
            (batch, opened, queue)
        })
        .collect();
    let mut handed = Vec::new();
    let mut again = ReceiveQueue::new(0, Coalesce::default());
    while let Some((batch, mut opened, mut queue)) = all.pop() {
        let octets = |run: usize| -> &[u8] { &batch[run] };
        let mut write = |packet: &[u8], _| handed.push(packet.to_vec());
        pair.receiver.settle(pair.now, &mut opened, &mut queue, &octets, &mut again, &mut write);
    }
    handed
}

/// A packet that is both forged and old is refused for what is looked at first.
fn counted(pair: &Pair) -> (u64, BTreeMap<&'static str, u64>) {
    let mut counters = pair.receiver.counters();
    let either = ["forged", "replayed", "replay_too_old"];
    (either.iter().filter_map(|name| counters.remove(name)).sum(), counters)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn packets_opened_ahead_fare_as_those_opened_in_turn(
        esn: bool, window in prop_oneof![Just(0u32), Just(32), Just(64), Just(4096)], hard in prop_oneof![Just(None), (1..20_000u64).prop_map(Some)],
        arrivals in proptest::collection::vec((0..60usize, 0..40u8), 1..120), lengths in proptest::collection::vec(1..12usize, 1..30),
    ) {
        let kind = Kind { esn, ..Kind::PLAIN };
        let limits = Limits { soft_bytes: hard.map(|hard| hard / 2), hard_bytes: hard };
        let (one, many) = (receiver(kind, window, limits), receiver(kind, window, limits));
        let sent: Vec<Vec<u8>> = (0..200)
            .map(|n| one.protect(&sample::udp(false, (4000, n), &sample::payload(200))).expect("sealed"))
            .collect();
        // Mostly rising, with duplicates and packets overtaken by others, some of them forged.
        let mut arrivals = arrivals.iter().enumerate().map(|(at, (ahead, fate))| {
            let mut datagram = sent[at + ahead % 8].clone();
            match fate {
                0 => *datagram.last_mut().expect("not empty") ^= 1,
                1 => datagram.truncate(20),
                2 => datagram[0] ^= 1,
                _ => {}
            }
            datagram
        });
        let mut batches = Vec::new();
        for length in lengths.iter().cycle() {
            let batch: Vec<_> = arrivals.by_ref().take(*length).collect();
            if batch.is_empty() {
                break;
            }
            batches.push(batch);
        }
        prop_assert_eq!(in_turn(&one, &batches), ahead(&many, &batches));
        prop_assert_eq!(counted(&one), counted(&many));
        prop_assert_eq!(one.receiver.take_notices(), many.receiver.take_notices());
        prop_assert!(one.inbound().snapshot() == many.inbound().snapshot());
        prop_assert_eq!(one.inbound().usage(one.now), many.inbound().usage(one.now));
    }
}

#[test]
fn sequence_numbers_follow_the_order_of_admission() {
    let pair = Pair::new(Kind::PLAIN);
    let mut packets: Vec<_> =
        (0..3).map(|n| sample::udp(false, (4000, n), &sample::payload(20))).collect();
    let (mut admitted, mut sender) = (Vec::new(), pair.sender.sender());
    for packet in &mut packets {
        admitted.push(sender.admit(pair.now, packet, Gso::NONE).expect("an SA serves it"));
    }
    let mut sealed = Vec::new();
    for (packet, admitted) in packets.iter_mut().zip(admitted).rev() {
        let mut queue = SendQueue::new(0);
        pair.sender.seal(pair.now, admitted, packet, &mut queue);
        sealed.extend(datagrams(&queue));
    }
    sealed.reverse();
    for (n, (datagram, packet)) in sealed.iter().zip(&packets).enumerate() {
        assert_eq!(datagram[4..8], (n as u32 + 1).to_be_bytes());
        assert_eq!(pair.open(datagram).as_ref(), Ok(packet));
    }
}

#[test]
fn segments_are_put_together_across_datagrams_but_not_across_sas() {
    let pair = Pair::new(Kind::PLAIN);
    let mut receiver = pair.receiver.clone();
    let other = Spi(SPI + 1);
    let second = InboundSa { id: SaId(9), spi: other, ..Kind::PLAIN.inbound() };
    receiver.add_inbound(second).expect("a new SA");
    let mut sender = Datapath::new(Settings::default(), pair.now);
    sender.add_rule(rule(false)).expect("a new rule");
    let outbound = OutboundSa { spi: other, ..Kind::PLAIN.outbound() };
    sender.add_outbound(outbound).expect("a new SA");

    let segment = |n: u32| sample::tcp(false, 1000 + n * 500, ACK, &[], &sample::payload(500));
    let mut datagrams: Vec<_> =
        (0..3).map(|n| pair.protect(&segment(n)).expect("sealed")).collect();
    for n in 3..5 {
        let mut queue = SendQueue::new(0);
        sender.encapsulate(pair.now, &mut segment(n), Gso::NONE, &mut queue).expect("sealed");
        datagrams.extend(super::datagrams(&queue));
    }
    let mut opened = Opened::default();
    let mut queue = ReceiveQueue::new(0, Coalesce { tcp: true, udp: true });
    let mut again = ReceiveQueue::new(0, Coalesce::default());
    for (run, datagram) in datagrams.iter().enumerate() {
        let arrival = pair.kind.arrival();
        receiver.open_ahead((run, 0), datagram, datagram.len(), arrival, &mut opened, &mut queue);
    }
    let mut lengths = Vec::new();
    let octets = |run: usize| -> &[u8] { &datagrams[run] };
    receiver.settle(pair.now, &mut opened, &mut queue, &octets, &mut again, &mut |packet, _| {
        lengths.push(packet.len());
    });
    assert_eq!(lengths, [40 + 1500, 40 + 1000]);
}
