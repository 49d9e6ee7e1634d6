//! Network cards and the SAs in them, as the control protocol tells of them.

use esp::placement::{CardReport, Fallback, Place, Placed, Report};
use serde::{Deserialize, Serialize};

/// Everything about offload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffloadInfo {
    /// Cards that are wanted or have been tried, by name.
    pub devices: Vec<CardInfo>,
    /// What was wanted and no card can be blamed for.
    pub fallbacks: Vec<FallbackInfo>,
    /// Every SA of the kernel plane.
    pub sas: Vec<PlacedInfo>,
}

/// A network card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardInfo {
    /// As in `eth4`.
    pub name: String,
    /// Whether it is there.
    pub present: bool,
    /// Its `esp-hw-offload`: `on`, `off` or `none`.
    pub esp_hw_offload: String,
    /// Whether it fills in the checksums of what it encrypts.
    pub esp_tx_csum_hw_offload: bool,
    /// SAs in it that receive.
    pub inbound: usize,
    /// SAs in it that send.
    pub outbound: usize,
    /// For how many that receive it had room when one more was refused; `null`: unknown.
    pub inbound_capacity: Option<usize>,
    /// The same of those that send.
    pub outbound_capacity: Option<usize>,
    /// What it did not take.
    pub fallbacks: Vec<FallbackInfo>,
}

/// How often something was not to be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FallbackInfo {
    /// `packet` or `crypto`.
    pub wanted: String,
    /// Stable name: `no_route`, `no_card`, `no_feature`, `feature_off`, `unsupported`, `full`, `ignored`, `refused` or
    /// `gone`.
    pub reason: String,
    /// For people, of the last time.
    pub message: String,
    /// How often since the start.
    pub count: u64,
}

/// Where an SA is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedInfo {
    /// Phase 2 tunnel, or name of an SA that is keyed by hand.
    pub tunnel: String,
    /// `in` or `out`.
    pub direction: String,
    /// Eight hexadecimal digits.
    pub spi: String,
    /// `packet`, `crypto` or `software`, as read back from the kernel.
    pub place: String,
    /// The card that it is in, or that did not take it.
    pub device: Option<String>,
    /// Why it is nowhere better; `null` where it is where it was wanted.
    pub reason: Option<String>,
}

/// What [`Command::Resync`](super::Command::Resync) has put right.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResyncInfo {
    /// SAs that were missing in the kernel.
    pub sas: usize,
    /// Policies that were missing.
    pub policies: usize,
    /// SAs that have gone into a card or out of one.
    pub moved: usize,
}

impl From<&Report> for OffloadInfo {
    fn from(report: &Report) -> Self {
        Self {
            devices: report.cards.iter().map(CardInfo::from).collect(),
            fallbacks: report.fallbacks.iter().map(FallbackInfo::from).collect(),
            sas: report.sas.iter().map(PlacedInfo::from).collect(),
        }
    }
}

impl From<&CardReport> for CardInfo {
    fn from(card: &CardReport) -> Self {
        let esp = match card.card.as_ref().and_then(|card| card.esp) {
            Some(true) => "on",
            Some(false) => "off",
            None => "none",
        };
        Self {
            name: card.name.clone(),
            present: card.card.is_some(),
            esp_hw_offload: esp.to_owned(),
            esp_tx_csum_hw_offload: card.card.as_ref().is_some_and(|card| card.checksum),
            inbound: card.inside[0],
            outbound: card.inside[1],
            inbound_capacity: card.room[0],
            outbound_capacity: card.room[1],
            fallbacks: card.fallbacks.iter().map(FallbackInfo::from).collect(),
        }
    }
}

impl From<&Fallback> for FallbackInfo {
    fn from(fallback: &Fallback) -> Self {
        Self {
            wanted: fallback.place.name().to_owned(),
            reason: fallback.reason.name().to_owned(),
            message: fallback.reason.to_string(),
            count: fallback.count,
        }
    }
}

impl From<&Placed> for PlacedInfo {
    fn from(placed: &Placed) -> Self {
        let reason = placed.declined.last().map(|(_, reason)| reason.to_string());
        Self {
            tunnel: placed.tunnel.clone(),
            direction: if placed.inbound { "in" } else { "out" }.to_owned(),
            spi: placed.spi.to_string(),
            place: placed.place.name().to_owned(),
            device: placed.card.clone(),
            reason: reason.filter(|_| placed.place == Place::Software),
        }
    }
}
