//! IKE SAs without a first Child SA (RFC 6023), begun by the gateway.

use crate::puppet::{CHILD_SPI, Puppet, notify};
use crate::{calm, failure};
use ike::event::EventKind;
use ike::failure::FailureKind;
use ike::wire::payload::{Notify, Payload};
use ike::wire::registry::{ExchangeType, NotifyType, PayloadType, ProtocolId};
use sim::Site;

const OF_CHILD: [PayloadType; 3] = [PayloadType::SA, PayloadType::TSI, PayloadType::TSR];

/// A responder that may announce that it can do without a Child SA, and refuses IKE_AUTH.
fn refusing(announces: bool) -> Puppet {
    let mut puppet = Puppet::new(&Site::default(), calm());
    let kind = NotifyType::CHILDLESS_IKEV2_SUPPORTED;
    let supported = Notify { protocol: ProtocolId::IKE, spi: vec![], kind, data: vec![] };
    puppet.introduction.extend(announces.then_some(Payload::Notify(supported)));
    puppet.pick_up();
    let (request, payloads) = puppet.next_request();
    assert!(payloads.iter().any(|p| p.kind() == PayloadType::SA), "{payloads:?}");
    puppet.answer(&request, &[notify(NotifyType::INVALID_SYNTAX, &[])]);
    puppet
}

fn without_child(payloads: &[Payload]) -> bool {
    !payloads.iter().any(|p| OF_CHILD.contains(&p.kind()))
}

#[test]
fn a_responder_that_refuses_a_first_child_sa_gets_it_later() {
    let mut puppet = refusing(true);
    puppet.pick_up_anew();
    let (request, payloads) = puppet.next_request();
    assert!(without_child(&payloads), "{payloads:?}");
    let mut payloads = puppet.auth_payloads();
    payloads.retain(|p| !OF_CHILD.contains(&p.kind()));
    puppet.answer(&request, &payloads);
    assert_eq!((puppet.ike_sas(), puppet.child_sas()), (1, 0));
    let (request, asked) = puppet.next_request();
    assert_eq!(request.exchange, ExchangeType::CREATE_CHILD_SA);
    assert!(asked.iter().any(|p| p.kind() == PayloadType::SA), "{asked:?}");
    let swapped = puppet.child_payloads(CHILD_SPI).into_iter().map(|payload| match payload {
        Payload::TsInitiator(selectors) => Payload::TsResponder(selectors),
        Payload::TsResponder(selectors) => Payload::TsInitiator(selectors),
        other => other,
    });
    puppet.answer(&request, &swapped.collect::<Vec<_>>());
    assert_eq!((puppet.ike_sas(), puppet.child_sas()), (1, 1));
    assert_eq!(puppet.sending(), [CHILD_SPI]);
    let told = puppet.world.count_events(
        puppet.left,
        |e| matches!(e, EventKind::Warning(text) if text.contains("a Child SA in IKE_AUTH")),
    );
    assert_eq!(told, 1, "the operator knows why it took longer");
    puppet.wait();
    assert_eq!((puppet.ike_sas(), puppet.child_sas()), (1, 1), "it stays");
}

#[test]
fn a_tunnel_taken_down_meanwhile_is_not_set_up_later() {
    let mut puppet = refusing(true);
    puppet.pick_up_anew();
    let (request, _) = puppet.next_request();
    puppet.world.disconnect(puppet.left, Site::TUNNEL);
    let mut payloads = puppet.auth_payloads();
    payloads.retain(|p| !OF_CHILD.contains(&p.kind()));
    puppet.answer(&request, &payloads);
    let (delete, payloads) = puppet.next_request();
    assert_eq!(delete.exchange, ExchangeType::INFORMATIONAL);
    assert!(matches!(payloads.as_slice(), [Payload::Delete(_)]), "{payloads:?}");
    puppet.answer(&delete, &[]);
    assert_eq!((puppet.ike_sas(), puppet.child_sas()), (0, 0));
}

#[test]
fn a_responder_that_refuses_that_too_is_left_alone() {
    let mut puppet = refusing(true);
    puppet.pick_up_anew();
    let (request, payloads) = puppet.next_request();
    assert!(without_child(&payloads), "{payloads:?}");
    puppet.answer(&request, &[notify(NotifyType::INVALID_SYNTAX, &[])]);
    assert_eq!(puppet.ike_sas(), 0);
    let kind = failure(&puppet.world, puppet.left, Site::TUNNEL);
    assert_eq!(kind, Some(FailureKind::Refused));
}

#[test]
fn a_responder_that_announces_nothing_is_asked_once() {
    let puppet = refusing(false);
    assert_eq!(puppet.ike_sas(), 0);
    let kind = failure(&puppet.world, puppet.left, Site::TUNNEL);
    assert_eq!(kind, Some(FailureKind::Refused));
}
