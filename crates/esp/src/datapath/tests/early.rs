//! Packets that arrive before their SA.

use super::*;
use crate::datapath::stages::Opened;
use crate::plane::EarlyPackets;

/// A receiver without SAs, and the packets that it passes on by itself.
struct Receiver {
    datapath: Datapath,
    passed_on: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Receiver {
    fn new(now: Instant) -> Self {
        let passed_on = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let pass_on: Inward = {
            let passed_on = Arc::clone(&passed_on);
            Arc::new(move |packet: &[u8]| lock(&passed_on).push(packet.to_vec()))
        };
        let settings = Settings { on_answer: Some(pass_on), ..Settings::default() };
        Self { datapath: Datapath::new(settings, now), passed_on }
    }

    /// Opens a packet that was sent to it. Returns `true` if it was kept.
    fn keeps(&self, now: Instant, datagram: &[u8], arrival: Arrival) -> bool {
        let mut queue = ReceiveQueue::new(0, Coalesce::default());
        let outcome = self.datapath.decapsulate(now, datagram, arrival, &mut queue);
        assert_eq!(queue.packets().count(), 0, "nothing can be opened yet");
        assert!(matches!(outcome, Ok(()) | Err(Discard::UnknownSpi)), "{outcome:?}");
        outcome.is_ok()
    }

    fn unknown(&self) -> u64 {
        self.datapath.counters()[Discard::UnknownSpi.name()]
    }

    fn passed_on(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *lock(&self.passed_on))
    }
}

fn sent(pair: &Pair, number: u16) -> (Vec<u8>, Vec<u8>) {
    let packet = sample::udp(false, (4000, number), &sample::payload(20));
    let sealed = pair.protect(&packet).expect("an SA serves it");
    (packet, sealed)
}

#[test]
fn packets_of_an_sa_that_is_to_come_are_opened_when_it_is_there() {
    let pair = Pair::new(Kind::PLAIN);
    let mut receiver = Receiver::new(pair.now);
    let (peer, arrival) = (Kind::PLAIN.path().local.ip(), Kind::PLAIN.arrival());
    let (before, first) = sent(&pair, 1);
    assert!(!receiver.keeps(pair.now, &first, arrival), "nobody expects it");
    receiver.datapath.expect_sa(Spi(SPI), peer);
    let sealed = [sent(&pair, 2), sent(&pair, 3)];
    for (_, datagram) in &sealed {
        assert!(receiver.keeps(pair.now, datagram, arrival));
    }
    assert_eq!((receiver.passed_on(), receiver.unknown()), (vec![], 1));
    receiver.datapath.add_inbound(Kind::PLAIN.inbound()).expect("a new SA");
    assert_eq!(receiver.passed_on(), sealed.each_ref().map(|(packet, _)| packet.clone()));
    // They count as received: a copy is a replay.
    let mut queue = ReceiveQueue::new(0, Coalesce::default());
    let again = receiver.datapath.decapsulate(pair.now, &sealed[0].1, arrival, &mut queue);
    assert_eq!(again, Err(Discard::Replayed));
    let usage = receiver.datapath.usage(IN).expect("it is there");
    assert_eq!((usage.packets, usage.bytes), (2, 2 * before.len() as u64));
}

#[test]
fn packets_that_arrive_together_are_kept_too() {
    for ahead in [false, true] {
        let pair = Pair::new(Kind::PLAIN);
        let mut receiver = Receiver::new(pair.now);
        let (peer, arrival) = (Kind::PLAIN.path().local.ip(), Kind::PLAIN.arrival());
        receiver.datapath.expect_sa(Spi(SPI), peer);
        let sealed = [sent(&pair, 1), sent(&pair, 2), sent(&pair, 3)];
        let length = sealed[0].1.len();
        let run = sealed.each_ref().map(|(_, datagram)| datagram.clone()).concat();
        let mut queue = ReceiveQueue::new(0, Coalesce::default());
        let datapath = &receiver.datapath;
        if ahead {
            let mut opened = Opened::default();
            datapath.open_ahead((0, 0), &run, length, arrival, &mut opened, &mut queue);
        } else {
            assert_eq!(datapath.decapsulate_run(pair.now, &run, length, arrival, &mut queue), 0);
        }
        receiver.datapath.add_inbound(Kind::PLAIN.inbound()).expect("a new SA");
        assert_eq!(receiver.passed_on(), sealed.map(|(packet, _)| packet));
        assert_eq!(receiver.unknown(), 0);
    }
}

#[test]
fn packets_of_an_sa_that_does_not_come_are_counted() {
    let pair = Pair::new(Kind::PLAIN);
    let mut receiver = Receiver::new(pair.now);
    let (peer, arrival) = (Kind::PLAIN.path().local.ip(), Kind::PLAIN.arrival());
    receiver.datapath.expect_sa(Spi(SPI), peer);
    let (_, datagram) = sent(&pair, 1);
    assert!(receiver.keeps(pair.now, &datagram, arrival));
    receiver.datapath.expect_no_sa(Spi(SPI));
    assert_eq!(receiver.unknown(), 1);
    assert!(!receiver.keeps(pair.now, &datagram, arrival), "it is not expected any more");
    receiver.datapath.add_inbound(Kind::PLAIN.inbound()).expect("a new SA");
    assert_eq!(receiver.passed_on(), Vec::<Vec<u8>>::new());
}

#[test]
fn an_sa_for_ah_keeps_no_esp() {
    let pair = Pair::new(Kind::PLAIN);
    let mut receiver = Receiver::new(pair.now);
    let (peer, arrival) = (Kind::PLAIN.path().local.ip(), Kind::PLAIN.arrival());
    receiver.datapath.expect_sa(Spi(SPI), peer);
    let (_, datagram) = sent(&pair, 1);
    assert!(receiver.keeps(pair.now, &datagram, arrival));
    let suite = crypto::Suite::Ah(policy::AhIntegrity::AesGmac(policy::KeyBits::B128));
    let ah = Kind { suite, encapsulation: Encapsulation::Ah, ..Kind::PLAIN };
    receiver.datapath.add_inbound(ah.inbound()).expect("a new SA");
    assert!(!receiver.keeps(pair.now, &datagram, arrival), "no SA for ESP is to come");
    assert_eq!((receiver.passed_on(), receiver.unknown()), (vec![], 2));
}

#[test]
fn only_a_few_packets_of_the_peer_are_kept() {
    let pair = Pair::new(Kind::PLAIN);
    let mut receiver = Receiver::new(pair.now);
    let (peer, arrival) = (Kind::PLAIN.path().local.ip(), Kind::PLAIN.arrival());
    receiver.datapath.expect_sa(Spi(SPI), peer);
    let (_, datagram) = sent(&pair, 1);
    let mut stranger = arrival;
    stranger.path.remote = "198.51.100.7:4500".parse().expect("an address");
    assert!(!receiver.keeps(pair.now, &datagram, stranger), "the SPI was offered to another");
    let kept = (0..100).filter(|_| receiver.keeps(pair.now, &datagram, arrival)).count();
    assert_eq!(kept, 32);
    // Long ones of many SPIs are bounded all together.
    let mut kept = 0;
    for spi in SPI + 1..SPI + 100 {
        receiver.datapath.expect_sa(Spi(spi), peer);
        let datagram = [&spi.to_be_bytes()[..], &[0; 60_000]].concat();
        kept += usize::from(receiver.keeps(pair.now, &datagram, arrival));
    }
    assert_eq!(kept, 17, "a mebioctet");
    (SPI..SPI + 100).for_each(|spi| receiver.datapath.expect_no_sa(Spi(spi)));
    receiver.datapath.expect_sa(Spi(SPI), peer);
    assert!(receiver.keeps(pair.now, &datagram, arrival), "there is room again");
}
