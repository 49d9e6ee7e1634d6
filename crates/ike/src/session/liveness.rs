//! Signs that a peer lives, and hints why there are none.

use crate::unreachable::{UNPROTECTED, Unreachable, Unsent};
use std::net::SocketAddr;
use std::time::Instant;

/// Signs that the peer lives, and hints why there are none.
pub(super) struct Liveness {
    pub last_heard: Instant,
    /// When a NAT is shown that the mapping is still used.
    pub keepalive_at: Instant,
    /// Why this host could not send the last message, if it could not.
    unsent: Option<Unsent>,
    /// The last ICMP message about a message of this side since the peer was last heard. It proves nothing.
    icmp: Option<Unreachable>,
}

impl Liveness {
    pub fn new(now: Instant) -> Self {
        Self { last_heard: now, keepalive_at: now, unsent: None, icmp: None }
    }

    pub fn heard(&mut self, now: Instant) {
        self.last_heard = now;
        self.icmp = None;
    }

    /// A message has left this host.
    pub fn note_sent(&mut self) {
        self.unsent = None;
    }

    /// A message could not leave this host.
    pub fn note_unsent(&mut self, unsent: Unsent) {
        self.unsent = Some(unsent);
    }

    pub fn note_unreachable(&mut self, unreachable: Unreachable) {
        self.icmp = Some(unreachable);
    }

    pub fn forget_obstacles(&mut self) {
        (self.unsent, self.icmp) = (None, None);
    }

    /// Why this host could not send the last message, if it could not.
    pub fn unsent(&self) -> Option<&Unsent> {
        self.unsent.as_ref()
    }

    /// The last ICMP message since the peer was last heard.
    pub fn icmp(&self) -> Option<Unreachable> {
        self.icmp
    }

    /// The obstacle that keeps messages from the peer at `remote`, as far as this host or ICMP says.
    pub fn obstacle(&self, remote: SocketAddr) -> Option<String> {
        self.unsent
            .as_ref()
            .map(ToString::to_string)
            .or_else(|| Some(format!("{} ({UNPROTECTED})", self.icmp?.about(remote))))
    }
}
