//! `[traces]`.

use serde::{Deserialize, Deserializer, de};
use traces::Endpoint;

/// `[traces]`: where spans of negotiations go.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Traces {
    /// The place of the collector; `None`: no spans are made.
    #[serde(deserialize_with = "place")]
    pub endpoint: Option<Endpoint>,
}

/// Reads a place, or `""`.
fn place<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Endpoint>, D::Error> {
    let text = String::deserialize(deserializer)?;
    (!text.is_empty()).then(|| text.parse().map_err(de::Error::custom)).transpose()
}
