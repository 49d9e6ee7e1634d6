//! Cryptographic work, and who does it.

use super::Snapshot;
use crate::metric::Metric;
use control::protocol::{Amount, FunctionWork};

const WORK: &[&str] = &["user", "function", "operation", "place"];

pub const METRICS: &[Metric<Snapshot>] = &[
    Metric::info(
        "vpnd_crypto_provider_info",
        &["function", "provider", "place"],
        "Provider of each cryptographic function of ESP.",
        |s, tell| {
            for served in &s.crypto.functions {
                tell(&[&served.function, &served.provider, &served.place], true.into());
            }
        },
    ),
    Metric::counter(
        "vpnd_crypto_operations_total",
        WORK,
        "Cryptographic operations; with ESP these are packets.",
        |s, tell| {
            for (labels, amount) in s.crypto_work.rows.iter().flat_map(amounts) {
                tell(&labels, amount.operations.into());
            }
        },
    ),
    Metric::counter("vpnd_crypto_bytes_total", WORK, "Octets of these packets.", |s, tell| {
        for (labels, amount) in s.crypto_work.rows.iter().flat_map(amounts) {
            if let Some(octets) = amount.octets {
                tell(&labels, octets.into());
            }
        }
    }),
];

/// The work in each place where something was done, with the values of its labels.
fn amounts(row: &FunctionWork) -> impl Iterator<Item = ([&str; 4], Amount)> {
    let places = [
        ("hardware", row.hardware),
        ("software", row.software),
        ("kernel", row.kernel),
        ("nic", row.nic),
    ];
    places
        .into_iter()
        .filter(|(_, amount)| amount.operations > 0)
        .map(|(place, amount)| ([&*row.user, &*row.function, &*row.operation, place], amount))
}
