//! AWS-LC and RustCrypto agree: what one makes, the other takes, and what is changed, neither takes.

use super::{Curve, Hash, MlKem, Scheme, aws_lc, pure_rust};
use policy::KeyKind;

const CURVES: [Curve; 4] = [Curve::P256, Curve::P384, Curve::P521, Curve::X25519];
const HASHES: [Hash; 4] = [Hash::Sha1, Hash::Sha256, Hash::Sha384, Hash::Sha512];

#[test]
fn both_agree_on_a_secret() {
    for curve in CURVES {
        let (one, other) =
            (aws_lc::AgreementKey::generate(curve), pure_rust::AgreementKey::generate(curve));
        let first = one.agree(&other.public_key()).expect("a point");
        let second = other.agree(&one.public_key()).expect("a point");
        assert_eq!(first.expose(), second.expose(), "{curve:?}");
    }
}

#[test]
fn either_goes_on_with_the_private_key_of_the_other() {
    for curve in CURVES {
        let peer = aws_lc::AgreementKey::generate(curve).public_key();
        let (one, other) =
            (aws_lc::AgreementKey::generate(curve), pure_rust::AgreementKey::generate(curve));
        let [first, second] = [one.private_value(), other.private_value()];
        let moved = pure_rust::AgreementKey::from_private_value(curve, first.expose());
        let moved = moved.expect("it is of the curve").agree(&peer).expect("a point");
        assert_eq!(moved.expose(), one.agree(&peer).expect("a point").expose(), "{curve:?}");
        let moved = aws_lc::AgreementKey::from_private_value(curve, second.expose());
        let moved = moved.expect("it is of the curve").agree(&peer).expect("a point");
        assert_eq!(moved.expose(), other.agree(&peer).expect("a point").expose(), "{curve:?}");
    }
    for set in [MlKem::MlKem512, MlKem::MlKem768, MlKem::MlKem1024] {
        let one = aws_lc::DecapsulationKey::generate(set);
        let (ciphertext, secret) =
            pure_rust::encapsulate(set, &one.encapsulation_key()).expect("a key");
        let moved = pure_rust::DecapsulationKey::from_octets(set, one.octets().expose());
        let moved = moved.expect("it is a key").decapsulate(&ciphertext).expect("its length");
        assert_eq!(moved.expose(), secret.expose());
        let other = pure_rust::DecapsulationKey::generate(set);
        let (ciphertext, secret) =
            aws_lc::encapsulate(set, &other.encapsulation_key()).expect("a key");
        let moved = aws_lc::DecapsulationKey::from_octets(set, other.octets().expose());
        let moved = moved.expect("it is a key").decapsulate(&ciphertext).expect("its length");
        assert_eq!(moved.expose(), secret.expose());
    }
}

#[test]
fn neither_takes_a_point_off_its_curve_or_of_another_length() {
    for curve in CURVES {
        let (one, other) =
            (aws_lc::AgreementKey::generate(curve), pure_rust::AgreementKey::generate(curve));
        let public = one.public_key();
        // A random change of a coordinate is on the curve about half the time only where x alone is sent.
        let mut wrong = public.clone();
        *wrong.last_mut().expect("octets") ^= 1;
        let zero = vec![0; public.len()];
        let bad: Vec<&[u8]> = match curve {
            Curve::X25519 => vec![&zero, &public[1..], &[]],
            _ => vec![&wrong, &zero, &public[1..], &[], &[0]],
        };
        for value in bad {
            assert!(one.agree(value).is_none(), "AWS-LC, {curve:?}: {value:02x?}");
            assert!(other.agree(value).is_none(), "RustCrypto, {curve:?}: {value:02x?}");
        }
    }
}

#[test]
fn one_decapsulates_what_the_other_has_encapsulated() {
    for set in [MlKem::MlKem512, MlKem::MlKem768, MlKem::MlKem1024] {
        let one = aws_lc::DecapsulationKey::generate(set);
        let (ciphertext, secret) =
            pure_rust::encapsulate(set, &one.encapsulation_key()).expect("a key");
        assert_eq!(one.decapsulate(&ciphertext).expect("its length").expose(), secret.expose());

        let other = pure_rust::DecapsulationKey::generate(set);
        let key = other.encapsulation_key();
        let (ciphertext, secret) = aws_lc::encapsulate(set, &key).expect("a key");
        assert_eq!(other.decapsulate(&ciphertext).expect("its length").expose(), secret.expose());

        // A changed ciphertext gives both the same other secret only with the same key; here it gives another one.
        let mut changed = ciphertext.clone();
        changed[0] ^= 1;
        assert_ne!(other.decapsulate(&changed).expect("its length").expose(), secret.expose());

        // A coefficient that is not below q, and other lengths (FIPS 203 §7.2).
        let mut wrong = key.clone();
        wrong[..2].copy_from_slice(&[0xff, 0xff]);
        for key in [&wrong[..], &key[1..], &[]] {
            assert!(aws_lc::encapsulate(set, key).is_none());
            assert!(pure_rust::encapsulate(set, key).is_none());
        }
        assert!(other.decapsulate(&ciphertext[1..]).is_none());
        assert!(one.decapsulate(&ciphertext[1..]).is_none());
    }
}

/// A key of each kind in PKCS#8.
fn keys() -> Vec<(KeyKind, Vec<u8>)> {
    use aws_lc_rs::encoding::AsDer;
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING,
        ECDSA_P521_SHA512_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RsaKeyPair,
    };
    let ecdsa = |curve| EcdsaKeyPair::generate(curve).expect("a key").to_pkcs8v1();
    let ec = |curve| ecdsa(curve).expect("an encoding").as_ref().to_vec();
    let rsa = AsDer::<aws_lc_rs::encoding::Pkcs8V1Der<'_>>::as_der(
        &RsaKeyPair::generate(KeySize::Rsa2048).expect("a key"),
    );
    let ed25519 = Ed25519KeyPair::generate().expect("a key").to_pkcs8v1();
    vec![
        (KeyKind::Rsa, rsa.expect("an encoding").as_ref().to_vec()),
        (KeyKind::EcdsaP256, ec(&ECDSA_P256_SHA256_ASN1_SIGNING)),
        (KeyKind::EcdsaP384, ec(&ECDSA_P384_SHA384_ASN1_SIGNING)),
        (KeyKind::EcdsaP521, ec(&ECDSA_P521_SHA512_ASN1_SIGNING)),
        (KeyKind::Ed25519, ed25519.expect("an encoding").as_ref().to_vec()),
    ]
}

fn schemes() -> Vec<Scheme> {
    let of = |scheme: fn(Hash) -> Scheme| HASHES.map(scheme);
    let all = [of(Scheme::Pkcs1), of(Scheme::Pss), of(Scheme::Ecdsa)];
    all.into_iter().flatten().chain([Scheme::Ed25519]).collect()
}

/// The content of subjectPublicKey: the rest after its head and the octet of unused bits.
fn contents(info: &[u8], kind: KeyKind) -> &[u8] {
    let len = match kind {
        KeyKind::EcdsaP256 => 65,
        KeyKind::EcdsaP384 => 97,
        KeyKind::EcdsaP521 => 133,
        KeyKind::Ed25519 => 32,
        // SEQUENCE, AlgorithmIdentifier (15 octets), BIT STRING.
        KeyKind::Rsa => info.len() - 4 - 15 - 5,
    };
    &info[info.len() - len..]
}

#[test]
fn one_verifies_what_the_other_has_signed() {
    let text = b"an octet, and many more";
    let mut made_any = 0;
    for (kind, der) in keys() {
        let (one, other) = (
            aws_lc::SigningKey::read(&der).expect("a key"),
            pure_rust::SigningKey::read(&der).expect("a key"),
        );
        assert_eq!((one.kind(), other.kind()), (kind, kind));
        let info = one.public_key_info().expect("an encoding");
        assert_eq!(other.public_key_info().expect("an encoding"), info, "{kind}");
        let key = contents(&info, kind);
        for scheme in schemes() {
            let (first, second) = (one.sign(scheme, text), other.sign(scheme, text));
            assert_eq!(first.is_some(), second.is_some(), "{kind}: {scheme}");
            for made in [first, second].into_iter().flatten() {
                made_any += 1;
                let mut changed = made.clone();
                *changed.last_mut().expect("octets") ^= 1;
                for verify in [aws_lc::verify, pure_rust::verify] {
                    assert!(verify(kind, scheme, key, text, &made), "{kind}: {scheme}");
                    assert!(!verify(kind, scheme, key, b"another text", &made), "{kind}: {scheme}");
                    assert!(!verify(kind, scheme, key, text, &changed), "{kind}: {scheme}");
                    assert!(!verify(kind, scheme, &key[1..], text, &made), "{kind}: {scheme}");
                }
            }
        }
    }
    // Six of RSA, one of each other kind, from both.
    assert_eq!(made_any, 20);
}

/// ECDSA with hashes that are shorter and longer than the curve's numbers, which IKE allows (RFC 7427): they are cut, or
/// stand behind zeros (FIPS 186-5 §6.4.1).
#[test]
fn both_verify_ecdsa_with_the_hash_of_another_curve() {
    use p256::ecdsa::signature::hazmat::PrehashSigner;
    let text = b"text";
    for hash in [Hash::Sha256, Hash::Sha384, Hash::Sha512] {
        let hashed = pure_rust::digest(hash, text);
        for (kind, der) in keys() {
            let key = pure_rust::SigningKey::read(&der).expect("a key");
            let made = match &key {
                pure_rust::SigningKey::P256(key) => {
                    let made: p256::ecdsa::Signature = p256::ecdsa::SigningKey::from(key)
                        .sign_prehash(&hashed)
                        .expect("a signature");
                    made.to_der().as_bytes().to_vec()
                }
                pure_rust::SigningKey::P384(key) => {
                    let made: p384::ecdsa::Signature = p384::ecdsa::SigningKey::from(key)
                        .sign_prehash(&hashed)
                        .expect("a signature");
                    made.to_der().as_bytes().to_vec()
                }
                pure_rust::SigningKey::P521(key) => {
                    let made: p521::ecdsa::Signature = p521::ecdsa::SigningKey::from(key)
                        .sign_prehash(&hashed)
                        .expect("a signature");
                    made.to_der().as_bytes().to_vec()
                }
                _ => continue,
            };
            let info = key.public_key_info().expect("an encoding");
            for verify in [aws_lc::verify, pure_rust::verify] {
                let fits = verify(kind, Scheme::Ecdsa(hash), contents(&info, kind), text, &made);
                assert!(fits, "{kind} with {hash}");
            }
        }
    }
}

/// AWS-LC would take the hybrid form and a whole SubjectPublicKeyInfo, RustCrypto the compact form.
#[test]
fn keys_in_forms_that_no_certificate_may_have_verify_nothing() {
    let text = b"text";
    for (kind, der) in keys() {
        let scheme = match kind {
            KeyKind::Rsa => Scheme::Pss(Hash::Sha256),
            KeyKind::EcdsaP256 => Scheme::Ecdsa(Hash::Sha256),
            KeyKind::EcdsaP384 => Scheme::Ecdsa(Hash::Sha384),
            KeyKind::EcdsaP521 => Scheme::Ecdsa(Hash::Sha512),
            KeyKind::Ed25519 => Scheme::Ed25519,
        };
        let own = aws_lc::SigningKey::read(&der).expect("a key");
        let made = own.sign(scheme, text).expect("a signature");
        let info = own.public_key_info().expect("an encoding");
        let key = contents(&info, kind);
        assert!(super::verify(kind, scheme, key, text, &made), "{kind}");
        let mut others = vec![info.clone()];
        if !matches!(kind, KeyKind::Rsa | KeyKind::Ed25519) {
            let is_odd = key.last().expect("octets") & 1;
            let with_first = |first: u8| [&[first], &key[1..]].concat();
            others.extend([0x00, 0x05, 0x06 + is_odd].map(with_first));
            others.push([&[0x05], &key[1..=key.len() / 2]].concat());
        }
        for other in others {
            assert!(!super::verify(kind, scheme, &other, text, &made), "{kind}: {other:02x?}");
        }
    }
}

#[test]
fn neither_reads_what_is_no_private_key() {
    for (kind, der) in keys() {
        for end in [0, 1, der.len() / 2, der.len() - 1] {
            assert!(aws_lc::SigningKey::read(&der[..end]).is_none(), "{kind}, {end} octets");
            assert!(pure_rust::SigningKey::read(&der[..end]).is_none(), "{kind}, {end} octets");
        }
    }
}

#[test]
fn hashes_are_the_same() {
    for hash in HASHES {
        for text in [&b""[..], b"abc", &[7; 1000]] {
            let made = aws_lc::digest(hash, text);
            assert_eq!(made, pure_rust::digest(hash, text), "{hash}");
            assert_eq!(made.len(), hash.output_len());
        }
    }
}
