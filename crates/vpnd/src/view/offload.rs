//! Network cards and the SAs in them.

use control::protocol::{CardInfo, FallbackInfo, OffloadInfo, PlacedInfo};
use xfrm::placement::{CardReport, Fallback, OffloadMode, Placed, Report};

/// Shows every card, every SA in the kernel, and refusals that no card is to blame for.
pub fn offload(report: &Report) -> OffloadInfo {
    OffloadInfo {
        devices: report.cards.iter().map(card).collect(),
        fallbacks: report.fallbacks.iter().map(fallback).collect(),
        sas: report.sas.iter().map(placed).collect(),
    }
}

fn card(card: &CardReport) -> CardInfo {
    let esp = match card.card.as_ref().and_then(|card| card.esp) {
        Some(true) => "on",
        Some(false) => "off",
        None => "none",
    };
    CardInfo {
        name: card.name.clone(),
        present: card.card.is_some(),
        esp_hw_offload: esp.to_owned(),
        esp_tx_csum_hw_offload: card.card.as_ref().is_some_and(|card| card.checksum),
        inbound: card.inside[0],
        outbound: card.inside[1],
        inbound_capacity: card.room[0],
        outbound_capacity: card.room[1],
        addresses: card.addresses,
        address_capacity: card.address_room,
        fallbacks: card.fallbacks.iter().map(fallback).collect(),
    }
}

fn fallback(fallback: &Fallback) -> FallbackInfo {
    FallbackInfo {
        wanted: fallback.place.name().to_owned(),
        reason: fallback.reason.name().to_owned(),
        message: fallback.reason.to_string(),
        count: fallback.count,
    }
}

/// Shows where an SA of the kernel plane is.
pub fn placed(placed: &Placed) -> PlacedInfo {
    let reason = placed.declined.last().map(|(_, reason)| reason.to_string());
    PlacedInfo {
        tunnel: placed.tunnel.clone(),
        direction: if placed.inbound { "in" } else { "out" }.to_owned(),
        spi: placed.spi.to_string(),
        place: placed.place.name().to_owned(),
        device: placed.card.clone(),
        reason: reason.filter(|_| placed.place == OffloadMode::Software),
    }
}
