//! An IKEv2 and ESP gateway for Rust services: policy, key management and data plane behind one builder.
#![forbid(unsafe_code)]

pub use esp;
pub use ike;
pub use policy;

use policy::Policy;
use std::path::PathBuf;
use std::sync::Arc;

/// What a gateway needs besides its policy.
#[derive(Clone, Debug, Default)]
pub struct GatewayConfig {
    /// IKE's timers and limits.
    pub ike: ike::Config,
    /// Name of the TUN device; default `vpn0`.
    pub device: Option<String>,
    /// Where a note is kept of what was changed in the system, so that a crash can be cleaned up; default
    /// `/run/vpnd`.
    pub state_dir: Option<PathBuf>,
}

/// The gateway could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data plane could not be set up.
    #[error("data plane: {0}")]
    Plane(#[from] esp::plane::PlaneError),
    /// A socket could not be opened.
    #[error("cannot open {what}: {source}")]
    Socket {
        /// Which.
        what: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Starts a gateway with the userspace data plane inside the current tokio runtime.
///
/// # Errors
/// Where the device, the routes or a socket cannot be had; nothing is left behind.
pub async fn start(
    policy: Arc<Policy>,
    config: GatewayConfig,
) -> Result<ike::driver::Handle, StartError> {
    let _ = (policy, config);
    unimplemented!()
}
