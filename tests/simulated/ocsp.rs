//! Answers of OCSP responders in IKE (RFC 4806): their effects, and answers that do not count.

use crate::SOON;
use crate::certificates::{
    LIST, comes_up, is_refused, last_failure, revocable, strict, wallet, world,
};
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use ike::failure::FailureKind;
use ike::proof::certificate::Certificate;
use ike::proof::ocsp::Ocsp;
use ike::proof::trust::{Item, Material, Trust};
use policy::KeyKind;
use rcgen::{ExtendedKeyUsagePurpose, KeyPair, SigningKey};
use sim::Site;
use sim::certificates::{Authority, Wallet, key, of_side, params, read_crl};
use sim::invariant::assert_agreement;
use std::time::Duration;

const KIND: KeyKind = KeyKind::EcdsaP256;
const SEQUENCE: u8 = 0x30;
const OCTETS: u8 = 0x04;
const TIME: u8 = 0x18;

const GOOD: &[u8] = &[0x80, 0];
const UNKNOWN: &[u8] = &[0x82, 0];

/// One value in DER.
fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let [high, low] = u16::try_from(content.len()).expect("short").to_be_bytes();
    let head = match (high, low) {
        (0, 0..0x80) => vec![tag, low],
        (0, _) => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    [head, content].concat()
}

/// A responder's answer about one certificate.
struct Answer<'a> {
    issuer: &'a Authority,
    serial: Vec<u8>,
    status: Vec<u8>,
    until: &'static str,
    signer: &'a KeyPair,
    certificate: Option<Vec<u8>>,
}

impl<'a> Answer<'a> {
    fn good(issuer: &'a Authority, serial: u8) -> Self {
        let (status, until) = (GOOD.to_vec(), "20260108000000Z");
        let serial = vec![serial];
        Self { issuer, serial, status, until, signer: &issuer.key, certificate: None }
    }

    /// As RFC 6960 §4.2.1 has it.
    fn der(&self) -> Vec<u8> {
        let issuer = Certificate::read(&self.issuer.der).expect("ours");
        let hash =
            |octets: &[u8]| tlv(OCTETS, &[digest(&SHA1_FOR_LEGACY_USE_ONLY, octets).as_ref()]);
        let name = hash(issuer.subject().expect("it has one").as_der());
        // A key of P-256 ends with its point.
        let point = hash(&issuer.key().info[issuer.key().info.len() - 65..]);
        let sha1 = tlv(SEQUENCE, &[&[0x06, 5, 0x2b, 0x0e, 0x03, 0x02, 0x1a], &[5, 0]]);
        let id = tlv(SEQUENCE, &[&sha1, &name, &point, &tlv(0x02, &[&self.serial])]);
        let this = tlv(TIME, &[b"20251231000000Z"]);
        let next = tlv(0xa0, &[&tlv(TIME, &[self.until.as_bytes()])]);
        let single = tlv(SEQUENCE, &[&id, &self.status, &this, &next]);
        let responder = tlv(0xa2, &[&point]);
        let data = tlv(SEQUENCE, &[&responder, &this, &tlv(SEQUENCE, &[&single])]);
        let signature = self.signer.sign(&data).expect("signs");
        let ecdsa = [SEQUENCE, 10, 0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
        let signature = tlv(0x03, &[&[0], &signature]);
        let certificates = match &self.certificate {
            Some(der) => tlv(0xa0, &[&tlv(SEQUENCE, &[der])]),
            None => Vec::new(),
        };
        let basic = tlv(SEQUENCE, &[&data, &ecdsa, &signature, &certificates]);
        let kind = [0x06, 9, 0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];
        let bytes = tlv(SEQUENCE, &[&kind, &tlv(OCTETS, &[&basic])]);
        tlv(SEQUENCE, &[&[0x0a, 1, 0], &tlv(0xa0, &[&bytes])])
    }
}

fn revoked() -> Vec<u8> {
    tlv(0xa1, &[&tlv(TIME, &[b"20251220000000Z"])])
}

/// A side whose certificate has this number.
fn side(authority: &Authority, name: &str, serial: u8) -> Wallet {
    let mut params = of_side(name);
    params.serial_number = Some(u64::from(serial).into());
    wallet(authority, KIND, name, &params)
}

/// A side with an answer that it shows.
fn showing(authority: &Authority, name: &str, serial: u8, answer: &Answer<'_>) -> Wallet {
    Wallet { ocsp: vec![answer.der()], ..side(authority, name, serial) }
}

/// Neither direction comes up where the left shows this answer and the right has no list.
fn does_not_help(root: &Authority, answer: &Answer<'_>) {
    let right = showing(root, "right", 8, &Answer::good(root, 8));
    let left = showing(root, "left", 7, answer);
    let words = ["whether the certificate CN=left", "is revoked is not known"];
    is_refused(&strict(), &left, &right, FailureKind::BadCertificate, &words);
}

#[test]
fn an_answer_from_the_peer_takes_the_place_of_a_list() {
    let root = Authority::root("root", KIND);
    let left = showing(&root, "left", 7, &Answer::good(&root, 7));
    let right = showing(&root, "right", 8, &Answer::good(&root, 8));
    comes_up(&strict(), &left, &right);
    let words = ["whether the certificate CN=left", "is revoked is not known"];
    is_refused(&strict(), &side(&root, "left", 7), &right, FailureKind::BadCertificate, &words);
}

#[test]
fn a_peer_that_shows_its_own_revocation_is_refused_whatever_lists_say() {
    let root = Authority::root("root", KIND);
    let answer = Answer { status: revoked(), ..Answer::good(&root, 7) };
    let left = showing(&root, "left", 7, &answer);
    let right = Wallet {
        crls: vec![root.crl(&[])],
        lenient: true,
        ..showing(&root, "right", 8, &Answer::good(&root, 8))
    };
    let words =
        ["CN=left (issued by CN=root) is revoked, says an OCSP responder", "needs a new one"];
    is_refused(&strict(), &left, &right, FailureKind::BadCertificate, &words);
}

#[test]
fn a_responder_that_the_authority_has_certified_may_sign() {
    let root = Authority::root("root", KIND);
    let signer = key(KIND, "responder");
    let mut usage = params("responder");
    let without = root.sign(&usage, &signer);
    usage.extended_key_usages = vec![ExtendedKeyUsagePurpose::OcspSigning];
    let certified = root.sign(&usage, &signer);
    let by_another = Authority::root("root", KeyKind::EcdsaP384).sign(&usage, &signer);
    let answer = |certificate: Vec<u8>| Answer {
        signer: &signer,
        certificate: Some(certificate),
        ..Answer::good(&root, 7)
    };
    let right = showing(&root, "right", 8, &Answer::good(&root, 8));
    comes_up(&strict(), &showing(&root, "left", 7, &answer(certified)), &right);
    does_not_help(&root, &answer(without));
    does_not_help(&root, &answer(by_another));
    does_not_help(&root, &Answer { certificate: None, ..answer(Vec::new()) });
}

#[test]
fn answers_that_do_not_count_are_as_none() {
    let root = Authority::root("root", KIND);
    let stranger = key(KIND, "stranger");
    does_not_help(&root, &Answer { signer: &stranger, ..Answer::good(&root, 7) });
    does_not_help(&root, &Answer { status: UNKNOWN.to_vec(), ..Answer::good(&root, 7) });
    does_not_help(&root, &Answer { until: "20260101000000Z", ..Answer::good(&root, 7) });
    // For an authority of the same name with another key.
    let alike = Authority::root("root", KeyKind::EcdsaP384);
    does_not_help(&root, &Answer { signer: &root.key, ..Answer::good(&alike, 7) });
}

#[test]
fn a_side_may_want_fresher_answers_than_they_promise() {
    let root = Authority::root("root", KIND);
    let left = showing(&root, "left", 7, &Answer::good(&root, 7));
    let wanting = |hours: u64| Wallet {
        ocsp_max_age: Some(Duration::from_secs(hours * 3600)),
        ..showing(&root, "right", 8, &Answer::good(&root, 8))
    };
    // The answers are a day old when the world begins.
    comes_up(&strict(), &left, &wanting(25));
    let words = ["whether the certificate CN=left", "is revoked is not known"];
    is_refused(&strict(), &left, &wanting(23), FailureKind::BadCertificate, &words);
}

#[test]
fn every_certificate_of_a_chain_needs_its_answer() {
    let root = Authority::root("root", KIND);
    let middle = root.below("middle", KIND);
    let serial = Certificate::read(&middle.der).expect("ours").serial().to_vec();
    let about_left = Answer::good(&middle, 7).der();
    let about_middle = Answer { serial, ..Answer::good(&root, 0) }.der();
    let left = |ocsp: Vec<Vec<u8>>| Wallet {
        between: vec![middle.der.clone()],
        trusted: vec![root.der.clone()],
        ocsp,
        ..side(&middle, "left", 7)
    };
    let right = Wallet {
        trusted: vec![root.der.clone()],
        ..showing(&root, "right", 8, &Answer::good(&root, 8))
    };
    let words = ["whether the certificate CN=middle (issued by CN=root) is revoked is not known"];
    let only_left = left(vec![about_left.clone()]);
    is_refused(&strict(), &only_left, &right, FailureKind::BadCertificate, &words);
    comes_up(&strict(), &left(vec![about_left, about_middle]), &right);
}

#[test]
fn a_certificate_in_the_name_of_an_authority_answers_for_nobody() {
    let root = Authority::root("root", KIND);
    let middle = root.below("middle", KIND);
    // The holder of the intermediate key names a side like the root, and has it vouch for the intermediate certificate.
    let left = middle.side_named("root", "left");
    let serial = |of: &Authority| Certificate::read(&of.der).expect("ours").serial().to_vec();
    let about_left = Answer { serial: serial(&left), ..Answer::good(&middle, 0) };
    let about_middle = |issuer| Answer { serial: serial(&middle), ..Answer::good(issuer, 0) };
    let showing_both = |about_middle: &Answer<'_>| Wallet {
        own: vec![left.own()],
        between: vec![middle.der.clone()],
        trusted: vec![root.der.clone()],
        ocsp: vec![about_left.der(), about_middle.der()],
        ..Wallet::default()
    };
    let right = showing(&root, "right", 8, &Answer::good(&root, 8));
    let words = ["whether the certificate CN=middle (issued by CN=root) is revoked is not known"];
    let forged = showing_both(&about_middle(&left));
    is_refused(&strict(), &forged, &right, FailureKind::BadCertificate, &words);
    let by_root = Answer { signer: &left.key, ..about_middle(&root) };
    let forged = showing_both(&by_root);
    is_refused(&strict(), &forged, &right, FailureKind::BadCertificate, &words);
    comes_up(&strict(), &showing_both(&about_middle(&root)), &right);
}

#[test]
fn a_list_that_revokes_outweighs_an_answer_of_the_peer() {
    let root = Authority::root("root", KIND);
    let left = showing(&root, "left", 7, &Answer::good(&root, 7));
    let right = |list: Vec<u8>| Wallet {
        crls: vec![list],
        ..showing(&root, "right", 8, &Answer::good(&root, 8))
    };
    comes_up(&strict(), &left, &right(root.crl(&[6])));
    let words = ["the certificate CN=left (issued by CN=root) is revoked by its issuer"];
    is_refused(&strict(), &left, &right(root.crl(&[7])), FailureKind::BadCertificate, &words);
    // Of an intermediate certificate too.
    let middle = root.below("middle", KIND);
    let serial = Certificate::read(&middle.der).expect("ours").serial().to_vec();
    let about_middle = Answer { serial, ..Answer::good(&root, 0) };
    let left = Wallet {
        between: vec![middle.der.clone()],
        trusted: vec![root.der.clone()],
        ocsp: vec![Answer::good(&middle, 7).der(), about_middle.der()],
        ..side(&middle, "left", 7)
    };
    comes_up(&strict(), &left, &right(root.crl(&[7])));
    let words = ["the certificate CN=middle (issued by CN=root) is revoked by its issuer"];
    let against = right(root.crl_against(&middle));
    is_refused(&strict(), &left, &against, FailureKind::BadCertificate, &words);
}

#[test]
fn a_list_that_was_fetched_before_outweighs_an_answer_of_the_peer() {
    let root = Authority::root("root", KIND);
    let left = revocable(&root, "left", 7);
    let answering = Wallet { ocsp: vec![Answer::good(&root, 7).der()], ..left.clone() };
    let right = showing(&root, "right", 8, &Answer::good(&root, 8));
    let (mut world, l, r) = world(&strict(), &left, &right);
    world.publish(r, LIST, read_crl(&root.crl(&[7])));
    for wallet in [&left, &answering] {
        world.trust(l, wallet.trust());
        world.connect(l, Site::TUNNEL);
        world.run_for(SOON);
        let failure = last_failure(&mut world, r).to_string();
        assert!(failure.contains("is revoked by its issuer"), "{failure}");
        assert_eq!(world.host(r).fetched, [LIST], "once, for the side without an answer");
    }
}

#[test]
fn nothing_is_fetched_for_a_peer_with_an_answer() {
    let root = Authority::root("root", KIND);
    let left = Wallet { ocsp: vec![Answer::good(&root, 7).der()], ..revocable(&root, "left", 7) };
    let right = showing(&root, "right", 8, &Answer::good(&root, 8));
    let (mut world, l, r) = world(&strict(), &left, &right);
    world.connect(l, Site::TUNNEL);
    world.run_for(SOON);
    assert_agreement(&mut world, l, r, &strict());
    assert!(world.host(r).fetched.is_empty());
}

#[test]
fn an_answer_about_others_certificates_is_a_defect() {
    let root = Authority::root("root", KIND);
    let item = |der: Vec<u8>| Item { name: "left.ocsp".into(), der };
    let ocsp = vec![item(Answer::good(&root, 9).der()), item(vec![0x30, 0])];
    let (_, defects) = Trust::new(Material { ocsp, ..Material::default() });
    let said: Vec<String> = defects.iter().map(ToString::to_string).collect();
    assert!(said[0].contains("left.ocsp: the OCSP response is about no certificate"), "{said:?}");
    assert!(said[1].contains("left.ocsp: the OCSP response cannot be read"), "{said:?}");
}

#[test]
fn damaged_answers_are_refused_without_a_panic() {
    let root = Authority::root("root", KIND);
    let whole = Answer::good(&root, 7).der();
    assert!(Ocsp::read(&whole).is_ok());
    for length in 0..whole.len() {
        assert!(Ocsp::read(&whole[..length]).is_err(), "{length} octets");
    }
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << bit;
            // The result does not matter; the call must end.
            let _ = Ocsp::read(&damaged);
        }
    }
    assert!(Ocsp::read(&vec![0x30; 20_000]).is_err());
}
