//! Network cards and the SAs in them, for people.

use super::{Colour, Table, count, plain};
use control::protocol::{OffloadInfo, PlacedInfo, ResyncInfo};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// A line for each card, a line for each missing capability, and with `sas` a line for each SA.
pub fn offload(info: &OffloadInfo, sas: bool, colour: Colour) -> String {
    let mut text = String::new();
    if info.devices.is_empty() {
        text.push_str(
            "no network card is wanted or was tried (offload in vpnd.toml says what is wanted)\n",
        );
    } else {
        let mut table =
            Table::new(["DEVICE", "ESP-HW-OFFLOAD", "TX CHECKSUMS", "IN", "OUT", "ADDRESSES"]);
        for card in &info.devices {
            let esp = match (card.present, card.esp_hw_offload.as_str()) {
                (false, _) => colour.bad("gone"),
                (true, "on") => colour.good("on"),
                (true, other) => plain(other).into_owned(),
            };
            let checksums = if card.esp_tx_csum_hw_offload { "on" } else { "-" };
            table.row([
                plain(&card.name).into_owned(),
                esp,
                checksums.to_owned(),
                inside(card.inbound, card.inbound_capacity),
                inside(card.outbound, card.outbound_capacity),
                inside(card.addresses, card.address_capacity),
            ]);
        }
        text.push_str(&table.render(colour));
    }
    let _ = writeln!(text, "\n{}", summary(info));
    fallbacks(&mut text, info, colour);
    if sas && !info.sas.is_empty() {
        let mut table = Table::new(["TUNNEL", "WAY", "SPI", "PLACE", "DEVICE", "REASON"]);
        for sa in &info.sas {
            table.row([
                plain(&sa.tunnel).into_owned(),
                sa.direction.clone(),
                sa.spi.clone(),
                sa.place.clone(),
                sa.device.as_deref().map_or("-".into(), plain).into_owned(),
                sa.reason.as_deref().map_or("".into(), plain).into_owned(),
            ]);
        }
        let _ = write!(text, "\n{}", table.render(colour));
    }
    text
}

/// The kernel's SAs, counted by place (card or software) and direction, on one line.
pub fn summary(info: &OffloadInfo) -> String {
    let places = ["packet", "crypto", "software"];
    let parts = places.map(|place| {
        let [inbound, outbound] = ["in", "out"].map(|way| {
            let there = info.sas.iter().filter(|sa| sa.place == place && sa.direction == way);
            there.count() as u64
        });
        (inbound + outbound > 0)
            .then(|| format!("{place} {} in, {} out", count(inbound), count(outbound)))
    });
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => "the kernel has no SA".to_owned(),
        false => format!("SAs in the kernel: {}", parts.join("; ")),
    }
}

/// The reasons why SAs are not offloaded although the configuration wants it: a line for each card and reason.
pub fn not_offloaded(info: &OffloadInfo) -> Vec<String> {
    let mut reasons: BTreeMap<_, (u64, BTreeSet<&str>)> = BTreeMap::new();
    for sa in &info.sas {
        if let Some(reason) = &sa.reason {
            let (sas, tunnels) = reasons.entry((&sa.device, reason)).or_default();
            *sas += 1;
            tunnels.insert(&sa.tunnel);
        }
    }
    let mut lines = Vec::new();
    for ((device, reason), (sas, tunnels)) in reasons {
        let card = device.as_deref().unwrap_or("a card");
        let first = tunnels.first().copied().unwrap_or_default();
        let whose = match tunnels.len() {
            0 | 1 => first.to_owned(),
            2 => format!("{first} and one more tunnel"),
            n => format!("{first} and {} more tunnels", count(n as u64 - 1)),
        };
        let sas = number(sas, "SA", "SAs");
        lines.push(format!("{sas} not in {card}: {reason} ({whose})"));
    }
    lines
}

/// The places of the two SAs of a tunnel; `None` if the kernel has neither.
pub(super) fn place(placed: &[PlacedInfo]) -> Option<String> {
    let places: Vec<String> = placed.iter().map(place_of).collect();
    match &places[..] {
        [] => None,
        [first, rest @ ..] if rest.iter().all(|place| place == first) => Some(first.clone()),
        _ => {
            let ways =
                placed.iter().zip(&places).map(|(sa, place)| format!("{}: {place}", sa.direction));
            Some(ways.collect::<Vec<_>>().join("; "))
        }
    }
}

fn place_of(sa: &PlacedInfo) -> String {
    let card = sa.device.as_deref().map(plain).unwrap_or_default();
    match (sa.place.as_str(), &sa.reason) {
        ("packet", _) => format!("card {card} does everything"),
        ("crypto", _) => format!("kernel, cryptography by card {card}"),
        (_, Some(reason)) if card.is_empty() => format!("kernel: {}", plain(reason)),
        (_, Some(reason)) => format!("kernel, not card {card}: {}", plain(reason)),
        _ => "kernel".to_owned(),
    }
}

/// The repairs of a resynchronisation.
pub fn resynced(done: &ResyncInfo) -> String {
    let ResyncInfo { sas, policies, moved } = *done;
    let back = [some(sas, "SA", "SAs"), some(policies, "policy", "policies")];
    let back: Vec<String> = back.into_iter().flatten().collect();
    let back = (!back.is_empty()).then(|| format!("put back into the kernel: {}", back.join(", ")));
    let moved =
        some(moved, "SA", "SAs").map(|n| format!("moved into a network card or out of one: {n}"));
    let lines: Vec<String> = back.into_iter().chain(moved).collect();
    match lines.is_empty() {
        true => "nothing was missing in the kernel, and no SA has moved".to_owned(),
        false => lines.join("\n"),
    }
}

/// The number with its noun, unless it is 0.
fn some(n: usize, one: &str, many: &str) -> Option<String> {
    (n > 0).then(|| number(n as u64, one, many))
}

pub(super) fn number(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

fn inside(sas: usize, capacity: Option<usize>) -> String {
    match capacity {
        Some(capacity) => format!("{} of {}", count(sas as u64), count(capacity as u64)),
        None => count(sas as u64),
    }
}

fn fallbacks(text: &mut String, info: &OffloadInfo, colour: Colour) {
    let of_cards = info.devices.iter().flat_map(|card| {
        card.fallbacks.iter().map(|fallback| (card.name.clone(), fallback.clone()))
    });
    let cardless = info.fallbacks.iter().map(|f| ("-".to_owned(), f.clone()));
    let all: Vec<_> = of_cards.chain(cardless).collect();
    if all.is_empty() {
        return;
    }
    let mut table = Table::new(["NOT AVAILABLE", "DEVICE", "TIMES", "REASON"]);
    for (device, fallback) in all {
        table.row([
            fallback.wanted.clone(),
            plain(&device).into_owned(),
            count(fallback.count),
            plain(&fallback.message).into_owned(),
        ]);
    }
    let _ = write!(text, "\n{}", table.render(colour));
}
