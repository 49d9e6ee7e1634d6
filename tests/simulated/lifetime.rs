//! Lifetimes drive rekeys.

use crate::puppet::{CHILD_SPI, Puppet, notify};
use crate::{assert_nothing_lost, calm, child_spi, ike_spis};
use esp::plane::{Notice, Spi};
use ike::CloseReason;
use ike::event::EventKind;
use ike::failure::FailureKind;
use ike::wire::payload::{Delete, Notify, Payload};
use ike::wire::registry::{ExchangeType, NotifyType, ProtocolId};
use policy::{Group, KeyBits, Lifetime, LifetimeBounds, Pfs, Policy, Role};
use sim::host::{esp_offer, lifetime};
use sim::invariant::{assert_agreement, assert_clean_stop, leftovers};
use sim::traffic::InnerPacket;
use sim::{Exchange, Side, Site, World};
use std::sync::Arc;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Child SAs of ten minutes in IKE SAs of an hour.
fn short_lived() -> Site {
    Site {
        children: 2,
        esp: vec![esp_offer(KeyBits::B128, lifetime(10 * MINUTE))],
        lifetime: lifetime(60 * MINUTE),
        ..Site::default()
    }
}

#[test]
fn a_day_of_rekeys_loses_nothing() {
    for seed in 0..4 {
        let site = short_lived();
        let (mut world, left, right) = World::of_site(seed, &site, &calm());
        world.connect(left, Site::TUNNEL);
        world.run_for(MINUTE);
        let (l, r) = site.inner(0);
        let second = Duration::from_secs(1);
        let flows = [world.start_flow(left, l, r, second), world.start_flow(right, r, l, second)];
        world.run_for(24 * 60 * MINUTE);
        let rekeyed = world.count_events(left, |e| matches!(e, EventKind::Rekeyed { .. }));
        // Each of two Child SAs every 8 to 10 minutes, and the IKE SA about every 50.
        assert!((290..=460).contains(&rekeyed), "{rekeyed} rekeys in a day");
        assert_nothing_lost(&mut world, flows);
        assert!(world.run_until_quiet(Duration::from_secs(20), 10 * MINUTE));
        assert_agreement(&mut world, left, right, &site);
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn ends_that_agree_on_no_key_exchange_lose_nothing() {
    let none = Pfs { offer: vec![], accept: vec![], accept_none: true, additional: vec![] };
    let only = |group| Pfs {
        offer: vec![group],
        accept: vec![group],
        accept_none: false,
        additional: vec![],
    };
    for [at_left, at_right] in
        [[none, only(Group::Curve25519)], [only(Group::Ecp256), only(Group::Curve25519)]]
    {
        for begins_left in [true, false] {
            let site = |pfs: &Pfs| Site { children: 1, pfs: pfs.clone(), ..short_lived() };
            let (here, there) = (site(&at_left), site(&at_right));
            let mut world = World::new(1);
            let left = world.add_host("left", here.left, here.policy(Side::Left), calm());
            let right = world.add_host("right", there.right, there.policy(Side::Right), calm());
            world.connect(if begins_left { left } else { right }, Site::TUNNEL);
            world.run_for(MINUTE);
            let (l, r) = here.inner(0);
            let second = Duration::from_secs(1);
            let flows =
                [world.start_flow(left, l, r, second), world.start_flow(right, r, l, second)];
            // Each refuses the other one's rekey at the same moment.
            assert!(world.rekey(left, "net0") && world.rekey(right, "net0"));
            world.run_for(60 * MINUTE);
            let is_first = |l: &&sim::Label| l.is_request(Exchange::SaInit);
            let begun = |host| world.ladder().sent_by(host).filter(is_first).count();
            let sum = begun("left") + begun("right");
            assert!(sum >= 5, "{sum} IKE SAs, and each Child SA lives ten minutes");
            assert_nothing_lost(&mut world, flows);
            assert!(world.run_until_quiet(Duration::from_secs(20), 10 * MINUTE));
            assert_agreement(&mut world, left, right, &here);
            assert_clean_stop(&mut world, left, right);
        }
    }
}

/// The peer demands a key exchange that this side does not offer, and may not begin an IKE SA itself.
#[test]
fn a_key_exchange_that_only_the_answering_end_wants_loses_nothing() {
    let group = Group::Curve25519;
    let wants = Pfs { offer: vec![group], accept: vec![group], ..Pfs::default() };
    let here = Site { children: 1, ..short_lived() };
    let there = Site { pfs: wants, ..here.clone() };
    let mut policy = Policy::clone(&there.policy(Side::Right));
    Arc::make_mut(&mut policy.tunnels[0]).role = Role::Responder;
    let mut world = World::new(1);
    let left = world.add_host("left", here.left, here.policy(Side::Left), calm());
    let right = world.add_host("right", there.right, Arc::new(policy), calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(MINUTE);
    let (l, r) = here.inner(0);
    let second = Duration::from_secs(1);
    let flows = [world.start_flow(left, l, r, second), world.start_flow(right, r, l, second)];
    world.run_for(60 * MINUTE);
    let begun = world.ladder().sent_by("left").filter(|l| l.is_request(Exchange::SaInit)).count();
    assert!(begun >= 5, "{begun} IKE SAs, and each Child SA lives ten minutes");
    assert_nothing_lost(&mut world, flows);
    assert!(world.run_until_quiet(Duration::from_secs(20), 10 * MINUTE));
    assert_agreement(&mut world, left, right, &here);
    // The next renewal will be refused, too.
    for host in [left, right] {
        let past = &world.status(host)[0].children[0].failures[0];
        let told = (past.failure.kind, past.overcome);
        assert_eq!(told, (FailureKind::NoProposalChosen, false), "{past:?}");
    }
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn the_end_with_the_shorter_lifetime_rekeys() {
    let short = short_lived();
    let long = Site {
        esp: vec![esp_offer(KeyBits::B128, lifetime(600 * MINUTE))],
        lifetime: lifetime(600 * MINUTE),
        ..short.clone()
    };
    let mut world = World::new(1);
    let left = world.add_host("left", long.left, long.policy(Side::Left), calm());
    let right = world.add_host("right", long.right, short.policy(Side::Right), calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(MINUTE);
    let before = (ike_spis(&mut world, left), child_spi(&mut world, left, "net0"));
    world.run_for(90 * MINUTE);
    assert!(world.run_until_quiet(Duration::from_secs(20), 10 * MINUTE));
    assert_ne!(before.0, ike_spis(&mut world, left));
    assert_ne!(before.1, child_spi(&mut world, left, "net0"));
    let asked = |name| {
        world.ladder().sent_by(name).filter(|l| l.is_request(sim::Exchange::CreateChild)).count()
    };
    assert_eq!(asked("left"), 1, "the second Child SA, when all came up");
    assert!(asked("right") > 10);
    assert_agreement(&mut world, left, right, &short);
}

#[test]
fn bounds_as_responder_hold_for_sas_that_the_peer_asks_for() {
    let plain = Site {
        children: 1,
        esp: vec![esp_offer(KeyBits::B128, lifetime(60 * MINUTE))],
        lifetime: lifetime(300 * MINUTE),
        ..Site::default()
    };
    let bounds = |from, to| LifetimeBounds { age: [from, to], ..LifetimeBounds::NONE };
    let bounded = Site {
        esp: vec![esp_offer(
            KeyBits::B128,
            lifetime(60 * MINUTE).with_bounds_as_responder(bounds(MINUTE, 20 * MINUTE)),
        )],
        lifetime: lifetime(300 * MINUTE)
            .with_bounds_as_responder(bounds(400 * MINUTE, 500 * MINUTE)),
        ..plain.clone()
    };
    for begins in [Side::Left, Side::Right] {
        let mut world = World::new(1);
        // The left end has bounds, the right one has none.
        let left = world.add_host("left", plain.left, bounded.policy(Side::Left), calm());
        let right = world.add_host("right", plain.right, plain.policy(Side::Right), calm());
        let initiator = if begins == Side::Left { left } else { right };
        world.connect(initiator, Site::TUNNEL);
        world.run_for(Duration::from_secs(1));
        let mut lives = |host| {
            let status = world.status(host).remove(0);
            let ike = status.sa.expect("the IKE SA is up").expires_in.expect("it ends");
            let child = status.children[0].sa.clone().expect("the Child SA is up");
            (ike.as_secs().div_ceil(60), child.lifetime.hard.as_secs() / 60, child.rekeys)
        };
        let expected = if begins == Side::Left { (300, 60, 0) } else { (400, 20, 0) };
        assert_eq!((lives(left), lives(right)), (expected, (300, 60, 0)));
        if begins == Side::Right {
            // The left end's SA is the first to be renewed. The left end asks, so that the new one lives as long as its
            // own.
            world.run_for(25 * MINUTE);
            let mut rekeyed = |host| {
                let status = world.status(host).remove(0);
                let child = status.children[0].sa.clone().expect("the Child SA is up");
                (child.lifetime.hard.as_secs() / 60, child.rekeys)
            };
            assert_eq!((rekeyed(left), rekeyed(right)), ((60, 1), (60, 1)));
        }
    }
}

#[test]
fn bounds_as_responder_hold_for_the_volume_of_sas_that_the_peer_asks_for() {
    let packets = |n: u64| n * InnerPacket::LEN as u64;
    let offer = |volume: Option<u64>, bounds| {
        let lifetime = Lifetime { bytes: volume.map(packets), ..lifetime(24 * 60 * MINUTE) };
        vec![esp_offer(KeyBits::B128, lifetime.with_bounds_as_responder(bounds))]
    };
    let bounds = LifetimeBounds { bytes: [300, 500].map(packets), ..LifetimeBounds::NONE };
    let unlimited = Site { esp: offer(None, LifetimeBounds::NONE), ..Site::default() };
    let cases = [
        (1000, Side::Left, 1000),
        (1000, Side::Right, 500),
        (100, Side::Left, 100),
        (100, Side::Right, 300),
    ];
    for (own, begins, limit) in cases {
        // The left end limits the volume, within bounds where the right one asks; the right end limits none.
        let bounded = Site { esp: offer(Some(own), bounds), ..unlimited.clone() };
        let mut world = World::new(1);
        let left = world.add_host("left", bounded.left, bounded.policy(Side::Left), calm());
        let right = world.add_host("right", bounded.right, unlimited.policy(Side::Right), calm());
        world.connect(if begins == Side::Left { left } else { right }, Site::TUNNEL);
        world.run_for(Duration::from_secs(1));
        let sa = |world: &mut World, host| {
            let child = world.status(host)[0].children[0].sa.clone().expect("the Child SA is up");
            (child.lifetime.bytes, child.rekeys)
        };
        assert_eq!(sa(&mut world, left), (Some(packets(limit)), 0));
        assert_eq!(sa(&mut world, right), (None, 0), "no limit appears");
        let (l, r) = bounded.inner(0);
        let every = Duration::from_secs(1);
        let flows = [world.start_flow(left, l, r, every), world.start_flow(right, r, l, every)];
        let many = u32::try_from(limit).expect("a small number");
        world.run_for(every * (many * 7 / 10));
        assert_eq!(sa(&mut world, left), (Some(packets(limit)), 0), "{own} {begins:?}");
        // The left end asks for the new SA, so that its own limit holds.
        world.run_for(every * (many * 3 / 10));
        assert_eq!(sa(&mut world, left), (Some(packets(own)), 1), "{own} {begins:?}");
        assert_nothing_lost(&mut world, flows);
    }
}

#[test]
fn volume_drives_rekeys() {
    let volume =
        Lifetime { bytes: Some(1000 * InnerPacket::LEN as u64), ..lifetime(24 * 60 * MINUTE) };
    let site = Site { esp: vec![esp_offer(KeyBits::B128, volume)], ..Site::default() };
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(MINUTE);
    let (l, r) = site.inner(0);
    let every = Duration::from_millis(10);
    let flows = [world.start_flow(left, l, r, every), world.start_flow(right, r, l, 3 * every)];
    world.run_for(MINUTE);
    let rekeys = world.status(left)[0].children[0].sa.as_ref().map_or(0, |sa| sa.rekeys);
    // 6,000 packets, a rekey before each thousand.
    assert!((5..=8).contains(&rekeys), "{rekeys} rekeys");
    assert_nothing_lost(&mut world, flows);
    world.run_for(MINUTE);
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn an_sa_that_cannot_be_renewed_ends_in_time() {
    let site = Site { children: 1, ..short_lived() };
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(MINUTE);
    world.cut(right);
    world.run_for(61 * MINUTE);
    for host in [left, right] {
        let found = leftovers(&mut world, host);
        assert!(found.is_empty(), "{found:?}");
    }
}

#[test]
fn a_refused_rekey_is_tried_again_and_the_old_sa_ends_in_time() {
    // The right end will not hear of any rekey; the left one must give up the SA when it has run out.
    let site = Site { children: 1, ..short_lived() };
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(MINUTE);
    let old = child_spi(&mut world, left, "net0");
    world.drop_next(left, u32::MAX, |l| l.is_request(sim::Exchange::CreateChild));
    world.drop_next(right, u32::MAX, |l| l.is_request(sim::Exchange::CreateChild));
    world.run_for(15 * MINUTE);
    for host in [left, right] {
        let held: Vec<u32> = world.plane(host).inbound().map(|i| i.spi.0).collect();
        assert!(!held.contains(&old), "an SA outlives its hard limit");
    }
}

/// A plane reports that both halves of the left end's only Child SA expire.
fn both_halves_expire(world: &mut World, left: sim::HostId, hard: bool) {
    let plane = world.plane(left);
    let inbound = plane.inbound().map(|i| i.id).last().expect("an SA");
    let outbound = plane.outbound().map(|o| o.id).last().expect("an SA");
    for sa in [inbound, outbound] {
        world.command(left, "an SA expires", |e, now| {
            e.handle_notice(now, Notice::Expiring { sa, hard });
        });
    }
}

#[test]
fn the_plane_has_an_sa_renewed_once_whichever_half_runs_out() {
    // Sequence numbers run out like volume: the plane says so of one half, or of both.
    for hard in [false, true] {
        let site = Site::default();
        let (mut world, left, right) = World::of_site(1, &site, &calm());
        world.connect(left, Site::TUNNEL);
        world.run_for(MINUTE);
        let before = child_spi(&mut world, left, "net0");
        let asked = |world: &World| {
            let requests: Vec<_> = world
                .ladder()
                .sent_by("left")
                .filter(|l| !l.response)
                .map(|l| l.exchange)
                .collect();
            let created = requests.iter().filter(|e| **e == Exchange::CreateChild).count();
            (created, requests.len())
        };
        let (_, requests) = asked(&world);
        both_halves_expire(&mut world, left, hard);
        world.run_for(MINUTE);
        assert_ne!(child_spi(&mut world, left, "net0"), before);
        let (created, all) = asked(&world);
        assert_eq!((created, all - requests), (1, 2), "one new SA and one Delete, hard: {hard}");
        assert_agreement(&mut world, left, right, &site);
        assert_clean_stop(&mut world, left, right);
    }
}

/// SPIs of a puppet's gateway: those on which it receives, and those on which it sends.
fn in_force(puppet: &mut Puppet) -> (Vec<Spi>, Vec<Spi>) {
    let sending = puppet.sending();
    (puppet.world.plane(puppet.left).inbound().map(|i| i.spi).collect(), sending)
}

#[test]
fn nothing_passes_on_an_sa_past_its_lifetime_while_its_delete_waits() {
    // The peer refuses each rekey, and answers nothing once the lifetime is over.
    let mut puppet = Puppet::called(&Site { children: 1, ..short_lived() });
    let end = puppet.world.now() + 10 * MINUTE;
    let mut refused = 0;
    while puppet.world.now() < end - Duration::from_secs(1) {
        puppet.world.run_for(Duration::from_millis(500));
        for (request, _) in puppet.sent() {
            assert_eq!(request.exchange, ExchangeType::CREATE_CHILD_SA);
            puppet.answer(&request, &[notify(NotifyType::TEMPORARY_FAILURE, &[])]);
            refused += 1;
        }
    }
    assert!(refused > 1, "it is tried again");
    let (receiving, sending) = in_force(&mut puppet);
    assert_eq!((receiving.len(), sending), (1, vec![CHILD_SPI]), "until then it serves");
    puppet.world.run_for(Duration::from_millis(1200));
    assert_eq!(in_force(&mut puppet), (vec![], vec![]));
    let told = puppet.world.count_events(puppet.left, |e| {
        matches!(e, EventKind::Closed { reason: CloseReason::LifetimeEnded })
    });
    assert_eq!(told, 1);
    // A new one is asked for, and the peer is told to forget the old one, in that order.
    let (request, _) = puppet.next_request();
    assert_eq!(request.exchange, ExchangeType::CREATE_CHILD_SA);
    puppet.answer(&request, &[notify(NotifyType::TEMPORARY_FAILURE, &[])]);
    let (_, payloads) = puppet.next_request();
    let spis = vec![receiving[0].0];
    let delete = Payload::Delete(Delete::ChildSas { protocol: ProtocolId::ESP, spis });
    assert_eq!(payloads, [delete]);
}

#[test]
fn a_replaced_sa_that_the_peer_does_not_delete_ends_with_its_lifetime() {
    let mut puppet = Puppet::calling(&Site { children: 1, ..short_lived() });
    let end = puppet.world.now() + 10 * MINUTE;
    puppet.world.run_for(5 * MINUTE);
    let successor = Spi(0x7000_0002);
    let mut payloads = puppet.child_payloads(successor);
    let replaces = Notify {
        protocol: ProtocolId::ESP,
        spi: CHILD_SPI.0.to_be_bytes().to_vec(),
        kind: NotifyType::REKEY_SA,
        data: vec![],
    };
    payloads.insert(0, Payload::Notify(replaces));
    puppet.request(ExchangeType::CREATE_CHILD_SA, &payloads);
    let (receiving, sending) = in_force(&mut puppet);
    assert_eq!((receiving.len(), sending), (2, vec![CHILD_SPI]), "the successor waits");
    puppet.world.run_for(end - puppet.world.now() + Duration::from_secs(1));
    let (receiving, sending) = in_force(&mut puppet);
    assert_eq!((receiving.len(), sending), (1, vec![successor]));
    let told = puppet.world.count_events(puppet.left, |e| matches!(e, EventKind::Closed { .. }));
    assert_eq!(told, 0, "the tunnel was never down");
}
