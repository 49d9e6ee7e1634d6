use super::*;
use crate::failure::Facts;
use crate::proof::job::{Done, Job, Proved, Sign, Signing, Step};
use crate::proof::signature::{HASHES, verify};
use crate::proof::trust::{Item, Material, Trust};
use crate::wire::header::IkeSpi;
use crate::wire::registry::{AuthMethod, HashId};
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
    ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair as _,
    RsaEncoding, RsaKeyPair,
};
use policy::{Identity, KeyKind, Signature as Rules};
use rcgen::{CertificateParams, KeyPair, SignatureAlgorithm};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A key as a token has it.
#[derive(Debug)]
enum Key {
    Rsa {
        pair: RsaKeyPair,
        pss: bool,
    },
    Ecdsa(EcdsaKeyPair),
    /// Signs other octets.
    Liar(EcdsaKeyPair),
    Removed,
}

impl Signer for Key {
    fn sign(&self, Order { scheme, octets }: Order) -> Signature {
        let random = SystemRandom::new();
        let ecdsa = |pair: &EcdsaKeyPair, octets: &[u8]| {
            Ok(pair.sign(&random, octets).expect("signs").as_ref().to_vec())
        };
        let made = match self {
            Self::Rsa { pair, .. } => {
                let encoding: &'static dyn RsaEncoding = match scheme {
                    Scheme::Pss(Hash::Sha256) => &signature::RSA_PSS_SHA256,
                    Scheme::Pkcs1(Hash::Sha256) => &signature::RSA_PKCS1_SHA256,
                    Scheme::Pkcs1(Hash::Sha512) => &signature::RSA_PKCS1_SHA512,
                    other => panic!("{other} was not asked for"),
                };
                let mut made = vec![0; pair.public_modulus_len()];
                pair.sign(encoding, &random, &octets, &mut made).expect("signs");
                Ok(made)
            }
            Self::Ecdsa(pair) => ecdsa(pair, &octets),
            Self::Liar(pair) => ecdsa(pair, b"other octets"),
            Self::Removed => Err(Unsigned { cause: "gone".into(), cure: "plug it in".into() }),
        };
        Box::pin(std::future::ready(made))
    }

    fn knows_pss(&self) -> bool {
        matches!(self, Self::Rsa { pss: true, .. })
    }
}

/// A side whose key is outside: its trust, and the public key.
fn side(pair: &KeyPair, public: &[u8], key: Key) -> Arc<Trust> {
    let params = CertificateParams::new(vec!["gate.example".into()]).expect("a name");
    let der = params.self_signed(pair).expect("signs").der().to_vec();
    let key = OutsideKey::new("slot 7".into(), public, Arc::new(key)).expect("a known kind");
    let certificates = vec![Item { name: "gate.pem".into(), der }];
    let outside_keys = vec![("gate.key".to_owned(), key)];
    let (trust, defects) =
        Trust::new(Material { certificates, outside_keys, ..Material::default() });
    assert_eq!(defects, []);
    let listed = &trust.listing()[0];
    assert_eq!(
        (listed.private_key.as_deref(), listed.token.as_deref()),
        (Some("gate.key"), Some("slot 7"))
    );
    Arc::new(trust)
}

fn rsa(pss: bool) -> (Arc<Trust>, PublicKey) {
    let pair = KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).expect("a key");
    let key = RsaKeyPair::from_pkcs8(&pair.serialize_der()).expect("PKCS#8");
    let public = key.public_key().as_der().expect("DER").as_ref().to_vec();
    let trust = side(&pair, &public, Key::Rsa { pair: key, pss });
    (trust, PublicKey::read(&public).expect("RSA"))
}

fn ecdsa(
    algorithm: &'static SignatureAlgorithm,
    signing: &'static EcdsaSigningAlgorithm,
    make: impl FnOnce(EcdsaKeyPair) -> Key,
) -> (Arc<Trust>, PublicKey) {
    let pair = KeyPair::generate_for(algorithm).expect("a key");
    let key = EcdsaKeyPair::from_pkcs8(signing, &pair.serialize_der()).expect("PKCS#8");
    let public = key.public_key().as_der().expect("DER").as_ref().to_vec();
    (side(&pair, &public, make(key)), PublicKey::read(&public).expect("EC"))
}

fn rules() -> Rules {
    Rules { keys: KeyKind::ALL.to_vec(), use_crl: false, sha1: false }
}

/// Works until the proof is made, with a signature in between.
fn prove(trust: &Arc<Trust>, hashes: Option<&[HashId]>) -> Result<Proved, crate::Failure> {
    let signing = Signing {
        rules: rules(),
        identity: Identity::Fqdn("gate.example".into()),
        octets: b"octets".to_vec(),
        hashes: hashes.map(<[HashId]>::to_vec),
        requested: vec![],
        ocsp: false,
    };
    let job = Job::new(IkeSpi(1), Arc::clone(trust), None, Some(signing));
    // Certificates of rcgen are valid from 1975 on.
    let now = Duration::from_secs(1_767_225_600);
    let Step::Sign(sign) = job.run(now) else { panic!("the key is not here") };
    let signature = at_once(&sign);
    match sign.resume(signature).run(now) {
        Step::Done(Done { outcome, .. }) => outcome,
        _ => panic!("it asks once only"),
    }
}

fn at_once(sign: &Sign) -> Result<Vec<u8>, Unsigned> {
    match sign.begin().as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(made) => made,
        Poll::Pending => panic!("these keys do not wait"),
    }
}

#[test]
fn keys_outside_sign_as_those_inside_do() {
    use AuthMethod as A;
    let cases = [
        (
            rsa(true),
            A::RSA_DIGITAL_SIGNATURE,
            Scheme::Pss(Hash::Sha256),
            Scheme::Pkcs1(Hash::Sha256),
        ),
        (
            rsa(false),
            A::RSA_DIGITAL_SIGNATURE,
            Scheme::Pkcs1(Hash::Sha256),
            Scheme::Pkcs1(Hash::Sha256),
        ),
        (
            ecdsa(&rcgen::PKCS_ECDSA_P256_SHA256, &ECDSA_P256_SHA256_FIXED_SIGNING, Key::Ecdsa),
            A::ECDSA_SHA256_P256,
            Scheme::Ecdsa(Hash::Sha256),
            Scheme::Ecdsa(Hash::Sha256),
        ),
        (
            ecdsa(&rcgen::PKCS_ECDSA_P384_SHA384, &ECDSA_P384_SHA384_FIXED_SIGNING, Key::Ecdsa),
            A::ECDSA_SHA384_P384,
            Scheme::Ecdsa(Hash::Sha384),
            Scheme::Ecdsa(Hash::Sha384),
        ),
        (
            ecdsa(&rcgen::PKCS_ECDSA_P521_SHA512, &ECDSA_P521_SHA512_FIXED_SIGNING, Key::Ecdsa),
            A::ECDSA_SHA512_P521,
            Scheme::Ecdsa(Hash::Sha512),
            Scheme::Ecdsa(Hash::Sha512),
        ),
    ];
    for ((trust, public), old, newer_scheme, old_scheme) in cases {
        for (hashes, method, scheme) in
            [(Some(&HASHES[..]), A::DIGITAL_SIGNATURE, newer_scheme), (None, old, old_scheme)]
        {
            // Several, as numbers of ECDSA begin with zeros now and then.
            for _ in 0..40 {
                let proof = prove(&trust, hashes).expect("it signs").proof.expect("a proof");
                assert_eq!(proof.method, method);
                assert_eq!(proof.certificates.len(), 1);
                let made = verify(&public, &rules(), proof.method, &proof.data, b"octets");
                assert_eq!(made, Ok(scheme));
            }
        }
    }
}

#[test]
fn a_key_that_does_not_sign_is_told_with_its_place() {
    let p256 = (&rcgen::PKCS_ECDSA_P256_SHA256, &ECDSA_P256_SHA256_FIXED_SIGNING);
    let (trust, _) = ecdsa(p256.0, p256.1, |_| Key::Removed);
    let failure = prove(&trust, None).err().expect("no signature");
    let Facts::Unsigned(told) = &*failure.facts else { panic!("{failure}") };
    assert_eq!((&*told.key, &*told.cause, &*told.cure), ("gate.key", "gone", "plug it in"));
    let text = "authentication failed: we cannot prove who we are: gate.key did not sign: gone; plug it in";
    assert_eq!(failure.to_string(), text);
    // The peer could not tell what is wrong.
    let (trust, _) = ecdsa(p256.0, p256.1, Key::Liar);
    let failure = prove(&trust, Some(&HASHES)).err().expect("a wrong signature").to_string();
    assert!(failure.contains("is not that of the certificate's key"), "{failure}");
}

#[test]
fn a_key_of_no_certificate_names_those_that_lack_one() {
    let [one, other] = [0; 2].map(|_| KeyPair::generate().expect("a key"));
    let params = CertificateParams::new(vec!["gate.example".into()]).expect("a name");
    let der = params.self_signed(&one).expect("signs").der().to_vec();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &other.serialize_der());
    let public = key.expect("PKCS#8").public_key().as_der().expect("DER").as_ref().to_vec();
    let key = OutsideKey::new("slot 7".into(), &public, Arc::new(Key::Removed)).expect("EC");
    let certificates = vec![Item { name: "gate.pem".into(), der }];
    let outside_keys = vec![("gate.key (slot 7)".to_owned(), key)];
    let (_, defects) = Trust::new(Material { certificates, outside_keys, ..Material::default() });
    let told: Vec<String> = defects.iter().map(ToString::to_string).collect();
    assert!(told[0].starts_with("gate.pem: has no private key here"), "{told:?}");
    let stray = "gate.key (slot 7): belongs to no certificate here";
    assert!(told[1].starts_with(stray) && told[1].contains("the key of gate.pem"), "{told:?}");
}
