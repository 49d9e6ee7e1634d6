//! `vpnctl counters`: how many packets and messages were discarded, and why.

use super::{Colour, Table, count, plain};

/// Discards by reason with what they mean, the most frequent first; with `all` also those that never happened.
pub fn counters(
    counters: &std::collections::BTreeMap<String, u64>,
    all: bool,
    colour: Colour,
) -> String {
    let shown = counters.iter().filter(|(_, n)| all || **n > 0);
    let (mut kernel, mut own): (Vec<_>, Vec<_>) =
        shown.partition(|(reason, _)| reason.starts_with("xfrm."));
    if own.is_empty() && kernel.is_empty() {
        return "nothing was discarded\n".to_owned();
    }
    let mut text = String::new();
    let mut section = |title: &'static str, rows: &mut Vec<(&String, &u64)>| {
        if rows.is_empty() {
            return;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        rows.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
        let mut table = Table::new([title, "REASON", "MEANING"]);
        for (reason, n) in rows {
            let meaning = crate::counters::explanation(reason).unwrap_or("-").to_owned();
            table.row([count(**n), plain(reason).into_owned(), meaning]);
        }
        text.push_str(&table.render(colour));
    };
    section("DISCARDED", &mut own);
    // Of the whole network namespace, whoever's the SAs are.
    section("DROPPED BY THE KERNEL", &mut kernel);
    text
}

/// Discards of each tunnel.
pub fn tunnel_counters(
    tunnels: &std::collections::BTreeMap<String, std::collections::BTreeMap<String, u64>>,
    colour: Colour,
) -> String {
    let mut table = Table::new(["DISCARDED", "TUNNEL", "REASON", "MEANING"]);
    for (tunnel, reasons) in tunnels {
        for (reason, n) in reasons {
            let meaning = crate::counters::explanation(reason).unwrap_or("-").to_owned();
            let [tunnel, reason] = [tunnel, reason].map(|text| plain(text).into_owned());
            table.row([count(*n), tunnel, reason, meaning]);
        }
    }
    table.render(colour)
}
