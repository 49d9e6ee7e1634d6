//! A peer that has restarted begins a session and does not say that it has forgotten the one before (no INITIAL_CONTACT).

use crate::puppet::{CHILD_SPI, Puppet};
use crate::{SOON, calm};
use esp::plane::Spi;
use ike::wire::payload::Payload;
use ike::wire::registry::ExchangeType;
use sim::Site;

const NEW: Spi = Spi(0x7000_0101);
const SECOND: Spi = Spi(0x7000_0102);

/// A gateway with one session; its peer has begun another one since, with a Child SA of the same child tunnel.
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
