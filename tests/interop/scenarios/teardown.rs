//! The tunnel ends: by order of either side, or because one of them is gone.

use crate::setup::{CHILD_TUNNEL, CONNECTION, IKE_TUNNEL, Setup};
use crate::{Scenario, scenario, traffic};
use nix::sys::signal::Signal;

pub fn all() -> Vec<Scenario> {
    vec![
        scenario("teardown::by_vpnd", Setup::default(), |world| {
            world.up_from_vpnd();
            world.vpnd.must(&["deactivate", IKE_TUNNEL]);
            world.charon.wait_down();
            world.vpnd.wait_down();
            // And up again.
            world.up_from_vpnd();
            world.exchange_traffic();
        }),
        scenario("teardown::by_charon", Setup::default(), |world| {
            world.up_from_vpnd();
            world.charon.swanctl(&["--terminate", "--ike", CONNECTION]).expect("it ends");
            world.vpnd.wait_down();
            world.charon.wait_down();
            world.vpnd.wait_log("deleted by the peer");
            world.up_from_charon();
            world.exchange_traffic();
        }),
        scenario("teardown::child_by_vpnd", Setup::default(), |world| {
            world.up_from_charon();
            world.vpnd.must(&["deactivate", CHILD_TUNNEL]);
            crate::eventually("strongSwan has only the IKE SA", || {
                (world.charon.counts() == (1, 0)).then_some(())
            });
            world.vpnd.must(&["activate", CHILD_TUNNEL]);
            world.charon.wait_up();
            world.exchange_traffic();
        }),
        scenario("teardown::child_by_charon", Setup::default(), |world| {
            world.up_from_vpnd();
            world.charon.swanctl(&["--terminate", "--child", CONNECTION]).expect("it ends");
            crate::eventually("vpnd has no Child SA", || {
                world.vpnd.child().child_sa.is_none().then_some(())
            });
            world.charon.initiate().expect("a new Child SA on the IKE SA that is there");
            world.vpnd.wait_up();
            assert_eq!(world.charon.counts(), (1, 1));
            world.exchange_traffic();
        }),
        scenario("teardown::vpnd_stops", Setup::default(), |world| {
            world.up_from_vpnd();
            world.vpnd.must(&["stop"]);
            world.charon.wait_down();
        }),
        scenario("teardown::charon_stops", Setup::default(), |world| {
            world.up_from_charon();
            world.charon.signal(Signal::SIGTERM);
            world.vpnd.wait_down();
        }),
        scenario("teardown::charon_restarts_and_begins", Setup::default(), |world| {
            world.up_from_vpnd();
            world.charon.crash();
            world.charon.restart();
            let before = world.vpnd.tunnel().ike_sa.expect("vpnd knows nothing yet");
            world.up_from_charon();
            // Its INITIAL_CONTACT ends what was up before, without waiting for any timer.
            world.vpnd.wait_log("the peer has restarted");
            let after = world.vpnd.tunnel().ike_sa.expect("the new one");
            assert_ne!(before.initiator_spi, after.initiator_spi);
            world.exchange_traffic();
            assert_eq!(world.charon.counts(), (1, 1));
        }),
        scenario(
            "teardown::charon_dies",
            Setup {
                vpnd_ike: "liveness_interval = \"1s\"",
                ..Setup::default()
            },
            |world| {
                world.up_from_vpnd();
                world.charon.crash();
                let tunnel = world.vpnd.wait_down();
                let failure = tunnel.last_failure.expect("vpnd says why");
                assert_eq!(failure.kind, "no_answer", "{failure:?}");
                world.charon.restart();
                world.up_from_vpnd();
                world.exchange_traffic();
            },
        ),
        scenario(
            "teardown::signs_of_life",
            Setup {
                vpnd_ike: "liveness_interval = \"1s\"",
                charon_connection: "dpd_delay = 1s",
                ..Setup::default()
            },
            |world| {
                world.up_from_vpnd();
                // Each side asks when the other has been silent for a second, and gets its answer.
                world.charon.wait_log("sending DPD request");
                world.vpnd.wait_log("liveness");
                let [left, right] = world.hosts();
                assert!(traffic::answers(left, right.1));
                assert_eq!(world.charon.counts(), (1, 1));
                assert_eq!(world.vpnd.tunnel().state, "established");
            },
        ),
    ]
}
