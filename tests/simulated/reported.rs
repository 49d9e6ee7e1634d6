//! Messages at which other implementations crashed, hung or refused, each with the right answer.

use crate::calm;
use crate::certificates::{comes_up, is_bad, side, site, wallet};
use crate::der::{parts, tlv};
use crate::puppet::{CHILD_SPI, Puppet, notified, notify};
use esp::plane::Spi;
use ike::Config;
use ike::wire::payload::{Delete, Payload};
use ike::wire::protected::Content;
use ike::wire::registry::{ExchangeType, NotifyType, PayloadType, ProtocolId};
use policy::{Identity, KeyKind};
use rcgen::{DistinguishedName, DnType, DnValue, KeyPair, SerialNumber, SigningKey};
use sim::Site;
use sim::certificates::{Authority, Wallet, key, of_side};

/// Bodies of payloads whose lengths, counts or types disagree.
fn malformed() -> Vec<(&'static str, Payload)> {
    let raw = |kind: PayloadType, data: &[u8]| Payload::Other { kind, data: data.to_vec() };
    let (ts, n, d) = (PayloadType::TSI, PayloadType::NOTIFY, PayloadType::DELETE);
    let range = [10, 1, 0, 0, 10, 1, 0, 255];
    let whole = [&[7, 0, 0, 16, 0, 0, 255, 255][..], &range].concat();
    let twice = [&[2, 0, 0, 0][..], &whole].concat();
    let of_ipv6 = [&[1, 0, 0, 0, 8, 0, 0, 16, 0, 0, 255, 255][..], &range].concat();
    vec![
        ("no traffic selector", raw(ts, &[0, 0, 0, 0])),
        ("fewer selectors than counted", raw(ts, &twice)),
        ("a selector of no octets", raw(ts, &[1, 0, 0, 0, 7, 0, 0, 0])),
        ("a selector without addresses", raw(ts, &[1, 0, 0, 0, 7, 0, 0, 8, 0, 0, 255, 255])),
        ("a selector of IPv6 with addresses of IPv4", raw(ts, &of_ipv6)),
        ("no notification", raw(n, &[])),
        ("an SPI beyond the notification", raw(n, &[3, 255, 0x40, 0x09, 1, 2, 3, 4])),
        ("no Delete", raw(d, &[])),
        ("fewer SPIs than counted", raw(d, &[3, 4, 0, 2, 1, 2, 3, 4])),
        ("very many SPIs of no octets", raw(d, &[3, 0, 0xff, 0xff])),
        ("an SPI of 255 octets", raw(d, &[3, 255, 0, 1, 1, 2, 3, 4])),
        ("an IKE SA with an SPI", raw(d, &[1, 8, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8])),
        ("a key exchange without a group", raw(PayloadType::KE, &[])),
        ("a nonce of one octet", raw(PayloadType::NONCE, &[1])),
        ("no proposal", raw(PayloadType::SA, &[])),
        ("a proposal of no octets", raw(PayloadType::SA, &[0, 0, 0, 0, 1, 3, 4, 1])),
    ]
}

/// The gateway takes an IKE SA and a Child SA as if nothing had happened.
fn still_serves(puppet: &mut Puppet, what: &str) {
    puppet.call_anew();
    let payloads = puppet.auth_payloads_with(Spi(0x7000_0009));
    let answer = puppet.request(ExchangeType::IKE_AUTH, &payloads);
    assert!(answer.iter().any(|p| matches!(p, Payload::Sa(_))), "{what}: {answer:?}");
}

#[test]
fn a_malformed_payload_of_a_peer_ends_its_ike_sa_and_nothing_else() {
    for exchange in [ExchangeType::INFORMATIONAL, ExchangeType::CREATE_CHILD_SA] {
        for (what, payload) in malformed() {
            let mut puppet = Puppet::calling(&Site::default());
            let mut payloads = match exchange {
                ExchangeType::CREATE_CHILD_SA => puppet.child_payloads(Spi(0x7000_0002)),
                _ => vec![],
            };
            payloads.retain(|other| other.kind() != payload.kind());
            payloads.push(payload);
            // RFC 7296 §2.21.3
            let answer = puppet.request(exchange, &payloads);
            assert_eq!(notified(&answer), [NotifyType::INVALID_SYNTAX], "{exchange}: {what}");
            assert_eq!((puppet.ike_sas(), puppet.child_sas()), (0, 0), "{exchange}: {what}");
            still_serves(&mut puppet, what);
        }
    }
}

#[test]
fn a_malformed_payload_of_a_stranger_makes_no_ike_sa() {
    let raw = |kind: PayloadType, data: &[u8]| Payload::Other { kind, data: data.to_vec() };
    let of_proof = [
        ("no identity", raw(PayloadType::IDI, &[])),
        ("an IPv4 address of no octets", raw(PayloadType::IDI, &[1, 0, 0, 0])),
        ("an identity of an unknown type", raw(PayloadType::IDI, &[99, 0, 0, 0, 1])),
        ("a certificate without an encoding", raw(PayloadType::CERT, &[])),
        ("a proof without a method", raw(PayloadType::AUTH, &[])),
    ];
    for (what, payload) in malformed().into_iter().chain(of_proof) {
        let mut puppet = Puppet::new(&Site::default(), calm());
        puppet.call();
        let mut payloads = puppet.auth_payloads();
        payloads.retain(|other| other.kind() != payload.kind());
        payloads.push(payload);
        let answer = puppet.request(ExchangeType::IKE_AUTH, &payloads);
        let refused = [NotifyType::INVALID_SYNTAX, NotifyType::AUTHENTICATION_FAILED];
        let refused = refused.iter().any(|kind| notified(&answer) == [*kind]);
        assert!(refused, "{what}: {answer:?}");
        assert_eq!((puppet.ike_sas(), puppet.child_sas()), (0, 0), "{what}");
        still_serves(&mut puppet, what);
    }
}

#[test]
fn a_rekey_of_an_spi_that_no_child_sa_can_have_is_refused() {
    for spi in [&[][..], &[1, 2], &[1, 2, 3, 4, 5, 6, 7, 8]] {
        for protocol in [ProtocolId::ESP, ProtocolId::IKE, ProtocolId(9)] {
            let mut puppet = Puppet::calling(&Site::default());
            let mut payloads = puppet.child_payloads(Spi(0x7000_0002));
            let length = u8::try_from(spi.len()).expect("short");
            let data = [&[protocol.0, length, 0x40, 0x09][..], spi].concat();
            payloads.insert(0, Payload::Other { kind: PayloadType::NOTIFY, data });
            let answer = puppet.request(ExchangeType::CREATE_CHILD_SA, &payloads);
            let refused = [NotifyType::INVALID_SYNTAX, NotifyType::CHILD_SA_NOT_FOUND];
            let refused = refused.iter().any(|kind| notified(&answer) == [*kind]);
            assert!(refused, "{protocol} {spi:?}: {answer:?}");
            assert!(puppet.child_sas() <= 1);
            still_serves(&mut puppet, "REKEY_SA");
        }
    }
}

#[test]
fn a_peer_with_many_vendor_ids_gets_its_tunnel() {
    let mut puppet = Puppet::new(&Site::default(), calm());
    puppet.introduction =
        (0..24).map(|n| Payload::VendorId(vec![n; usize::from(n) * 11])).collect();
    puppet.call();
    let payloads = puppet.auth_payloads();
    let answer = puppet.request(ExchangeType::IKE_AUTH, &payloads);
    assert!(answer.iter().any(|p| matches!(p, Payload::Sa(_))), "{answer:?}");
    let mut puppet = Puppet::new(&Site::default(), calm());
    puppet.introduction =
        (0..24).map(|n| Payload::VendorId(vec![n; usize::from(n) * 11])).collect();
    puppet.pick_up();
    let (request, _) = puppet.next_request();
    let payloads = puppet.auth_payloads();
    puppet.answer(&request, &payloads);
    assert_eq!(puppet.child_sas(), 1);
}

#[test]
fn a_request_may_come_in_very_many_fragments() {
    let mut puppet = Puppet::new(&Site::default(), Config::default());
    puppet.introduction = vec![notify(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, &[])];
    puppet.call();
    let mut payloads = puppet.auth_payloads();
    payloads.push(Payload::VendorId(vec![7; 4000]));
    let header = puppet.header(ExchangeType::IKE_AUTH, 1, false);
    let mut fragments = puppet.seal_in_fragments(&header, &Content::of(&header, &payloads), 42);
    assert_eq!(fragments.len(), 42);
    puppet.forget_sent();
    // The last one first; and all but one of them twice.
    fragments.reverse();
    for fragment in fragments.iter().chain(&fragments[1..]) {
        puppet.send(fragment.clone());
    }
    let (answer, octets) = puppet.sent().remove(0);
    assert!(answer.response && answer.message_id == 1);
    let payloads = puppet.open(&answer, &octets);
    assert!(payloads.iter().any(|p| matches!(p, Payload::Sa(_))), "{payloads:?}");
    assert_eq!((puppet.ike_sas(), puppet.child_sas()), (1, 1));
}

#[test]
fn every_form_of_delete_is_answered_once() {
    let esp = |spis: &[u32]| {
        Payload::Delete(Delete::ChildSas { protocol: ProtocolId::ESP, spis: spis.to_vec() })
    };
    const SECOND: u32 = 0x7000_0002;
    let first = CHILD_SPI.0;
    // The payloads, the Child SAs and IKE SAs that stay, and the SPIs in the answer.
    let forms = [
        ("none", vec![esp(&[])], 2, 1, 0),
        ("both in one payload", vec![esp(&[first, SECOND])], 0, 1, 2),
        ("both in two payloads", vec![esp(&[first]), esp(&[SECOND])], 0, 1, 2),
        ("one of them twice", vec![esp(&[first, first])], 1, 1, 1),
        ("one of them in two payloads", vec![esp(&[first]), esp(&[first])], 1, 1, 1),
        ("a known one among unknown ones", vec![esp(&[9, first, 10])], 1, 1, 1),
        ("the IKE SA", vec![Payload::Delete(Delete::IkeSa)], 0, 0, 0),
        ("all", vec![esp(&[first, SECOND]), Payload::Delete(Delete::IkeSa)], 0, 0, 2),
        (
            "the IKE SA twice",
            vec![Payload::Delete(Delete::IkeSa), Payload::Delete(Delete::IkeSa)],
            0,
            0,
            0,
        ),
    ];
    for (what, payloads, child_sas, ike_sas, answered) in forms {
        let site = Site { children: 2, ..Site::default() };
        let mut puppet = Puppet::calling(&site);
        let second = puppet.payloads_of_child(1, Spi(SECOND));
        puppet.request(ExchangeType::CREATE_CHILD_SA, &second);
        assert_eq!(puppet.child_sas(), 2);
        let answer = puppet.request(ExchangeType::INFORMATIONAL, &payloads);
        assert_eq!((puppet.child_sas(), puppet.ike_sas()), (child_sas, ike_sas), "{what}");
        let spis = answer.iter().map(|payload| match payload {
            Payload::Delete(Delete::ChildSas { spis, .. }) => spis.len(),
            other => panic!("{what}: {other:?}"),
        });
        assert_eq!(spis.sum::<usize>(), answered, "{what}");
    }
}

// ---- certificates

#[test]
fn a_cross_signed_authority_is_followed_to_the_root_that_is_trusted() {
    let (old, new) =
        (Authority::root("old", KeyKind::Rsa), Authority::root("new", KeyKind::EcdsaP384));
    let by_old = old.below("middle", KeyKind::EcdsaP256);
    let by_new = new.below("middle", KeyKind::EcdsaP256);
    // The roots vouch for each other, too.
    let new_by_old = old.below("new", KeyKind::EcdsaP384);
    let old_by_new = new.below("old", KeyKind::Rsa);
    let right = |trusted: &Authority| Wallet {
        trusted: vec![trusted.der.clone()],
        between: vec![],
        ..side(trusted, KeyKind::EcdsaP256, "right")
    };
    let all = [&by_old, &by_new, &new_by_old, &old_by_new].map(|a| a.der.clone());
    for trusted in [&old, &new] {
        for turn in 0..all.len() {
            let mut between = all.to_vec();
            between.rotate_left(turn);
            let left = Wallet {
                between,
                trusted: vec![trusted.der.clone()],
                ..wallet(&by_old, KeyKind::EcdsaP256, "left", &of_side("left"))
            };
            comes_up(&site(), &left, &right(trusted));
        }
    }
    // A circle of authorities leads nowhere, and ends.
    let stranger = Authority::root("stranger", KeyKind::EcdsaP256);
    let left = Wallet {
        between: all.to_vec(),
        trusted: vec![stranger.der.clone()],
        ..wallet(&by_old, KeyKind::EcdsaP256, "left", &of_side("left"))
    };
    is_bad(&left, &right(&stranger), &["CN=left (issued by CN=middle)"]);
}

#[test]
fn names_and_numbers_in_unusual_encodings_are_understood() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let right = side(&root, KeyKind::EcdsaP256, "right");
    let left_id = Identity::Dn("CN=Left Gate,O=Example".parse().expect("a name"));
    let texts: [fn(&str) -> DnValue; 4] = [
        |text| DnValue::Utf8String(text.into()),
        |text| DnValue::PrintableString(text.try_into().expect("printable")),
        |text| DnValue::Ia5String(text.try_into().expect("ASCII")),
        |text| DnValue::BmpString(text.try_into().expect("in the plane")),
    ];
    for text in texts {
        let mut params = of_side("left");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, text("EXAMPLE"));
        params.distinguished_name.push(DnType::CommonName, text("Left  Gate"));
        let left = wallet(&root, KeyKind::EcdsaP256, "left", &params);
        comes_up(&sim::Site { left_id: left_id.clone(), ..site() }, &left, &right);
    }
    // Numbers of one octet, of twenty, and with the highest bit set.
    for number in [vec![0], vec![1], vec![0x7f; 20], vec![0xff; 19]] {
        let mut params = of_side("left");
        params.serial_number = Some(SerialNumber::from_slice(&number));
        comes_up(&site(), &wallet(&root, KeyKind::EcdsaP256, "left", &params), &right);
    }
    // Years from 2050 on are written in another form; and a subject may be empty.
    let mut params = of_side("left");
    params.not_after = rcgen::date_time_ymd(2999, 1, 1);
    params.distinguished_name = DistinguishedName::new();
    let own = root.sign(&params, &key(KeyKind::EcdsaP256, "left"));
    let left = Wallet {
        own: vec![(own, key(KeyKind::EcdsaP256, "left"))],
        trusted: vec![root.der.clone()],
        ..Wallet::default()
    };
    comes_up(&site(), &left, &right);
}

/// A certificate whose signature algorithm has no parameters, signed again.
fn without_parameters(der: &[u8], issuer: &KeyPair) -> Vec<u8> {
    let [tbs, algorithm, _] = parts(der)[..] else { panic!("a certificate") };
    let bare = tlv(0x30, &[parts(algorithm)[0]]);
    let of_tbs = |part| if part == algorithm { bare.as_slice() } else { part };
    let tbs = tlv(0x30, &parts(tbs).into_iter().map(of_tbs).collect::<Vec<_>>());
    let signature = issuer.sign(&tbs).expect("signs");
    tlv(0x30, &[&tbs, &bare, &tlv(0x03, &[&[0], &signature])])
}

#[test]
fn a_signature_algorithm_without_its_parameters_is_the_same() {
    // RFC 4055 §5
    let root = Authority::root("root", KeyKind::Rsa);
    let right = side(&root, KeyKind::EcdsaP256, "right");
    let mut left = side(&root, KeyKind::EcdsaP256, "left");
    let bare = without_parameters(&left.own[0].0, &root.key);
    assert_eq!(bare.len(), left.own[0].0.len() - 4, "two octets each time");
    left.own[0].0 = bare;
    comes_up(&site(), &left, &right);
}
