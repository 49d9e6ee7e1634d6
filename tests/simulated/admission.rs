//! What a stranger may cost (RFC 7296 §2.6).

use crate::{SETTLED, SOON, calm, up};
use ike::Config;
use policy::Group;
use sim::host::{Side, ike_offer};
use sim::invariant::{assert_agreement, assert_clean_stop};
use sim::link::{Content, Parcel};
use sim::{Exchange, HostId, Site, World};
use std::net::SocketAddr;
use std::time::Duration;

fn suspicious() -> Config {
    Config { cookie_threshold: 0, ..calm() }
}

fn inits<'a>(world: &'a World, host: &'a str) -> Vec<&'a sim::Label> {
    world.ladder().sent_by(host).filter(|l| l.is_request(Exchange::SaInit)).collect()
}

#[test]
fn a_responder_under_load_wants_a_cookie() {
    let site = Site::default();
    let (mut world, left, right) = World::of_site(1, &site, &suspicious());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &site);
    let requests = inits(&world, "left");
    assert_eq!(requests.len(), 2);
    assert!(requests[0].len < requests[1].len, "the second brings the cookie");
    assert_eq!(requests[0].initiator_spi, requests[1].initiator_spi);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn a_cookie_and_a_wrong_guess_of_the_group() {
    // RFC 7296 §2.6.1
    let groups = |groups: &[Group]| vec![ike_offer(groups)];
    let eager = Site { ike: groups(&[Group::Ecp256, Group::Curve25519]), ..Site::default() };
    let strict = Site { ike: groups(&[Group::Curve25519]), ..Site::default() };
    let mut world = World::new(1);
    let left = world.add_host("left", eager.left, eager.policy(Side::Left), calm());
    let right = world.add_host("right", strict.right, strict.policy(Side::Right), suspicious());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &strict);
    let tries = inits(&world, "left").len();
    assert!((3..=4).contains(&tries), "{tries} requests");
}

/// An IKE_SA_INIT request of the left host that never gets through, for a forger to vary.
fn captured_init(world: &mut World, left: HostId) -> Parcel {
    world.tap();
    let gate = world.hold(left, |l| l.is_request(Exchange::SaInit));
    world.connect(left, Site::TUNNEL);
    world.discard(gate);
    world.take_tapped().pop().expect("the left host has asked")
}

/// The same request with another SPI, from another address.
fn variant(parcel: &Parcel, n: u32) -> Parcel {
    let mut parcel = parcel.clone();
    let [_, b, c, d] = n.to_be_bytes();
    parcel.source = SocketAddr::from(([198, b, c, d], 500));
    if let Content::Ike(octets) = &mut parcel.content {
        octets[..4].copy_from_slice(&(n + 1).to_be_bytes());
    }
    parcel
}

/// The right host serves peers from anywhere, so that a forged source address is as good as any.
fn open_to_all() -> Site {
    Site { left_roams: true, ..Site::default() }
}

#[test]
fn a_flood_of_strangers_does_not_keep_a_friend_out() {
    let site = open_to_all();
    let config = Config { cookie_threshold: 8, half_open_limit: 64, ..calm() };
    let (mut world, left, right) = World::of_site(1, &site, &config);
    let init = captured_init(&mut world, left);
    for n in 0..5000 {
        world.inject(Duration::from_micros(u64::from(n) * 100), variant(&init, n));
    }
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn half_open_sas_are_forgotten() {
    let site = open_to_all();
    let config = Config { cookie_threshold: 1000, half_open_limit: 1000, ..calm() };
    let (mut world, left, right) = World::of_site(1, &site, &config);
    let init = captured_init(&mut world, left);
    world.cut(left);
    for n in 0..200 {
        world.inject(Duration::ZERO, variant(&init, n));
    }
    world.run_for(SOON);
    let answered = |w: &World| w.ladder().sent_by("right").filter(|l| l.response).count();
    assert!(answered(&world) >= 200, "the scenario opens some");
    assert!(world.host(right).engine.deadline().is_some());
    world.run_for(SETTLED);
    assert_eq!(world.host(right).engine.deadline(), None);
}

#[test]
fn a_flood_does_not_disturb_what_is_up() {
    let site = open_to_all();
    let (mut world, left, right) = up(1, &site);
    world.tap();
    assert!(world.rekey(left, Site::TUNNEL));
    world.run_for(SOON);
    let any = world.take_tapped().pop().expect("a rekey sends messages");
    for n in 0..2000 {
        world.inject(Duration::from_micros(u64::from(n) * 100), variant(&any, n));
    }
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
}
