//! With the newest strongSwan: its differences from the one that this machine has, and the longer runs.

use super::establish::childless_from_vpnd;
use super::rekey::{child_by_charon, child_by_vpnd, ike_by_charon, ike_by_vpnd, while_working};
use crate::setup::{CHILD_TUNNEL, CONNECTION, IKE_TUNNEL, Setup};
use crate::traffic::Flow;
use crate::world::World;
use crate::{Scenario, scenario};
use std::time::{Duration, Instant};
use testkit::eventually;

/// Between the rekey of the IKE SA and that of the Child SA, in datagrams that are echoed, one a millisecond.
const APART: u64 = 150;

/// How long the scenario of short lifetimes takes: seconds in the environment, for longer runs by hand.
fn duration() -> Duration {
    let seconds = std::env::var("PEER_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(12))
}

/// A group, a chain of additional key exchanges, and strongSwan's words for both.
type Chain = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// Each group with each parameter set of ML-KEM, and two and three additional key exchanges.
const CHAINS: [Chain; 11] = [
    (
        "x25519_512",
        "31",
        "ML-KEM-512",
        "aes256-sha256-x25519-ke1_mlkem512",
        "aes256gcm16-x25519-ke1_mlkem512",
    ),
    (
        "x25519_768",
        "31",
        "ML-KEM-768",
        "aes256-sha256-x25519-ke1_mlkem768",
        "aes256gcm16-x25519-ke1_mlkem768",
    ),
    (
        "x25519_1024",
        "31",
        "ML-KEM-1024",
        "aes256-sha256-x25519-ke1_mlkem1024",
        "aes256gcm16-x25519-ke1_mlkem1024",
    ),
    (
        "ecp256_512",
        "19",
        "ML-KEM-512",
        "aes256-sha256-ecp256-ke1_mlkem512",
        "aes256gcm16-ecp256-ke1_mlkem512",
    ),
    (
        "ecp256_768",
        "19",
        "ML-KEM-768",
        "aes256-sha256-ecp256-ke1_mlkem768",
        "aes256gcm16-ecp256-ke1_mlkem768",
    ),
    (
        "ecp256_1024",
        "19",
        "ML-KEM-1024",
        "aes256-sha256-ecp256-ke1_mlkem1024",
        "aes256gcm16-ecp256-ke1_mlkem1024",
    ),
    (
        "ecp384_512",
        "20",
        "ML-KEM-512",
        "aes256-sha256-ecp384-ke1_mlkem512",
        "aes256gcm16-ecp384-ke1_mlkem512",
    ),
    (
        "ecp384_768",
        "20",
        "ML-KEM-768",
        "aes256-sha256-ecp384-ke1_mlkem768",
        "aes256gcm16-ecp384-ke1_mlkem768",
    ),
    (
        "ecp384_1024",
        "20",
        "ML-KEM-1024",
        "aes256-sha256-ecp384-ke1_mlkem1024",
        "aes256gcm16-ecp384-ke1_mlkem1024",
    ),
    (
        "two",
        "31",
        "ML-KEM-768 20",
        "aes256-sha256-x25519-ke1_mlkem768-ke2_ecp384",
        "aes256gcm16-x25519-ke1_mlkem768-ke2_ecp384",
    ),
    (
        "three",
        "31",
        "ML-KEM-1024 20 ML-KEM-768",
        "aes256-sha256-x25519-ke1_mlkem1024-ke2_ecp384-ke3_mlkem768",
        "aes256gcm16-x25519-ke1_mlkem1024-ke2_ecp384-ke3_mlkem768",
    ),
];

/// With additional key exchanges in every exchange: from either side, with rekeys of both kinds by both.
fn with_additional_key_exchanges() -> Vec<Scenario> {
    let mut all = Vec::new();
    for (name, group, additional, charon_ike, charon_esp) in CHAINS {
        let ike: &'static [_] = match group {
            "31" => &[
                ("IKE_Encryption", "AES-CBC-256"),
                ("IKE_Hash", "HMAC_SHA2_256"),
                ("IKE_DHGroup", "31"),
            ],
            "19" => &[
                ("IKE_Encryption", "AES-CBC-256"),
                ("IKE_Hash", "HMAC_SHA2_256"),
                ("IKE_DHGroup", "19"),
            ],
            _ => &[
                ("IKE_Encryption", "AES-CBC-256"),
                ("IKE_Hash", "HMAC_SHA2_256"),
                ("IKE_DHGroup", "20"),
            ],
        };
        let setup = Setup { ike, charon_ike, charon_esp, pfs: group, additional, ..newest() };
        let from_charon = setup.clone();
        all.push(scenario(format!("newest::ml_kem::{name}::rekeys"), setup, |world| {
            while_working(world, true, |world| {
                child_by_vpnd(world);
                child_by_charon(world);
                ike_by_charon(world);
                ike_by_vpnd(world);
            });
            let suite = world.vpnd.tunnel().ike_sa.expect("an IKE SA").suite;
            assert!(suite.contains("+ML-KEM"), "{suite}");
        }));
        all.push(scenario(format!("newest::ml_kem::{name}::from_charon"), from_charon, |world| {
            world.up_from_charon();
            world.exchange_traffic();
        }));
    }
    all
}

fn newest() -> Setup {
    Setup { newest: true, ..Setup::default() }
}

pub fn all() -> Vec<Scenario> {
    let childless = Setup { charon_connection: "childless = force", ..newest() };
    let short_lived = Setup {
        charon_connection: "rekey_time = 10s\n    over_time = 1h\n    rand_time = 2s",
        charon_child: "rekey_time = 10s\n        life_time = 1h\n        rand_time = 2s",
        ..newest()
    };
    let renewing = Setup {
        charon: "make_before_break = no",
        charon_connection: "reauth_time = 1s\n    over_time = 1h\n    rand_time = 0",
        ..newest()
    };
    let mut all = with_additional_key_exchanges();
    all.extend([
        scenario("newest::childless::from_vpnd", childless.clone(), childless_from_vpnd),
        scenario("newest::childless::from_charon", childless, |world| {
            world.up_from_charon();
            world.exchange_traffic();
        }),
        scenario("newest::rekeys", newest(), |world| {
            while_working(world, true, |world| {
                child_by_vpnd(world);
                child_by_charon(world);
                ike_by_charon(world);
                ike_by_vpnd(world);
            });
        }),
        scenario("newest::rekeys_a_moment_apart", newest(), a_moment_apart),
        scenario("newest::short_lifetimes", short_lived, short_lifetimes),
        scenario("newest::breaks_before_it_makes", renewing.clone(), breaks_before_it_makes),
        scenario(
            "newest::breaks_before_it_makes::on_demand",
            Setup { on_demand: true, ..renewing },
            breaks_before_it_makes,
        ),
    ]);
    all
}

/// Both sides renew the IKE SA, and the Child SA a moment later, again and again.
fn a_moment_apart(world: &mut World) {
    world.up_from_vpnd();
    let [left, right] = world.hosts();
    let flow = Flow::start(left, right);
    flow.pass(100);
    let rounds = duration().as_secs() / 2;
    for _ in 0..rounds {
        let before = world.vpnd.child_sa();
        for (ours, theirs) in [(IKE_TUNNEL, "--ike"), (CHILD_TUNNEL, "--child")] {
            std::thread::scope(|scope| {
                // One that meets the other's may be refused: then that one counts.
                scope.spawn(|| world.vpnd.ctl(&["rekey", ours]));
                scope.spawn(|| world.charon.swanctl(&["--rekey", theirs, CONNECTION]));
                flow.pass(APART);
            });
        }
        eventually("another Child SA", || {
            let sa = world.vpnd.child().child_sa?;
            (sa.inbound_spi != before.inbound_spi).then_some(())
        });
    }
    world.charon.wait_up();
    world.vpnd.wait_up();
    flow.pass(1000);
    let counts = flow.finish();
    println!("{} datagrams in {rounds} rounds", counts.sent);
    assert!(counts.is_complete(), "{counts:?}\n{:?}", world.vpnd.counters());
}

/// strongSwan renews everything by its clock, vpnd beside it by order.
fn short_lifetimes(world: &mut World) {
    let end = Instant::now() + duration();
    while_working(world, true, |world| {
        let mut before = 0;
        eventually_by(end, || {
            let ike = world.vpnd.tunnel().ike_sa.map_or(0, |sa| sa.rekeys);
            if ike > before {
                before = ike;
                world.vpnd.ctl_ok(&["rekey", CHILD_TUNNEL]);
            }
        });
        // A busy host may not have come so far.
        eventually("strongSwan has renewed the IKE SA", || {
            world.vpnd.tunnel().ike_sa.filter(|sa| sa.rekeys > 0)
        });
    });
}

/// Does something again and again until a moment.
fn eventually_by(end: Instant, mut step: impl FnMut()) {
    while Instant::now() < end {
        step();
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// strongSwan deletes the IKE SA and then begins another one. While there is no SA, vpnd drops packets, or keeps them
/// where the tunnel comes up on demand. Packets that strongSwan's host drops meanwhile are not judged: it has no SA, or
/// not yet all parts of one.
fn breaks_before_it_makes(world: &mut World) {
    world.up_from_charon();
    let [left, right] = world.hosts();
    let flow = Flow::start(left, right);
    let spi = |world: &World| world.vpnd.tunnel().ike_sa.map(|sa| sa.initiator_spi);
    let mut before = spi(world);
    for _ in 0..3 {
        flow.pass(100);
        eventually("another IKE SA is up", || {
            spi(world).filter(|spi| Some(spi) != before.as_ref())?;
            (world.vpnd.child().state == "established").then_some(())
        });
        before = spi(world);
    }
    flow.pass(100);
    let counts = flow.finish();
    let dropped = world.vpnd.counters()["esp.no_sa"];
    match world.setup.on_demand {
        true => {
            let counters = world.vpnd.counters();
            // It keeps no more than 32, which a machine that stalls may exceed (`hold_full`).
            for reason in ["no_sa", "hold_expired"] {
                assert_eq!(counters[&format!("esp.{reason}")], 0, "{reason}: {counts:?}");
            }
        }
        false => assert!(dropped > 0, "packets without an SA are dropped and counted: {counts:?}"),
    }
}
