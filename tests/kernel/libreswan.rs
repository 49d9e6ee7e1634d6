//! `vpnd` in userspace, and a libreswan whose packets the kernel protects. libreswan sends on a new Child SA before `vpnd` can have
//! it: the userspace plane keeps such packets. The kernel would drop them, so that its plane loses one or two with each rekey that
//! `vpnd` begins.

mod pluto;

use crate::guest::{Group, Kernel, Scenario, scenario};
use crate::harness::{Need, policies, until};
use crate::peer::{Peer, USERSPACE, World};
use pluto::{NAME, Pluto};
use std::fmt::Write;

const NEEDS: &[Need] = &[
    Need::Program("chroot"),
    Need::Program("ping"),
    Need::Peer("libreswan", "usr/libexec/ipsec/pluto"),
];

pub fn group() -> Group {
    Group { name: "libreswan, matrix", kernel: Kernel::Any, scenarios: matrix() }
}

/// A tunnel, as both sides are told of it.
#[derive(Clone, Copy)]
struct Setup {
    /// `ESP_Encryption` and `ESP_Authentication` of the policy.
    policy: [&'static str; 2],
    /// The same in `ipsec.conf`.
    esp: &'static str,
    transport: bool,
    udp: bool,
    v6: bool,
    esn: bool,
}

const GCM_256: Setup = Setup {
    policy: ["ESP_AES256_GCM_16", "NONE"],
    esp: "aes_gcm256",
    transport: false,
    udp: false,
    v6: false,
    esn: false,
};
const GCM_128: Setup =
    Setup { policy: ["ESP_AES128_GCM_16", "NONE"], esp: "aes_gcm128", ..GCM_256 };
const GMAC: Setup =
    Setup { policy: ["ESP_AES256_GMAC", "NONE"], esp: "null_auth_aes_gmac_256", ..GCM_256 };
const CHACHA: Setup =
    Setup { policy: ["ESP_CHACHA20_POLY1305", "NONE"], esp: "chacha20_poly1305", ..GCM_256 };
const CBC_256: Setup =
    Setup { policy: ["ESP_AES_CBC_256", "HMAC-SHA2-256"], esp: "aes256-sha2_256", ..GCM_256 };
const CBC_128: Setup =
    Setup { policy: ["ESP_AES_CBC_128", "HMAC-SHA"], esp: "aes128-sha1", ..GCM_256 };

impl Setup {
    /// policy.xml of `vpnd`.
    fn policy(&self) -> String {
        let mode = if self.transport { "Transport" } else { "Tunnel" };
        let esn = u8::from(self.esn);
        let [cipher, mac] = self.policy;
        let element = format!(
            "<IPSecESPProtocol ESP_Encryption=\"{cipher}\" ESP_Authentication=\"{mac}\" \
             ESP_EncapsulationMode=\"{mode}\" ESP_ExtendedSeqNum=\"{esn}\" ESP_KeyRefreshKB=\"0\" \
             ESP_KeyRefreshMinutes=\"60\"/>"
        );
        policies::site_with(0, self.v6, self.transport, &element)
    }

    fn outer(&self) -> [&'static str; 2] {
        policies::SITE_ADDRESSES[usize::from(self.v6)]
    }

    fn inner(&self) -> [&'static str; 2] {
        if self.transport { self.outer() } else { ["10.1.0.1", "10.2.0.1"] }
    }

    /// ipsec.conf of libreswan.
    fn configuration(&self) -> String {
        let [peer, own] = self.outer();
        let esn = if self.esn { "yes" } else { "no" };
        let mut text = format!(
            "config setup
    uniqueids=yes

conn {NAME}
    left={own}
    right={peer}
    authby=secret
    keyexchange=ikev2
    ike=aes256-sha2_256;dh19
    esp={};dh19
    esn={esn}
    auto=add
",
            self.esp
        );
        let mut line = |line: &str| _ = writeln!(text, "    {line}");
        match self.transport {
            true => line("type=transport"),
            false => {
                line("leftsubnet=10.2.0.0/24");
                line("rightsubnet=10.1.0.0/24");
            }
        }
        if self.udp {
            line("encapsulation=yes");
        }
        text
    }

    fn world(&self) -> World<Pluto> {
        let [peer, own] = self.outer();
        let secrets = format!("{own} {peer} : PSK \"tests-replace-this-key-before-use\"\n");
        let inner = self.inner().map(|address| address.parse().expect("an address"));
        World::new(USERSPACE, &self.policy(), self.outer(), inner, ["site", "site_lan"], |space| {
            if !self.transport {
                // Policies of the kernel take packets off whatever route they go.
                space.ip("route add 10.1.0.0/16 dev wire src 10.2.0.1");
            }
            Pluto::start(space, &self.configuration(), &secrets)
        })
    }
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
    ];
    let of = |(number, setup): (usize, Setup)| {
        let words = [
            setup.esp,
            if setup.transport { "transport" } else { "tunnel" },
            if setup.v6 { "IPv6" } else { "IPv4" },
            if setup.udp { "in UDP" } else { "native" },
            if setup.esn { "ESN" } else { "no ESN" },
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
