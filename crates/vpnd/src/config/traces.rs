//! `[traces]`.

use settings::{optional, read_optional};
use traces::Endpoint;

settings::section! {
    /// `[traces]`: where spans of negotiations go.
    pub struct Traces = "traces" {
        /// The OpenTelemetry collector to which vpnd sends a span of each negotiation and each rekey, by OTLP over
        /// plain HTTP (docs/operate/metrics.md), as in "http://127.0.0.1:4318/v1/traces". Empty: vpnd sends none. Spans
        /// have the names of tunnels, addresses, SPIs and reasons of failures, and no keys. Tunnels do not wait for a
        /// collector that is slow or absent.
        #[serde(deserialize_with = "read_optional")]
        pub endpoint: Option<Endpoint> = None, written optional;
    }
}
