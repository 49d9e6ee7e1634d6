//! Dead, restarted and unreachable peers (RFC 7296 §2.4, §1.5).

use crate::{SETTLED, SOON, assert_nothing_lost, calm, failure, ike_spis};
use ike::durations::Exchange as Measured;
use ike::failure::FailureKind;
use ike::unreachable::Unsent;
use ike::{Config, Transmit};
use sim::invariant::{assert_agreement, assert_clean_stop, assert_nothing_left};
use sim::link::Content;
use sim::{Exchange, HostId, Site, World};
use std::time::Duration;

fn up(site: &Site, config: &Config) -> (World, HostId, HostId) {
    let (mut world, left, right) = World::of_site(1, site, config);
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, site);
    (world, left, right)
}

fn questions(world: &World, name: &str) -> usize {
    world.ladder().sent_by(name).filter(|l| l.is_request(Exchange::Informational)).count()
}

#[test]
fn a_dead_peer_is_noticed_and_forgotten() {
    let (mut world, left, right) = up(&Site::default(), &Config::default());
    world.cut(right);
    world.run_for(Duration::from_secs(600));
    for host in [left, right] {
        assert_nothing_left(&mut world, host);
        assert_eq!(failure(&world, host, Site::TUNNEL), Some(FailureKind::NoAnswer));
    }
    world.heal();
    world.connect(right, Site::TUNNEL);
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &Site::default());
}

#[test]
fn an_idle_peer_is_asked_and_lives() {
    let (mut world, left, right) = up(&Site::default(), &Config::default());
    let before = ike_spis(&mut world, left);
    world.run_for(Duration::from_secs(3600));
    let asked = questions(&world, "left") + questions(&world, "right");
    assert!((60..=241).contains(&asked), "{asked} questions in an idle hour");
    assert_eq!(ike_spis(&mut world, left), before);
    assert_agreement(&mut world, left, right, &Site::default());
}

#[test]
fn exchanges_are_measured_from_the_request_to_the_answer() {
    let (mut world, left, right) = up(&Site::default(), &calm());
    let durations = |world: &mut World, exchange| {
        let both = world.command(left, "tell durations", |engine, _| *engine.exchange_durations());
        let of = both.of(exchange);
        (of.count(), of.sum())
    };
    let ms = Duration::from_millis;
    assert_eq!(durations(&mut world, Measured::Liveness), (0, ms(0)));
    // A link of 10 ms.
    assert!(world.rekey(left, "net0"));
    world.run_for(SETTLED);
    assert_eq!(durations(&mut world, Measured::RekeyChild), (1, ms(20)));
    // The peer's rekey is not this side's exchange, and neither is the Delete after it.
    assert!(world.rekey(right, Site::TUNNEL));
    world.run_for(SETTLED);
    assert_eq!(durations(&mut world, Measured::RekeyIke), (0, ms(0)));
    // A request that is repeated after a second.
    world.drop_next(left, 1, |l| l.is_request(Exchange::CreateChild));
    assert!(world.rekey(left, Site::TUNNEL));
    world.run_for(SETTLED);
    assert_eq!(durations(&mut world, Measured::RekeyIke), (1, ms(1_020)));
    assert_eq!(durations(&mut world, Measured::NewChild), (0, ms(0)));
}

#[test]
fn the_round_trips_of_liveness_checks_are_measured() {
    let (mut world, left, _) = up(&Site::default(), &Config::default());
    world.run_for(Duration::from_secs(600));
    let durations = world.command(left, "tell durations", |engine, _| *engine.exchange_durations());
    let liveness = durations.of(Measured::Liveness);
    let round_trip = Duration::from_millis(20);
    let count = u32::try_from(liveness.count()).expect("some in ten minutes");
    assert!(count > 0 && liveness.sum() == count * round_trip, "{liveness:?}");
}

#[test]
fn traffic_is_proof_of_life() {
    // RFC 7296 §2.4: no question while cryptographically protected traffic arrives.
    let site = Site::default();
    let (mut world, left, right) = up(&site, &Config::default());
    let (l, r) = site.inner(0);
    let second = Duration::from_secs(1);
    let flows = [world.start_flow(left, l, r, second), world.start_flow(right, r, l, second)];
    world.run_for(Duration::from_secs(3600));
    assert_eq!(questions(&world, "left") + questions(&world, "right"), 0);
    assert_nothing_lost(&mut world, flows);
}

#[test]
fn a_short_outage_is_survived() {
    let site = Site::default();
    let (mut world, left, right) = up(&site, &Config::default());
    let before = ike_spis(&mut world, left);
    world.run_for(Duration::from_secs(25));
    world.cut(right);
    world.run_for(Duration::from_secs(20));
    world.heal();
    world.run_for(SETTLED);
    assert_eq!(ike_spis(&mut world, left), before);
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn a_restarted_peer_comes_back_with_initial_contact() {
    for (restarted, original) in [(1, 0), (0, 1)] {
        let site = Site { children: 2, ..Site::default() };
        let (mut world, left, right) = World::of_site(1, &site, &calm());
        let hosts = [left, right];
        world.connect(hosts[original], Site::TUNNEL);
        world.run_for(SOON);
        let before = ike_spis(&mut world, left);
        world.restart(hosts[restarted]);
        world.connect(hosts[restarted], Site::TUNNEL);
        world.run_for(SETTLED);
        assert_ne!(ike_spis(&mut world, left), before);
        assert_agreement(&mut world, left, right, &site);
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn a_restarted_peer_that_starts_by_itself_heals_the_tunnel() {
    let site = Site { auto_start: true, ..Site::default() };
    let (mut world, left, right) = World::of_site(1, &site, &Config::default());
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
    world.restart(right);
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
    world.restart(left);
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn a_restarted_peer_that_keeps_silent_is_noticed() {
    // Its unprotected notifications (RFC 7296 §2.21.4) must not by themselves end an SA.
    let (mut world, left, right) = up(&Site::default(), &Config::default());
    world.restart(right);
    world.run_for(Duration::from_secs(600));
    assert_nothing_left(&mut world, left);
    assert_nothing_left(&mut world, right);
}

/// Connects in vain; the host cannot send the first `unsent` datagrams. Returns the text of the failure.
fn in_vain(world: &mut World, left: HostId, unsent: usize) -> String {
    world.tap();
    world.connect(left, Site::TUNNEL);
    let mut tries = 0;
    while !world.host(left).engine.is_idle() {
        for parcel in world.take_tapped() {
            let Content::Ike(octets) = parcel.content else { continue };
            let (local, remote) = (parcel.source, parcel.destination);
            let transmit = Transmit { local, remote, octets, keepalive: false };
            let outcome =
                if tries < unsent { Err(Unsent::Other("no route".into())) } else { Ok(()) };
            world.command(left, "sent", |e, now| e.handle_sent(now, &transmit, outcome));
            tries += 1;
        }
        world.run_for(Duration::from_secs(1));
    }
    assert_eq!(tries, 1 + calm().retransmissions as usize, "nothing is given up sooner");
    assert_eq!(failure(world, left, Site::TUNNEL), Some(FailureKind::NoAnswer));
    world.host(left).engine.last_failure(Site::TUNNEL).expect("it failed").to_string()
}

#[test]
fn a_host_that_cannot_send_says_so_and_goes_on_trying() {
    // RFC 7296 §2.4: an error of the network proves nothing, but an operator wants to know it.
    let (mut world, left, right) = World::of_site(1, &Site::default(), &calm());
    world.cut(right);
    assert!(in_vain(&mut world, left, usize::MAX).contains("no route"));
    assert!(!in_vain(&mut world, left, 5).contains("no route"), "the last one has left");
}
