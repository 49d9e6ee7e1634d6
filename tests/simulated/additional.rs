//! Additional key exchanges (RFC 9370): before the proofs in IKE_INTERMEDIATE (RFC 9242), and behind rekeys in
//! IKE_FOLLOWUP_KE.

use crate::{SETTLED, SOON, assert_nothing_lost, calm, talk};
use ike::Config;
use ike::failure::FailureKind;
use ike::wire::header::Header;
use ike::wire::message;
use ike::wire::payload::Payload;
use ike::wire::registry::{NotifyType, TransformType};
use policy::{AdditionalKe, Group, IkeProposal, Pfs};
use sim::host::{Side, ike_offer};
use sim::invariant::{assert_agreement, assert_clean_stop};
use sim::link::{Content, Parcel};
use sim::{Conditions, Exchange, HostId, Label, Site, World};
use std::collections::BTreeMap;
use std::time::Duration;

/// Octets of an IP datagram that holds no public value of ML-KEM.
const SMALL: u16 = 600;

fn required(methods: &[Group]) -> Vec<AdditionalKe> {
    methods.iter().map(|method| AdditionalKe::required(vec![*method])).collect()
}

/// Both phases with these additional key exchanges.
fn site(additional: Vec<AdditionalKe>) -> Site {
    let group = Group::Curve25519;
    Site {
        ike: vec![IkeProposal { additional: additional.clone(), ..ike_offer(&[group]) }],
        pfs: Pfs { offer: vec![group], accept: vec![group], accept_none: false, additional },
        ..Site::default()
    }
}

/// Suites of the IKE SA and of the Child SA.
fn suites(world: &mut World, host: HostId) -> [String; 2] {
    let status = world.status(host);
    let ike = status.iter().find_map(|s| s.sa.as_ref()).expect("an IKE SA");
    let child = status.iter().flat_map(|s| &s.children).find_map(|c| c.sa.as_ref());
    let suite = ike.suite.expect("the IKE SA is up");
    [suite.to_string(), child.expect("a Child SA").suite.to_string()]
}

/// Rekeys everything from both sides, with traffic all the while.
fn live(world: &mut World, left: HostId, right: HostId, site: &Site) {
    let flows = talk(world, left, right, site);
    for host in [left, right] {
        for name in ["net0", Site::TUNNEL, "net0"] {
            assert!(world.rekey(host, name), "{name} is up");
            world.run_for(SOON);
        }
    }
    world.run_for(SETTLED / 10);
    assert_nothing_lost(world, flows);
}

#[test]
fn as_many_as_the_policy_names_take_place_in_every_exchange() {
    let chains: [&[Group]; 4] = [
        &[Group::MlKem768],
        &[Group::MlKem512, Group::Ecp384],
        &[Group::MlKem1024, Group::Modp2048, Group::MlKem768],
        &[
            Group::MlKem512,
            Group::MlKem768,
            Group::MlKem1024,
            Group::Ecp256,
            Group::Ecp384,
            Group::Ecp521,
            Group::Modp2048,
        ],
    ];
    for chain in chains {
        for fragment_size in [None, Some(1280), Some(SMALL)] {
            let site = site(required(chain));
            let config = Config { fragment_size, ..calm() };
            let (mut world, left, right) = World::of_site_encrypting(1, &site, &config);
            world.tap();
            world.connect(left, Site::TUNNEL);
            world.run_for(SOON);
            assert_agreement(&mut world, left, right, &site);
            live(&mut world, left, right, &site);
            assert_agreement(&mut world, left, right, &site);
            let names: String = chain.iter().map(|group| format!("+{group}")).collect();
            let expected = [
                format!("AES-GCM-16-128/PRF-HMAC-SHA2-256/CURVE25519{names}"),
                format!("AES-GCM-16-128/CURVE25519{names}"),
            ];
            for host in [left, right] {
                assert_eq!(suites(&mut world, host), expected);
                let discards = world.host(host).engine.discards();
                assert!(discards.is_empty(), "nothing was in vain: {discards:?}");
            }
            assert_clean_stop(&mut world, left, right);
            let mut requests: BTreeMap<_, usize> = BTreeMap::new();
            for parcel in world.take_tapped() {
                let Content::Ike(octets) = &parcel.content else { continue };
                let label = Label::read(octets).expect("engines send IKE messages");
                let first = octets[16] != 53 || octets[32..34] == [0, 1];
                let known = matches!(octets[18], 43 | 44);
                if known && first && !label.response {
                    *requests.entry(octets[18]).or_default() += 1;
                }
            }
            // Each side has rekeyed the IKE SA once and the Child SA twice.
            let expected = [(43, chain.len()), (44, 6 * chain.len())];
            assert_eq!(requests, expected.into_iter().collect());
        }
    }
}

#[test]
fn a_message_that_is_lost_or_comes_twice_does_no_harm() {
    let conditions = Conditions::bad(250);
    for seed in 0..40 {
        let site = Site { auto_start: true, ..site(required(&[Group::MlKem768, Group::MlKem512])) };
        let config = Config { fragment_size: Some(SMALL), ..calm() };
        let (mut world, left, right) = World::of_site_encrypting(seed, &site, &config);
        world.set_conditions(conditions.clone());
        world.connect(left, Site::TUNNEL);
        world.run_for(SETTLED);
        for host in [left, right] {
            for name in ["net0", Site::TUNNEL] {
                world.rekey(host, name);
                world.run_for(SOON);
            }
        }
        world.run_for(SETTLED);
        world.set_conditions(Conditions::default());
        world.run_for(SETTLED);
        assert_agreement(&mut world, left, right, &site);
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn both_ends_may_rekey_at_once() {
    for seed in 0..40 {
        let site = site(required(&[Group::MlKem768, Group::Ecp256]));
        let (mut world, left, right) = World::of_site_encrypting(seed, &site, &calm());
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        let flows = talk(&mut world, left, right, &site);
        for name in ["net0", Site::TUNNEL, "net0"] {
            assert!(world.rekey(left, name) && world.rekey(right, name), "{name} is up");
            world.run_for(SETTLED / 10);
        }
        world.run_for(SETTLED);
        assert_agreement(&mut world, left, right, &site);
        assert_nothing_lost(&mut world, flows);
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn an_exchange_that_is_required_is_not_left_out() {
    let required = site(required(&[Group::MlKem768]));
    let without = site(Vec::new());
    for (left_site, right_site) in [(&required, &without), (&without, &required)] {
        let (mut world, left, right) = between(left_site, right_site);
        world.connect(left, Site::TUNNEL);
        world.run_for(SETTLED);
        assert!(world.status(left).iter().all(|s| s.sa.is_none()), "it is not up");
        let failure = world.host(left).engine.last_failure(Site::TUNNEL).expect("a reason");
        assert_eq!(failure.kind, FailureKind::NoProposalChosen, "{failure}");
        world.stop(right);
    }
}

#[test]
fn an_exchange_that_is_optional_takes_place_where_both_can() {
    let exchange = AdditionalKe { methods: vec![Group::MlKem768], optional: true };
    let optional = site(vec![exchange]);
    let without = site(Vec::new());
    let cases =
        [(&optional, &without, false), (&without, &optional, false), (&optional, &optional, true)];
    for (left_site, right_site, takes_place) in cases {
        let (mut world, left, right) = between(left_site, right_site);
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        assert!(world.rekey(left, "net0") && world.rekey(right, Site::TUNNEL));
        world.run_for(SOON);
        for host in [left, right] {
            for suite in suites(&mut world, host) {
                assert_eq!(suite.contains("+ML-KEM-768"), takes_place, "{suite}");
            }
        }
        assert_clean_stop(&mut world, left, right);
    }
}

fn between(left: &Site, right: &Site) -> (World, HostId, HostId) {
    let mut world = World::new(1);
    let a = world.add_host("A", left.left, left.policy(Side::Left), calm());
    let b = world.add_host("B", right.right, right.policy(Side::Right), calm());
    (world, a, b)
}

/// Someone on the way changes messages that are not protected, so that fewer keys are exchanged.
#[test]
fn nobody_on_the_way_has_an_exchange_left_out() {
    type Change = fn(&mut Vec<Payload>);
    let without_transforms: Change = |payloads| {
        for payload in payloads {
            if let Payload::Sa(proposals) = payload {
                let proposals = proposals.iter_mut();
                proposals.for_each(|p| {
                    p.transforms.retain(|t| !TransformType::ADDITIONAL.contains(&t.kind));
                });
            }
        }
    };
    let without_announcement: Change = |payloads| {
        payloads.retain(|payload| {
            !matches!(payload, Payload::Notify(n) if n.kind == NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED)
        });
    };
    let with_nothing: Change = |payloads| {
        for payload in payloads {
            if let Payload::Sa(proposals) = payload {
                for transform in proposals.iter_mut().flat_map(|p| &mut p.transforms) {
                    if TransformType::ADDITIONAL.contains(&transform.kind) {
                        transform.id = 0;
                    }
                }
            }
        }
    };
    let changes = [without_transforms, without_announcement, with_nothing];
    for optional in [false, true] {
        let exchange = AdditionalKe { methods: vec![Group::MlKem768], optional };
        for change in changes {
            // The request, the answer, or both.
            for (requests, answers) in [(true, false), (false, true), (true, true)] {
                let site = site(vec![exchange.clone()]);
                let (mut world, left, right) = World::of_site(1, &site, &calm());
                let gates = [left, right]
                    .map(|host| world.hold(host, |label| label.exchange == Exchange::SaInit));
                world.connect(left, Site::TUNNEL);
                for _ in 0..200 {
                    world.run_for(SOON);
                    let sides = [(gates[0], left, requests), (gates[1], right, answers)];
                    for (gate, from, changed) in sides {
                        while let Some(mut parcel) = world.take_first(gate) {
                            if changed {
                                rewrite(&mut parcel, change);
                            }
                            world.deliver(from, parcel);
                        }
                    }
                }
                for host in [left, right] {
                    let up = world.status(host).iter().any(|s| s.sa.is_some());
                    assert!(!up, "{optional} {requests} {answers}: the change is noticed");
                }
            }
        }
    }
}

/// A stranger proves nothing, and has an exchange every 25 seconds.
#[test]
fn a_half_open_ike_sa_ends_however_many_exchanges_precede_the_proofs() {
    let site = site(required(&[Group::Ecp256, Group::Ecp384, Group::Ecp521]));
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    let is_request = |label: &Label| label.exchange == Exchange::Other(43) && !label.response;
    let gate = world.hold(left, is_request);
    world.connect(left, Site::TUNNEL);
    for _ in 0..2 {
        world.run_for(Duration::from_secs(25));
        let requests = std::iter::from_fn(|| world.take_first(gate));
        let request = requests.last().expect("it was sent");
        world.deliver(left, request);
        world.run_for(SOON);
        assert_eq!(world.host(right).engine.inventory().half_open, 1);
    }
    world.run_for(Duration::from_secs(12));
    assert_eq!(world.host(right).engine.inventory().half_open, 0);
}

fn rewrite(parcel: &mut Parcel, change: fn(&mut Vec<Payload>)) {
    let Content::Ike(octets) = &mut parcel.content else { return };
    let header = Header::parse(octets).expect("engines send IKE messages");
    let mut payloads = message::decode(&header, octets).expect("it is not protected");
    change(&mut payloads);
    *octets = message::encode(&header, &payloads);
}
