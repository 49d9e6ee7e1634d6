//! A data plane of the caller's.

use crate::counting::{Counting, Counts};
use crate::side::{CHILD, Side, TUNNEL, quick};
use ike::unreachable::Obstacle;
use libtest_mimic::Trial;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::{GATEWAYS, test, until};
use vpn::{Gateway, PlaneInlet, StartError};

pub fn trials() -> Vec<Trial> {
    vec![
        test("two engines with a plane that counts", GATEWAYS, counted),
        test("an inlet serves one gateway", GATEWAYS, one_inlet),
        test("ICMP about UDP 4500 beside a plane of the caller's", GATEWAYS, icmp),
    ]
}

fn start(side: &Side, inlet: PlaneInlet) -> Result<(Gateway, Arc<Mutex<Counts>>), StartError> {
    start_with(side, inlet, quick())
}

fn start_with(
    side: &Side,
    inlet: PlaneInlet,
    config: ike::Config,
) -> Result<(Gateway, Arc<Mutex<Counts>>), StartError> {
    let plane = Counting::default();
    let counts = plane.counts();
    let builder = Gateway::builder(side.policy.clone()).ike(config).data_plane(plane, inlet);
    let gateway = side.run(builder.start())?;
    Ok((gateway, counts))
}

fn counted() {
    let [left, right] = Side::pair();
    let (near, of_near) = start(&left, PlaneInlet::new()).expect("started");
    let (far, of_far) = start(&right, PlaneInlet::new()).expect("started");
    let seen = |counts: &Mutex<Counts>| *counts.lock().expect("no panic");
    assert_eq!(seen(&of_near), Counts { rules: 1, ..Counts::default() });
    left.run({
        let near = near.clone();
        async move {
            near.tunnel(TUNNEL).activate().await.expect("up");
            near.tunnel(CHILD).rekey().await.expect("rekeyed");
        }
    });
    let Counts { rules, inbound, outbound, .. } = seen(&of_near);
    assert_eq!((rules, inbound, outbound), (1, 2, 2), "one pair, and one more by the rekey");
    left.run(async move { near.stop().await });
    right.run(async move { far.stop().await });
    for counts in [of_near, of_far] {
        let Counts { inbound, outbound, removed, .. } = seen(&counts);
        assert_eq!((inbound, outbound, removed), (2, 2, 4), "every SA goes");
    }
}

fn one_inlet() {
    let [left, _right] = Side::pair();
    let inlet = PlaneInlet::new();
    let (gateway, _) = start(&left, inlet.clone()).expect("started");
    let error = start(&left, inlet).map(drop).expect_err("it has a gateway");
    assert!(matches!(error, StartError::Setting { setting: "data_plane", .. }), "{error:?}");
    left.run(async move { gateway.stop().await });
}

/// The peer ends without a word, and its host says that nothing listens on the port any more.
fn icmp() {
    let [left, mut right] = Side::pair();
    let liveness_interval = Some(Duration::from_secs(1));
    let watchful = ike::Config { liveness_interval, retransmissions: 64, ..quick() };
    let (near, _) = start_with(&left, PlaneInlet::new(), watchful).expect("started");
    let (far, _) = start(&right, PlaneInlet::new()).expect("started");
    let gateway = near.clone();
    left.run(async move { gateway.tunnel(TUNNEL).activate().await.expect("up") });
    right.end_runtime();
    drop(far);
    let heard = || {
        let gateway = near.clone();
        let status = left.run(async move { gateway.tunnel(TUNNEL).status().await });
        let silence = status.expect("it runs").expect("it is there").unanswered?.silence;
        assert_eq!(silence.remote.port(), ike::NAT_T_PORT);
        (silence.icmp?.what == Obstacle::Port).then_some(())
    };
    until("the message of the peer's host", heard, String::new);
    left.run(async move { near.stop().await });
}
