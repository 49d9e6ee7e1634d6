//! An address translator in between.

use crate::setup::{CHILD_TUNNEL, IKE_TUNNEL, Nat, Setup};
use crate::{Scenario, scenario, traffic};
use testkit::eventually;

pub fn all() -> Vec<Scenario> {
    let vpnd_behind = Setup { nat: Nat::Vpnd, names: true, ..Setup::default() };
    let charon_behind = Setup { nat: Nat::Charon, names: true, ..Setup::default() };
    let mut scenarios = vec![
        scenario("nat::two_behind_one", Setup { fellow: true, ..vpnd_behind.clone() }, |world| {
            world.up_from_vpnd();
            let fellow = world.fellow.as_ref().expect("the setup has one");
            fellow.ctl_ok(&["activate", IKE_TUNNEL]);
            let [left, right] = world.hosts();
            let beside = (&fellow.space, world.setup.of_fellow().inner()[0]);
            let exchange = || {
                for client in [left, beside] {
                    traffic::ping(client, right.1, 3);
                    traffic::ping(right, client.1, 3);
                }
            };
            exchange();
            let sas = world.charon.sas();
            assert_eq!(sas.matches("192.0.2.1[").count(), 2, "{sas}");
            world.vpnd.ctl_ok(&["rekey", CHILD_TUNNEL]);
            fellow.ctl_ok(&["rekey", IKE_TUNNEL]);
            fellow.ctl_ok(&["rekey", CHILD_TUNNEL]);
            exchange();
            world.vpnd.ctl_ok(&["deactivate", IKE_TUNNEL]);
            traffic::ping(beside, right.1, 3);
            world.assert_nothing_in_the_clear();
        }),
        // strongSwan sends from another port: vpnd, which is outside, follows its first packet.
        scenario("nat::charon_behind::moves", charon_behind.clone(), |world| {
            world.up_from_charon();
            world.exchange_traffic();
            let remote = || world.vpnd.tunnel().ike_sa.expect("it is up").remote;
            let before = remote();
            world.rebind();
            let [left, right] = world.hosts();
            // The translator takes its time to forget.
            eventually("vpnd follows", || {
                let answered = traffic::answers(right, left.1);
                (answered && remote() != before).then_some(())
            });
            world.exchange_traffic();
            world.vpnd.ctl_ok(&["rekey", CHILD_TUNNEL]);
            world.vpnd.ctl_ok(&["rekey", IKE_TUNNEL]);
            world.exchange_traffic();
        }),
        // strongSwan's userspace plane does not follow ESP, but an IKE message: vpnd's question whether it lives.
        scenario(
            "nat::vpnd_behind::moves",
            Setup { vpnd_ike: "liveness_interval = \"1s\"", ..vpnd_behind.clone() },
            |world| {
                world.up_from_vpnd();
                world.exchange_traffic();
                world.rebind();
                let [left, right] = world.hosts();
                eventually("strongSwan follows", || {
                    let answered = traffic::answers(left, right.1);
                    // The other range of ports.
                    (answered && world.charon.sas().contains("192.0.2.1[3")).then_some(())
                });
                world.exchange_traffic();
                world.vpnd.ctl_ok(&["rekey", CHILD_TUNNEL]);
                world.exchange_traffic();
            },
        ),
    ];
    for (name, setup) in [("vpnd_behind", vpnd_behind), ("charon_behind", charon_behind)] {
        for from_vpnd in [true, false] {
            let by = if from_vpnd { "vpnd" } else { "charon" };
            scenarios.push(scenario(
                format!("nat::{name}::from_{by}"),
                setup.clone(),
                move |world| {
                    if from_vpnd {
                        world.up_from_vpnd();
                    } else {
                        world.up_from_charon();
                    }
                    world.exchange_traffic();
                    let sa = world.vpnd.tunnel().ike_sa.expect("it is up");
                    assert_eq!(sa.nat_local, world.setup.nat == Nat::Vpnd, "{sa:?}");
                    // charon's userspace plane announces a NAT whether there is one or not.
                    assert!(sa.nat_remote, "{sa:?}");
                    world.vpnd.ctl_ok(&["rekey", CHILD_TUNNEL]);
                    world.vpnd.ctl_ok(&["rekey", IKE_TUNNEL]);
                    world.exchange_traffic();
                    world.assert_nothing_in_the_clear();
                },
            ));
        }
    }
    scenarios
}
