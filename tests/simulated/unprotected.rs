//! Messages without protection, or before there is a proof: the cases of RFC 7296 that only a puppet shows.

use crate::calm;
use crate::puppet::{CHILD_SPI, Puppet, notified, notify};
use ike::failure::FailureKind;
use ike::wire::message;
use ike::wire::payload::{Delete, Payload};
use ike::wire::protected::Content;
use ike::wire::registry::{ExchangeType, GroupId, NotifyType};
use ike::{Config, Datagram, Encap};
use policy::Group;
use sim::Site;
use std::net::SocketAddr;
use std::time::Duration;

#[test]
fn a_cookie_comes_back_first_and_all_else_unchanged() {
    for encap in [Encap::Auto, Encap::Always] {
        let mut puppet = Puppet::new(&Site::default(), Config { encap, ..calm() });
        puppet.world.connect(puppet.left, Site::TUNNEL);
        puppet.world.run_for(Duration::from_millis(50));
        let (header, first) = puppet.sent().remove(0);
        let cookie = notify(NotifyType::COOKIE, &[9; 64]);
        puppet.spis.0 = header.initiator_spi;
        puppet.initiator = false;
        let answer = puppet.header(ExchangeType::IKE_SA_INIT, 0, true);
        puppet.send(message::encode(&answer, std::slice::from_ref(&cookie)));
        let (again, second) = puppet.sent().remove(0);
        assert_eq!((again.initiator_spi, again.message_id), (header.initiator_spi, 0));
        let mut expected = vec![cookie];
        expected.extend(message::decode(&header, &first).expect("payloads"));
        assert_eq!(message::decode(&again, &second), Ok(expected), "{encap:?}");
    }
}

#[test]
fn unprotected_messages_change_nothing() {
    let mut puppet = Puppet::called(&Site::default());
    let said = [
        notify(NotifyType::INVALID_IKE_SPI, &[]),
        notify(NotifyType::INVALID_SPI, &[0, 0, 0, 1]),
        notify(NotifyType::INVALID_SYNTAX, &[]),
        notify(NotifyType::AUTHENTICATION_FAILED, &[]),
        notify(NotifyType::INVALID_MAJOR_VERSION, &[]),
        Payload::Delete(Delete::IkeSa),
    ];
    let exchanges = [
        ExchangeType::INFORMATIONAL,
        ExchangeType::CREATE_CHILD_SA,
        ExchangeType::IKE_AUTH,
        ExchangeType::IKE_SA_INIT,
    ];
    // With and without a request of the gateway under way.
    for asks in [false, true] {
        if asks {
            assert!(puppet.world.rekey(puppet.left, "net0"));
            puppet.world.run_for(Duration::from_millis(50));
            assert_eq!(puppet.sent().len(), 1);
        }
        for exchange in exchanges {
            for (response, id) in [(false, 0), (true, 2), (true, 0)] {
                let header = puppet.header(exchange, id, response);
                puppet.send(message::encode(&header, &said));
                assert!(puppet.sent().is_empty(), "{exchange} {response} {id}");
                assert_eq!((puppet.ike_sas(), puppet.child_sas()), (1, 1));
            }
        }
    }
}

#[test]
fn an_invalid_public_value_makes_no_ike_sa() {
    // RFC 6989 §2.5.
    for data in [vec![0; 32], vec![1; 31], vec![]] {
        let mut puppet = Puppet::new(&Site::default(), calm());
        puppet.spis.0.0 = 7;
        let mut payloads = puppet.init_payloads();
        payloads[1] =
            Payload::KeyExchange { group: GroupId::from(Group::Curve25519), data: data.clone() };
        let header = puppet.header(ExchangeType::IKE_SA_INIT, 0, false);
        puppet.send(message::encode(&header, &payloads));
        assert!(puppet.sent().is_empty(), "{data:?}");
        assert_eq!(puppet.world.host(puppet.left).engine.inventory().half_open, 0);
    }
}

#[test]
fn invalid_public_values_cost_no_more_keys_than_half_open_ike_sas() {
    let config = Config { cookie_threshold: 2, half_open_limit: 3, ..calm() };
    let mut puppet = Puppet::new(&Site::default(), config);
    let mut send = |spi, group, data| {
        puppet.spis.0.0 = spi;
        let mut payloads = puppet.init_payloads();
        payloads[1] = Payload::KeyExchange { group, data };
        let header = puppet.header(ExchangeType::IKE_SA_INIT, 0, false);
        puppet.send(message::encode(&header, &payloads));
        let sent = puppet.sent();
        puppet.world.run_for(Duration::from_secs(10));
        sent.first().map(|(h, octets)| notified(&message::decode(h, octets).expect("payloads")))
    };
    // Only the key exchange itself shows that nothing comes of it (RFC 8031 §5).
    let outside = || vec![0; 32];
    assert_eq!(send(1, GroupId::from(Group::Curve25519), outside()), None);
    assert_eq!(send(2, GroupId::from(Group::Curve25519), outside()), None);
    let asked = send(3, GroupId::from(Group::Curve25519), outside());
    assert_eq!(asked, Some(vec![NotifyType::COOKIE]), "two are as many as may come without");
    // The first counts no more.
    assert_eq!(send(4, GroupId::from(Group::Curve25519), outside()), None);
}

#[test]
fn a_higher_major_version_is_told_the_highest_one_that_is_known() {
    // RFC 7296 §2.5.
    let mut puppet = Puppet::calling(&Site::default());
    puppet.forget_sent();
    for established in [true, false] {
        if !established {
            (puppet.spis.0.0, puppet.spis.1.0) = (77, 88);
        }
        for response in [false, true] {
            let header = puppet.header(ExchangeType::INFORMATIONAL, 2, response);
            let mut octets = message::encode(&header, &[]);
            octets[17] = 0x31;
            puppet.send(octets);
            let sent = puppet.sent();
            if response {
                assert!(sent.is_empty(), "an answer is not answered");
                continue;
            }
            let (answer, octets) = &sent[0];
            assert_eq!((answer.initiator_spi, answer.responder_spi), puppet.spis);
            assert_eq!((answer.message_id, answer.response, octets[17]), (2, true, 0x20));
            let told = message::decode(answer, octets).expect("in the clear");
            assert_eq!(told, [notify(NotifyType::INVALID_MAJOR_VERSION, &[])]);
        }
        assert_eq!((puppet.ike_sas(), puppet.child_sas()), (1, 1));
    }
}

/// The first message of IKEv1 in Main or Aggressive Mode, without the attributes that its SA payload would have.
fn ikev1(exchange: u8) -> Vec<u8> {
    let mut octets = vec![0; 28 + 8];
    octets[..8].copy_from_slice(&[7; 8]);
    octets[16..19].copy_from_slice(&[1, 0x10, exchange]);
    octets[27] = 36;
    octets[31] = 8;
    octets
}

#[test]
fn a_peer_that_begins_with_ikev1_is_named() {
    for exchange in [2, 4] {
        let mut puppet = Puppet::new(&Site::default(), calm());
        for _ in 0..3 {
            puppet.send(ikev1(exchange));
        }
        assert!(puppet.sent().is_empty(), "IKEv2 has no answer that the peer would understand");
        let status = puppet.world.status(puppet.left).remove(0);
        let [turned_away] = &*status.turned_away else { panic!("{:?}", status.turned_away) };
        assert_eq!((turned_away.failure.kind, turned_away.times), (FailureKind::OtherVersion, 1));
        let text = turned_away.failure.to_string();
        assert!(text.ends_with("speaks IKEv1; set it to IKEv2"), "{text}");
        let engine = &puppet.world.host(puppet.left).engine;
        assert_eq!(engine.discards().get("unsupported_version"), Some(&3));
    }
}

#[test]
fn other_datagrams_of_a_lower_version_are_no_ikev1() {
    let mut puppet = Puppet::new(&Site::default(), calm());
    let change = |at: usize, to: u8| {
        let mut octets = ikev1(2);
        octets[at] = to;
        octets
    };
    // Another version, payload, exchange, a responder's cookie, another length.
    for octets in [change(17, 0), change(16, 2), change(18, 34), change(8, 1), change(27, 35)] {
        puppet.send(octets);
    }
    let status = puppet.world.status(puppet.left).remove(0);
    assert_eq!(status.turned_away, []);
    let engine = &puppet.world.host(puppet.left).engine;
    assert_eq!(engine.discards().get("malformed_header"), Some(&5));
}

/// The peer answers each IKE_SA_INIT that it has got with this payload. Returns the number of requests.
fn answer_inits(puppet: &mut Puppet, answer: &Payload) -> usize {
    let requests = puppet.sent();
    for (request, _) in &requests {
        puppet.spis.0 = request.initiator_spi;
        puppet.initiator = false;
        let header = puppet.header(ExchangeType::IKE_SA_INIT, 0, true);
        puppet.send(message::encode(&header, std::slice::from_ref(answer)));
    }
    requests.len()
}

#[test]
fn an_answer_that_leads_nowhere_is_told() {
    let answers = [
        (notify(NotifyType::COOKIE, &[9; 64]), "COOKIE"),
        (notify(NotifyType::REDIRECT, &[1, 4, 192, 0, 2, 9]), "REDIRECT"),
        (notify(NotifyType::INVALID_KE_PAYLOAD, &31_u16.to_be_bytes()), "INVALID_KE_PAYLOAD"),
    ];
    for (answer, name) in answers {
        let mut puppet = Puppet::new(&Site::default(), calm());
        puppet.world.connect(puppet.left, Site::TUNNEL);
        let failed = loop {
            puppet.world.run_for(Duration::from_millis(500));
            answer_inits(&mut puppet, &answer);
            let status = puppet.world.status(puppet.left).remove(0);
            if let Some((failed, _)) = status.last_failure {
                break failed;
            }
        };
        assert_eq!(failed.kind, FailureKind::NoAnswer, "{name}");
        let text = failed.to_string();
        assert!(text.contains(&format!("with {name}, which led nowhere")), "{text}");
    }
}

#[test]
fn a_cookie_and_then_silence_is_silence() {
    let mut puppet = Puppet::new(&Site::default(), calm());
    puppet.world.connect(puppet.left, Site::TUNNEL);
    puppet.world.run_for(Duration::from_millis(50));
    assert_eq!(answer_inits(&mut puppet, &notify(NotifyType::COOKIE, &[9; 64])), 1);
    let failed = loop {
        puppet.world.run_for(Duration::from_millis(500));
        if let Some((failed, _)) = puppet.world.status(puppet.left).remove(0).last_failure {
            break failed;
        }
    };
    assert_eq!(failed.kind, FailureKind::NoAnswer);
    assert!(failed.to_string().contains("no answer"), "{failed}");
    assert!(!failed.to_string().contains("COOKIE"), "{failed}");
}

#[test]
fn a_peer_that_knows_no_ikev2_is_named() {
    let mut puppet = Puppet::new(&Site::default(), calm());
    puppet.world.connect(puppet.left, Site::TUNNEL);
    puppet.world.run_for(Duration::from_millis(50));
    assert_eq!(answer_inits(&mut puppet, &notify(NotifyType::INVALID_MAJOR_VERSION, &[])), 1);
    puppet.world.run_for(crate::SETTLED);
    let kind = crate::failure(&puppet.world, puppet.left, Site::TUNNEL);
    assert_eq!(kind, Some(FailureKind::OtherVersion));
}

#[test]
fn minor_versions_and_unused_flags_are_ignored() {
    // RFC 7296 §3.1: minor version 15, the V bit, and the five bits without a name.
    let mut puppet = Puppet::new(&Site::default(), calm());
    puppet.call_with(|request| {
        request[17] = 0x2f;
        request[19] |= 0xd7;
    });
    let payloads = puppet.auth_payloads();
    let answer = puppet.request(ExchangeType::IKE_AUTH, &payloads);
    assert!(answer.iter().any(|p| matches!(p, Payload::Sa(_))), "{answer:?}");
}

#[test]
fn nothing_but_ike_auth_follows_ike_sa_init() {
    // RFC 7296 §1.
    let mut puppet = Puppet::new(&Site::default(), calm());
    puppet.call();
    for exchange in [ExchangeType::CREATE_CHILD_SA, ExchangeType::INFORMATIONAL] {
        for id in [0, 1, 2] {
            let header = puppet.header(exchange, id, false);
            let content = Content::of(&header, &puppet.child_payloads(CHILD_SPI));
            let request = puppet.seal(&header, &content);
            puppet.send(request);
            assert!(puppet.sent().is_empty(), "{exchange} {id}");
        }
    }
    let payloads = puppet.auth_payloads();
    puppet.request(ExchangeType::IKE_AUTH, &payloads);
    assert_eq!((puppet.ike_sas(), puppet.child_sas()), (1, 1));
}

#[test]
fn messages_for_an_unknown_ike_sa_get_no_answer() {
    // RFC 7296 §1.5, §2.21.4: an answer must not, a request need not.
    let mut puppet = Puppet::new(&Site::default(), calm());
    (puppet.spis.0.0, puppet.spis.1.0) = (77, 88);
    let exchanges = [
        ExchangeType::IKE_SA_INIT,
        ExchangeType::IKE_AUTH,
        ExchangeType::CREATE_CHILD_SA,
        ExchangeType::INFORMATIONAL,
    ];
    for exchange in exchanges {
        for response in [false, true] {
            let header = puppet.header(exchange, 1, response);
            let invalid = notify(NotifyType::INVALID_SPI, &[0, 0, 1, 0]);
            puppet.send(message::encode(&header, &[invalid]));
            assert!(puppet.sent().is_empty(), "{exchange} {response}");
        }
    }
}

#[test]
fn strangers_are_refused_at_a_limited_rate() {
    // RFC 7296 §2.4, §2.21.4.
    let mut puppet = Puppet::new(&Site::default(), calm());
    (puppet.spis.0.0, puppet.spis.1.0) = (77, 88);
    let header = puppet.header(ExchangeType::INFORMATIONAL, 0, false);
    let mut octets = message::encode(&header, &[]);
    octets[17] = 0x31;
    let (left, site) = (puppet.left, puppet.site.clone());
    for _ in 0..2 {
        puppet.world.run_for(Duration::from_secs(1));
        puppet.world.command(left, "a flood", |e, now| {
            let [local, remote] = [site.left, site.right].map(|a| SocketAddr::new(a, 500));
            for _ in 0..1000 {
                e.handle_datagram(now, Datagram { local, remote, octets: &octets });
            }
        });
        assert_eq!(puppet.sent().len(), 100);
    }
}
