//! Requirements of RFC 7296 that two gateways of this kind never put to the test: a puppet does.

use crate::puppet::{CHILD_SPI, Puppet, notified, notify, unknown};
use crate::{SOON, calm, failure};
use ike::event::EventKind;
use ike::failure::{Facts, FailureKind};
use ike::negotiation::proposal::{Offered, offer_child, offer_ike};
use ike::negotiation::selectors;
use ike::status::Renewal;
use ike::wire::header::Header;
use ike::wire::message;
use ike::wire::payload::{Delete, Notify, Payload};
use ike::wire::protected::Content;
use ike::wire::registry::{ExchangeType, GroupId, NotifyType, PayloadType, ProtocolId};
use policy::{AddressRange, Group, IkeProposal, Pfs, Policy, Prf, Role, Selector};
use sim::host::ike_offer;
use sim::link::{self, Parcel};
use sim::{Exchange, HostId, Side, Site, World};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_puppet_gets_a_tunnel_either_way() {
    for mut puppet in [Puppet::calling(&Site::default()), Puppet::called(&Site::default())] {
        assert_eq!((puppet.ike_sas(), puppet.child_sas()), (1, 1));
        assert_eq!(puppet.request(ExchangeType::INFORMATIONAL, &[]), []);
    }
}

#[test]
fn a_critical_payload_that_nobody_knows_is_refused_by_name() {
    // In the clear: RFC 7296 §2.5.
    let mut puppet = Puppet::new(&Site::default(), calm());
    puppet.spis.0.0 = 7;
    let mut payloads = vec![unknown()];
    payloads.extend(puppet.init_payloads());
    let header = puppet.header(ExchangeType::IKE_SA_INIT, 0, false);
    let mut request = message::encode(&header, &payloads);
    request[29] |= 0x80;
    puppet.send(request);
    let (answer, octets) = puppet.sent().remove(0);
    let refused = notify(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, &[200]);
    assert!(answer.response);
    assert_eq!(message::decode(&answer, &octets), Ok(vec![refused.clone()]));
    assert_eq!(puppet.world.host(puppet.left).engine.inventory().half_open, 0);

    // In IKE_AUTH, where nothing comes of it.
    let mut puppet = Puppet::new(&Site::default(), calm());
    puppet.call();
    let mut payloads = vec![unknown()];
    payloads.extend(puppet.auth_payloads());
    assert_eq!(
        puppet.request_critical(ExchangeType::IKE_AUTH, &payloads),
        std::slice::from_ref(&refused)
    );
    assert_eq!(puppet.ike_sas(), 0);

    // On an IKE SA, which stays.
    for exchange in [ExchangeType::INFORMATIONAL, ExchangeType::CREATE_CHILD_SA] {
        let mut puppet = Puppet::calling(&Site::default());
        let answer = puppet.request_critical(exchange, &[unknown()]);
        assert_eq!(answer, std::slice::from_ref(&refused));
        assert_eq!((puppet.ike_sas(), puppet.child_sas()), (1, 1));
    }
}

#[test]
fn payloads_and_notifications_that_nobody_knows_are_skipped() {
    let strange = [
        unknown(),
        Payload::VendorId(b"somebody else".to_vec()),
        Payload::Other { kind: PayloadType::CP, data: vec![1, 0, 0, 0, 0, 1, 0, 0] },
        notify(NotifyType(16_999), b"a status"),
        notify(NotifyType(999), b"an error"),
        notify(NotifyType::SET_WINDOW_SIZE, &[0, 0, 0, 9]),
        notify(NotifyType::IPCOMP_SUPPORTED, &[1, 2, 2]),
        notify(NotifyType::ESP_TFC_PADDING_NOT_SUPPORTED, &[]),
        notify(NotifyType::NON_FIRST_FRAGMENTS_ALSO, &[]),
        notify(NotifyType::HTTP_CERT_LOOKUP_SUPPORTED, &[]),
    ];
    let mut puppet = Puppet::new(&Site::default(), calm());
    puppet.call();
    let mut payloads = puppet.auth_payloads();
    payloads.splice(2..2, strange.clone());
    let answer = puppet.request(ExchangeType::IKE_AUTH, &payloads);
    assert!(answer.iter().any(|p| matches!(p, Payload::Sa(_))), "{answer:?}");
    let forbidden = [
        NotifyType::IPCOMP_SUPPORTED,
        NotifyType::NON_FIRST_FRAGMENTS_ALSO,
        NotifyType::SET_WINDOW_SIZE,
    ];
    assert!(notified(&answer).iter().all(|n| !forbidden.contains(n)), "{answer:?}");
    // RFC 7296 §2.19: no CFG_REPLY from who assigns no addresses.
    assert!(answer.iter().all(|p| p.kind() != PayloadType::CP), "{answer:?}");
    assert_eq!(puppet.request(ExchangeType::INFORMATIONAL, &strange), []);
    assert_eq!((puppet.ike_sas(), puppet.child_sas()), (1, 1));
}

#[test]
fn payloads_come_in_any_order() {
    let mut puppet = Puppet::new(&Site::default(), calm());
    puppet.call();
    let mut payloads = puppet.auth_payloads();
    payloads.reverse();
    puppet.request(ExchangeType::IKE_AUTH, &payloads);
    let mut payloads = puppet.child_payloads(esp::plane::Spi(0x7000_0002));
    payloads.reverse();
    let answer = puppet.request(ExchangeType::CREATE_CHILD_SA, &payloads);
    assert!(answer.iter().any(|p| matches!(p, Payload::Sa(_))), "{answer:?}");
}

#[test]
fn whoever_wants_eap_is_told_that_authentication_failed() {
    let mut puppet = Puppet::new(&Site::default(), calm());
    puppet.call();
    let payloads = puppet.auth_payloads();
    let without: Vec<_> = payloads.into_iter().filter(|p| p.kind() != PayloadType::AUTH).collect();
    let answer = puppet.request(ExchangeType::IKE_AUTH, &without);
    assert_eq!(notified(&answer), [NotifyType::AUTHENTICATION_FAILED]);
    let known = failure(&puppet.world, puppet.left, Site::TUNNEL);
    assert_eq!(known, Some(FailureKind::AuthenticationFailed));
}

#[test]
fn the_first_child_sa_may_fail_without_the_ike_sa() {
    let site = Site { children: 2, ..Site::default() };
    for refusal in [NotifyType::TS_UNACCEPTABLE, NotifyType::FAILED_CP_REQUIRED, NotifyType(1234)] {
        // RFC 7296 §2.21.2, §3.10.1: with an SA payload beside it, too, the request has failed.
        for with_sa in [false, true] {
            let mut puppet = Puppet::new(&site, calm());
            puppet.pick_up();
            let (request, _) = puppet.next_request();
            let mut payloads = puppet.auth_payloads();
            payloads.truncate(if with_sa { 5 } else { 2 });
            payloads.push(notify(refusal, &[]));
            puppet.answer(&request, &payloads);
            assert_eq!((puppet.ike_sas(), puppet.child_sas()), (1, 0), "{refusal} {with_sa}");
            let (request, payloads) = puppet.next_request();
            if with_sa {
                assert!(matches!(
                    payloads.as_slice(),
                    [Payload::Delete(Delete::ChildSas { spis, .. })] if spis.len() == 1
                ));
                puppet.answer(&request, &[]);
                assert_eq!(puppet.next_request().0.exchange, ExchangeType::CREATE_CHILD_SA);
            } else {
                assert_eq!(request.exchange, ExchangeType::CREATE_CHILD_SA, "net1 is next");
            }
        }
    }
}

#[test]
fn an_error_in_the_answer_fails_the_request() {
    for kind in [NotifyType::NO_ADDITIONAL_SAS, NotifyType::SINGLE_PAIR_REQUIRED, NotifyType(1234)]
    {
        for with_sa in [false, true] {
            let site = Site { children: 2, ..Site::default() };
            let mut puppet = Puppet::called(&site);
            let (request, _) = puppet.next_request();
            assert_eq!(request.exchange, ExchangeType::CREATE_CHILD_SA);
            let mut payloads = match with_sa {
                true => puppet.child_payloads(esp::plane::Spi(0x7000_0002)),
                false => vec![],
            };
            payloads.push(notify(kind, &[]));
            puppet.answer(&request, &payloads);
            assert_eq!(puppet.child_sas(), 1, "{kind}");
            let told = failure(&puppet.world, puppet.left, "net1");
            assert_eq!(told, Some(FailureKind::Refused), "{kind}");
        }
    }
}

#[test]
fn a_peer_that_could_not_read_a_request_has_no_ike_sa_any_more() {
    // RFC 7296 §2.21.3: INVALID_SYNTAX ends it on both ends, without a Delete.
    let mut puppet = Puppet::called(&Site::default());
    for name in ["net0", Site::TUNNEL] {
        assert!(puppet.world.rekey(puppet.left, name));
        puppet.world.run_for(Duration::from_millis(50));
        let (request, _) = puppet.next_request();
        puppet.answer(&request, &[notify(NotifyType::INVALID_SYNTAX, &[])]);
        assert_eq!((puppet.ike_sas(), puppet.child_sas()), (0, 0));
        assert!(puppet.sent().is_empty(), "nothing is to be said on an IKE SA that is gone");
        puppet = Puppet::called(&Site::default());
    }
}

#[test]
fn an_answer_that_cannot_be_read_ends_the_ike_sa_with_a_delete() {
    let mut puppet = Puppet::called(&Site::default());
    assert!(puppet.world.rekey(puppet.left, "net0"));
    puppet.world.run_for(Duration::from_millis(50));
    let (request, _) = puppet.next_request();
    puppet.answer_critical(&request, &[unknown()]);
    let (_, payloads) = puppet.next_request();
    assert_eq!(payloads, [Payload::Delete(Delete::IkeSa)]);
    assert_eq!(puppet.child_sas(), 0);
}

#[test]
fn a_public_value_that_is_none_ends_the_ike_sa() {
    // RFC 6989 §2.5, as initiator of CREATE_CHILD_SA.
    let pfs = policy::Pfs {
        offer: vec![policy::Group::Curve25519],
        accept: vec![policy::Group::Curve25519],
        accept_none: false,
        additional: Vec::new(),
    };
    let mut puppet = Puppet::called(&Site { pfs, ..Site::default() });
    assert!(puppet.world.rekey(puppet.left, "net0"));
    puppet.world.run_for(Duration::from_millis(50));
    let (request, payloads) = puppet.next_request();
    let wanted = [PayloadType::SA, PayloadType::NONCE, PayloadType::TSI, PayloadType::TSR];
    let mut answer: Vec<Payload> =
        payloads.into_iter().filter(|p| wanted.contains(&p.kind())).collect();
    let group = GroupId::from(Group::Curve25519);
    answer.push(Payload::KeyExchange { group, data: vec![0; 32] });
    puppet.answer(&request, &answer);
    let (_, payloads) = puppet.next_request();
    assert_eq!(payloads, [Payload::Delete(Delete::IkeSa)]);
}

#[test]
fn a_peer_without_room_for_more_sas_gets_a_new_ike_sa_instead() {
    // RFC 7296 §4.
    for name in ["net0", Site::TUNNEL] {
        let mut puppet = Puppet::called(&Site::default());
        assert!(puppet.world.rekey(puppet.left, name));
        puppet.world.run_for(Duration::from_millis(50));
        let (request, _) = puppet.next_request();
        puppet.answer(&request, &[notify(NotifyType::NO_ADDITIONAL_SAS, &[])]);
        let (request, payloads) = puppet.next_request();
        assert_eq!(payloads, [Payload::Delete(Delete::IkeSa)], "{name}");
        puppet.answer(&request, &[]);
        puppet.wait();
        let (header, _) = puppet.sent().remove(0);
        assert_eq!(header.exchange, ExchangeType::IKE_SA_INIT, "{name}");
    }
}

/// The answer to a request for a Child SA, with this SPI of the puppet, for the traffic that was asked for.
fn granted(puppet: &Puppet, asked: Vec<Payload>, spi: esp::plane::Spi) -> Vec<Payload> {
    let mut answer = vec![Payload::Sa(offer_child(&puppet.site.esp, Offered::default(), spi))];
    let wanted = [PayloadType::NONCE, PayloadType::TSI, PayloadType::TSR];
    answer.extend(asked.into_iter().filter(|p| wanted.contains(&p.kind())));
    answer
}

/// The same for the traffic of the Child SA that is up.
fn narrowed(puppet: &Puppet, asked: Vec<Payload>, spi: esp::plane::Spi) -> Vec<Payload> {
    let agreed = puppet.child_payloads(spi);
    let mut answer = granted(puppet, asked, spi);
    answer.retain(|p| ![PayloadType::TSI, PayloadType::TSR].contains(&p.kind()));
    // The puppet is the responder: the other side's traffic is TSi.
    answer.extend(agreed.into_iter().filter_map(|p| match p {
        Payload::TsInitiator(own) => Some(Payload::TsResponder(own)),
        Payload::TsResponder(theirs) => Some(Payload::TsInitiator(theirs)),
        _ => None,
    }));
    answer
}

fn names_old(payloads: &[Payload]) -> bool {
    notified(payloads).contains(&NotifyType::REKEY_SA)
}

/// Whether a request asks for traffic with any address of IPv4 on both sides.
fn asks_for_any(payloads: &[Payload]) -> bool {
    let one = Selector::all_of(AddressRange::from(IpAddr::from([192, 0, 2, 1])));
    let any = selectors::any(&[one]);
    let is_any = |p: &&Payload| match p {
        Payload::TsInitiator(s) | Payload::TsResponder(s) => *s == any,
        _ => false,
    };
    payloads.iter().filter(is_any).count() == 2
}

#[test]
fn a_rekey_that_is_refused_for_its_traffic_asks_for_any() {
    let mut puppet = Puppet::called(&Site::default());
    let refusal = [notify(NotifyType::TS_UNACCEPTABLE, &[])];
    for (n, is_known) in [(2, false), (3, true)] {
        assert!(puppet.world.rekey(puppet.left, "net0"));
        puppet.world.run_for(Duration::from_millis(50));
        let (mut request, mut payloads) = puppet.next_request();
        if !is_known {
            assert!(names_old(&payloads) && !asks_for_any(&payloads), "{payloads:?}");
            puppet.answer(&request, &refusal);
            (request, payloads) = puppet.next_request();
        }
        assert!(names_old(&payloads) && asks_for_any(&payloads), "{payloads:?}");
        let new = esp::plane::Spi(0x7000_0000 + n);
        let answer = narrowed(&puppet, payloads, new);
        puppet.answer(&request, &answer);
        let (request, _) = puppet.next_delete();
        puppet.answer(&request, &[]);
        assert_eq!((puppet.ike_sas(), puppet.child_sas(), puppet.sending()), (1, 1, vec![new]));
    }
    let left = puppet.left;
    let status = &puppet.world.status(left)[0].children[0];
    assert!(status.sa.as_ref().is_some_and(|sa| sa.rekeys == 2), "{status:?}");
    let [past] = &status.failures[..] else { panic!("{:?}", status.failures) };
    assert_eq!((past.failure.kind, past.overcome), (FailureKind::TsUnacceptable, true));
    let words = past.failure.to_string();
    assert!(words.contains("does not renew the Child SA of"), "{words}");
}

#[test]
fn a_peer_that_grants_any_traffic_is_asked_for_a_new_child_sa_in_place_of_a_rekey() {
    let mut puppet = Puppet::called(&Site::default());
    assert!(puppet.world.rekey(puppet.left, "net0"));
    puppet.world.run_for(Duration::from_millis(50));
    let (request, _) = puppet.next_request();
    puppet.answer(&request, &[notify(NotifyType::TS_UNACCEPTABLE, &[])]);
    let (request, payloads) = puppet.next_request();
    let answer = granted(&puppet, payloads, esp::plane::Spi(0x7000_0002));
    puppet.answer(&request, &answer);
    let (request, payloads) = puppet.next_request();
    assert!(matches!(payloads[..], [Payload::Delete(Delete::ChildSas { .. })]), "{payloads:?}");
    puppet.answer(&request, &[]);
    assert_eq!(
        (puppet.child_sas(), puppet.sending()),
        (1, vec![CHILD_SPI]),
        "the old one serves on"
    );
    puppet.wait();
    assert!(puppet.world.rekey(puppet.left, "net0"));
    puppet.world.run_for(Duration::from_millis(50));
    let (_, payloads) = puppet.next_request();
    assert!(!names_old(&payloads) && !asks_for_any(&payloads), "{payloads:?}");
}

#[test]
fn a_new_child_sa_for_which_there_is_never_time_is_refused() {
    let mut puppet = Puppet::called(&Site::default());
    assert!(puppet.world.rekey(puppet.left, "net0"));
    puppet.world.run_for(Duration::from_millis(50));
    let (request, _) = puppet.next_request();
    puppet.answer(&request, &[notify(NotifyType::FAILED_CP_REQUIRED, &[])]);
    for later in 0.. {
        let (header, octets) = loop {
            match puppet.sent().into_iter().next() {
                Some(first) => break first,
                None => puppet.world.run_for(Duration::from_millis(200)),
            }
        };
        if header.exchange == ExchangeType::IKE_SA_INIT {
            assert!(later > 1, "the peer has time to be ready");
            break;
        }
        let payloads = puppet.open(&header, &octets);
        assert!(!names_old(&payloads), "{payloads:?}");
        assert!(later < 10, "a new IKE SA follows");
        puppet.answer(&header, &[notify(NotifyType::TEMPORARY_FAILURE, &[])]);
    }
    assert_eq!((puppet.child_sas(), puppet.sending()), (1, vec![CHILD_SPI]), "it serves on");
}

#[test]
fn a_child_sa_that_the_peer_does_not_rekey_is_replaced_by_a_new_one() {
    let mut puppet = Puppet::called(&Site::default());
    let refusal = [notify(NotifyType::TS_UNACCEPTABLE, &[])];
    for (n, is_known) in [(2, false), (3, true)] {
        assert!(puppet.world.rekey(puppet.left, "net0"));
        puppet.world.run_for(Duration::from_millis(50));
        let (mut request, mut payloads) = puppet.next_request();
        if !is_known {
            assert!(names_old(&payloads), "{payloads:?}");
            puppet.answer(&request, &refusal);
            let (widened, payloads_of_it) = puppet.next_request();
            assert!(asks_for_any(&payloads_of_it), "{payloads_of_it:?}");
            puppet.answer(&widened, &refusal);
            (request, payloads) = puppet.next_request();
        }
        assert_eq!(request.exchange, ExchangeType::CREATE_CHILD_SA);
        assert!(!names_old(&payloads), "the peer is not asked again: {payloads:?}");
        let new = esp::plane::Spi(0x7000_0000 + n);
        let answer = granted(&puppet, payloads, new);
        puppet.answer(&request, &answer);
        let (request, _) = puppet.next_delete();
        puppet.answer(&request, &[]);
        assert_eq!((puppet.ike_sas(), puppet.child_sas(), puppet.sending()), (1, 1, vec![new]));
    }
    let left = puppet.left;
    let status = &puppet.world.status(left)[0].children[0];
    assert!(status.sa.as_ref().is_some_and(|sa| sa.rekeys == 2), "{status:?}");
    let [past] = &status.failures[..] else { panic!("{:?}", status.failures) };
    assert_eq!((past.failure.kind, past.overcome), (FailureKind::TsUnacceptable, true));
    let down = puppet.world.count_events(left, |e| matches!(e, EventKind::Closed { .. }));
    assert_eq!(down, 0, "the tunnel was never down");
}

#[test]
fn a_child_sa_that_the_peer_replaces_in_no_way_is_replaced_with_its_ike_sa() {
    for refusal in [NotifyType::TS_UNACCEPTABLE, NotifyType::NO_ADDITIONAL_SAS] {
        let mut puppet = Puppet::called(&Site::default());
        assert!(puppet.world.rekey(puppet.left, "net0"));
        puppet.world.run_for(Duration::from_millis(50));
        let (mut request, _) = puppet.next_request();
        assert_eq!(renewal(&mut puppet), None, "a rekey");
        for next in [Renewal::Widened, Renewal::NewChildSa] {
            puppet.answer(&request, &[notify(NotifyType::TS_UNACCEPTABLE, &[])]);
            assert_eq!(renewal(&mut puppet), Some(next));
            (request, _) = puppet.next_request();
        }
        puppet.answer(&request, &[notify(refusal, &[])]);
        assert_eq!(renewal(&mut puppet), Some(Renewal::NewIkeSa));
        let sent = puppet.sent();
        let [(header, _)] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!(header.exchange, ExchangeType::IKE_SA_INIT);
        assert_eq!((puppet.child_sas(), puppet.sending()), (1, vec![CHILD_SPI]), "it serves on");
    }
}

#[test]
fn a_rekey_of_the_peer_stands_that_meets_a_new_child_sa_in_place_of_a_refused_rekey() {
    let mut puppet = Puppet::called(&Site::default());
    assert!(puppet.world.rekey(puppet.left, "net0"));
    puppet.world.run_for(Duration::from_millis(50));
    for _ in ["a rekey", "one for any traffic"] {
        let (request, _) = puppet.next_request();
        puppet.answer(&request, &[notify(NotifyType::TS_UNACCEPTABLE, &[])]);
    }
    let (ours, asked) = puppet.next_request();
    let [theirs, made] = [0x7000_0002, 0x7000_0003].map(esp::plane::Spi);
    let mut payloads = puppet.child_payloads(theirs);
    let replaces = Notify {
        protocol: ProtocolId::ESP,
        spi: CHILD_SPI.0.to_be_bytes().to_vec(),
        kind: NotifyType::REKEY_SA,
        data: vec![],
    };
    payloads.insert(0, Payload::Notify(replaces));
    let answer = puppet.request(ExchangeType::CREATE_CHILD_SA, &payloads);
    assert!(answer.iter().any(|p| matches!(p, Payload::Sa(_))), "{answer:?}");
    let answer = granted(&puppet, asked, made);
    puppet.answer(&ours, &answer);
    // The one that this side has asked for is redundant, and the peer deletes the one that it has rekeyed.
    let (request, payloads) = puppet.next_request();
    assert!(matches!(payloads[..], [Payload::Delete(Delete::ChildSas { .. })]), "{payloads:?}");
    puppet.answer(&request, &[]);
    let spis = vec![CHILD_SPI.0];
    let delete = Payload::Delete(Delete::ChildSas { protocol: ProtocolId::ESP, spis });
    puppet.request(ExchangeType::INFORMATIONAL, &[delete]);
    assert_eq!((puppet.child_sas(), puppet.sending()), (1, vec![theirs]));
}

#[test]
fn an_ike_sa_comes_up_without_a_child_sa() {
    // RFC 6023, as responder.
    let mut puppet = Puppet::new(&Site::default(), calm());
    puppet.call();
    let mut payloads = puppet.auth_payloads();
    let of_child = [PayloadType::SA, PayloadType::TSI, PayloadType::TSR];
    payloads.retain(|p| !of_child.contains(&p.kind()));
    let answer = puppet.request(ExchangeType::IKE_AUTH, &payloads);
    assert!(answer.iter().any(|p| matches!(p, Payload::Auth { .. })), "{answer:?}");
    assert!(!answer.iter().any(|p| of_child.contains(&p.kind())), "{answer:?}");
    assert!(notified(&answer).iter().all(|kind| !kind.is_error()), "{answer:?}");
    puppet.wait();
    assert_eq!((puppet.ike_sas(), puppet.child_sas()), (1, 0), "it stays without one");
    let payloads = puppet.child_payloads(CHILD_SPI);
    puppet.request(ExchangeType::CREATE_CHILD_SA, &payloads);
    assert_eq!((puppet.child_sas(), puppet.sending()), (1, vec![CHILD_SPI]));
}

#[test]
fn deletes_of_what_is_not_there_are_answered_with_nothing() {
    let mut puppet = Puppet::calling(&Site::default());
    let delete = |protocol, spi| Payload::Delete(Delete::ChildSas { protocol, spis: vec![spi] });
    // RFC 7296 §2.25.1; and AH is not ours.
    for protocol in [ProtocolId::ESP, ProtocolId::AH] {
        let answer = puppet.request(ExchangeType::INFORMATIONAL, &[delete(protocol, 0x1234_5678)]);
        assert_eq!(answer, []);
    }
    assert_eq!(puppet.child_sas(), 1);
    let answer =
        puppet.request(ExchangeType::INFORMATIONAL, &[delete(ProtocolId::ESP, CHILD_SPI.0)]);
    assert!(
        matches!(answer.as_slice(), [Payload::Delete(Delete::ChildSas { spis, .. })] if spis.len() == 1)
    );
    assert_eq!((puppet.ike_sas(), puppet.child_sas()), (1, 0));
}

#[test]
fn a_rekey_of_what_is_not_there_is_told_by_its_spi() {
    let mut puppet = Puppet::calling(&Site::default());
    let spi = 0x0bad_cafe_u32.to_be_bytes().to_vec();
    let rekey = |kind| {
        let (spi, data) = (spi.clone(), vec![]);
        Payload::Notify(Notify { protocol: ProtocolId::ESP, spi, kind, data })
    };
    let mut payloads = vec![rekey(NotifyType::REKEY_SA)];
    payloads.extend(puppet.child_payloads(esp::plane::Spi(0x7000_0002)));
    let answer = puppet.request(ExchangeType::CREATE_CHILD_SA, &payloads);
    assert_eq!(answer, [rekey(NotifyType::CHILD_SA_NOT_FOUND)]);
}

#[test]
fn a_child_sa_that_the_peer_has_lost_is_made_anew() {
    let mut puppet = Puppet::called(&Site::default());
    assert!(puppet.world.rekey(puppet.left, "net0"));
    puppet.world.run_for(Duration::from_millis(50));
    let (request, payloads) = puppet.next_request();
    assert_eq!(notified(&payloads), [NotifyType::REKEY_SA]);
    let Some(Payload::Notify(rekey)) = payloads.first() else { panic!("REKEY_SA comes first") };
    let lost = Notify { kind: NotifyType::CHILD_SA_NOT_FOUND, ..rekey.clone() };
    puppet.answer(&request, &[Payload::Notify(lost)]);
    assert_eq!(puppet.child_sas(), 0, "silently");
    let (request, payloads) = puppet.next_request();
    assert_eq!(request.exchange, ExchangeType::CREATE_CHILD_SA);
    assert_eq!(notified(&payloads), []);
}

#[test]
fn a_peer_that_never_has_time_is_left_after_a_while() {
    for name in ["net0", Site::TUNNEL] {
        let mut puppet = Puppet::called(&Site::default());
        let begin = puppet.world.now();
        assert!(puppet.world.rekey(puppet.left, name));
        let mut times = Vec::new();
        loop {
            puppet.world.run_for(Duration::from_millis(50));
            let Some((request, octets)) = puppet.sent().pop() else { continue };
            if puppet.open(&request, &octets) == [Payload::Delete(Delete::IkeSa)] {
                break;
            }
            assert_eq!(request.exchange, ExchangeType::CREATE_CHILD_SA);
            times.push(puppet.world.now());
            puppet.answer(&request, &[notify(NotifyType::TEMPORARY_FAILURE, &[])]);
        }
        let pauses = times.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(pauses.clone().all(|p| p >= Duration::from_millis(500)), "{times:?}");
        let lasted = puppet.world.now() - begin;
        let minutes = |n: u64| Duration::from_secs(60 * n);
        assert!((minutes(2)..=minutes(15)).contains(&lasted), "{name}: {lasted:?}");
    }
}

#[test]
fn an_invalid_public_value_in_a_request_ends_the_ike_sa() {
    // RFC 6989 §2.5.
    let accept = vec![policy::Group::Curve25519];
    let pfs =
        policy::Pfs { offer: accept.clone(), accept, accept_none: false, additional: Vec::new() };
    let site = Site { pfs, ..Site::default() };
    let zero = Payload::KeyExchange { group: GroupId::from(Group::Curve25519), data: vec![0; 32] };
    for of_ike in [false, true] {
        let mut puppet = Puppet::calling(&site);
        let mut payloads = puppet.child_payloads(esp::plane::Spi(0x7000_0002));
        payloads[0] = match of_ike {
            true => Payload::Sa(offer_ike(&site.ike, &[9; 8])),
            false => Payload::Sa(offer_child(
                &site.esp,
                Offered::by(&site.pfs),
                esp::plane::Spi(0x7000_0002),
            )),
        };
        payloads.push(zero.clone());
        let answer = puppet.request(ExchangeType::CREATE_CHILD_SA, &payloads);
        assert_eq!(notified(&answer), [NotifyType::INVALID_SYNTAX], "{of_ike}");
        assert_eq!((puppet.ike_sas(), puppet.child_sas()), (0, 0));
    }
}

#[test]
fn the_last_request_is_answered_again_and_no_other_out_of_turn() {
    // RFC 7296 §2.1, §2.3.
    let mut puppet = Puppet::calling(&Site::default());
    let mut exchanged = Vec::new();
    for id in 2..5 {
        puppet.forget_sent();
        let header = puppet.header(ExchangeType::INFORMATIONAL, id, false);
        let request = puppet.seal(&header, &Content::of(&header, &[]));
        puppet.send(request.clone());
        exchanged.push((request, puppet.sent().remove(0).1));
    }
    let (last, answer) = exchanged.pop().expect("three of them");
    for _ in 0..2 {
        puppet.send(last.clone());
        let again: Vec<Vec<u8>> = puppet.sent().into_iter().map(|(_, octets)| octets).collect();
        assert_eq!(again, std::slice::from_ref(&answer), "the same, bit by bit");
    }
    for (older, _) in exchanged {
        puppet.send(older);
        assert!(puppet.sent().is_empty(), "its answer is forgotten");
    }
    for id in [6, 100, u32::MAX] {
        let header = puppet.header(ExchangeType::INFORMATIONAL, id, false);
        let request = puppet.seal(&header, &Content::of(&header, &[]));
        puppet.send(request);
        assert!(puppet.sent().is_empty(), "{id} is not its turn");
    }
    assert_eq!((puppet.ike_sas(), puppet.child_sas()), (1, 1));
}

#[test]
fn an_initiator_that_cannot_read_the_answer_of_ike_auth_says_so_next() {
    // RFC 7296 §2.21.2: without a Delete, and at no other time.
    let kinds = [
        NotifyType::AUTHENTICATION_FAILED,
        NotifyType::INVALID_SYNTAX,
        NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD,
    ];
    for kind in kinds {
        let told = [notify(kind, &[])];
        let mut puppet = Puppet::calling(&Site::default());
        assert_eq!(puppet.request(ExchangeType::INFORMATIONAL, &told), []);
        assert_eq!((puppet.ike_sas(), puppet.child_sas()), (0, 0), "{kind}");
        if kind != NotifyType::AUTHENTICATION_FAILED {
            let mut puppet = Puppet::calling(&Site::default());
            puppet.request(ExchangeType::INFORMATIONAL, &[]);
            assert_eq!(puppet.request(ExchangeType::INFORMATIONAL, &told), []);
            assert_eq!((puppet.ike_sas(), puppet.child_sas()), (1, 1), "{kind}");
        }
    }
}

#[test]
fn payloads_are_sent_in_the_order_of_the_rfc() {
    // RFC 7296 §2.5: as in the figures of §1.2; notifications and vendor IDs have no place of their own.
    let ordered = |payloads: &[Payload]| {
        let kinds = payloads.iter().map(Payload::kind);
        let placed = |k: &PayloadType| ![PayloadType::NOTIFY, PayloadType::VENDOR_ID].contains(k);
        kinds.filter(placed).collect::<Vec<_>>()
    };
    let (sa, ke, nonce) = (PayloadType::SA, PayloadType::KE, PayloadType::NONCE);
    let (tsi, tsr, auth) = (PayloadType::TSI, PayloadType::TSR, PayloadType::AUTH);
    let mut puppet = Puppet::new(&Site::default(), calm());
    puppet.world.connect(puppet.left, Site::TUNNEL);
    puppet.wait();
    let (header, octets) = puppet.sent().remove(0);
    let init = message::decode(&header, &octets).expect("payloads");
    assert_eq!(ordered(&init), [sa, ke, nonce]);

    let mut puppet = Puppet::new(&Site::default(), calm());
    puppet.pick_up();
    let (request, payloads) = puppet.next_request();
    let (idi, idr) = (PayloadType::IDI, PayloadType::IDR);
    assert_eq!(ordered(&payloads), [idi, idr, auth, sa, tsi, tsr]);
    let answer = puppet.auth_payloads();
    puppet.answer(&request, &answer);
    assert!(puppet.world.rekey(puppet.left, "net0"));
    puppet.world.run_for(Duration::from_millis(50));
    let (_, payloads) = puppet.next_request();
    assert_eq!(payloads[0].kind(), PayloadType::NOTIFY, "REKEY_SA comes first");
    assert_eq!(ordered(&payloads), [sa, nonce, tsi, tsr]);

    let mut puppet = Puppet::new(&Site::default(), calm());
    puppet.call();
    let payloads = puppet.auth_payloads();
    let answer = puppet.request(ExchangeType::IKE_AUTH, &payloads);
    assert_eq!(ordered(&answer), [idr, auth, sa, tsi, tsr]);
    let payloads = puppet.child_payloads(esp::plane::Spi(0x7000_0002));
    let answer = puppet.request(ExchangeType::CREATE_CHILD_SA, &payloads);
    assert_eq!(ordered(&answer), [sa, nonce, tsi, tsr]);
}

#[test]
fn one_request_at_a_time_whatever_window_the_peer_has() {
    // RFC 7296 §2.3.
    let mut puppet = Puppet::called(&Site { children: 3, ..Site::default() });
    let (request, _) = puppet.next_request();
    let larger = notify(NotifyType::SET_WINDOW_SIZE, &8u32.to_be_bytes());
    assert_eq!(puppet.request(ExchangeType::INFORMATIONAL, &[larger]), []);
    assert!(puppet.world.rekey(puppet.left, "net0"));
    assert!(puppet.world.rekey(puppet.left, Site::TUNNEL));
    puppet.wait();
    // Its own request is still open, and comes again; a request of the peer was answered meanwhile.
    let sent = puppet.sent();
    assert!(!sent.is_empty(), "it is sent again");
    for (header, _) in sent {
        assert_eq!((header.message_id, header.response), (request.message_id, false));
    }
}

/// The same message with a nonce of so many octets.
fn with_nonce_of(world: &mut World, from: HostId, to: HostId, sent: Parcel, len: usize) -> Parcel {
    let link::Content::Ike(octets) = &sent.content else { panic!("not IKE") };
    let header = Header::parse(octets).expect("a message");
    let in_the_clear = header.exchange == ExchangeType::IKE_SA_INIT;
    let mut payloads = match in_the_clear {
        true => message::decode(&header, octets).expect("payloads"),
        false => world.overhear(to, octets).expect("it is for an IKE SA of the receiver").1,
    };
    for payload in &mut payloads {
        if let Payload::Nonce(nonce) = payload {
            nonce.truncate(len);
        }
    }
    let changed = match in_the_clear {
        true => message::encode(&header, &payloads),
        false => {
            let content = Content::of(&header, &payloads);
            let datagrams = world.forge(from, &header, &content, 60_000);
            datagrams.expect("it is of an IKE SA of the sender").remove(0)
        }
    };
    Parcel { content: link::Content::Ike(changed), ..sent }
}

#[test]
fn a_nonce_shorter_than_half_the_key_of_the_prf_is_refused() {
    // RFC 7296 §2.10: 32 octets with HMAC-SHA2-512.
    let sha512 = IkeProposal { prf: vec![Prf::HmacSha2_512], ..ike_offer(&[Group::Curve25519]) };
    let site = Site { ike: vec![sha512], ..Site::default() };
    for rekeyed in [None, Some("net0"), Some(Site::TUNNEL)] {
        for response in [false, true] {
            for len in [31, 32] {
                let (mut world, left, right) = World::of_site(1, &site, &calm());
                if rekeyed.is_some() {
                    world.connect(left, Site::TUNNEL);
                    world.run_for(SOON);
                }
                let (from, to) = if response { (right, left) } else { (left, right) };
                let exchange = rekeyed.map_or(Exchange::SaInit, |_| Exchange::CreateChild);
                let gate =
                    world.hold(from, move |l| l.exchange == exchange && l.response == response);
                match rekeyed {
                    None => world.connect(left, Site::TUNNEL),
                    Some(name) => assert!(world.rekey(left, name)),
                }
                world.run_for(Duration::from_millis(50));
                let made = |world: &World| {
                    world.count_events(to, |e| {
                        matches!(e, EventKind::Established { .. } | EventKind::Rekeyed { .. })
                    })
                };
                let before = made(&world);
                let sent = world.take_first(gate).expect("the message is under way");
                let changed = with_nonce_of(&mut world, from, to, sent, len);
                world.deliver(from, changed);
                world.run_for(Duration::from_millis(300));
                let case = format!("{rekeyed:?}, response: {response}, {len} octets");
                assert_eq!(made(&world) > before, len == 32, "{case}");
                let discards = world.host(to).engine.discards();
                let discarded = rekeyed.is_none() && len == 31;
                assert_eq!(discards.contains_key("short_nonce"), discarded, "{case}");
            }
        }
    }
}

/// How the gateway renews its Child SA.
fn renewal(puppet: &mut Puppet) -> Option<Renewal> {
    puppet.world.status(puppet.left)[0].children[0].renewal
}

/// The gateway wants a key exchange for each Child SA, which the first one does not have.
fn with_pfs() -> Site {
    let (offer, accept) = (vec![Group::Ecp256], vec![]);
    let pfs = Pfs { offer, accept, accept_none: true, additional: Vec::new() };
    Site { pfs, ..Site::default() }
}

/// The gateway asks for a rekey, and the puppet wants no key exchange.
fn refuse_key_exchange(puppet: &mut Puppet) {
    assert!(puppet.world.rekey(puppet.left, "net0"));
    puppet.world.run_for(Duration::from_millis(50));
    let (request, _) = puppet.next_request();
    puppet.answer(&request, &[notify(NotifyType::NO_PROPOSAL_CHOSEN, &[])]);
}

#[test]
fn a_child_sa_without_key_exchange_is_replaced_with_its_ike_sa_if_the_peer_wants_none() {
    // Either side may have begun the IKE SA.
    for mut puppet in [Puppet::called(&with_pfs()), Puppet::calling(&with_pfs())] {
        assert_eq!(renewal(&mut puppet), None);
        refuse_key_exchange(&mut puppet);
        assert_eq!(renewal(&mut puppet), Some(Renewal::NewIkeSa));
        let (header, _) = puppet.sent().remove(0);
        assert_eq!(header.exchange, ExchangeType::IKE_SA_INIT);
        assert_eq!((puppet.child_sas(), puppet.sending()), (1, vec![CHILD_SPI]), "it serves on");
    }
}

#[test]
fn a_side_that_only_answers_begins_no_ike_sa_after_a_refusal() {
    let site = with_pfs();
    let mut policy = Policy::clone(&site.policy(Side::Left));
    Arc::make_mut(&mut policy.tunnels[0]).role = Role::Responder;
    let mut puppet = Puppet::with_policy(&site, Arc::new(policy), calm());
    puppet.call();
    let payloads = puppet.auth_payloads();
    puppet.request(ExchangeType::IKE_AUTH, &payloads);
    refuse_key_exchange(&mut puppet);
    assert!(puppet.sent().is_empty());
    assert!(matches!(renewal(&mut puppet), Some(Renewal::Again { .. })));
    assert_eq!((puppet.child_sas(), puppet.sending()), (1, vec![CHILD_SPI]), "it serves on");
}

#[test]
fn a_peer_that_has_begun_is_not_pressed_to_take_a_new_ike_sa() {
    // Without an answer, an attempt ends in less than a minute.
    for (mut puppet, again) in
        [(Puppet::called(&with_pfs()), true), (Puppet::calling(&with_pfs()), false)]
    {
        refuse_key_exchange(&mut puppet);
        puppet.world.run_for(Duration::from_secs(120));
        let begun: BTreeSet<_> = puppet
            .sent()
            .into_iter()
            .filter(|(header, _)| header.exchange == ExchangeType::IKE_SA_INIT)
            .map(|(header, _)| header.initiator_spi)
            .collect();
        assert_eq!(begun.len() > 1, again, "{begun:?}");
        assert_eq!((puppet.child_sas(), puppet.sending()), (1, vec![CHILD_SPI]), "it serves on");
    }
}

/// The first Child SA comes up without a key exchange of its own, and the gateway offers none for the next ones.
#[test]
fn a_child_sa_is_replaced_with_its_ike_sa_if_the_peer_demands_a_key_exchange_for_a_rekey() {
    let group = 19u16.to_be_bytes();
    let demands: [(NotifyType, &[u8], _); 2] = [
        (NotifyType::NO_PROPOSAL_CHOSEN, &[], None),
        (NotifyType::INVALID_KE_PAYLOAD, &group, Some("ECP-256")),
    ];
    for (kind, data, wanted) in demands {
        for mut puppet in [Puppet::called(&Site::default()), Puppet::calling(&Site::default())] {
            assert!(puppet.world.rekey(puppet.left, "net0"));
            puppet.world.run_for(Duration::from_millis(50));
            let (request, _) = puppet.next_request();
            puppet.answer(&request, &[notify(kind, data)]);
            assert_eq!(renewal(&mut puppet), Some(Renewal::NewIkeSa), "{kind}");
            let (header, _) = puppet.sent().remove(0);
            assert_eq!(header.exchange, ExchangeType::IKE_SA_INIT);
            assert_eq!(
                (puppet.child_sas(), puppet.sending()),
                (1, vec![CHILD_SPI]),
                "it serves on"
            );
            let failures = &puppet.world.status(puppet.left)[0].children[0].failures;
            let [past] = &failures[..] else { panic!("{failures:?}") };
            let Facts::Offers(offers) = &*past.failure.facts else { panic!("{past:?}") };
            assert!(offers.renewal, "{offers:?}");
            assert_eq!(offers.wanted_group.as_deref(), wanted);
        }
    }
}
