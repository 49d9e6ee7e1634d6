//! The private keys of both sides are in the same PKCS#11 token.

use crate::authority::{HOSTS, Key, Maker, Plan};
use crate::setup::Setup;
use crate::world::World;
use crate::{Scenario, scenario};

fn carries_traffic(world: &World) {
    world.exchange_traffic();
    let certs = world.vpnd.ctl_ok(&["certs", "--json"]);
    let certs: serde_json::Value = serde_json::from_str(&certs).expect("what it documents");
    let mut all = certs.as_array().expect("a list").iter();
    let own = all.find(|certificate| certificate["role"] == "own").expect("its certificate");
    assert_eq!(own["token"], format!("token \"vpn\", object \"{}\"", HOSTS[0]));
    let log = world.charon.log();
    assert!(log.contains("found key on PKCS#11 token 'softhsm'"), "{log}");
}

pub fn all() -> Vec<Scenario> {
    let kinds = [
        ("tokens::rsa", Key::Rsa(3072), "RSA_signatures"),
        ("tokens::ecdsa256", Key::Ecdsa(256), "ECDSA_signatures"),
        ("tokens::ecdsa384", Key::Ecdsa(384), "ECDSA_signatures"),
    ];
    let both_roles = |(kind, key, signatures)| {
        let plan = Plan { maker: Maker::Vpnctl, key, token: true, ..Plan::default() };
        let setup = Setup { certificates: Some(plan), signatures, ..Setup::default() };
        let name = |side| format!("{kind}::{side}");
        let from_vpnd = scenario(name("from_vpnd"), setup.clone(), |world: &mut World| {
            world.up_from_vpnd();
            carries_traffic(world);
        });
        let from_charon = scenario(name("from_charon"), setup, |world: &mut World| {
            world.up_from_charon();
            carries_traffic(world);
        });
        [from_vpnd, from_charon]
    };
    kinds.into_iter().flat_map(both_roles).collect()
}
