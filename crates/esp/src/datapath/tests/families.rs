//! IPsec of one address family, switched off and on.

use super::*;
use crate::families::{Families, Family};
use crate::plane::FamilySwitching;
use policy::AhIntegrity;

fn without(family: Family) -> Families {
    Families::default().with(family, false)
}

#[test]
fn packets_of_a_family_that_is_off_do_not_leave_and_the_others_go_on() {
    let pair = Pair::new(Kind::PLAIN);
    let mut sender = pair.sender.clone();
    let (four, six) = (sample::udp(false, (1, 2), &[]), sample::udp(true, (1, 2), &[]));
    // Both flows are remembered.
    assert!(pair.protect(&four).is_ok() && pair.protect(&six).is_ok());
    sender.set_families(without(Family::Ipv6)).expect("it can");
    assert_eq!(pair.protect(&six), Err(Discard::OutboundFamilyOff));
    assert!(pair.protect(&four).is_ok());
    sender.set_families(Families::default()).expect("it can");
    assert!(pair.protect(&six).is_ok());
    assert_eq!(pair.count(Discard::OutboundFamilyOff), 1);
}

#[test]
fn a_rule_without_an_sa_asks_for_none_while_its_family_is_off() {
    let pair = Pair::new(Kind::PLAIN);
    let mut sender = pair.sender.clone();
    sender.remove(OUT);
    sender.add_rule(rule(true)).expect("a new rule");
    sender.set_families(without(Family::Ipv4)).expect("it can");
    let packet = sample::udp(false, (1, 2), &[]);
    assert_eq!(pair.protect(&packet), Err(Discard::OutboundFamilyOff));
    assert_eq!(pair.sender.take_notices(), []);
    sender.set_families(Families::default()).expect("it can");
    let mut queue = SendQueue::new(0);
    lock(&pair.way_out)
        .encapsulate(pair.now, &mut packet.clone(), Gso::NONE, &mut queue)
        .expect("it is kept");
    assert!(matches!(pair.sender.take_notices()[..], [Notice::Acquire { .. }]));
}

#[test]
fn packets_of_a_family_that_is_off_do_not_arrive() {
    for encapsulation in [Encapsulation::Udp, Encapsulation::Ah] {
        let suite = match encapsulation {
            Encapsulation::Ah => Suite::Ah(AhIntegrity::Mac(Integrity::HmacSha2_256_128)),
            _ => GCM,
        };
        let pair = Pair::new(Kind { encapsulation, suite, ..Kind::PLAIN });
        let mut receiver = pair.receiver.clone();
        let sealed = |ipv6| pair.protect(&sample::udp(ipv6, (1, 2), &[])).expect("an SA");
        receiver.set_families(without(Family::Ipv6)).expect("it can");
        assert_eq!(pair.open(&sealed(true)), Err(Discard::InboundFamilyOff));
        assert!(pair.open(&sealed(false)).is_ok());
        receiver.set_families(Families::default()).expect("it can");
        assert!(pair.open(&sealed(true)).is_ok());
        assert_eq!(pair.count(Discard::InboundFamilyOff), 1);
        assert_eq!(receiver.usage(IN).expect("installed").refused, 1);
    }
}

#[test]
fn no_packet_passes_between_addresses_of_a_family_that_is_off() {
    let pair = Pair::new(Kind { ipv6: true, ..Kind::PLAIN });
    let (mut sender, mut receiver) = (pair.sender.clone(), pair.receiver.clone());
    let packet = sample::udp(false, (1, 2), &[]);
    let sealed = pair.protect(&packet).expect("an SA");
    sender.set_families(without(Family::Ipv6)).expect("it can");
    receiver.set_families(without(Family::Ipv6)).expect("it can");
    assert_eq!(pair.protect(&packet), Err(Discard::OutboundFamilyOff));
    assert_eq!(pair.open(&sealed), Err(Discard::InboundFamilyOff));
}

#[test]
fn packets_that_are_opened_ahead_of_their_turn_are_dropped_too() {
    let pair = Pair::new(Kind::PLAIN);
    let sealed: Vec<Vec<u8>> = [false, true, false]
        .map(|ipv6| pair.protect(&sample::udp(ipv6, (1, 2), &[7; 40])).expect("an SA"))
        .into();
    pair.receiver.clone().set_families(without(Family::Ipv6)).expect("it can");
    assert_eq!(super::stages::ahead(&pair, &[sealed]).len(), 2);
    assert_eq!(pair.count(Discard::InboundFamilyOff), 1);
}
