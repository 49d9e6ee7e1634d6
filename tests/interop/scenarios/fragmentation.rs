//! Messages in fragments of their own (RFC 7383), in both directions and of very different sizes.

use crate::setup::{CHILD_TUNNEL, CONNECTION, Setup};
use crate::world::World;
use crate::{Scenario, scenario};
use testkit::eventually;

/// Both sides send small fragments.
fn fragmented() -> Setup {
    Setup {
        vpnd_ike: "fragment_size = 200",
        charon: "fragment_size = 210",
        charon_connection: "fragmentation = yes",
        ..Setup::default()
    }
}

/// strongSwan has put messages together and cut some up; every one arrived at the first attempt.
fn assert_in_fragments(world: &World) {
    let log = world.charon.log();
    for said in
        ["received fragment #1 of ", "reassembled fragmented IKE message", "splitting IKE message"]
    {
        assert!(log.contains(said), "charon never says {said:?}");
    }
    assert!(!log.contains("retransmit"), "nothing had to be sent again");
    let counters = world.vpnd.counters();
    let refused = |reason: &str| counters.get(&format!("ike.{reason}")).copied().unwrap_or(0);
    for reason in ["not_authentic", "unexpected_fragment", "outdated_fragment"] {
        assert_eq!(refused(reason), 0, "{reason} in {counters:?}");
    }
}

pub fn all() -> Vec<Scenario> {
    vec![
        scenario("fragmentation::from_vpnd", fragmented(), |world| {
            world.up_from_vpnd();
            assert_in_fragments(world);
            world.exchange_traffic();
        }),
        scenario("fragmentation::from_charon", fragmented(), |world| {
            world.up_from_charon();
            assert_in_fragments(world);
            world.exchange_traffic();
        }),
        scenario(
            "fragmentation::over_ipv6",
            Setup { outer_v6: true, charon: "fragment_size = 230", ..fragmented() },
            |world| {
                world.up_from_vpnd();
                assert_in_fragments(world);
                world.exchange_traffic();
            },
        ),
        scenario("fragmentation::of_rekeys", fragmented(), |world| {
            world.up_from_vpnd();
            let first = world.vpnd.child_sa().inbound_spi;
            world.vpnd.ctl_ok(&["rekey", CHILD_TUNNEL]);
            eventually("vpnd rekeys", || {
                (world.vpnd.child_sa().inbound_spi != first).then_some(())
            });
            world.charon.wait_up();
            let second = world.vpnd.child_sa().inbound_spi;
            world.charon.swanctl(&["--rekey", "--child", CONNECTION]).expect("it begins");
            eventually("charon rekeys", || {
                (world.vpnd.child_sa().inbound_spi != second).then_some(())
            });
            world.charon.wait_up();
            assert_in_fragments(world);
            world.exchange_traffic();
        }),
        scenario(
            "fragmentation::forced_by_charon",
            Setup { charon_connection: "fragmentation = force", ..fragmented() },
            |world| {
                world.up_from_charon();
                assert_in_fragments(world);
                world.exchange_traffic();
            },
        ),
        scenario(
            "fragmentation::not_with_a_charon_that_takes_none",
            Setup { charon_connection: "fragmentation = no", ..fragmented() },
            |world| {
                world.up_from_vpnd();
                assert!(!world.charon.log().contains("received fragment #"), "there were none");
                world.exchange_traffic();
            },
        ),
        scenario(
            "fragmentation::not_where_vpnd_takes_none",
            Setup { vpnd_ike: "fragmentation = false", ..fragmented() },
            |world| {
                world.up_from_charon();
                assert!(!world.charon.log().contains("splitting IKE message"), "there were none");
                world.exchange_traffic();
            },
        ),
    ]
}
