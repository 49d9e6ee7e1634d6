//! The daemon's negotiations and rekeys as spans, for an OpenTelemetry collector.

use ::traces::{Endpoint, Exporter, Limits, Operations, random_id};
use nix::unistd::gethostname;
use std::time::SystemTime;
use tokio::task::JoinHandle;
use tracing::info;
use vpn::Events;

/// Sends spans of these events, which have the steps of exchanges, to a collector. The task ends after the events, a moment
/// later at most.
pub fn start(endpoint: &Endpoint, events: Events) -> JoinHandle<()> {
    let host = gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    let exporter = Exporter::start(endpoint.clone(), "vpnd", &host, Limits::default());
    info!("spans of negotiations go to {endpoint}");
    tokio::spawn(follow(events, exporter))
}

async fn follow(mut events: Events, exporter: Exporter) {
    let mut operations = Operations::new(random_id);
    while let Some(event) = events.recv().await {
        if events.missed() > 0 {
            operations.forget();
        }
        for span in operations.see(&event, SystemTime::now()) {
            exporter.push(span);
        }
    }
    exporter.finish().await;
}
