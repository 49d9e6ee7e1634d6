//! `vpnctl counters`: how many packets and messages were discarded, and why.

use super::{Colour, Table, count, plain};
use std::collections::BTreeMap;

/// A sentence about each reason.
pub type Meanings = BTreeMap<String, String>;

fn meaning(meanings: &Meanings, reason: &str) -> String {
    plain(meanings.get(reason).map_or("-", String::as_str)).into_owned()
}

/// Discards by reason with their meanings, the most frequent first; with `all` also those that never happened.
pub fn counters(
    counters: &BTreeMap<String, u64>,
    meanings: &Meanings,
    all: bool,
    colour: Colour,
) -> String {
    let shown = counters.iter().filter(|(_, n)| all || **n > 0);
    let (kernel, own): (Vec<_>, Vec<_>) =
        shown.partition(|(reason, _)| reason.starts_with("xfrm."));
    if own.is_empty() && kernel.is_empty() {
        return "nothing was discarded\n".to_owned();
    }
    let mut text = String::new();
    // The kernel counts for the whole network namespace, also for SAs of other programs.
    for (title, mut rows) in [("DISCARDED", own), ("DROPPED BY THE KERNEL", kernel)] {
        if rows.is_empty() {
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        rows.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
        let mut table = Table::new([title, "REASON", "MEANING"]);
        for (reason, n) in rows {
            let meaning = meaning(meanings, reason);
            table.row([count(*n), plain(reason).into_owned(), meaning]);
        }
        text.push_str(&table.render(colour));
    }
    text
}

/// Discards of each tunnel.
pub fn tunnel_counters(
    tunnels: &BTreeMap<String, BTreeMap<String, u64>>,
    meanings: &Meanings,
    colour: Colour,
) -> String {
    let mut table = Table::new(["DISCARDED", "TUNNEL", "REASON", "MEANING"]);
    for (tunnel, reasons) in tunnels {
        for (reason, n) in reasons {
            let meaning = meaning(meanings, reason);
            let [tunnel, reason] = [tunnel, reason].map(|text| plain(text).into_owned());
            table.row([count(*n), tunnel, reason, meaning]);
        }
    }
    table.render(colour)
}
