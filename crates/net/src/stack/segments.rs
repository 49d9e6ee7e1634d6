//! Segments of TCP: they find their connection, or begin one.

use super::Stack;
use crate::connection::{Connection, Flow, Inner, stack_duration};
use crate::incoming::Incoming;
use crate::outlet::{maximum_segment_size, pure_ack};
use crate::packet::{self, Parsed, is_later};
use esp::gso::Gso;
use smoltcp::socket::tcp::State;
use std::net::SocketAddr;
use std::sync::Arc;

/// Acknowledgments that stand for one that covers many segments.
const MOST_PIECES: u32 = 32;
const SYN_OR_ACK_OR_RST: u8 = 0x16;
pub(super) const SYN: u8 = 0x02;
pub(super) const RST: u8 = 0x04;
pub(super) const ACK: u8 = 0x10;

impl Stack {
    pub(super) fn take_tcp(&mut self, packet: &[u8], parsed: &Parsed) {
        let Some((from, to)) = parsed.ports(packet) else { return };
        let flow = Flow {
            local: SocketAddr::new(parsed.destination, to),
            remote: SocketAddr::new(parsed.source, from),
        };
        if let Some(connection) = self.connections.get(&flow) {
            let connection = Arc::clone(connection);
            return self.feed(&connection, packet, parsed);
        }
        let begins = parsed.upper(packet)[13] & SYN_OR_ACK_OR_RST == SYN;
        if !begins && self.shared.sockets().is_known(flow) {
            // The last acknowledgment was lost.
            if let Some(mut ack) = packet::last_ack(packet, parsed) {
                self.outlet.send(&mut ack, Gso::NONE);
            }
            return;
        }
        if begins && self.shared.routes.is_own(parsed.destination) {
            let listener = self.shared.sockets().listener(flow.local);
            if let Some(listener) = listener {
                if let Some(connection) = self.accept(flow, &listener) {
                    self.feed(&connection, packet, parsed);
                }
                return;
            }
        }
        self.answer_as_nobody(packet, parsed);
    }

    /// Makes a connection for a SYN. `None`: too many wait, and the peer tries again.
    fn accept(&mut self, flow: Flow, listener: &Arc<Incoming>) -> Option<Arc<Connection>> {
        if !listener.has_room() {
            self.shared.counts.too_many();
            let oldest = listener.yields(self.outlet.now)?;
            let mut inner = oldest.lock();
            inner.opened = false;
            self.remove(&oldest, &mut inner, false);
        }
        let connection = self.shared.connection(flow).ok()?;
        let mut inner = connection.lock();
        let patience = stack_duration(self.shared.settings.connect_timeout);
        let socket = inner.socket();
        socket.set_timeout(Some(patience));
        socket.listen(flow.local).ok()?;
        (inner.opened, inner.before) = (true, State::Listen);
        inner.listener = Some(Arc::downgrade(listener));
        drop(inner);
        listener.expects(self.outlet.now, &connection);
        self.connections.insert(flow, Arc::clone(&connection));
        Some(connection)
    }

    /// Gives a packet to its connection.
    fn feed(&mut self, connection: &Arc<Connection>, packet: &[u8], parsed: &Parsed) {
        let mut inner = connection.lock();
        let upper = parsed.upper(packet);
        let number = packet::long(upper, 4);
        if upper[13] & RST != 0 && inner.is_guess(number) {
            return self.challenge(&mut inner, packet, parsed);
        }
        inner.hears(number, self.outlet.now);
        let acknowledged = pure_ack(upper);
        let expected = acknowledged.and_then(|_| inner.renumbers(number));
        if upper[13] & ACK != 0 {
            let payload = upper.len().saturating_sub(usize::from(upper[12] >> 4) * 4);
            let begins = expected.unwrap_or(number);
            let segment = [begins, begins.wrapping_add(payload as u32)];
            let (acknowledged, window) = (packet::long(upper, 8), packet::word(upper, 14));
            inner.acknowledges(segment, acknowledged, window, self.outlet.now);
        }
        let renumbered = expected.map(|expected| numbered(packet, parsed, expected));
        let segment = renumbered.as_deref().unwrap_or(&packet[..parsed.end]);
        if let Some(acknowledged) = acknowledged {
            self.feed_pieces(&mut inner, segment, parsed, acknowledged);
        }
        let began = [State::Listen, State::SynSent].contains(&inner.state());
        self.feed_one(&mut inner, segment);
        if expected.is_some_and(|expected| is_later(expected, number)) {
            // With the number before the expected one, a peer also asks whether this end lives.
            self.feed_one(&mut inner, &packet[..parsed.end]);
        }
        if began && [State::SynReceived, State::Established].contains(&inner.state()) {
            // This was the peer's SYN. No later one counts.
            inner.segment_len = maximum_segment_size(upper);
            inner.first = Some(number.wrapping_add(1));
        }
        let failed = self.settle(connection, &mut inner, true);
        drop(inner);
        if !failed {
            self.activate(connection);
        }
    }

    /// Asks the peer whether it has sent a reset, by an acknowledgment of all that has come (RFC 9293 §3.10.7.4).
    /// smoltcp sends one, at most once a second, for an acknowledgment of octets that were never sent.
    fn challenge(&mut self, inner: &mut Inner, packet: &[u8], parsed: &Parsed) {
        const NEVER_SENT: u32 = 1 << 30;
        let Some(sent_up_to) = inner.sent_up_to else { return };
        let mut segment = packet[..parsed.end].to_vec();
        let upper = &mut segment[parsed.transport..];
        upper[8..12].copy_from_slice(&sent_up_to.wrapping_add(NEVER_SENT).to_be_bytes());
        upper[13] = ACK;
        self.feed_one(inner, &segment);
    }

    /// An acknowledgment of many segments lets the congestion window grow by one (RFC 5681 §3.1), because without
    /// offload each few segments have one of their own. So it is given to the stack in pieces, as if it had come so
    /// (RFC 3465).
    fn feed_pieces(&mut self, inner: &mut Inner, packet: &[u8], parsed: &Parsed, number: u32) {
        let Some(before) = inner.acknowledged.replace(number) else { return };
        let (covered, step) = (number.wrapping_sub(before), u32::from(inner.segment_len));
        let Some(in_flight) = inner.sent_up_to.map(|end| end.wrapping_sub(before)) else { return };
        if covered > in_flight {
            return;
        }
        let pieces = (covered / step.max(1)).min(MOST_PIECES);
        // Something else than the congestion window limits sending.
        let queued = u32::try_from(inner.socket().send_queue()).unwrap_or(u32::MAX);
        if pieces < 2 || queued <= in_flight {
            return;
        }
        let mut piece = packet[..parsed.end].to_vec();
        for index in 1..pieces {
            let part = before.wrapping_add(covered / pieces * index);
            piece[parsed.transport + 8..parsed.transport + 12].copy_from_slice(&part.to_be_bytes());
            self.feed_one(inner, &piece);
        }
    }

    fn feed_one(&mut self, inner: &mut Inner, packet: &[u8]) {
        self.poll(inner, Some(packet), |interface, now, port, set| {
            interface.poll_ingress_single(now, port, set);
        });
    }
}

/// A segment with another sequence number. Its checksum is verified already.
fn numbered(packet: &[u8], parsed: &Parsed, number: u32) -> Vec<u8> {
    let mut segment = packet[..parsed.end].to_vec();
    let at = parsed.transport + 4;
    segment[at..at + 4].copy_from_slice(&number.to_be_bytes());
    segment
}
