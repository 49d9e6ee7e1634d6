//! The explanation of a tunnel that is down, asked by a program.

use crate::side::{CHILD, Side, TUNNEL};
use ike::failure::FailureKind;
use ike::status::State;
use libtest_mimic::Trial;
use testkit::{FILTERED, test};
use vpn::diagnosis::Step;

pub fn trials() -> Vec<Trial> {
    vec![test("a tunnel that is down is explained with what helps", FILTERED, down)]
}

fn down() {
    let [left, _right] = Side::pair();
    let gateway = left.start(left.builder()).expect("started");
    let why = |name: &'static str| {
        let gateway = gateway.clone();
        left.run(async move { gateway.why(name).await }).expect("it runs")
    };
    assert_eq!(why("nowhere"), None);
    let idle = why(TUNNEL).expect("the policy has it");
    assert_eq!((idle.state, idle.failures.len()), (State::Down, 0));
    assert!(idle.children[0].waits.is_some(), "{idle:?}");

    left.space.ip("address del 192.0.2.1/24 dev wire");
    let asked = gateway.clone();
    left.run(async move { asked.tunnel(TUNNEL).activate().await }).expect_err("no address");
    let found = why(CHILD).expect("the policy has it");
    assert_eq!((found.name.as_str(), found.children[0].name.as_str()), (TUNNEL, CHILD));
    let [failed, ..] = &found.failures[..] else { panic!("{found:?}") };
    assert_eq!(failed.value.failure.kind, FailureKind::NoLocalAddress);
    let explanation = &failed.explanation;
    assert!(explanation.cause.contains("does not have 192.0.2.1"), "{explanation:?}");
    let [add, set, ..] = &explanation.cures[..] else { panic!("{explanation:?}") };
    let command = ["ip", "address", "add", "192.0.2.1/PREFIX", "dev", "DEVICE"];
    assert_eq!(add.step, Step::Run(command.map(str::to_owned).to_vec()));
    let Step::Set { element, attributes, value, .. } = &set.step else { panic!("{set:?}") };
    assert_eq!((element.as_str(), value), ("IKETunnel", &None));
    assert_eq!(*attributes, ["IKELocalIdentity"]);
    left.run(async move { gateway.stop().await });
}
