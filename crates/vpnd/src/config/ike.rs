//! `[ike]`

use serde::Deserialize;
use settings::{Span, Times, word};

settings::section! {
    /// `[ike]`: timers and limits of IKE. The defaults are [`ike::Config`]'s, and so are the ranges that are not here.
    pub struct Ike = "ike" {
        /// vpnd sends an unanswered request again after this time. Each further pause is 1.8 times as long as the one before.
        pub retransmit_after: Span = Span(Some(engine().retransmit_after)), range Times::any();
        /// Number of repetitions before vpnd gives the peer up. With the defaults that takes 41 seconds.
        pub retransmissions: u32 = engine().retransmissions;
        /// If nothing has come from the peer for this long, vpnd asks whether it is there (RFC 7296 section 2.4). "off": never.
        pub liveness_interval: Span = Span(engine().liveness_interval);
        /// The action for a tunnel whose peer is gone. docs/operate/staying-up.md describes the pauses between
        /// attempts.
        /// "policy": AutoStart starts the tunnel again, OnDemand waits for a packet, and a tunnel with neither stays down.
        /// "restart": start it again, whatever the policy says.
        /// "trap": wait for a packet, whatever the policy says.
        /// "clear": leave it down, even with AutoStart. A command or the peer starts it, or a packet if the policy says OnDemand.
        pub liveness_action: RestartAction = RestartAction::Policy, written word;
        /// The action for a tunnel that the peer has deleted; the same four values.
        pub close_action: RestartAction = RestartAction::Policy, written word;
        /// Behind a NAT, vpnd sends one octet this often, so that the NAT keeps its mapping (RFC 3948 section 4).
        pub nat_keepalive: Span = Span(Some(engine().nat_keepalive)), range Times::any();
        /// From this number of half-open IKE SAs on, an initiator must return a cookie first (RFC 7296 section 2.6).
        pub cookie_threshold: usize = engine().cookie_threshold;
        /// From this number of half-open IKE SAs on, vpnd answers no new initiator. A quarter of those above cookie_threshold is for
        /// initiators whose address the policy names.
        pub half_open_limit: usize = engine().half_open_limit;
        /// After a rekey, the old SA still receives for this long, so that packets on their way are not lost.
        pub linger: Span = Span(Some(engine().linger)), range Times::any();
        /// Whether vpnd splits long IKE messages into IKE fragments (RFC 7383), because many networks drop IP fragments. The peer
        /// has to support it, too.
        pub fragmentation: bool = engine().fragment_size.is_some();
        /// Octets of the largest IP datagram that vpnd sends unfragmented. If no answer comes, vpnd tries 1280 and then 576.
        pub fragment_size: u16 = engine().fragment_size.unwrap_or(1280), range ::ike::SMALLEST_FRAGMENT..=u16::MAX;
        /// Time until both sides authenticate again; a rekey alone does not show that a certificate is still valid. The new IKE SA
        /// and its Child SAs are up before the old ones are deleted. A responder announces the time (AUTH_LIFETIME, RFC 4478). If it
        /// has not happened in time, for example because the peer's certificate is revoked, vpnd deletes the IKE SA in both roles.
        /// "off": never.
        pub reauthenticate: Span = Span(engine().reauthenticate);
        /// Whether a tunnel that is up follows a change of either side's addresses or routes (MOBIKE, RFC 4555). The peer has to
        /// support it, too. Tunnels in transport mode do not move. With MOBIKE, the addresses in the policy are only those at which
        /// a negotiation begins: see docs/operate/mobility.md.
        pub mobike: bool = engine().mobike;
        /// Whether a peer that moves must first prove that it receives at its new address (RFC 4555 section 3.7).
        pub return_routability: bool = engine().return_routability;
        /// Let postquantum preshared keys protect all of IKE_AUTH, with the peer's identity in it (RFC 9867), if the peer supports that.
        /// Otherwise they protect all that comes after it (RFC 8784).
        pub ppk_before_auth: bool = engine().ppk_before_auth;
    }
}

/// The defaults of the engine.
fn engine() -> ::ike::Config {
    ::ike::Config::default()
}

impl Ike {
    /// IKE's timers and limits, as far as this section has them.
    pub(super) fn config(&self) -> ::ike::Config {
        let defaults = engine();
        ::ike::Config {
            retransmit_after: self.retransmit_after.0.unwrap_or(defaults.retransmit_after),
            retransmissions: self.retransmissions,
            liveness_interval: self.liveness_interval.0,
            liveness_action: self.liveness_action.into(),
            close_action: self.close_action.into(),
            nat_keepalive: self.nat_keepalive.0.unwrap_or(defaults.nat_keepalive),
            cookie_threshold: self.cookie_threshold,
            half_open_limit: self.half_open_limit,
            linger: self.linger.0.unwrap_or(defaults.linger),
            fragment_size: self.fragmentation.then_some(self.fragment_size),
            reauthenticate: self.reauthenticate.0,
            mobike: self.mobike,
            return_routability: self.return_routability,
            ppk_before_auth: self.ppk_before_auth,
            ..defaults
        }
    }
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
