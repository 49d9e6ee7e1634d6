use super::*;
use crate::proof::certificate::Certificate;
use crate::proof::key::PrivateKey;
use policy::Secret;
use rcgen::{CertificateParams, KeyPair, SignatureAlgorithm};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|d| u8::try_from(d[0] << 4 | d[1]).expect("two digits")).collect()
}

/// RFC 7427 Appendix A, RFC 8420 §A.1.
#[test]
fn algorithm_identifiers() {
    for (scheme, octets) in [
        (Scheme::Pkcs1(Hash::Sha256), "300d06092a864886f70d01010b0500"),
        (Scheme::Pkcs1(Hash::Sha384), "300d06092a864886f70d01010c0500"),
        (Scheme::Pkcs1(Hash::Sha512), "300d06092a864886f70d01010d0500"),
        (Scheme::Ecdsa(Hash::Sha256), "300a06082a8648ce3d040302"),
        (Scheme::Ecdsa(Hash::Sha384), "300a06082a8648ce3d040303"),
        (Scheme::Ecdsa(Hash::Sha512), "300a06082a8648ce3d040304"),
        (Scheme::Ed25519, "300506032b6570"),
    ] {
        assert_eq!(encode(scheme), hex(octets), "{scheme}");
        assert_eq!(decode(&hex(octets)), Ok(scheme));
    }
    for (hash, octets) in
        [(Hash::Sha1, "300d06092a864886f70d0101050500"), (Hash::Sha1, "300906072a8648ce3d0401")]
    {
        let scheme = decode(&hex(octets)).expect("known, though not accepted");
        assert!(matches!(scheme, Scheme::Pkcs1(h) | Scheme::Ecdsa(h) if h == hash));
    }
}

/// RFC 7427 §A.4: SHA-256 with the trailer field written out, as there, and left out, as DER wants it.
#[test]
fn parameters_of_pss() {
    let with_trailer = "3046 0609 2a86 4886 f70d 0101 0a30 39a0 0f30 0d06 0960 8648 0165 0304 0201 0500
        a11c 301a 0609 2a86 4886 f70d 0101 0830 0d06 0960 8648 0165 0304 0201 0500 a203 0201 20a3 0302 0101";
    assert_eq!(decode(&hex(with_trailer)), Ok(Scheme::Pss(Hash::Sha256)));
    for hash in SHA2 {
        let octets = encode(Scheme::Pss(hash));
        assert_eq!(decode(&octets), Ok(Scheme::Pss(hash)));
        assert_eq!(octets.len(), 67);
    }
    let empty = "300d 0609 2a86 4886 f70d 0101 0a30 00";
    let absent = "300b 0609 2a86 4886 f70d 0101 0a";
    let salt = with_trailer.replace("0201 20", "0201 1f");
    let mixed =
        with_trailer.replacen("0402 01", "0402 02", 1).replacen("0304 0201", "0304 0202", 1);
    for other in [empty, absent, &salt, &mixed] {
        let error = decode(&hex(other)).expect_err("SHA-1, or not what is used");
        assert!(error.contains("RSA (PSS) with parameters other than"), "{error}");
    }
}

fn pair(algorithm: &'static SignatureAlgorithm) -> (PrivateKey, PublicKey) {
    let key = KeyPair::generate_for(algorithm).expect("a key");
    let params = CertificateParams::new(vec!["a.example".into()]).expect("a name");
    let certificate = params.self_signed(&key).expect("signs");
    let private = PrivateKey::read(&Secret::new(key.serialize_der())).expect("PKCS#8");
    let public = Certificate::read(certificate.der()).map(|c| c.key().clone());
    (private, public.unwrap_or_else(|e| panic!("{e}")))
}

const ALGORITHMS: [(KeyKind, &SignatureAlgorithm); 5] = [
    (KeyKind::Rsa, &rcgen::PKCS_RSA_SHA256),
    (KeyKind::EcdsaP256, &rcgen::PKCS_ECDSA_P256_SHA256),
    (KeyKind::EcdsaP384, &rcgen::PKCS_ECDSA_P384_SHA384),
    (KeyKind::EcdsaP521, &rcgen::PKCS_ECDSA_P521_SHA512),
    (KeyKind::Ed25519, &rcgen::PKCS_ED25519),
];

fn rules(sha1: bool) -> Rules {
    Rules { keys: KeyKind::ALL.to_vec(), use_crl: false, sha1 }
}

#[test]
fn the_hash_of_each_signature_counts() {
    use crate::crypto::tally::{self, Operation};
    let hashes = [tally::Hash::Sha2_256, tally::Hash::Sha2_384, tally::Hash::Sha2_512];
    for ((_, algorithm), hash) in ALGORITHMS[1..4].iter().zip(hashes) {
        let count = || tally::done().get(&Operation::Hash(hash)).copied().unwrap_or(0);
        let (private, public) = pair(algorithm);
        let before = count();
        let (method, data) = sign(&private, None, None, b"octets").expect("a key of this process");
        let signed = count();
        verify(&public, &rules(false), method, &data, b"octets").expect("the octets");
        // Other tests of this process may count, too.
        assert!(signed > before && count() > signed, "{hash}");
    }
}

#[test]
fn a_signature_is_verified_by_both_kinds_of_methods() {
    let old = [
        Some(AuthMethod::RSA_DIGITAL_SIGNATURE),
        Some(AuthMethod::ECDSA_SHA256_P256),
        Some(AuthMethod::ECDSA_SHA384_P384),
        Some(AuthMethod::ECDSA_SHA512_P521),
        None,
    ];
    for ((kind, algorithm), old) in ALGORITHMS.into_iter().zip(old) {
        let (private, public) = pair(algorithm);
        assert_eq!((private.kind(), public.kind), (kind, kind));
        assert!(private.belongs_to(&public));
        for hashes in [Some(&HASHES[..]), None, Some(&[][..])] {
            let made = sign(&private, hashes, None, b"octets");
            let Ok((method, data)) = made else {
                assert_eq!((old, hashes.is_some_and(|h| !h.is_empty())), (None, false));
                continue;
            };
            let newer = hashes.is_some_and(|h| !h.is_empty());
            assert_eq!(Some(method), if newer { Some(AuthMethod::DIGITAL_SIGNATURE) } else { old });
            let check =
                |octets: &[u8], data: &[u8]| verify(&public, &rules(false), method, data, octets);
            check(b"octets", &data).unwrap_or_else(|e| panic!("{kind} {method}: {e:?}"));
            check(b"Octets", &data).expect_err("other octets");
            for at in 0..data.len() {
                let mut wrong = data.clone();
                wrong[at] ^= 1;
                check(b"octets", &wrong).expect_err("another signature");
            }
            for length in 0..data.len() {
                check(b"octets", &data[..length]).expect_err("cut short");
            }
            for (other, _) in ALGORITHMS.iter().filter(|(other, _)| *other != kind) {
                let narrow = Rules { keys: vec![*other], ..rules(false) };
                verify(&public, &narrow, method, &data, b"octets").expect_err("the policy says no");
            }
        }
    }
}

#[test]
fn rsa_is_padded_as_the_peer_pads_and_hashed_as_it_can() {
    let (private, public) = pair(&rcgen::PKCS_RSA_SHA256);
    for (hashes, like, expected) in [
        (&HASHES[..], None, Scheme::Pss(Hash::Sha256)),
        (&HASHES[..], Some(Scheme::Pkcs1(Hash::Sha512)), Scheme::Pkcs1(Hash::Sha256)),
        (&[HashId::SHA1, HashId::SHA2_512][..], None, Scheme::Pss(Hash::Sha512)),
        (&[HashId::SHA2_384][..], Some(Scheme::Pkcs1(Hash::Sha384)), Scheme::Pkcs1(Hash::Sha384)),
        (&[HashId::SHA1][..], None, Scheme::Pkcs1(Hash::Sha256)),
    ] {
        let (method, data) = sign(&private, Some(hashes), like, b"octets").expect("signs");
        let made = verify(&public, &rules(false), method, &data, b"octets");
        assert_eq!(made, Ok(expected));
    }
}

/// RFC 7296 §3.8: the method for RSA names no hash algorithm.
#[test]
fn a_peer_that_names_no_hash_algorithm_is_answered_with_its_own() {
    let (private, public) = pair(&rcgen::PKCS_RSA_SHA256);
    // The last: aws-lc-rs makes no signatures with SHA-1.
    let theirs = [Hash::Sha256, Hash::Sha384, Hash::Sha512, Hash::Sha1];
    for (theirs, expected) in theirs.into_iter().zip([theirs[0], theirs[1], theirs[2], theirs[0]]) {
        for hashes in [None, Some(&[][..])] {
            let like = Some(Scheme::Pkcs1(theirs));
            let (method, data) = sign(&private, hashes, like, b"octets").expect("signs");
            assert_eq!(method, AuthMethod::RSA_DIGITAL_SIGNATURE);
            let made = verify(&public, &rules(true), method, &data, b"octets");
            assert_eq!(made, Ok(Scheme::Pkcs1(expected)));
        }
    }
}

#[test]
fn sha1_passes_only_where_the_policy_names_it() {
    let (public, signature) = sha1_vector();
    let method = AuthMethod::RSA_DIGITAL_SIGNATURE;
    let made = verify(&public, &rules(true), method, &signature, b"octets");
    assert_eq!(made, Ok(Scheme::Pkcs1(Hash::Sha1)));
    let refused = verify(&public, &rules(false), method, &signature, b"octets");
    assert_eq!(refused, Err(Flaw::NotWithSha2));
    // RFC 8247 §3.2: never with RFC 7427.
    let identifier = hex("300d06092a864886f70d0101050500");
    let data = [&[15][..], &identifier, &signature].concat();
    let refused = verify(&public, &rules(true), AuthMethod::DIGITAL_SIGNATURE, &data, b"octets");
    assert!(matches!(refused, Err(Flaw::Other(why)) if why.contains("can be forged")));
}

#[test]
fn a_method_of_another_kind_of_key_is_refused() {
    let methods = [
        AuthMethod::RSA_DIGITAL_SIGNATURE,
        AuthMethod::SHARED_KEY_MIC,
        AuthMethod::DSS_DIGITAL_SIGNATURE,
        AuthMethod::ECDSA_SHA256_P256,
        AuthMethod::ECDSA_SHA384_P384,
        AuthMethod::ECDSA_SHA512_P521,
        AuthMethod(200),
    ];
    for (kind, algorithm) in ALGORITHMS {
        let (private, public) = pair(algorithm);
        let own = sign(&private, None, None, b"octets").map(|(method, _)| method);
        for method in methods.into_iter().filter(|m| own.as_ref() != Ok(m)) {
            let refused = verify(&public, &rules(true), method, &[0; 64], b"octets");
            let Err(Flaw::Other(error)) = refused else { panic!("{refused:?} of {method}") };
            assert!(
                error.contains(&format!("{method} is not for a key of the kind {kind}")),
                "{error}"
            );
        }
    }
}

/// Made by OpenSSL: a key (`openssl rsa -pubout`), and its signature of "octets" (`openssl dgst -sha1 -sign`).
fn sha1_vector() -> (PublicKey, Vec<u8>) {
    let info = hex(
        "
        30820122300d06092a864886f70d01010105000382010f003082010a028201010097bc426db004ded37ab874f4e84a57e5b3
        0c612e8393424be4ff6ef50bc1ba9767f9d73d7a0b38abc86a84088c5df29ecc632c97deed05d37190cd8221e7481cd28d44
        a646a4600b6aba22246aa80d3db0dd35e3918ee039550571926c5960cce4aa7db719180048bc3970882f5f3cbefb442c48c8
        60c419216944ebf8c47a3b258fdf56dae0afaccd93d1e70dabfc780f802b8b46c43e74b7ad6136a92a8c1fc38eb4ae0a5bf3
        787791e7be9b7cde010b0a221306491d9ccca9a605ba7cfb45dc920b61793c18338fc9972117c9c355130c0f26b24dee9293
        8d261490a8b84e2a4133ed0a572819c31fd017d804279cc1ca1ed1d00eaa4d0fa03907fd6a9f590203010001
        ",
    );
    let signature = hex(
        "
        4b52578069cf92c7a4add47df739b28669f7f7a85ff53e81c7845b5824a7c3edfea2e888291a1b220246031233f70ddb3196
        1fb8a93f3cd68624249b13d6ae1cb634d1be62e15889cadac647a9f1e2a02b0cfb3cdacdb26ecbeb6badbb260ca9b1e65b20
        4996748a68454099726ec3b933a5a39dc92c80da0e8e3d6eaf83860c52abb39693be8df30f55274133c302d7677f35ed1db1
        7923498ace1f91da04d94df5c6f88a7849b9da131e8696d4dcc610d9a2f183e34903aaab39b9f0e213642a65a6cdc12c6bba
        9c7e96c07dced284799e53f8304d60156f660e2b93ba00011d6fc3ff9dc833f029bc2a18baacf82778dedcc8413ed88d7561
        eaff59608e3d
        ",
    );
    (PublicKey { kind: KeyKind::Rsa, bits: 2048, info }, signature)
}
