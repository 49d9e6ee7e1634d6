//! `[metrics]`.

use metrics::Address;
use serde::{Deserialize, Deserializer, de};

/// `[metrics]`: the endpoint for monitoring systems and browsers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// The place where it listens; `None`: nowhere.
    #[serde(deserialize_with = "place")]
    pub listen: Option<Address>,
    /// Names by which clients may call this host.
    pub hosts: Vec<String>,
    /// Whether browsers get a page there, too.
    pub page: bool,
    /// Phase 1 and phase 2 tunnels with series of their own.
    pub tunnels: usize,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { listen: None, hosts: Vec::new(), page: true, tunnels: 2000 }
    }
}

/// Reads a place, or `""`.
fn place<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Address>, D::Error> {
    let text = String::deserialize(deserializer)?;
    (!text.is_empty()).then(|| text.parse().map_err(de::Error::custom)).transpose()
}
