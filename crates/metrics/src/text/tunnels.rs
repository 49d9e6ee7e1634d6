//! Tunnels, whether they are up or not.

use super::Snapshot;
use super::families::{About, Families};
use crate::fleet::{Child, Fleet, Tunnel};
use crate::happenings::Tallies;
use ike::durations::Exchange;
use ike::status::State;
use prometheus_client::registry::Unit;
use std::fmt;

/// The phases of tunnels, in the order of counts.
const PHASES: [&str; 2] = ["1", "2"];
/// The directions of packets, in the order of counts.
const DIRECTIONS: [&str; 2] = ["in", "out"];

pub fn write(families: &mut Families<'_>, snapshot: &Snapshot, tallies: &Tallies) -> fmt::Result {
    let fleet = &snapshot.fleet;
    sums(families, fleet)?;
    events(families, tallies)?;
    families.durations(
        About(
            "exchange_duration",
            Some(Unit::Seconds),
            "Time from a request of this side until the peer's answer, with repetitions, by exchange.",
        ),
        Exchange::ALL.map(|e| ([("exchange", e.name())], snapshot.exchanges.of(e))),
    )?;
    let tunnels = || fleet.tunnels.iter();
    let children = || tunnels().flat_map(|t| t.children.iter().map(move |c| (t, c)));
    families.gauges(
        About("tunnel_up", None, "Whether the IKE SA of a phase 1 tunnel of the policy is up."),
        tunnels().map(|t| (of(t), u64::from(t.state.is_up()))),
    )?;
    families.gauges(
        About(
            "tunnel_state",
            None,
            "State of a phase 1 tunnel: 0 down, 1 negotiating, 2 established, 3 rekeying, 4 closing.",
        ),
        tunnels().map(|t| (of(t), t.state.number())),
    )?;
    families.counters(
        About("tunnel_rekeys", None, "Rekeys of the IKE SA."),
        tunnels().map(|t| (of(t), t.rekeys)),
    )?;
    families.gauges(
        About("child_up", None, "Whether the Child SA of a phase 2 tunnel of the policy is up."),
        children().map(|(t, c)| (of_child(t, c), u64::from(c.state.is_up()))),
    )?;
    families.gauges(
        About(
            "child_state",
            None,
            "State of a phase 2 tunnel: as of a phase 1 tunnel, or 5 blocked: a part of the data plane is missing.",
        ),
        children().map(|(t, c)| (of_child(t, c), c.state.number())),
    )?;
    families.counters(
        About("child_rekeys", None, "Rekeys of the Child SA."),
        children().map(|(t, c)| (of_child(t, c), c.counts.rekeys)),
    )?;
    families.counters(
        About(
            "child_packets",
            None,
            "Packets that the tunnel has protected (out) and accepted (in).",
        ),
        children().flat_map(|(t, c)| each_way(t, c, c.counts.packets)),
    )?;
    families.counters(
        About("child", Some(Unit::Bytes), "Octets of these packets, without those of ESP."),
        children().flat_map(|(t, c)| each_way(t, c, c.counts.octets)),
    )?;
    families.counters(
        About("child_refused_packets", None, "Packets that were refused on the SAs of the tunnel."),
        children().map(|(t, c)| (of_child(t, c), c.counts.refused)),
    )
}

/// Sums over all tunnels, also those without series of their own.
fn sums(families: &mut Families<'_>, fleet: &Fleet) -> fmt::Result {
    let states = (0..2).flat_map(|phase| State::ALL.into_iter().map(move |state| (phase, state)));
    families.gauges(
        About("tunnels", None, "Tunnels of the policy by phase and state."),
        states.map(|(phase, state)| {
            let labels = [("phase", PHASES[phase]), ("state", state.name())];
            (labels, fleet.states[phase][state.number()])
        }),
    )?;
    families.gauge(
        About(
            "tunnels_omitted",
            None,
            "Phase 1 and phase 2 tunnels without series of their own: there are more than the setting tunnels of [metrics].",
        ),
        fleet.omitted(),
    )?;
    families.counters(
        About("rekeys", None, "Rekeys of all IKE SAs (phase 1) and Child SAs (phase 2)."),
        PHASES.into_iter().zip([fleet.ike_rekeys, fleet.total.rekeys]).map(by_phase),
    )?;
    let ways = |counts: [u64; 2]| {
        DIRECTIONS.into_iter().zip(counts).map(|(way, count)| ([("direction", way)], count))
    };
    families.counters(
        About("packets", None, "Packets that all tunnels have protected (out) and accepted (in)."),
        ways(fleet.total.packets),
    )?;
    families.counters(
        About("traffic", Some(Unit::Bytes), "Octets of these packets, without those of ESP."),
        ways(fleet.total.octets),
    )?;
    families.counter(
        About("refused_packets", None, "Packets that were refused on SAs of tunnels."),
        fleet.total.refused,
    )
}

fn events(families: &mut Families<'_>, tallies: &Tallies) -> fmt::Result {
    families.counters(
        About("established", None, "Tunnels that came up, by phase."),
        PHASES.into_iter().zip(tallies.established).map(by_phase),
    )?;
    families.counters(
        About("closed", None, "Tunnels that went down, by phase."),
        PHASES.into_iter().zip(tallies.closed).map(by_phase),
    )?;
    families.counters(
        About("failures", None, "Failed negotiations by reason."),
        tallies.failures.iter().map(|(reason, count)| ([("reason", *reason)], *count)),
    )?;
    families.counters(
        About("turned_away", None, "Refused peers that had not proved their identity, by reason."),
        tallies.turned_away.iter().map(|(reason, count)| ([("reason", *reason)], *count)),
    )?;
    families.durations(
        About(
            "negotiation_duration",
            Some(Unit::Seconds),
            "Time from the first request of this side until an IKE SA (phase 1) or a Child SA (phase 2) was up.",
        ),
        PHASES.into_iter().zip(&tallies.negotiated).map(|(p, durations)| ([("phase", p)], durations)),
    )
}

fn by_phase((phase, count): (&'static str, u64)) -> ([(&'static str, &'static str); 1], u64) {
    ([("phase", phase)], count)
}

fn of(tunnel: &Tunnel) -> [(&'static str, &str); 1] {
    [("tunnel", &tunnel.name)]
}

fn of_child<'t>(tunnel: &'t Tunnel, child: &'t Child) -> [(&'static str, &'t str); 2] {
    [("tunnel", &tunnel.name), ("child", &child.name)]
}

fn each_way<'t>(
    tunnel: &'t Tunnel,
    child: &'t Child,
    counts: [u64; 2],
) -> impl Iterator<Item = ([(&'static str, &'t str); 3], u64)> {
    let [(t, tunnel), (c, child)] = of_child(tunnel, child);
    let line = move |(way, count)| ([(t, tunnel), (c, child), ("direction", way)], count);
    DIRECTIONS.into_iter().zip(counts).map(line)
}
