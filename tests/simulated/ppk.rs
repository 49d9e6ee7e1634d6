//! Postquantum preshared keys (RFC 8784, RFC 9867): the choice of one, a peer without one, and their replacement.

use crate::certificates::{any, last_failure, side};
use crate::{SETTLED, SOON, assert_nothing_lost, calm, ike_spis, talk};
use ike::Config;
use ike::event::EventKind;
use ike::failure::FailureKind;
use ike::failure::facts::{Facts, PpkLack};
use ike::quantum::QuantumSafety;
use ike::wire::header::Header;
use ike::wire::message;
use ike::wire::payload::Payload;
use ike::wire::registry::NotifyType;
use policy::{AdditionalKe, Group, IkeProposal, KeyKind, Pfs, Ppk, Secret};
use sim::certificates::{Authority, Wallet};
use sim::host::{Side, ike_offer};
use sim::invariant::{assert_agreement, assert_clean_stop};
use sim::link::{Content, Parcel};
use sim::{Conditions, Exchange, HostId, Site, World};

fn names(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|&id| id.to_owned()).collect()
}

fn required(ids: &[&str]) -> Option<Ppk> {
    Some(Ppk::required(names(ids)))
}

fn optional(ids: &[&str]) -> Option<Ppk> {
    Some(Ppk::optional(names(ids)))
}

/// A side that has these keys: names and the octet that each consists of.
fn has(keys: &[(&str, u8)]) -> Wallet {
    let secret = |octet| Secret::new(vec![octet; 32]);
    let ppks = keys.iter().map(|&(id, octet)| (id.to_owned(), secret(octet))).collect();
    Wallet { ppks, ..Wallet::default() }
}

/// The PPK of one side's policy, and its keys.
type End<'a> = (Option<Ppk>, &'a [(&'a str, u8)]);

fn site(ppk: &Option<Ppk>) -> Site {
    Site { ppk: ppk.clone(), ..Site::default() }
}

/// In the proofs only (RFC 8784), or before them (RFC 9867).
fn config(before: bool) -> Config {
    Config { ppk_before_auth: before, ..calm() }
}

fn between(before: bool, left: &End<'_>, right: &End<'_>) -> (World, HostId, HostId) {
    of_configs([config(before), config(before)], left, right)
}

fn of_configs(
    [at_left, at_right]: [Config; 2],
    left: &End<'_>,
    right: &End<'_>,
) -> (World, HostId, HostId) {
    let mut world = World::new(1);
    world.encrypt();
    let sites = [site(&left.0), site(&right.0)];
    let l = world.add_host("A", sites[0].left, sites[0].policy(Side::Left), at_left);
    let r = world.add_host("B", sites[1].right, sites[1].policy(Side::Right), at_right);
    world.trust(l, has(left.1).trust());
    world.trust(r, has(right.1).trust());
    (world, l, r)
}

/// Whether the IKE SA of each side has a PPK in its keys.
fn uses(world: &mut World, hosts: [HostId; 2]) -> [bool; 2] {
    hosts.map(|host| {
        let status = world.status(host);
        status.iter().find_map(|s| s.sa.as_ref()).expect("an IKE SA is up").ppk
    })
}

fn warnings(world: &World, host: HostId) -> usize {
    world
        .count_events(host, |kind| matches!(kind, EventKind::Warning(text) if text.contains("PPK")))
}

/// The tunnel comes up from either side, with a PPK or without one; rekeys change nothing about it.
fn comes_up(left: &End<'_>, right: &End<'_>, with: bool) {
    for (from_left, before) in [(true, true), (false, true), (true, false), (false, false)] {
        let (mut world, l, r) = between(before, left, right);
        world.connect(if from_left { l } else { r }, Site::TUNNEL);
        world.run_for(SOON);
        assert_eq!(uses(&mut world, [l, r]), [with; 2], "{left:?} {right:?}");
        let flows = talk(&mut world, l, r, &Site::default());
        for (host, name) in [(l, Site::TUNNEL), (r, "net0"), (r, Site::TUNNEL), (l, "net0")] {
            assert!(world.rekey(host, name), "{name} is up");
            world.run_for(SOON);
        }
        world.run_for(SETTLED / 10);
        assert_nothing_lost(&mut world, flows);
        assert_agreement(&mut world, l, r, &Site::default());
        assert_eq!(uses(&mut world, [l, r]), [with; 2]);
        for (host, (ppk, _)) in [(l, left), (r, right)] {
            let warned = usize::from(ppk.is_some() && !with);
            assert_eq!(warnings(&world, host), warned, "{left:?} {right:?}");
        }
        assert_clean_stop(&mut world, l, r);
    }
}

/// The tunnel comes up from neither side. `lacks` are the reasons that the left notes as initiator and as responder;
/// `None`: the peer does not accept its proof, which names the PPK.
fn is_refused(before: bool, left: &End<'_>, right: &End<'_>, lacks: [Option<PpkLack>; 2]) {
    for (from_left, lack) in [(true, lacks[0]), (false, lacks[1])] {
        let (mut world, l, r) = between(before, left, right);
        world.connect(if from_left { l } else { r }, Site::TUNNEL);
        // An answer that anyone can have made ends nothing by itself.
        world.run_for(SETTLED);
        let failure = last_failure(&mut world, l);
        assert_eq!(failure.kind, FailureKind::AuthenticationFailed, "{failure}");
        match (&*failure.facts, lack) {
            (Facts::Ppk(ppk), Some(lack)) => assert_eq!(ppk.lack, lack, "{failure}"),
            (Facts::Proof(proof), None) => assert!(proof.ppk.is_some(), "{failure}"),
            _ => panic!("{failure:?} is not {lack:?}"),
        }
        for host in [l, r] {
            let inventory = world.host(host).engine.inventory();
            assert_eq!((inventory.ike_sas, inventory.child_sas, inventory.spis), (0, 0, 0));
        }
    }
}

#[test]
fn a_key_that_both_have_is_used() {
    let keys = [("site-1", 7)];
    for left in [required(&["site-1"]), optional(&["site-1"])] {
        for right in [required(&["site-1"]), optional(&["site-1"])] {
            comes_up(&(left.clone(), &keys), &(right, &keys), true);
        }
    }
}

#[test]
fn the_initiator_uses_the_first_name_whose_key_it_has() {
    let left = (required(&["lost", "b", "a"]), &[("a", 1), ("b", 2)][..]);
    let right = (required(&["a", "b"]), &[("a", 1), ("b", 2)][..]);
    comes_up(&left, &right, true);
}

#[test]
fn certificates_prove_with_a_key_as_well() {
    let authority = Authority::root("Root", KeyKind::EcdsaP256);
    for kind in [KeyKind::EcdsaP256, KeyKind::Rsa] {
        for ppk in [required(&["k"]), optional(&["k"])] {
            let site = Site { ppk, signature: Some(any()), ..Site::default() };
            let wallet =
                |name| Wallet { ppks: has(&[("k", 1)]).ppks, ..side(&authority, kind, name) };
            let (left, right) = (wallet("left"), wallet("right"));
            let (mut world, l, r) = crate::certificates::world(&site, &left, &right);
            world.connect(l, Site::TUNNEL);
            world.run_for(SOON);
            assert_eq!(uses(&mut world, [l, r]), [true; 2]);
            assert_agreement(&mut world, l, r, &site);
            assert_clean_stop(&mut world, l, r);
        }
    }
}

/// Two signatures are made then, each of which may take its time.
#[test]
fn certificates_prove_without_a_key_where_it_is_optional() {
    let authority = Authority::root("Root", KeyKind::EcdsaP256);
    let site = Site { ppk: optional(&["k"]), signature: Some(any()), ..Site::default() };
    let with_key =
        Wallet { ppks: has(&[("k", 1)]).ppks, ..side(&authority, KeyKind::EcdsaP256, "left") };
    let with_another =
        Wallet { ppks: has(&[("other", 1)]).ppks, ..side(&authority, KeyKind::EcdsaP256, "right") };
    let (mut world, l, r) = crate::certificates::world(&site, &with_key, &with_another);
    for host in [l, r] {
        world.hold_jobs(host);
    }
    world.connect(l, Site::TUNNEL);
    for _ in 0..8 {
        world.run_for(SOON);
        for host in [l, r] {
            world.release_jobs(host);
            world.hold_jobs(host);
        }
    }
    assert_eq!(uses(&mut world, [l, r]), [false; 2]);
    for host in [l, r] {
        assert_eq!(warnings(&world, host), 1);
        world.release_jobs(host);
    }
    assert_agreement(&mut world, l, r, &site);
    assert_clean_stop(&mut world, l, r);
}

#[test]
fn an_optional_key_that_one_side_lacks_is_left_out() {
    let keys: &[_] = &[("a", 1)];
    for there in [(None, &[][..]), (optional(&["a"]), &[]), (optional(&["b"]), &[("b", 1)])] {
        comes_up(&(optional(&["a"]), keys), &there, false);
    }
}

#[test]
fn a_required_key_that_the_peer_lacks_ends_the_attempt() {
    let left = (required(&["a"]), &[("a", 1)][..]);
    for before in [false, true] {
        is_refused(before, &left, &(None, &[]), [Some(PpkLack::Unannounced); 2]);
        // The peer announces the one that it has, or none.
        let told = before.then_some(PpkLack::Unused);
        let lacks = [told, Some(PpkLack::Unannounced)];
        is_refused(before, &left, &(optional(&["a"]), &[]), lacks);
        let lacks = [told, Some(PpkLack::Unknown)];
        is_refused(before, &left, &(optional(&["b"]), &[("b", 1)]), lacks);
    }
}

#[test]
fn a_required_key_that_this_side_lacks_ends_the_attempt() {
    let right = (required(&["a"]), &[("a", 1)][..]);
    for before in [false, true] {
        is_refused(before, &(required(&["a"]), &[]), &right, [Some(PpkLack::Key); 2]);
    }
}

#[test]
fn one_name_for_different_octets_is_told() {
    let left = (required(&["a"]), &[("a", 1)][..]);
    let right = (required(&["a"]), &[("a", 2)][..]);
    is_refused(false, &left, &right, [None; 2]);
    is_refused(true, &left, &right, [Some(PpkLack::Unused), Some(PpkLack::Differs)]);
}

#[test]
fn one_optional_name_for_different_octets_is_left_out_before_the_proofs() {
    let left = (optional(&["a"]), &[("a", 1)][..]);
    let right = (optional(&["a"]), &[("a", 2)][..]);
    let (mut world, l, r) = between(true, &left, &right);
    world.connect(l, Site::TUNNEL);
    world.run_for(SOON);
    assert_eq!(uses(&mut world, [l, r]), [false; 2]);
    assert_agreement(&mut world, l, r, &Site::default());
    assert_clean_stop(&mut world, l, r);
}

#[test]
fn the_responder_selects_a_name_that_it_has() {
    let left = (required(&["new", "old"]), &[("new", 2), ("old", 1)][..]);
    let right = (required(&["old"]), &[("old", 1)][..]);
    for from_left in [true, false] {
        let (mut world, l, r) = between(true, &left, &right);
        world.connect(if from_left { l } else { r }, Site::TUNNEL);
        world.run_for(SOON);
        assert_eq!(uses(&mut world, [l, r]), [true; 2]);
        assert_agreement(&mut world, l, r, &Site::default());
        assert_clean_stop(&mut world, l, r);
    }
}

#[test]
fn a_side_that_can_do_less_has_it_in_the_proofs() {
    let end = (required(&["a"]), &[("a", 1)][..]);
    for at_left in [true, false] {
        let configs = [config(at_left), config(!at_left)];
        let (mut world, l, r) = of_configs(configs, &end, &end);
        world.connect(l, Site::TUNNEL);
        world.run_for(SOON);
        assert_eq!(uses(&mut world, [l, r]), [true; 2]);
        assert_agreement(&mut world, l, r, &Site::default());
        assert_clean_stop(&mut world, l, r);
    }
}

/// Keys travel with the last additional key exchange; IKE_AUTH and all before it are in fragments, lost and repeated.
#[test]
fn a_key_comes_after_additional_key_exchanges() {
    for (seed, methods) in [&[][..], &[Group::MlKem768], &[Group::MlKem512, Group::Ecp384]]
        .iter()
        .cycle()
        .take(30)
        .enumerate()
    {
        let additional: Vec<_> = methods.iter().map(|m| AdditionalKe::required(vec![*m])).collect();
        let ike = IkeProposal { additional, ..ike_offer(&[Group::Curve25519]) };
        let ppk = if seed % 2 == 0 { required(&["a"]) } else { optional(&["a"]) };
        let site = Site { ike: vec![ike], ppk, ..Site::default() };
        let config = Config { fragment_size: Some(600), ..config(seed % 5 != 0) };
        let (mut world, l, r) = World::of_site_encrypting(seed as u64, &site, &config);
        world.trust(l, has(&[("a", 1)]).trust());
        // The other side lacks what is optional, now and then.
        let both_have = seed % 2 == 0 || seed % 3 == 0;
        world.trust(r, has(&[("a", 1)][..usize::from(both_have)]).trust());
        world.set_conditions(Conditions::bad(250));
        world.connect(l, Site::TUNNEL);
        world.run_for(SETTLED);
        world.set_conditions(Conditions::default());
        world.run_for(SETTLED);
        assert_eq!(uses(&mut world, [l, r]), [both_have; 2], "seed {seed}");
        assert_agreement(&mut world, l, r, &site);
        assert_clean_stop(&mut world, l, r);
    }
}

/// Without another IKE SA from the beginning (RFC 9867): a rekey takes the key that its initiator's policy names first.
#[test]
fn a_fresh_key_is_in_the_next_rekey() {
    let additional = vec![AdditionalKe::required(vec![Group::MlKem768])];
    for additional in [Vec::new(), additional] {
        let group = Group::Curve25519;
        let site = |ppk| Site {
            ike: vec![IkeProposal { additional: additional.clone(), ..ike_offer(&[group]) }],
            pfs: Pfs {
                offer: vec![group],
                accept: vec![group],
                accept_none: false,
                additional: additional.clone(),
            },
            ppk,
            ..Site::default()
        };
        for from in [Side::Left, Side::Right] {
            let none = site(None);
            let (mut world, l, r) = World::of_site_encrypting(1, &none, &calm());
            world.connect(l, Site::TUNNEL);
            world.run_for(SOON);
            assert_eq!(uses(&mut world, [l, r]), [false; 2]);
            let flows = talk(&mut world, l, r, &none);
            let with = site(optional(&["a"]));
            for (host, side) in [(l, Side::Left), (r, Side::Right)] {
                world.trust(host, has(&[("a", 1)]).trust());
                world.replace_policy(host, with.policy(side));
            }
            world.run_for(SOON);
            let host = if from == Side::Left { l } else { r };
            // A Child SA's own, then that of the IKE SA, and then there is nothing to propose.
            world.tap();
            let mut sizes = Vec::new();
            for name in ["net0", Site::TUNNEL, "net0"] {
                assert!(world.rekey(host, name), "{name} is up");
                world.run_for(SOON);
                let first = world.take_tapped().into_iter().find_map(|p| match p.content {
                    Content::Ike(octets) if octets[18] == 36 => Some(octets.len()),
                    _ => None,
                });
                sizes.push(first.expect("CREATE_CHILD_SA"));
                let with = name != "net0" || sizes.len() == 3;
                assert_eq!(uses(&mut world, [l, r]), [with; 2], "{sizes:?}");
            }
            assert!(sizes[2] < sizes[0], "nothing is proposed: {sizes:?}");
            world.run_for(SETTLED / 10);
            assert_nothing_lost(&mut world, flows);
            assert_agreement(&mut world, l, r, &with);
            assert_clean_stop(&mut world, l, r);
        }
    }
}

/// Rekeys cross while one side has the fresh key, or both.
#[test]
fn crossing_rekeys_agree_on_a_fresh_key() {
    for seed in 0..20 {
        let site = |ppk| Site { ppk, ..Site::default() };
        let old = site(required(&["old"]));
        let (mut world, l, r) = World::of_site_encrypting(seed, &old, &calm());
        for host in [l, r] {
            world.trust(host, has(&[("old", 1)]).trust());
        }
        world.connect(l, Site::TUNNEL);
        world.run_for(SOON);
        let flows = talk(&mut world, l, r, &old);
        let new = site(required(&["new", "old"]));
        let both = has(&[("old", 1), ("new", 2)]).trust();
        let sides = [(l, Side::Left), (r, Side::Right)];
        for &(host, side) in &sides[..1 + seed as usize % 2] {
            world.trust(host, both.clone());
            world.replace_policy(host, new.policy(side));
        }
        world.run_for(SOON);
        for name in ["net0", Site::TUNNEL, "net0"] {
            assert!(world.rekey(l, name) && world.rekey(r, name), "{name} is up");
            world.run_for(SETTLED / 10);
        }
        world.run_for(SETTLED);
        assert_agreement(&mut world, l, r, &old);
        assert_nothing_lost(&mut world, flows);
        assert_eq!(uses(&mut world, [l, r]), [true; 2]);
        assert_clean_stop(&mut world, l, r);
    }
}

#[test]
fn keys_are_replaced_without_a_loss() {
    for before in [false, true] {
        replaced(before);
    }
}

fn replaced(before: bool) {
    let old = (required(&["old"]), &[("old", 1)][..]);
    let (mut world, l, r) = between(before, &old, &old);
    world.connect(l, Site::TUNNEL);
    world.run_for(SOON);
    let flows = talk(&mut world, l, r, &Site::default());
    let spis = ike_spis(&mut world, l);
    let both = has(&[("old", 1), ("new", 2)]);
    // One side after the other gets the new key, then prefers it, then forgets the old one.
    for ids in [&["old", "new"][..], &["new", "old"], &["new"]] {
        let site = site(&required(ids));
        for (host, side) in [(l, Side::Left), (r, Side::Right)] {
            world.trust(host, both.trust());
            world.replace_policy(host, site.policy(side));
            world.run_for(SOON);
            for (host, name) in [(l, Site::TUNNEL), (r, "net0")] {
                assert!(world.rekey(host, name), "{name} is up");
                world.run_for(SOON);
            }
        }
    }
    for host in [l, r] {
        world.trust(host, has(&[("new", 2)]).trust());
    }
    assert_ne!(ike_spis(&mut world, l), spis);
    world.run_for(SETTLED / 10);
    assert_nothing_lost(&mut world, flows);
    assert_agreement(&mut world, l, r, &Site::default());
    // Another IKE SA is made with the new key, which is the only one now.
    assert!(world.disconnect(l, Site::TUNNEL));
    world.run_for(SOON);
    world.connect(r, Site::TUNNEL);
    world.run_for(SOON);
    assert_eq!(uses(&mut world, [l, r]), [true; 2]);
    assert_clean_stop(&mut world, l, r);
}

#[test]
fn a_policy_that_begins_to_require_a_key_ends_what_has_none() {
    let keys: &[_] = &[("a", 1)];
    let (mut world, l, r) = between(true, &(None, keys), &(None, keys));
    world.connect(l, Site::TUNNEL);
    world.run_for(SOON);
    assert_eq!(uses(&mut world, [l, r]), [false; 2]);
    for (host, side) in [(r, Side::Right), (l, Side::Left)] {
        world.replace_policy(host, site(&required(&["a"])).policy(side));
    }
    world.run_for(SOON);
    world.connect(l, Site::TUNNEL);
    world.run_for(SETTLED);
    assert_eq!(uses(&mut world, [l, r]), [true; 2]);
    assert_clean_stop(&mut world, l, r);
}

/// Someone on the way takes the announcements out of messages that are not protected.
#[test]
fn nobody_on_the_way_has_a_key_left_out() {
    let keys: &[_] = &[("a", 1)];
    for (ppk, before) in [
        (required(&["a"]), false),
        (optional(&["a"]), false),
        (required(&["a"]), true),
        (optional(&["a"]), true),
    ] {
        for (requests, answers) in [(true, false), (false, true), (true, true)] {
            let end = (ppk.clone(), keys);
            let (mut world, l, r) = between(before, &end, &end);
            let gates =
                [l, r].map(|host| world.hold(host, |label| label.exchange == Exchange::SaInit));
            world.connect(l, Site::TUNNEL);
            for _ in 0..200 {
                world.run_for(SOON);
                for (gate, from, changed) in [(gates[0], l, requests), (gates[1], r, answers)] {
                    while let Some(mut parcel) = world.take_first(gate) {
                        if changed {
                            unannounce(&mut parcel);
                        }
                        world.deliver(from, parcel);
                    }
                }
            }
            for host in [l, r] {
                let up = world.status(host).iter().any(|s| s.sa.is_some());
                assert!(!up, "{ppk:?} {requests} {answers}: the change is noticed");
            }
        }
    }
}

fn unannounce(parcel: &mut Parcel) {
    let Content::Ike(octets) = &mut parcel.content else { return };
    let header = Header::parse(octets).expect("engines send IKE messages");
    let mut payloads = message::decode(&header, octets).expect("it is not protected");
    let announces = [NotifyType::USE_PPK, NotifyType::USE_PPK_INT];
    payloads.retain(|p| !matches!(p, Payload::Notify(n) if announces.contains(&n.kind)));
    *octets = message::encode(&header, &payloads);
}

/// Of the IKE SA and of its Child SA, on both sides.
fn safety(world: &mut World, hosts: [HostId; 2]) -> [QuantumSafety; 2] {
    let [left, right] = hosts.map(|host| {
        let status = world.status(host);
        let ike = status.iter().find_map(|s| s.sa.as_ref()?.quantum_safety);
        let child = status.iter().flat_map(|s| &s.children).find_map(|c| c.sa.as_ref());
        [ike.expect("an IKE SA is up"), child.expect("a Child SA is up").quantum_safety]
    });
    assert_eq!(left, right);
    left
}

#[test]
fn each_sa_tells_whether_it_is_quantum_safe() {
    use QuantumSafety::{AfterRekey, NotAgreed, NotInPolicy, Safe};
    let kem = |optional| AdditionalKe { methods: vec![Group::MlKem768], optional };
    let site = |additional: &[AdditionalKe], ppk: Option<Ppk>| {
        let additional = additional.to_vec();
        let ike = IkeProposal { additional, ..ike_offer(&[Group::Curve25519]) };
        Site { ike: vec![ike], ppk, ..Site::default() }
    };
    let a = || optional(&["a"]);
    let only_kem = Site { ike: vec![ike_offer(&[Group::MlKem768])], ..Site::default() };
    // Whether PPKs come before the proofs, whether the peer has the key, and both ends' reports before and after a
    // rekey.
    for (site, before, has_key, first, rekeyed) in [
        (site(&[], None), true, false, [NotInPolicy; 2], [NotInPolicy; 2]),
        (only_kem, true, false, [Safe; 2], [Safe; 2]),
        (site(&[kem(false)], None), true, false, [Safe; 2], [Safe; 2]),
        (site(&[], a()), true, true, [Safe; 2], [Safe; 2]),
        (site(&[], a()), false, true, [AfterRekey, Safe], [Safe; 2]),
        (site(&[], a()), true, false, [NotAgreed; 2], [NotAgreed; 2]),
        (site(&[kem(false)], a()), false, true, [Safe; 2], [Safe; 2]),
    ] {
        let (mut world, l, r) = World::of_site_encrypting(1, &site, &config(before));
        world.trust(l, has(&[("a", 1)]).trust());
        world.trust(r, has(&[("a", 1)][..usize::from(has_key)]).trust());
        world.connect(l, Site::TUNNEL);
        world.run_for(SOON);
        assert_eq!(safety(&mut world, [l, r]), first, "{before} {has_key} {site:?}");
        assert!(world.rekey(l, Site::TUNNEL) && world.rekey(r, "net0"));
        world.run_for(SOON);
        assert_eq!(safety(&mut world, [l, r]), rekeyed, "{before} {has_key} {site:?}");
        assert_clean_stop(&mut world, l, r);
    }
}
