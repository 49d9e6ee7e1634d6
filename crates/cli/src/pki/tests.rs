//! An authority's directory, read as a gateway reads it.

use super::*;
use ike::proof::certificate::Certificate;
use ike::proof::crl::Crl;
use ike::proof::trust::Trust;
use policy::{Identity, KeyKind as Kind};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use vpn::certificates::{Loaded, Sources, load};

fn new() -> NewAuthority {
    NewAuthority { name: "Test CA".to_owned(), days: 100, crl_days: 30, key: KeyKind::default() }
}

fn wanted(name: &str) -> Wanted {
    let dns = vec![format!("{name}.example.net")];
    Wanted {
        name: name.to_owned(),
        alternatives: Alternatives { dns, ..Alternatives::default() },
        days: None,
        key: KeyKind::default(),
        server_auth: false,
        renew: false,
    }
}

fn now() -> SystemTime {
    SystemTime::now()
}

/// The files that a gateway finds in a directory that was copied to it.
fn loaded(directory: &Path) -> Loaded {
    let loaded = load(&Sources::below(directory));
    assert!(loaded.errors.is_empty() && loaded.warnings.is_empty(), "{loaded:?}");
    loaded
}

fn list(directory: &Path) -> Crl {
    Crl::read(&loaded(directory).material.crls[0].der).expect("a list")
}

fn has(list: &Crl, serial: &str) -> bool {
    let digits: Vec<u8> = serial.bytes().collect();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("text"), 16);
    let octets: Vec<u8> = digits.chunks(2).map(|pair| octet(pair).expect("hex")).collect();
    list.der().windows(octets.len()).any(|window| window == octets)
}

#[test]
fn a_gateway_uses_what_is_issued_with_every_kind_of_key() {
    let place = tempfile::tempdir().expect("a temporary directory");
    // Two of the same kind make the test of RSA no longer than it has to be.
    for (kind, theirs) in [
        (KeyKind::Ecdsa256, Kind::EcdsaP256),
        (KeyKind::Ecdsa384, Kind::EcdsaP384),
        (KeyKind::Ed25519, Kind::Ed25519),
        (KeyKind::Rsa3072, Kind::Rsa),
    ] {
        let directory = place.path().join(format!("{kind:?}"));
        let wanted_authority = NewAuthority { key: kind, ..new() };
        Authority::create(&directory, &wanted_authority, now()).expect("an empty directory");
        let mut authority = Authority::open(&directory).expect("it was made");
        let alternatives = Alternatives {
            dns: vec!["left.example.net".to_owned()],
            ip: vec!["192.0.2.1".parse().expect("an address")],
            email: vec!["ops@example.net".to_owned()],
        };
        let wanted = Wanted { key: kind, alternatives, ..wanted("left") };
        let issued = authority.issue(&wanted, now()).expect("nothing is in the way");
        let material = loaded(&issued.directory).material;
        let certificate = Certificate::read(&material.certificates[0].der).expect("DER");
        // Version 0 comes first in the SEQUENCE, which others than vpnd can read (RFC 5208).
        let key = material.keys[0].der.expose();
        assert!((2..=4).any(|at| key[at..].starts_with(&[2, 1, 0])), "{kind:?}");
        assert!(certificate.may_sign() && !certificate.is_authority());
        assert!(list(&issued.directory).is_current(unix(now())));
        let (trust, defects) = Trust::new(material);
        assert_eq!(defects, [], "{kind:?}");
        for identity in [
            Identity::Fqdn("left.example.net".to_owned()),
            Identity::Ipv4("192.0.2.1".parse().expect("an address")),
            Identity::UserFqdn("ops@example.net".to_owned()),
            Identity::Dn("/CN=left".parse().expect("a subject")),
        ] {
            assert_eq!(trust.check_own(&identity, &[theirs]), Ok(()), "{kind:?} {identity}");
        }
        assert!(
            trust.check_own(&Identity::Fqdn("right.example.net".to_owned()), &[theirs]).is_err()
        );
    }
}

fn unix(moment: SystemTime) -> Duration {
    moment.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970")
}

#[test]
fn only_the_owner_can_read_anything() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let directory = place.path().join("pki");
    let mut authority = Authority::create(&directory, &new(), now()).expect("a new directory");
    authority.issue(&wanted("left"), now()).expect("nothing is in the way");
    let mut found = vec![directory];
    let mut files = 0;
    while let Some(path) = found.pop() {
        let metadata = fs::symlink_metadata(&path).expect("there");
        assert_eq!(metadata.permissions().mode() & 0o077, 0, "{}", path.display());
        if metadata.is_dir() {
            found.extend(fs::read_dir(&path).expect("readable").flatten().map(|e| e.path()));
        } else {
            files += 1;
        }
    }
    assert_eq!(files, 9, "four of the authority, four of the end, and the lock");
}

#[test]
fn a_revoked_certificate_is_on_every_list_from_then_on() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut authority = Authority::create(place.path(), &new(), now()).expect("it is empty");
    let left = authority.issue(&wanted("left"), now()).expect("the first of its name");
    let right = authority.issue(&wanted("right"), now()).expect("the first of its name");
    assert_ne!(left.entry.serial, right.entry.serial);
    let error = authority.issue(&wanted("right"), now()).expect_err("there is one").to_string();
    assert!(error.contains("--renew") && error.contains("vpnctl pki revoke right"), "{error}");
    let renewed = authority.issue(&Wanted { renew: true, ..wanted("right") }, now());
    let renewed = renewed.expect("it may be renewed");
    assert!(!has(&list(&left.directory), &right.entry.serial));

    let before = authority.index().crl_number;
    let serial = right.entry.serial.to_ascii_uppercase();
    assert_eq!(authority.revoke(&serial, now()).expect("it is valid").len(), 1);
    assert_eq!(authority.index().crl_number, before + 1);
    for end in [&left.directory, &renewed.directory] {
        assert!(has(&list(end), &right.entry.serial), "{}", end.display());
        assert!(!has(&list(end), &renewed.entry.serial), "{}", end.display());
    }
    drop(authority);

    let mut authority = Authority::open(place.path()).expect("it is there");
    let again = authority.revoke(&serial, now()).expect_err("it is revoked").to_string();
    assert!(again.contains("is revoked already"), "{again}");
    assert_eq!(authority.revoke("right", now()).expect("one is left")[0], {
        Entry { revoked: authority.index().ends[2].revoked, ..renewed.entry.clone() }
    });
    authority.renew_crl(Some(7), now()).expect("any time");
    assert!(has(&list(&left.directory), &renewed.entry.serial));
    let near = authority.revoke("lefft", now()).expect_err("a slip").to_string();
    assert!(near.contains("did you mean \"left\"?"), "{near}");
    let states = |index: &Index| index.ends.iter().map(|e| e.state(now())).collect::<Vec<_>>();
    let index = Authority::look(place.path()).expect("it is there");
    assert_eq!(states(&index), [State::Valid, State::Revoked, State::Revoked]);
    assert_eq!((index.crl_days, &index), (7, authority.index()));
}

#[test]
fn no_list_is_made_that_would_lack_a_revoked_certificate() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut authority = Authority::create(place.path(), &new(), now()).expect("it is empty");
    let left = authority.issue(&wanted("left"), now()).expect("the first of its name");
    authority.revoke("left", now()).expect("it is valid");
    let before = list(&left.directory);
    authority.index.ends[0].serial.replace_range(..1, "x");
    let error = authority.renew_crl(None, now()).expect_err("not to be told").to_string();
    assert!(error.contains("of left in the index is not hexadecimal"), "{error}");
    assert_eq!(list(&left.directory).der(), before.der(), "the former list stays");
}

#[test]
fn nothing_is_valid_that_the_index_does_not_know() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut authority = Authority::create(place.path(), &new(), now()).expect("it is empty");
    // A file is in the place of the end's directory, as if the disk were full after the index.
    fs::create_dir(place.path().join("ends")).expect("writable");
    fs::write(place.path().join("ends/left"), "").expect("writable");
    let error = authority.issue(&wanted("left"), now()).expect_err("a file is in the way");
    assert!(matches!(error, PkiError::System { .. }), "{error}");
    drop(authority);
    fs::remove_file(place.path().join("ends/left")).expect("it is there");
    // The rest of a write that was interrupted.
    fs::write(place.path().join("index.new"), "{").expect("writable");
    let mut authority = Authority::open(place.path()).expect("the index is whole");
    assert_eq!(authority.index().ends.len(), 1);
    authority.revoke("left", now()).expect("it is known");
    authority.issue(&wanted("left"), now()).expect("the other one is revoked");
}

#[test]
fn lives_end_in_time() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let start = now();
    let mut authority = Authority::create(place.path(), &new(), start).expect("it is empty");
    let days = |n: u32| start + n * DAY;
    let short = Wanted { days: Some(40), ..wanted("short") };
    let issued = authority.issue(&short, start).expect("less than the authority's 100 days");
    assert_eq!(issued.entry.not_after, Moment::of(days(40)));
    let state = |n| issued.entry.state(days(n));
    assert_eq!([state(0), state(20), state(41)], [State::Valid, State::Expiring, State::Expired]);
    // A list of thirty days.
    let list = |n| authority.index().crl_state(days(n)).expect("the first one");
    assert_eq!([list(19), list(21), list(30)], [State::Valid, State::Expiring, State::Expired]);
    // A year is more than the authority has, which a default may be shortened to.
    let default = authority.issue(&wanted("left"), start).expect("a default");
    assert_eq!(default.entry.not_after, authority.index().not_after);
    let long = Wanted { days: Some(101), ..wanted("long") };
    let error = authority.issue(&long, start).expect_err("too long").to_string();
    assert!(error.contains("choose fewer --days"), "{error}");
    let error = authority.issue(&wanted("late"), days(101)).expect_err("too late").to_string();
    assert!(error.contains("the authority has expired on"), "{error}");
}

#[test]
fn an_authority_is_neither_overwritten_nor_shared() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let missing = Authority::open(place.path()).err().expect("there is none").to_string();
    assert!(missing.contains("vpnctl pki init --dir"), "{missing}");
    let authority = Authority::create(place.path(), &new(), now()).expect("it is empty");
    let refused = |outcome: Result<Authority, PkiError>| outcome.err().expect("refused");
    assert!(matches!(refused(Authority::create(place.path(), &new(), now())), PkiError::Exists(_)));
    assert!(matches!(refused(Authority::open(place.path())), PkiError::Busy(_)));
    drop(authority);
    Authority::open(place.path()).map(drop).expect("nobody has it");

    let other = tempfile::tempdir().expect("a temporary directory");
    fs::write(other.path().join("file"), "").expect("writable");
    let error = refused(Authority::create(other.path(), &new(), now()));
    assert!(matches!(error, PkiError::NotEmpty(_)), "{error}");

    let index = place.path().join("index.json");
    let text = fs::read_to_string(&index).expect("text");
    fs::write(&index, text.replace("\"version\": 1", "\"version\": 9")).expect("writable");
    let error = refused(Authority::open(place.path())).to_string();
    assert!(error.contains("version 9 is not known here"), "{error}");
}
