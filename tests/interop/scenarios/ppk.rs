//! Postquantum preshared keys (RFC 8784), with the strongSwan of this machine and with the newest one. Neither has
//! RFC 9867.

use super::refusal::{charon_is_told, vpnd_says};
use super::rekey::{child_by_charon, child_by_vpnd, ike_by_charon, ike_by_vpnd, while_working};
use crate::authority::Plan;
use crate::setup::{IKE_TUNNEL, Setup};
use crate::world::World;
use crate::{Scenario, scenario};

const KEY: &str = "0x8f2d7c1e5b9a4063d8e1f7a2b4c6908137e5d2c4f6a8b0192e3d4c5b6a7f8091";
const OTHER: &str = "0x0011223344556677889900112233445566778899001122334455667788990011";
const NAMED: &str = "ppk_id = site-ppk";
const REQUIRED: &str = "ppk_id = site-ppk\n    ppk_required = yes";

/// Whether a PPK is in the keys of `vpnd`; then its Child SA is quantum-safe, too.
fn uses(world: &World) -> bool {
    let ppk = world.vpnd.tunnel().ike_sa.expect("an IKE SA").ppk;
    assert_eq!(world.vpnd.child_sa().quantum_safe, ppk);
    ppk
}

fn lives(world: &mut World) {
    while_working(world, true, |world| {
        child_by_vpnd(world);
        child_by_charon(world);
        ike_by_charon(world);
        ike_by_vpnd(world);
    });
    assert!(uses(world));
}

fn from_charon(world: &mut World) {
    world.up_from_charon();
    world.exchange_traffic();
    assert!(uses(world));
}

fn without_from_vpnd(world: &mut World) {
    world.up_from_vpnd();
    world.exchange_traffic();
    assert!(!uses(world));
}

fn without_from_charon(world: &mut World) {
    world.up_from_charon();
    world.exchange_traffic();
    assert!(!uses(world));
}

/// `why` names the key.
fn differ(world: &mut World) {
    vpnd_says(world, &["site-ppk"]);
    let told = world.vpnd.ctl_ok(&["why", IKE_TUNNEL]);
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("compare the octets of the PPK site-ppk"), "{told}");
}

pub fn all() -> Vec<Scenario> {
    let mut all = Vec::new();
    for newest in [false, true] {
        let name = |name: &str| match newest {
            false => format!("ppk::{name}"),
            true => format!("newest::ppk::{name}"),
        };
        let ppks = [KEY; 2];
        let base = Setup {
            newest,
            ppk: "site-ppk",
            ppks,
            charon_connection: REQUIRED,
            ..Setup::default()
        };
        let optional = Setup { ppk: "site-ppk NONE", charon_connection: NAMED, ..base.clone() };
        let without = Setup { ppks: [KEY, ""], charon_connection: "", ..optional.clone() };
        let certificates = |setup: &Setup| Setup {
            certificates: Some(Plan::default()),
            signatures: "ECDSA_signatures",
            ..setup.clone()
        };
        let ours_lacks = Setup { ppk: "", ppks: ["", KEY], ..optional.clone() };
        let other = Setup { ppks: [KEY, OTHER], ..base.clone() };
        let unnamed = Setup { ppks: [KEY, ""], charon_connection: "", ..base.clone() };
        all.extend([
            scenario(name("required::rekeys"), base.clone(), lives),
            scenario(name("required::from_charon"), base.clone(), from_charon),
            scenario(name("optional::rekeys"), optional.clone(), lives),
            scenario(name("optional::from_charon"), optional.clone(), from_charon),
            scenario(name("certificates::rekeys"), certificates(&optional), lives),
            scenario(name("certificates::from_charon"), certificates(&optional), from_charon),
            scenario(name("charon_lacks::from_vpnd"), without.clone(), without_from_vpnd),
            scenario(name("charon_lacks::from_charon"), without.clone(), without_from_charon),
            scenario(name("charon_lacks::certificates"), certificates(&without), without_from_vpnd),
            scenario(name("vpnd_lacks::from_vpnd"), ours_lacks.clone(), without_from_vpnd),
            scenario(name("vpnd_lacks::from_charon"), ours_lacks, without_from_charon),
            scenario(name("differ::from_vpnd"), other.clone(), differ),
            scenario(name("differ::from_charon"), other, |world| {
                charon_is_told(world, "AUTH", "authentication_failed", &["PPK site-ppk"]);
            }),
            scenario(name("charon_requires_none::from_vpnd"), unnamed.clone(), |world| {
                vpnd_says(world, &["uses no PPK, but the policy requires one: site-ppk"]);
            }),
            scenario(name("charon_requires_none::from_charon"), unnamed, |world| {
                charon_is_told(world, "AUTH", "authentication_failed", &["uses no PPK"]);
            }),
        ]);
    }
    let additional = "aes256-sha256-x25519-ke1_mlkem768";
    all.push(scenario(
        "newest::ppk::ml_kem::rekeys",
        Setup {
            newest: true,
            ppk: "site-ppk",
            ppks: [KEY; 2],
            charon_connection: REQUIRED,
            additional: "ML-KEM-768",
            charon_ike: additional,
            charon_esp: "aes256gcm16-x25519-ke1_mlkem768",
            ..Setup::default()
        },
        lives,
    ));
    all
}
