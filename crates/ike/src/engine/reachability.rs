//! Whether messages of IKE reach the peer: what came of sending them, what ICMP says, and what this host lacks.

use super::Engine;
use crate::datagram::Transmit;
use crate::deadlines::{Deadline, Waiter};
use crate::failure::FailureKind;
use crate::failure::facts::Unsendable;
use crate::session::Session;
use crate::unreachable::{Lack, Unreachable, Unsent};
use crate::wire::header::{Header, IkeSpi};
use esp::plane::DataPlane;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

impl<P: DataPlane> Engine<P> {
    /// Takes note that this host could not send a datagram, or that it could. If the first message of an attempt cannot
    /// leave because this host lacks an address or a route, the attempt has failed. Otherwise nothing is given up: the
    /// message is sent again if it matters (RFC 7296 §2.4), and the operator learns why nobody answers.
    pub fn handle_sent(&mut self, now: Instant, transmit: &Transmit, outcome: Result<(), Unsent>) {
        // A NAT keepalive is no IKE message.
        let Ok(header) = Header::parse(&transmit.octets) else { return };
        let spis = [header.initiator_spi, header.responder_spi];
        let Some(id) = spis.iter().find_map(|spi| self.sessions.of_spi(*spi)) else { return };
        match outcome {
            Ok(()) => self.sessions.get_mut(id).into_iter().for_each(Session::note_sent),
            Err(unsent) => {
                self.with_session(now, id, |session, cx| session.note_unsent(cx, unsent));
            }
        }
    }

    /// Takes note of an ICMP message about a datagram to `remote`; `quoted` is what it quotes of the message of IKE. It
    /// counts only with an SPI of this side, which nobody knows who does not see its messages, and changes no SA even
    /// then.
    pub fn handle_unreachable(
        &mut self,
        remote: SocketAddr,
        quoted: &[u8],
        unreachable: Unreachable,
    ) {
        let spis = [0..8, 8..16].map(|octets| quoted.get(octets)?.try_into().ok());
        let Some(id) = spis
            .into_iter()
            .flatten()
            .find_map(|spi| self.sessions.of_spi(IkeSpi(u64::from_be_bytes(spi))))
        else {
            return;
        };
        let session = self.sessions.get_mut(id).filter(|s| s.path().remote.ip() == remote.ip());
        if let Some(session) = session {
            tracing::debug!(tunnel = session.tunnel().name, by = %unreachable.by, "ICMP unreachable");
            session.note_unreachable(unreachable);
        }
    }

    /// Tries tunnels at once whose last attempt failed for lack of an address or a route that is there now.
    pub(super) fn retry_stranded(
        &mut self,
        now: Instant,
        source_for: &mut dyn FnMut(IpAddr) -> Option<IpAddr>,
    ) {
        let waiting = self.deadlines.waiters().filter_map(|waiter| match waiter {
            Waiter::Retry(child) => Some(child),
            _ => None,
        });
        let found: Vec<(String, IpAddr, IpAddr)> = waiting
            .filter_map(|child| {
                let tunnel = &self.policy.child(child)?.0;
                let (failure, _) = self.out.failures.last(&tunnel.name)?;
                let lacking =
                    matches!(failure.kind, FailureKind::NoLocalAddress | FailureKind::NoRoute);
                lacking.then_some((child.clone(), tunnel.local.address?, tunnel.remote.address?))
            })
            .collect();
        for (child, local, remote) in found {
            if !self.addresses.contains(&local) || source_for(remote).is_none() {
                continue;
            }
            self.reconnection.make_due(&child, now);
            let deadline = Deadline { at: now, reason: "next attempt" };
            self.deadlines.set(Waiter::Retry(child), Some(deadline));
        }
    }

    /// The tunnels that are not up and for which this host lacks something now.
    pub fn lacking(
        &self,
        addresses: &[IpAddr],
        source_for: &mut dyn FnMut(IpAddr) -> Option<IpAddr>,
    ) -> Vec<(String, Unsendable)> {
        let mut found = Vec::new();
        for tunnel in &self.policy.tunnels {
            let up = self.session_of(&tunnel.name).and_then(|id| self.sessions.get(id));
            if up.is_some_and(Session::is_established) {
                continue;
            }
            // Addresses that reach only this host or link are not among those of the host.
            let remote = tunnel.remote.address.filter(|a| !is_near(*a));
            let Some(local) = tunnel.local.address.filter(|a| !is_near(*a)) else { continue };
            let lack = if !addresses.contains(&local) {
                Lack::Address
            } else if remote.is_some_and(|remote| source_for(remote).is_none()) {
                Lack::Route
            } else {
                continue;
            };
            let facts = Unsendable { lack, local, remote: remote.unwrap_or(local) };
            found.push((tunnel.name.clone(), facts));
        }
        found
    }
}

fn is_near(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a.is_loopback() || a.is_link_local(),
        IpAddr::V6(a) => a.is_loopback() || a.is_unicast_link_local(),
    }
}
