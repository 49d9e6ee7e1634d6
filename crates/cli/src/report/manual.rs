//! SAs that are keyed by hand, for people.

use super::fitting::Fitting;
use super::{Colour, bytes, count, plain};
use control::protocol::ManualSaInfo;

const HEADER: [&str; 13] = [
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
];

/// The columns of LOCAL and REMOTE, SUITE, SOURCE and DESTINATION, and the name.
const MOVABLE: &[&[usize]] = &[&[6, 7], &[12], &[3, 4], &[0]];

/// A line for each; nothing where there are none.
pub fn manual(sas: &[ManualSaInfo], colour: Colour) -> String {
    if sas.is_empty() {
        return String::new();
    }
    let mut table = Fitting::new(HEADER, MOVABLE);
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
