//! Events: the engine's news for its owner.

use crate::close_reason::CloseReason;
use crate::durations::Exchange;
use crate::failure::Failure;
use crate::negotiation::suite::{ChildSuite, IkeSuite};
use crate::wire::header::IkeSpi;
use crate::wire::registry::ExchangeType;
use esp::plane::{PacketSummary, Restored, Spi};
use policy::Mode;
use std::fmt;
use std::net::SocketAddr;

/// The algorithms on which both sides have agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Negotiated {
    /// For an IKE SA.
    Ike(IkeSuite),
    /// For a Child SA.
    Child {
        /// Its mode.
        mode: Mode,
        /// Its algorithms.
        suite: ChildSuite,
        /// SPI of what this side receives.
        inbound_spi: Spi,
        /// SPI of what this side sends.
        outbound_spi: Spi,
    },
}

impl fmt::Display for Negotiated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ike(suite) => suite.fmt(f),
            Self::Child { mode, suite, inbound_spi, outbound_spi } => {
                let mode = match mode {
                    Mode::Transport => "transport",
                    Mode::Tunnel => "tunnel",
                };
                write!(f, "{mode} mode, {suite}, SPIs {inbound_spi} in, {outbound_spi} out")
            }
        }
    }
}

/// Something that happened to a tunnel.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Event {
    /// Phase 1 tunnel, or the peer's address where no tunnel is known yet.
    pub tunnel: String,
    /// Phase 2 tunnel, where the event concerns one.
    pub child: Option<String>,
    /// The peer's address and port at that time.
    pub peer: Option<SocketAddr>,
    /// The kind of event.
    pub kind: EventKind,
}

impl Event {
    /// An event of a phase 1 tunnel.
    pub fn new(tunnel: impl Into<String>, kind: EventKind) -> Self {
        Self { tunnel: tunnel.into(), child: None, peer: None, kind }
    }
}

/// A step of an exchange that this side has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ExchangeStep {
    /// The step.
    pub step: Step,
    /// The type of the exchange.
    pub exchange: ExchangeType,
    /// Its purpose, if the IKE SA was up before.
    pub purpose: Option<Exchange>,
    /// The number of the request on its IKE SA.
    pub message_id: u32,
    /// This side's SPI of the IKE SA.
    pub local_spi: IkeSpi,
    /// The peer's SPI of the IKE SA; zero as long as it is unknown.
    pub remote_spi: IkeSpi,
}

impl ExchangeStep {
    /// A step of the IKE_SA_INIT of an IKE SA without SPIs, for tests of listeners.
    pub fn first(step: Step) -> Self {
        Self {
            step,
            exchange: ExchangeType::IKE_SA_INIT,
            purpose: None,
            message_id: 0,
            local_spi: IkeSpi(0),
            remote_spi: IkeSpi(0),
        }
    }
}

/// Steps of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Step {
    /// The request was sent for the first time. IKE_SA_INIT may begin again with another request.
    Sent,
    /// The request was sent again.
    Repeated,
    /// The peer has answered.
    Answered,
}

impl fmt::Display for ExchangeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.step {
            Step::Sent => "sent",
            Step::Repeated => "sent again",
            Step::Answered => "answered",
        };
        write!(f, "{} {step}", self.exchange)
    }
}

/// Kinds of [`Event`].
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum EventKind {
    /// A negotiation began.
    Negotiating {
        /// This side began it.
        initiator: bool,
    },
    /// The IKE SA (no `child`) or the Child SA is up.
    Established {
        /// Negotiated algorithms.
        suite: Negotiated,
    },
    /// The IKE SA is up by a ticket (RFC 5723): both sides have proved that they know the keys of an earlier one.
    Resumed {
        /// The resumptions since both sides proved by their credentials who they are.
        times: u8,
    },
    /// The peer does not take the ticket of an earlier session: a full handshake begins.
    TicketRefused,
    /// The SA was replaced by a new one without interruption.
    Rekeyed {
        /// Negotiated algorithms.
        suite: Negotiated,
    },
    /// This side is at another address now.
    Readdressed {
        /// Where it was.
        from: SocketAddr,
        /// Where it is.
        to: SocketAddr,
    },
    /// A negotiation failed; tunnels that were up before stay up.
    Failed(Failure),
    /// A peer that has not proved its identity was refused.
    TurnedAway(Failure),
    /// The peer is at another address or port now.
    Moved {
        /// Where it was.
        from: SocketAddr,
        /// Where it is.
        to: SocketAddr,
    },
    /// The SA is gone.
    Closed {
        /// By whom and why.
        reason: CloseReason,
    },
    /// Parts of the data plane that others had removed from the host are there again.
    Restored(Restored),
    /// Something worth the operator's attention.
    Warning(String),
    /// The guard dropped a packet of the phase 2 tunnel that was about to leave in the clear.
    Unprotected(PacketSummary),
    /// An exchange of this side has gone one step further. Only an engine that is asked to tells of these
    /// ([`Engine::tell_exchanges`](crate::Engine::tell_exchanges)).
    Exchange(ExchangeStep),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tunnel)?;
        if let Some(child) = &self.child {
            write!(f, "/{child}")?;
        }
        match (&self.kind, self.peer) {
            (EventKind::TurnedAway(_), Some(peer)) if peer.ip().to_string() != self.tunnel => {
                write!(f, ": {} {}", peer.ip(), self.kind)
            }
            _ => write!(f, ": {}", self.kind),
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Negotiating { initiator: true } => f.write_str("negotiating"),
            Self::Negotiating { initiator: false } => {
                f.write_str("negotiating (started by the peer)")
            }
            Self::Established { suite } => write!(f, "up, {suite}"),
            Self::Resumed { times: 1 } => f.write_str("resumed with a ticket"),
            Self::Resumed { times } => {
                write!(
                    f,
                    "resumed with a ticket, for the {times}th time since the last full handshake"
                )
            }
            Self::TicketRefused => {
                f.write_str("the peer does not take the ticket: a full handshake begins")
            }
            Self::Rekeyed { suite } => write!(f, "rekeyed, {suite}"),
            Self::Failed(failure) => write!(f, "failed: {failure}"),
            Self::TurnedAway(failure) => write!(f, "turned away: {failure}"),
            Self::Moved { from, to } => write!(f, "the peer has moved from {from} to {to}"),
            Self::Readdressed { from, to } => {
                write!(f, "this side has moved from {from} to {to}")
            }
            Self::Closed { reason } => write!(f, "down: {reason}"),
            Self::Restored(restored) => {
                write!(f, "put back after others had removed or changed it: {restored}")
            }
            Self::Warning(text) => f.write_str(text),
            Self::Unprotected(packet) => {
                write!(
                    f,
                    "the guard dropped a packet that was about to leave in the clear: {packet}"
                )
            }
            Self::Exchange(step) => step.fmt(f),
        }
    }
}
