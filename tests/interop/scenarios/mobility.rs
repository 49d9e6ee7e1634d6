//! A gateway's address changes under traffic (RFC 4555), and both sides prove again who they are (RFC 7296 §2.8.3).

use crate::setup::{CHILD_TUNNEL, CONNECTION, IKE_TUNNEL, Setup};
use crate::traffic::Flow;
use crate::world::World;
use crate::{Scenario, scenario};
use testkit::eventually;

/// The side that gets another address.
#[derive(Clone, Copy)]
enum Moving {
    Vpnd,
    Charon,
}

fn spis(world: &World) -> (String, String) {
    let sa = world.vpnd.tunnel().ike_sa.expect("the IKE SA is up");
    (sa.initiator_spi, sa.responder_spi)
}

/// The address is replaced while datagrams are echoed; they go on by the new one, on the same IKE SA.
fn moves(world: &mut World, moving: Moving, from_vpnd: bool) {
    match from_vpnd {
        true => world.up_from_vpnd(),
        false => world.up_from_charon(),
    }
    world.exchange_traffic();
    let before = spis(world);
    let [left, right] = world.hosts();
    let flow = Flow::start(left, right);
    flow.pass(200);
    let (space, [old, new]) = match moving {
        Moving::Vpnd => (&world.vpnd.space, ["192.0.2.1", "192.0.2.9"]),
        Moving::Charon => (&world.charon.space, ["192.0.2.2", "192.0.2.9"]),
    };
    world.readdress(space, old, new);
    eventually("both sides have moved", || {
        let sa = world.vpnd.tunnel().ike_sa?;
        let end = match moving {
            Moving::Vpnd => sa.local,
            Moving::Charon => sa.remote,
        };
        (end.to_string().starts_with("192.0.2.9") && world.charon.sas().contains("192.0.2.9"))
            .then_some(())
    });
    eventually("traffic passes again", || crate::traffic::answers(left, right.1).then_some(()));
    // From here on nothing is lost any more.
    let moved = flow.sent();
    flow.pass(200);
    let counts = flow.finish();
    let mut lost = counts.lost_there.iter().chain(&counts.lost_back);
    assert!(lost.all(|number| *number < moved), "lost after {moved}: {counts:?}");
    assert_eq!(spis(world), before, "it is the same IKE SA");
    world.exchange_traffic();
    world.vpnd.ctl_ok(&["rekey", CHILD_TUNNEL]);
    world.vpnd.ctl_ok(&["rekey", IKE_TUNNEL]);
    world.charon.swanctl(&["--rekey", "--child", CONNECTION]).expect("strongSwan begins");
    world.exchange_traffic();
    world.assert_nothing_in_the_clear();
}

pub fn all() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for (moving, who) in [(Moving::Vpnd, "vpnd"), (Moving::Charon, "charon")] {
        for (from_vpnd, by) in [(true, "vpnd"), (false, "charon")] {
            // While strongSwan handles a request it ignores an answer of the same number, as crossing exchanges may
            // have; it asks again.
            let charon = "retransmit_timeout = 0.5\n  retransmit_tries = 8";
            let setup = Setup { names: true, charon, ..Setup::default() };
            scenarios.push(scenario(
                format!("mobility::{who}_moves::from_{by}"),
                setup,
                move |world| moves(world, moving, from_vpnd),
            ));
        }
    }
    scenarios.push(scenario(
        "mobility::reauthentication::by_vpnd",
        Setup { vpnd_ike: "reauthenticate = \"10s\"", ..Setup::default() },
        |world| renews(world, true),
    ));
    scenarios.push(scenario(
        "mobility::reauthentication::by_charon",
        Setup {
            charon: "make_before_break = yes",
            charon_connection: "reauth_time = 4s\n    rekey_time = 0\n    over_time = 1h\n    rand_time = 0",
            ..Setup::default()
        },
        |world| renews(world, false),
    ));
    scenarios
}

/// One side renews everything by its clock while datagrams are echoed; none may be missing.
fn renews(world: &mut World, from_vpnd: bool) {
    match from_vpnd {
        true => world.up_from_vpnd(),
        false => world.up_from_charon(),
    }
    let before = spis(world);
    let [left, right] = world.hosts();
    let flow = Flow::start(left, right);
    flow.pass(100);
    eventually("there is another IKE SA", || {
        let sa = world.vpnd.tunnel().ike_sa?;
        ((sa.initiator_spi, sa.responder_spi) != before).then_some(())
    });
    eventually("and only that", || (world.charon.counts() == (1, 1)).then_some(()));
    flow.pass(300);
    let counts = flow.finish();
    let counters = world.vpnd.counters();
    assert!(counts.lost_there.is_empty(), "{counts:?}\n{counters:?}");
    // As responder strongSwan sends on its new SA before its answer has brought vpnd the keys: packets overtake it.
    let early = if from_vpnd { counters["esp.unknown_spi"] } else { 0 };
    assert!(counts.lost_back.len() as u64 <= early, "{counts:?}\n{counters:?}");
    world.assert_nothing_in_the_clear();
}
