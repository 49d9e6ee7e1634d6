//! Settings of an engine that the policy does not have.

use crate::deadlines::times;
use std::time::Duration;

/// When ESP is put into UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encap {
    /// Where a NAT is seen, and between two of this implementation where both ends have UDP segmentation offload.
    #[default]
    Auto,
    /// Always (by announcing a NAT to the peer).
    Always,
    /// Only where a NAT is seen.
    Never,
}

/// Settings of an engine that the policy does not have.
#[derive(Clone, Debug)]
pub struct Config {
    /// Pause before the first retransmission (RFC 7296 §2.4), 10 ms to an hour; each further one waits 1.8 times as long.
    pub retransmit_after: Duration,
    /// Retransmissions before the peer is given up, at most 64.
    pub retransmissions: u32,
    /// Silence after which an empty INFORMATIONAL asks whether the peer lives; `None`: never.
    pub liveness_interval: Option<Duration>,
    /// The action for a child tunnel whose peer is gone.
    pub liveness_action: RestartAction,
    /// The action for a child tunnel that the peer has deleted.
    pub close_action: RestartAction,
    /// Interval of NAT keepalives (RFC 3948 §4) while this side is behind a NAT.
    pub nat_keepalive: Duration,
    /// Half-open IKE SAs above which IKE_SA_INIT must come with a cookie (RFC 7296 §2.6).
    pub cookie_threshold: usize,
    /// Half-open IKE SAs above which IKE_SA_INIT is dropped.
    pub half_open_limit: usize,
    /// How long a replaced inbound SA still receives, at most an hour.
    pub linger: Duration,
    /// Anti-replay window in packets, at most 65,536.
    pub replay_window: u32,
    /// When ESP is put into UDP.
    pub encap: Encap,
    /// How long an IKE SA and its Child SAs may be used before both sides prove anew who they are (RFC 7296 §2.8.3); a
    /// responder tells the initiator (RFC 4478). `None`: for ever.
    pub reauthenticate: Option<Duration>,
    /// Whether both sides' addresses may change where the peer agrees (MOBIKE, RFC 4555).
    pub mobike: bool,
    /// Whether a peer that moves must show that it receives at its new address before ESP goes there (RFC 4555 §3.7).
    pub return_routability: bool,
    /// Octets of the largest IP datagram in which a protected IKE message goes; what is longer goes in fragments
    /// (RFC 7383) if the peer takes them, smaller ones when nothing comes back. `None`: no fragments in either
    /// direction. Less than [`SMALLEST_FRAGMENT`](crate::SMALLEST_FRAGMENT) is read as that.
    pub fragment_size: Option<u16>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            retransmit_after: Duration::from_secs(1),
            retransmissions: 5,
            liveness_interval: Some(Duration::from_secs(30)),
            liveness_action: RestartAction::Policy,
            close_action: RestartAction::Policy,
            nat_keepalive: Duration::from_secs(20),
            cookie_threshold: 32,
            half_open_limit: 1024,
            linger: Duration::from_secs(5),
            replay_window: 4096,
            encap: Encap::Auto,
            reauthenticate: None,
            mobike: true,
            return_routability: true,
            fragment_size: Some(1280),
        }
    }
}

impl Config {
    /// How long an exchange may take before the peer is given up.
    pub(crate) fn patience(&self) -> Duration {
        let growth =
            1.8f64.powi(i32::try_from(self.retransmissions.min(16)).unwrap_or(16) + 1) / 0.8;
        times(self.retransmit_after, growth)
    }
}

/// The action for a child tunnel that was up and went, though nobody on this side took it down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartAction {
    /// As the policy says: AutoStart starts it again, OnDemand waits for a packet, otherwise it stays down.
    #[default]
    Policy,
    /// It is started again.
    Restart,
    /// It waits for a packet, as if the policy said OnDemand.
    Trap,
    /// It stays down until a command or the peer starts it, or a packet where the policy says OnDemand.
    Clear,
}
