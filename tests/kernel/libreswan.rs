//! `vpnd`, and a libreswan whose packets the kernel protects. libreswan sends on a new Child SA before `vpnd` can have
//! it: the userspace plane keeps such packets. The kernel drops them, so that its plane may lose some with each rekey
//! that `vpnd` begins; it is met with rekeys by libreswan.

mod certificates;
mod children;
mod endurance;
mod fragments;
mod pluto;
mod scenes;
mod setup;

use crate::guest::{Group, Kernel, Scenario, scenario};
use crate::peer::Peer;
use certificates::{ECDSA, RSA};
use setup::{CBC_128, CBC_256, CHACHA, GCM_128, GCM_256, GMAC, Setup};
use testkit::{Need, until};

const NEEDS: &[Need] = &[
    Need::Program("chroot"),
    Need::Program("openssl"),
    Need::Program("ping"),
    Need::Peer("libreswan", "usr/libexec/ipsec/pluto"),
];

pub fn groups() -> [Group; 2] {
    let group = |name, scenarios| Group { name, kernel: Kernel::Any, scenarios };
    [group("libreswan, matrix", matrix()), group("libreswan, scenes", scenes::all())]
}

fn matrix() -> Vec<Scenario> {
    let esn = |setup| Setup { esn: true, ..setup };
    let v6 = |setup| Setup { v6: true, ..setup };
    let udp = |setup| Setup { udp: true, ..setup };
    let transport = |setup| Setup { transport: true, ..setup };
    let table = [
        esn(GCM_256),
        transport(v6(GCM_128)),
        v6(CBC_256),
        transport(udp(CBC_128)),
        udp(CHACHA),
        transport(esn(GMAC)),
        Setup { certificates: Some(RSA), ..GCM_256 },
        Setup { certificates: Some(RSA), ..udp(GCM_128) },
        Setup { certificates: Some(ECDSA), ..esn(CBC_256) },
        Setup { certificates: Some(ECDSA), ..CBC_128 },
        udp(v6(GCM_256)),
        transport(udp(v6(GCM_128))),
        esn(v6(GMAC)),
        transport(esn(CBC_256)),
    ];
    let of = |(number, setup): (usize, Setup)| {
        let words = [
            setup.esp,
            if setup.transport { "transport" } else { "tunnel" },
            if setup.v6 { "IPv6" } else { "IPv4" },
            if setup.udp { "in UDP" } else { "native" },
            if setup.esn { "ESN" } else { "no ESN" },
            setup.certificates.map_or("PSK", |key| key.title),
        ];
        let by_vpnd = number % 2 == 0;
        let initiator = if by_vpnd { "begun by vpnd" } else { "begun by libreswan" };
        scenario(format!("{}, {initiator}", words.join(" ")), NEEDS, move || one(&setup, by_vpnd))
    };
    table.into_iter().enumerate().map(of).collect()
}

/// Comes up, carries traffic, is rekeyed by both sides under it, and goes.
fn one(setup: &Setup, by_vpnd: bool) {
    let mut world = setup.world();
    world.up(by_vpnd);
    for size in [8, 1000] {
        let options = format!("-I {} -s {size}", setup.inner()[0]);
        let echoes = world.vpnd.space.pings(&options, 2, setup.inner()[1]);
        assert!(echoes.is_ok(), "{echoes:?} {}", world.state());
    }
    world.under_traffic(|| {
        world.rekey_by_both();
        world.vpnd.ctl_ok(&["rekey", "site"]);
        world.peer.rekey_ike();
    });
    world.streams();
    world.nothing_refused();
    world.vpnd.ctl_ok(&["deactivate", "site"]);
    let gone = || world.peer.whack(&["--trafficstatus"]).trim().is_empty().then_some(());
    until("libreswan to have no SA", gone, || world.state());
    world.vpnd.stop();
}
