//! `vpnctl status NAME` and `vpnctl activate`: one tunnel.

use super::offload::place as placement;
use super::since;
use super::why::wrapped;
use super::{Colour, Fields, bytes, count, duration, narrowed, plain};
use control::protocol::{Activation, Child, ChildSa, FailureInfo, IkeSa, ResponderWindow, Tunnel};
use std::time::Duration;

/// A warning, if the keys of this tunnel are written to files.
pub(super) fn keys_exported(tunnel: &Tunnel, colour: Colour) -> Option<String> {
    let directory = plain(tunnel.keys_exported_to.as_ref()?);
    let remark = format!(
        "INSECURE: keys are written to {directory}; to end that, start vpnd without --insecure-export-keys"
    );
    Some(colour.bad(&remark))
}

/// Everything there is to know about one tunnel.
pub fn status(tunnel: &Tunnel, colour: Colour) -> String {
    let mut text = String::new();
    let head = format!("{} {}", colour.heading(&plain(&tunnel.name)), colour.state(&tunnel.state));
    wrapped(&mut text, "", &head, &since::behind(&tunnel.state, tunnel.down.as_ref()));
    let mut fields = Fields::new("  ");
    if let Some(unanswered) = &tunnel.unanswered {
        fields.tell_bad("unanswered", plain(&unanswered.message).into_owned());
    }
    fields.add("local", side(&tunnel.local_id, tunnel.local_address));
    fields.add("remote", side(&tunnel.remote_id, tunnel.remote_address));
    if let Some(product) = &tunnel.peer_product {
        fields.add("peer runs", plain(product).into_owned());
    }
    if let Some(sa) = &tunnel.ike_sa {
        ike_sa(&mut fields, sa);
    }
    let bounds = tunnel.policy.as_ref().and_then(|policy| policy.responder_window.as_ref());
    bounds.into_iter().for_each(|bounds| fields.add("window", window(bounds)));
    last_failure(&mut fields, tunnel.last_failure.as_ref(), &tunnel.state);
    if let Some(remark) = keys_exported(tunnel, colour) {
        fields.add("keys", remark);
    }
    fields.write(&mut text, colour);
    for child in &tunnel.children {
        let head =
            format!("{} {}", colour.heading(&plain(&child.name)), colour.state(&child.state));
        wrapped(&mut text, "  ", &head, &since::behind(&child.state, child.down.as_ref()));
        let mut fields = Fields::new("    ");
        fields.add("mode", child.mode.clone());
        fields.add("local", narrowed::local(child, ", "));
        fields.add("remote", narrowed::remote(child, ", "));
        if let Some(sa) = &child.child_sa {
            child_sa(&mut fields, sa, has_nat(tunnel));
        }
        let bounds = child.policy.as_ref().and_then(|policy| policy.responder_window.as_ref());
        bounds.into_iter().for_each(|bounds| fields.add("window", window(bounds)));
        if let Some(fault) = &child.fault {
            fields.tell_bad("no packet passes", plain(fault).into_owned());
        }
        if let Some(hint) = hint(child) {
            fields.tell_bad("traffic", hint);
        }
        last_failure(&mut fields, child.last_failure.as_ref(), &child.state);
        fields.write(&mut text, colour);
    }
    text
}

fn side(id: &str, address: Option<std::net::IpAddr>) -> String {
    match address {
        Some(address) if address.to_string() == id => id.to_owned(),
        Some(address) => format!("{} at {address}", plain(id)),
        None => format!("{} at any address", plain(id)),
    }
}

/// Names the findings about a tunnel's traffic, if there are any.
fn hint(child: &Child) -> Option<String> {
    let certain = child.findings.iter().any(|finding| finding.certain);
    let verb = if certain { "does not pass" } else { "may not pass" };
    let mut kinds: Vec<&str> = child.findings.iter().map(|finding| &*finding.kind).collect();
    kinds.dedup();
    (!kinds.is_empty()).then(|| {
        let name = plain(&child.name);
        format!("{verb} ({}); see vpnctl why {name}", plain(&kinds.join(", ")))
    })
}

fn ike_sa(fields: &mut Fields, sa: &IkeSa) {
    let nat = match (sa.nat_local, sa.nat_remote) {
        (false, false) => "none",
        (true, false) => "this side is behind a NAT",
        (false, true) => "the peer is behind a NAT",
        (true, true) => "both sides are behind a NAT",
    };
    fields.add("path", format!("{} to {}", sa.local, sa.remote));
    fields.add("NAT", nat.to_owned());
    if !sa.suite.is_empty() {
        fields.add("suite", plain(&sa.suite).into_owned());
        let safety = quantum_safety(sa.quantum_safe, sa.not_quantum_safe.as_deref());
        safety.into_iter().for_each(|text| fields.add("quantum-safe", text));
    }
    fields.add("SPIs", format!("initiator {}, responder {}", sa.initiator_spi, sa.responder_spi));
    fields.add("role", if sa.initiator { "initiator" } else { "responder" }.to_owned());
    if let Some(times) = sa.resumptions {
        let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
        fields.add("resumed", format!("{times} since the last full handshake"));
    }
    times(fields, sa.established_seconds, sa.rekey_in_seconds, sa.expires_in_seconds, sa.rekeys);
}

/// Whether keys withstand a quantum computer, and why not; `None` from a daemon that does not say.
pub(super) fn quantum_safety(safe: bool, why_not: Option<&str>) -> Option<String> {
    match (safe, why_not) {
        (true, _) => Some("yes".to_owned()),
        (false, Some(why)) => Some(format!("no: {}", plain(why))),
        (false, None) => None,
    }
}

fn has_nat(tunnel: &Tunnel) -> bool {
    tunnel.ike_sa.as_ref().is_none_or(|sa| sa.nat_local || sa.nat_remote)
}

fn child_sa(fields: &mut Fields, sa: &ChildSa, nat: bool) {
    let sequence = if sa.esn { ", 64-bit sequence numbers" } else { "" };
    let travels = match sa.encapsulation.as_str() {
        "udp" if nat => "in UDP",
        "udp" => "in UDP, without a NAT (encap in vpnd.toml)",
        "ah" => "in AH",
        _ => "natively",
    };
    fields.add("suite", format!("{}{sequence}, {travels}", plain(&sa.suite)));
    let safety = quantum_safety(sa.quantum_safe, sa.not_quantum_safe.as_deref());
    safety.into_iter().for_each(|text| fields.add("quantum-safe", text));
    fields.add("SPIs", format!("in {}, out {}", sa.inbound_spi, sa.outbound_spi));
    if let Some(place) = placement(&sa.placed) {
        fields.add("place", place);
    }
    fields.add("in", format!("{} packets, {}", count(sa.packets_in), bytes(sa.bytes_in)));
    fields.add("out", format!("{} packets, {}", count(sa.packets_out), bytes(sa.bytes_out)));
    fields.add("refused", format!("{} packets", count(sa.refused)));
    if let (Some(inner), Some(path)) = (sa.inner_mtu, sa.path_mtu) {
        let who = if sa.path_mtu_learned { ", as a router there has said" } else { "" };
        fields.add("MTU", format!("{inner} inside, {path} on the way to the peer{who}"));
    }
    let up = Some(sa.established_seconds);
    times(fields, up, sa.rekey_in_seconds, sa.expires_in_seconds, sa.rekeys);
}

fn times(
    fields: &mut Fields,
    up: Option<u64>,
    rekey: Option<u64>,
    expiry: Option<u64>,
    rekeys: u64,
) {
    if let Some(up) = up {
        let times = match rekeys {
            0 => String::new(),
            1 => ", rekeyed once".to_owned(),
            n => format!(", rekeyed {n} times"),
        };
        fields.add("up", format!("{}{times}", span(up)));
    }
    match (rekey, expiry) {
        (Some(rekey), Some(expiry)) => {
            fields.add("rekey", format!("in {}, expires in {}", span(rekey), span(expiry)));
        }
        (Some(rekey), None) => fields.add("rekey", format!("in {}", span(rekey))),
        (None, Some(expiry)) => fields.add("expires", format!("in {}", span(expiry))),
        (None, None) => {}
    }
}

fn span(seconds: u64) -> String {
    duration(Duration::from_secs(seconds))
}

/// A responder's window in words.
pub(super) fn window(window: &ResponderWindow) -> String {
    let lifetime = range("lifetime", window.min_seconds, window.max_seconds, span);
    let volume = range("volume", window.min_bytes, window.max_bytes, bytes);
    let parts: Vec<String> = lifetime.into_iter().chain(volume).collect();
    format!("{}, if the peer asks for the SA", parts.join(", "))
}

fn range(
    what: &str,
    min: Option<u64>,
    max: Option<u64>,
    show: impl Fn(u64) -> String,
) -> Option<String> {
    match (min.map(&show), max.map(&show)) {
        (None, None) => None,
        (Some(min), None) => Some(format!("{what} at least {min}")),
        (None, Some(max)) => Some(format!("{what} at most {max}")),
        (Some(min), Some(max)) => Some(format!("{what} {min} to {max}")),
    }
}

fn last_failure(fields: &mut Fields, failure: Option<&FailureInfo>, state: &str) {
    let Some(failure) = failure else { return };
    let ago = failure
        .seconds_ago
        .map(|s| format!(" ({} ago)", duration(Duration::from_secs(s))))
        .unwrap_or_default();
    let text = format!("{}{ago}", plain(&failure.message));
    // A failed rekey or an earlier attempt is history while the SA is up.
    if state == "established" {
        fields.tell("last failure", text);
    } else {
        fields.tell_bad("down because", text);
    }
}

/// One line of `vpnctl activate`.
pub fn activation(activation: &Activation, colour: Colour) -> String {
    let name = plain(&activation.name);
    match &activation.failure {
        None if activation.up => format!("{name}: {}", colour.good("up")),
        None => format!("{name}: {}", colour.bad("failed")),
        Some(failure) => format!("{name}: {}: {}", colour.bad("failed"), plain(&failure.message)),
    }
}
