//! The output of `vpnctl family`, and the remark about a family that is off.

use super::{Colour, Table, count, plain};
use control::protocol::{FamiliesInfo, FamilyInfo};

/// The sentence about a family that is off; `None`: it is on.
pub fn remark(info: &FamilyInfo) -> Option<String> {
    let family = match info.family.as_str() {
        "ipv4" => "IPv4",
        "ipv6" => "IPv6",
        _ => return None,
    };
    let tunnels = match info.tunnels_off.as_slice() {
        [] => "no phase 2 tunnel needs it".to_owned(),
        [one] => format!("tunnel {one} stays down, and its traffic is blocked"),
        more => format!("{} phase 2 tunnels stay down, and their traffic is blocked", more.len()),
    };
    let command = format!("vpnctl family {} on", info.family);
    (!info.on).then(|| format!("IPsec of {family} is off: {tunnels}; to switch it on: {command}"))
}

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
