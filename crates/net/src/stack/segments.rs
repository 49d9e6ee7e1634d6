//! Segments of TCP: they find their connection, or begin one.

use super::Stack;
use crate::connection::{Connection, Flow, Inner, stack_duration};
use crate::corrections::segment::{ACK, Delivery, RST, SYN, Segment};
use crate::incoming::Incoming;
use crate::packet::{self, Parsed};
use esp::gso::Gso;
use smoltcp::socket::tcp::State;
use std::net::SocketAddr;
use std::sync::Arc;

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
        let begins = parsed.upper(packet)[13] & (SYN | ACK | RST) == SYN;
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
            inner.before = None;
            self.remove(&oldest, &mut inner, false);
        }
        let connection = self.shared.connection(flow).ok()?;
        let mut inner = connection.lock();
        let patience = stack_duration(self.shared.settings.connect_timeout);
        let socket = inner.socket();
        socket.set_timeout(Some(patience));
        socket.listen(flow.local).ok()?;
        inner.before = Some(State::Listen);
        inner.listener = Some(Arc::downgrade(listener));
        drop(inner);
        listener.expects(self.outlet.now, &connection);
        self.connections.insert(flow, Arc::clone(&connection));
        Some(connection)
    }

    /// Gives a packet to its connection.
    fn feed(&mut self, connection: &Arc<Connection>, packet: &[u8], parsed: &Parsed) {
        let mut inner = connection.lock();
        let segment = Segment::read(parsed.upper(packet));
        let snapshot = inner.snapshot();
        if let Some(challenge) = inner.corrections.challenge(&segment, &snapshot) {
            return self.deliver(&mut inner, packet, parsed, [challenge]);
        }
        let deliveries = inner.corrections.arrived(&segment, &snapshot, self.outlet.now);
        self.deliver(&mut inner, packet, parsed, deliveries);
        let began = [State::Listen, State::SynSent].contains(&snapshot.state);
        if began && [State::SynReceived, State::Established].contains(&inner.state()) {
            inner.corrections.began(&segment);
        }
        let failed = self.settle(connection, &mut inner, true);
        drop(inner);
        if !failed {
            self.activate(connection);
        }
    }

    /// Gives smoltcp segments in place of one that has arrived.
    fn deliver(
        &mut self,
        inner: &mut Inner,
        packet: &[u8],
        parsed: &Parsed,
        deliveries: impl IntoIterator<Item = Delivery>,
    ) {
        let packet = &packet[..parsed.end];
        let arrived = Segment::read(parsed.upper(packet)).delivery();
        // Most segments are given as they have arrived.
        let mut copy = Vec::new();
        for delivery in deliveries {
            let given = if delivery == arrived {
                packet
            } else {
                if copy.is_empty() {
                    copy.extend_from_slice(packet);
                }
                delivery.write(&mut copy[parsed.transport..]);
                &copy
            };
            self.poll(inner, Some(given), |interface, now, port, set| {
                interface.poll_ingress_single(now, port, set);
            });
        }
    }
}
