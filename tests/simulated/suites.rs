//! Algorithms of the IKE SA, from the first message through rekeys of both kinds.

use crate::{SETTLED, SOON, assert_nothing_lost, calm, talk};
use policy::{
    EspEncryption, Group, IkeEncryption, IkeProposal, Integrity, KeyBits, Pfs, Prf, Protection,
};
use sim::host::ike_offer;
use sim::invariant::{assert_agreement, assert_clean_stop};
use sim::{HostId, Site, World};

const CHACHA20: IkeEncryption = IkeEncryption::ChaCha20Poly1305;

fn offer(encryption: &[IkeEncryption], groups: &[Group]) -> IkeProposal {
    IkeProposal { encryption: encryption.to_vec(), ..ike_offer(groups) }
}

/// Algorithms of the IKE SA and of the Child SA.
fn chosen(world: &mut World, host: HostId) -> [String; 2] {
    let status = world.status(host);
    let ike = status.iter().find_map(|s| s.sa.as_ref()).expect("an IKE SA");
    let child = status.iter().flat_map(|s| &s.children).find_map(|c| c.sa.as_ref());
    let suite = ike.suite.expect("the IKE SA is up");
    [suite.to_string(), child.expect("a Child SA").suite.to_string()]
}

#[test]
fn chacha20_with_large_groups_lives_through_rekeys() {
    for group in [Group::Modp3072, Group::Modp4096] {
        let site = Site {
            ike: vec![offer(&[CHACHA20], &[group])],
            pfs: Pfs {
                offer: vec![group],
                accept: vec![group],
                accept_none: false,
                additional: Vec::new(),
            },
            ..Site::default()
        };
        let (mut world, left, right) = World::of_site_encrypting(1, &site, &calm());
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        assert_agreement(&mut world, left, right, &site);
        let flows = talk(&mut world, left, right, &site);
        for (host, name) in
            [(left, "net0"), (right, "net0"), (left, Site::TUNNEL), (right, Site::TUNNEL)]
        {
            assert!(world.rekey(host, name));
            world.run_for(SETTLED / 10);
        }
        assert_nothing_lost(&mut world, flows);
        assert_agreement(&mut world, left, right, &site);
        let suites = [
            format!("CHACHA20-POLY1305/PRF-HMAC-SHA2-256/{group}"),
            format!("AES-GCM-16-128/{group}"),
        ];
        for host in [left, right] {
            assert_eq!(chosen(&mut world, host), suites);
        }
        assert_clean_stop(&mut world, left, right);
    }
}

/// The cipher is the responder's first; the group is the one whose public value came along.
#[test]
fn chacha20_among_others_is_chosen_where_it_is_wanted() {
    let aes = IkeEncryption::AesGcm16(KeyBits::B256);
    let groups = [Group::Modp3072, Group::Modp4096];
    for (encryption, name) in
        [([CHACHA20, aes], "CHACHA20-POLY1305"), ([aes, CHACHA20], "AES-GCM-16-256")]
    {
        let site = Site { ike: vec![offer(&encryption, &groups)], ..Site::default() };
        let (mut world, left, right) = World::of_site(1, &site, &calm());
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        assert_agreement(&mut world, left, right, &site);
        let [ike, _] = chosen(&mut world, right);
        assert_eq!(ike, format!("{name}/PRF-HMAC-SHA2-256/MODP-3072"));
        assert_clean_stop(&mut world, left, right);
    }
}

/// Algorithms that only old peers have, in the IKE SA and in the Child SA.
#[test]
fn algorithms_of_old_peers_live_through_rekeys() {
    let cases = [
        (Integrity::AesXcbc96, Prf::Aes128Xcbc, Group::Modp2048Sub256, "AES-XCBC-96"),
        (Integrity::AesCmac96, Prf::Aes128Cmac, Group::Modp1024, "AES-CMAC-96"),
        (Integrity::HmacMd5_96, Prf::HmacMd5, Group::Modp1536, "HMAC-MD5-96"),
    ];
    for (integrity, prf, group, name) in cases {
        let mut site = Site {
            ike: vec![IkeProposal {
                encryption: vec![IkeEncryption::AesCbc(KeyBits::B128)],
                integrity: vec![integrity],
                prf: vec![prf],
                groups: vec![group],
                additional: Vec::new(),
            }],
            pfs: Pfs {
                offer: vec![group],
                accept: vec![group],
                accept_none: false,
                additional: Vec::new(),
            },
            ..Site::default()
        };
        site.esp[0].protection =
            Protection::encrypt_and_mac(EspEncryption::AesCbc(KeyBits::B256), integrity);
        let (mut world, left, right) = World::of_site_encrypting(1, &site, &calm());
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        let flows = talk(&mut world, left, right, &site);
        for (host, what) in
            [(left, "net0"), (right, Site::TUNNEL), (right, "net0"), (left, Site::TUNNEL)]
        {
            assert!(world.rekey(host, what));
            world.run_for(SETTLED / 10);
        }
        assert_nothing_lost(&mut world, flows);
        assert_agreement(&mut world, left, right, &site);
        let suites =
            [format!("AES-CBC-128/{name}/{prf}/{group}"), format!("AES-CBC-256/{name}/{group}")];
        for host in [left, right] {
            assert_eq!(chosen(&mut world, host), suites);
        }
        assert_clean_stop(&mut world, left, right);
    }
}
