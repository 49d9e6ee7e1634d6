//! The JSON of the values that a gateway returns. Programs store and compare it, so that its names have to stay.

use esp::filter::{Filter, FilterStatus};
use esp::plane::Spi;
use ike::CloseReason;
use ike::event::{Event, EventKind, Negotiated};
use ike::failure::facts::Silence;
use ike::failure::{Failure, FailureKind};
use ike::negotiation::suite::{ChildSuite, IkeSuite};
use ike::status::{ChildSaStatus, ChildStatus, IkeSaStatus, IkeStatus, PastFailure, State};
use ike::wire::header::IkeSpi;
use ike::wire::registry::NotifyType;
use policy::{
    AddressRange, EspEncryption, Group, IkeEncryption, KeyBits, Lifetime, Mode, Prf, Protection,
    Selector,
};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::Duration;
use vpn::{Activation, Closed};

#[test]
fn a_description_of_a_tunnel_is_read() {
    let text = json!({
        "name": "partner", "local": "192.0.2.1", "remote": "192.0.2.2", "auto_start": true,
        "protect": [["10.1.0.0/24", "10.2.0.0/24"], ["10.1.0.5", "10.3.0.1-10.3.0.9"]],
    });
    let site: policy::Site = serde_json::from_value(text.clone()).expect("a description");
    let key = |_: &policy::Identity| Ok::<_, String>(policy::Secret::new(vec![7; 32]));
    let policy = site.psk_with(key).build().expect("a policy");
    let children = &policy.tunnels[0].children;
    let remotes: Vec<String> = children.iter().map(|child| child.remote[0].to_string()).collect();
    assert_eq!(remotes, ["10.2.0.0/24", "10.3.0.1-10.3.0.9"]);
    assert!(children.iter().all(|child| child.auto_start));
    let mut wrong = text.clone();
    wrong["local"] = json!("192.0.2.300");
    let refused = serde_json::from_value::<policy::Site>(wrong).expect_err("refused").to_string();
    assert!(
        refused.contains("tunnel \"partner\", local: \"192.0.2.300\" is not an address"),
        "{refused}"
    );
    let mut unknown = text;
    unknown["psk"] = json!("secret");
    assert!(serde_json::from_value::<policy::Site>(unknown).is_err());
}

fn written(value: impl serde::Serialize) -> Value {
    serde_json::to_value(value).expect("values without maps of odd keys")
}

fn ike_suite() -> IkeSuite {
    IkeSuite::new(IkeEncryption::AesGcm16(KeyBits::B256), None, Prf::HmacSha2_256, Group::Ecp384)
}

fn child_suite() -> ChildSuite {
    ChildSuite::new(Protection::Esp {
        encryption: EspEncryption::AesGcm16(KeyBits::B128),
        integrity: None,
    })
}

fn seconds(secs: u64) -> Value {
    json!({"secs": secs, "nanos": 0})
}

#[test]
fn a_tunnel_that_is_up() {
    let here: IpAddr = [192, 0, 2, 1].into();
    let peer: IpAddr = [192, 0, 2, 2].into();
    let lan: IpAddr = [10, 0, 0, 1].into();
    let mut sa =
        IkeSaStatus::new((IkeSpi(1), IkeSpi(u64::MAX)), (here, 500).into(), (peer, 4500).into());
    sa.suite = Some(ike_suite());
    let mut child = ChildStatus::new("lan", Mode::Tunnel);
    child.state = State::Rekeying;
    child.local = vec![Selector::all_of(AddressRange::subnet(lan, 32).expect("a length"))];
    child.sa = Some(ChildSaStatus::new(
        child_suite(),
        (Spi(0x1234), Spi(0xabcd_0000)),
        Lifetime::new(Duration::from_secs(60)),
    ));
    let mut tunnel = IkeStatus::new("site");
    tunnel.state = State::Established;
    tunnel.sa = Some(sa);
    tunnel.children = vec![child];
    let failure = Failure::new(FailureKind::NoAnswer, "silent".into());
    tunnel.failures = vec![PastFailure::new(failure, Duration::from_secs(5))];

    let value = written(&tunnel);
    assert_eq!(value["state"], "established");
    assert_eq!(value["remote_address"], Value::Null);
    assert_eq!(value["sa"]["responder_spi"], "ffffffffffffffff");
    assert_eq!(value["sa"]["remote"], "192.0.2.2:4500");
    let suite = ike_suite();
    assert_eq!(
        value["sa"]["suite"],
        json!({
            "encryption": suite.encryption.to_string(),
            "integrity": null,
            "prf": suite.prf.to_string(),
            "group": suite.group.to_string(),
        })
    );
    assert_eq!(
        value["failures"],
        json!([{
            "failure": {"kind": "no_answer", "facts": {"words": "silent"}, "unauthenticated": false},
            "ago": seconds(5), "times": 1, "peer": null, "overcome": false,
            "overcome_ago": null, "outdated_ago": null,
        }])
    );
    let child = &value["children"][0];
    assert_eq!((&child["state"], &child["mode"]), (&json!("rekeying"), &json!("tunnel")));
    assert_eq!(child["local"], json!([tunnel.children[0].local[0].to_string()]));
    assert_eq!(child["sa"]["inbound_spi"], "00001234");
    assert_eq!(child["sa"]["encapsulation"], "native");
    assert_eq!(child["sa"]["suite"]["protection"], child_suite().protection.to_string());
    assert_eq!(
        child["sa"]["lifetime"],
        json!({"hard": seconds(60), "bytes": null, "overlap_percent": 10})
    );
}

#[test]
fn names_of_states_and_failures_are_those_of_their_methods() {
    for (number, state) in State::ALL.into_iter().enumerate() {
        assert_eq!(written(state), state.name());
        assert_eq!((State::named(state.name()), state.number()), (Some(state), number));
    }
    for kind in FailureKind::ALL {
        assert_eq!(written(kind), kind.name());
    }
}

#[test]
fn events() {
    let kind = |kind: EventKind| written(Event::new("site", kind))["kind"].clone();
    let suite = Negotiated::Ike(ike_suite());
    assert_eq!(
        kind(EventKind::Established { suite })["established"]["suite"]["ike"]["group"],
        Group::Ecp384.to_string()
    );
    let reason = CloseReason::DeletedByPeer;
    assert_eq!(
        kind(EventKind::Closed { reason }),
        json!({"closed": {"reason": "deleted_by_peer"}})
    );
    let reason = CloseReason::AuthAnswerUnread(NotifyType::INVALID_SYNTAX);
    assert_eq!(
        kind(EventKind::Closed { reason }),
        json!({"closed": {"reason": {"auth_answer_unread": "INVALID_SYNTAX"}}})
    );
    let silence = Silence {
        request: "IKE_SA_INIT".into(),
        sent: 5,
        local: [192, 0, 2, 1].into(),
        remote: ([192, 0, 2, 2], 500).into(),
        was_up: false,
        unsent: None,
        icmp: None,
        heard: None,
    };
    assert_eq!(
        kind(EventKind::Failed(silence.into())),
        json!({"failed": {
            "kind": "no_answer",
            "facts": {"silence": {
                "request": "IKE_SA_INIT", "sent": 5, "local": "192.0.2.1", "remote": "192.0.2.2:500",
                "was_up": false, "unsent": null, "icmp": null, "heard": null,
            }},
            "unauthenticated": false,
        }})
    );
}

#[test]
fn outcomes_of_commands_and_the_end() {
    assert_eq!(written(Activation::new("site", Ok(()))), json!({"name": "site", "failure": null}));
    let failure = Failure::new(FailureKind::Refused, String::new());
    let refused = written(Activation::new("site", Err(failure)));
    assert_eq!(refused["failure"]["kind"], "refused");
    assert_eq!(written(Closed::RuntimeEnded), "runtime_ended");
    let message = "odd".to_owned();
    assert_eq!(written(Closed::Panicked { message }), json!({"panicked": {"message": "odd"}}));
}

#[test]
fn the_filter() {
    let status = FilterStatus { filter: Filter::default().into(), ..FilterStatus::default() };
    let value = written(status);
    assert_eq!(value["filter"]["ipv4"], "permit");
    assert_eq!(value["counts"]["denied_ipv6"], json!({"packets": 0, "bytes": 0}));
}
