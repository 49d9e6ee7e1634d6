//! The treatment of a packet (`vpnctl trace`), in words.

use crate::view::{encapsulation_name, mode_name};
use control::protocol::{OneWayTraceInfo, TraceInfo, TracedSa};
use esp::families::{Families, Family};
use esp::filter::{DefaultAction, FilterAction};
use esp::plane::PacketSummary;
use esp::trace::{DecidedBy, KernelPolicy, OneWayTrace, SaFacts, Trace, protocol_name};
use std::net::SocketAddr;

/// Explains the treatment of a packet in both directions.
pub fn explain(packet: &PacketSummary, trace: &Trace, families: Families) -> TraceInfo {
    let off = Some(Family::of(packet.source.0)).filter(|family| !families.has(*family));
    let Trace { leaving, arriving, inbound_guard } = trace;
    TraceInfo {
        packet: described(packet),
        leaving: one_way(leaving, &clear(packet, arriving), &|trace| match off {
            Some(family) => off_by_tunnel(trace, family),
            None => leaving_by_tunnel(trace),
        }),
        arriving: one_way(arriving, &clear(packet, leaving), &|trace| match off {
            Some(family) => off_by_tunnel(trace, family),
            None => arriving_by_tunnel(trace, *inbound_guard),
        }),
    }
}

fn clear(packet: &PacketSummary, other: &OneWayTrace) -> Clear {
    Clear {
        family: if packet.source.0.is_ipv4() { "IPv4" } else { "IPv6" },
        behind_tunnel: matches!(other.decided_by, DecidedBy::Tunnel { .. }),
    }
}

/// A packet that nothing covers in one direction.
struct Clear {
    family: &'static str,
    /// In the other direction it is a tunnel's: this is its way between the gateway and the hosts behind it.
    behind_tunnel: bool,
}

fn one_way(
    trace: &OneWayTrace,
    clear: &Clear,
    by_tunnel: &dyn Fn(&OneWayTrace) -> (&'static str, String),
) -> OneWayTraceInfo {
    let Clear { family, behind_tunnel } = clear;
    let (decided_by, rule) = match &trace.decided_by {
        DecidedBy::Always(_) => ("always", None),
        DecidedBy::Filter { place, .. } => ("filter", Some((place + 1).to_string())),
        DecidedBy::Tunnel { tunnel, .. } => ("tunnel", Some(tunnel.clone())),
        DecidedBy::RemoteNetwork { tunnel } => ("remote_network", Some(tunnel.clone())),
        DecidedBy::Default(action) => ("default", Some(action.name().to_owned())),
    };
    let (verdict, message) = match &trace.decided_by {
        DecidedBy::Always(always) => {
            ("clear", format!("passes in the clear, always: {}", always.reason()))
        }
        DecidedBy::Filter { place, rule } => match rule.action {
            FilterAction::Bypass => (
                "clear",
                format!("passes in the clear by {} of the filter: {rule}", rule.title(*place)),
            ),
            FilterAction::Discard => {
                ("dropped", format!("dropped by {} of the filter: {rule}", rule.title(*place)))
            }
        },
        DecidedBy::Tunnel { .. } => by_tunnel(trace),
        DecidedBy::RemoteNetwork { tunnel } => (
            "dropped",
            format!(
                "dropped: it is for the remote network of tunnel {tunnel}, and its source is not in the selectors of a tunnel; to let this host send it in the clear, write a bypass rule"
            ),
        ),
        DecidedBy::Default(DefaultAction::Permit) => (
            "clear",
            format!(
                "passes in the clear{}: no rule and no tunnel covers it, and {family} is permitted by default",
                if *behind_tunnel { " on this side of the tunnel" } else { "" }
            ),
        ),
        DecidedBy::Default(DefaultAction::Deny) => (
            "dropped",
            format!("dropped: no rule and no tunnel covers it, and {family} is denied by default"),
        ),
    };
    OneWayTraceInfo {
        verdict: verdict.to_owned(),
        decided_by: decided_by.to_owned(),
        rule,
        message,
        sas: trace.sas.iter().map(traced).collect(),
        behind: trace.behind.clone(),
        otherwise: trace.otherwise.iter().map(|other| one_way(other, clear, by_tunnel)).collect(),
    }
}

/// A packet of a tunnel, of an address family that is off.
fn off_by_tunnel(trace: &OneWayTrace, family: Family) -> (&'static str, String) {
    let DecidedBy::Tunnel { tunnel, .. } = &trace.decided_by else { return Default::default() };
    let text = format!(
        "dropped: it belongs to tunnel {tunnel}, and IPsec of {family} is off; to switch it on: vpnctl family {} on",
        family.name()
    );
    ("dropped", text)
}

fn leaving_by_tunnel(trace: &OneWayTrace) -> (&'static str, String) {
    let DecidedBy::Tunnel { tunnel, trap, kernel, .. } = &trace.decided_by else {
        return Default::default();
    };
    let policy = in_kernel(*kernel);
    if trace.sas.iter().any(|sa| sa.carries) {
        return ("protected", format!("protected by tunnel {tunnel}{policy}"));
    }
    match (trace.sas.is_empty(), trap) {
        (true, true) if kernel.is_some() => (
            "dropped",
            format!(
                "starts tunnel {tunnel}{policy}, which is down and on demand; the kernel drops it, unless net.core.xfrm_larval_drop is 0"
            ),
        ),
        (true, true) => (
            "kept",
            format!(
                "starts tunnel {tunnel}, which is down and on demand, and is kept for up to 10 seconds until it is up"
            ),
        ),
        (true, false) => (
            "dropped",
            format!(
                "dropped: tunnel {tunnel}{policy} is down; to bring it up: vpnctl activate {tunnel}"
            ),
        ),
        (false, trap) => {
            let more = if *trap { "; it asks for another SA" } else { "" };
            let text = "is up, but the peer has agreed to less than its traffic";
            (
                "dropped",
                format!(
                    "dropped: tunnel {tunnel}{policy} {text}, and none of its SAs carries this{more}"
                ),
            )
        }
    }
}

fn arriving_by_tunnel(trace: &OneWayTrace, guarded: bool) -> (&'static str, String) {
    let DecidedBy::Tunnel { tunnel, kernel, .. } = &trace.decided_by else {
        return Default::default();
    };
    let policy = in_kernel(*kernel);
    let clear = if guarded {
        "in the clear it is dropped"
    } else {
        "in the clear it passes, too, since there is no inbound guard (it needs nftables)"
    };
    if trace.sas.is_empty() {
        let verdict = if guarded { "dropped" } else { "clear" };
        return (
            verdict,
            format!("it is traffic of tunnel {tunnel}{policy}, which has no SA for it; {clear}"),
        );
    }
    ("protected", format!("accepted from tunnel {tunnel}{policy}; {clear}"))
}

/// The kernel's policy, as it stands behind the name of a tunnel.
fn in_kernel(policy: Option<KernelPolicy>) -> String {
    let Some(KernelPolicy { priority, binding }) = policy else { return String::new() };
    let mark =
        binding.mark.map(|(value, mask)| format!(", for packets with mark {value:#x}/{mask:#x}"));
    let interface = binding.if_id.map(|id| format!(", for the XFRM interface with if_id {id}"));
    let [mark, interface] = [mark, interface].map(Option::unwrap_or_default);
    format!(" in the kernel (policy of priority {priority}{mark}{interface})")
}

fn traced(sa: &SaFacts) -> TracedSa {
    TracedSa {
        spi: sa.spi.to_string(),
        suite: sa.suite.to_string(),
        mode: mode_name(sa.mode).to_owned(),
        encapsulation: encapsulation_name(sa.path.encapsulation).to_owned(),
        local: sa.path.local,
        remote: sa.path.remote,
        inner_mtu: (sa.inner_mtu > 0).then_some(sa.inner_mtu),
        carries: sa.carries,
    }
}

/// The packet as one would describe it.
fn described(packet: &PacketSummary) -> String {
    let PacketSummary { protocol, source, destination } = *packet;
    let icmp = matches!(protocol, 1 | 58);
    let [from, to] = [source, destination].map(|(address, port)| match port {
        Some(port) if !icmp => SocketAddr::new(address, port).to_string(),
        _ => address.to_string(),
    });
    let kind = match source.1 {
        Some(kind) if icmp => format!(", type {} code {}", kind >> 8, kind & 0xff),
        None if matches!(protocol, 1 | 6 | 17 | 33 | 58 | 132 | 136) => {
            ", a later fragment".to_owned()
        }
        _ => String::new(),
    };
    format!("{} {from} > {to}{kind}", protocol_name(protocol))
}

#[cfg(test)]
mod tests {
    use super::*;
    use esp::plane::RuleId;
    use esp::trace::parse;

    #[test]
    fn a_packet_of_a_tunnel_is_in_the_clear_on_this_side_only() {
        let packet = parse("tcp 10.1.0.5:40000 10.2.0.7:443").expect("a packet");
        let way = |decided_by| OneWayTrace {
            decided_by,
            sas: Vec::new(),
            behind: Vec::new(),
            otherwise: Vec::new(),
        };
        let open = || way(DecidedBy::Default(DefaultAction::Permit));
        let tunnel = "site_lan".to_owned();
        let by_tunnel =
            way(DecidedBy::Tunnel { rule: RuleId(0), tunnel, trap: false, kernel: None });
        let arriving = |leaving| {
            let trace = Trace { leaving, arriving: open(), inbound_guard: true };
            explain(&packet, &trace, Families::default()).arriving.message
        };
        let on_this_side = "passes in the clear on this side of the tunnel: no rule and no tunnel";
        assert!(arriving(by_tunnel).starts_with(on_this_side));
        assert!(arriving(open()).starts_with("passes in the clear: no rule and no tunnel"));
    }

    #[test]
    fn packets_read_as_they_are_written() {
        for text in [
            "tcp 10.1.0.5:40000 > 10.2.0.7:443",
            "udp [fd01::5]:53 > [fd02::7]:53",
            "gre 10.1.0.5 > 10.2.0.7",
            "200 10.1.0.5 > 10.2.0.7",
        ] {
            assert_eq!(described(&parse(text).expect("a packet")), text);
        }
        let of = |text| described(&parse(text).expect("a packet"));
        assert_eq!(of("icmp 10.1.0.5 10.2.0.7 3/4"), "icmp 10.1.0.5 > 10.2.0.7, type 3 code 4");
        let fragment = "udp 10.1.0.5 > 10.2.0.7, a later fragment";
        assert_eq!(of("udp 10.1.0.5 10.2.0.7 fragment"), fragment);
    }
}
