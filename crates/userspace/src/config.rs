//! The settings of the plane on the host.

use super::workers::Workers;
use crypto::CryptoProviders;
use esp::path_mtu::Outer;
use std::sync::Arc;

/// The settings of the plane that do not depend on the rest of the gateway. Those of device and routing are the
/// [floor's](floor::Settings).
#[derive(Clone, Debug)]
pub struct Settings {
    /// MTU of the device. Default: `None`, which derives it from the MTU of the networks between the peers and the SAs.
    pub mtu: Option<u16>,
    /// The networks between the peers: their MTU, and whether they may fragment.
    pub outer: Outer,
    /// The MSS of TCP is lowered to the length that fits the tunnel. Default: yes.
    pub mss_clamp: bool,
}

/// All that a plane is started with on a floor.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The settings.
    pub settings: Settings,
    /// The providers of ciphers.
    pub crypto: Arc<CryptoProviders>,
    /// The workers. A clone of it shows them and changes their settings.
    pub workers: Workers,
}

impl Default for Settings {
    fn default() -> Self {
        Self { mtu: None, outer: Outer::default(), mss_clamp: true }
    }
}
