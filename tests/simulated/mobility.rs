//! Cases of RFC 4555 that never arise between two gateways of this kind.

use crate::calm;
use crate::puppet::{Puppet, notified, notify};
use ike::wire::payload::{Delete, Payload};
use ike::wire::protected::Content;
use ike::wire::registry::{ExchangeType, NotifyType};
use sim::Site;
use std::net::IpAddr;

/// The left gateway's peer in a tunnel whose sides may move: MOBIKE_SUPPORTED with octets that mean nothing.
fn mobile(site: &Site) -> Puppet {
    let mut puppet = Puppet::new(site, calm());
    // Hashes that fit nothing: there is a NAT, and both can deal with it.
    let detection = [NotifyType::NAT_DETECTION_SOURCE_IP, NotifyType::NAT_DETECTION_DESTINATION_IP];
    puppet.introduction = detection.map(|kind| notify(kind, &[1; 20])).to_vec();
    puppet.call();
    let mut payloads = puppet.auth_payloads();
    payloads.push(notify(NotifyType::MOBIKE_SUPPORTED, &[1, 2, 3]));
    let answer = puppet.request(ExchangeType::IKE_AUTH, &payloads);
    assert!(answer.contains(&notify(NotifyType::MOBIKE_SUPPORTED, &[])), "{answer:?}");
    puppet
}

#[test]
fn a_prohibition_of_nats_is_held_against_the_packet() {
    // RFC 4555 §3.9, §4.2.6.
    let mut puppet = mobile(&Site::default());
    let octets = |address: IpAddr| match address {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    };
    let claim = |port: u16| {
        let (from, to) = (octets(puppet.site.right), octets(puppet.site.left));
        [from, to, port.to_be_bytes().to_vec(), 500u16.to_be_bytes().to_vec()].concat()
    };
    let (right, wrong) = (claim(500), claim(501));
    let cookie = notify(NotifyType::COOKIE2, &[7; 16]);
    for (claim, expected) in [
        (right, vec![NotifyType::COOKIE2]),
        (wrong, vec![NotifyType::COOKIE2, NotifyType::UNEXPECTED_NAT_DETECTED]),
    ] {
        let request = [cookie.clone(), notify(NotifyType::NO_NATS_ALLOWED, &claim)];
        let answer = puppet.request(ExchangeType::INFORMATIONAL, &request);
        assert_eq!(notified(&answer), expected);
        assert_eq!(answer[0], cookie, "RFC 4555 §3.7: as it is");
    }
    assert_eq!((puppet.ike_sas(), puppet.child_sas()), (1, 1));
}

#[test]
fn a_cookie_that_comes_back_otherwise_closes_the_ike_sa() {
    // RFC 4555 §3.7: the check that follows an update from an address that is new.
    for tampered in [false, true] {
        let mut puppet = mobile(&Site::default());
        puppet.forget_sent();
        puppet.site.right = IpAddr::from([192, 0, 2, 77]);
        let header = puppet.header(ExchangeType::INFORMATIONAL, 2, false);
        let update = [notify(NotifyType::UPDATE_SA_ADDRESSES, &[])];
        let request = puppet.seal(&header, &Content::of(&header, &update));
        puppet.send(request);
        let sent = puppet.sent();
        let checks = sent.iter().find(|(h, _)| !h.response).expect("it is checked");
        let asked = puppet.open(&checks.0, &checks.1);
        let cookie = asked.iter().find_map(|p| match p {
            Payload::Notify(n) if n.kind == NotifyType::COOKIE2 => Some(n.data.clone()),
            _ => None,
        });
        let mut cookie = cookie.expect("with a cookie");
        assert!((8..=64).contains(&cookie.len()));
        cookie[0] ^= u8::from(tampered);
        let header = checks.0;
        puppet.answer(&header, &[notify(NotifyType::COOKIE2, &cookie)]);
        let next = puppet.sent();
        if tampered {
            let (header, octets) = next.first().expect("it is told");
            assert_eq!(puppet.open(header, octets), [Payload::Delete(Delete::IkeSa)]);
        } else {
            assert!(next.is_empty(), "{next:?}");
            assert_eq!((puppet.ike_sas(), puppet.child_sas()), (1, 1));
        }
    }
}
