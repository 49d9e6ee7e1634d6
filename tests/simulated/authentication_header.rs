//! Child SAs of AH (RFC 4302) with the real datapath beneath: negotiated, rekeyed, deleted, and refused where a NAT
//! would change the addresses that AH covers.

use crate::{SETTLED, SOON, assert_all_arrived, calm, child_spi, talk};
use esp::plane::Encapsulation;
use ike::{Config, Encap};
use policy::{AhIntegrity, ChildProposal, Group, Integrity, KeyBits, Mode, Pfs, Protection};
use sim::host::{Side, esp_offer, lifetime};
use sim::invariant::{assert_agreement, assert_clean_stop};
use sim::{Behaviour, Conditions, HostId, Nat, Site, World};
use std::net::IpAddr;
use std::time::Duration;

const SUITES: [AhIntegrity; 10] = [
    AhIntegrity::AesGmac(KeyBits::B128),
    AhIntegrity::AesGmac(KeyBits::B192),
    AhIntegrity::AesGmac(KeyBits::B256),
    AhIntegrity::Mac(Integrity::HmacMd5_96),
    AhIntegrity::Mac(Integrity::HmacSha1_96),
    AhIntegrity::Mac(Integrity::HmacSha2_256_128),
    AhIntegrity::Mac(Integrity::HmacSha2_384_192),
    AhIntegrity::Mac(Integrity::HmacSha2_512_256),
    AhIntegrity::Mac(Integrity::AesXcbc96),
    AhIntegrity::Mac(Integrity::AesCmac96),
];

const GMAC: AhIntegrity = SUITES[0];

fn offer(integrity: AhIntegrity, esn: bool) -> ChildProposal {
    let name = "ah".to_owned();
    let lifetime = lifetime(Duration::from_secs(86_400));
    ChildProposal { name, protection: Protection::Ah(integrity), esn, lifetime }
}

fn site(offers: Vec<ChildProposal>) -> Site {
    Site { esp: offers, ..Site::default() }
}

fn up(seed: u64, site: &Site) -> (World, HostId, HostId) {
    let (mut world, left, right) = World::of_site_encrypting(seed, site, &calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, site);
    (world, left, right)
}

fn suite(world: &mut World, host: HostId) -> (String, Encapsulation) {
    let status = world.status(host);
    let sa = status[0].children[0].sa.as_ref().expect("up");
    (sa.suite.to_string(), sa.encapsulation)
}

#[test]
fn every_suite_in_either_mode_and_family() {
    for (n, integrity) in SUITES.into_iter().enumerate() {
        let esn = n % 2 == 0;
        for mode in [Mode::Tunnel, Mode::Transport] {
            let mut site = Site { mode, ..site(vec![offer(integrity, esn)]) };
            // Flows of the simulation are IPv4.
            if n % 3 == 0 && mode == Mode::Tunnel {
                site.left = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]);
                site.right = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 2]);
            }
            let (mut world, left, right) = up(1, &site);
            let esn = if esn { "/ESN" } else { "" };
            for host in [left, right] {
                let expected = (format!("AH/{integrity}{esn}"), Encapsulation::Ah);
                assert_eq!(suite(&mut world, host), expected);
            }
            let flows = talk(&mut world, left, right, &site);
            for host in [left, right] {
                let before = child_spi(&mut world, host, "net0");
                assert!(world.rekey(host, "net0"));
                world.run_for(SETTLED / 10);
                assert_ne!(child_spi(&mut world, host, "net0"), before, "{integrity}");
            }
            assert_all_arrived(&mut world, flows);
            assert_agreement(&mut world, left, right, &site);
            assert_clean_stop(&mut world, left, right);
        }
    }
}

/// RFC 7296 §1.4.1, §2.8: Delete and REKEY_SA name AH, and the right SA goes at either side's request.
#[test]
fn crossing_rekeys_and_deletes_find_the_sas_of_ah() {
    for seed in 0..8 {
        let groups = vec![Group::Curve25519];
        let pfs = Pfs {
            offer: groups.clone(),
            accept: groups,
            accept_none: false,
            additional: Vec::new(),
        };
        let site = Site { pfs, children: 2, ..site(vec![offer(GMAC, true)]) };
        let (mut world, left, right) = up(seed, &site);
        let flows = talk(&mut world, left, right, &site);
        world.set_conditions(Conditions::bad(200));
        for (l, r) in [("net0", "net0"), (Site::TUNNEL, "net0"), ("net0", Site::TUNNEL)] {
            world.rekey(left, l);
            world.rekey(right, r);
            world.run_for(Duration::from_secs(10));
        }
        world.heal();
        world.run_for(SETTLED / 10);
        assert_all_arrived(&mut world, flows);
        world.run_for(SETTLED);
        assert_agreement(&mut world, left, right, &site);
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn the_responders_first_choice_decides_between_esp_and_ah() {
    let esp = esp_offer(KeyBits::B128, lifetime(Duration::from_secs(86_400)));
    let both = [esp, offer(GMAC, false)];
    for (left_first, right_first, expected) in
        [(0, 0, "AES-GCM-16-128"), (0, 1, "AH/AES-GMAC-128"), (1, 0, "AES-GCM-16-128")]
    {
        let order = |first: usize| site(vec![both[first].clone(), both[1 - first].clone()]);
        let mut world = World::new(1);
        let (l, r) = (order(left_first), order(right_first));
        let left = world.add_host("left", l.left, l.policy(Side::Left), calm());
        let right = world.add_host("right", r.right, r.policy(Side::Right), calm());
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        assert_eq!(suite(&mut world, left).0, expected);
        assert_eq!(suite(&mut world, right).0, expected);
    }
}

/// The left host behind a NAT.
fn behind_a_nat(offers: [Vec<ChildProposal>; 2]) -> (World, HostId, HostId) {
    let strict = Behaviour::AddressAndPortDependent;
    let nat = Nat::new(IpAddr::from([203, 0, 113, 1]), strict, strict, Duration::from_secs(60));
    let [l, r] = offers.map(|offers| Site {
        left: IpAddr::from([10, 0, 0, 5]),
        left_roams: true,
        ..site(offers)
    });
    let mut world = World::new(1);
    let left = world.add_host_behind(nat, "left", l.left, l.policy(Side::Left), calm());
    let right = world.add_host("right", r.right, r.policy(Side::Right), calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    (world, left, right)
}

#[test]
fn nothing_but_ah_is_refused_behind_a_nat_and_the_reason_told() {
    let esp = esp_offer(KeyBits::B128, lifetime(Duration::from_secs(86_400)));
    // The initiator does not even ask; a responder with nothing but AH refuses every offer.
    let (mut world, left, _) = behind_a_nat([vec![offer(GMAC, false)], vec![offer(GMAC, false)]]);
    assert!(world.status(left)[0].sa.is_none());
    let told = |world: &World, host| {
        let failure = |name| world.host(host).engine.last_failure(name).map(ToString::to_string);
        failure(Site::TUNNEL).or(failure("net0")).unwrap_or_default()
    };
    let words = told(&world, left);
    assert!(words.contains("net0 is protected with AH only, and between 10.0.0.5"), "{words}");
    assert!(words.ends_with("AH covers the addresses"), "{words}");
    let (world, _, right) = behind_a_nat([vec![esp.clone()], vec![offer(GMAC, false)]]);
    let words = told(&world, right);
    assert!(words.contains("is a NAT"), "{words}");

    // With both on offer, ESP it is.
    let both = vec![offer(GMAC, false), esp];
    let (mut world, left, right) = behind_a_nat([both.clone(), both]);
    for host in [left, right] {
        assert_eq!(suite(&mut world, host), ("AES-GCM-16-128".into(), Encapsulation::Udp));
    }
}

/// Where ESP goes in UDP without a NAT, as between two of this implementation, AH goes natively beside it.
#[test]
fn udp_for_speed_does_not_concern_ah() {
    let site = site(vec![offer(GMAC, false)]);
    let config = Config { encap: Encap::Auto, ..calm() };
    let (mut world, left, right) = World::of_site_encrypting(1, &site, &config);
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    for host in [left, right] {
        assert_eq!(suite(&mut world, host).1, Encapsulation::Ah);
    }
    let flows = talk(&mut world, left, right, &site);
    world.run_for(SOON);
    assert_all_arrived(&mut world, flows);
}
