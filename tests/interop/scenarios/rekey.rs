//! Keys are renewed under traffic, by either side.

use crate::setup::{CHILD_TUNNEL, CONNECTION, IKE_TUNNEL, Setup};
use crate::traffic::Flow;
use crate::world::World;
use crate::{Scenario, scenario};
use std::time::Instant;
use testkit::eventually;

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

/// strongSwan renews the IKE SA of one Child SA.
pub fn ike_by_charon(world: &World) {
    ike_with_any_children_by_charon(world);
    world.charon.wait_up();
}

/// strongSwan rekeys the IKE SA, which may carry any Child SAs.
pub fn ike_with_any_children_by_charon(world: &World) {
    let rekeys = || world.vpnd.tunnel().ike_sa.map(|sa| sa.rekeys);
    let before = rekeys().expect("the IKE SA is up");
    world.charon.swanctl(&["--rekey", "--ike", CONNECTION]).expect("strongSwan begins");
    eventually("vpnd has a new IKE SA", || (rekeys() == Some(before + 1)).then_some(()));
}

type Step = fn(&World);

/// Both sides soon repeat a request that is lost.
fn impatient() -> Setup {
    Setup {
        charon: "retransmit_timeout = 0.3\n  retransmit_base = 1.2\n  retransmit_tries = 20",
        retransmit: ("300ms", 9),
        ..Setup::default()
    }
}

/// vpnd renews the Child SA while strongSwan's request to renew it is lost, again and again. It arrives when vpnd has
/// the new one, and has not deleted the old one.
fn child_by_charon_too_late(world: &World) {
    world.lose_requests_to_vpnd();
    world.charon.swanctl(CHILD_OF_CHARON).expect("strongSwan begins");
    eventually("strongSwan's request is lost", || (world.lost_messages()[0] > 0).then_some(()));
    world.vpnd.ctl_ok(&["rekey", CHILD_TUNNEL]);
    world.lose_no_more("loss");
    world.charon.wait_up();
}

/// strongSwan begins to rekey the Child SA that vpnd has just made, and so does vpnd. vpnd's answers are lost until one
/// of them has rekeyed it.
fn child_of_child_by_both(world: &World) {
    world.vpnd.ctl_ok(&["rekey", CHILD_TUNNEL]);
    let before = world.vpnd.child_sa().inbound_spi;
    world.lose_answers_to_charon();
    world.charon.swanctl(CHILD_OF_CHARON).expect("strongSwan begins");
    std::thread::scope(|scope| {
        let rekey = scope.spawn(|| world.vpnd.ctl_ok(&["rekey", CHILD_TUNNEL]));
        let renewed = || world.vpnd.child().child_sa.filter(|sa| sa.inbound_spi != before);
        eventually("the Child SA is renewed", renewed);
        world.lose_no_more("loss");
        rekey.join().expect("vpnd carries it out");
    });
    world.charon.wait_up();
}

pub fn child_by_vpnd(world: &World) {
    let before = world.vpnd.child_sa();
    world.vpnd.ctl_ok(&["rekey", CHILD_TUNNEL]);
    assert_ne!(world.vpnd.child_sa().inbound_spi, before.inbound_spi);
    world.charon.wait_up();
}

pub fn ike_by_vpnd(world: &World) {
    world.vpnd.ctl_ok(&["rekey", IKE_TUNNEL]);
    world.charon.wait_up();
}

/// Renews again and again while a datagram a millisecond is echoed; none may be missing.
fn under_traffic(world: &mut World, from_vpnd: bool, steps: &[Step]) {
    while_working(world, from_vpnd, |world| steps.iter().for_each(|step| step(world)));
}

pub fn while_working(world: &mut World, from_vpnd: bool, work: impl FnOnce(&World)) {
    world.up_from_vpnd();
    let [left, right] = world.hosts();
    let flow = if from_vpnd { Flow::start(left, right) } else { Flow::start(right, left) };
    let began = Instant::now();
    flow.pass(100);
    work(world);
    flow.pass(100);
    let counts = flow.finish();
    println!("{} datagrams in {:.0} s", counts.sent, began.elapsed().as_secs_f64());
    assert!(counts.sent >= 200);
    let sa = world.vpnd.child_sa();
    let overflows = world.charon.overflows();
    let counters = world.vpnd.counters();
    assert!(counts.is_complete(), "{overflows} {counts:?}\n{sa:?}\n{counters:?}");
    assert_eq!(sa.refused, 0, "{sa:?}");
    world.assert_nothing_in_the_clear();
}

const CHILD_OF_CHARON: &[&str] = &["--rekey", "--child", CONNECTION];
const IKE_OF_CHARON: &[&str] = &["--rekey", "--ike", CONNECTION];

/// Deletes that were answered with one: those of `vpnd`, and those of either side.
fn deletes(world: &World) -> [usize; 2] {
    let log = world.vpnd.log();
    ["received INFORMATIONAL response", " INFORMATIONAL response"].map(|response| {
        log.lines().filter(|line| line.contains(response) && line.contains("DELETE")).count()
    })
}

/// Both sides renew the Child SA at the same time.
fn child_by_both(world: &World) {
    let (before, deleted) = (world.vpnd.child_sa(), deletes(world)[0]);
    world.cross(&["rekey", CHILD_TUNNEL], CHILD_OF_CHARON);
    eventually("vpnd has a new Child SA", || {
        let child = world.vpnd.child();
        let other = child.child_sa.is_some_and(|sa| sa.inbound_spi != before.inbound_spi);
        (child.state == "established" && other).then_some(())
    });
    world.charon.wait_up();
    // Each side deletes one. As long as strongSwan has not answered that, vpnd answers no request to renew what is new.
    eventually("vpnd has deleted one", || (deletes(world)[0] > deleted).then_some(()));
}

/// Both sides renew the IKE SA at the same time.
fn ike_by_both(world: &World) {
    world.cross(&["rekey", IKE_TUNNEL], IKE_OF_CHARON);
    world.charon.wait_up();
}

/// One side renews the IKE SA, the other the Child SA.
fn ike_and_child(world: &World) {
    world.cross(&["rekey", IKE_TUNNEL], CHILD_OF_CHARON);
    world.charon.wait_up();
}

fn child_and_ike(world: &World) {
    world.cross(&["rekey", CHILD_TUNNEL], IKE_OF_CHARON);
    world.charon.wait_up();
}

pub fn all() -> Vec<Scenario> {
    let steps: [(&str, &'static [Step]); 5] = [
        ("child_by_vpnd", &[child_by_vpnd as Step; 4]),
        ("child_by_charon", &[child_by_charon as Step; 4]),
        ("ike_by_vpnd", &[ike_by_vpnd as Step; 4]),
        ("ike_by_charon", &[ike_by_charon as Step; 4]),
        (
            "in_turn",
            &[
                child_by_vpnd,
                child_by_charon,
                ike_by_charon,
                child_by_charon,
                ike_by_vpnd,
                child_by_vpnd,
            ],
        ),
    ];
    let mut scenarios = Vec::new();
    for (name, steps) in steps {
        scenarios.push(scenario(format!("rekey::{name}"), Setup::default(), move |world| {
            under_traffic(world, true, steps);
        }));
    }
    // In the words of strongSwan 5.9, and of 6.1 where they differ.
    let crossing: [(&str, &'static [Step], &[&str]); 4] = [
        ("child", &[child_by_both as Step; 4], &["CHILD_REKEY collision", "rekey collision for"]),
        ("ike", &[ike_by_both as Step; 4], &["IKE_REKEY collision"]),
        ("ike_and_child", &[ike_and_child as Step; 3], &["N(TEMP_FAIL)"]),
        ("child_and_ike", &[child_and_ike as Step; 3], &["N(TEMP_FAIL)"]),
    ];
    for (name, steps, words) in crossing {
        scenarios.push(scenario(format!("rekey::crossing::{name}"), impatient(), move |world| {
            under_traffic(world, true, steps);
            let log = world.charon.log();
            assert!(words.iter().any(|words| log.contains(words)), "the requests crossed");
        }));
    }
    // Both last until strongSwan has sent its request once more, and vpnd has deleted what is replaced.
    for (name, step, steps) in [
        ("child_by_charon_too_late", child_by_charon_too_late as Step, 1),
        ("child_of_child", child_of_child_by_both, 2),
    ] {
        scenarios.push(scenario(format!("rekey::crossing::{name}"), impatient(), move |world| {
            while_working(world, true, |world| {
                step(world);
                eventually("what was replaced is deleted", || {
                    (deletes(world)[1] >= steps).then_some(())
                });
            });
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
    scenarios.push(scenario(
        "rekey::messages_lost",
        Setup {
            charon: "retransmit_timeout = 0.3\n  retransmit_base = 1.2\n  retransmit_tries = 20",
            retransmit: ("200ms", 10),
            ..Setup::default()
        },
        |world| {
            world.lose_messages();
            under_traffic(
                world,
                true,
                &[
                    child_by_vpnd,
                    child_by_charon,
                    ike_by_vpnd,
                    ike_by_charon,
                    child_by_vpnd,
                    child_by_charon,
                ],
            );
            let lost = world.lost_messages();
            assert!(lost.iter().all(|lost| *lost > 2), "messages were lost: {lost:?}");
        },
    ));
    // strongSwan renews everything by its clock, vpnd beside it by order.
    scenarios.push(scenario(
        "rekey::again_and_again",
        Setup {
            charon_connection: "rekey_time = 1s\n    over_time = 1h\n    rand_time = 0",
            charon_child: "rekey_time = 1s\n        life_time = 1h\n        rand_time = 0",
            ..Setup::default()
        },
        |world| {
            while_working(world, true, |world| {
                let mut before = 0;
                eventually("three IKE SAs and six Child SAs", || {
                    let ike = world.vpnd.tunnel().ike_sa.map_or(0, |sa| sa.rekeys);
                    if ike > before {
                        // Not more often: strongSwan puts its own off while a Child SA is being renewed.
                        before = ike;
                        world.vpnd.ctl_ok(&["rekey", CHILD_TUNNEL]);
                    }
                    let child = world.vpnd.child().child_sa.map_or(0, |sa| sa.rekeys);
                    (ike >= 3 && child >= 6).then_some(())
                });
            });
        },
    ));
    scenarios.push(scenario(
        "rekey::other_group::by_charon",
        Setup { pfs: "20", charon_esp: "aes256gcm16-x25519-ecp384", ..Setup::default() },
        |world| {
            under_traffic(world, true, &[child_by_charon]);
            assert!(world.charon.log().contains("it requested ECP_384"));
        },
    ));
    scenarios.push(scenario(
        "rekey::other_group::by_vpnd",
        Setup { pfs: "31 20", charon_esp: "aes256gcm16-ecp384", ..Setup::default() },
        |world| {
            under_traffic(world, true, &[child_by_vpnd]);
            assert!(world.charon.log().contains("unacceptable, requesting ECP_384"));
        },
    ));
    scenarios
}
