//! The daemon's process and the guard.

use super::Snapshot;
use crate::metric::{Metric, Value};
use control::protocol::{ConfinementInfo, GuardInfo};
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

pub const METRICS: &[Metric<Snapshot>] = &[
    Metric::info("vpnd_build_info", &["version"], "Version of the daemon.", |s, tell| {
        tell(&[&s.version], true.into());
    }),
    Metric::gauge(
        "vpnd_start_time_seconds",
        &[],
        "Start of the daemon, as Unix time.",
        |s, tell| {
            let started = s.started.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
            tell(&[], Value::Seconds(started.as_secs_f64()));
        },
    ),
    Metric::gauge(
        "vpnd_confined",
        &["process", "part"],
        "Whether a part of the confinement is in force for a process.",
        |s, tell| {
            for ((process, part), yes) in s.confinement.as_ref().map(parts).unwrap_or_default() {
                tell(&[process, part], yes.into());
            }
        },
    ),
    Metric::gauge(
        "vpnd_keys_exported",
        &[],
        "Whether the daemon writes the keys of all SAs to files.",
        |s, tell| tell(&[], s.keys_exported.into()),
    ),
];

pub const GUARD: &[Metric<GuardInfo>] = &[
    Metric::gauge(
        "vpnd_guard_in_force",
        &[],
        "Whether the guard blocks unprotected traffic.",
        |guard, tell| tell(&[], guard.in_force.into()),
    ),
    Metric::counter(
        "vpnd_guard_dropped_packets_total",
        &["direction"],
        "Packets of the tunnels' traffic that were to leave or arrived in the clear, dropped by the guard.",
        |guard, tell| {
            tell(&["out"], guard.unprotected_leaving.into());
            tell(&["in"], guard.unprotected_arriving.into());
        },
    ),
];

/// Whether a part is in force, by process and part. The daemon's own texts have remarks behind the names.
fn parts(confinement: &ConfinementInfo) -> BTreeMap<(&'static str, &str), bool> {
    /// The end of a text about the other process.
    const BESIDE: &str = "(beside nft)";
    let in_force = confinement.in_force.iter().map(|text| {
        let part = text.split_once(" (").map_or(text.as_str(), |(part, _)| part);
        (("vpnd", part), true)
    });
    let missing = confinement.missing.iter().map(|text| {
        let part = text.split_once(':').map_or(text.as_str(), |(part, _)| part);
        (if text.ends_with(BESIDE) { "nft" } else { "vpnd" }, part)
    });
    in_force.chain(missing.map(|part| (part, false))).collect()
}
