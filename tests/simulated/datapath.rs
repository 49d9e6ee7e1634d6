//! With the real ESP datapath beneath: packets arrive by the SAs that the engine installs, and none can be read on the
//! way, unless the policy wants no more than integrity.

use crate::{SETTLED, SOON, assert_all_arrived, assert_nothing_lost, assert_settled, calm, talk};
use policy::{ChildProposal, EspEncryption, Group, Integrity, KeyBits, Mode, Pfs, Protection};
use sim::host::{Side, esp_offer, lifetime};
use sim::invariant::{assert_agreement, assert_clean_stop};
use sim::{Behaviour, Conditions, Exchange, HostId, Nat, Site, World};
use std::net::IpAddr;
use std::time::Duration;

fn up(seed: u64, site: &Site) -> (World, HostId, HostId) {
    let (mut world, left, right) = World::of_site_encrypting(seed, site, &calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, site);
    (world, left, right)
}

#[test]
fn every_suite_in_either_mode() {
    let day = lifetime(Duration::from_secs(86_400));
    let cbc = ChildProposal {
        name: "aes256cbc-sha256".into(),
        protection: Protection::encrypt_and_mac(
            EspEncryption::AesCbc(KeyBits::B256),
            Integrity::HmacSha2_256_128,
        ),
        esn: true,
        lifetime: day,
    };
    let esn = ChildProposal { esn: true, ..esp_offer(KeyBits::B256, day) };
    let of = |encryption, integrity, esn| ChildProposal {
        name: "other".into(),
        protection: Protection::Esp { encryption, integrity },
        esn,
        lifetime: day,
    };
    for offer in [
        esp_offer(KeyBits::B128, day),
        esp_offer(KeyBits::B192, day),
        esn,
        cbc,
        of(EspEncryption::ChaCha20Poly1305, None, true),
        of(EspEncryption::AesGmac(KeyBits::B128), None, false),
        of(EspEncryption::AesGmac(KeyBits::B192), None, true),
        of(EspEncryption::AesGmac(KeyBits::B256), None, true),
        of(EspEncryption::Null, Some(Integrity::HmacSha1_96), false),
        of(EspEncryption::Null, Some(Integrity::HmacSha2_512_256), true),
    ] {
        for mode in [Mode::Tunnel, Mode::Transport] {
            let site = Site { mode, esp: vec![offer.clone()], ..Site::default() };
            let (mut world, left, right) = up(1, &site);
            let flows = talk(&mut world, left, right, &site);
            assert!(world.rekey(left, "net0"));
            world.run_for(SETTLED / 10);
            assert!(world.rekey(right, "net0"));
            world.run_for(SETTLED / 10);
            if offer.protection.hides() {
                assert_nothing_lost(&mut world, flows);
            } else {
                assert_all_arrived(&mut world, flows);
                for flow in flows.map(|id| world.flow(id)) {
                    assert_eq!(flow.in_the_clear, flow.offered, "integrity alone hides nothing");
                }
            }
            assert_agreement(&mut world, left, right, &site);
            assert_clean_stop(&mut world, left, right);
        }
    }
}

#[test]
fn crossing_rekeys_lose_nothing_on_a_bad_link() {
    for seed in 0..12 {
        let groups = vec![Group::Curve25519];
        let pfs = Pfs {
            offer: groups.clone(),
            accept: groups,
            accept_none: false,
            additional: Vec::new(),
        };
        let site = Site { pfs, children: 2, ..Site::default() };
        let (mut world, left, right) = up(seed, &site);
        let flows = talk(&mut world, left, right, &site);
        world.set_conditions(Conditions::bad(200));
        for (l, r) in [("net0", "net0"), (Site::TUNNEL, "net0"), (Site::TUNNEL, Site::TUNNEL)] {
            world.rekey(left, l);
            world.rekey(right, r);
            world.run_for(Duration::from_secs(10));
        }
        world.heal();
        world.run_for(SETTLED / 10);
        assert_settled(&mut world, left, right, &site, flows);
    }
}

#[test]
fn an_answer_held_back_loses_nothing() {
    // The responder has the new SA, the initiator does not yet: it must go on with the old one.
    let site = Site::default();
    let (mut world, left, right) = up(1, &site);
    let flows = talk(&mut world, left, right, &site);
    let gate = world.hold(right, |l| l.is_response(Exchange::CreateChild));
    assert!(world.rekey(left, "net0"));
    world.run_for(SOON);
    assert!(world.held(gate) > 0);
    world.release(gate);
    world.run_for(SETTLED / 10);
    assert_nothing_lost(&mut world, flows);
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn the_packet_that_asked_for_the_tunnel_arrives() {
    let site = Site { on_demand: true, ..Site::default() };
    let (mut world, left, right) = World::of_site_encrypting(1, &site, &calm());
    let (l, r) = site.inner(0);
    let flows = [world.start_flow(left, l, r, Duration::from_millis(10))];
    world.run_for(SOON);
    flows.iter().for_each(|&f| world.stop_flow(f));
    world.run_for(SOON);
    let flow = world.flow(flows[0]);
    assert!(flow.arrived.contains_key(&0), "the first packet was kept, not dropped");
    assert_eq!((flow.missing(), flow.in_the_clear), (0, 0));
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn through_a_nat_that_reboots() {
    let site = Site { left: IpAddr::from([10, 0, 0, 5]), left_roams: true, ..Site::default() };
    let mut world = World::new(1);
    world.encrypt();
    let strict = Behaviour::AddressAndPortDependent;
    let outside = IpAddr::from([203, 0, 113, 1]);
    let nat = Nat::new(outside, strict, strict, Duration::from_secs(60));
    let left = world.add_host_behind(nat, "left", site.left, site.policy(Side::Left), calm());
    let right = world.add_host("right", site.right, site.policy(Side::Right), calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    let flows = talk(&mut world, left, right, &site);
    for host in [left, right] {
        assert!(world.rekey(host, "net0"));
        world.run_for(SETTLED / 10);
    }
    assert_nothing_lost(&mut world, flows);
    world.nat(left).reboot();
    let (l, r) = site.inner(0);
    assert!(world.probe(left, l, r), "ESP from inside opens a new mapping");
    world.run_for(Duration::from_millis(50));
    assert!(
        world.probe(right, r, l),
        "the answer takes it once the peer has shown that it is there"
    );
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn hours_of_rekeys() {
    let minute = Duration::from_secs(60);
    let site = Site {
        esp: vec![esp_offer(KeyBits::B128, lifetime(3 * minute))],
        lifetime: lifetime(5 * minute),
        ..Site::default()
    };
    let (mut world, left, right) = up(1, &site);
    let (l, r) = site.inner(0);
    let every = Duration::from_millis(500);
    let flows = [world.start_flow(left, l, r, every), world.start_flow(right, r, l, every)];
    world.run_for(120 * minute);
    assert_nothing_lost(&mut world, flows);
    assert!(world.run_until_quiet(Duration::from_secs(10), 10 * minute));
    assert_agreement(&mut world, left, right, &site);
}
