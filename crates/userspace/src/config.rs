//! How the plane appears on the host, as its owner wants it.

use super::offering::Offering;
use super::workers::Workers;
use crypto::CryptoProviders;
use esp::filter::Filter;
use esp::path_mtu::Outer;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// How the plane appears on the host.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the TUN device.
    pub device: String,
    /// MTU of the device; `None` derives it from the outer MTU and the SAs.
    pub mtu: Option<u16>,
    /// The networks between the peers.
    pub outer: Outer,
    /// Mark of the packets that must not enter a tunnel: those of this plane, and those of IKE.
    pub mark: u32,
    /// Routing table for the rules' routes; no other program may use it.
    pub table: u32,
    /// Priority of the routing rule that leads to the table.
    pub rule_priority: u32,
    /// UDP port of ESP in UDP and of IKE with the non-ESP marker (RFC 3948).
    pub natt_port: u16,
    /// Directory of the record of what was changed on the host.
    pub state_dir: PathBuf,
    /// Whether cleartext that should have been protected is dropped with nftables (RFC 4301 §5.2).
    pub inbound_guard: bool,
    /// What happens to traffic that is no tunnel's.
    pub filter: Arc<Filter>,
    /// Whether TCP's MSS is lowered to what fits the tunnel.
    pub mss_clamp: bool,
    /// Whether the kernel protects packets, too: it takes ESP in UDP whose SPIs are none of this plane's, and what it has
    /// opened is let in.
    pub beside_kernel: bool,
    /// What of the kernel's is to be left alone.
    pub without: BTreeSet<Offering>,
    /// Where ciphers come from.
    pub crypto: Arc<CryptoProviders>,
    /// Who carries the packets; a clone of it shows them and changes how they work.
    pub workers: Workers,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            device: "vpn0".to_owned(),
            mtu: None,
            outer: Outer::default(),
            mark: 0x0076_706e,
            table: 4500,
            rule_priority: 4500,
            natt_port: 4500,
            state_dir: "/run/vpnd".into(),
            inbound_guard: true,
            filter: Arc::default(),
            mss_clamp: true,
            beside_kernel: false,
            without: BTreeSet::new(),
            crypto: Arc::default(),
            workers: Workers::default(),
        }
    }
}
