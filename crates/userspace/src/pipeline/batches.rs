//! The batches of the pipeline, and the work on one.

use crate::arriving::sort;
use crate::crypto_engine::CryptoEngine;
use crate::queue_pair::{QueuePair, Wire};
use crate::under_way::{Batch, Batches};
use crate::worker::{DEVICE_BATCH, LONGEST, Shared};
use esp::datapath::stages::{Admitted, Opened};
use esp::queue::{ReceiveQueue, SendQueue};
use floor::datagrams::{BATCH, Ring};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Octets of a queue of one batch: what the longest batch fills, and a little.
const QUEUE: usize = 1 << 18;

/// A batch on its way out.
pub(super) struct Outgoing {
    pub(super) queue_pair: Arc<QueuePair>,
    pub(super) buffer: Vec<u8>,
    pub(super) used: usize,
    pub(super) packets: Vec<(Range<usize>, Admitted)>,
    pub(super) send: SendQueue,
    /// Until it is sent.
    pub(super) under_way: Option<Batch<Arc<Batches>>>,
}

/// A batch on its way in.
pub(super) struct Incoming {
    pub(super) queue_pair: Arc<QueuePair>,
    pub(super) wire: Wire,
    pub(super) ring: Ring,
    pub(super) received: usize,
    pub(super) opened: Opened,
    pub(super) receive: ReceiveQueue,
}

impl Outgoing {
    pub(super) fn new(queue_pair: &Arc<QueuePair>) -> Self {
        Self {
            queue_pair: Arc::clone(queue_pair),
            // Pages that no packet reaches are never touched and cost nothing.
            buffer: vec![0; 2 * LONGEST],
            used: 0,
            packets: Vec::with_capacity(DEVICE_BATCH),
            send: SendQueue::new(QUEUE),
            under_way: None,
        }
    }

    /// Takes a packet that was admitted before the batch began.
    pub(super) fn carry(&mut self, packet: &[u8], admitted: Admitted) {
        let range = self.used..self.used + packet.len();
        self.buffer[range.clone()].copy_from_slice(packet);
        self.used = range.end;
        self.packets.push((range, admitted));
    }

    pub(super) fn seal(&mut self, shared: &Shared, now: Instant) {
        for (range, admitted) in self.packets.drain(..) {
            shared.datapath.seal(now, admitted, &mut self.buffer[range], &mut self.send);
        }
        self.used = 0;
    }
}

impl Incoming {
    pub(super) fn new(queue_pair: &Arc<QueuePair>) -> Self {
        Self {
            queue_pair: Arc::clone(queue_pair),
            wire: Wire::Udp,
            ring: Ring::new(BATCH),
            received: 0,
            opened: Opened::default(),
            receive: ReceiveQueue::new(QUEUE, queue_pair.tun.coalesce()),
        }
    }

    /// Returns `true` if one of the messages, or a packet in one of them, is large enough for the engine.
    pub(super) fn is_for(&self, engine: &CryptoEngine) -> bool {
        let mut messages = (0..self.received).filter_map(|index| self.ring.datagram(index));
        messages.any(|message| engine.takes(message.segment_len))
    }

    /// Returns how many octets there were.
    pub(super) fn open(&mut self, shared: &Shared) -> usize {
        let port = self.queue_pair.sockets.port().number();
        let (opened, receive) = (&mut self.opened, &mut self.receive);
        let mut octets = 0;
        for index in 0..self.received {
            let Some(message) = self.ring.datagram(index) else { continue };
            octets += message.octets.len();
            sort(self.wire, &message, port, &shared.hooks, &mut |esp| {
                let place = (index, esp.at);
                let (octets, len) = (esp.octets, esp.segment_len);
                shared.datapath.open_ahead(place, octets, len, esp.arrival, opened, receive);
            });
        }
        octets
    }
}
