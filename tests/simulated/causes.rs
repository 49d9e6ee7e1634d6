//! The obstacle that keeps messages from the peer is named, and unauthenticated information changes no SA.

use crate::{SETTLED, SOON, calm, failure, up};
use ike::failure::FailureKind;
use ike::status::Next;
use ike::unreachable::{Lack, Obstacle, Unreachable, Unsent};
use ike::{CloseReason, Config, Transmit};
use sim::host::Side;
use sim::invariant::{assert_agreement, assert_clean_stop, assert_nothing_left};
use sim::link::Content;
use sim::{Exchange, HostId, Site, World};
use std::time::Duration;

/// Tells the engine what came of sending every message that a host has sent since the last time. Returns their number.
fn outcome(
    world: &mut World,
    host: HostId,
    address: std::net::IpAddr,
    lack: Option<Lack>,
) -> usize {
    let sent = world.take_tapped().into_iter().filter(|p| p.source.ip() == address);
    let mut number = 0;
    for parcel in sent.collect::<Vec<_>>() {
        let Content::Ike(octets) = parcel.content else { continue };
        let (local, remote) = (parcel.source, parcel.destination);
        let transmit = Transmit { local, remote, octets, keepalive: false };
        let outcome = lack.map_or(Ok(()), |lack| Err(Unsent::Lack(lack)));
        world.command(host, "sent", |e, now| e.handle_sent(now, &transmit, outcome));
        number += 1;
    }
    number
}

#[test]
fn an_attempt_that_cannot_begin_fails_at_once_and_names_the_cause() {
    let cases = [(Lack::Address, FailureKind::NoLocalAddress), (Lack::Route, FailureKind::NoRoute)];
    for (lack, kind) in cases {
        let site = Site::default();
        let (mut world, left, right) = World::of_site(1, &site, &calm());
        world.cut(right);
        world.tap();
        world.connect(left, Site::TUNNEL);
        assert_eq!(outcome(&mut world, left, site.left, Some(lack)), 1);
        assert_eq!(failure(&world, left, Site::TUNNEL), Some(kind), "without any wait");
        assert_nothing_left(&mut world, left);
        world.run_for(SETTLED);
        let attempts = world.ladder().sent_by("left").count();
        assert_eq!(attempts, 1, "a tunnel that was started by hand is not tried again");
        world.heal();
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        assert_agreement(&mut world, left, right, &site);
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn a_tunnel_that_starts_by_itself_is_tried_as_soon_as_the_address_and_the_route_are_there() {
    let site = Site { auto_start: true, ..Site::default() };
    let mut world = World::new(1);
    let passive = Site { auto_start: false, ..site.clone() };
    let right = world.add_host("right", site.right, passive.policy(Side::Right), calm());
    world.cut(right);
    world.tap();
    let left = world.add_host("left", site.left, site.policy(Side::Left), calm());
    // Several attempts fail, and the pauses grow.
    for _ in 0..8 {
        assert!(world.run_until(SETTLED, |w| w.host(left).engine.is_under_way(Site::TUNNEL)));
        outcome(&mut world, left, site.left, Some(Lack::Address));
        assert_eq!(failure(&world, left, Site::TUNNEL), Some(FailureKind::NoLocalAddress));
    }
    let attempts = |w: &World| w.ladder().sent_by("left").count();
    let before = attempts(&world);
    let moment = Duration::from_millis(1);
    for (addresses, source) in [(vec![], Some(site.left)), (vec![site.left], None)] {
        world.command(left, "addresses", |e, now| {
            e.handle_addresses(now, &addresses, &mut |_| source);
        });
        world.run_for(moment);
        assert_eq!(attempts(&world), before, "something is still missing");
    }
    world.heal();
    world.command(left, "addresses", |e, now| {
        e.handle_addresses(now, &[site.left], &mut |_| Some(site.left));
    });
    world.run_for(moment);
    assert_eq!(attempts(&world), before + 1, "at once");
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &site);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn a_route_that_comes_and_goes_ends_no_attempt_under_way() {
    let site = Site::default();
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    world.cut(right);
    world.tap();
    world.connect(left, Site::TUNNEL);
    outcome(&mut world, left, site.left, None);
    while world.host(left).engine.is_under_way(Site::TUNNEL) {
        world.run_for(Duration::from_millis(500));
        outcome(&mut world, left, site.left, Some(Lack::Route));
    }
    let tries = world.ladder().sent_by("left").count();
    assert_eq!(tries, 1 + calm().retransmissions as usize);
    let failed = world.host(left).engine.last_failure(Site::TUNNEL).expect("it failed");
    assert_eq!(failed.kind, FailureKind::NoAnswer);
    assert!(failed.to_string().contains("this host has no route to the peer"), "{failed}");
}

#[test]
fn a_route_that_is_missing_for_a_moment_ends_no_ike_sa() {
    let site = Site::default();
    let (mut world, left, right) = up(1, &site);
    world.tap();
    assert!(world.rekey(left, "net0"));
    assert!(outcome(&mut world, left, site.left, Some(Lack::Route)) > 0);
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
    assert_clean_stop(&mut world, left, right);
}

/// The obstacle on the way to the peer that `vpnctl why` names while an answer is awaited.
fn obstacle(world: &mut World, host: HostId) -> Option<String> {
    match world.status(host)[0].children[0].next.clone() {
        Some(Next::Answer { obstacle, .. }) => obstacle,
        other => panic!("an answer is awaited: {other:?}"),
    }
}

#[test]
fn icmp_is_told_of_and_changes_nothing() {
    let site = Site::default();
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    world.cut(right);
    world.tap();
    world.connect(left, Site::TUNNEL);
    let sent = world.take_tapped().into_iter().find_map(|p| match p.content {
        Content::Ike(octets) => Some((octets, p.destination)),
        _ => None,
    });
    let (octets, remote) = sent.expect("IKE_SA_INIT");
    let unreachable = Unreachable { by: site.right, what: Obstacle::Port };
    let before = world.host(left).engine.inventory();
    let deadline = world.host(left).engine.deadline();
    // An attacker who does not see our messages knows no SPI, and an ICMP message may quote too little.
    for quoted in [&[7; 16][..], &octets[..4], &[]] {
        world.command(left, "icmp", |e, _| e.handle_unreachable(remote, quoted, unreachable));
        assert_eq!(obstacle(&mut world, left), None);
    }
    world.command(left, "icmp", |e, _| e.handle_unreachable(remote, &octets[..16], unreachable));
    let said = obstacle(&mut world, left).expect("it is told of");
    assert!(
        said.contains("nothing listens on UDP 500") && said.contains("not protected"),
        "{said}"
    );
    assert_eq!(world.host(left).engine.inventory(), before);
    assert_eq!(world.host(left).engine.deadline(), deadline);
    world.run_for(SETTLED);
    let tries = world.ladder().sent_by("left").count();
    assert_eq!(tries, 1 + calm().retransmissions as usize, "nothing is given up sooner");
    let failed = world.host(left).engine.last_failure(Site::TUNNEL).expect("it failed");
    assert!(failed.to_string().contains("nothing listens on UDP 500"), "{failed}");
    world.heal();
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn icmp_ends_no_ike_sa() {
    let site = Site::default();
    let (mut world, left, right) = up(1, &site);
    let before = world.host(left).engine.inventory();
    let deadline = world.host(left).engine.deadline();
    let (initiator, responder) = crate::ike_spis(&mut world, left);
    let quoted = [initiator.to_be_bytes(), responder.to_be_bytes()].concat();
    for what in [Obstacle::Port, Obstacle::Host, Obstacle::Network, Obstacle::Prohibited] {
        let unreachable = Unreachable { by: site.right, what };
        for (host, peer) in [(left, site.right), (right, site.left)] {
            world.command(host, "icmp", |e, _| {
                e.handle_unreachable((peer, 500).into(), &quoted, unreachable);
            });
        }
    }
    assert_eq!(world.host(left).engine.inventory(), before);
    assert_eq!(world.host(left).engine.deadline(), deadline);
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn a_request_without_an_answer_is_told_of_from_its_first_repetition_on() {
    let site = Site::default();
    let (mut world, left, right) = World::of_site(1, &site, &Config::default());
    let unanswered = |w: &mut World| w.status(left)[0].unanswered.clone();
    world.cut(right);
    world.connect(left, Site::TUNNEL);
    assert_eq!(unanswered(&mut world), None, "it was sent once");
    assert!(world.run_until(SOON, |w| unanswered(w).is_some()));
    let ike::status::Unanswered { silence, most, silent_for, given_up_in, .. } =
        unanswered(&mut world).expect("it was sent again");
    assert_eq!((silence.request.as_str(), silence.sent, silence.was_up), ("IKE_SA_INIT", 2, false));
    let config = Config::default();
    assert_eq!((most, silent_for), (config.retransmissions + 1, config.retransmit_after));
    let pauses = (1..=5).map(|n| config.retransmit_after.mul_f64(1.8f64.powi(n)));
    assert_eq!(given_up_in, pauses.sum::<Duration>());
    world.heal();
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
    assert_eq!(unanswered(&mut world), None);
    // A peer that was up is asked whether it lives.
    world.cut(right);
    let interval = Config::default().liveness_interval.expect("the default");
    assert!(world.run_until(interval + SOON, |w| unanswered(w).is_some()), "within a minute");
    let silence = unanswered(&mut world).expect("it was sent again").silence;
    assert_eq!((silence.request.as_str(), silence.was_up), ("INFORMATIONAL", true));
    assert_eq!(world.status(left)[0].state, ike::status::State::Established);
    world.heal();
    world.run_for(SOON * 2);
    assert_eq!(unanswered(&mut world), None);
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn a_tunnel_that_went_down_knows_why_and_since_when() {
    let site = Site::default();
    let (mut world, left, right) = up(1, &site);
    let ends = |w: &mut World| {
        let status = &w.status(left)[0];
        let end = |e: &Option<ike::status::Ended>| e.as_ref().map(|e| (e.reason, e.ago.as_secs()));
        (end(&status.ended), end(&status.children[0].ended))
    };
    assert_eq!(ends(&mut world), (None, None), "it is up");
    assert!(world.disconnect(right, Site::TUNNEL));
    world.run_for(Duration::from_secs(100));
    let (ike, child) = ends(&mut world);
    assert_eq!(ike.map(|e| e.0), Some(CloseReason::DeletedByPeer));
    assert_eq!(child.map(|e| e.0), Some(CloseReason::DeletedByPeer));
    assert!(ike.is_some_and(|e| (98..=100).contains(&e.1)), "{ike:?}");
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert_eq!(ends(&mut world), (None, None), "it is up again");
    assert!(world.disconnect(left, Site::TUNNEL));
    world.run_for(SOON);
    assert_eq!(ends(&mut world).0.map(|e| e.0), Some(CloseReason::Deactivated));
    assert!(world.ladder().sent_by("left").any(|l| l.is_request(Exchange::Informational)));
}

#[test]
fn a_tunnel_whose_delete_is_not_answered_ended_when_it_was_taken_down() {
    let site = Site::default();
    let (mut world, left, right) = up(1, &site);
    let ends = |w: &mut World| {
        let status = &w.status(left)[0];
        [&status.ended, &status.children[0].ended].map(|e| e.clone().map(|e| (e.reason, e.ago)))
    };
    world.cut(right);
    assert!(world.disconnect(left, Site::TUNNEL));
    world.run_for(SOON);
    let end = |ago| [Some((CloseReason::Deactivated, ago)); 2];
    assert_eq!(world.status(left)[0].state, ike::status::State::Closing);
    assert_eq!(ends(&mut world), end(SOON), "it is still being deleted");
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert_eq!(world.status(left)[0].state, ike::status::State::Negotiating);
    assert_eq!(ends(&mut world), end(2 * SOON), "the next one is not up yet");
    world.run_for(SETTLED);
    assert_eq!(ends(&mut world), end(2 * SOON + SETTLED), "both have been given up");
}

#[test]
fn failures_before_a_success_or_a_reload_are_marked() {
    let site = Site::default();
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    world.cut(right);
    world.connect(left, Site::TUNNEL);
    world.run_for(SETTLED);
    world.replace_policy(left, site.policy(Side::Left));
    world.run_for(SOON);
    let first = |w: &mut World| w.status(left)[0].failures[0].clone();
    let past = first(&mut world);
    assert_eq!((past.outdated_ago, past.overcome_ago), (Some(SOON), None));
    world.heal();
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    let past = first(&mut world);
    assert!(past.overcome && past.overcome_ago.is_some_and(|ago| ago <= SOON), "{past:?}");
}

#[test]
fn an_attempt_is_given_up_after_the_time_that_the_guide_names() {
    let (mut world, left, right) = World::of_site(1, &Site::default(), &calm());
    world.cut(right);
    let began = world.now();
    world.connect(left, Site::TUNNEL);
    assert!(world.run_until(SETTLED, |w| w.host(left).engine.is_idle()));
    let seconds = (world.now() - began).as_secs();
    let guide = include_str!("../../docs/operate/staying-up.md");
    assert!(guide.contains(&format!("(after {seconds} seconds by default)")), "{seconds}");
    let interval = Config::default().liveness_interval.expect("the default").as_secs();
    let noticed = format!("(at most {} seconds by default)", interval + seconds + 1);
    assert!(guide.contains(&noticed), "{noticed}");
}
