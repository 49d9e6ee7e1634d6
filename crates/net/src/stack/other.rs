//! Packets of UDP and ICMP.

use super::Stack;
use crate::connection::Flow;
use crate::end::End;
use crate::packet::{self, Parsed, Trouble};
use crate::routes::UDP;
use esp::gso::Gso;
use smoltcp::socket::tcp::State;
use std::net::SocketAddr;
use std::sync::Arc;

impl Stack {
    pub(super) fn take_udp(&mut self, packet: &[u8], parsed: &Parsed, gso: Gso) {
        let Some((from, to)) = parsed.ports(packet) else { return };
        if !self.shared.routes.is_own(parsed.destination) {
            return self.shared.counts.not_ours();
        }
        let local = SocketAddr::new(parsed.destination, to);
        let remote = SocketAddr::new(parsed.source, from);
        let Some(socket) = self.shared.sockets().udp(local) else {
            let mut answer = packet::port_unreachable(packet, parsed);
            return self.outlet.send(&mut answer, Gso::NONE);
        };
        let payload = &parsed.upper(packet)[8..];
        let each = match gso.segment_len {
            0 => payload.len().max(1),
            len => usize::from(len),
        };
        let datagrams = payload.chunks(each).chain(payload.is_empty().then_some(payload));
        for datagram in datagrams {
            if !socket.put(local.ip(), remote, datagram) {
                self.shared.counts.too_many();
            }
        }
    }

    pub(super) fn take_icmp(&mut self, packet: &[u8], parsed: &Parsed) {
        let (upper, ipv6) = (parsed.upper(packet), parsed.source.is_ipv6());
        if let Some((name, _)) = packet::echo_reply(upper, ipv6) {
            return self.shared.sockets().answered(parsed.source, name);
        }
        match packet::trouble(upper, ipv6) {
            Some((trouble, about, (from, to), number)) => {
                let flow = Flow {
                    local: SocketAddr::new(about.source, from),
                    remote: SocketAddr::new(about.destination, to),
                };
                self.hear(trouble, about.protocol, flow, number);
            }
            None => self.answer_as_nobody(packet, parsed),
        }
    }

    /// Takes note of an ICMP error about a packet of this end. It ends no connection that is established
    /// (RFC 5927 §5.2), and counts only if it names a segment that is under way (§4.1).
    fn hear(&mut self, trouble: Trouble, protocol: u8, flow: Flow, number: u32) {
        if protocol == UDP {
            if let (Trouble::Unreachable, Some(socket)) =
                (trouble, self.shared.sockets().udp(flow.local))
            {
                socket.hear(flow.remote);
            }
            return;
        }
        let Some(connection) = self.connections.get(&flow).map(Arc::clone) else { return };
        let mut inner = connection.lock();
        if !inner.corrections.is_under_way(number, &inner.snapshot()) {
            return;
        }
        match trouble {
            Trouble::TooLong(mtu) => {
                let headers = if flow.local.is_ipv4() { 40 } else { 60 };
                // No path has an MTU below 68 (RFC 791 §3.2), which a forger might name.
                inner.corrections.path_takes(mtu.max(576) - headers, self.outlet.now);
            }
            Trouble::Unreachable if inner.state() == State::SynSent => {
                inner.end = Some(End::Unreachable);
                inner.socket().abort();
            }
            Trouble::Unreachable => {}
        }
        drop(inner);
        self.activate(&connection);
    }
}
