use super::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMAMCAQA=\n-----END CERTIFICATE-----\n";
const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMAMCAQA=\n-----END PRIVATE KEY-----\n";

/// Files in a directory as [`Sources::below`] expects them.
struct Directory(tempfile::TempDir);

impl Directory {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a temporary directory"));
        for name in ["ca", "certs", "private", "crls"] {
            fs::create_dir(place.0.path().join(name)).expect("writable");
        }
        place
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>, mode: u32) -> &Self {
        let path = self.0.path().join(name);
        fs::write(&path, content).expect("writable");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("ours");
        self
    }

    fn load(&self) -> Loaded {
        load(&Sources::below(self.0.path()))
    }

    fn errors(&self) -> Vec<String> {
        self.load().errors.iter().map(|error| self.shortened(&error.to_string())).collect()
    }

    /// Without the path of the directory.
    fn shortened(&self, text: &str) -> String {
        text.replace(&self.0.path().display().to_string(), "")
    }
}

#[test]
fn directories_that_are_not_there_hold_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let loaded = load(&Sources::below(directory.path()));
    assert!(loaded.errors.is_empty() && loaded.warnings.is_empty());
    assert!(loaded.material.authorities.is_empty() && loaded.material.keys.is_empty());
    let path = directory.path().join("none");
    let named = Source { path, optional: false };
    let errors = load(&Sources { crls: vec![named], ..Sources::default() }).errors;
    assert!(errors[0].to_string().contains("none: cannot be read"), "{errors:?}");
}

#[test]
fn certificates_and_keys_are_told_apart_by_label_or_directory() {
    let place = Directory::new();
    place
        .file("ca/root.crt", CERTIFICATE, 0o644)
        .file("ca/sub.der", [0x30, 3, 2, 1, 0], 0o644)
        .file("ca/README", "not read", 0o644)
        .file("certs/all.pem", format!("left\n{CERTIFICATE}{KEY}{CERTIFICATE}"), 0o600)
        .file("private/left.der", [0x30, 3, 2, 1, 0], 0o600)
        .file("crls/list.crl", [0x30, 0], 0o644);
    let Loaded { material, errors, warnings } = place.load();
    assert!(errors.is_empty() && warnings.is_empty(), "{errors:?} {warnings:?}");
    let names = |items: &[Item]| -> Vec<String> {
        items.iter().map(|item| place.shortened(&item.name)).collect()
    };
    assert_eq!(names(&material.authorities), ["/ca/root.crt", "/ca/sub.der"]);
    assert_eq!(names(&material.certificates), ["/certs/all.pem:2", "/certs/all.pem:8"]);
    assert_eq!(names(&material.crls), ["/crls/list.crl"]);
    let keys: Vec<_> = material.keys.iter().map(|item| place.shortened(&item.name)).collect();
    assert_eq!(keys, ["/certs/all.pem:5", "/private/left.der"]);
    assert_eq!(material.keys[1].der.expose(), [0x30, 3, 2, 1, 0]);
}

#[test]
fn a_key_that_others_can_read_is_warned_of_and_one_they_can_change_is_refused() {
    let place = Directory::new();
    let warnings = place.file("private/left.key", KEY, 0o644).load().warnings;
    assert!(warnings.len() == 1 && warnings[0].contains("chmod 600"), "{warnings:?}");
    place.file("private/left.key", KEY, 0o602);
    let errors = place.errors();
    assert!(
        errors[0].starts_with("/private/left.key: every user of this machine may change"),
        "{errors:?}"
    );
}

#[test]
fn a_directory_that_others_can_change_is_refused() {
    for name in ["ca", "certs", "private", "crls", "ocsp", "ppk"] {
        let place = Directory::new();
        let directory = place.0.path().join(name);
        fs::create_dir_all(&directory).expect("writable");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o757)).expect("ours");
        let errors = place.errors();
        let expected = format!("/{name}: every user of this machine may change it");
        assert!(errors.len() == 1 && errors[0].starts_with(&expected), "{errors:?}");
    }
}

#[test]
fn damaged_files_are_refused_without_a_panic() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("a.pem");
    let kinds = [Kind::Authority, Kind::Certificate, Kind::PrivateKey, Kind::Crl, Kind::Ocsp];
    let pem = format!("{CERTIFICATE}{KEY}");
    for whole in [pem.as_bytes(), &[0x30, 0x82, 0, 3, 2, 1, 3]] {
        let cuts = (0..whole.len()).map(|length| whole[..length].to_vec());
        let flips = (0..whole.len()).map(|at| {
            let mut octets = whole.to_vec();
            octets[at] ^= 0x81;
            octets
        });
        for octets in cuts.chain(flips) {
            fs::write(&path, &octets).expect("writable");
            for kind in kinds {
                // The content is arbitrary: there must be an answer, and a reason if it is no.
                if let Err(error) = file::read(&path, kind) {
                    assert!(error.to_string().len() > path.as_os_str().len() + 2);
                }
            }
        }
    }
}

#[test]
fn the_key_of_an_authority_is_not_taken() {
    let place = Directory::new();
    let loaded = place.file("ca/root.key", KEY, 0o600).load();
    assert!(loaded.material.keys.is_empty());
    assert!(loaded.warnings.len() == 1 && loaded.warnings[0].contains("keep it on another"));
}

#[test]
fn all_files_that_are_wrong_are_named_with_the_cure() {
    let place = Directory::new();
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let traditional = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: X\n\nMAA=\n\
                       -----END RSA PRIVATE KEY-----\n";
    let request = "-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n";
    place
        .file("certs/left.p12", [0x30, 0x82, 1, 1, 2, 1, 3, 0x30], 0o600)
        .file("certs/right.pem", request, 0o600)
        .file("certs/text.pem", "hello", 0o600)
        .file("private/a.pem", encrypted, 0o600)
        .file("private/b.pem", traditional, 0o600)
        .file("private/c.der", [0x30, 4, 0x30, 0, 4, 0], 0o600)
        .file("private/d.pem", &CERTIFICATE[..40], 0o600);
    let lines = place.errors();
    let expected = [
        ("/certs/left.p12: PKCS#12 is not read", "openssl pkcs12"),
        ("/certs/right.pem: line 1: a CERTIFICATE REQUEST is none of", "signed by an authority"),
        ("/certs/text.pem: neither PEM nor DER", ""),
        ("/private/a.pem: the private key is encrypted", "openssl pkey -in /private/a.pem"),
        ("/private/b.pem: the private key is encrypted", "openssl pkey"),
        ("/private/c.der: the private key is encrypted", "openssl pkey"),
        ("/private/d.pem: line 1: the CERTIFICATE that begins here never ends", ""),
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, (begin, cure)) in lines.iter().zip(expected) {
        assert!(line.starts_with(begin) && line.contains(cure), "{line}");
    }
}

#[test]
fn a_pipe_is_refused_without_waiting_for_a_writer() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let place = Directory::new();
    let pipe = place.0.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).expect("pipes can be made");
    let named = Source { path: pipe, optional: false };
    let errors = load(&Sources { crls: vec![named], ..Sources::default() }).errors;
    assert!(errors.len() == 1 && errors[0].to_string().contains("no regular file"), "{errors:?}");
}

#[test]
fn a_file_of_ticket_keys_may_be_absent_and_one_that_all_can_read_is_told() {
    let place = Directory::new();
    let path = place.0.path().join("ticket_keys");
    let load_it = |optional| {
        let source = Source { path: path.clone(), optional };
        load(&Sources { ticket_keys: vec![source], ..Sources::default() })
    };
    let loaded = load_it(true);
    assert_eq!((loaded.errors.len(), loaded.material.ticket_keys.len()), (0, 0));
    assert_eq!(load_it(false).errors.len(), 1);
    for (mode, warnings) in [(0o600, 0), (0o604, 1)] {
        fs::write(&path, "a1".repeat(32)).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        let loaded = load_it(true);
        assert_eq!(loaded.errors.len(), 0);
        assert_eq!((loaded.material.ticket_keys.len(), loaded.warnings.len()), (1, warnings));
    }
    fs::write(&path, "a1").expect("written");
    let errors = load_it(true).errors;
    assert!(errors.len() == 1 && errors[0].to_string().contains("line 1"), "{errors:?}");
}
