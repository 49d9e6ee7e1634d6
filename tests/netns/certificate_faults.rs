//! Certificates that a gateway cannot use, or that its peer does not accept.

use crate::certificates::{Authority, policies, serial, two_of};
use crate::planted::{Planted, plants};
use libtest_mimic::Trial;
use testkit::GATEWAYS;
use testkit::gateway::Gateway;
use testkit::policies::changed;

pub fn trials() -> Vec<Trial> {
    vec![
        plants("a certificate out of time on either side", GATEWAYS, out_of_time),
        plants("a certificate of an unknown authority", GATEWAYS, unknown_authority),
        plants("a certificate that is revoked", GATEWAYS, revoked),
    ]
}

const HOSTS: [&str; 2] = ["left.example.net", "right.example.net"];
const VALID: [i32; 2] = [2020, 2900];

/// Both gateways of the sample policy with certificates; a command starts the tunnel.
fn two() -> [Gateway; 2] {
    let [left, right] = policies();
    two_of([changed(&left, "_Flags_AutoStart=\"Yes\"", "_Flags_AutoStart=\"No\""), right])
}

/// Starts the tunnel from the left in vain.
fn fails(planted: &Planted, gateways: &mut [Gateway; 2]) {
    planted.now();
    gateways.iter_mut().rev().for_each(Gateway::start);
    gateways[0].ctl_fails(&["activate", "cert_k"], 1);
}

fn out_of_time(planted: &Planted) {
    let cases = [([2001, 2002], "has expired"), ([2800, 2900], "is not valid yet")];
    for (years, fault) in cases {
        for owner in 0..2 {
            let mut gateways = two();
            let authority = Authority::new();
            for (end, gateway) in gateways.iter().enumerate() {
                let years = if end == owner { years } else { VALID };
                authority.equip_for(gateway, HOSTS[end], years);
            }
            fails(planted, &mut gateways);
            let side = ["that begins", "that answers"][owner];
            let named = format!("the certificate of the side {side} {fault}");
            planted.is_named(&named, &gateways[owner], &["why", "cert_k"]);
        }
    }
}

fn unknown_authority(planted: &Planted) {
    let mut gateways = two();
    for ((gateway, host), name) in gateways.iter().zip(HOSTS).zip(["root", "other root"]) {
        Authority::named(name).equip(gateway, host);
    }
    fails(planted, &mut gateways);
    let [left, right] = &gateways;
    planted.is_named("the peer's authority is unknown", right, &["why", "cert_k"]);
    planted.is_named("this side's authority is unknown to the peer", left, &["why", "cert_k"]);
}

fn revoked(planted: &Planted) {
    let mut gateways = two();
    let mut authority = Authority::new();
    authority.revoke(serial(HOSTS[0]));
    for (gateway, host) in gateways.iter().zip(HOSTS) {
        authority.equip(gateway, host);
    }
    fails(planted, &mut gateways);
    let [left, right] = &gateways;
    planted.is_named("the peer's certificate is revoked", right, &["why", "cert_k"]);
    planted.is_named("this side's certificate is revoked", left, &["why", "cert_k"]);
}
