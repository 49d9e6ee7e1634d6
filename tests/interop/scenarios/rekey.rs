//! Keys are renewed under traffic, by either side.

use crate::setup::{CHILD_TUNNEL, CONNECTION, IKE_TUNNEL, Setup};
use crate::traffic::Flow;
use crate::world::World;
use crate::{Scenario, eventually, scenario};

/// strongSwan renews the Child SA.
pub fn child_by_charon(world: &World) {
    let before = world.vpnd.child_sa();
    world.charon.swanctl(&["--rekey", "--child", CONNECTION]).expect("strongSwan begins");
    eventually("vpnd has a new Child SA", || {
        let sa = world.vpnd.child().child_sa?;
        (sa.rekeys == before.rekeys + 1 && sa.inbound_spi != before.inbound_spi).then_some(())
    });
    world.charon.wait_up();
}

/// strongSwan renews the IKE SA.
pub fn ike_by_charon(world: &World) {
    let rekeys = || world.vpnd.tunnel().ike_sa.map(|sa| sa.rekeys);
    let before = rekeys().expect("the IKE SA is up");
    world.charon.swanctl(&["--rekey", "--ike", CONNECTION]).expect("strongSwan begins");
    eventually("vpnd has a new IKE SA", || (rekeys() == Some(before + 1)).then_some(()));
    world.charon.wait_up();
}

type Step = fn(&World);

fn child_by_vpnd(world: &World) {
    let before = world.vpnd.child_sa();
    world.vpnd.must(&["rekey", CHILD_TUNNEL]);
    assert_ne!(world.vpnd.child_sa().inbound_spi, before.inbound_spi);
    world.charon.wait_up();
}

fn ike_by_vpnd(world: &World) {
    world.vpnd.must(&["rekey", IKE_TUNNEL]);
    world.charon.wait_up();
}

/// Renews again and again while a datagram a millisecond is echoed; none may be missing.
fn under_traffic(world: &mut World, from_vpnd: bool, steps: &[Step]) {
    world.up_from_vpnd();
    let [left, right] = world.hosts();
    let flow = if from_vpnd { Flow::start(left, right) } else { Flow::start(right, left) };
    for step in steps {
        step(world);
    }
    let counts = flow.finish();
    let sa = world.vpnd.child_sa();
    assert!(counts.sent > 100, "there was traffic: {counts:?}");
    assert!(counts.is_complete(), "{counts:?}\n{sa:?}\n{:?}", world.vpnd.counters());
    assert_eq!(sa.refused, 0, "{sa:?}");
    world.assert_nothing_in_the_clear();
}

pub fn all() -> Vec<Scenario> {
    let steps: [(&str, &'static [Step]); 5] = [
        ("child_by_vpnd", &[child_by_vpnd as Step; 4]),
        ("child_by_charon", &[child_by_charon as Step; 4]),
        ("ike_by_vpnd", &[ike_by_vpnd as Step; 4]),
        ("ike_by_charon", &[ike_by_charon as Step; 4]),
        (
            "in_turn",
            &[child_by_vpnd, child_by_charon, ike_by_charon, child_by_charon, ike_by_vpnd, child_by_vpnd],
        ),
    ];
    let mut scenarios = Vec::new();
    for (name, steps) in steps {
        scenarios.push(scenario(format!("rekey::{name}"), Setup::default(), move |world| {
            under_traffic(world, true, steps);
        }));
    }
    scenarios.push(scenario("rekey::traffic_of_charon", Setup::default(), |world| {
        under_traffic(world, false, &[child_by_vpnd, child_by_charon, ike_by_vpnd, ike_by_charon]);
    }));
    scenarios.push(scenario(
        "rekey::without_key_exchange",
        Setup { pfs: "0", charon_esp: "aes256gcm16", ..Setup::default() },
        |world| under_traffic(world, true, &[child_by_vpnd, child_by_charon]),
    ));
    scenarios
}
