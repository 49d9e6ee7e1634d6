//! Peers that claim by certificate to be who they are not, or whose IKE_AUTH is made to do harm.

use crate::certificates::{any, last_failure, side, site, wallet};
use crate::puppet::{Puppet, notified};
use crate::{SETTLED, SOON, calm};
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm,
};
use ike::failure::FailureKind;
use ike::proof::trust::{Item, Material, Trust};
use ike::wire::header::Header;
use ike::wire::message;
use ike::wire::payload::Payload;
use ike::wire::registry::{AuthMethod, CertEncoding, ExchangeType, NotifyType};
use policy::{KeyKind, Signature};
use rcgen::{KeyPair, PublicKeyData};
use sim::certificates::{Authority, Wallet, key, of_side};
use sim::host::Side;
use sim::link::Content;
use sim::{Exchange, Site, World};

/// AlgorithmIdentifier of ecdsa-with-SHA256 with its length before it (RFC 7427 §3, §A.3.2).
const ECDSA_SHA256: &[u8] =
    &[12, 0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];

fn root() -> Authority {
    Authority::root("root", KeyKind::EcdsaP256)
}

/// A puppet that has the gateway's answer to IKE_SA_INIT; the gateway wants a certificate of this authority.
fn at_the_door(root: &Authority, site: &Site) -> Puppet {
    let mut puppet = Puppet::new(site, calm());
    puppet.world.trust(puppet.left, side(root, KeyKind::EcdsaP256, "left").trust());
    puppet.call();
    puppet
}

fn sign(key: &KeyPair, algorithm: &'static EcdsaSigningAlgorithm, octets: &[u8]) -> Vec<u8> {
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, &key.serialize_der()).expect("a key");
    pair.sign(&SystemRandom::new(), octets).expect("signs").as_ref().to_vec()
}

/// As RFC 7427 has it.
fn signed(key: &KeyPair, octets: &[u8]) -> Payload {
    let signature = sign(key, &ECDSA_P256_SHA256_ASN1_SIGNING, octets);
    let data = [ECDSA_SHA256, &signature].concat();
    Payload::Auth { method: AuthMethod::DIGITAL_SIGNATURE, data }
}

fn certificate(der: &[u8]) -> Payload {
    Payload::Certificate { encoding: CertEncoding::X509_SIGNATURE, data: der.to_vec() }
}

/// IKE_AUTH with these in the place of the preshared key's proof.
fn auth(puppet: &Puppet, proof: Vec<Payload>) -> Vec<Payload> {
    let payloads = puppet.auth_payloads().into_iter();
    let rest = payloads.filter(|p| !matches!(p, Payload::Auth { .. }));
    let mut payloads: Vec<Payload> = rest.collect();
    payloads.splice(1..1, proof);
    payloads
}

/// The gateway tells the peer nothing but that it failed, and its operator these words.
fn is_refused(mut puppet: Puppet, proof: Vec<Payload>, words: &str) {
    let payloads = auth(&puppet, proof);
    let answer = puppet.request(ExchangeType::IKE_AUTH, &payloads);
    assert_eq!(notified(&answer), [NotifyType::AUTHENTICATION_FAILED], "{words}");
    assert_eq!(answer.len(), 1, "{words}");
    assert_eq!((puppet.ike_sas(), puppet.child_sas()), (0, 0), "{words}");
    let failure = last_failure(&mut puppet.world, puppet.left);
    assert!(failure.to_string().contains(words), "{failure}\nlacks {words:?}");
    puppet.world.run_for(SETTLED);
    assert_eq!(puppet.world.host(puppet.left).engine.inventory().half_open, 0, "{words}");
}

#[test]
fn a_peer_that_names_no_hashes_uses_the_older_methods_and_is_answered_so() {
    let (root, right) = (root(), side(&root(), KeyKind::EcdsaP256, "right"));
    let (der, key) = &right.own[0];
    let mut puppet = at_the_door(&root, &site());
    let octets = puppet.signed_octets();
    let data = sign(key, &ECDSA_P256_SHA256_FIXED_SIGNING, &octets);
    let proof = Payload::Auth { method: AuthMethod::ECDSA_SHA256_P256, data };
    let payloads = auth(&puppet, vec![certificate(der), proof]);
    let answer = puppet.request(ExchangeType::IKE_AUTH, &payloads);
    assert_eq!(puppet.child_sas(), 1, "{answer:?}");
    let method = answer.iter().find_map(|p| match p {
        Payload::Auth { method, data } => Some((*method, data.len())),
        _ => None,
    });
    assert_eq!(method, Some((AuthMethod::ECDSA_SHA256_P256, 64)));
}

#[test]
fn a_certificate_without_its_key_proves_nothing() {
    let root = root();
    let right = side(&root, KeyKind::EcdsaP256, "right");
    let der = &right.own[0].0;
    let own = key(KeyKind::EcdsaP256, "thief");
    let puppet = at_the_door(&root, &site());
    let proof = signed(&own, &puppet.signed_octets());
    is_refused(puppet, vec![certificate(der), proof], "by another key than its certificate's");

    // The right key, but of another conversation.
    let puppet = at_the_door(&root, &site());
    let proof = signed(&right.own[0].1, b"what was signed elsewhere");
    is_refused(puppet, vec![certificate(der), proof], "or of other octets");
}

#[test]
fn a_valid_certificate_of_somebody_else_proves_nothing() {
    let root = root();
    let mallory = side(&root, KeyKind::EcdsaP256, "mallory");
    let (der, key) = &mallory.own[0];
    let puppet = at_the_door(&root, &site());
    let proof = signed(key, &puppet.signed_octets());
    let words = "CN=mallory (issued by CN=root) is not for right.example: it is for CN=mallory, mallory.example";
    is_refused(puppet, vec![certificate(der), proof], words);

    // The right one beside it does not help: the first is the one that signs.
    let right = side(&root, KeyKind::EcdsaP256, "right");
    let puppet = at_the_door(&root, &site());
    let proof = signed(key, &puppet.signed_octets());
    let certificates = vec![certificate(&right.own[0].0), certificate(der), proof];
    is_refused(puppet, certificates, "by another key than its certificate's");
}

#[test]
fn an_end_entity_cannot_issue() {
    let root = root();
    let right = side(&root, KeyKind::EcdsaP256, "right");
    // Signed with the key of a side, in its name.
    let mut params = of_side("right");
    params.is_ca = rcgen::IsCa::NoCa;
    let issuer = rcgen::Issuer::from_params(&params, &*right.own[0].1);
    let own = key(KeyKind::EcdsaP256, "thief");
    let forged = of_side("right").signed_by(&*own, &issuer).expect("signs").der().to_vec();
    let puppet = at_the_door(&root, &site());
    let proof = signed(&own, &puppet.signed_octets());
    let certificates = vec![certificate(&forged), certificate(&right.own[0].0), proof];
    is_refused(puppet, certificates, "no authority");
}

#[test]
fn times_and_strength_are_the_gateways_to_judge() {
    let root = root();
    let key = key(KeyKind::EcdsaP256, "right");
    for (from, until, words) in [
        (2024, 2025, "CN=right (issued by CN=root) has expired on 2025-01-01"),
        (2027, 2028, "is valid only from 2027-01-01"),
    ] {
        let mut params = of_side("right");
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let der = root.sign(&params, &key);
        let puppet = at_the_door(&root, &site());
        let proof = signed(&key, &puppet.signed_octets());
        is_refused(puppet, vec![certificate(&der), proof], words);
    }
}

#[test]
fn an_rsa_key_that_is_too_weak_proves_nothing() {
    // Made by OpenSSL, for right.example, with 1024 bits; no library here signs with such a key.
    let weak = include_bytes!("../../crates/ike/tests/vectors/rsa_1024.der").to_vec();
    let item = |der: &Vec<u8>| Item { name: "weak".into(), der: der.clone() };
    let material = Material { certificates: vec![item(&weak)], ..Material::default() };
    let (_, defects) = Trust::new(material);
    assert!(defects[0].problem.contains("an RSA key of 1024 bits, 2048 are needed"));
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let puppet = at_the_door(&root, &site());
    let data = vec![0; 128];
    let proof = Payload::Auth { method: AuthMethod::RSA_DIGITAL_SIGNATURE, data };
    is_refused(puppet, vec![certificate(&weak), proof], "which is too weak");
}

#[test]
fn certificates_that_are_none_or_too_many_are_refused() {
    let root = root();
    let right = side(&root, KeyKind::EcdsaP256, "right");
    let (der, key) = &right.own[0];
    let other = |encoding, data: &[u8]| Payload::Certificate { encoding, data: data.to_vec() };
    let url = CertEncoding::HASH_AND_URL_OF_CERTIFICATE;
    let cases: Vec<(Vec<Payload>, &str)> = vec![
        (vec![], "sent no certificate"),
        (vec![certificate(&[])], "cannot be read"),
        (vec![certificate(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff])], "cannot be read"),
        (vec![certificate(&der[..der.len() - 1])], "cannot be read"),
        (vec![certificate(&der[..der.len() / 2])], "cannot be read"),
        (vec![certificate(&vec![0x30; 20_000])], "has more than 16384 octets"),
        (vec![certificate(der); 9], "sends more than 8 certificates"),
        (vec![certificate(&vec![0x30; 16_000]); 3], "or 32768 octets of them"),
        (
            vec![other(url, b"0123456789abcdef0123http://a.example/c")],
            "only the address of its certificate",
        ),
        (vec![other(CertEncoding(1), der)], "sent no certificate"),
    ];
    for (certificates, words) in cases {
        let puppet = at_the_door(&root, &site());
        let proof = signed(key, &puppet.signed_octets());
        is_refused(puppet, [certificates, vec![proof]].concat(), words);
    }
    // Other CERT payloads beside the certificate are passed over.
    let mut puppet = at_the_door(&root, &site());
    let proof = signed(key, &puppet.signed_octets());
    let beside = vec![
        other(CertEncoding(1), b"?"),
        certificate(der),
        certificate(b"?"),
        other(url, b"?"),
        proof,
    ];
    let payloads = auth(&puppet, beside);
    puppet.request(ExchangeType::IKE_AUTH, &payloads);
    assert_eq!(puppet.child_sas(), 1);
    let discards = puppet.world.host(puppet.left).engine.discards();
    assert_eq!(discards.get("certificate_encoding"), Some(&1));
}

#[test]
fn damaged_certificates_and_proofs_are_refused_whatever_the_damage() {
    let root = root();
    let right = side(&root, KeyKind::EcdsaP256, "right");
    let (der, key) = &right.own[0];
    for at in (0..der.len()).step_by(7) {
        let mut puppet = at_the_door(&root, &site());
        let proof = signed(key, &puppet.signed_octets());
        let mut damaged = der.clone();
        damaged[at] ^= 1 << (at % 8);
        let payloads = auth(&puppet, vec![certificate(&damaged), proof]);
        let answer = puppet.request(ExchangeType::IKE_AUTH, &payloads);
        assert_eq!(notified(&answer), [NotifyType::AUTHENTICATION_FAILED], "octet {at}");
    }
}

#[test]
fn weak_and_foreign_methods_are_refused() {
    let root = root();
    let right = side(&root, KeyKind::EcdsaP256, "right");
    let (der, key) = &right.own[0];
    let with = |method: AuthMethod, data: &dyn Fn(&[u8]) -> Vec<u8>, words: &str| {
        let puppet = at_the_door(&root, &site());
        let data = data(&puppet.signed_octets());
        is_refused(puppet, vec![certificate(der), Payload::Auth { method, data }], words);
    };
    let asn1 = |octets: &[u8]| sign(key, &ECDSA_P256_SHA256_ASN1_SIGNING, octets);
    let tagged =
        |algorithm: &'static [u8]| move |octets: &[u8]| [algorithm, &asn1(octets)].concat();
    let sha1 = &[11, 0x30, 9, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1];
    with(AuthMethod::DIGITAL_SIGNATURE, &tagged(sha1), "ECDSA with SHA-1 can be forged");
    let rsa = &[15, 0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 1, 11, 5, 0];
    with(AuthMethod::DIGITAL_SIGNATURE, &tagged(rsa), "is not for a key of the kind ECDSA P-256");
    with(AuthMethod::DIGITAL_SIGNATURE, &tagged(&[4, 0x30, 2, 6, 0]), "cannot be read");
    with(AuthMethod::DIGITAL_SIGNATURE, &tagged(&[255, 0x30]), "it is cut short");
    with(AuthMethod::DIGITAL_SIGNATURE, &|_| vec![], "it is cut short");
    with(AuthMethod::RSA_DIGITAL_SIGNATURE, &asn1, "is not for a key of the kind ECDSA P-256");
    with(AuthMethod::ECDSA_SHA384_P384, &asn1, "is not for a key of the kind ECDSA P-256");
    with(AuthMethod::ECDSA_SHA256_P256, &asn1, "by another key than its certificate's");
    with(AuthMethod(99), &asn1, "AuthMethod(99) is not for a key");
    with(AuthMethod::SHARED_KEY_MIC, &asn1, "the policy expects a certificate");
    let strict =
        Site { signature: Some(Signature { keys: vec![KeyKind::EcdsaP384], ..any() }), ..site() };
    let mut puppet = Puppet::new(&strict, calm());
    let gateway = wallet(&root, KeyKind::EcdsaP384, "left", &of_side("left"));
    puppet.world.trust(puppet.left, gateway.trust());
    puppet.call();
    let proof = signed(key, &puppet.signed_octets());
    is_refused(puppet, vec![certificate(der), proof], "the policy wants ECDSA P-384");
}

#[test]
fn nobody_on_the_way_takes_the_hash_algorithms_out() {
    let root = root();
    for exchange in ["request", "response"] {
        let (mut world, l, r) = World::of_site(1, &site(), &calm());
        let wallet = |name| -> Wallet { side(&root, KeyKind::EcdsaP256, name) };
        world.trust(l, wallet("left").trust());
        world.trust(r, wallet("right").trust());
        let from = if exchange == "request" { l } else { r };
        let gate = world.hold(from, move |label| match exchange {
            "request" => label.is_request(Exchange::SaInit),
            _ => label.is_response(Exchange::SaInit),
        });
        world.connect(l, Site::TUNNEL);
        world.run_for(std::time::Duration::from_millis(200));
        let mut parcel = world.take_first(gate).expect("IKE_SA_INIT is under way");
        let Content::Ike(octets) = &parcel.content else { panic!("not IKE") };
        let header = Header::parse(octets).expect("a message");
        let mut payloads = message::decode(&header, octets).expect("payloads");
        let before = payloads.len();
        payloads.retain(
            |p| !matches!(p, Payload::Notify(n) if n.kind == NotifyType::SIGNATURE_HASH_ALGORITHMS),
        );
        assert_eq!(payloads.len(), before - 1);
        parcel.content = Content::Ike(message::encode(&header, &payloads));
        world.discard(gate);
        world.deliver(from, parcel);
        world.run_for(SOON);
        let judge = if exchange == "request" { r } else { l };
        let failure = last_failure(&mut world, judge);
        assert_eq!(failure.kind, FailureKind::BadCertificate, "{exchange}: {failure}");
        assert!(
            failure
                .to_string()
                .contains("by another key than its certificate's, or of other octets")
        );
    }
}

#[test]
fn a_responder_that_is_somebody_else_is_told_and_left() {
    let root = root();
    let mallory = side(&root, KeyKind::EcdsaP256, "mallory");
    let (der, key) = &mallory.own[0];
    let mut puppet = Puppet::new(&site(), calm());
    puppet.world.trust(puppet.left, side(&root, KeyKind::EcdsaP256, "left").trust());
    puppet.pick_up();
    let (request, asked) = puppet.next_request();
    assert!(asked.iter().any(|p| matches!(p, Payload::Certificate { .. })), "{asked:?}");
    let proof = signed(key, &puppet.signed_octets());
    let payloads = auth(&puppet, vec![certificate(der), proof]);
    puppet.answer(&request, &payloads);
    // RFC 7296 §2.21.2
    let (header, told) = puppet.next_request();
    assert_eq!(header.exchange, ExchangeType::INFORMATIONAL);
    assert_eq!(notified(&told), [NotifyType::AUTHENTICATION_FAILED]);
    assert_eq!((puppet.ike_sas(), puppet.child_sas()), (0, 0));
    let failure = last_failure(&mut puppet.world, puppet.left);
    assert!(failure.to_string().contains("is not for right.example"), "{failure}");
}

#[test]
fn hashes_and_authorities_are_announced_only_where_certificates_are_wanted() {
    let root = root();
    let preshared = Site { signature: None, ..site() };
    for (site, wanted) in [(site(), true), (preshared, false)] {
        let mut world = World::new(1);
        world.tap();
        let l = world.add_host("left", site.left, site.policy(Side::Left), calm());
        let r = world.add_host("right", site.right, site.policy(Side::Right), calm());
        for (host, name) in [(l, "left"), (r, "right")] {
            world.trust(host, side(&root, KeyKind::EcdsaP256, name).trust());
        }
        world.connect(l, Site::TUNNEL);
        world.run_for(SOON);
        let mut messages = world.take_tapped().into_iter().filter_map(|p| match p.content {
            Content::Ike(octets) => Some(octets),
            _ => None,
        });
        for response in [false, true] {
            let octets = messages.next().expect("IKE_SA_INIT goes first");
            let header = Header::parse(&octets).expect("a message");
            assert_eq!((header.exchange, header.response), (ExchangeType::IKE_SA_INIT, response));
            let payloads = message::decode(&header, &octets).expect("payloads");
            let hashes = payloads.iter().find_map(|p| match p {
                Payload::Notify(n) if n.kind == NotifyType::SIGNATURE_HASH_ALGORITHMS => {
                    Some(n.data.as_slice())
                }
                _ => None,
            });
            let requested = payloads.iter().find_map(|p| match p {
                Payload::CertificateRequest { encoding, authorities } => {
                    Some((*encoding, authorities.clone()))
                }
                _ => None,
            });
            // RFC 7427 §4: SHA2-256, SHA2-384, SHA2-512; RFC 8420 §2: the identity.
            assert_eq!(hashes, wanted.then_some(&[0, 2, 0, 3, 0, 4, 0, 5][..]));
            // RFC 7296 §1.2: the responder asks in its first message.
            let info = key(KeyKind::EcdsaP256, "root").subject_public_key_info();
            let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &info).as_ref().to_vec();
            let expected = (wanted && response).then_some((CertEncoding::X509_SIGNATURE, hash));
            assert_eq!(requested, expected);
        }
    }
}
