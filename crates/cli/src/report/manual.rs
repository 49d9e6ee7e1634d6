//! SAs that are keyed by hand, for people.

use super::{Colour, Table, bytes, count, plain};
use control::protocol::ManualSaInfo;

/// A line for each; nothing where there are none.
pub fn manual(sas: &[ManualSaInfo], colour: Colour) -> String {
    if sas.is_empty() {
        return String::new();
    }
    let mut table = Table::new([
        "BY HAND",
        "WAY",
        "SPI",
        "SOURCE",
        "DESTINATION",
        "MODE",
        "LOCAL",
        "REMOTE",
        "PACKETS",
        "BYTES",
        "REFUSED",
        "SEQUENCE",
        "SUITE",
    ]);
    for sa in sas {
        let esn = if sa.esn { "/ESN" } else { "" };
        table.row([
            plain(&sa.name).into_owned(),
            sa.direction.clone(),
            sa.spi.clone(),
            sa.source.to_string(),
            sa.destination.to_string(),
            sa.mode.clone(),
            sa.local.join(","),
            sa.remote.join(","),
            count(sa.packets),
            bytes(sa.bytes),
            count(sa.refused),
            sa.sequence.map_or("-".to_owned(), count),
            format!("{}{esn}", plain(&sa.suite)),
        ]);
    }
    table.render(colour)
}
