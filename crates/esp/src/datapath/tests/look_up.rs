//! Inbound SAs with one SPI, at several addresses of this host (RFC 4301 §4.1).

use super::*;
use crate::datapath::stages::Opened;
use crate::queue::SaLookups;

/// The SPIs of SAs that are keyed by hand are the operator's choice.
const BY_HAND: SaId = SaId(SaId::FIRST_MANUAL.0 + 1);
const OTHER: SaId = SaId(SaId::FIRST_MANUAL.0 + 2);

/// The path by which packets reach another address of this host.
fn path_to(last: u8) -> Path {
    let path = mirrored(Kind::PLAIN.path());
    Path { local: ([192, 0, 2, last], 4500).into(), ..path }
}

fn key(number: u8) -> Secret {
    Secret::new(vec![number; GCM.key_material_len()])
}

/// The SA with that key, which receives at an address.
fn inbound(id: SaId, last: u8, number: u8) -> InboundSa {
    InboundSa { id, path: path_to(last), key: key(number), ..Kind::PLAIN.inbound() }
}

/// A receiver with SAs, and the packets of their peers.
struct Shared {
    receiver: Datapath,
    peers: Vec<(u8, Datapath)>,
    queue: ReceiveQueue,
}

impl Shared {
    fn new(sas: Vec<InboundSa>) -> Self {
        let mut receiver = Datapath::new(Settings::default(), Instant::now());
        for sa in sas {
            receiver.add_inbound(sa).expect("no SPI is there twice at one address");
        }
        Self { receiver, peers: Vec::new(), queue: ReceiveQueue::new(0, Coalesce::default()) }
    }

    /// A packet by the SA with that key.
    fn sealed(&mut self, number: u8) -> Vec<u8> {
        if self.peers.iter().all(|(known, _)| *known != number) {
            let mut peer = Datapath::new(Settings::default(), Instant::now());
            peer.add_rule(rule(false)).expect("a new rule");
            let sa = OutboundSa { key: key(number), ..Kind::PLAIN.outbound() };
            peer.add_outbound(sa).expect("a new SA");
            self.peers.push((number, peer));
        }
        let (_, peer) = self.peers.iter().find(|(known, _)| *known == number).expect("just made");
        let (mut queue, mut packet) = (SendQueue::new(0), sample::udp(false, (1, 2), b"payload"));
        peer.encapsulate(Instant::now(), &mut packet, Gso::NONE, &mut queue).expect("an SA");
        datagrams(&queue).remove(0)
    }

    /// Opens what came by a path, and counts the look-ups.
    fn open(&mut self, number: u8, path: Path) -> (Result<(), Discard>, SaLookups) {
        let (sealed, arrival) = (self.sealed(number), Arrival { path, tos: None, ttl: None });
        let now = Instant::now();
        let outcome = self.receiver.decapsulate(now, &sealed, arrival, &mut self.queue);
        (outcome, self.queue.take_lookups())
    }

    fn opens(&mut self, number: u8, path: Path) -> bool {
        let (outcome, lookups) = self.open(number, path);
        assert_eq!(lookups, SaLookups { found: 1, unknown: 0 });
        match outcome {
            Ok(()) => true,
            Err(discard) => {
                // The SA that was found has another key, and numbers of its own.
                assert!(matches!(discard, Discard::Forged | Discard::Replayed), "{discard:?}");
                false
            }
        }
    }
}

#[test]
fn one_spi_stands_for_an_sa_at_each_local_address() {
    let sas = vec![inbound(BY_HAND, 2, 1), inbound(IN, 3, 2), inbound(OTHER, 4, 3)];
    let mut shared = Shared::new(sas);
    for (last, number) in [(2, 1), (3, 2), (4, 3), (2, 1)] {
        assert!(shared.opens(number, path_to(last)));
        assert!(!shared.opens(number % 3 + 1, path_to(last)), "that one is of another address");
    }
    let again = inbound(SaId(9), 3, 4);
    let refused = shared.receiver.add_inbound(again);
    assert_eq!(refused, Err(PlaneError::SpiInUse(Spi(SPI))));
    // The others stay where they are when one goes.
    shared.receiver.remove(BY_HAND).expect("installed");
    assert!(shared.opens(3, path_to(4)) && shared.opens(2, path_to(3)));
    shared.receiver.remove(IN).expect("installed");
    assert!(shared.opens(3, path_to(4)));
    shared.receiver.remove(OTHER).expect("installed");
    let (outcome, lookups) = shared.open(3, path_to(4));
    assert_eq!(outcome, Err(Discard::UnknownSpi));
    assert_eq!(lookups, SaLookups { found: 0, unknown: 1 });
}

/// The peer may use a new address of this host before key management has told the plane, and the old one afterwards
/// (RFC 4555 §3.5).
#[test]
fn an_sa_whose_address_changes_goes_on_receiving() {
    for by_hand_too in [false, true] {
        let mut sas = vec![inbound(IN, 3, 2)];
        sas.extend(by_hand_too.then(|| inbound(BY_HAND, 2, 1)));
        let mut shared = Shared::new(sas);
        for (last, moves) in [(3, false), (5, false), (5, true), (3, false)] {
            if moves {
                shared.receiver.relocate(IN, path_to(5)).expect("installed");
            }
            assert!(shared.opens(2, path_to(last)), "{by_hand_too} {last}");
        }
        if by_hand_too {
            assert!(shared.opens(1, path_to(2)), "that one stays");
        }
    }
}

/// Where an SA comes to the address of another one, the source decides.
#[test]
fn of_two_sas_at_one_address_the_source_decides() {
    let mut shared = Shared::new(vec![inbound(BY_HAND, 2, 1), inbound(IN, 3, 2)]);
    let from_elsewhere = Path { remote: ([198, 51, 100, 7], 4500).into(), ..path_to(2) };
    shared.receiver.relocate(IN, from_elsewhere).expect("installed");
    assert!(shared.opens(2, from_elsewhere));
    assert!(shared.opens(1, path_to(2)));
}

/// Without one that may move, a packet for another address is of no SA.
#[test]
fn sas_by_hand_are_found_at_their_own_address_alone() {
    let mut shared = Shared::new(vec![inbound(BY_HAND, 2, 1), inbound(OTHER, 4, 3)]);
    assert_eq!(shared.open(1, path_to(5)).0, Err(Discard::UnknownSpi));
    assert!(shared.opens(1, path_to(2)));
}

#[test]
fn look_ups_are_counted_per_packet_in_both_schedules() {
    let mut shared = Shared::new(vec![inbound(IN, 3, 2)]);
    let known = [(); 3].map(|()| shared.sealed(2));
    let mut stray = known[0].clone();
    stray[0] ^= 1;
    let len = stray.len();
    let run = [&known[0][..], &known[1], &stray, &known[2]].concat();
    let arrival = Arrival { path: path_to(3), tos: None, ttl: None };
    let (now, mut queue) = (Instant::now(), ReceiveQueue::new(0, Coalesce::default()));
    assert_eq!(shared.receiver.decapsulate_run(now, &run, len, arrival, &mut queue), 3);
    assert_eq!(queue.take_lookups(), SaLookups { found: 3, unknown: 1 });
    let mut opened = Opened::default();
    shared.receiver.open_ahead((0, 0), &run, len, arrival, &mut opened, &mut queue);
    queue.clear();
    assert_eq!(queue.take_lookups(), SaLookups { found: 3, unknown: 1 });
    assert_eq!(queue.take_lookups(), SaLookups::default());
}
