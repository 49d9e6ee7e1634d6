//! SAs in a network card, on a kernel in memory: what fits, what falls back, and what becomes of it when the card goes.

use super::twin::{CARD, SimulatedCard, Twin, inbound, outbound, rule};
use super::*;
use crate::placement::{Card, CardReport, Cards, Choice, OffloadMode, Placement, Wanted};
use esp::plane::{DataPlane, Maintenance, ManualKeying, Resynced};
use policy::AddressRange;

pub(super) const BOTH: SimulatedCard =
    SimulatedCard { room: 2, packet: true, policies: true, declines: false, addresses: 128 };

/// The host's cards, as the twin has one or none.
struct Host(Twin);

impl Cards for Host {
    fn named(&mut self, name: &str) -> Option<Card> {
        let there = self.0.tables().card.filter(|_| name == "eth4")?;
        Some(Card {
            index: CARD,
            name: "eth4".to_owned(),
            esp: Some(true),
            driver: None,
            checksum: true,
            addresses: Some(there.addresses),
        })
    }

    fn towards(&mut self, _: IpAddr) -> Option<Card> {
        self.named("eth4")
    }

    fn lead_to(&mut self, _: IpAddr, _: u32) -> bool {
        true
    }

    fn own_within(&mut self, _: &AddressRange) -> Option<IpAddr> {
        None
    }
}

pub(super) fn plane(wanted: Wanted, card: Option<SimulatedCard>) -> (Xfrm, Twin, Placement) {
    let twin = Twin::default();
    twin.tables().card = card;
    let placement = Placement::new(Choice { wanted, device: None }, BTreeMap::new());
    placement.ask(Box::new(Host(twin.clone())));
    let config = Config { placement: placement.clone(), ..Config::default() };
    let mut plane = Xfrm::on(Box::new(twin.clone()), config, Known::default(), None);
    plane.add_rule(rule()).expect("the kernel can");
    (plane, twin, placement)
}

fn add(plane: &mut Xfrm, number: u32) {
    let id = u64::from(number) * 2;
    plane.add_inbound(inbound(id, 0x100 + number)).expect("somewhere");
    plane.add_outbound(outbound(id + 1, 0x200 + number, false)).expect("somewhere");
}

fn report(placement: &Placement) -> CardReport {
    placement.report().cards.into_iter().next().expect("a card")
}

fn reasons(card: &CardReport) -> Vec<(&'static str, &'static str, u64)> {
    card.fallbacks.iter().map(|f| (f.place.name(), f.reason.name(), f.count)).collect()
}

#[test]
fn the_best_that_the_card_does_is_used() {
    for (wanted, card, expected) in [
        (Wanted::Auto, BOTH, [2, 0]),
        (Wanted::Crypto, BOTH, [0, 2]),
        (Wanted::Auto, SimulatedCard { packet: false, ..BOTH }, [0, 2]),
        (Wanted::Packet, SimulatedCard { packet: false, ..BOTH }, [0, 0]),
        (Wanted::Off, BOTH, [0, 0]),
        // The SA would fit, but not its policy.
        (Wanted::Auto, SimulatedCard { policies: false, ..BOTH }, [0, 2]),
    ] {
        let (mut plane, twin, placement) = plane(wanted, Some(card));
        add(&mut plane, 1);
        assert_eq!(twin.in_card(), expected, "{wanted:?}");
        assert_eq!(twin.tables().states.len(), 2);
        assert!(twin.is_tight());
        let cards = placement.report().cards;
        let inside: usize = cards.iter().map(|card| card.inside[0] + card.inside[1]).sum();
        assert_eq!(expected[0] + expected[1], inside);
        drop(plane);
        assert!(twin.tables().policies.is_empty() && twin.tables().states.is_empty());
    }
}

#[test]
fn an_sa_in_standby_whose_policy_is_not_taken_serves_all_the_same() {
    let (mut plane, twin, _) = plane(Wanted::Auto, Some(SimulatedCard { policies: false, ..BOTH }));
    plane.add_outbound(outbound(1, 0x201, true)).expect("the card takes it");
    assert_eq!(twin.in_card(), [1, 0]);
    plane.promote(SaId(1)).expect("without its policy in the card");
    assert_eq!(twin.in_card(), [0, 1]);
    assert_eq!(twin.policy(PolicyDirection::Out), [Some(0x201)]);
}

#[test]
fn an_sa_that_finds_no_room_is_done_in_software_and_counted() {
    let (mut plane, twin, placement) = plane(Wanted::Auto, Some(BOTH));
    (1..=5).for_each(|number| add(&mut plane, number));
    assert_eq!((twin.in_card(), twin.tables().states.len()), ([4, 0], 10));
    let card = report(&placement);
    assert_eq!((card.inside, card.room), ([2, 2], [Some(2), Some(2)]));
    assert_eq!(reasons(&card), [("packet", "full", 6), ("crypto", "full", 6)]);
    // A removed SA makes room for the next.
    plane.remove(SaId(2));
    plane.add_inbound(inbound(20, 0x120)).expect("room");
    assert_eq!((twin.in_card(), report(&placement).inside), ([4, 0], [2, 2]));
}

#[test]
fn a_driver_that_declines_in_silence_is_found_out() {
    let (mut plane, twin, placement) =
        plane(Wanted::Crypto, Some(SimulatedCard { declines: true, ..BOTH }));
    add(&mut plane, 1);
    assert_eq!((twin.in_card(), twin.tables().states.len()), ([0, 0], 2));
    assert_eq!(reasons(&report(&placement)), [("crypto", "ignored", 2)]);
    let places: BTreeSet<_> = placement.report().sas.iter().map(|sa| sa.place).collect();
    assert_eq!(places, [OffloadMode::Software].into());
}

#[test]
fn a_card_that_goes_leaves_no_gap_and_its_sas_to_the_kernel() {
    let (mut plane, twin, placement) = plane(Wanted::Auto, Some(BOTH));
    (1..=3).for_each(|number| add(&mut plane, number));
    twin.pull_card();
    // Before anybody has noticed.
    assert!(twin.is_tight());
    assert_eq!(twin.tables().states.len(), 2);
    plane.network_changed();
    assert_eq!((twin.in_card(), twin.tables().states.len()), ([0, 0], 6));
    assert!(twin.is_tight() && twin.lets_in());
    let card = report(&placement);
    assert_eq!((&card.card, card.inside), (&None, [0, 0]));
    assert!(reasons(&card).contains(&("packet", "gone", 6)), "{card:?}");

    // It comes back, and takes what it has room for.
    twin.tables().card = Some(BOTH);
    let done = plane.resync().expect("the kernel can");
    assert_eq!(done, Resynced { sas: 0, policies: 0, moved: 4 });
    assert_eq!((twin.in_card(), twin.tables().states.len()), ([4, 0], 6));
    assert_eq!(plane.resync(), Ok(Resynced::default()), "nothing is left to do");

    // SAs that others remove go back to where they were.
    twin.tables().states.clear();
    let done = plane.resync().expect("the kernel can");
    assert_eq!(done, Resynced { sas: 6, policies: 0, moved: 0 });
    assert_eq!(twin.in_card(), [4, 0]);
    assert!(!reasons(&report(&placement)).contains(&("packet", "gone", 7)));
}

/// A packet that leaves between the loss of its SA and the discovery of that makes the kernel ask for one of this SPI.
#[test]
fn a_card_whose_driver_is_loaded_again_has_its_sas_again() {
    for by_command in [false, true] {
        let (mut plane, twin, placement) = plane(Wanted::Auto, Some(BOTH));
        (1..=3).for_each(|number| add(&mut plane, number));
        assert_eq!((twin.in_card(), twin.tables().states.len()), ([4, 0], 6));
        // The driver clears the tables of the card, and the kernel forgets what was in them.
        twin.pull_card();
        twin.tables().card = Some(BOTH);
        assert!(twin.is_tight(), "before anybody has noticed");
        match by_command {
            true => _ = plane.resync().expect("the kernel can"),
            false => plane.network_changed(),
        }
        assert_eq!((twin.in_card(), twin.tables().states.len()), ([4, 0], 6), "{by_command}");
        assert!(twin.is_tight() && twin.lets_in());
        assert_eq!(report(&placement).inside, [2, 2]);
    }
}

#[test]
fn a_request_for_an_sa_is_not_taken_for_the_sa() {
    let (mut plane, twin, _) = plane(Wanted::Crypto, Some(BOTH));
    plane.add_outbound(outbound(1, 0x201, false)).expect("the card takes it");
    let states = twin.tables().states.clone();
    twin.pull_card();
    for (name, mut larva) in states {
        larva.nlas.clear();
        twin.tables().states.insert(name, larva);
    }
    plane.network_changed();
    assert!(plane.last_sequence(SaId(1)) > Some(0), "its numbers do not begin anew");
    assert_eq!(twin.policy(PolicyDirection::Out), [Some(0x201)]);
    assert!(twin.is_tight());
}

#[test]
fn sequence_numbers_of_sas_keyed_by_hand_go_on() {
    let (mut plane, _, _) = plane(Wanted::Off, None);
    plane.add_outbound(outbound(1, 0x201, true)).expect("the kernel can");
    plane.resume(SaId(1), (7 << 32) + 5).expect("it is there");
    plane.promote(SaId(1)).expect("it is there");
    assert_eq!(plane.last_sequence(SaId(1)), Some((7 << 32) + 5));
}
