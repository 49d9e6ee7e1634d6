//! Network cards and the SAs in them, as the control protocol tells of them.

use serde::{Deserialize, Serialize};

/// Everything about offload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffloadInfo {
    /// Cards that are wanted or have been tried, by name.
    pub devices: Vec<CardInfo>,
    /// Fallbacks for which no card is the reason.
    pub fallbacks: Vec<FallbackInfo>,
    /// Every SA of the kernel plane.
    pub sas: Vec<PlacedInfo>,
}

/// A network card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardInfo {
    /// As in `eth4`.
    pub name: String,
    /// True if it is there.
    pub present: bool,
    /// Its `esp-hw-offload`: `on`, `off` or `none`.
    pub esp_hw_offload: String,
    /// True if it fills in the checksums of what it encrypts.
    pub esp_tx_csum_hw_offload: bool,
    /// SAs in it that receive.
    pub inbound: usize,
    /// SAs in it that send.
    pub outbound: usize,
    /// For how many that receive it had room when one more was refused; `null`: unknown.
    pub inbound_capacity: Option<usize>,
    /// The same of those that send.
    pub outbound_capacity: Option<usize>,
    /// Addresses to which the SAs in it receive.
    #[serde(default)]
    pub addresses: usize,
    /// For how many addresses it had room when one more was refused; `null`: unknown.
    #[serde(default)]
    pub address_capacity: Option<usize>,
    /// SAs that it did not take, by reason.
    pub fallbacks: Vec<FallbackInfo>,
}

/// A kind of offload that SAs did not get, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FallbackInfo {
    /// `packet` or `crypto`.
    pub wanted: String,
    /// Stable name: `no_route`, `no_card`, `no_feature`, `feature_off`, `unsupported`, `full`, `addresses_full`,
    /// `ignored`, `refused` or `gone`.
    pub reason: String,
    /// For people, of the last time.
    pub message: String,
    /// Number of times since the start.
    pub count: u64,
}

/// The location of an SA.
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
    /// The reason why it is not in the wanted location; `null` if it is.
    pub reason: Option<String>,
}

/// The repairs of [`Command::Resync`](super::Command::Resync).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResyncInfo {
    /// SAs that were missing in the kernel.
    pub sas: usize,
    /// Policies that were missing.
    pub policies: usize,
    /// SAs that have gone into a card or out of one.
    pub moved: usize,
}
