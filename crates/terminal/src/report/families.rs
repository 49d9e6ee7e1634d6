//! The output of `vpnctl family`.

use super::{Colour, Table, count, plain};
use control::protocol::FamiliesInfo;

/// The output of `vpnctl family`.
pub fn families(info: &FamiliesInfo, colour: Colour) -> String {
    let mut table = Table::new(["FAMILY", "IPSEC", "AFTER A RESTART", "TUNNELS OFF", "DROPPED"]);
    for family in &info.families {
        let state = match family.on {
            true => colour.good(on_or_off(true)),
            false => colour.bad(on_or_off(false)),
        };
        let later = on_or_off(family.persistent.unwrap_or(family.default)).to_owned();
        let off = match family.tunnels_off.as_slice() {
            [] => "-".to_owned(),
            names => plain(&names.join(", ")).into_owned(),
        };
        table.row([plain(&family.family).into_owned(), state, later, off, count(family.dropped)]);
    }
    table.render(colour)
}

fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}
