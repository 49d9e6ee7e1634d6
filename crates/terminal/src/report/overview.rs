//! The daemon, its filter, and the predicted way of a packet.

use super::offload::number;
use super::why::wrapped;
use super::{Colour, Fields, Table, bytes, count, duration, plain};
use control::protocol::{
    ConfinementInfo, Count, Fallback, FilterInfo, FilterRuleInfo, GuardInfo, OneWayTraceInfo,
    Overview, TraceInfo, Unrouted,
};
use std::fmt::Write;
use std::time::Duration;

/// The output of `vpnctl status` without a name.
pub fn overview(daemon: &Overview, colour: Colour) -> String {
    let mut text = format!("{} {}\n", colour.heading("vpnd"), plain(&daemon.version));
    let mut fields = Fields::new("  ");
    fields.add(
        "up",
        format!("{}, process {}", duration(Duration::from_secs(daemon.up_seconds)), daemon.pid),
    );
    fields.add("policy", plain(&daemon.policy).into_owned());
    let configuration = daemon.configuration.as_deref().map(plain);
    fields
        .add("configuration", configuration.map_or("the defaults".to_owned(), |c| c.into_owned()));
    let (phase1, phase2) = (daemon.tunnels, daemon.children);
    fields.add(
        "tunnels",
        format!(
            "phase 1: {} of {} up; phase 2: {} of {} up",
            phase1.up, phase1.defined, phase2.up, phase2.defined
        ),
    );
    for warning in &daemon.warnings {
        fields.add("", colour.bad(&plain(warning)));
    }
    for note in notes(daemon) {
        fields.add("", colour.notice(&plain(&note)));
    }
    for plane in &daemon.planes {
        let mut text = plain(&plane.kind).into_owned();
        if !plane.device.is_empty() {
            text.push_str(&format!(" on {}", plain(&plane.device)));
        }
        if let Some(remark) = &plane.remark {
            text.push_str(&format!("; {}", plain(remark)));
        }
        fields.add("plane", text);
    }
    for Fallback { tunnel, reason } in &daemon.fallbacks {
        fields.add("", format!("{} is in userspace: {}", plain(tunnel), plain(reason)));
    }
    for Unrouted { tunnel, network, command } in &daemon.unrouted {
        let text = format!(
            "{}: no route leads to {}, so that its packets never come to the kernel's ESP; type: {}",
            plain(tunnel),
            plain(network),
            plain(command)
        );
        fields.add("", colour.bad(&text));
    }
    if let Some(offload) = &daemon.offload {
        fields.add("offload", plain(offload).into_owned());
    }
    for why in &daemon.not_offloaded {
        fields.add("", colour.notice(&plain(why)));
    }
    for advice in &daemon.offload_advice {
        fields.add("", plain(advice).into_owned());
    }
    let discarded = format!(
        "{} packets, {} IKE messages (vpnctl counters says why)",
        count(daemon.esp_discarded),
        count(daemon.ike_discarded)
    );
    fields.add("discarded", discarded);
    if let Some(guard) = &daemon.guard {
        fields.add("guard", self::guard(guard));
    }
    if let Some(confinement) = &daemon.confinement {
        fields.add("confined", self::confinement(confinement, colour));
    }
    if let Some(directory) = &daemon.keys_exported_to {
        let remark = format!("INSECURE: written to {}", plain(directory));
        fields.add("keys", colour.bad(&remark));
    }
    fields.write(&mut text, colour);
    if !daemon.manual_sas.is_empty() {
        text.push('\n');
        text.push_str(&super::manual(&daemon.manual_sas, colour));
    }
    if let Some(filter) = &daemon.filter {
        text.push('\n');
        text.push_str(&self::filter(filter, colour));
    }
    text
}

/// The remarks that are in no other field of the overview.
fn notes(daemon: &Overview) -> impl Iterator<Item = String> {
    let told = daemon.warnings.iter().chain(&daemon.offload_advice);
    let texts = daemon.remarks.iter().map(|remark| match &remark.help {
        Some(help) => format!("{}; {help}", remark.message),
        None => remark.message.clone(),
    });
    texts.filter(move |text| !told.clone().any(|told| told == text))
}

fn guard(guard: &GuardInfo) -> String {
    let dropped = match guard.unprotected_leaving + guard.unprotected_arriving {
        0 => String::new(),
        dropped => format!("; {} in the clear were dropped", number(dropped, "packet", "packets")),
    };
    match (guard.in_force, guard.held_seconds) {
        (true, None) => format!("in force until vpnd stops{dropped}"),
        (true, Some(held)) => {
            let held = duration(Duration::from_secs(held));
            format!("in force until vpnd release, held for {held}{dropped}")
        }
        (false, _) => {
            "not in force: there is no tunnel, or nftables is missing (vpnd's log says which)"
                .to_owned()
        }
    }
}

fn confinement(confinement: &ConfinementInfo, colour: Colour) -> String {
    let mut text = match confinement.in_force.as_slice() {
        [] => "not at all".to_owned(),
        parts => format!("by {}", plain(&parts.join(", "))),
    };
    if !confinement.missing.is_empty() {
        let missing = format!("not in force: {}", plain(&confinement.missing.join("; ")));
        text.push_str(&format!("; {}", colour.notice(&missing)));
    }
    text
}

/// The filter in force: its rules, what is behind them, and how often each has decided.
pub fn filter(filter: &FilterInfo, colour: Colour) -> String {
    // The rows stand in the order in which they decide: rules, tunnels, defaults.
    let mut table = Table::new(["FILTER", "ACTION", "LOCAL", "", "REMOTE", "PACKETS", "BYTES"]);
    for rule in &filter.rules {
        let [packets, octets] = packets_and_bytes(rule.decided);
        let arrow = match rule.direction.as_str() {
            "in" => "<",
            "out" => ">",
            _ => "<>",
        };
        let [local, remote] = [&rule.local, &rule.remote].map(|side| any(side));
        let action = action(&rule.action, colour);
        table.row([title(rule), action, local, arrow.to_owned(), remote, packets, octets]);
    }
    let tunnels = "tunnels".to_owned();
    let (dash, none) = (|| "-".to_owned(), String::new);
    table.row([tunnels, "protect".to_owned(), dash(), none(), dash(), dash(), dash()]);
    for (family, default, denied) in
        [("IPv4", &filter.ipv4, filter.denied_ipv4), ("IPv6", &filter.ipv6, filter.denied_ipv6)]
    {
        let numbers = if default == "deny" { packets_and_bytes(denied) } else { [dash(), dash()] };
        let [packets, octets] = numbers;
        let all = format!("other {family}");
        table.row([all, action(default, colour), dash(), none(), dash(), packets, octets]);
    }
    let mut text = table.render(colour);
    let open = filter.ipv4 == "permit" && filter.ipv6 == "permit" && filter.rules.is_empty();
    if !open {
        text.push_str("The first that covers a packet decides. IKE, ESP, loopback and neighbour discovery always pass.\n");
    }
    if let Some(seconds) = filter.undo_in_seconds {
        let left = duration(Duration::from_secs(seconds));
        let remark = format!(
            "The change is undone in {left} unless you confirm it: vpnctl filter --confirm"
        );
        let _ = writeln!(text, "{}", colour.notice(&remark));
    }
    if !filter.inbound_guard {
        let remark = "Cleartext in place of tunnels' traffic is not dropped: install nftables, and restart vpnd.";
        let _ = writeln!(text, "{}", colour.bad(remark));
    }
    text
}

fn packets_and_bytes(n: Count) -> [String; 2] {
    [count(n.packets), bytes(n.bytes)]
}

fn title(rule: &FilterRuleInfo) -> String {
    match &rule.name {
        Some(name) => format!("{} {}", rule.number, plain(name)),
        None => rule.number.to_string(),
    }
}

/// Both families in full are "any", as people say.
fn any(side: &[String]) -> String {
    match side {
        [four, six] if four.starts_with("0.0.0.0/0") && six.starts_with("::/0") => {
            format!("any{}", plain(six.trim_start_matches("::/0")))
        }
        _ => plain(&side.join(", ")).into_owned(),
    }
}

fn action(action: &str, colour: Colour) -> String {
    match action {
        "discard" | "deny" => colour.bad(action),
        "bypass" | "permit" => colour.notice(action),
        _ => plain(action).into_owned(),
    }
}

/// The output of `vpnctl trace`.
pub fn trace(trace: &TraceInfo, colour: Colour) -> String {
    let mut text = format!("{}\n", colour.heading(&plain(&trace.packet)));
    one_way(&mut text, "leaving", &trace.leaving, colour);
    one_way(&mut text, "arriving", &trace.arriving, colour);
    text
}

fn one_way(text: &mut String, way: &str, trace: &OneWayTraceInfo, colour: Colour) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "  {}  {}", colour.faint(&format!("{way:<8}")), verdict(trace, colour));
    traced_sas(text, way, trace);
    if !trace.behind.is_empty() {
        let others = plain(&trace.behind.join(", ")).into_owned();
        let _ = writeln!(text, "            covered as well, and not asked: {others}");
    }
    for other in &trace.otherwise {
        let _ = writeln!(text, "            or {}", verdict(other, colour));
        traced_sas(text, way, other);
    }
}

fn verdict(trace: &OneWayTraceInfo, colour: Colour) -> String {
    let message = plain(&trace.message);
    match trace.verdict.as_str() {
        "protected" => colour.good(&message),
        "dropped" => colour.bad(&message),
        _ => colour.notice(&message),
    }
}

fn traced_sas(text: &mut String, way: &str, trace: &OneWayTraceInfo) {
    // The first that carries a packet takes it; others are the old ones of a rekey.
    let carrying = trace.sas.iter().filter(|sa| sa.carries);
    let shown: Vec<_> = if carrying.clone().next().is_some() {
        if way == "leaving" { carrying.take(1).collect() } else { carrying.collect() }
    } else {
        trace.sas.iter().collect()
    };
    for sa in shown {
        let mtu = sa.inner_mtu.map(|mtu| format!(", packets up to {mtu} octets"));
        let encapsulation = match sa.encapsulation.as_str() {
            "udp" => "in UDP",
            "ah" => "as AH",
            _ => "natively",
        };
        let (here, there) = if sa.encapsulation == "udp" {
            (sa.local.to_string(), sa.remote.to_string())
        } else {
            (sa.local.ip().to_string(), sa.remote.ip().to_string())
        };
        let ends = if way == "leaving" { [here, there] } else { [there, here] };
        let words = format!(
            "SPI {}, {}, {} mode, {encapsulation} {} > {}{}",
            plain(&sa.spi),
            plain(&sa.suite),
            plain(&sa.mode),
            ends[0],
            ends[1],
            mtu.unwrap_or_default()
        );
        wrapped(text, "            ", "", &words);
    }
}
