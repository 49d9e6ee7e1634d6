//! The start of a gateway: its steps, its refusals, and its events.

use crate::side::{FAR, Side, TUNNEL};
use ike::EventKind;
use libtest_mimic::Trial;
use std::cell::Cell;
use std::sync::{Arc, Once};
use testkit::{FILTERED, test};
use tokio::runtime::Builder;
use vpn::floor::Settings;
use vpn::{Closed, GatewayError, HostSettings, StartError};

pub fn trials() -> Vec<Trial> {
    vec![
        test("a gateway restarts forty times at once", FILTERED, restarts),
        test("the first events are seen", FILTERED, first_events),
        test("a runtime that lacks a driver is refused, and nothing changes", FILTERED, runtimes),
        test("settings that would harm the host are refused", FILTERED, harmful),
        test("settings of the host reach the host", FILTERED, settings),
        test("tunnels are commanded by name", FILTERED, commands),
        test("ESP in UDP may have another port", FILTERED, another_port),
    ]
}

fn restarts() {
    let [left, _right] = Side::pair();
    let before = left.space.state();
    for round in 0..40 {
        let gateway = left.start(left.builder()).unwrap_or_else(|e| panic!("start {round}: {e}"));
        left.run(async move { gateway.stop().await });
    }
    left.space.is_as_before(&before);
    assert_eq!(left.records(), 0, "no record of changes is left");
}

fn first_events() {
    let [left, right] = Side::pair();
    let mut policy = left.policy.clone();
    Arc::make_mut(&mut policy.tunnels[0]).auto_start = true;
    let peer = right.start(right.builder()).expect("started");
    for _ in 0..5 {
        let builder =
            vpn::Gateway::builder(policy.clone()).ike(crate::side::quick()).host(left.host());
        let mut events = builder.subscribe();
        let gateway = left.start(builder).expect("started");
        let first = left.run(async move {
            let first = events.recv().await.expect("the tunnel starts by itself");
            while let Some(event) = events.recv().await {
                if event.child.is_some() && matches!(event.kind, EventKind::Established { .. }) {
                    break;
                }
            }
            gateway.stop().await;
            first
        });
        assert_eq!(first.kind, EventKind::Negotiating { initiator: true }, "{first}");
    }
    right.run(async move { peer.stop().await });
}

fn another_port() {
    let [left, right] = Side::pair();
    let ike = ike::Config { encap: ike::Encap::Always, ..crate::side::quick() };
    let refused = left.start(left.builder().natt_port(ike::IKE_PORT)).expect_err("IKE has it");
    assert!(matches!(refused, StartError::Invalid(_)), "{refused}");
    // The order of the steps does not matter.
    let peer = right.start(right.builder().ike(ike.clone()).natt_port(4600)).expect("started");
    let gateway = left.start(left.builder().natt_port(4600).ike(ike)).expect("started");
    let (gateway, sa) = left.run(async move {
        gateway.tunnel(TUNNEL).activate().await.expect("up");
        let status = gateway.tunnels().status().await.expect("running");
        (gateway, status[0].sa.clone().expect("up"))
    });
    assert_eq!((sa.local.port(), sa.remote.port()), (4600, 4600));
    assert!(left.reaches(FAR));
    left.run(async move { gateway.stop().await });
    right.run(async move { peer.stop().await });
}

fn runtimes() {
    let [left, _right] = Side::pair();
    let before = left.space.state();
    type Enable = fn(&mut Builder);
    let builders: [(Enable, &str); 3] = [
        (|_| {}, "I/O driver"),
        (|b| _ = b.enable_time(), "I/O driver"),
        (|b| _ = b.enable_io(), "time driver"),
    ];
    for (enable, missing) in builders {
        let gateway = left.builder();
        let error = left.space.run(move || {
            let mut builder = Builder::new_current_thread();
            enable(&mut builder);
            let runtime = builder.build().expect("a runtime");
            without_reports(|| runtime.block_on(gateway.start())).expect_err("it lacks a driver")
        });
        assert!(matches!(error, StartError::Runtime { .. }), "{error:?}");
        assert!(error.to_string().contains(missing), "{error}");
    }
    left.space.is_as_before(&before);
}

/// Does something whose panics are caught inside: they do not reach the output of the test, where they look like
/// failures.
fn without_reports<T>(work: impl FnOnce() -> T) -> T {
    thread_local!(static CAUGHT: Cell<bool> = const { Cell::new(false) });
    static FILTER: Once = Once::new();
    FILTER.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !CAUGHT.get() {
                report(panic);
            }
        }));
    });
    CAUGHT.set(true);
    let done = work();
    CAUGHT.set(false);
    done
}

fn harmful() {
    let [left, _right] = Side::pair();
    let before = left.space.state();
    for (floor, setting) in [
        (Settings { table: 0, ..left.host().floor }, "table"),
        (Settings { table: 254, ..left.host().floor }, "table"),
        (Settings { device: "vpn\"0".to_owned(), ..left.host().floor }, "device"),
        (Settings { mark: 0, ..left.host().floor }, "mark"),
    ] {
        let host = HostSettings { floor, ..left.host() };
        match left.start(left.builder().host(host)) {
            Err(StartError::Setting { setting: refused, .. }) => assert_eq!(refused, setting),
            other => panic!("{other:?}"),
        }
    }
    left.space.is_as_before(&before);
}

fn settings() {
    let [left, _right] = Side::pair();
    let mut host = left.host();
    host.floor = Settings {
        device: "tunnel7".to_owned(),
        mark: 0x77,
        table: 4777,
        rule_priority: 777,
        ..host.floor
    };
    host.userspace.mtu = Some(1300);
    host.guard.inbound = false;
    let gateway = left.start(left.builder().host(host)).expect("started");
    let rules = left.space.ip("rule");
    let rule = rules.lines().find(|line| line.starts_with("777:")).unwrap_or_default();
    assert!(rule.contains("fwmark 0x77") && rule.contains("lookup 4777"), "{rules}");
    assert!(left.space.ip("link show tunnel7").contains("mtu 1300"));
    assert!(left.space.ip("route show table 4777").contains("10.2.0.0/24 dev tunnel7"));
    assert!(
        !left.space.sh("nft list ruleset").contains("prerouting"),
        "no inbound guard was wanted"
    );
    let status = left.run({
        let gateway = gateway.clone();
        async move { gateway.filter().status().await }
    });
    assert!(!status.expect("it runs").expect("this plane has a filter").inbound_guard);
    left.run(async move { gateway.stop().await });
}

fn commands() {
    let [left, right] = Side::pair();
    let watch = right.space.watch("wire");
    let peer = right.start(right.builder()).expect("started");
    let gateway = left.start(left.builder()).expect("started");
    let clone = gateway.clone();
    left.run(async move {
        let unknown = clone.tunnel("nobody").rekey().await.expect_err("no such tunnel");
        assert!(matches!(unknown, GatewayError::Command(_)), "{unknown:?}");
        assert!(clone.tunnels().activate([TUNNEL, "nobody"]).await.is_err(), "all or none");
        assert!(clone.tunnel("nobody").status().await.expect("it runs").is_none());

        clone.tunnel(TUNNEL).activate().await.expect("up");
        let again = clone.tunnels().activate([TUNNEL]).await.expect("known");
        assert!(again.iter().all(|tunnel| tunnel.outcome.is_ok()), "{again:?}");
        clone.tunnel(crate::side::CHILD).rekey().await.expect("rekeyed");
        let status = clone.tunnel(crate::side::CHILD).status().await.expect("it runs");
        let status = status.expect("it is defined");
        assert_eq!((status.name.as_str(), status.children.len()), (TUNNEL, 1));
        assert_eq!(status.children[0].sa.as_ref().map(|sa| sa.rekeys), Some(1));
    });
    assert!(left.reaches(FAR));
    watch.nothing_in_the_clear();
    let closed = left.run(async move {
        gateway.tunnel(TUNNEL).deactivate().await.expect("it was up");
        gateway.stop().await;
        gateway.closed().await
    });
    assert_eq!(closed, Closed::Stopped);
    right.run(async move { peer.stop().await });
}
