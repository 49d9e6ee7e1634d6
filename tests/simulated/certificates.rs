//! Proofs by certificates: every kind of key, chains, names, and certificates that are not accepted.

use crate::{SETTLED, SOON, calm};
use ike::failure::{Failure, FailureKind};
use policy::{Identity, KeyKind, Signature};
use rcgen::{
    CertificateParams, CrlScope, DnType, ExtendedKeyUsagePurpose, KeyUsagePurpose, SanType,
};
use sim::certificates::{Authority, Wallet, key, of_side, read_crl, with_crl_at};
use sim::host::{Side, ike_offer};
use sim::invariant::{assert_agreement, assert_clean_stop};
use sim::{Conditions, HostId, Site, World};
use std::time::Duration;

pub fn any() -> Signature {
    Signature { keys: KeyKind::ALL.to_vec(), use_crl: false, sha1: false }
}

pub fn site() -> Site {
    Site { signature: Some(any()), ..Site::default() }
}

/// A side with a certificate of this authority, which it trusts.
pub fn side(authority: &Authority, kind: KeyKind, name: &str) -> Wallet {
    wallet(authority, kind, name, &of_side(name))
}

pub fn wallet(
    authority: &Authority,
    kind: KeyKind,
    name: &str,
    params: &CertificateParams,
) -> Wallet {
    let key = key(kind, name);
    Wallet {
        own: vec![(authority.sign(params, &key), key)],
        trusted: vec![authority.der.clone()],
        ..Wallet::default()
    }
}

pub fn world(site: &Site, left: &Wallet, right: &Wallet) -> (World, HostId, HostId) {
    let (mut world, l, r) = World::of_site(1, site, &calm());
    world.trust(l, left.trust());
    world.trust(r, right.trust());
    (world, l, r)
}

/// Both directions come up.
pub fn comes_up(site: &Site, left: &Wallet, right: &Wallet) {
    for from in [Side::Left, Side::Right] {
        let (mut world, l, r) = world(site, left, right);
        world.connect(if from == Side::Left { l } else { r }, Site::TUNNEL);
        world.run_for(SOON);
        assert_agreement(&mut world, l, r, site);
        assert_clean_stop(&mut world, l, r);
    }
}

pub fn last_failure(world: &mut World, host: HostId) -> Failure {
    let failure = world.status(host)[0].last_failure.clone();
    failure.map(|(f, _)| f).unwrap_or_else(|| panic!("{} has not failed", world.host(host).name))
}

/// Neither direction comes up: the right does not accept what the left has, says so in these words, and tells the left
/// nothing of it.
pub fn is_refused(site: &Site, left: &Wallet, right: &Wallet, kind: FailureKind, words: &[&str]) {
    for from in [Side::Left, Side::Right] {
        let (mut world, l, r) = world(site, left, right);
        world.connect(if from == Side::Left { l } else { r }, Site::TUNNEL);
        world.run_for(SOON);
        let failure = last_failure(&mut world, r);
        assert_eq!(failure.kind, kind, "{failure}");
        for part in words {
            assert!(failure.to_string().contains(part), "{failure}\nlacks {part:?}");
        }
        if from == Side::Left {
            let told = last_failure(&mut world, l);
            assert_eq!(told.kind, FailureKind::AuthenticationFailed);
            assert!(!told.to_string().contains(words[0]), "{told}");
        }
        world.run_for(SETTLED);
        for host in [l, r] {
            let inventory = world.host(host).engine.inventory();
            assert_eq!((inventory.ike_sas, inventory.child_sas, inventory.spis), (0, 0, 0));
            assert_eq!(inventory.half_open, 0);
        }
    }
}

pub fn is_bad(left: &Wallet, right: &Wallet, words: &[&str]) {
    is_refused(&site(), left, right, FailureKind::BadCertificate, words);
}

#[test]
fn every_kind_of_key_proves_either_side() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    for kind in KeyKind::ALL {
        comes_up(&site(), &side(&root, kind, "left"), &side(&root, kind, "right"));
    }
}

#[test]
fn the_sides_need_not_have_the_same_kind_of_key_or_authority() {
    let (rsa, ed) = (Authority::root("rsa", KeyKind::Rsa), Authority::root("ed", KeyKind::Ed25519));
    let mut left = side(&rsa, KeyKind::Rsa, "left");
    let mut right = side(&ed, KeyKind::EcdsaP384, "right");
    std::mem::swap(&mut left.trusted, &mut right.trusted);
    comes_up(&site(), &left, &right);
}

#[test]
fn a_chain_with_certificates_between_goes_in_fragments() {
    let root = Authority::root("root", KeyKind::Rsa);
    let middle = root.below("middle", KeyKind::Rsa);
    let low = middle.below("low", KeyKind::Rsa);
    let with_chain = |name| {
        let between = vec![middle.der.clone(), low.der.clone()];
        Wallet { between, trusted: vec![root.der.clone()], ..side(&low, KeyKind::Rsa, name) }
    };
    let (left, right) = (with_chain("left"), with_chain("right"));
    comes_up(&site(), &left, &right);
    // A certificate that the peer has not sent may be here.
    comes_up(&site(), &Wallet { between: vec![], ..left.clone() }, &right);
    is_bad(
        &Wallet { between: vec![], ..left },
        &Wallet { trusted: vec![root.der.clone()], ..side(&root, KeyKind::Rsa, "right") },
        &["CN=left (issued by CN=low)", "leads to CN=low, which is not trusted here", "CN=root"],
    );
}

#[test]
fn a_side_is_named_by_any_name_of_its_certificate() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let mut params = of_side("left");
    params.distinguished_name.push(DnType::OrganizationName, "Example");
    params.subject_alt_names.extend([
        SanType::IpAddress("192.0.2.1".parse().expect("an address")),
        SanType::IpAddress("2001:db8::1".parse().expect("an address")),
        SanType::Rfc822Name("ops@left.example".try_into().expect("ASCII")),
    ]);
    let left = wallet(&root, KeyKind::EcdsaP256, "left", &params);
    let right = side(&root, KeyKind::EcdsaP256, "right");
    let names = [
        Identity::Fqdn("LEFT.example".into()),
        Identity::UserFqdn("ops@left.example".into()),
        Identity::Ipv4("192.0.2.1".parse().expect("an address")),
        Identity::Ipv6("2001:db8::1".parse().expect("an address")),
        Identity::Dn("O=example, CN=Left".parse().expect("a name")),
    ];
    for left_id in names {
        comes_up(&Site { left_id, ..site() }, &left, &right);
    }
}

#[test]
fn a_name_that_the_certificate_does_not_have_is_refused() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let right = side(&root, KeyKind::EcdsaP256, "right");
    // The left believes to be called as the certificate says, the right knows it as somebody else.
    let liar = wallet(&root, KeyKind::EcdsaP256, "left", &of_side("mallory"));
    let (mut world, l, r) = world(&site(), &liar, &right);
    world.connect(l, Site::TUNNEL);
    world.run_for(SOON);
    let own = last_failure(&mut world, l);
    assert!(own.to_string().contains("no certificate of this side is for left.example"), "{own}");
    assert!(own.to_string().contains("CN=mallory"), "{own}");
    assert_eq!(world.host(r).engine.last_failure(Site::TUNNEL), None);
}

#[test]
fn time_ends_and_begins_certificates() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let right = side(&root, KeyKind::EcdsaP256, "right");
    let timed = |from: (i32, u8), until: (i32, u8)| {
        let mut params = of_side("left");
        params.not_before = rcgen::date_time_ymd(from.0, from.1, 1);
        params.not_after = rcgen::date_time_ymd(until.0, until.1, 1);
        wallet(&root, KeyKind::EcdsaP256, "left", &params)
    };
    // An honest side does not send such a certificate.
    for (left, words) in [
        (timed((2024, 1), (2025, 12)), "has expired on 2025-12-01"),
        (timed((2026, 2), (2027, 1)), "is valid only from 2026-02-01"),
    ] {
        let (mut world, l, _) = world(&site(), &left, &right);
        world.connect(l, Site::TUNNEL);
        world.run_for(SOON);
        let failure = last_failure(&mut world, l);
        assert!(failure.to_string().contains("we cannot prove who we are"), "{failure}");
        assert!(failure.to_string().contains(words), "{failure}");
    }
    // With two, the valid one is sent.
    let mut both = timed((2024, 1), (2025, 12));
    both.own.extend(timed((2025, 12), (2026, 12)).own);
    comes_up(&site(), &both, &right);
}

#[test]
fn a_certificate_that_ends_meanwhile_is_refused_and_named() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let mut params = of_side("left");
    params.not_after = rcgen::date_time_ymd(2026, 1, 2);
    let left = wallet(&root, KeyKind::EcdsaP256, "left", &params);
    let right = side(&root, KeyKind::EcdsaP256, "right");
    let (mut world, l, r) = world(&site(), &left, &right);
    world.hold_jobs(r);
    world.run_for(Duration::from_secs(86_390));
    world.connect(l, Site::TUNNEL);
    world.run_for(Duration::from_secs(15));
    assert_eq!(world.release_jobs(r), 1);
    world.run_for(SOON);
    let failure = last_failure(&mut world, r);
    assert_eq!(failure.kind, FailureKind::BadCertificate);
    assert!(
        failure.to_string().contains("CN=left (issued by CN=root) has expired on 2026-01-02"),
        "{failure}"
    );
}

#[test]
fn an_authority_that_is_not_trusted_or_only_sounds_alike_is_refused() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let right = side(&root, KeyKind::EcdsaP256, "right");
    let other = Authority::root("other", KeyKind::EcdsaP256);
    let mut left = side(&other, KeyKind::EcdsaP256, "left");
    left.trusted = vec![root.der.clone()];
    is_bad(&left, &right, &["leads to CN=other, which is not trusted here", "add its certificate"]);
    // The same name, another key.
    let twin = Authority::root("root", KeyKind::EcdsaP384);
    let mut left = side(&twin, KeyKind::EcdsaP256, "left");
    left.trusted = vec![root.der.clone()];
    is_bad(&left, &right, &["CN=left", "not signed by the key of its issuer"]);
    // Nobody is trusted.
    let left = side(&root, KeyKind::EcdsaP256, "left");
    is_bad(&left, &Wallet { trusted: vec![], ..right }, &["no authority is loaded at all"]);
}

#[test]
fn usage_and_strength_count() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let right = side(&root, KeyKind::EcdsaP256, "right");
    let with = |change: &dyn Fn(&mut CertificateParams)| {
        let mut params = of_side("left");
        change(&mut params);
        wallet(&root, KeyKind::EcdsaP256, "left", &params)
    };
    let encipher = with(&|p| p.key_usages = vec![KeyUsagePurpose::KeyEncipherment]);
    is_bad(&encipher, &right, &["CN=left", "key usage has neither digitalSignature"]);
    let mail = with(&|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::EmailProtection]);
    is_bad(&mail, &right, &["for other purposes (extended key usage 1.3.6.1.5.5.7.3.4)"]);
    for usage in [
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
        ExtendedKeyUsagePurpose::Any,
        ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 17]),
        ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 5, 5, 8, 2, 2]),
    ] {
        let both = vec![ExtendedKeyUsagePurpose::EmailProtection, usage];
        comes_up(&site(), &with(&|p| p.extended_key_usages = both.clone()), &right);
    }
    let signing = [KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::ContentCommitment];
    for usage in signing {
        comes_up(&site(), &with(&|p| p.key_usages = vec![usage]), &right);
    }
}

#[test]
fn an_authority_vouches_only_for_what_it_may_and_not_for_itself() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let right = side(&root, KeyKind::EcdsaP256, "right");
    let lists = root.below_with("lists", vec![KeyUsagePurpose::CrlSign]);
    let between = vec![lists.der.clone()];
    let trusted = vec![root.der.clone()];
    let left = Wallet { between, trusted, ..side(&lists, KeyKind::EcdsaP256, "left") };
    is_bad(&left, &right, &["CN=left", "no authority (CA:TRUE is missing, or keyCertSign"]);

    let left =
        Wallet { own: vec![root.own()], trusted: right.trusted.clone(), ..Wallet::default() };
    let left_id = Identity::Dn("CN=root".parse().expect("a name"));
    let site = Site { left_id, ..site() };
    let words = ["CN=root (issued by CN=root) is not for signatures"];
    is_refused(&site, &left, &right, FailureKind::BadCertificate, &words);
}

#[test]
fn a_kind_of_key_that_the_policy_does_not_name_is_refused() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let (left, right) =
        (side(&root, KeyKind::EcdsaP256, "left"), side(&root, KeyKind::Rsa, "right"));
    let rsa = Site { signature: Some(Signature { keys: vec![KeyKind::Rsa], ..any() }), ..site() };
    let mut world = World::new(1);
    let l = world.add_host("left", rsa.left, site().policy(Side::Left), calm());
    let r = world.add_host("right", rsa.right, rsa.policy(Side::Right), calm());
    world.trust(l, left.trust());
    world.trust(r, right.trust());
    world.connect(l, Site::TUNNEL);
    world.run_for(SOON);
    let failure = last_failure(&mut world, r);
    assert!(
        failure.to_string().contains("the kind ECDSA P-256, the policy wants RSA"),
        "{failure}"
    );
}

#[test]
fn a_side_without_a_certificate_says_so_and_one_with_a_key_is_not_taken_for_one() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let right = side(&root, KeyKind::EcdsaP256, "right");
    let left = Wallet { trusted: vec![root.der.clone()], ..Wallet::default() };
    let (mut world, l, r) = world(&site(), &left, &right);
    world.connect(l, Site::TUNNEL);
    world.connect(r, Site::TUNNEL);
    world.run_for(SOON);
    let failure = last_failure(&mut world, l);
    assert!(failure.to_string().contains("there is none with its private key at all"), "{failure}");
    assert_eq!(last_failure(&mut world, r).kind, FailureKind::AuthenticationFailed);

    for (ours, theirs, words) in [
        (
            site(),
            Site::default(),
            "proves itself by a preshared key, the policy expects a certificate",
        ),
        (Site::default(), site(), "the policy expects a preshared key"),
    ] {
        let mut world = World::new(1);
        let l = world.add_host("left", ours.left, theirs.policy(Side::Left), calm());
        let r = world.add_host("right", ours.right, ours.policy(Side::Right), calm());
        world.trust(l, side(&root, KeyKind::EcdsaP256, "left").trust());
        world.trust(r, right.trust());
        world.connect(l, Site::TUNNEL);
        world.run_for(SOON);
        let failure = last_failure(&mut world, r);
        assert!(failure.to_string().contains(words), "{failure}");
        world.run_for(SETTLED);
        assert_eq!(world.host(r).engine.inventory().half_open, 0);
    }
}

#[test]
fn of_several_certificates_the_one_is_sent_that_the_peer_can_trust() {
    let roots = ["one", "two", "three"].map(|name| Authority::root(name, KeyKind::EcdsaP256));
    let mut left = Wallet::default();
    for (root, kind) in roots.iter().zip([KeyKind::EcdsaP256, KeyKind::Rsa, KeyKind::Ed25519]) {
        let one = side(root, kind, "left");
        left.own.extend(one.own);
        left.trusted.extend(one.trusted);
    }
    for root in &roots {
        comes_up(&site(), &left, &side(root, KeyKind::EcdsaP384, "right"));
    }
}

// ---- revocation

pub fn strict() -> Site {
    Site { signature: Some(Signature { use_crl: true, ..any() }), ..Site::default() }
}

/// The address of the authority's list in the certificates of these sides.
pub const LIST: &str = "http://crl.example/root.crl";

pub fn revocable(root: &Authority, name: &str, serial: u64) -> Wallet {
    let mut params = with_crl_at(of_side(name), LIST);
    params.serial_number = Some(serial.into());
    wallet(root, KeyKind::EcdsaP256, name, &params)
}

#[test]
fn a_revoked_certificate_is_refused_and_others_pass() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let crls = |revoked: &[u64]| vec![root.crl(revoked)];
    let left = Wallet { crls: crls(&[]), ..revocable(&root, "left", 7) };
    let right = |revoked: &[u64]| Wallet { crls: crls(revoked), ..revocable(&root, "right", 8) };
    comes_up(&strict(), &left, &right(&[6, 9]));
    let words = ["the certificate CN=left (issued by CN=root) is revoked", "needs a new one"];
    is_refused(&strict(), &left, &right(&[6, 7]), FailureKind::BadCertificate, &words);
    // A number whose encoding begins with a zero.
    let left200 = Wallet { crls: crls(&[]), ..revocable(&root, "left", 200) };
    is_refused(&strict(), &left200, &right(&[200]), FailureKind::BadCertificate, &words);
    // A policy that does not ask is not told.
    comes_up(&site(), &left, &right(&[7]));
}

#[test]
fn without_a_current_list_a_policy_that_wants_one_accepts_nobody() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let left = Wallet { crls: vec![root.crl(&[])], ..revocable(&root, "left", 7) };
    let right = revocable(&root, "right", 8);
    let refused = |right: &Wallet, words: &[&str]| {
        is_refused(&strict(), &left, right, FailureKind::BadCertificate, words);
    };
    refused(
        &right,
        &[
            "is not known, and the policy wants to know",
            "http://crl.example/root.crl does not answer",
        ],
    );
    let outdated = Wallet { crls: vec![root.crl_until(&[], 1)], ..right.clone() };
    refused(&outdated, &["that of CN=root is outdated"]);
    let stranger = Authority::root("root", KeyKind::EcdsaP384);
    let forged = Wallet { crls: vec![stranger.crl(&[])], ..right.clone() };
    refused(&forged, &["is not signed by the authority that it names"]);
    let lenient = Wallet { lenient: true, ..right };
    comes_up(&strict(), &left, &lenient);
    // A list that is outdated does not forget.
    let revoked = Wallet { crls: vec![root.crl_until(&[7], 1)], ..lenient };
    let words = ["the certificate CN=left (issued by CN=root) is revoked by its issuer"];
    is_refused(&strict(), &left, &revoked, FailureKind::BadCertificate, &words);
}

#[test]
fn a_list_counts_only_for_the_certificates_that_it_is_about() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let left = Wallet { crls: vec![root.crl(&[])], ..revocable(&root, "left", 7) };
    let right = |url: &str, scope| Wallet {
        crls: vec![root.crl_of(url, scope)],
        ..revocable(&root, "right", 8)
    };
    comes_up(&strict(), &left, &right(LIST, None));
    comes_up(&strict(), &left, &right(LIST, Some(CrlScope::UserCertsOnly)));
    let words = ["is revoked is not known", "the list of CN=root is about other certificates"];
    for other in [right("http://b.example/", None), right(LIST, Some(CrlScope::CaCertsOnly))] {
        is_refused(&strict(), &left, &other, FailureKind::BadCertificate, &words);
    }
}

#[test]
fn a_list_counts_only_from_an_authority_that_may_sign_lists() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let middle = root.below_with("middle", vec![KeyUsagePurpose::KeyCertSign]);
    let left = Wallet {
        between: vec![middle.der.clone()],
        trusted: vec![root.der.clone()],
        crls: vec![root.crl(&[])],
        ..revocable(&middle, "left", 7)
    };
    // The same key.
    let list = root.below("middle", KeyKind::EcdsaP256).crl(&[]);
    let right = Wallet { crls: vec![root.crl(&[]), list], ..revocable(&root, "right", 8) };
    let words = ["whether the certificate CN=left", "or that one may not sign lists"];
    is_refused(&strict(), &left, &right, FailureKind::BadCertificate, &words);
}

#[test]
fn each_key_of_an_authority_has_a_list_of_its_own() {
    let old = Authority::root("root", KeyKind::EcdsaP256);
    let new = old.renewed("root", key(KeyKind::EcdsaP256, "root, renewed"));
    let left = Wallet {
        trusted: vec![old.der.clone()],
        crls: vec![old.crl(&[])],
        ..revocable(&new, "left", 7)
    };
    let right = |crls: Vec<Vec<u8>>| Wallet {
        between: vec![new.der.clone()],
        crls,
        ..revocable(&old, "right", 8)
    };
    comes_up(&strict(), &left, &right(vec![old.crl(&[7]), new.crl(&[8])]));
    comes_up(&strict(), &left, &right(vec![new.crl(&[]), old.crl(&[])]));
    let revoked = right(vec![old.crl(&[]), new.crl(&[7])]);
    let words = ["the certificate CN=left (issued by CN=root) is revoked by its issuer"];
    is_refused(&strict(), &left, &revoked, FailureKind::BadCertificate, &words);
    let words = ["whether the certificate CN=left (issued by CN=root) is revoked is not known"];
    let without = right(vec![old.crl(&[])]);
    is_refused(&strict(), &left, &without, FailureKind::BadCertificate, &words);
}

#[test]
fn two_authorities_of_one_name_have_lists_of_their_own() {
    let [root, namesake] =
        [KeyKind::EcdsaP256, KeyKind::EcdsaP384].map(|kind| Authority::root("root", kind));
    let trusted = vec![namesake.der.clone(), root.der.clone()];
    let both = |crls: Vec<Vec<u8>>, wallet| Wallet { trusted: trusted.clone(), crls, ..wallet };
    let left = both(vec![namesake.crl(&[8]), root.crl(&[])], revocable(&root, "left", 7));
    let right = |crls| both(crls, revocable(&root, "right", 8));
    comes_up(&strict(), &left, &right(vec![namesake.crl(&[7]), root.crl(&[])]));
    comes_up(&strict(), &left, &right(vec![root.crl(&[]), namesake.crl(&[7])]));
    let revoked = right(vec![namesake.crl(&[]), root.crl(&[7])]);
    is_refused(&strict(), &left, &revoked, FailureKind::BadCertificate, &["is revoked"]);
    // That of the namesake alone says nothing.
    let unknown = right(vec![namesake.crl(&[]), namesake.crl(&[9])]);
    is_refused(&strict(), &left, &unknown, FailureKind::BadCertificate, &["is not known"]);
}

#[test]
fn a_list_is_fetched_while_the_answer_waits() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    for revoked in [vec![], vec![7]] {
        let left = Wallet { crls: vec![root.crl(&[])], ..revocable(&root, "left", 7) };
        let (mut world, l, r) = world(&strict(), &left, &revocable(&root, "right", 8));
        world.publish(r, LIST, read_crl(&root.crl(&revoked)));
        world.connect(l, Site::TUNNEL);
        world.run_for(SOON);
        if revoked.is_empty() {
            assert_agreement(&mut world, l, r, &strict());
        } else {
            assert!(last_failure(&mut world, r).to_string().contains("is revoked"));
        }
    }
}

#[test]
fn only_a_valid_certificate_makes_anything_be_fetched() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let stranger = Authority::root("stranger", KeyKind::EcdsaP256);
    let url = LIST;
    let changed = |change: fn(&mut CertificateParams)| {
        let mut params = with_crl_at(of_side("left"), url);
        change(&mut params);
        wallet(&root, KeyKind::EcdsaP256, "left", &params)
    };
    let ended = changed(|params| params.not_after = rcgen::date_time_ymd(2025, 12, 31));
    let other_name = changed(|params| params.subject_alt_names.clear());
    let unusable = changed(|params| params.key_usages = vec![KeyUsagePurpose::KeyAgreement]);
    let unknown = Wallet { trusted: vec![root.der.clone()], ..revocable(&stranger, "left", 7) };
    let valid = revocable(&root, "left", 7);
    for (left, expected) in [(ended, 0), (other_name, 0), (unusable, 0), (unknown, 0), (valid, 1)] {
        let (mut world, l, r) = world(&strict(), &left, &revocable(&root, "right", 8));
        world.connect(l, Site::TUNNEL);
        world.run_for(SOON);
        let fetched = &world.host(r).fetched;
        assert_eq!(*fetched, vec![url; expected]);
    }
}

// ---- work that waits

#[test]
fn repeated_requests_wait_for_one_answer() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let (left, right) =
        (side(&root, KeyKind::EcdsaP256, "left"), side(&root, KeyKind::EcdsaP256, "right"));
    let site = site();
    let (mut world, l, r) = world(&site, &left, &right);
    world.hold_jobs(r);
    world.connect(l, Site::TUNNEL);
    world.run_for(Duration::from_secs(10));
    let pending = world.host(r).engine.discards().get("answer_pending").copied();
    assert!(pending.is_some_and(|n| n >= 2), "the request came again: {pending:?}");
    assert_eq!(world.release_jobs(r), 1, "once");
    world.run_for(SOON);
    assert_agreement(&mut world, l, r, &site);
    assert_clean_stop(&mut world, l, r);
}

#[test]
fn work_may_take_longer_than_a_stranger_is_waited_for() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let (left, right) =
        (side(&root, KeyKind::EcdsaP256, "left"), side(&root, KeyKind::EcdsaP256, "right"));
    let (mut world, l, r) = world(&site(), &left, &right);
    world.hold_jobs(r);
    world.connect(l, Site::TUNNEL);
    world.run_for(Duration::from_secs(38));
    assert_eq!(world.host(r).engine.inventory().half_open, 1);
    assert_eq!(world.release_jobs(r), 1);
    world.run_for(SOON);
    assert_agreement(&mut world, l, r, &site());
    // A job that nobody does ends all the same.
    world.disconnect(l, Site::TUNNEL);
    world.run_for(SOON);
    world.hold_jobs(r);
    world.connect(l, Site::TUNNEL);
    world.run_for(Duration::from_secs(65));
    let mut told = world.host(r).events.iter().map(|(_, e)| format!("{:?}", e.kind));
    assert!(told.any(|kind| kind.contains("took more than 60 s")));
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.host(r).engine.inventory().half_open, 0);
}

#[test]
fn an_ike_sa_may_be_gone_when_its_work_is_done() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let (left, right) =
        (side(&root, KeyKind::EcdsaP256, "left"), side(&root, KeyKind::EcdsaP256, "right"));
    // Of a half-open IKE SA, and of an initiator at either of its two jobs.
    for late in ["right", "left signs", "left checks"] {
        let (mut world, l, r) = world(&site(), &left, &right);
        let holder = if late == "right" { r } else { l };
        if late != "left checks" {
            world.hold_jobs(holder);
            world.connect(l, Site::TUNNEL);
        } else {
            world.hold_jobs(r);
            world.connect(l, Site::TUNNEL);
            world.run_for(SOON);
            world.hold_jobs(l);
            world.release_jobs(r);
        }
        world.run_for(SOON);
        assert_eq!(world.status(l)[0].state, ike::status::State::Negotiating, "{late}");
        world.run_for(SETTLED);
        assert_eq!(world.release_jobs(holder), 1, "{late}");
        world.run_for(SETTLED);
        for host in [l, r] {
            let inventory = world.host(host).engine.inventory();
            let left = (inventory.ike_sas, inventory.half_open, inventory.spis);
            assert_eq!(left, (0, 0, 0), "{late}");
        }
        if late != "right" {
            assert!(last_failure(&mut world, l).to_string().contains("took more than 60 s"));
        }
        // Nothing stands in the way of the next attempt.
        world.connect(l, Site::TUNNEL);
        world.run_for(SOON);
        assert_agreement(&mut world, l, r, &site());
    }
}

#[test]
fn a_proof_to_a_policy_that_is_gone_counts_for_nothing() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let (left, right) =
        (side(&root, KeyKind::EcdsaP256, "left"), side(&root, KeyKind::EcdsaP256, "right"));
    let only_rsa = Signature { keys: vec![KeyKind::Rsa], ..any() };
    let preshared = Site { signature: None, ..site() };
    for (after, comes_up) in [
        (Site { auto_start: true, ..site() }, true),
        (preshared, false),
        (Site { signature: Some(only_rsa), ..site() }, false),
    ] {
        let (mut world, l, r) = world(&site(), &left, &right);
        world.hold_jobs(r);
        world.connect(l, Site::TUNNEL);
        world.run_for(SOON);
        let policy = after.policy(Side::Right);
        world
            .command(r, "replace policy", |e, now| e.replace_policy(now, policy))
            .expect("a valid policy");
        assert_eq!(world.release_jobs(r), 1);
        world.run_for(Duration::from_millis(100));
        let up = world.host(r).engine.inventory().child_sas > 0;
        assert_eq!(up, comes_up, "{after:?}");
    }
}

#[test]
fn taken_down_while_it_works_nothing_is_left() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let (left, right) =
        (side(&root, KeyKind::EcdsaP256, "left"), side(&root, KeyKind::EcdsaP256, "right"));
    for signing in [true, false] {
        let (mut world, l, r) = world(&site(), &left, &right);
        if signing {
            world.hold_jobs(l);
            world.connect(l, Site::TUNNEL);
            world.run_for(SOON);
        } else {
            world.hold_jobs(r);
            world.connect(l, Site::TUNNEL);
            world.run_for(SOON);
            world.hold_jobs(l);
            world.release_jobs(r);
            world.run_for(SOON);
        }
        let gone = world.command(l, "disconnect", |e, now| e.disconnect(now, Site::TUNNEL));
        let gone = gone.map(drop);
        assert_eq!(gone, Ok(()));
        world.release_jobs(l);
        world.run_for(SETTLED);
        for host in [l, r] {
            let inventory = world.host(host).engine.inventory();
            assert_eq!((inventory.ike_sas, inventory.half_open, inventory.spis), (0, 0, 0));
        }
    }
}

#[test]
fn certificates_are_replaced_under_a_tunnel_that_stays_up() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let (left, right) =
        (side(&root, KeyKind::EcdsaP256, "left"), side(&root, KeyKind::EcdsaP256, "right"));
    let site = Site { ike: vec![ike_offer(&[policy::Group::Ecp256])], ..site() };
    let (mut world, l, r) = world(&site, &left, &right);
    world.connect(l, Site::TUNNEL);
    world.run_for(SOON);
    let other = Authority::root("other", KeyKind::EcdsaP256);
    world.trust(r, side(&other, KeyKind::EcdsaP256, "right").trust());
    assert!(world.rekey(l, Site::TUNNEL));
    world.run_for(SETTLED);
    assert_agreement(&mut world, l, r, &site);
    // The next proof is judged by the new ones.
    [l, r].into_iter().for_each(|host| world.restart(host));
    world.connect(l, Site::TUNNEL);
    world.run_for(SOON);
    assert!(last_failure(&mut world, r).to_string().contains("CN=root, which is not trusted here"));
}

#[test]
fn slow_work_and_a_bad_link_leave_both_ends_in_agreement() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let (left, right) =
        (side(&root, KeyKind::EcdsaP256, "left"), side(&root, KeyKind::EcdsaP256, "right"));
    let site = Site { auto_start: true, children: 2, ..site() };
    for seed in 0..24 {
        let (mut world, l, r) = World::of_site(seed, &site, &calm());
        world.trust(l, left.trust());
        world.trust(r, right.trust());
        world.set_conditions(Conditions::bad(250));
        for _ in 0..12 {
            for host in [l, r] {
                match world.chance().below(3) {
                    0 => world.hold_jobs(host),
                    1 => drop(world.release_jobs(host)),
                    _ => {}
                }
            }
            if world.chance().below(6) == 0 {
                let host = if world.chance().below(2) == 0 { l } else { r };
                world.restart(host);
            }
            let pause = 200 + world.chance().below(6_000);
            world.run_for(Duration::from_millis(pause));
        }
        world.set_conditions(Conditions::default());
        for host in [l, r] {
            world.release_jobs(host);
        }
        world.run_for(SETTLED);
        assert_agreement(&mut world, l, r, &site);
        assert_clean_stop(&mut world, l, r);
    }
}
