//! The output of `vpnctl family`.

use super::{Colour, Table, count, plain};
use control::protocol::FamiliesInfo;

/// The output of `vpnctl family`.
pub fn families(info: &FamiliesInfo, colour: Colour) -> String {
    let mut table = Table::new(["FAMILY", "IPSEC", "AFTER A RESTART", "TUNNELS OFF", "DROPPED"]);
    let word = |on: bool| if on { "on" } else { "off" };
    for family in &info.families {
        let state = match family.on {
            true => colour.good(word(true)),
            false => colour.bad(word(false)),
        };
        let later = word(family.persistent.unwrap_or(family.default)).to_owned();
        let off = match family.tunnels_off.as_slice() {
            [] => "-".to_owned(),
            names => plain(&names.join(", ")).into_owned(),
        };
        table.row([plain(&family.family).into_owned(), state, later, off, count(family.dropped)]);
    }
    table.render(colour)
}
