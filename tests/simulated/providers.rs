//! The provider of IKE's ciphers and PRFs makes no difference on the wire, and may change at any time.

use crate::{SETTLED, SOON, calm};
use crypto::{Choice, Cpu, CryptoProviders, Provider};
use ike::Config;
use policy::{Group, IkeEncryption, IkeProposal, Integrity, KeyBits, Prf};
use sim::host::Side;
use sim::invariant::{assert_agreement, assert_clean_stop};
use sim::link::Content;
use sim::{HostId, Label, Site, World};
use std::sync::Arc;

fn proposal(encryption: IkeEncryption, integrity: Option<Integrity>, prf: Prf) -> IkeProposal {
    IkeProposal {
        encryption: vec![encryption],
        integrity: integrity.into_iter().collect(),
        prf: vec![prf],
        groups: vec![Group::Curve25519],
        additional: Vec::new(),
    }
}

/// Suites of which every provider has some, and ring lacks others.
fn proposals() -> [IkeProposal; 5] {
    [
        proposal(IkeEncryption::AesGcm16(KeyBits::B256), None, Prf::HmacSha2_512),
        proposal(IkeEncryption::AesGcm16(KeyBits::B192), None, Prf::HmacSha2_384),
        proposal(IkeEncryption::AesCbc(KeyBits::B256), Some(Integrity::HmacSha1_96), Prf::HmacSha1),
        proposal(
            IkeEncryption::AesCbc(KeyBits::B128),
            Some(Integrity::HmacSha2_256_128),
            Prf::Aes128Cmac,
        ),
        proposal(IkeEncryption::ChaCha20Poly1305, None, Prf::Aes128Xcbc),
    ]
}

fn by(provider: Provider) -> Config {
    let crypto = Arc::new(CryptoProviders::new(Choice::of(provider)));
    Config { crypto, ..calm() }
}

/// A CPU on which the instructions can be switched off.
fn accelerated() -> Arc<CryptoProviders> {
    let instructions =
        ["AES-NI", "PCLMULQDQ", "SHA-NI", "ARMv8 AES", "ARMv8 PMULL", "ARMv8 SHA2", "ARMv8 SHA512"];
    Arc::new(CryptoProviders::on(Cpu::with(&instructions), Choice::default()))
}

fn world(site: &Site, left: &Config, right: &Config) -> (World, HostId, HostId) {
    let mut world = World::new(7);
    world.tap();
    let left = world.add_host("left", site.left, site.policy(Side::Left), left.clone());
    let right = world.add_host("right", site.right, site.policy(Side::Right), right.clone());
    (world, left, right)
}

/// A tunnel comes up, is rekeyed in both phases, and goes: each message of IKE in its order, by its header and its
/// length. Its octets follow from random private values.
fn story(site: &Site, left: &Config, right: &Config) -> Vec<Label> {
    let (mut world, l, r) = world(site, left, right);
    world.connect(l, Site::TUNNEL);
    world.run_for(SOON);
    for name in [Site::TUNNEL, "net0"] {
        assert!(world.rekey(r, name));
        world.run_for(SETTLED);
    }
    assert_agreement(&mut world, l, r, site);
    assert_clean_stop(&mut world, l, r);
    let messages = world.take_tapped().into_iter().filter_map(|parcel| match parcel.content {
        Content::Ike(octets) => Label::read(&octets),
        _ => None,
    });
    messages.collect()
}

#[test]
fn every_provider_speaks_with_every_other() {
    for proposal in proposals() {
        let site = Site { ike: vec![proposal], ..Site::default() };
        let expected = story(&site, &by(Provider::AwsLc), &by(Provider::AwsLc));
        assert!(expected.len() > 8, "{}", expected.len());
        for (left, right) in [
            (Provider::Ring, Provider::AwsLc),
            (Provider::Portable, Provider::Ring),
            (Provider::AwsLc, Provider::Portable),
        ] {
            let told = story(&site, &by(left), &by(right));
            assert!(told == expected, "{left} and {right}: {:?}", site.ike);
        }
    }
}

#[test]
fn instructions_go_off_and_on_under_an_ike_sa() {
    for proposal in proposals() {
        let site = Site { ike: vec![proposal], ..Site::default() };
        let crypto = accelerated();
        let config = Config { crypto: Arc::clone(&crypto), ..calm() };
        let (mut world, l, r) = world(&site, &config, &calm());
        world.connect(l, Site::TUNNEL);
        world.run_for(SOON);
        for in_core in [false, true, false] {
            crypto.set_in_core(in_core).expect("the CPU has them");
            assert!(world.rekey(l, Site::TUNNEL) && world.rekey(l, "net0"));
            world.run_for(SETTLED);
            assert_agreement(&mut world, l, r, &site);
        }
        assert_clean_stop(&mut world, l, r);
    }
}
