//! The events that the daemon streams after [`Command::Events`](super::Command::Events).

use super::tunnel::FailureInfo;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// An event, or a note that events were missed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Happening {
    /// UTC, RFC 3339 with milliseconds.
    pub time: String,
    /// `negotiating`, `established`, `rekeyed`, `failed`, `turned_away`, `moved`, `closed`, `warning`, or `missed`.
    pub event: String,
    /// Phase 1 tunnel, or the peer's address where no tunnel is known; empty where something was missed.
    pub tunnel: String,
    /// Phase 2 tunnel, where it concerns one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<String>,
    /// The peer's address and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
    /// Algorithms agreed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
    /// The same, one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithms: Option<AlgorithmsInfo>,
    /// The failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureInfo>,
    /// The reason for the end of the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of events that were missed because they came faster than they were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
    /// For people, without tunnel and time.
    pub message: String,
}

impl Happening {
    /// Tells a slow reader how many events it has missed; the time is one of [`Happening::time`].
    pub fn missed(time: String, count: u64) -> Self {
        Self {
            time,
            event: "missed".to_owned(),
            tunnel: String::new(),
            child: None,
            peer: None,
            suite: None,
            algorithms: None,
            failure: None,
            reason: None,
            missed: Some(count),
            message: format!("{count} events missed: they came faster than they were read"),
        }
    }

    /// Returns `true` if the event concerns one of these tunnels; without names, it always does.
    pub fn concerns(&self, names: &[String]) -> bool {
        self.missed.is_some()
            || names.is_empty()
            || names.iter().any(|name| *name == self.tunnel || self.child.as_ref() == Some(name))
    }
}

/// The algorithms that both sides have agreed on, and the Child SA that has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlgorithmsInfo {
    /// `ike`, `esp` or `ah`.
    pub protocol: String,
    /// The cipher; absent with AH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<String>,
    /// The integrity algorithm; absent if the cipher is an AEAD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integrity: Option<String>,
    /// The pseudorandom function, of an IKE SA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prf: Option<String>,
    /// The group of the key exchange; absent if a Child SA has no key exchange of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Of a Child SA: whether sequence numbers have 64 bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub esn: Option<bool>,
    /// Of a Child SA: `transport` or `tunnel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Of a Child SA: SPI of the packets that this side receives, 8 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbound_spi: Option<String>,
    /// Of a Child SA: SPI of the packets that this side sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outbound_spi: Option<String>,
}
