//! The settings of a gateway on its host that hold for all planes.

use crate::kernel_offload::KernelOffload;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Name of the TUN device, unless a setting says otherwise.
pub const DEFAULT_DEVICE: &str = "vpn0";

/// Directory of the record of what was changed on the host, unless a setting says otherwise. It is empty after a reboot.
pub const DEFAULT_STATE_DIR: &str = "/run/vpnd";

/// The settings that do not depend on the rest of the gateway.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the TUN device. Default: [`DEFAULT_DEVICE`].
    pub device: String,
    /// Mark (SO_MARK) of the packets that must not enter a tunnel: those of the planes, and those of IKE. Default:
    /// `0x76706e`.
    pub mark: u32,
    /// Routing table for the rules' routes; no other program may use it. Default: 4500.
    pub table: u32,
    /// Priority of the routing rule that leads to the table. Routing rules for bypassed traffic come before it.
    /// Default: 4500.
    pub rule_priority: u32,
    /// Directory of the record of changes to the host, by which the next start cleans up after a crash. Default:
    /// [`DEFAULT_STATE_DIR`].
    pub state_dir: PathBuf,
    /// The offloads of the kernel that are not used. Default: none.
    pub without: BTreeSet<KernelOffload>,
}

/// All that a floor is started with, but its filter.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings.
    pub settings: Settings,
    /// UDP port of ESP in UDP and of IKE with the non-ESP marker (RFC 3948).
    pub natt_port: u16,
    /// The kernel protects packets, too: it takes ESP in UDP with all SPIs but those that a plane
    /// [claims](crate::port::Port::claim), and the packets that it has opened are let in.
    pub beside_kernel: bool,
}

impl Settings {
    /// Returns `true` if the offload is used, where the kernel has it.
    pub fn uses(&self, offload: KernelOffload) -> bool {
        !self.without.contains(&offload)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            device: DEFAULT_DEVICE.to_owned(),
            mark: 0x0076_706e,
            table: 4500,
            rule_priority: 4500,
            state_dir: DEFAULT_STATE_DIR.into(),
            without: BTreeSet::new(),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self { settings: Settings::default(), natt_port: 4500, beside_kernel: false }
    }
}
