//! The ends of a gateway: by `stop`, by a panic, by being dropped, and with its runtime.

use crate::side::{FAR, Side, TUNNEL};
use ike::EventKind;
use libtest_mimic::Trial;
use testkit::{FILTERED, test};
use vpn::{Closed, GatewayError, HostSettings, OnDrop};

pub fn trials() -> Vec<Trial> {
    vec![
        test("events end with a gateway that is stopped", FILTERED, stopped),
        test("a panic of the engine is told, and blocks", FILTERED, panicked),
        test("a gateway that is dropped tells its peers, and blocks", FILTERED, dropped),
        test("a gateway that is dropped releases its traffic if it may", FILTERED, released),
        test("a runtime that ends leaks nothing", FILTERED, runtime_ended),
    ]
}

fn stopped() {
    let [left, _right] = Side::pair();
    let gateway = left.start(left.builder()).expect("started");
    left.run(async move {
        let mut events = gateway.events();
        let waiting = tokio::spawn({
            let gateway = gateway.clone();
            async move { gateway.closed().await }
        });
        tokio::join!(gateway.stop(), gateway.stop());
        assert_eq!(events.recv().await, None);
        assert_eq!(gateway.events().recv().await, None, "after the end there is nothing to hear");
        assert_eq!(waiting.await.expect("no panic"), Closed::Stopped);
        assert!(matches!(gateway.tunnels().status().await, Err(GatewayError::Stopped)));
        gateway.stop().await;
    });
}

/// The traffic of the tunnel goes nowhere, and above all not in the clear.
fn is_blocked(left: &Side, right: &Side) {
    let watch = right.space.watch("wire");
    assert!(!left.reaches(FAR), "blocked");
    watch.nothing_in_the_clear();
}

/// The next start cleans up, and its end leaves nothing.
fn next_start_cleans_up(left: &Side, before: &str) {
    let gateway = left.start(left.builder()).expect("started again");
    left.run(async move { gateway.stop().await });
    left.space.is_as_before(before);
    assert!(left.reaches(FAR), "in the clear, as before");
}

/// A panic whose report does not reach the output of the test, where it looks like a failure.
fn bug_on_purpose() {
    std::panic::resume_unwind(Box::new("a bug on purpose"));
}

fn panicked() {
    let [left, right] = Side::pair();
    let before = left.space.state();
    assert!(left.reaches(FAR), "otherwise this test would see nothing");
    let gateway = left.start(left.builder()).expect("started");
    let closed = left.run(async move {
        let mut events = gateway.events();
        let answer = gateway.with_plane(|_| bug_on_purpose()).await;
        assert!(matches!(answer, Err(GatewayError::Stopped)), "{answer:?}");
        assert_eq!(events.recv().await, None);
        gateway.closed().await
    });
    assert_eq!(closed, Closed::Panicked { message: "a bug on purpose".to_owned() });
    is_blocked(&left, &right);
    next_start_cleans_up(&left, &before);
}

fn dropped() {
    let [left, right] = Side::pair();
    let before = left.space.state();
    let peer = right.start(right.builder()).expect("started");
    let mut heard = peer.events();
    let gateway = left.start(left.builder()).expect("started");
    left.run(async move {
        gateway.tunnel(TUNNEL).activate().await.expect("up");
        let mut events = gateway.events();
        drop(gateway);
        while events.recv().await.is_some() {}
    });
    right.run(async move {
        loop {
            let event = heard.recv().await.expect("the peer runs");
            if matches!(event.kind, EventKind::Closed { .. }) && event.child.is_none() {
                break;
            }
        }
        peer.stop().await;
    });
    is_blocked(&left, &right);
    next_start_cleans_up(&left, &before);
}

fn released() {
    let [mut left, _right] = Side::pair();
    let before = left.space.state();
    let host = HostSettings { on_drop: OnDrop::Release, ..left.host() };
    let gateway = left.start(left.builder().host(host)).expect("started");
    assert!(!left.reaches(FAR), "blocked while the tunnel is down");
    left.end_runtime();
    drop(gateway);
    left.space.is_as_before(&before);
    assert!(left.reaches(FAR));
}

fn runtime_ended() {
    let [mut left, right] = Side::pair();
    let before = left.space.state();
    let peer = right.start(right.builder()).expect("started");
    let gateway = left.start(left.builder()).expect("started");
    let clone = gateway.clone();
    left.run(async move { clone.tunnel(TUNNEL).activate().await.expect("up") });
    assert!(left.reaches(FAR));
    left.end_runtime();
    let mut events = gateway.events();
    let (closed, event) = right.run(async move { (gateway.closed().await, events.recv().await) });
    assert_eq!((closed, event), (Closed::RuntimeEnded, None));
    right.run(async move { peer.stop().await });
    is_blocked(&left, &right);
    left.new_runtime();
    next_start_cleans_up(&left, &before);
}
