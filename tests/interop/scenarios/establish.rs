//! A tunnel comes up from either side, and carries traffic both ways.

use crate::setup::{
    CHILD_TUNNEL, CONNECTION, IKE_TUNNEL, SECOND_CHILD, SECOND_TUNNEL, Second, Setup,
};
use crate::world::World;
use crate::{Scenario, scenario, traffic};
use control::protocol::Child;
use std::net::UdpSocket;
use testkit::eventually;

fn from_vpnd(world: &mut World) {
    world.up_from_vpnd();
    proven(world);
}

fn from_charon(world: &mut World) {
    world.up_from_charon();
    proven(world);
}

/// strongSwan brings up what `vpnd`'s policy was made of.
fn converted_from_charon(world: &mut World) {
    let [_, child] = world.setup.charon_names();
    let initiate = ["--initiate", "--child", child, "--timeout", "240"];
    world.charon.swanctl(&initiate).expect("strongSwan brings it up");
    world.vpnd.wait_up();
    proven(world);
}

/// Traffic passes, counted by the Child SA, and nothing of it is seen on the wire.
fn proven(world: &mut World) {
    world.exchange_traffic();
    let sa = world.vpnd.child_sa();
    assert!(sa.bytes_in > 1 << 20 && sa.bytes_out > 1 << 20, "the SA carried it: {sa:?}");
    assert_eq!(sa.refused, 0, "{sa:?}");
    assert_eq!(sa.encapsulation, "udp");
    world.assert_nothing_in_the_clear();
}

/// Two Child SAs serve on one IKE SA, each for networks of its own.
fn two_children(world: &World) {
    eventually("both Child SAs on one IKE SA", || (world.charon.counts() == (1, 2)).then_some(()));
    world.exchange_traffic();
    let [left, right] = world.setup.second_inner();
    traffic::ping((&world.vpnd.space, left), right, 5);
    traffic::ping((&world.charon.space, right), left, 5);
}

pub fn all() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    let mut both = |name: &str, setup: Setup| {
        scenarios.push(scenario(format!("establish::{name}::from_vpnd"), setup.clone(), from_vpnd));
        scenarios.push(scenario(format!("establish::{name}::from_charon"), setup, from_charon));
    };
    both("addresses", Setup::default());
    both("names", Setup { names: true, ..Setup::default() });
    both("ipv6_inside", Setup::default().with_inner_v6());
    both("ipv6_outside", Setup { outer_v6: true, ..Setup::default() });
    both("ipv6_both", Setup { outer_v6: true, ..Setup::default().with_inner_v6() });
    // strongSwan's defaults, if its operator names no algorithms.
    both(
        "charon_defaults",
        Setup { charon_ike: "default", charon_esp: "default", pfs: "0", ..Setup::default() },
    );
    let converted = |setup: Setup| Setup { converted: true, names: true, ..setup };
    let lists = converted(Setup {
        charon_ike: "aes128gcm16-prfsha384-ecp384, aes256-sha384-x25519-modp2048",
        charon_esp: "aes256-sha256-x25519, aes256gcm16-ecp384",
        charon_connection: "rekey_time = 2h",
        ..Setup::default()
    });
    let defaults =
        converted(Setup { charon_ike: "default", charon_esp: "default", ..Setup::default() });
    for (name, setup) in [("lists", lists), ("defaults", defaults)] {
        let name = format!("establish::converted::{name}");
        scenarios.push(scenario(format!("{name}::from_vpnd"), setup.clone(), from_vpnd));
        scenarios.push(scenario(format!("{name}::from_charon"), setup, converted_from_charon));
    }
    let mut both = |name: &str, setup: Setup| {
        scenarios.push(scenario(format!("establish::{name}::from_vpnd"), setup.clone(), from_vpnd));
        scenarios.push(scenario(format!("establish::{name}::from_charon"), setup, from_charon));
    };
    both("cookie_of_vpnd", Setup { vpnd_ike: "cookie_threshold = 0", ..Setup::default() });
    scenarios.push(scenario(
        "establish::cookie_of_vpnd::is_demanded",
        Setup { vpnd_ike: "cookie_threshold = 0", ..Setup::default() },
        |world| {
            world.up_from_charon();
            assert!(world.charon.log().contains("received COOKIE notify"));
            let counters = world.vpnd.counters();
            assert_eq!(counters.get("ike.without_cookie"), Some(&1), "{counters:?}");
        },
    ));
    scenarios.push(scenario(
        "establish::cookie_of_charon",
        Setup { charon: "cookie_threshold = 1", ..Setup::default() },
        cookie_of_charon,
    ));
    scenarios.push(scenario(
        "establish::second_child",
        Setup { second: Second::Child, ..Setup::default() },
        |world| {
            world.vpnd.ctl_ok(&["activate", IKE_TUNNEL]);
            two_children(world);
            world.vpnd.ctl_ok(&["rekey", SECOND_TUNNEL]);
            world.vpnd.ctl_ok(&["rekey", IKE_TUNNEL]);
            two_children(world);
            world.vpnd.ctl_ok(&["deactivate", SECOND_TUNNEL]);
            eventually("one Child SA is left", || (world.charon.counts() == (1, 1)).then_some(()));
            world.exchange_traffic();
            world.assert_nothing_in_the_clear();
        },
    ));
    scenarios.push(scenario(
        "establish::second_child::from_charon",
        Setup { second: Second::Child, ..Setup::default() },
        |world| {
            world.up_from_charon();
            let second = ["--initiate", "--child", SECOND_CHILD, "--timeout", "240"];
            world.charon.swanctl(&second).expect("a second Child SA");
            two_children(world);
            super::rekey::ike_with_any_children_by_charon(world);
            two_children(world);
            world.charon.swanctl(&["--terminate", "--child", SECOND_CHILD]).expect("it ends");
            eventually("one Child SA is left at vpnd", || {
                let up = |child: &Child| child.child_sa.is_some();
                (world.vpnd.tunnel().children.iter().filter(|c| up(c)).count() == 1).then_some(())
            });
            world.exchange_traffic();
            world.assert_nothing_in_the_clear();
        },
    ));
    scenarios.push(scenario(
        "establish::both_at_once",
        Setup {
            // Of two IKE SAs that begin at once, one may end only when it is given up: after twenty seconds.
            charon: "retransmit_timeout = 0.3\n  retransmit_tries = 8",
            retransmit: ("500ms", 5),
            ..Setup::default()
        },
        |world| {
            world.cross(
                &["activate", IKE_TUNNEL],
                &["--initiate", "--child", CONNECTION, "--timeout", "240"],
            );
            // Both commands end with the first IKE SA that is up; the other follows.
            world.charon.wait_log("net[2]");
            world.vpnd.wait_up();
            // strongSwan keeps both: one of them is for vpnd to close.
            world.charon.wait_up();
            world.vpnd.wait_log("another IKE SA serves the tunnel");
            world.exchange_traffic();
        },
    ));
    scenarios.push(scenario("establish::large_packets", Setup::default(), |world| {
        world.up_from_vpnd();
        let [left, right] = world.hosts();
        for octets in [1300, 1400, 1450, 3000, 20_000] {
            traffic::ping_with(left, right.1, 3, octets);
            traffic::ping_with(right, left.1, 3, octets);
        }
        world.assert_nothing_in_the_clear();
    }));
    scenarios.push(scenario(
        "establish::other_group::after_cookie_from_charon",
        Setup {
            ike: &[
                ("IKE_Encryption", "AES-CBC-256"),
                ("IKE_PRF", "PRF_HMAC_SHA2_256"),
                ("IKE_Hash", "HMAC_SHA2_256"),
                ("IKE_DHGroup", "20"),
            ],
            charon_ike: "aes256-sha256-x25519-ecp384",
            vpnd_ike: "cookie_threshold = 0",
            ..Setup::default()
        },
        from_charon,
    ));
    // The first guess of the initiator is a group that the other side does not take.
    let mut other_group = |name: &str, setup: Setup, play: fn(&mut World)| {
        scenarios.push(scenario(format!("establish::other_group::{name}"), setup, play));
    };
    other_group(
        "from_vpnd",
        Setup {
            ike: &[
                ("IKE_Encryption", "AES-CBC-256"),
                ("IKE_PRF", "PRF_HMAC_SHA2_256"),
                ("IKE_Hash", "HMAC_SHA2_256"),
                ("IKE_DHGroup", "31"),
                ("IKE_DHGroup", "20"),
            ],
            charon_ike: "aes256-sha256-ecp384",
            ..Setup::default()
        },
        |world| {
            world.up_from_vpnd();
            assert!(world.charon.log().contains("CURVE_25519 unacceptable"));
            world.exchange_traffic();
        },
    );
    other_group(
        "from_charon",
        Setup {
            ike: &[
                ("IKE_Encryption", "AES-CBC-256"),
                ("IKE_PRF", "PRF_HMAC_SHA2_256"),
                ("IKE_Hash", "HMAC_SHA2_256"),
                ("IKE_DHGroup", "20"),
            ],
            charon_ike: "aes256-sha256-x25519-ecp384",
            ..Setup::default()
        },
        |world| {
            world.up_from_charon();
            assert!(world.charon.log().contains("it requested ECP_384"));
            world.exchange_traffic();
        },
    );
    // strongSwan sends IKE_AUTH without a Child SA (RFC 6023).
    let childless = Setup { charon_connection: "childless = force", ..Setup::default() };
    scenarios.push(scenario("establish::childless::from_charon", childless.clone(), from_charon));
    scenarios.push(scenario("establish::childless::from_vpnd", childless, childless_from_vpnd));
    scenarios
}

/// strongSwan refuses IKE_AUTH with a Child SA: vpnd starts over without one.
pub fn childless_from_vpnd(world: &mut World) {
    world.up_from_vpnd();
    world.vpnd.wait_log("the peer refuses a Child SA in IKE_AUTH");
    world.exchange_traffic();
    let child = world.vpnd.child_sa();
    world.vpnd.ctl_ok(&["rekey", IKE_TUNNEL]);
    world.vpnd.ctl_ok(&["rekey", CHILD_TUNNEL]);
    assert_ne!(world.vpnd.child_sa().inbound_spi, child.inbound_spi);
    world.exchange_traffic();
}

/// strongSwan asks for cookies as soon as there is one half-open IKE SA, which a stranger leaves here.
fn cookie_of_charon(world: &mut World) {
    let (from, to) = (world.setup.outer()[0], world.setup.outer()[1]);
    let stranger = world.vpnd.space.run(move || UdpSocket::bind((from, 0))).expect("its address");
    stranger.send_to(&first_message_of_a_stranger(), (to, 500)).expect("a route");
    world.charon.wait_log("selected proposal: IKE:AES_CBC_256/HMAC_SHA2_256_128");
    world.up_from_vpnd();
    let log = world.charon.log();
    assert!(log.contains("sending COOKIE") || log.contains("N(COOKIE)"), "no cookie was asked for");
    world.exchange_traffic();
}

/// An IKE_SA_INIT request that strongSwan accepts, of somebody who never goes on.
fn first_message_of_a_stranger() -> Vec<u8> {
    // RFC 7296 §3.3: one proposal of AES-CBC-256, PRF and integrity of HMAC-SHA2-256, X25519.
    const SA: &[u8] = &[
        34, 0, 0, 48, // SA, KE follows
        0, 0, 0, 44, 1, 1, 0, 4, // proposal 1 of IKE, four transforms
        3, 0, 0, 12, 1, 0, 0, 12, 0x80, 14, 1, 0, // ENCR_AES_CBC with 256 bits
        3, 0, 0, 8, 2, 0, 0, 5, // PRF_HMAC_SHA2_256
        3, 0, 0, 8, 3, 0, 0, 12, // AUTH_HMAC_SHA2_256_128
        0, 0, 0, 8, 4, 0, 0, 31, // Curve25519
    ];
    let mut message = vec![0; 28];
    message[..8].copy_from_slice(b"stranger");
    // The next payload is SA, version 2.0, exchange IKE_SA_INIT, of the initiator.
    message[16..20].copy_from_slice(&[33, 0x20, 34, 0x08]);
    message.extend(SA);
    message.extend([40, 0, 0, 40, 0, 31, 0, 0]);
    message.extend([9; 32]);
    message.extend([0, 0, 0, 36]);
    message.extend([7; 32]);
    let length = u32::try_from(message.len()).expect("a short message");
    message[24..28].copy_from_slice(&length.to_be_bytes());
    message
}
