//! Cards that were full and have room again.

use super::place::{BOTH, plane as with_card};
use super::twin::{SimulatedCard, inbound, outbound};
use super::*;
use crate::placement::{Placement, Wanted};
use crate::tests::twin::Twin;
use esp::plane::{DataPlane, Maintenance, ManualKeying};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A plane with a card, and how often it has told of room.
fn plane(wanted: Wanted, room: usize) -> (Xfrm, Twin, Placement, Arc<AtomicUsize>) {
    let (mut plane, twin, placement) = with_card(wanted, Some(SimulatedCard { room, ..BOTH }));
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    plane.notice = Arc::new(move |notice| {
        assert_eq!(notice, Notice::Room);
        count.fetch_add(1, Ordering::Relaxed);
    });
    (plane, twin, placement, told)
}

fn add(plane: &mut Xfrm, number: u32) -> [SaId; 2] {
    let id = u64::from(number) * 2;
    plane.add_inbound(inbound(id, 0x1000 + number)).expect("somewhere");
    plane.add_outbound(outbound(id + 1, 0x2000 + number, false)).expect("somewhere");
    [SaId(id), SaId(id + 1)]
}

fn inside(placement: &Placement) -> [usize; 2] {
    placement.report().cards[0].inside
}

#[test]
fn sas_of_a_full_card_that_are_rekeyed_are_in_it_again_once_the_old_ones_are_gone() {
    for wanted in [Wanted::Crypto, Wanted::Auto] {
        let (mut plane, twin, placement, told) = plane(wanted, 1);
        let old = add(&mut plane, 1);
        let new = add(&mut plane, 2);
        assert_eq!((inside(&placement), twin.tables().states.len()), ([1, 1], 4));
        let sent = plane.last_sequence(new[1]);
        old.into_iter().for_each(|sa| _ = plane.remove(sa));
        // Nothing happens before key management has done what it does, and it is told once.
        assert_eq!((inside(&placement), told.load(Ordering::Relaxed)), ([0, 0], 1));
        plane.use_room();
        assert_eq!(inside(&placement), [1, 1]);
        assert_eq!(twin.in_card().iter().sum::<usize>(), 2);
        assert!(plane.last_sequence(new[1]) >= sent && twin.is_tight() && twin.lets_in());
        assert_eq!(twin.policy(PolicyDirection::Out), [Some(0x2002)]);
        assert!(placement.sas().iter().all(|sa| sa.declined.is_empty()));
    }
}

#[test]
fn many_places_are_filled_one_for_each_and_some_at_a_time() {
    const ROOM: u32 = 100;
    let (mut plane, twin, placement, told) = plane(Wanted::Crypto, ROOM as usize);
    let all: Vec<[SaId; 2]> = (0..ROOM + 90).map(|number| add(&mut plane, number)).collect();
    for sas in &all[..50] {
        sas.iter().for_each(|sa| _ = plane.remove(*sa));
    }
    let mut times = 0;
    while told.load(Ordering::Relaxed) > times {
        let before: usize = inside(&placement).iter().sum();
        plane.use_room();
        times += 1;
        let after: usize = inside(&placement).iter().sum();
        assert!((1..=64).contains(&(after - before)), "{before}, {after}");
    }
    assert_eq!((inside(&placement), times), ([100, 100], 2));
    // Those that go together give each other no places.
    for sas in &all[50..] {
        sas.iter().for_each(|sa| _ = plane.remove(*sa));
    }
    plane.use_room();
    assert_eq!((twin.tables().states.len(), plane.waiting.len()), (0, 0));
}

#[test]
fn an_sa_that_finds_its_place_taken_stays_in_software_and_waits_on() {
    let (mut plane, twin, placement, told) = plane(Wanted::Crypto, 2);
    let sas = [1, 2, 3].map(|number| add(&mut plane, number));
    // Another program has it meanwhile.
    twin.tables().card = Some(SimulatedCard { room: 1, ..BOTH });
    plane.remove(sas[0][1]);
    plane.use_room();
    assert_eq!((inside(&placement), plane.waiting.len()), ([2, 1], 2));
    assert_eq!((twin.tables().states.len(), told.load(Ordering::Relaxed)), (5, 1));
    twin.tables().card = Some(SimulatedCard { room: 2, ..BOTH });
    plane.remove(sas[1][1]);
    plane.use_room();
    assert_eq!((inside(&placement), plane.waiting.len()), ([2, 1], 1));
}

#[test]
fn nobody_waits_for_a_card_that_has_gone() {
    let (mut plane, twin, placement, _) = plane(Wanted::Crypto, 1);
    (1..=3).for_each(|number| _ = add(&mut plane, number));
    assert_eq!(plane.waiting.len(), 4);
    twin.pull_card();
    plane.network_changed();
    assert_eq!((plane.waiting.len(), twin.tables().states.len()), (0, 6));
    let reasons: BTreeSet<&str> =
        placement.sas().iter().flat_map(|sa| &sa.declined).map(|(_, why)| why.name()).collect();
    assert_eq!(reasons, ["gone"].into());
}

#[test]
fn a_full_table_of_addresses_is_told_as_such_and_an_sa_waits_for_an_address() {
    let card = SimulatedCard { room: 100, addresses: 2, ..BOTH };
    let (mut plane, _, placement) = with_card(Wanted::Crypto, Some(card));
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    plane.notice = Arc::new(move |_| _ = count.fetch_add(1, Ordering::Relaxed));
    let receive = |plane: &mut Xfrm, id: u64, last: u8| {
        let mut sa = inbound(id, 0x1000 + u32::try_from(id).expect("few"));
        sa.path.local = ([192, 0, 2, last], 4500).into();
        plane.add_inbound(sa).expect("somewhere");
    };
    for (id, last) in [(1, 1), (2, 1), (3, 2), (4, 3), (5, 3)] {
        receive(&mut plane, id, last);
    }
    let card = |placement: &Placement| placement.report().cards.remove(0);
    let full = card(&placement);
    assert_eq!((full.inside, full.room), ([3, 0], [None, None]), "there is room for SAs");
    assert_eq!((full.addresses, full.address_room), (2, Some(2)));
    let reasons: Vec<_> = full.fallbacks.iter().map(|f| (f.reason.name(), f.count)).collect();
    assert_eq!((reasons, plane.waiting.len()), (vec![("addresses_full", 2)], 2));
    assert!(
        full.fallbacks[0].reason.to_string().contains("it has 2, each of which several SAs share")
    );

    // Another SA has the same address.
    plane.remove(SaId(1));
    assert_eq!(told.load(Ordering::Relaxed), 0, "nobody waits for an SA");
    receive(&mut plane, 6, 2);
    plane.remove(SaId(3));
    assert_eq!((told.load(Ordering::Relaxed), card(&placement).inside), (0, [2, 0]));
    // The last SA of an address goes: one that waits has its place, and the other the same address.
    plane.remove(SaId(2));
    assert_eq!(told.load(Ordering::Relaxed), 1);
    while plane.waiting.len() > 0 {
        let before = plane.waiting.len();
        plane.use_room();
        assert!(plane.waiting.len() < before, "{before} wait for ever");
    }
    assert_eq!((card(&placement).inside, card(&placement).addresses), ([3, 0], 2));
    assert!(placement.sas().iter().all(|sa| sa.declined.is_empty()));
}
