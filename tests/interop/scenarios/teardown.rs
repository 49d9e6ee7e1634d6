//! The tunnel ends: by order of either side, or because one of them is gone.

use crate::setup::{CHILD_TUNNEL, CONNECTION, IKE_TUNNEL, Setup};
use crate::world::World;
use crate::{Scenario, scenario};
use nix::sys::signal::Signal;
use testkit::eventually;

pub fn all() -> Vec<Scenario> {
    vec![
        scenario("teardown::by_vpnd", Setup::default(), |world| {
            world.up_from_vpnd();
            world.vpnd.ctl_ok(&["deactivate", IKE_TUNNEL]);
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
            world.vpnd.ctl_ok(&["deactivate", CHILD_TUNNEL]);
            eventually("strongSwan has only the IKE SA", || {
                (world.charon.counts() == (1, 0)).then_some(())
            });
            world.vpnd.ctl_ok(&["activate", CHILD_TUNNEL]);
            world.charon.wait_up();
            world.exchange_traffic();
        }),
        scenario("teardown::child_by_charon", Setup::default(), |world| {
            world.up_from_vpnd();
            world.charon.swanctl(&["--terminate", "--child", CONNECTION]).expect("it ends");
            eventually("vpnd has no Child SA", || {
                world.vpnd.child().child_sa.is_none().then_some(())
            });
            world.charon.initiate().expect("a new Child SA on the IKE SA that is there");
            world.vpnd.wait_up();
            assert_eq!(world.charon.counts(), (1, 1));
            world.exchange_traffic();
        }),
        scenario("teardown::vpnd_stops", Setup::default(), |world| {
            world.up_from_vpnd();
            world.vpnd.ctl_ok(&["stop"]);
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
                retransmit: ("1s", 2),
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
            "teardown::charon_dies_and_vpnd_brings_it_back",
            Setup {
                vpnd_ike: "liveness_interval = \"1s\"\nliveness_action = \"restart\"",
                retransmit: ("1s", 2),
                ..Setup::default()
            },
            |world| {
                world.up_from_vpnd();
                let before = world.vpnd.tunnel().ike_sa.expect("it is up").initiator_spi;
                world.charon.crash();
                world.vpnd.wait_log("does not answer");
                world.charon.restart();
                // Nobody begins it but vpnd itself.
                world.charon.wait_up();
                world.vpnd.wait_up();
                let after = world.vpnd.tunnel().ike_sa.expect("it is up again").initiator_spi;
                assert_ne!(before, after);
                world.exchange_traffic();
            },
        ),
        scenario(
            "teardown::vpnd_dies_and_charon_brings_it_back",
            Setup {
                charon: "retransmit_timeout = 0.6\n  retransmit_tries = 3",
                charon_connection: "dpd_delay = 1s\n    keyingtries = 0",
                charon_child: "dpd_action = restart",
                ..Setup::default()
            },
            |world| {
                world.up_from_charon();
                world.vpnd.crash();
                world.charon.wait_log("giving up after 3 retransmits");
                world.vpnd.restart();
                world.vpnd.wait_up();
                world.charon.wait_up();
                world.exchange_traffic();
            },
        ),
        scenario(
            "teardown::charon_asks_for_life",
            Setup { charon_connection: "dpd_delay = 1s", ..Setup::default() },
            |world| {
                world.up_from_vpnd();
                // One request at a time: the second shows that the first was answered. Number 0 may be charon's
                // news of its addresses.
                world.charon.wait_log("generating INFORMATIONAL request 1 [ ]");
                world.charon.wait_log("generating INFORMATIONAL request 2 [ ]");
                assert_eq!(world.charon.counts(), (1, 1));
            },
        ),
        scenario(
            "teardown::vpnd_asks_for_life",
            Setup { vpnd_ike: "liveness_interval = \"1s\"", ..Setup::default() },
            |world| {
                world.up_from_vpnd();
                world.charon.wait_log("parsed INFORMATIONAL request 2 [ ]");
                world.charon.wait_log("parsed INFORMATIONAL request 3 [ ]");
                assert_eq!(world.vpnd.tunnel().state, "established");
                assert_eq!(world.charon.counts(), (1, 1));
            },
        ),
        scenario("teardown::vpnd_restarts_and_begins", Setup::default(), |world| {
            world.up_from_charon();
            world.vpnd.crash();
            world.vpnd.restart();
            // strongSwan gives up its old SAs at the INITIAL_CONTACT of the new one.
            world.up_from_vpnd();
            world.charon.wait_log("destroying duplicate IKE_SA");
            world.exchange_traffic();
        }),
        scenario(
            "teardown::charon_authenticates_anew",
            Setup { charon_connection: "reauth_time = 1s\n    over_time = 1h", ..Setup::default() },
            |world| {
                world.up_from_charon();
                let spi = |world: &World| world.vpnd.tunnel().ike_sa.map(|sa| sa.initiator_spi);
                let first = spi(world).expect("it is up");
                // It deletes the IKE SA and begins another.
                eventually("another IKE SA is up", || {
                    spi(world).filter(|spi| *spi != first)?;
                    (world.vpnd.child().state == "established").then_some(())
                });
                world.vpnd.wait_log("deleted by the peer");
            },
        ),
    ]
}
