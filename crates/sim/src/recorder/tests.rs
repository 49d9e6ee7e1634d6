use super::*;
use crate::traffic::FlowId;
use crate::world::first_instant;
use crypto::Suite;
use esp::plane::{Limits, TrafficSelectors};
use policy::{AddressRange, KeyBits, Mode, Selector};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const SUITE: Suite = Suite::AesGcm16(KeyBits::B128);

fn selectors(local: [u8; 4], remote: [u8; 4]) -> TrafficSelectors {
    let host = |ip| vec![Selector::all_of(AddressRange::from(IpAddr::from(ip)))];
    TrafficSelectors { local: host(local), remote: host(remote) }
}

fn path(encapsulation: Encapsulation) -> Path {
    let local = SocketAddr::from(([192, 0, 2, 1], 4500));
    let remote = SocketAddr::from(([192, 0, 2, 2], 4500));
    Path { local, remote, encapsulation }
}

fn rule(trap: bool) -> Rule {
    let selectors = selectors([10, 1, 0, 1], [10, 2, 0, 1]);
    Rule { id: RuleId(1), tunnel: "net0".into(), selectors, trap }
}

fn outbound(id: u64, spi: u32, key: u8) -> OutboundSa {
    OutboundSa {
        id: SaId(id),
        rule: RuleId(1),
        spi: Spi(spi),
        suite: SUITE,
        key: Secret::new(vec![key; 20]),
        esn: false,
        mode: Mode::Tunnel,
        path: path(Encapsulation::Udp),
        selectors: selectors([10, 1, 0, 1], [10, 2, 0, 1]).into(),
        limits: Limits::default(),
        standby: false,
    }
}

fn inbound(id: u64, spi: u32, key: u8) -> InboundSa {
    InboundSa {
        id: SaId(id),
        rule: RuleId(1),
        spi: Spi(spi),
        suite: SUITE,
        key: Secret::new(vec![key; 20]),
        esn: false,
        replay_window: 64,
        mode: Mode::Tunnel,
        path: path(Encapsulation::Udp),
        selectors: selectors([10, 2, 0, 1], [10, 1, 0, 1]).into(),
        limits: Limits::default(),
    }
}

fn packet(number: u64) -> InnerPacket {
    InnerPacket {
        source: SocketAddr::from(([10, 1, 0, 1], 1)),
        destination: SocketAddr::from(([10, 2, 0, 1], 2)),
        flow: FlowId(0),
        number,
    }
}

fn spi_of(verdict: Verdict) -> u32 {
    let Verdict::Protected { octets, .. } = verdict else { panic!("{verdict:?}") };
    u32::from_be_bytes([octets[0], octets[1], octets[2], octets[3]])
}

fn octets_of(verdict: Verdict) -> Vec<u8> {
    let Verdict::Protected { octets, .. } = verdict else { panic!("{verdict:?}") };
    octets
}

#[test]
fn the_sa_added_or_promoted_last_is_used() {
    let (mut plane, now) = (Recorder::default(), first_instant());
    plane.add_rule(rule(false)).expect("a new rule");
    assert_eq!(plane.protect(now, &packet(0)), Verdict::NoSa);
    plane.add_outbound(outbound(1, 301, 1)).expect("a new SA");
    plane.add_outbound(OutboundSa { standby: true, ..outbound(2, 302, 2) }).expect("a new SA");
    assert_eq!(spi_of(plane.protect(now, &packet(1))), 301);
    plane.promote(SaId(2)).expect("an SA in standby");
    assert_eq!(spi_of(plane.protect(now, &packet(2))), 302);
    plane.remove(SaId(2));
    assert_eq!(spi_of(plane.protect(now, &packet(3))), 301);
    let elsewhere = SocketAddr::from(([10, 9, 0, 1], 2));
    let other = InnerPacket { destination: elsewhere, ..packet(4) };
    assert_eq!(plane.protect(now, &other), Verdict::NoRule);
    assert!(plane.misuse().is_empty(), "{:?}", plane.misuse());
}

#[test]
fn a_trap_asks_once_until_an_sa_came() {
    let (mut plane, now) = (Recorder::default(), first_instant());
    plane.add_rule(rule(true)).expect("a new rule");
    plane.protect(now, &packet(0));
    plane.protect(now, &packet(1));
    let notices = plane.take_notices();
    assert!(matches!(notices[..], [Notice::Acquire { rule: RuleId(1), .. }]), "{notices:?}");
    plane.add_outbound(outbound(1, 301, 1)).expect("a new SA");
    plane.remove(SaId(1));
    plane.protect(now, &packet(2));
    assert_eq!(plane.take_notices().len(), 1);
}

#[test]
fn a_receiver_refuses_what_it_must() {
    let (mut sender, mut receiver, now) =
        (Recorder::default(), Recorder::default(), first_instant());
    sender.add_rule(rule(false)).expect("a new rule");
    sender.add_outbound(outbound(1, 301, 1)).expect("a new SA");
    receiver.add_inbound(inbound(1, 301, 1)).expect("a new SA");
    receiver.add_inbound(inbound(2, 302, 2)).expect("a new SA");
    let from = path(Encapsulation::Udp);
    let good = octets_of(sender.protect(now, &packet(0)));
    assert_eq!(receiver.open(now, &good, from), Ok(packet(0)));
    assert_eq!(receiver.open(now, &good, from), Err(Refusal::Replayed));
    assert_eq!(receiver.open(now, &good[..10], from), Err(Refusal::Malformed));
    let mut other = octets_of(sender.protect(now, &packet(1)));
    other[..4].copy_from_slice(&302u32.to_be_bytes());
    assert_eq!(receiver.open(now, &other, from), Err(Refusal::Forged));
    other[..4].copy_from_slice(&303u32.to_be_bytes());
    assert_eq!(receiver.open(now, &other, from), Err(Refusal::UnknownSpi));
    receiver
        .add_inbound(InboundSa {
            selectors: selectors([10, 2, 0, 1], [10, 1, 0, 99]).into(),
            ..inbound(3, 303, 1)
        })
        .expect("a new SA");
    let mut other = octets_of(sender.protect(now, &packet(2)));
    other[..4].copy_from_slice(&303u32.to_be_bytes());
    assert_eq!(receiver.open(now, &other, from), Err(Refusal::Selectors));
    assert_eq!(receiver.usage(SaId(1)).map(|u| (u.packets, u.refused)), Some((1, 1)));
}

#[test]
fn limits_are_reported_once_and_the_hard_one_ends_the_sa() {
    let (mut plane, now) = (Recorder::default(), first_instant());
    plane.add_rule(rule(false)).expect("a new rule");
    let len = InnerPacket::LEN as u64;
    let limits = Limits { soft_bytes: Some(2 * len), hard_bytes: Some(3 * len) };
    plane.add_outbound(OutboundSa { limits, ..outbound(1, 301, 1) }).expect("a new SA");
    let mut notices = Vec::new();
    for number in 0..3 {
        assert_eq!(spi_of(plane.protect(now, &packet(number))), 301);
        notices.push(plane.take_notices());
    }
    let expiring = |hard| vec![Notice::Expiring { sa: SaId(1), hard }];
    assert_eq!(notices, [vec![], expiring(false), expiring(true)]);
    assert_eq!(plane.protect(now, &packet(3)), Verdict::NoSa);
}

#[test]
fn skipped_numbers_are_not_used_and_none_up_to_there_is_accepted() {
    let (mut sender, mut receiver, now) =
        (Recorder::default(), Recorder::default(), first_instant());
    sender.add_rule(rule(false)).expect("a new rule");
    sender.add_outbound(outbound(1, 301, 1)).expect("a new SA");
    receiver.add_inbound(inbound(7, 301, 1)).expect("a new SA");
    let path = path(Encapsulation::Udp);
    let [first, late] = [0, 1].map(|number| octets_of(sender.protect(now, &packet(number))));
    receiver.open(now, &first, path).expect("authentic");
    receiver.skip(SaId(7), 5).expect("SA 7");
    assert_eq!(receiver.open(now, &late, path), Err(Refusal::Replayed));
    sender.skip(SaId(1), 4).expect("SA 1");
    let next = octets_of(sender.protect(now, &packet(2)));
    assert_eq!(next[4..12], 7_u64.to_be_bytes());
    receiver.open(now, &next, path).expect("a number that was not skipped");
    assert_eq!(receiver.skip(SaId(8), 1), Err(PlaneError::NoSuchSa(SaId(8))));
    assert_eq!(receiver.journal().last(), Some(&Change::Skipped(SaId(7), 5)));
}

#[test]
fn an_authentic_packet_from_elsewhere_is_told() {
    let (mut sender, mut receiver, now) =
        (Recorder::default(), Recorder::default(), first_instant());
    sender.add_rule(rule(false)).expect("a new rule");
    sender.add_outbound(outbound(1, 301, 1)).expect("a new SA");
    receiver.add_inbound(inbound(7, 301, 1)).expect("a new SA");
    let octets = octets_of(sender.protect(now, &packet(0)));
    let elsewhere = SocketAddr::from(([203, 0, 113, 9], 1024));
    let moved = Path { remote: elsewhere, ..path(Encapsulation::Udp) };
    assert!(receiver.open(now, &octets, moved).is_ok());
    assert_eq!(receiver.take_notices(), [Notice::PeerMoved { sa: SaId(7), remote: elsewhere }]);
    assert!(receiver.open(now, &octets, path(Encapsulation::Udp)).is_err());
    assert!(receiver.take_notices().is_empty(), "a replayed packet moves nobody");
    receiver.relocate(SaId(7), moved).expect("SA 7");
    let octets = octets_of(sender.protect(now, &packet(1)));
    assert!(receiver.open(now, &octets, moved).is_ok());
    assert!(receiver.take_notices().is_empty());
}

#[test]
fn misuse_is_noted_and_refusals_come_as_ordered() {
    let mut plane = Recorder::default();
    let error = PlaneError::Suite(SUITE);
    plane.refuse_next_after(0, error.clone());
    assert_eq!(plane.add_inbound(inbound(1, 301, 1)), Err(error));
    assert_eq!(plane.inbound().count(), 0);
    plane.add_inbound(inbound(1, 301, 1)).expect("a new SA");
    assert_eq!(plane.add_inbound(inbound(2, 301, 2)), Err(PlaneError::SpiInUse(Spi(301))));
    let no_rule = plane.add_outbound(outbound(3, 302, 3));
    assert_eq!(no_rule, Err(PlaneError::NoSuchRule(RuleId(1))));
    assert_eq!(plane.promote(SaId(4)), Err(PlaneError::NoSuchSa(SaId(4))));
    assert!(plane.misuse().is_empty(), "{:?}", plane.misuse());

    plane.remove(SaId(1));
    plane.add_inbound(InboundSa { spi: Spi(255), ..inbound(1, 0, 1) }).expect("a new SPI");
    assert_eq!(plane.misuse().len(), 3, "name, SPI and key: {:?}", plane.misuse());
    let changes = plane.journal();
    assert_eq!(changes[..2], [Change::Inbound(SaId(1), Spi(301)), Change::Removed(SaId(1))]);
}

#[test]
fn usage_tells_when() {
    let (mut plane, now) = (Recorder::default(), first_instant());
    plane.add_rule(rule(false)).expect("a new rule");
    plane.add_outbound(outbound(1, 301, 1)).expect("a new SA");
    let later = now + Duration::from_secs(5);
    plane.protect(later, &packet(0));
    let usage = plane.usage(SaId(1)).expect("SA 1");
    assert_eq!((usage.packets, usage.bytes), (1, InnerPacket::LEN as u64));
    assert_eq!(usage.last_used, Some(later));
    assert_eq!(plane.usage(SaId(2)), None);
}
