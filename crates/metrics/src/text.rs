//! The text of a scrape.

use crate::fleet::Fleet;
use crate::happenings::Tallies;
use control::protocol::workers::Workers;
use control::protocol::{CertificateInfo, ConfinementInfo, CryptoState, CryptoStats, GuardInfo};
use families::Families;
use ike::durations::ExchangeDurations;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

mod certificates;
mod crypto;
mod families;
mod process;
mod traffic;
mod tunnels;
mod workers;

/// The state of a daemon at the time of a scrape.
#[derive(Debug)]
pub struct Snapshot {
    /// The daemon's version.
    pub version: String,
    /// The time of the daemon's start.
    pub started: SystemTime,
    /// The tunnels.
    pub fleet: Arc<Fleet>,
    /// The times from requests of this side to the peers' answers.
    pub exchanges: ExchangeDurations,
    /// Discarded messages and packets, by the layer (`ike.`, `esp.` or `xfrm.`) and the reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets that no SA served, by phase 2 tunnel.
    pub unserved: BTreeMap<String, u64>,
    /// The guard; `None`: unknown.
    pub guard: Option<GuardInfo>,
    /// The confinement; `None`: there is none.
    pub confinement: Option<ConfinementInfo>,
    /// The directory for exported keys is set.
    pub keys_exported: bool,
    /// The threads that carry packets, with their stages.
    pub workers: Workers,
    /// The provider of each cryptographic function.
    pub crypto: CryptoState,
    /// The cryptographic work.
    pub crypto_work: CryptoStats,
    /// Certificates and revocation lists.
    pub certificates: Vec<CertificateInfo>,
}

impl Snapshot {
    /// Writes all of it as OpenMetrics. It takes a while for many tunnels.
    pub fn text(self, tallies: Tallies) -> String {
        let told = Told { snapshot: self, tallies };
        let mut registry = Registry::with_prefix("vpnd");
        registry.register_collector(Box::new(told));
        let mut text = String::new();
        // Nothing but the writer can fail, and a String takes everything.
        let _ = encode(&mut text, &registry);
        text
    }
}

#[derive(Debug)]
struct Told {
    snapshot: Snapshot,
    tallies: Tallies,
}

impl Collector for Told {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let families = &mut Families(encoder);
        let Self { snapshot, tallies } = self;
        process::write(families, snapshot, tallies)?;
        tunnels::write(families, snapshot, tallies)?;
        traffic::write(families, snapshot)?;
        workers::write(families, &snapshot.workers)?;
        crypto::write(families, &snapshot.crypto, &snapshot.crypto_work)?;
        certificates::write(families, &snapshot.certificates)
    }
}

#[cfg(test)]
mod tests;
