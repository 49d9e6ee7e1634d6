//! Why a gateway could not be started.
//!
//! A second gateway on one host is refused, and the error names the cause: UDP 500 or the device belongs to the first
//! one.

use crate::driver::SocketError;
use crate::listening::ListenError;
use crate::manual::ManualSaError;
use esp::plane::PlaneError;
use ike::InvalidSettings;

/// The gateway could not be started. Nothing is left behind: no socket, no device, no route.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is no tokio runtime, or it lacks a driver that the gateway needs.
    #[error("this needs a tokio runtime with {missing}; build it with enable_all()")]
    Runtime {
        /// The missing part.
        missing: &'static str,
    },
    /// The policy, or the configuration of IKE, is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidSettings),
    /// A setting has a value that would harm the host.
    #[error("{setting} = {value}: {why}")]
    Setting {
        /// Name of the builder's method.
        setting: &'static str,
        /// Its value.
        value: String,
        /// The rule that the value breaks.
        why: &'static str,
    },
    /// The data plane could not be set up.
    #[error("data plane: {0}")]
    Plane(#[from] PlaneError),
    /// An SA that is keyed by hand could not be installed.
    #[error(transparent)]
    Manual(#[from] ManualSaError),
    /// A socket could not be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Peers cannot begin at an address of [`listen`](crate::Builder::listen).
    #[error(
        "cannot listen on {0}. Choose another address of this host, or leave the choice to the policy: a port that is \
         taken is then only a warning"
    )]
    Listen(#[from] ListenError),
    /// The runtime cannot watch a socket.
    #[error("watching the port of ESP in UDP: {0}")]
    Reactor(std::io::Error),
    /// The system gave no randomness.
    #[error("the system's random number generator failed")]
    Randomness,
}

policy::readable_debug!(StartError);
