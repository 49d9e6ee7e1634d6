use super::super::Health;
use super::*;
use control::protocol::{FailureInfo, FindingInfo, Fleet, GuardInfo, Narrowed, Overview};
use ike::status::State;
use serde_json::json;

/// A tunnel with one child in this state.
fn tunnel(state: &str) -> Tunnel {
    let child = json!({
        "name": "site_lan", "state": state, "mode": "tunnel", "local": [], "remote": [], "child_sa": null,
        "last_failure": null,
    });
    let tunnel = json!({
        "name": "site", "state": state, "local_id": "a", "remote_id": "b", "local_address": null,
        "remote_address": "192.0.2.2", "ike_sa": null, "children": [child], "last_failure": null,
    });
    serde_json::from_value(tunnel).expect("a tunnel")
}

fn waiting(what: &str) -> Tunnel {
    let mut tunnel = tunnel("down");
    let waits = json!({"for": what, "message": "something", "seconds": null});
    tunnel.children[0].waits = serde_json::from_value(waits).expect("a wait");
    tunnel
}

fn failed(mut tunnel: Tunnel) -> Tunnel {
    let message = "no answer".to_owned();
    let failure = FailureInfo { kind: "no_answer".to_owned(), message, seconds_ago: Some(3) };
    tunnel.last_failure = Some(failure);
    tunnel
}

fn with_child(mut tunnel: Tunnel, change: impl FnOnce(&mut Child)) -> Tunnel {
    change(&mut tunnel.children[0]);
    tunnel
}

fn finding(kind: &str, certain: bool) -> FindingInfo {
    let message = format!("{kind} is in the way");
    FindingInfo { kind: kind.to_owned(), certain, message, cure: Vec::new() }
}

#[test]
fn the_protocol_knows_the_states_of_the_engine_that_are_up() {
    for state in State::ALL {
        let tunnel = tunnel(state.name());
        let child = &tunnel.children[0];
        assert_eq!([tunnel.is_up(), child.is_up()], [state.is_up(); 2], "{state:?}");
        assert_eq!(child.has_sa(), state.has_sa(), "{state:?}");
    }
}

#[test]
fn a_tunnel_is_judged_by_its_state_and_by_what_it_waits_for() {
    let any_peer = Tunnel { remote_address: None, ..waiting("peer") };
    let narrowed = || Narrowed { local: vec![], remote: vec![], by: "answer".to_owned() };
    for (level, words, tunnel) in [
        (Level::Ok, "1 of 1 phase 2 tunnels up", tunnel("established")),
        (Level::Ok, "1 of 1 phase 2 tunnels up", tunnel("rekeying")),
        (Level::Ok, "0 of 1 phase 2 tunnels up", waiting("packet")),
        (Level::Ok, "0 of 1 phase 2 tunnels up", any_peer),
        (Level::Critical, "site_lan: down; it waits for something", waiting("peer")),
        (Level::Critical, "site_lan: down; it waits for something", waiting("attempt")),
        (Level::Warning, "site_lan: down; it waits for something", waiting("command")),
        (Level::Warning, "site_lan: down; it waits for something", waiting("family")),
        (Level::Warning, "site_lan: down; it waits for something", waiting("answer")),
        (
            Level::Critical,
            "site_lan: down; it waits for something; the last failure: no answer",
            failed(waiting("answer")),
        ),
        (Level::Critical, "site_lan: down (closing)", tunnel("closing")),
        // As of a later version.
        (Level::Critical, "site_lan: down (resting)", tunnel("resting")),
        (
            Level::Critical,
            "site_lan: blocked: no device",
            with_child(tunnel("blocked"), |c| c.fault = Some("no device".to_owned())),
        ),
        (
            Level::Critical,
            "site_lan: firewall is in the way",
            with_child(tunnel("established"), |c| c.findings = vec![finding("firewall", true)]),
        ),
        (
            Level::Warning,
            "site_lan: one_way is in the way",
            with_child(tunnel("established"), |c| c.findings = vec![finding("one_way", false)]),
        ),
        (
            Level::Warning,
            "site_lan: the two sides have agreed on a part of the traffic in the policy",
            with_child(tunnel("established"), |c| c.narrowed = Some(narrowed())),
        ),
        (
            Level::Warning,
            "site_lan: narrowed is in the way",
            with_child(tunnel("established"), |c| {
                c.narrowed = Some(narrowed());
                c.findings = vec![finding("narrowed", false)];
            }),
        ),
    ] {
        let health = Health::of(&[tunnel], None);
        assert_eq!((health.status, health.summary.as_str()), (level, words));
        assert_eq!(health.problems.len(), usize::from(level != Level::Ok), "{:?}", health.problems);
    }
}

#[test]
fn a_peer_that_does_not_answer_is_a_warning_while_packets_pass() {
    let unanswered = json!({"message": "INFORMATIONAL was sent 3 of 6 times", "cure": []});
    let unanswered = serde_json::from_value(unanswered).expect("a request");
    let mut silent = Tunnel { unanswered, ..tunnel("established") };
    let problems = Health::of(&[silent.clone()], None).problems;
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].tunnel.as_deref(), Some("site"));
    assert_eq!(problems[0].level, Level::Warning);
    // While it comes up, its children tell.
    silent.state = "negotiating".to_owned();
    silent.children[0].state = "negotiating".to_owned();
    let problems = Health::of(&[silent], None).problems;
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].tunnel.as_deref(), Some("site_lan"));
}

#[test]
fn the_daemon_is_judged_by_its_guard_its_keys_and_its_warnings() {
    let overview = json!({
        "version": "1", "pid": 1, "up_seconds": 1, "policy": "p", "configuration": null,
        "tunnels": {"defined": 1, "up": 1}, "children": {"defined": 1, "up": 1}, "planes": [], "filter": null,
        "ike_discarded": 0, "esp_discarded": 0, "keys_exported_to": null,
    });
    let daemon: Overview = serde_json::from_value(overview).expect("an overview");
    let level = |daemon: &Overview| Health::of(&[tunnel("established")], Some(daemon)).status;
    assert_eq!(level(&daemon), Level::Ok);
    let guard = |in_force| GuardInfo {
        in_force,
        held_seconds: None,
        unprotected_leaving: 1,
        unprotected_arriving: 1,
    };
    assert_eq!(level(&Overview { guard: Some(guard(true)), ..daemon.clone() }), Level::Ok);
    let open = Overview { guard: Some(guard(false)), ..daemon.clone() };
    assert_eq!(level(&open), Level::Critical);
    // Nothing is to be guarded.
    let empty = Overview { children: Fleet::default(), ..open };
    assert_eq!(Health::of(&[], Some(&empty)).status, Level::Ok);
    let exporting = Overview { keys_exported_to: Some("/tmp/keys".to_owned()), ..daemon.clone() };
    assert_eq!(level(&exporting), Level::Critical);
    let warning = Overview { warnings: vec!["a certificate expires".to_owned()], ..daemon };
    assert_eq!(level(&warning), Level::Warning);
}
