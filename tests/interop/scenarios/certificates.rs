//! Certificates in place of preshared keys, made by both of the tools that people make them with.

use super::refusal::{charon_is_told, vpnd_says};
use crate::authority::{HOSTS, Key, Maker, Naming, Plan, Revocation};
use crate::setup::Setup;
use crate::world::World;
use crate::{Scenario, scenario};
use std::sync::atomic::Ordering;

/// A setup with certificates.
fn with(plan: Plan) -> Setup {
    let signatures = match plan.key {
        Key::Rsa(_) => "RSA_signatures",
        Key::Ecdsa(_) => "ECDSA_signatures",
        Key::Ed25519 => "Ed25519",
    };
    Setup { certificates: Some(plan), signatures, ..Setup::default() }
}

/// The tunnel comes up from either side, and carries traffic.
fn both_roles(name: &str, setup: &Setup) -> [Scenario; 2] {
    let name = |side| format!("certificates::{name}::{side}");
    let from_vpnd = scenario(name("from_vpnd"), setup.clone(), |world: &mut World| {
        world.up_from_vpnd();
        world.exchange_traffic();
    });
    let from_charon = scenario(name("from_charon"), setup.clone(), |world: &mut World| {
        world.up_from_charon();
        world.exchange_traffic();
    });
    [from_vpnd, from_charon]
}

/// The tunnel comes up from neither side, and `vpnd` says so in these words.
fn refused(name: &str, setup: &Setup, words: &'static [&'static str]) -> [Scenario; 2] {
    let name = |side| format!("certificates::{name}::{side}");
    let from_vpnd = scenario(name("from_vpnd"), setup.clone(), |world: &mut World| {
        vpnd_says(world, words);
    });
    let from_charon = scenario(name("from_charon"), setup.clone(), |world: &mut World| {
        charon_is_told(world, "AUTHENTICATION_FAILED", "bad_certificate", words);
        world.charon.wait_down();
    });
    [from_vpnd, from_charon]
}

fn kinds() -> Vec<Scenario> {
    let kinds = [
        ("rsa", Key::Rsa(2048)),
        ("ecdsa256", Key::Ecdsa(256)),
        ("ecdsa384", Key::Ecdsa(384)),
        ("ecdsa521", Key::Ecdsa(521)),
        ("ed25519", Key::Ed25519),
    ];
    let mut all = Vec::new();
    for (maker, maker_name) in [(Maker::Pki, "pki"), (Maker::OpenSsl, "openssl")] {
        for (name, key) in kinds {
            let setup = with(Plan { maker, key, ..Plan::default() });
            all.extend(both_roles(&format!("{maker_name}::{name}"), &setup));
        }
    }
    let kinds = [("rsa", Key::Rsa(3072)), kinds[1], kinds[2], kinds[4]];
    for (name, key) in kinds {
        let setup = with(Plan { maker: Maker::Vpnctl, key, ..Plan::default() });
        all.extend(both_roles(&format!("vpnctl::{name}"), &setup));
    }
    let rsa = with(Plan { key: Key::Rsa(3072), ..Plan::default() });
    all.extend(both_roles("pss", &Setup { charon: "rsa_pss = yes", ..rsa.clone() }));
    // Without RFC 7427 the methods 1 and 9 to 11 are left, of which 1 has strongSwan sign with SHA-1.
    let classic = "signature_authentication = no";
    let ecdsa = with(Plan { key: Key::Ecdsa(384), ..Plan::default() });
    all.extend(both_roles("classic::ecdsa384", &Setup { charon: classic, ..ecdsa }));
    all
}

fn names_and_chains() -> Vec<Scenario> {
    let mut all = Vec::new();
    for (maker, maker_name) in [(Maker::Pki, "pki"), (Maker::OpenSsl, "openssl")] {
        let plan = Plan { maker, ..Plan::default() };
        let subject = with(Plan { naming: Naming::Subject, ..plan });
        all.extend(both_roles(&format!("subject::{maker_name}"), &subject));
        let chain = with(Plan { intermediate: true, ..plan });
        all.extend(both_roles(&format!("intermediate::{maker_name}"), &chain));
    }
    let large = Plan { key: Key::Rsa(4096), intermediate: true, ..Plan::default() };
    let large = Setup { charon_connection: "fragmentation = yes", ..with(large) };
    all.push(scenario("certificates::fragmented::from_vpnd", large.clone(), |world| {
        world.up_from_vpnd();
        assert_fragmented(world);
        world.exchange_traffic();
    }));
    all.push(scenario("certificates::fragmented::from_charon", large, |world| {
        world.up_from_charon();
        assert_fragmented(world);
        world.exchange_traffic();
    }));
    all
}

/// Messages that do not fit into one datagram were fragmented, both ways.
fn assert_fragmented(world: &World) {
    let log = world.charon.log();
    for said in ["reassembled fragmented IKE message", "splitting IKE message"] {
        assert!(log.contains(said), "charon never says {said:?}");
    }
}

fn refusals() -> Vec<Scenario> {
    let plan = Plan::default();
    let mut all = Vec::new();
    for (maker, name) in [(Maker::Pki, "pki"), (Maker::OpenSsl, "openssl")] {
        let expired = with(Plan { maker, expired: true, ..plan });
        all.extend(refused(
            &format!("expired::{name}"),
            &expired,
            &["CN=right.example.net", "has expired on 2020-12-31", "renewed"],
        ));
    }
    let stranger = with(Plan { stranger: true, ..plan });
    all.extend(refused(
        "unknown_authority",
        &stranger,
        &["CN=root authority", "is not trusted here", "CN=stranger authority"],
    ));
    // strongSwan proves by its subject what it cannot by an alternative name that is not there.
    let other = with(Plan { host: "elsewhere.example.net", ..plan });
    all.extend(refused(
        "wrong_identity",
        &other,
        &["elsewhere.example.net", "is not for right.example.net"],
    ));
    all
}

fn revocation() -> Vec<Scenario> {
    let mut all = Vec::new();
    let makers = [(Maker::Pki, "pki"), (Maker::OpenSsl, "openssl"), (Maker::Vpnctl, "vpnctl")];
    for (maker, name) in makers {
        let plan = Plan { maker, revocation: Revocation::File, ..Plan::default() };
        all.extend(both_roles(&format!("list_in_file::{name}"), &with(plan)));
        all.extend(refused(
            &format!("revoked::list_in_file::{name}"),
            &with(Plan { revoked: true, ..plan }),
            &["CN=right.example.net", "is revoked"],
        ));
    }
    let file = Plan { revocation: Revocation::File, intermediate: true, ..Plan::default() };
    all.extend(both_roles("list_in_file::intermediate", &with(file)));
    let plan = Plan { revocation: Revocation::Http, ..Plan::default() };
    // strongSwan's gateway has the list. `vpnd` is attached to the same network.
    let named = |plan| Setup { vpnd_certificates: "crl_hosts = [\"192.0.2.2\"]", ..with(plan) };
    all.extend(refused(
        "list_by_http::host_not_named",
        &with(plan),
        &["192.0.2.2 is in a network that this machine is attached to", "crl_hosts"],
    ));
    all.extend(refused(
        "revoked::list_by_http",
        &named(Plan { revoked: true, ..plan }),
        &["CN=right.example.net", "is revoked"],
    ));
    all.push(scenario("certificates::list_by_http::from_charon", named(plan), |world| {
        world.up_from_charon();
        world.exchange_traffic();
        assert_eq!(world.lists_served.load(Ordering::Relaxed), 1);
    }));
    all.push(scenario("certificates::list_by_http::fetched_once", named(plan), |world| {
        world.up_from_vpnd();
        world.vpnd.ctl_ok(&["deactivate", crate::setup::IKE_TUNNEL]);
        world.charon.wait_down();
        world.up_from_vpnd();
        assert_eq!(world.lists_served.load(Ordering::Relaxed), 1);
        let certs = world.vpnd.ctl_ok(&["certs"]);
        assert!(certs.contains("http://192.0.2.2:8080/list.crl"), "{certs}");
    }));
    let absent = Plan { revocation: Revocation::Absent, ..plan };
    all.extend(refused(
        "list_absent",
        &with(absent),
        &[
            "whether the certificate",
            "CN=right.example.net",
            "is revoked is not known",
            "http://192.0.2.2:8080",
        ],
    ));
    let accepting = Setup { vpnd_certificates: "without_crl = \"accept\"", ..with(absent) };
    all.extend(both_roles("list_absent::accepted", &accepting));
    all
}

/// The files are read again while a tunnel is up.
fn reload() -> Vec<Scenario> {
    let makers = [(Maker::Pki, "pki"), (Maker::Vpnctl, "vpnctl")];
    let plan = |maker| Plan { maker, revocation: Revocation::File, ..Plan::default() };
    let reload = |(maker, name)| {
        scenario(format!("certificates::reload::{name}"), with(plan(maker)), |world| {
            world.up_from_vpnd();
            let before = world.vpnd.child_sa().inbound_spi;
            world.revoke();
            world.vpnd.ctl_ok(&["reload"]);
            // The SAs that are up stay up; the next authentication is refused.
            assert_eq!(world.vpnd.child_sa().inbound_spi, before);
            world.exchange_traffic();
            world.vpnd.ctl_ok(&["deactivate", crate::setup::IKE_TUNNEL]);
            world.charon.wait_down();
            vpnd_says(world, &[HOSTS[1], "is revoked"]);
        })
    };
    makers.map(reload).into()
}

pub fn all() -> Vec<Scenario> {
    [kinds(), names_and_chains(), refusals(), revocation(), reload()]
        .into_iter()
        .flatten()
        .collect()
}
