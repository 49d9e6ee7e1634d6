//! The settings of the plane on the host.

use super::kernel_offload::KernelOffload;
use super::workers::Workers;
use crypto::CryptoProviders;
use esp::path_mtu::Outer;
use floor::port::PortSettings;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Name of the TUN device, unless a setting says otherwise.
pub const DEFAULT_DEVICE: &str = "vpn0";

/// Directory of the record of what was changed on the host, unless a setting says otherwise. It is empty after a reboot.
pub const DEFAULT_STATE_DIR: &str = "/run/vpnd";

/// The settings of the plane on the host, which do not depend on the rest of the gateway.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the TUN device. Default: [`DEFAULT_DEVICE`].
    pub device: String,
    /// MTU of the device. Default: `None`, which derives it from the MTU of the networks between the peers and the SAs.
    pub mtu: Option<u16>,
    /// The networks between the peers: their MTU, and whether they may fragment.
    pub outer: Outer,
    /// Mark (SO_MARK) of the packets that must not enter a tunnel: those of this plane, and those of IKE. Default:
    /// `0x76706e`.
    pub mark: u32,
    /// Routing table for the rules' routes; no other program may use it. Default: 4500.
    pub table: u32,
    /// Priority of the routing rule that leads to the table. Default: 4500.
    pub rule_priority: u32,
    /// Directory of the record of changes to the host, by which the next start cleans up after a crash. Default:
    /// [`DEFAULT_STATE_DIR`].
    pub state_dir: PathBuf,
    /// The MSS of TCP is lowered to the length that fits the tunnel. Default: yes.
    pub mss_clamp: bool,
    /// The offloads of the kernel that are not used. Default: none.
    pub without: BTreeSet<KernelOffload>,
}

/// All that a plane is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings.
    pub settings: Settings,
    /// UDP port of ESP in UDP and of IKE with the non-ESP marker (RFC 3948).
    pub natt_port: u16,
    /// The kernel protects packets, too: it takes ESP in UDP with SPIs that are not this plane's, and the packets that
    /// it has opened are let in.
    pub beside_kernel: bool,
    /// The providers of ciphers.
    pub crypto: Arc<CryptoProviders>,
    /// The workers. A clone of it shows them and changes their settings.
    pub workers: Workers,
}

impl Config {
    /// The settings that hold for all planes of a gateway.
    pub fn floor(&self) -> floor::Settings {
        let Settings { device, state_dir, table, rule_priority, mark, without, .. } =
            &self.settings;
        floor::Settings {
            device: device.clone(),
            state_dir: state_dir.clone(),
            table: *table,
            rule_priority: *rule_priority,
            port: PortSettings {
                number: self.natt_port,
                mark: *mark,
                beside_kernel: self.beside_kernel,
                udp_segmentation: !without.contains(&KernelOffload::UdpSegmentation),
                udp_gro: !without.contains(&KernelOffload::UdpGro),
            },
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            device: DEFAULT_DEVICE.to_owned(),
            mtu: None,
            outer: Outer::default(),
            mark: 0x0076_706e,
            table: 4500,
            rule_priority: 4500,
            state_dir: DEFAULT_STATE_DIR.into(),
            mss_clamp: true,
            without: BTreeSet::new(),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            natt_port: 4500,
            beside_kernel: false,
            crypto: Arc::default(),
            workers: Workers::default(),
        }
    }
}
