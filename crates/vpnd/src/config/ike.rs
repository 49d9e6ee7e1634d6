//! `[ike]`

use super::Span;
use serde::Deserialize;

/// `[ike]`: timers and limits of IKE. The defaults are [`ike::Config`]'s.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ike {
    /// First retransmission.
    pub retransmit_after: Span,
    /// Retransmissions before the peer is given up.
    pub retransmissions: u32,
    /// Silence after which the peer is asked whether it lives; `off`: never.
    pub liveness_interval: Span,
    /// The action for a tunnel whose peer no longer answers.
    pub liveness_action: RestartAction,
    /// The action for a tunnel that the peer has deleted.
    pub close_action: RestartAction,
    /// Interval of NAT keepalives.
    pub nat_keepalive: Span,
    /// Half-open IKE SAs above which a cookie is asked for.
    pub cookie_threshold: usize,
    /// Half-open IKE SAs above which no more are begun.
    pub half_open_limit: usize,
    /// Time for which a replaced SA still receives.
    pub linger: Span,
    /// Use IKE fragmentation (RFC 7383) with peers that support it.
    pub fragmentation: bool,
    /// Octets of the largest IP datagram that is not fragmented.
    pub fragment_size: u16,
    /// Interval of reauthentication; `off`: never.
    pub reauthenticate: Span,
    /// Use MOBIKE (RFC 4555) with peers that support it.
    pub mobike: bool,
    /// A peer that moves must prove that it receives at its new address.
    pub return_routability: bool,
    /// Use postquantum preshared keys before IKE_AUTH (RFC 9867) with peers that support it.
    pub ppk_before_auth: bool,
}

/// The action for a tunnel that was up and is closed by the peer or by a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RestartAction {
    /// The policy's action.
    #[default]
    Policy,
    /// It is started again.
    Restart,
    /// It waits for a packet.
    Trap,
    /// It stays down.
    Clear,
}

impl From<RestartAction> for ::ike::RestartAction {
    fn from(action: RestartAction) -> Self {
        match action {
            RestartAction::Policy => Self::Policy,
            RestartAction::Restart => Self::Restart,
            RestartAction::Trap => Self::Trap,
            RestartAction::Clear => Self::Clear,
        }
    }
}

impl Default for Ike {
    fn default() -> Self {
        let ike = ::ike::Config::default();
        Self {
            retransmit_after: Span(Some(ike.retransmit_after)),
            retransmissions: ike.retransmissions,
            liveness_interval: Span(ike.liveness_interval),
            liveness_action: RestartAction::Policy,
            close_action: RestartAction::Policy,
            nat_keepalive: Span(Some(ike.nat_keepalive)),
            cookie_threshold: ike.cookie_threshold,
            half_open_limit: ike.half_open_limit,
            linger: Span(Some(ike.linger)),
            fragmentation: ike.fragment_size.is_some(),
            fragment_size: ike.fragment_size.unwrap_or(1280),
            reauthenticate: Span(ike.reauthenticate),
            mobike: ike.mobike,
            return_routability: ike.return_routability,
            ppk_before_auth: ike.ppk_before_auth,
        }
    }
}
