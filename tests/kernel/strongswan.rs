//! `vpnd` and a strongSwan whose packets the kernel protects: native ESP, AH, transport mode and extended sequence
//! numbers, none of which strongSwan's own userspace plane has.

mod charon;
mod setup;

use crate::guest::{Group, Kernel, Scenario, scenario};
use crate::peer::{Peer, USERSPACE, World, XFRM};
use charon::Charon;
use setup::{Protection, Setup};
use testkit::policies::{self, changed};
use testkit::{Need, until};

const NEEDS: &[Need] = &[
    Need::Program("ping"),
    Need::Program("setpriv"),
    Need::Program("swanctl"),
    Need::File("/usr/lib/ipsec/charon"),
];

pub fn groups() -> [Group; 5] {
    let group = |name, scenarios| Group { name, kernel: Kernel::Any, scenarios };
    [
        group("strongSwan, matrix", matrix(USERSPACE, &in_userspace())),
        group("strongSwan, kernel plane", matrix(XFRM, &in_kernel())),
        group("strongSwan", sample()),
        group("own clock, vpnd", own_clock("by its own lifetimes, begun by vpnd", true)),
        group(
            "own clock, strongSwan",
            own_clock("by its own lifetimes, begun by strongSwan", false),
        ),
    ]
}

/// Protections in the words of both sides.
mod protection {
    use super::Protection;

    const fn esp(
        policy: [&'static str; 2],
        charon: &'static str,
        listed: &'static str,
    ) -> Protection {
        Protection { ah: false, policy, charon, listed }
    }

    pub const GCM_128: Protection =
        esp(["ESP_AES128_GCM_16", "NONE"], "aes128gcm16", "AES_GCM_16-128");
    pub const GCM_256: Protection =
        esp(["ESP_AES256_GCM_16", "NONE"], "aes256gcm16", "AES_GCM_16-256");
    pub const GMAC: Protection =
        esp(["ESP_AES128_GMAC", "NONE"], "aes128gmac", "NULL_AES_GMAC-128");
    pub const CHACHA: Protection =
        esp(["ESP_CHACHA20_POLY1305", "NONE"], "chacha20poly1305", "CHACHA20_POLY1305");
    pub const CBC_256: Protection =
        esp(["ESP_AES_CBC_256", "HMAC-SHA2-256"], "aes256-sha256", "AES_CBC-256/HMAC_SHA2_256_128");
    pub const CBC_128: Protection =
        esp(["ESP_AES_CBC_128", "HMAC-SHA"], "aes128-sha1", "AES_CBC-128/HMAC_SHA1_96");
    pub const NULL: Protection =
        esp(["ESP_NULL", "HMAC-SHA2-512"], "null-sha512", "NULL/HMAC_SHA2_512_256");
    pub const AH: Protection = Protection {
        ah: true,
        policy: ["AH_SHA2_256", ""],
        charon: "sha256",
        listed: "HMAC_SHA2_256_128",
    };
    pub const AH_SHA1: Protection =
        Protection { ah: true, policy: ["AH_SHA", ""], charon: "sha1", listed: "HMAC_SHA1_96" };
}

/// The policy that the AIX document prints, unaltered.
fn sample() -> Vec<Scenario> {
    vec![
        scenario("the vendor's sample policy, begun by vpnd", NEEDS, || vendor(true)),
        scenario("the vendor's sample policy, begun by strongSwan", NEEDS, || vendor(false)),
    ]
}

/// The same for as long as some of its lifetimes take, in a guest of its own.
fn own_clock(name: &str, by_vpnd: bool) -> Vec<Scenario> {
    let name = format!("the vendor's sample policy, {name}");
    vec![scenario(name, NEEDS, move || renewed_by_timers(by_vpnd))]
}

/// A protection, and whether it is in transport mode, in UDP, over IPv6 and with extended sequence numbers.
type Combination = (Protection, bool, bool, bool, bool);

const TUNNEL: bool = false;
const TRANSPORT: bool = true;
const NATIVE: bool = false;
const UDP: bool = true;
const V4: bool = false;
const V6: bool = true;
const ESN: bool = true;
const SHORT: bool = false;

/// Every suite in every mode and encapsulation is played with manual keys: these are for what is negotiated.
fn in_userspace() -> [Combination; 10] {
    use protection::*;
    [
        (GCM_256, TUNNEL, NATIVE, V4, ESN),
        (GCM_128, TRANSPORT, NATIVE, V6, ESN),
        (CBC_256, TUNNEL, NATIVE, V6, ESN),
        (CBC_128, TRANSPORT, UDP, V4, SHORT),
        (CHACHA, TUNNEL, UDP, V6, SHORT),
        (GMAC, TRANSPORT, NATIVE, V4, ESN),
        (GMAC, TUNNEL, UDP, V4, SHORT),
        (AH, TRANSPORT, NATIVE, V4, ESN),
        (AH_SHA1, TUNNEL, NATIVE, V6, SHORT),
        (NULL, TRANSPORT, NATIVE, V4, SHORT),
    ]
}

fn in_kernel() -> [Combination; 8] {
    use protection::*;
    [
        (GCM_256, TRANSPORT, NATIVE, V4, ESN),
        (GCM_128, TUNNEL, UDP, V4, SHORT),
        (CBC_256, TUNNEL, NATIVE, V4, ESN),
        (CBC_128, TRANSPORT, UDP, V6, SHORT),
        (GMAC, TUNNEL, NATIVE, V6, ESN),
        (CHACHA, TUNNEL, UDP, V6, ESN),
        (AH, TRANSPORT, NATIVE, V6, SHORT),
        (AH_SHA1, TUNNEL, NATIVE, V4, ESN),
    ]
}

fn matrix(plane: &'static str, table: &[Combination]) -> Vec<Scenario> {
    let of = |(number, &(protection, transport, udp, v6, esn)): (usize, &Combination)| {
        let setup = Setup { protection, transport, udp, v6, esn };
        let words = [
            if protection.ah { "AH" } else { "ESP" },
            protection.charon,
            if transport { "transport" } else { "tunnel" },
            if v6 { "IPv6" } else { "IPv4" },
            if udp { "in UDP" } else { "native" },
            if esn { "ESN" } else { "no ESN" },
        ];
        let by_vpnd = number % 2 == 0;
        let initiator = if by_vpnd { "begun by vpnd" } else { "begun by strongSwan" };
        let title = format!("{}, {initiator}", words.join(" "));
        scenario(title, NEEDS, move || one(plane, &setup, by_vpnd))
    };
    table.iter().enumerate().map(of).collect()
}

/// `vpnd` with the sample, whose responder's windows may be changed, and strongSwan.
fn with_sample(policy: &str) -> World<Charon> {
    let addresses = policies::VENDOR_ADDRESSES;
    let inner = addresses.map(|address| address.parse().expect("an address"));
    let charon = |space| Charon::start(space, &setup::vendor());
    World::new(USERSPACE, policy, addresses, inner, ["LP1", "LP2"], charon)
}

/// Rekeys by the timers of `vpnd`, which is the initiator of each. strongSwan's own lifetimes are hours.
const CHILD_REKEYS: u64 = 3;
const IKE_REKEYS: u64 = 2;

/// Nobody types a command: the sample's lifetimes, 3 minutes for Child SAs and 5 for IKE SAs, renew the keys. Where
/// strongSwan asks for the SAs, the responder's windows first make it 2 and 7.
fn renewed_by_timers(by_vpnd: bool) {
    let policy = match by_vpnd {
        true => policies::VENDOR.to_owned(),
        false => {
            let child =
                ["43200", "2"].map(|m| format!("IPSec_ResponderKeyRefreshMaxMinutes=\"{m}\""));
            let ike = ["1", "7"].map(|m| format!("IKE_ResponderKeyRefreshMinMinutes=\"{m}\""));
            [child, ike]
                .iter()
                .fold(policies::VENDOR.to_owned(), |text, [from, to]| changed(&text, from, to))
        }
    };
    let mut world = with_sample(&policy);
    let watch = world.peer.space().watch("wire");
    world.up(by_vpnd);
    let status = || world.vpnd.json(&["status", "LP1", "--json"]);
    let first = status();
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    let child = number(&first["children"][0]["child_sa"]["lifetime_seconds"]);
    let ike = number(&first["ike_sa"]["expires_in_seconds"]).div_ceil(60);
    assert_eq!((ike, child), if by_vpnd { (5, 180) } else { (7, 120) }, "{first}");
    world.under_traffic(|| {
        for rekeys in 1..=CHILD_REKEYS {
            let renewed = || {
                let status = status();
                (number(&status["children"][0]["child_sa"]["rekeys"]) >= rekeys).then_some(())
            };
            until("a rekey of the Child SA", renewed, || world.state());
        }
        for rekeys in 1..=IKE_REKEYS {
            let renewed = || (number(&status()["ike_sa"]["rekeys"]) >= rekeys).then_some(());
            until("a rekey of the IKE SA", renewed, || world.state());
        }
    });
    let last = status();
    println!("{} rekeys of the IKE SA", last["ike_sa"]["rekeys"]);
    println!("{} rekeys of the Child SA", last["children"][0]["child_sa"]["rekeys"]);
    assert_eq!(last["children"][0]["child_sa"]["lifetime_seconds"], 180, "{last}");
    world.peer.await_one();
    world.nothing_refused();
    world.vpnd.stop();
    watch.nothing_in_the_clear();
}

/// Comes up, carries traffic, is rekeyed by both sides under it, and goes.
fn vendor(by_vpnd: bool) {
    let mut world = with_sample(policies::VENDOR);
    let watch = world.peer.space().watch("wire");
    world.up(by_vpnd);
    let sas = world.peer.await_one();
    assert!(sas.contains("AES_CBC-256/HMAC_SHA1_96/PRF_HMAC_SHA1/ECP_384"), "{sas}");
    assert!(sas.contains("INSTALLED, TRANSPORT, ESP:AES_GCM_16-256"), "{sas}");
    let status = world.vpnd.json(&["status", "LP1", "--json"]);
    let child = &status["children"][0];
    assert_eq!(child["mode"], "transport", "{status}");
    assert_eq!(child["child_sa"]["encapsulation"], "native", "{status}");
    world.vpnd.space.pings("-s 1300", 10, policies::VENDOR_ADDRESSES[1]).expect("echoes");
    world.under_traffic(|| {
        world.rekey_by_both();
        world.vpnd.ctl_ok(&["rekey", "LP1"]);
        world.peer.rekey_ike();
    });
    world.streams();
    world.nothing_refused();
    world.vpnd.ctl_ok(&["deactivate", "LP1"]);
    let gone = || world.peer.swanctl(&["--list-sas"]).trim().is_empty().then_some(());
    until("strongSwan to have no SA", gone, || world.state());
    assert_eq!(world.peer.space().ip("xfrm state"), "");
    world.vpnd.stop();
    watch.nothing_in_the_clear();
}

fn one(plane: &'static str, setup: &Setup, by_vpnd: bool) {
    let mut world = World::new(
        plane,
        &setup.policy(),
        setup.outer(),
        setup.inner(),
        ["site", "site_lan"],
        |space| Charon::start(space, &setup.connections()),
    );
    world.up(by_vpnd);
    let sas = world.peer.await_one();
    let kind = if setup.protection.ah { "AH" } else { "ESP" };
    let udp = if setup.udp { "-in-UDP" } else { "" };
    let mode = if setup.transport { "TRANSPORT" } else { "TUNNEL" };
    let listed = format!("INSTALLED, {mode}{udp}, {kind}:{}", setup.protection.listed);
    assert!(sas.contains(&listed), "{listed}: {sas}");
    assert_eq!(sas.contains("/ESN"), setup.esn, "{sas}");
    let protects = if plane == XFRM { 2 } else { 0 };
    let states = world.vpnd.space.ip("xfrm state");
    assert_eq!(states.matches(" mode ").count(), protects, "{states}");
    let sizes = [0, 1, 2, 3, 1000];
    for size in sizes {
        // Linux drops ESP in UDP over IPv6 that is very short.
        let size = if setup.udp && setup.v6 { size.max(8) } else { size };
        let options = format!("-I {} -s {size}", setup.inner()[0]);
        world.vpnd.space.pings(&options, 2, &setup.inner()[1].to_string()).expect("echoes");
    }
    world.under_traffic(|| world.rekey_by_both());
    world.streams();
    world.nothing_refused();
    world.vpnd.stop();
    assert_eq!(world.vpnd.space.ip("xfrm state"), "");
}
