//! Both sides prove again who they are, and no packet is lost (RFC 7296 §2.8.3, RFC 4478).

use crate::certificates::{last_failure, strict, wallet};
use crate::puppet::{Puppet, notify};
use crate::{SETTLED, SOON, assert_settled, calm, ike_spis, talk, up};
use ike::event::EventKind;
use ike::failure::FailureKind;
use ike::wire::registry::{ExchangeType, NotifyType};
use ike::{CloseReason, CommandError, Config};
use policy::{KeyBits, KeyKind, Role};
use sim::certificates::{Authority, Wallet, of_side};
use sim::host::{Side, esp_offer, lifetime};
use sim::invariant::{assert_agreement, assert_nothing_left};
use sim::{Conditions, Exchange, HostId, Label, Site, World};
use std::time::Duration;

fn site() -> Site {
    Site { children: 3, ..Site::default() }
}

fn reauthenticate(world: &mut World, host: HostId) {
    let begun = world.command(host, "reauthenticate", |e, now| e.reauthenticate(now, Site::TUNNEL));
    begun.expect("it is up");
}

fn established(world: &World, host: HostId) -> usize {
    world
        .host(host)
        .events
        .iter()
        .filter(|(_, e)| e.child.is_none() && matches!(e.kind, EventKind::Established { .. }))
        .count()
}

#[test]
fn by_either_side_without_a_packet_lost() {
    for original in [true, false] {
        let (mut world, left, right) = up(1, &site());
        let before = ike_spis(&mut world, left);
        let flows = talk(&mut world, left, right, &site());
        reauthenticate(&mut world, if original { left } else { right });
        world.run_for(SOON * 5);
        assert_ne!(ike_spis(&mut world, left), before);
        assert_settled(&mut world, left, right, &site(), flows);
    }
}

#[test]
fn only_by_a_side_that_may_start_the_tunnel() {
    let [all, responds] = [Role::Both, Role::Responder].map(|role| Site { role, ..site() });
    let mut world = World::new(1);
    let left = world.add_host("left", all.left, all.policy(Side::Left), calm());
    let right = world.add_host("right", all.right, responds.policy(Side::Right), calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    let before = ike_spis(&mut world, left);
    let again = |e: &mut ike::Engine<_>, now| e.reauthenticate(now, Site::TUNNEL);
    let refused = world.command(right, "reauthenticate", again);
    assert_eq!(refused, Err(CommandError::ResponderOnly(Site::TUNNEL.into())));
    world.run_for(SETTLED);
    assert_eq!(ike_spis(&mut world, left), before);
    assert_agreement(&mut world, left, right, &site());
}

#[test]
fn packets_in_the_pipeline_leave_before_the_delete() {
    // The peer forgets its SAs with the Delete, as many implementations do.
    let forgetful = Config { linger: Duration::ZERO, ..calm() };
    let site = site();
    let mut world = World::new(1);
    let left = world.add_host("left", site.left, site.policy(Side::Left), calm());
    let right = world.add_host("right", site.right, site.policy(Side::Right), forgetful);
    world.set_pipeline(left, Duration::from_millis(100));
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    let before = ike_spis(&mut world, left);
    let flows = talk(&mut world, left, right, &site);
    reauthenticate(&mut world, left);
    world.run_for(SOON * 5);
    assert_ne!(ike_spis(&mut world, left), before);
    assert_settled(&mut world, left, right, &site, flows);
}

#[test]
fn packets_in_the_pipeline_leave_before_the_answer_to_a_delete() {
    let pause = calm().drain_before_answer;
    // The peer does not wait before its Delete, and forgets its SAs when that is answered, as strongSwan does.
    let hasty = Config { drain: Duration::ZERO, ..calm() };
    let site = site();
    let mut world = World::new(1);
    let left = world.add_host("left", site.left, site.policy(Side::Left), calm());
    let right = world.add_host("right", site.right, site.policy(Side::Right), hasty);
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    reauthenticate(&mut world, right);
    let is_answer = |label: &Label| label.response && label.exchange == Exchange::Informational;
    let answers = world.hold(left, is_answer);
    let has =
        |number| move |world: &mut World| world.host(left).engine.inventory().ike_sas == number;
    assert!(world.run_until(SOON, has(2)), "the new session is there");
    assert!(world.run_until(SOON, has(1)), "the Delete of the old one has arrived");
    world.run_for(pause - Duration::from_millis(1));
    assert_eq!(world.held(answers), 0, "packets may be on their way");
    world.run_for(Duration::from_millis(1));
    assert_eq!(world.held(answers), 1);
    world.release(answers);
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn on_bad_links() {
    for seed in 0..40 {
        let (mut world, left, right) = up(seed, &site());
        let flows = talk(&mut world, left, right, &site());
        world.set_conditions(Conditions::bad(200));
        reauthenticate(&mut world, if seed % 2 == 0 { left } else { right });
        world.run_for(SOON * 5);
        world.heal();
        world.run_for(SOON * 5);
        assert_settled(&mut world, left, right, &site(), flows);
    }
}

#[test]
fn by_both_sides_at_once() {
    for seed in 0..40 {
        let (mut world, left, right) = up(seed, &site());
        let flows = talk(&mut world, left, right, &site());
        reauthenticate(&mut world, left);
        world.run_for(Duration::from_millis([0, 5, 15, 25, 35][seed as usize % 5]));
        reauthenticate(&mut world, right);
        world.run_for(SOON * 10);
        assert_settled(&mut world, left, right, &site(), flows);
    }
}

#[test]
fn while_something_is_rekeyed() {
    for seed in 0..24 {
        for name in ["net1", Site::TUNNEL] {
            let (mut world, left, right) = up(seed, &site());
            let flows = talk(&mut world, left, right, &site());
            let (one, other) = if seed % 2 == 0 { (left, right) } else { (right, left) };
            assert!(world.rekey(one, name));
            world.run_for(Duration::from_millis(seed % 12 * 5));
            reauthenticate(&mut world, other);
            world.run_for(Duration::from_millis(seed % 7 * 10));
            // Of the session that is there: the old one, or the new.
            world.rekey(other, name);
            world.run_for(SOON * 10);
            assert_settled(&mut world, left, right, &site(), flows);
        }
    }
}

#[test]
fn again_and_again_by_the_clock_of_either_side() {
    for by_left in [true, false] {
        let site = site();
        let hour = Some(Duration::from_secs(3600));
        let config = |own: bool| Config { reauthenticate: hour.filter(|_| own), ..calm() };
        let mut world = World::new(1);
        let left = world.add_host("left", site.left, site.policy(Side::Left), config(by_left));
        let right = world.add_host("right", site.right, site.policy(Side::Right), config(!by_left));
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        let (l, r) = site.inner(0);
        let every = Duration::from_secs(1);
        let flows = [world.start_flow(left, l, r, every), world.start_flow(right, r, l, every)];
        world.run_for(Duration::from_secs(5 * 3600));
        let times = established(&world, left) - 1;
        assert!((5..=6).contains(&times), "{times} times in five hours");
        assert_settled(&mut world, left, right, &site, flows);
    }
}

#[test]
fn the_peer_still_knows_this_side_and_is_not_told_otherwise() {
    let (mut world, left, right) = up(1, &site());
    reauthenticate(&mut world, left);
    world.run_for(SETTLED);
    let restarted = world.count_events(right, |e| {
        matches!(e, EventKind::Closed { reason: CloseReason::PeerRestarted })
    });
    assert_eq!(restarted, 0);
    assert_agreement(&mut world, left, right, &site());
}

#[test]
fn a_failed_reauthentication_leaves_the_old_in_place_and_is_tried_again() {
    let (mut world, left, right) = up(1, &site());
    let flows = talk(&mut world, left, right, &site());
    let before = ike_spis(&mut world, left);
    let lost = world.hold(left, |l| l.is_request(Exchange::SaInit));
    reauthenticate(&mut world, left);
    world.run_for(Duration::from_secs(60));
    assert_eq!(ike_spis(&mut world, left), before);
    world.discard(lost);
    world.run_for(Duration::from_secs(120));
    assert_ne!(ike_spis(&mut world, left), before);
    assert_settled(&mut world, left, right, &site(), flows);
}

#[test]
fn a_peer_that_does_not_renew_is_cut_off() {
    let site = site();
    let config = Config { reauthenticate: Some(Duration::from_secs(600)), ..calm() };
    let mut world = World::new(1);
    let left = world.add_host("left", site.left, site.policy(Side::Left), calm());
    let right = world.add_host("right", site.right, site.policy(Side::Right), config);
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    world.hold(left, |l| l.is_request(Exchange::SaInit));
    world.run_for(Duration::from_secs(640));
    assert_agreement(&mut world, left, right, &site);
    world.run_for(Duration::from_secs(120));
    assert_nothing_left(&mut world, right);
}

#[test]
fn the_peer_may_ask_for_it_at_any_time() {
    // The lifetime that a peer asks for in seconds, and the bounds of the gateway's time: 80 to 90 % of that lifetime,
    // which counts as ten seconds at least, and at most as the gateway's own.
    for (asked, at_least, at_most) in [(60_u32, 48, 54), (0, 8, 9), (7200, 480, 540)] {
        let config = Config { reauthenticate: Some(Duration::from_secs(600)), ..calm() };
        let mut puppet = Puppet::new(&Site::default(), config);
        puppet.pick_up();
        let (request, _) = puppet.next_request();
        let payloads = puppet.auth_payloads();
        puppet.answer(&request, &payloads);
        let lifetime = notify(NotifyType::AUTH_LIFETIME, &asked.to_be_bytes());
        puppet.request(ExchangeType::INFORMATIONAL, &[lifetime]);
        let begins = |puppet: &mut Puppet| {
            puppet.sent().iter().any(|(h, _)| h.exchange == ExchangeType::IKE_SA_INIT)
        };
        puppet.world.run_for(Duration::from_secs(at_least - 1));
        assert!(!begins(&mut puppet), "asked for {asked} s, before {at_least} s");
        puppet.world.run_for(Duration::from_secs(at_most - at_least + 1));
        assert!(begins(&mut puppet), "asked for {asked} s, not within {at_most} s");
    }
}

/// Child SAs of five minutes in IKE SAs of eight.
fn often_rekeyed(site: Site) -> Site {
    let minute = Duration::from_secs(60);
    Site {
        esp: vec![esp_offer(KeyBits::B128, lifetime(5 * minute))],
        lifetime: lifetime(8 * minute),
        ..site
    }
}

/// Two hosts of which only the initiator, the left one, wants this.
fn wanted_by_the_initiator(site: &Site, within: Duration) -> (World, HostId, HostId) {
    let config = Config { reauthenticate: Some(within), ..calm() };
    let mut world = World::new(1);
    let left = world.add_host("left", site.left, site.policy(Side::Left), config);
    let right = world.add_host("right", site.right, site.policy(Side::Right), calm());
    (world, left, right)
}

/// Packets get through in both directions.
fn assert_carries(world: &mut World, left: HostId, right: HostId, site: &Site) {
    let (l, r) = site.inner(0);
    assert!(world.probe(left, l, r) && world.probe(right, r, l));
}

#[test]
fn a_responder_whose_certificate_is_revoked_is_cut_off() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let of = |name: &str, serial: u64, revoked: &[u64]| {
        let mut params = of_side(name);
        params.serial_number = Some(serial.into());
        Wallet { crls: vec![root.crl(revoked)], ..wallet(&root, KeyKind::EcdsaP256, name, &params) }
    };
    let site = often_rekeyed(strict());
    let (mut world, left, right) = wanted_by_the_initiator(&site, Duration::from_secs(1200));
    world.trust(left, of("left", 7, &[]).trust());
    world.trust(right, of("right", 8, &[]).trust());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &site);
    world.trust(left, of("left", 7, &[8]).trust());
    world.run_for(Duration::from_secs(1195));
    // The attempts of the last minutes have failed, and rekeys have not.
    assert_carries(&mut world, left, right, &site);
    assert_eq!(last_failure(&mut world, left).kind, FailureKind::BadCertificate);
    assert!(world.count_events(left, |e| matches!(e, EventKind::Rekeyed { .. })) > 5);
    let before = established(&world, left);
    // In the next hour, the left side has no SA at any time, although it goes on trying.
    world.run_for(Duration::from_secs(60));
    for _ in 0..60 {
        world.run_for(Duration::from_secs(60));
        let plane = world.plane(left);
        assert_eq!((plane.inbound().count(), plane.outbound().count()), (0, 0));
    }
    assert_eq!(established(&world, left), before);
    let closed = world.count_events(left, |e| {
        matches!(e, EventKind::Closed { reason: CloseReason::NotReauthenticated })
    });
    assert!(closed > 0);
    // With another certificate the tunnel comes back by itself.
    world.trust(right, of("right", 9, &[]).trust());
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn a_responder_that_does_not_answer_is_cut_off_and_comes_back() {
    let site = often_rekeyed(site());
    let (mut world, left, right) = wanted_by_the_initiator(&site, Duration::from_secs(1200));
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    let silence = world.hold(right, |l| l.is_response(Exchange::SaInit));
    world.run_for(Duration::from_secs(1200));
    assert_carries(&mut world, left, right, &site);
    world.run_for(Duration::from_secs(60));
    for host in [left, right] {
        assert_eq!(world.plane(host).outbound().count(), 0);
    }
    world.discard(silence);
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
}
