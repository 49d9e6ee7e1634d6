//! The text of a scrape.

use crate::numbers::{self, Numbers};
use control::protocol::workers::Workers;
use control::protocol::{CertificateInfo, ConfinementInfo, CryptoState, CryptoStats, GuardInfo};
use families::Families;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::fmt;
use std::time::SystemTime;

mod certificates;
mod crypto;
mod families;
mod process;
mod workers;

/// The state of a daemon at the time of a scrape.
#[derive(Debug)]
pub struct Snapshot {
    /// The daemon's version.
    pub version: String,
    /// The time of the daemon's start.
    pub started: SystemTime,
    /// The numbers of the gateway.
    pub numbers: Numbers,
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
    pub fn text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Told(self)));
        let mut text = String::new();
        // Nothing but the writer can fail, and a String takes everything.
        let _ = encode(&mut text, &registry);
        text
    }
}

#[derive(Debug)]
struct Told(Snapshot);

impl Collector for Told {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(snapshot) = self;
        let mut families = Families(encoder);
        families.write(process::METRICS, snapshot)?;
        if let Some(guard) = &snapshot.guard {
            families.write(process::GUARD, guard)?;
        }
        families.write(numbers::METRICS, &snapshot.numbers)?;
        families.write(workers::METRICS, &snapshot.workers)?;
        families.write(crypto::METRICS, snapshot)?;
        families.write(certificates::METRICS, &snapshot.certificates)
    }
}

#[cfg(test)]
mod tests;
