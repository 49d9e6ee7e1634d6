//! Events: the engine's news for its owner.

use crate::failure::Failure;
use std::fmt;
use std::net::SocketAddr;

/// Something that happened to a tunnel.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// IKE tunnel, or the peer's address where no tunnel is known yet.
    pub tunnel: String,
    /// Child tunnel, where the event concerns one.
    pub child: Option<String>,
    /// Where the peer was then.
    pub peer: Option<SocketAddr>,
    /// The kind of event.
    pub kind: EventKind,
}

/// Kinds of [`Event`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum EventKind {
    /// A negotiation began.
    Negotiating {
        /// Whether this side began it.
        initiator: bool,
    },
    /// The IKE SA (no `child`) or the Child SA is up.
    Established {
        /// Negotiated algorithms.
        suite: String,
    },
    /// The SA was replaced by a new one without interruption.
    Rekeyed {
        /// Negotiated algorithms.
        suite: String,
    },
    /// This side is at another address now.
    Readdressed {
        /// Where it was.
        from: SocketAddr,
        /// Where it is.
        to: SocketAddr,
    },
    /// A negotiation failed; what was up before stays up.
    Failed(Failure),
    /// Somebody who has not proved who it is was refused.
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
        /// In words: by whom and why.
        reason: String,
    },
    /// Something worth the operator's attention.
    Warning(String),
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
            Self::Rekeyed { suite } => write!(f, "rekeyed, {suite}"),
            Self::Failed(failure) => write!(f, "failed: {failure}"),
            Self::TurnedAway(failure) => write!(f, "turned away: {failure}"),
            Self::Moved { from, to } => write!(f, "the peer has moved from {from} to {to}"),
            Self::Readdressed { from, to } => {
                write!(f, "this side has moved from {from} to {to}")
            }
            Self::Closed { reason } => write!(f, "down: {reason}"),
            Self::Warning(text) => f.write_str(text),
        }
    }
}
