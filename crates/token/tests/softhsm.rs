//! Keys that are made in a token of SoftHSM: each kind signs, certificates are found beside them, and mistakes are
//! told.
#![forbid(unsafe_code)]

use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, CertificateType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use ike::proof::outside::{Hash, Order, Scheme};
use rcgen::{CertificateParams, Issuer, KeyPair, SubjectPublicKeyInfo};
use std::fs;
use std::path::Path;
use std::process::Command;
use token::{Keys, Kind, Opened, Settings, Uri};

const MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";
const PIN: &str = "473195";
/// The directory of the process that uses the token: SoftHSM takes its configuration from the environment.
const DIRECTORY: &str = "TOKEN_TEST_DIRECTORY";

const P256: &[u8] = &[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const P384: &[u8] = &[6, 5, 0x2b, 0x81, 4, 0, 0x22];
const P521: &[u8] = &[6, 5, 0x2b, 0x81, 4, 0, 0x23];

#[test]
fn keys_in_a_token() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return inside(Path::new(&directory));
    }
    if !Path::new(MODULE).exists() {
        return left_out::skip(&format!("no file {MODULE}"));
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let (configuration, tokens) = (place.path().join("conf"), place.path().join("tokens"));
    fs::create_dir(&tokens).expect("writable");
    let text = format!("directories.tokendir = {}\nobjectstore.backend = file\n", tokens.display());
    fs::write(&configuration, text).expect("writable");
    fs::write(place.path().join("pin"), PIN).expect("writable");
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args(["--exact", "keys_in_a_token", "--nocapture"]);
    child.env("SOFTHSM2_CONF", configuration).env(DIRECTORY, place.path());
    assert!(child.status().expect("it starts").success());
}

fn inside(directory: &Path) {
    make_token();
    let find = |attributes: &str| {
        let pin = directory.join("pin");
        let uri = format!("pkcs11:token=vpn;{attributes}?pin-source={}", pin.display());
        let uri: Uri = uri.parse().expect("a URI");
        Keys::new(Settings { module: Some(MODULE.into()), ..Settings::default() }).open(&uri)
    };
    let open =
        |attributes: &str| find(attributes).unwrap_or_else(|error| panic!("{attributes}: {error}"));
    each_kind_signs(open);
    let opened = open("object=card");
    let certificate = opened.certificate.expect("it is in the token");
    assert!(certificate.windows(opened.public.len()).any(|part| part == opened.public));
    assert_eq!(open("id=%04").certificate, None);

    for (attributes, kind, words) in [
        (
            "object=twins",
            Kind::Object,
            "several private keys with the label \"twins\": \"twins\" (id 07), \"twins\" (id 08)",
        ),
        ("object=alone", Kind::Object, "neither a public key nor a certificate"),
        (
            "object=card;id=%04",
            Kind::Object,
            "no private key with the label \"card\" and with the id 04",
        ),
        ("object=card;slot-id=987654321", Kind::Token, "slot 987654321 is not there"),
        ("object=card;model=other", Kind::Token, "has \"vpn\" (serial number"),
    ] {
        let error = find(attributes).expect_err("a mistake");
        assert!(error.kind == kind && error.cause.contains(words), "{attributes}: {error}");
    }
    open("object=twins;id=%07");
}

fn each_kind_signs(open: impl Fn(&str) -> Opened) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime");
    use {Hash as H, Scheme as S};
    let cases: [(&str, Scheme, &'static dyn VerificationAlgorithm); 9] = [
        ("object=p256", S::Ecdsa(H::Sha256), &signature::ECDSA_P256_SHA256_FIXED),
        ("object=p384", S::Ecdsa(H::Sha384), &signature::ECDSA_P384_SHA384_FIXED),
        ("object=p521", S::Ecdsa(H::Sha512), &signature::ECDSA_P521_SHA512_FIXED),
        ("object=rsa", S::Pkcs1(H::Sha256), &signature::RSA_PKCS1_2048_8192_SHA256),
        ("object=rsa", S::Pkcs1(H::Sha384), &signature::RSA_PKCS1_2048_8192_SHA384),
        ("object=rsa", S::Pkcs1(H::Sha512), &signature::RSA_PKCS1_2048_8192_SHA512),
        ("object=rsa", S::Pss(H::Sha256), &signature::RSA_PSS_2048_8192_SHA256),
        ("id=%04", S::Pss(H::Sha384), &signature::RSA_PSS_2048_8192_SHA384),
        ("object=rsa", S::Pss(H::Sha512), &signature::RSA_PSS_2048_8192_SHA512),
    ];
    for (attributes, scheme, algorithm) in cases {
        let opened = open(attributes);
        let public = UnparsedPublicKey::new(algorithm, &opened.public);
        for octets in [&b"octets"[..], &[7; 3000]] {
            let order = Order { scheme, octets: octets.to_vec() };
            let made = runtime.block_on(opened.key.sign(order));
            let made = made.unwrap_or_else(|error| panic!("{attributes}: {error:?}"));
            public.verify(octets, &made).unwrap_or_else(|_| panic!("{attributes}: {scheme}"));
            public.verify(b"other octets", &made).expect_err("it was not signed");
        }
    }
}

/// Makes the token `vpn` with all keys, and leaves the module as if nobody had used it.
fn make_token() {
    let module = Pkcs11::new(MODULE).expect("it loads");
    module.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)).expect("it starts");
    let slot = module.get_all_slots().expect("slots")[0];
    module.init_token(slot, &"99999999".to_owned().into(), "vpn").expect("a token");
    // The slot of a token is another one than the empty one was.
    let slot = module.get_slots_with_initialized_token().expect("slots")[0];
    let session = module.open_rw_session(slot).expect("a session");
    session.login(UserType::So, Some(&"99999999".to_owned().into())).expect("its PIN");
    session.init_pin(&PIN.to_owned().into()).expect("a PIN");
    session.logout().expect("logged in");
    session.login(UserType::User, Some(&PIN.to_owned().into())).expect("its PIN");
    make(&session, "p256", 1, Some(P256));
    make(&session, "p384", 2, Some(P384));
    make(&session, "p521", 3, Some(P521));
    make(&session, "rsa", 4, None);
    let (public, _) = make(&session, "card", 5, Some(P256));
    certify(&session, public, 5);
    session.destroy_object(public).expect("it is ours");
    let (public, _) = make(&session, "alone", 6, Some(P256));
    session.destroy_object(public).expect("it is ours");
    make(&session, "twins", 7, Some(P256));
    make(&session, "twins", 8, Some(P256));
    session.close().expect("open");
    module.finalize().expect("it was started");
}

/// Makes a pair of keys, public and private: on this curve, or RSA.
fn make(
    session: &Session,
    label: &str,
    id: u8,
    curve: Option<&[u8]>,
) -> (ObjectHandle, ObjectHandle) {
    let named = [Attribute::Token(true), Attribute::Label(label.into()), Attribute::Id(vec![id])];
    let (mechanism, parameters) = match curve {
        Some(curve) => (Mechanism::EccKeyPairGen, Attribute::EcParams(curve.to_vec())),
        None => (Mechanism::RsaPkcsKeyPairGen, Attribute::ModulusBits(2048.into())),
    };
    let public = [&named[..], &[Attribute::Verify(true), parameters]].concat();
    let private = [&named[..], &[Attribute::Private(true), Attribute::Sign(true)]].concat();
    session.generate_key_pair(&mechanism, &public, &private).expect("a pair of keys")
}

/// Puts a certificate of a key into the token.
fn certify(session: &Session, public: ObjectHandle, id: u8) {
    let kinds = [cryptoki::object::AttributeType::EcPoint];
    let attributes = session.get_attributes(public, &kinds).expect("it is readable");
    let [Attribute::EcPoint(point)] = &attributes[..] else { panic!("{attributes:?}") };
    // An OCTET STRING of 65 octets; a SubjectPublicKeyInfo of P-256 has this in front of them.
    let head = [0x30, 0x59, 0x30, 0x13, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
    let info = [&head[..], P256, &[3, 0x42, 0], &point[2..]].concat();
    let info = SubjectPublicKeyInfo::from_der(&info).expect("a public key");
    let params = CertificateParams::new(vec!["card.example".into()]).expect("a name");
    let issuer = Issuer::new(params.clone(), KeyPair::generate().expect("a key"));
    let der = params.signed_by(&info, &issuer).expect("signs").der().to_vec();
    let template = [
        Attribute::Class(ObjectClass::CERTIFICATE),
        Attribute::CertificateType(CertificateType::X_509),
        Attribute::Token(true),
        Attribute::Id(vec![id]),
        Attribute::Subject(vec![0x30, 0]),
        Attribute::Value(der),
    ];
    session.create_object(&template).expect("it has room");
}
