//! The metrics of a gateway in one table: name, labels, meaning, and the place that the numbers come from. Two readers
//! have them: `vpnd`'s page for monitoring systems ([`Snapshot`](crate::Snapshot)), and the recorder of a program that
//! embeds a gateway (`vpn::Gateway::record_metrics`).

use crate::fleet::{Child, Fleet, Tunnel};
use crate::happenings::{PHASES, Tallies};
use crate::metric::{Metric, Tell, Value};
use ike::durations::{Exchange, ExchangeDurations};
use ike::status::State;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The numbers of a gateway at one time.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    /// The tunnels.
    pub fleet: Arc<Fleet>,
    /// The counts of events.
    pub tallies: Tallies,
    /// The times from requests of this side to the peers' answers.
    pub exchanges: ExchangeDurations,
    /// Discarded messages and packets, by the layer (`ike.`, `esp.` or `xfrm.`) and the reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets that no SA served, by phase 2 tunnel.
    pub unserved: BTreeMap<String, u64>,
}

impl Numbers {
    /// Forgets the packets of phase 2 tunnels that the fleet lacks: a plane that gets such a tunnel again counts from 0.
    pub fn forget_unserved_of_others(&mut self) {
        let Self { fleet, unserved, .. } = self;
        let here: BTreeSet<&str> = of_fleet(fleet).map(|(_, child)| child.name.as_str()).collect();
        unserved.retain(|child, _| here.contains(child.as_str()));
    }
}

/// The directions of packets, in the order of counts.
const DIRECTIONS: [&str; 2] = ["in", "out"];

const PHASE: &[&str] = &["phase"];
const REASON: &[&str] = &["reason"];
const DIRECTION: &[&str] = &["direction"];
const TUNNEL: &[&str] = &["tunnel"];
const CHILD: &[&str] = &["tunnel", "child"];
const CHILD_DIRECTION: &[&str] = &["tunnel", "child", "direction"];

/// The histogram of the durations that [`Happenings::see`](crate::Happenings::see) returns. A recorder takes them one by
/// one.
pub const NEGOTIATION_DURATION: &str = "vpnd_negotiation_duration_seconds";

/// All metrics of a gateway, in the order of the page. `docs/operate/metrics.md` explains them for administrators.
pub const METRICS: &[Metric<Numbers>] = &[
    Metric::counter(
        "vpnd_events_missed_total",
        &[],
        "Events that came faster than they were counted here.",
        |n, tell| tell(&[], n.tallies.missed.into()),
    ),
    // The sums count all tunnels, also those without series of their own.
    Metric::of_page_only(Metric::gauge(
        "vpnd_tunnels",
        &["phase", "state"],
        "Tunnels of the policy by phase and state.",
        |n, tell| {
            for (phase, counts) in PHASES.into_iter().zip(n.fleet.states) {
                for (state, count) in State::ALL.into_iter().zip(counts) {
                    tell(&[phase, state.name()], count.into());
                }
            }
        },
    )),
    Metric::of_page_only(Metric::gauge(
        "vpnd_tunnels_omitted",
        &[],
        "Phase 1 and phase 2 tunnels without series of their own: there are more than the setting tunnels of [metrics].",
        |n, tell| tell(&[], n.fleet.omitted().into()),
    )),
    Metric::counter(
        "vpnd_rekeys_total",
        PHASE,
        "Rekeys of all IKE SAs (phase 1) and Child SAs (phase 2).",
        |n, tell| each(PHASES, [n.fleet.ike_rekeys, n.fleet.total.rekeys()], tell),
    ),
    Metric::counter(
        "vpnd_packets_total",
        DIRECTION,
        "Packets that all tunnels have protected (out) and accepted (in).",
        |n, tell| each(DIRECTIONS, n.fleet.total.packets(), tell),
    ),
    Metric::counter(
        "vpnd_traffic_bytes_total",
        DIRECTION,
        "Octets of these packets, without those of ESP.",
        |n, tell| each(DIRECTIONS, n.fleet.total.octets(), tell),
    ),
    Metric::counter(
        "vpnd_refused_packets_total",
        &[],
        "Packets that were refused on SAs of tunnels.",
        |n, tell| tell(&[], n.fleet.total.refused().into()),
    ),
    Metric::counter(
        "vpnd_established_total",
        PHASE,
        "Tunnels that came up, by phase.",
        |n, tell| each(PHASES, n.tallies.established, tell),
    ),
    Metric::counter(
        "vpnd_resumed_total",
        &[],
        "IKE SAs that came up by a ticket, without a full handshake.",
        |n, tell| tell(&[], n.tallies.resumed.into()),
    ),
    Metric::counter("vpnd_closed_total", PHASE, "Tunnels that went down, by phase.", |n, tell| {
        each(PHASES, n.tallies.closed, tell);
    }),
    Metric::counter("vpnd_failures_total", REASON, "Failed negotiations by reason.", |n, tell| {
        for (reason, count) in &n.tallies.failures {
            tell(&[reason], (*count).into());
        }
    }),
    Metric::counter(
        "vpnd_turned_away_total",
        REASON,
        "Refused peers that had not proved their identity, by reason.",
        |n, tell| {
            for (reason, count) in &n.tallies.turned_away {
                tell(&[reason], (*count).into());
            }
        },
    ),
    Metric::histogram(
        NEGOTIATION_DURATION,
        PHASE,
        "Time from the first request of this side until an IKE SA (phase 1) or a Child SA (phase 2) was up.",
        |n, tell| {
            for (phase, durations) in PHASES.into_iter().zip(&n.tallies.negotiated) {
                tell(&[phase], Value::Durations(durations));
            }
        },
    ),
    // The engine counts these in buckets, and a recorder takes single durations.
    Metric::of_page_only(Metric::histogram(
        "vpnd_exchange_duration_seconds",
        &["exchange"],
        "Time from a request of this side until the peer's answer, with repetitions, by exchange.",
        |n, tell| {
            for exchange in Exchange::ALL {
                tell(&[exchange.name()], Value::Durations(n.exchanges.of(exchange)));
            }
        },
    )),
    Metric::gauge(
        "vpnd_tunnel_up",
        TUNNEL,
        "Whether the IKE SA of a phase 1 tunnel of the policy is up.",
        |n, tell| each_tunnel(n, |t| u64::from(t.state.is_up()), tell),
    ),
    Metric::gauge(
        "vpnd_tunnel_state",
        TUNNEL,
        "State of a phase 1 tunnel: 0 down, 1 negotiating, 2 established, 3 rekeying, 4 closing.",
        |n, tell| each_tunnel(n, |t| t.state.number() as u64, tell),
    ),
    Metric::counter("vpnd_tunnel_rekeys_total", TUNNEL, "Rekeys of the IKE SA.", |n, tell| {
        each_tunnel(n, |t| t.rekeys, tell);
    }),
    Metric::gauge(
        "vpnd_child_up",
        CHILD,
        "Whether the Child SA of a phase 2 tunnel of the policy is up.",
        |n, tell| each_child(n, |c| u64::from(c.state.is_up()), tell),
    ),
    Metric::gauge(
        "vpnd_child_state",
        CHILD,
        "State of a phase 2 tunnel: as of a phase 1 tunnel, or 5 blocked: a part of the data plane is missing.",
        |n, tell| each_child(n, |c| c.state.number() as u64, tell),
    ),
    Metric::counter("vpnd_child_rekeys_total", CHILD, "Rekeys of the Child SA.", |n, tell| {
        each_child(n, |c| c.counts.rekeys(), tell);
    }),
    Metric::counter(
        "vpnd_child_packets_total",
        CHILD_DIRECTION,
        "Packets that the tunnel has protected (out) and accepted (in).",
        |n, tell| each_child_and_direction(n, |c| c.counts.packets(), tell),
    ),
    Metric::counter(
        "vpnd_child_bytes_total",
        CHILD_DIRECTION,
        "Octets of these packets, without those of ESP.",
        |n, tell| each_child_and_direction(n, |c| c.counts.octets(), tell),
    ),
    Metric::counter(
        "vpnd_child_refused_packets_total",
        CHILD,
        "Packets that were refused on the SAs of the tunnel.",
        |n, tell| each_child(n, |c| c.counts.refused(), tell),
    ),
    Metric::counter(
        "vpnd_ike_discarded_messages_total",
        REASON,
        "Discarded IKE messages by reason.",
        |n, tell| {
            for (_, reason, count) in dropped(n).filter(|(layer, ..)| *layer == "ike") {
                tell(&[reason], count.into());
            }
        },
    ),
    Metric::counter(
        "vpnd_dropped_packets_total",
        &["layer", "reason"],
        "Packets that the planes have dropped, by plane (esp: userspace, xfrm: the kernel) and reason.",
        |n, tell| {
            for (layer, reason, count) in dropped(n).filter(|(layer, ..)| *layer != "ike") {
                tell(&[layer, reason], count.into());
            }
        },
    ),
    Metric::counter(
        "vpnd_child_unserved_packets_total",
        CHILD,
        "Packets of a phase 2 tunnel that were dropped because no SA served them; tunnels without such are absent.",
        |n, tell| {
            for (tunnel, child) in children(n) {
                if let Some(count) = n.unserved.get(&child.name) {
                    tell(&[&tunnel.name, &child.name], (*count).into());
                }
            }
        },
    ),
];

/// A series for each value of the only label.
fn each(labels: [&str; 2], counts: [u64; 2], tell: &mut Tell<'_>) {
    for (label, count) in labels.into_iter().zip(counts) {
        tell(&[label], count.into());
    }
}

fn each_tunnel(numbers: &Numbers, value: fn(&Tunnel) -> u64, tell: &mut Tell<'_>) {
    for tunnel in &numbers.fleet.tunnels {
        tell(&[&tunnel.name], value(tunnel).into());
    }
}

fn each_child(numbers: &Numbers, value: fn(&Child) -> u64, tell: &mut Tell<'_>) {
    for (tunnel, child) in children(numbers) {
        tell(&[&tunnel.name, &child.name], value(child).into());
    }
}

/// A series for each phase 2 tunnel and direction. `values` has the one received first.
fn each_child_and_direction(
    numbers: &Numbers,
    values: fn(&Child) -> [u64; 2],
    tell: &mut Tell<'_>,
) {
    for (tunnel, child) in children(numbers) {
        for (direction, value) in DIRECTIONS.into_iter().zip(values(child)) {
            tell(&[&tunnel.name, &child.name, direction], value.into());
        }
    }
}

/// The phase 2 tunnels with series of their own, and the phase 1 tunnels that carry them.
fn children(numbers: &Numbers) -> impl Iterator<Item = (&Tunnel, &Child)> {
    of_fleet(&numbers.fleet)
}

fn of_fleet(fleet: &Fleet) -> impl Iterator<Item = (&Tunnel, &Child)> {
    fleet.tunnels.iter().flat_map(|t| t.children.iter().chain(&t.asked_for).map(move |c| (t, c)))
}

/// The layer, the reason and the count of what was discarded.
fn dropped(numbers: &Numbers) -> impl Iterator<Item = (&str, &str, u64)> {
    numbers.dropped.iter().filter_map(|(name, count)| {
        let (layer, reason) = name.split_once('.')?;
        Some((layer, reason, *count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Kind;
    use std::collections::BTreeSet;

    #[test]
    fn names_have_the_suffix_of_their_kind() {
        for Metric { name, kind, .. } in METRICS {
            assert!(name.starts_with("vpnd_"), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            assert_eq!(name.ends_with("_info"), *kind == Kind::Info, "{name}");
        }
        let names: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
    }

    #[test]
    fn the_document_tells_which_metrics_no_recorder_has() {
        let document = include_str!("../../../docs/operate/metrics.md");
        let paragraph = document
            .split("\n\n")
            .find(|paragraph| paragraph.starts_with("A program that embeds the gateway"))
            .expect("a paragraph about other programs");
        let named: BTreeSet<&str> =
            paragraph.split('`').filter(|word| word.starts_with("vpnd_")).collect();
        let page_only = METRICS.iter().filter(|metric| metric.page_only);
        assert_eq!(named, page_only.map(|metric| metric.name).collect());
    }
}
