//! The settings of the datapath.

use crate::path_mtu::Outer;
use crate::plane::Notice;
use crypto::CryptoProviders;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The settings of a [`Datapath`](super::Datapath).
#[derive(Clone)]
pub struct Settings {
    /// The providers of ciphers.
    pub crypto: Arc<CryptoProviders>,
    /// The networks between the peers. Default: [`Outer::UNKNOWN`].
    pub outer: Outer,
    /// The MTU that the system knows for a peer's address: of the interface, or of the route.
    pub system_mtu: Option<Arc<dyn Fn(IpAddr) -> Option<usize> + Send + Sync>>,
    /// The port of ESP in UDP, by which ICMP messages about such packets are recognised.
    pub natt_port: u16,
    /// Lowers the MSS option of SYNs to the length that fits the tunnel.
    pub mss_clamp: bool,
    /// Called with every notice, on the thread that caused it. Without it, notices wait in
    /// [`Datapath::take_notices`](super::Datapath::take_notices).
    pub on_notice: Option<Arc<dyn Fn(Notice) + Send + Sync>>,
    /// Called with an ICMP message for a host behind the tunnel, on the thread that caused it. Without it, the messages
    /// wait in [`Datapath::take_answers`](super::Datapath::take_answers).
    pub on_answer: Option<Inward>,
    /// Called when held packets may be sent: the owner of the sockets then calls
    /// [`Datapath::flush_held`](super::Datapath::flush_held).
    pub on_release: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest is functions.
        f.debug_struct("Settings")
            .field("outer", &self.outer)
            .field("natt_port", &self.natt_port)
            .field("mss_clamp", &self.mss_clamp)
            .finish_non_exhaustive()
    }
}

/// Takes a packet for the hosts behind the tunnel.
pub type Inward = Arc<dyn Fn(&[u8]) + Send + Sync>;

impl Default for Settings {
    fn default() -> Self {
        Self {
            crypto: Arc::default(),
            outer: Outer::UNKNOWN,
            system_mtu: None,
            natt_port: 4500,
            mss_clamp: true,
            on_notice: None,
            on_answer: None,
            on_release: None,
        }
    }
}
