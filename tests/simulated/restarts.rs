//! A gateway restarts and has forgotten everything: the packets that this costs, and a peer that begins a session
//! without saying that it has forgotten the one before (no INITIAL_CONTACT).

use crate::puppet::{CHILD_SPI, Puppet};
use crate::{SETTLED, SOON, calm};
use esp::plane::Spi;
use ike::Config;
use ike::wire::payload::Payload;
use ike::wire::registry::ExchangeType;
use sim::invariant::assert_agreement;
use sim::traffic::FlowId;
use sim::{Site, World};
use std::time::Duration;

const NEW: Spi = Spi(0x7000_0101);
const SECOND: Spi = Spi(0x7000_0102);

/// A gateway with one session; its peer has begun another one since, with a Child SA of the same phase 2 tunnel.
fn with_two_sessions(site: &Site) -> Puppet {
    let mut puppet = Puppet::calling(site);
    puppet.call_anew();
    let payloads = puppet.auth_payloads_with(NEW);
    let answer = puppet.request(ExchangeType::IKE_AUTH, &payloads);
    assert!(answer.iter().any(|p| matches!(p, Payload::Sa(_))), "{answer:?}");
    assert_eq!(puppet.sending(), [CHILD_SPI], "the peer may not have the new SA yet");
    puppet
}

/// Answers the liveness check that the gateway sends on the new IKE SA.
fn answer_check(puppet: &mut Puppet) {
    let (check, payloads) = puppet.next_request();
    assert_eq!((check.exchange, payloads), (ExchangeType::INFORMATIONAL, vec![]));
    puppet.answer(&check, &[]);
}

#[test]
fn the_gateway_sends_on_the_new_sa_as_soon_as_the_peer_shows_that_it_has_it() {
    let mut puppet = with_two_sessions(&Site::default());
    let begun = puppet.world.now();
    answer_check(&mut puppet);
    assert!(puppet.sending().contains(&NEW));
    assert!(puppet.world.now() - begun < calm().retransmit_after, "it was asked at once");
    assert_eq!(
        puppet.ike_sas(),
        2,
        "the session before stays until the peer deletes it, or is found dead"
    );
    puppet.forget_sent();
    puppet.wait();
    let asked = puppet.sent().into_iter().filter(|(h, _)| h.initiator_spi == puppet.spis.0);
    assert_eq!(asked.count(), 0, "once is enough");
}

#[test]
fn nothing_is_sent_on_an_sa_that_the_peer_may_not_have() {
    let mut puppet = with_two_sessions(&Site::default());
    puppet.world.run_for(calm().retransmit_after * 4);
    assert_eq!(puppet.sending(), [CHILD_SPI]);
}

#[test]
fn an_answer_says_nothing_of_a_child_sa_that_was_made_after_the_request() {
    let mut puppet = with_two_sessions(&Site { children: 2, ..Site::default() });
    let check = puppet.next_request();
    let payloads = puppet.payloads_of_child(1, SECOND);
    let answer = puppet.request(ExchangeType::CREATE_CHILD_SA, &payloads);
    assert!(answer.iter().any(|p| matches!(p, Payload::Sa(_))), "{answer:?}");
    puppet.forget_sent();
    puppet.answer(&check.0, &[]);
    assert!(puppet.sending().contains(&NEW) && !puppet.sending().contains(&SECOND));
    // The next check comes soon.
    puppet.world.run_for(calm().retransmit_after);
    answer_check(&mut puppet);
    assert!(puppet.sending().contains(&SECOND));
    puppet.world.run_for(SOON);
}

/// The gateways that send after the restart.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Senders {
    Restarted,
    Survivor,
    Both,
}

/// The time for which each flow loses its packets after one gateway restarts; that begins first what its policy says.
fn outages(site: &Site, begun_by: usize, restarted: usize, senders: Senders) -> Vec<Duration> {
    const EVERY: Duration = Duration::from_millis(10);
    let (mut world, left, right) = World::of_site(1, site, &Config::default());
    let hosts = [left, right];
    let by_command = !site.auto_start && !site.on_demand;
    if !site.auto_start {
        world.connect(hosts[begun_by], Site::TUNNEL);
    }
    // Where both sides have begun, one of the two sessions is deleted meanwhile.
    world.run_for(SETTLED);
    let inner = site.inner(0);
    let ends = [inner, (inner.1, inner.0)];
    let sends = |host: usize| match senders {
        Senders::Restarted => host == restarted,
        Senders::Survivor => host != restarted,
        Senders::Both => true,
    };
    let flows: Vec<FlowId> = (0..2)
        .filter(|host| sends(*host))
        .map(|host| world.start_flow(hosts[host], ends[host].0, ends[host].1, EVERY))
        .collect();
    world.run_for(Duration::from_secs(1));
    world.restart(hosts[restarted]);
    if by_command {
        world.connect(hosts[restarted], Site::TUNNEL);
    }
    world.run_for(SETTLED);
    flows.iter().for_each(|flow| world.stop_flow(*flow));
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, site);
    flows.iter().map(|flow| world.flow(*flow).missing() as u32 * EVERY).collect()
}

/// Calls `check` with every combination of who began before, who restarts and who sends.
fn each_combination(check: impl Fn(usize, usize, Senders)) {
    for begun_by in [0, 1] {
        for restarted in [0, 1] {
            for senders in [Senders::Restarted, Senders::Survivor, Senders::Both] {
                check(begun_by, restarted, senders);
            }
        }
    }
}

/// Two round trips of the simulation's link, and one packet more, since the host has to notice it first.
const HANDSHAKE: Duration = Duration::from_millis(2 * 20 + 10);

#[test]
fn a_gateway_that_begins_after_its_restart_loses_the_packets_of_one_handshake() {
    // By itself, by itself or by a packet, and by command.
    for (auto_start, on_demand) in [(true, false), (true, true), (false, false)] {
        let site = Site { children: 2, auto_start, on_demand, ..Site::default() };
        each_combination(|begun_by, restarted, senders| {
            let outages = outages(&site, begun_by, restarted, senders);
            let told = format!(
                "auto_start {auto_start}, on_demand {on_demand}, begun by {begun_by}, restarted {restarted}, {senders:?}"
            );
            assert!(outages.iter().all(|o| *o <= HANDSHAKE), "{told}: {outages:?}");
        });
    }
}

#[test]
fn a_gateway_that_waits_for_a_packet_begins_with_its_own_or_is_noticed_by_liveness() {
    let site = Site { on_demand: true, ..Site::default() };
    let noticed =
        Config::default().liveness_interval.expect("the default") + Duration::from_secs(42);
    each_combination(|begun_by, restarted, senders| {
        let outages = outages(&site, begun_by, restarted, senders);
        let most = if senders == Senders::Survivor { noticed } else { HANDSHAKE };
        let told = format!("begun by {begun_by}, restarted {restarted}, {senders:?}");
        assert!(outages.iter().all(|o| *o <= most), "{told}: {outages:?}");
    });
}
