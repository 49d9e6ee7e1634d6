//! The cost that a stranger may cause (RFC 7296 §2.6).

use crate::{SETTLED, SOON, calm, up};
use ike::Config;
use ike::crypto::key_exchange::PrivateKey;
use ike::negotiation::proposal::offer_ike;
use ike::wire::header::Header;
use ike::wire::message;
use ike::wire::payload::Payload;
use ike::wire::registry::GroupId;
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

/// A forged request with the addresses and the SPI of a request, and these payloads changed.
fn forged(init: &Parcel, change: impl Fn(&mut Payload)) -> Parcel {
    let Content::Ike(octets) = &init.content else { panic!("not IKE") };
    let header = Header::parse(octets).expect("a message");
    let mut payloads = message::decode(&header, octets).expect("payloads");
    payloads.iter_mut().for_each(change);
    Parcel { content: Content::Ike(message::encode(&header, &payloads)), ..init.clone() }
}

#[test]
fn a_forged_request_before_the_genuine_one_keeps_nobody_out() {
    // RFC 7296 §2.1: the forger has seen address and SPI, and offers another group.
    let site = Site {
        ike: vec![ike_offer(&[Group::Curve25519]), ike_offer(&[Group::Ecp256])],
        ..Site::default()
    };
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    let gate = world.hold(left, |l| l.is_request(Exchange::SaInit));
    world.connect(left, Site::TUNNEL);
    let init = world.take_first(gate).expect("the left host asks");
    world.discard(gate);
    let other = PrivateKey::generate(Group::Ecp256);
    let forged = forged(&init, |payload| match payload {
        Payload::Sa(offers) => *offers = offer_ike(&[ike_offer(&[Group::Ecp256])], &[]),
        Payload::KeyExchange { group, data } => {
            (*group, *data) = (GroupId::from(Group::Ecp256), other.public_value().to_vec());
        }
        _ => {}
    });
    world.inject(Duration::ZERO, forged);
    world.run_for(Duration::from_millis(1));
    assert_eq!(world.host(right).engine.inventory().half_open, 1, "the forged one is answered");
    world.deliver(left, init);
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &site);
    assert_eq!(inits(&world, "left").len(), 1, "the first genuine request is answered");
    world.run_for(SETTLED);
    assert_eq!(world.host(right).engine.inventory().half_open, 0);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn forged_requests_with_one_spi_take_no_more_places_than_others() {
    let site = Site::default();
    let config = Config { cookie_threshold: 8, half_open_limit: 64, ..calm() };
    let (mut world, left, right) = World::of_site(1, &site, &config);
    let gate = world.hold(left, |l| l.is_request(Exchange::SaInit));
    world.connect(left, Site::TUNNEL);
    let init = world.take_first(gate).expect("the left host asks");
    world.discard(gate);
    // The answers to the forger's requests do not reach the left host: it would take them for its own.
    let answers = world.hold(right, |l| l.is_response(Exchange::SaInit));
    for n in 0..1000_u32 {
        let forged = forged(&init, |payload| {
            if let Payload::Nonce(nonce) = payload {
                nonce[..4].copy_from_slice(&n.to_be_bytes());
            }
        });
        world.inject(Duration::from_micros(u64::from(n)), forged);
    }
    world.run_for(Duration::from_millis(10));
    let held = world.host(right).engine.inventory();
    assert_eq!((held.half_open, held.strangers), (8, 8), "the rest needs a cookie");
    // A request that comes again is answered as before.
    world.discard(answers);
    world.tap();
    let again = forged(&init, |payload| {
        if let Payload::Nonce(nonce) = payload {
            nonce[..4].fill(0);
        }
    });
    let answers = world.hold(right, |l| l.is_response(Exchange::SaInit));
    for _ in 0..2 {
        world.inject(Duration::ZERO, again.clone());
        world.run_for(Duration::from_millis(1));
    }
    let repeated = world.take_tapped();
    assert!(repeated.len() == 2 && repeated[0] == repeated[1]);
    assert_eq!(world.host(right).engine.inventory().half_open, 8);
    world.discard(answers);
    // The genuine request takes the way by a cookie.
    world.deliver(left, init);
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &site);
    world.run_for(SETTLED);
    assert_clean_stop(&mut world, left, right);
}
