//! Advice about tunnels that are up and in order, and through which no host sends anything.
//!
//! The daemon has no finding about such a tunnel: silence is no fault. It is worth a word only to somebody who asks for
//! the cause at this moment, so that this advice belongs to the report.

use super::why::wrapped;
use super::{duration, plain};
use control::protocol::{Child, ChildSa, Explanation, Tunnel};
use std::time::Duration;

/// Packets of a tunnel pass at present if one has passed within this time.
const PASSING: u64 = 10;

/// The advice about the children of an explanation that no packet leaves through; `None` if there is none to give. With
/// `legacy`, the host has rules of `iptables-legacy`.
pub fn quiet(explanation: &Explanation, tunnel: &Tunnel, legacy: bool) -> Option<String> {
    let mut text = String::new();
    let children = tunnel.children.iter().filter(|child| child.mode == "tunnel");
    for child in children.filter(|child| is_in_order(explanation, &child.name)) {
        let Some(sa) = child.child_sa.as_ref().filter(|sa| is_quiet(sa)) else { continue };
        wrapped(&mut text, "  ", "", &plain(&advice(child, sa)));
        if legacy {
            let rules =
                "vpnd does not see the rules of iptables-legacy: iptables-legacy -S FORWARD";
            wrapped(&mut text, "  ", "  ", rules);
        }
    }
    (!text.is_empty()).then_some(text)
}

fn is_in_order(explanation: &Explanation, name: &str) -> bool {
    let explained = explanation.children.iter().chain([explanation]).find(|e| e.name == name);
    explained.is_some_and(|e| e.findings.is_empty() && e.fault.is_none())
}

fn is_quiet(sa: &ChildSa) -> bool {
    let idle = [sa.idle_in_seconds, sa.idle_out_seconds];
    idle.into_iter().all(|idle| idle.is_none_or(|seconds| seconds >= PASSING))
}

fn advice(child: &Child, sa: &ChildSa) -> String {
    let (local, remote) = (child.local.join(", "), child.remote.join(", "));
    let last = match sa.idle_out_seconds {
        Some(seconds) => format!("for {}", duration(Duration::from_secs(seconds))),
        None => "since it is up".to_owned(),
    };
    format!(
        "does nothing pass? no packet has come here for {} {last}: the hosts of {local} need a route to {remote} by this \
         gateway",
        child.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn told(idle: [Option<u64>; 2], findings: Value, legacy: bool) -> Option<String> {
        let explained = |name: &str, children: Value| {
            json!({"name": name, "phase": 1, "state": "established", "up_seconds": 90, "waits": null, "failures": [],
                   "turned_away": [], "defined": [], "children": children, "findings": findings})
        };
        let explanation = explained("site", json!([explained("site_lan", json!([]))]));
        let explanation = serde_json::from_value(explanation).expect("an explanation");
        let mut tunnel = super::super::tests::tunnel();
        let child = &mut tunnel.children[0];
        child.name = "site_lan".to_owned();
        let sa = child.child_sa.as_mut().expect("it is up");
        [sa.idle_in_seconds, sa.idle_out_seconds] = idle;
        quiet(&explanation, &tunnel, legacy)
    }

    #[test]
    fn a_tunnel_that_no_host_uses_has_advice() {
        let none = || json!([]);
        assert_eq!(told([Some(90), Some(3)], none(), false), None);
        assert_eq!(told([Some(3), Some(90)], none(), true), None);
        let text = told([None, None], none(), false).expect("advice");
        let expected = "  does nothing pass? no packet has come here for site_lan since it is up: the hosts of";
        assert!(text.starts_with(expected) && text.lines().all(|l| l.len() <= 100), "{text}");
        assert!(!text.contains("iptables"), "{text}");
        let text = told([Some(60), Some(90)], none(), true).expect("advice");
        assert!(text.contains("for site_lan for 1m 30s: "), "{text}");
        assert!(text.contains("iptables-legacy -S FORWARD"), "{text}");
        let finding = json!([{"kind": "forwarding", "certain": true, "message": "m", "cure": []}]);
        assert_eq!(told([None, None], finding, true), None);
    }
}
