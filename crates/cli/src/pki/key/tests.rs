//! Keys of RustCrypto beside those of AWS-LC, which made the authorities in `tests/authorities`.

use super::*;
use crate::pki::index::Index;
use crate::pki::making::{Alternatives, Maker, Wanted};
use crate::pki::{Authority, PkiError};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256,
    UnparsedPublicKey, VerificationAlgorithm,
};

use rcgen::KeyPair;
use rsa::pkcs1::EncodeRsaPrivateKey;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// An authority that AWS-LC has made, with a certificate for `left` and a revoked one for `right`.
struct Former {
    kind: KeyKind,
    directory: &'static str,
    /// Seconds from 1970 until the certificate of `left` and the revocation list become valid.
    left: u64,
    list: u64,
    /// Signatures have no randomness in them.
    is_repeatable: bool,
}

const FORMER: [Former; 4] = [
    Former {
        kind: KeyKind::Ecdsa256,
        directory: "ecdsa256",
        left: 1_795_865_288,
        list: 1_795_865_288,
        is_repeatable: false,
    },
    Former {
        kind: KeyKind::Ecdsa384,
        directory: "ecdsa384",
        left: 1_795_865_289,
        list: 1_795_865_289,
        is_repeatable: false,
    },
    Former {
        kind: KeyKind::Ed25519,
        directory: "ed25519",
        left: 1_795_865_290,
        list: 1_795_865_290,
        is_repeatable: true,
    },
    Former {
        kind: KeyKind::Rsa3072,
        directory: "rsa3072",
        left: 1_795_865_293,
        list: 1_795_865_296,
        is_repeatable: true,
    },
];

/// A moment at which all certificates of these authorities are valid, in seconds from 1970.
const LATER: u64 = 1_800_000_000;

impl Former {
    fn directory(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/authorities").join(self.directory)
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.directory().join(file)).expect("it is there")
    }
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn wanted(name: &str, key: KeyKind) -> Wanted {
    let alternatives = Alternatives {
        dns: vec![format!("{name}.example.net")],
        ip: vec!["192.0.2.1".parse().expect("an address")],
        email: vec!["ops@example.net".to_owned()],
    };
    let name = name.to_owned();
    Wanted { name, alternatives, days: None, key, server_auth: true, renew: false }
}

/// The octets that are signed: the first element of the SEQUENCE in the text of a file.
fn signed(text: &str) -> Vec<u8> {
    /// The lengths of an element's head and contents.
    fn lengths(der: &[u8]) -> (usize, usize) {
        match der[1] {
            0x81 => (3, usize::from(der[2])),
            0x82 => (4, usize::from(u16::from_be_bytes([der[2], der[3]]))),
            short => (2, usize::from(short)),
        }
    }
    let (_, document) = SecretDocument::from_pem(text).expect("PEM");
    let contents = &document.as_bytes()[lengths(document.as_bytes()).0..];
    let (head, len) = lengths(contents);
    contents[..head + len].to_vec()
}

#[test]
fn an_authority_that_another_library_made_signs_the_same_octets() {
    for former in FORMER {
        let name = former.directory;
        let directory = former.directory();
        let index = Index::read(&directory.join("index.json")).expect("an index");
        let maker = Maker::open(&directory.join("ca.pem"), &directory.join("ca.key"));
        let maker = maker.expect("its certificate and key");
        let key = Key::from_pem(&former.read("left.key")).expect("a key");
        assert!(*key.to_pem().expect("PEM") == former.read("left.key"), "{name}");
        let serial = u128::from_str_radix(&index.ends[0].serial, 16).expect("hexadecimal digits");
        let validity = [at(former.left), index.ends[0].not_after.0];
        let wanted = wanted("left", former.kind);
        let certificate = maker.issue(&wanted, &key, &serial.to_be_bytes(), validity);
        let certificate = certificate.expect("a certificate");
        let validity = [at(former.list), index.crl_until.expect("it has a list").0];
        let list = maker.list(&index, validity).expect("a list");
        for (made, file) in [(certificate, "left.pem"), (list, "ca.crl")] {
            let before = former.read(file);
            assert_eq!(signed(&made), signed(&before), "{name}/{file}");
            assert!(made == before || !former.is_repeatable, "{name}/{file}");
        }
    }
}

#[test]
fn openssl_accepts_what_an_authority_of_another_library_issues() {
    if Command::new("openssl").arg("version").output().is_err() {
        return left_out::skip("openssl is not installed");
    }
    for former in FORMER {
        let place = tempfile::tempdir().expect("a temporary directory");
        let path = |file: &str| place.path().join(file);
        for file in ["ca.crl", "ca.key", "ca.pem", "index.json", "left.pem", "right.pem"] {
            fs::write(path(file), former.read(file)).expect("writable");
        }
        let mut authority = Authority::open(place.path()).expect("it is whole");
        let issued = authority.issue(&wanted("new", former.kind), at(LATER));
        let new = issued.expect("nothing is in the way").directory.join("certs/new.pem");
        let verify = |certificate: &Path| {
            let mut openssl = Command::new("openssl");
            openssl.args(["verify", "-crl_check", "-attime", &LATER.to_string(), "-CAfile"]);
            openssl.arg(path("ca.pem")).arg("-CRLfile").arg(path("ca.crl")).arg(certificate);
            let output = openssl.output().expect("it is installed");
            let said = [output.stdout, output.stderr].concat();
            (output.status.success(), String::from_utf8_lossy(&said).into_owned())
        };
        for certificate in [new, path("left.pem")] {
            let (is_valid, said) = verify(&certificate);
            assert!(is_valid, "{}: {said}", former.directory);
        }
        let (is_valid, said) = verify(&path("right.pem"));
        assert!(!is_valid && said.contains("certificate revoked"), "{}: {said}", former.directory);
    }
}

#[test]
fn a_key_of_each_kind_signs_for_other_libraries_before_and_after_it_is_stored() {
    for kind in KeyKind::value_variants() {
        let how: &dyn VerificationAlgorithm = match kind {
            KeyKind::Ecdsa256 => &ECDSA_P256_SHA256_ASN1,
            KeyKind::Ecdsa384 => &ECDSA_P384_SHA384_ASN1,
            KeyKind::Ed25519 => &ED25519,
            KeyKind::Rsa3072 | KeyKind::Rsa4096 => &RSA_PKCS1_2048_8192_SHA256,
        };
        let made = Key::generate(*kind).expect("a key");
        if let Private::Rsa(key) = &made.private {
            let wanted = if *kind == KeyKind::Rsa3072 { 3072 } else { 4096 };
            assert_eq!(key.n().bit_width(), wanted);
        }
        let text = made.to_pem().expect("PEM");
        let stored = Key::from_pem(&text).expect("it was written like this");
        for key in [&made, &stored] {
            let signature = key.sign(b"a certificate").expect("a signature");
            let public = UnparsedPublicKey::new(how, key.der_bytes());
            assert!(public.verify(b"a certificate", &signature).is_ok(), "{kind:?}");
            assert!(public.verify(b"another one", &signature).is_err(), "{kind:?}");
        }
        let theirs = KeyPair::from_pem(&text).expect("AWS-LC reads it");
        assert_eq!(theirs.subject_public_key_info(), stored.subject_public_key_info(), "{kind:?}");
        assert_eq!(theirs.algorithm(), stored.algorithm(), "{kind:?}");
    }
}

/// PKCS#8 of a curve's private value, without the public key.
fn without_public_key(head: &[u8], value: &[u8]) -> Vec<u8> {
    [head, value].concat()
}

#[test]
fn a_key_is_read_in_every_form() {
    let mut forms = Vec::new();
    for algorithm in [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ED25519,
        &rcgen::PKCS_RSA_SHA256,
    ] {
        let theirs = KeyPair::generate_for(algorithm).expect("a key");
        let pkcs8 = theirs.serialize_der();
        // AWS-LC writes a key of Ed25519 with its public key, in the second version of PKCS#8.
        let is_second_version = pkcs8[2..5] == [2, 1, 1];
        assert_eq!(is_second_version, algorithm == &rcgen::PKCS_ED25519);
        let ours = Key::from_der(&pkcs8).expect("AWS-LC has written it");
        let others = match &ours.private {
            Private::P256(key) => vec![
                key.to_sec1_der().expect("DER").to_vec(),
                without_public_key(
                    b"\x30\x41\x02\x01\0\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\
                      \x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x04\x27\x30\x25\x02\x01\x01\x04\x20",
                    &key.to_bytes(),
                ),
            ],
            Private::P384(key) => vec![
                key.to_sec1_der().expect("DER").to_vec(),
                without_public_key(
                    b"\x30\x4e\x02\x01\0\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\
                      \x06\x05\x2b\x81\x04\0\x22\x04\x37\x30\x35\x02\x01\x01\x04\x30",
                    &key.to_bytes(),
                ),
            ],
            Private::Rsa(key) => vec![key.to_pkcs1_der().expect("DER").as_bytes().to_vec()],
            Private::Ed25519(_) => vec![],
        };
        for der in [vec![pkcs8], others].concat() {
            forms.push((theirs.subject_public_key_info(), der));
        }
    }
    for (public, der) in forms {
        let key = Key::from_der(&der).expect("a usual form");
        assert_eq!(key.subject_public_key_info(), public);
        let cut = Key::from_der(&der[..der.len() - 1]).err();
        assert_eq!(cut, Some(rcgen::Error::CouldNotParseKeyPair));
    }
}

#[test]
fn a_key_that_cannot_be_used_is_named_with_its_file() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let short = rsa::PrivateKey::new(&mut SysRng, 1024).expect("a key");
    let curve = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512).expect("a key");
    for (text, why) in [
        (String::new(), "PEM error"),
        (short.to_pkcs8_pem(LineEnding::LF).expect("PEM").to_string(), "Could not parse key pair"),
        (curve.serialize_pem(), "Could not parse key pair"),
    ] {
        let path = place.path().join("ca.key");
        fs::write(&path, text).expect("writable");
        let error = Maker::open(&FORMER[0].directory().join("ca.pem"), &path).err();
        let error = error.expect("it is refused");
        assert!(matches!(error, PkiError::Making { .. }));
        let error = error.to_string();
        assert!(error.starts_with(&format!("{}: {why}", path.display())), "{error}");
    }
}

#[test]
fn only_the_first_block_of_a_file_counts() {
    let key = include_str!("../../../tests/authorities/ecdsa256/ca.key");
    let certificate = include_str!("../../../tests/authorities/ecdsa256/ca.pem");
    let alone = Key::from_pem(key).expect("a key");
    let text = format!("of our authority\n{key}{certificate}");
    let followed = Key::from_pem(&text).expect("the first block is the key");
    assert_eq!(alone.der_bytes(), followed.der_bytes());
    let chain = format!("{certificate}{certificate}");
    super::super::issuer::read(&chain, alone).expect("the first certificate");
}
