//! Cryptographic work, and who does it.

use super::families::{About, Families, Labels};
use control::protocol::{Amount, CryptoState, CryptoStats, FunctionWork};
use prometheus_client::registry::Unit;
use std::fmt;

pub fn write(families: &mut Families<'_>, state: &CryptoState, work: &CryptoStats) -> fmt::Result {
    families.facts(
        About("crypto_provider", None, "Provider of each cryptographic function of ESP."),
        state.functions.iter().map(|served| {
            [
                ("function", served.function.as_str()),
                ("provider", served.provider.as_str()),
                ("place", served.place.as_str()),
            ]
        }),
    )?;
    let amounts = || work.rows.iter().flat_map(amounts);
    families.counters(
        About("crypto_operations", None, "Cryptographic operations; with ESP these are packets."),
        amounts().map(|(labels, amount)| (labels, amount.operations)),
    )?;
    families.counters(
        About("crypto", Some(Unit::Bytes), "Octets of these packets."),
        amounts().filter_map(|(labels, amount)| Some((labels, amount.octets?))),
    )
}

/// The places in which something was done.
fn amounts(row: &FunctionWork) -> impl Iterator<Item = (Labels<'_, 4>, Amount)> {
    let places = [
        ("hardware", row.hardware),
        ("software", row.software),
        ("kernel", row.kernel),
        ("nic", row.nic),
    ];
    places.into_iter().filter(|(_, amount)| amount.operations > 0).map(|(place, amount)| {
        let labels = [
            ("user", row.user.as_str()),
            ("function", row.function.as_str()),
            ("operation", row.operation.as_str()),
            ("place", place),
        ];
        (labels, amount)
    })
}
