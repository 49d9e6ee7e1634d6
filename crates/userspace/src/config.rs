//! The settings of the plane on the host.

use super::kernel_offload::KernelOffload;
use super::workers::Workers;
use crypto::CryptoProviders;
use esp::filter::Filter;
use esp::path_mtu::Outer;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Name of the TUN device, unless a setting says otherwise.
pub const DEFAULT_DEVICE: &str = "vpn0";

/// Directory of the record of what was changed on the host, unless a setting says otherwise. It is empty after a reboot.
pub const DEFAULT_STATE_DIR: &str = "/run/vpnd";

/// The settings of the plane on the host.
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
    /// The filter for traffic that belongs to no tunnel.
    pub filter: Arc<Filter>,
    /// The MSS of TCP is lowered to the length that fits the tunnel.
    pub mss_clamp: bool,
    /// The kernel protects packets, too: it takes ESP in UDP with SPIs that are not this plane's, and the packets that
    /// it has opened are let in.
    pub beside_kernel: bool,
    /// The offloads of the kernel that are not used.
    pub without: BTreeSet<KernelOffload>,
    /// The providers of ciphers.
    pub crypto: Arc<CryptoProviders>,
    /// The workers. A clone of it shows them and changes their settings.
    pub workers: Workers,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            device: DEFAULT_DEVICE.to_owned(),
            mtu: None,
            outer: Outer::default(),
            mark: 0x0076_706e,
            table: 4500,
            rule_priority: 4500,
            natt_port: 4500,
            state_dir: DEFAULT_STATE_DIR.into(),
            filter: Arc::default(),
            mss_clamp: true,
            beside_kernel: false,
            without: BTreeSet::new(),
            crypto: Arc::default(),
            workers: Workers::default(),
        }
    }
}
