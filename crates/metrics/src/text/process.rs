//! The daemon's process, the guard and events that belong to no tunnel.

use super::Snapshot;
use super::families::{About, Families};
use crate::happenings::Tallies;
use control::protocol::ConfinementInfo;
use prometheus_client::registry::Unit;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

pub fn write(families: &mut Families<'_>, snapshot: &Snapshot, tallies: &Tallies) -> fmt::Result {
    families.facts(
        About("build", None, "Version of the daemon."),
        [[("version", snapshot.version.as_str())]],
    )?;
    let started = snapshot.started.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    families.gauge(
        About("start_time", Some(Unit::Seconds), "Start of the daemon, as Unix time."),
        started.as_secs_f64(),
    )?;
    let parts = snapshot.confinement.as_ref().map(parts).unwrap_or_default();
    families.gauges(
        About("confined", None, "Whether a part of the confinement is in force for a process."),
        parts.iter().map(|((process, part), yes)| {
            ([("process", *process), ("part", *part)], u64::from(*yes))
        }),
    )?;
    families.gauge(
        About("keys_exported", None, "Whether the daemon writes the keys of all SAs to files."),
        u64::from(snapshot.keys_exported),
    )?;
    if let Some(guard) = &snapshot.guard {
        families.gauge(
            About("guard_in_force", None, "Whether the guard blocks unprotected traffic."),
            u64::from(guard.in_force),
        )?;
        families.counters(
            About(
                "guard_dropped_packets",
                None,
                "Packets of the tunnels' traffic that were to leave or arrived in the clear, dropped by the guard.",
            ),
            [
                ([("direction", "out")], guard.unprotected_leaving),
                ([("direction", "in")], guard.unprotected_arriving),
            ],
        )?;
    }
    families.counter(
        About("events_missed", None, "Events that came faster than they were counted here."),
        tallies.missed,
    )
}

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
