//! Reasons why no packets pass, asked by a program that is elsewhere.

use crate::side::{CHILD, FAR, Side, TUNNEL};
use libtest_mimic::Trial;
use std::time::Duration;
use testkit::{FILTERED, test};
use tokio::runtime::Builder;
use vpn::Gateway;
use vpn::findings::{Finding, FindingKind};

pub fn trials() -> Vec<Trial> {
    vec![test("findings are those of the gateway's namespace", FILTERED, asked_from_outside)]
}

/// The findings of a gateway, asked in a runtime of this thread's namespace.
fn findings(gateway: &Gateway, side: &Side) -> Vec<Finding> {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let status = gateway.tunnel(TUNNEL).status().await.expect("it runs").expect("it is there");
        gateway.findings(&status, &side.policy, Duration::ZERO).await.expect("it runs")
    })
}

fn asked_from_outside() {
    let [left, right] = Side::pair();
    let gateways = [&left, &right].map(|side| side.start(side.builder()).expect("started"));
    assert_eq!(findings(&gateways[0], &left), [], "it is down");
    let gateway = gateways[0].clone();
    left.run(async move { gateway.tunnel(TUNNEL).activate().await }).expect("it comes up");
    assert!(left.reaches(FAR));
    assert_eq!(findings(&gateways[0], &left), []);

    left.space.sh("nft add table ip local");
    left.space.sh("nft add chain ip local in { type filter hook input priority 0 ; }");
    left.space.sh("nft add rule ip local in ip saddr 10.2.0.0/24 drop");
    let found = findings(&gateways[0], &left);
    let [finding] = &found[..] else { panic!("{found:?}") };
    assert_eq!((finding.child.as_str(), finding.kind), (CHILD, FindingKind::Firewall));
    assert!(finding.certain && finding.message.contains("ip local in"), "{finding:?}");
    assert_eq!(findings(&gateways[1], &right), [], "the other host has no such rule");
    for (side, gateway) in [left, right].iter().zip(gateways) {
        side.run(async move { gateway.stop().await });
    }
}
