//! The last stages of the pipeline, which have the batches in their order.

use super::batches::{Incoming, Outgoing};
use super::{Sink, count};
use crate::ah;
use crate::event_fd::EventFd;
use crate::pool::Pool;
use crate::queue_pair::Wire;
use crate::stage::Stage;
use crate::worker::Shared;
use esp::queue::{Coalesce, ReceiveQueue};
use floor::datagrams::Arena;
use std::sync::Arc;
use std::time::Instant;

/// The last stage of the way out.
pub(super) fn send_out(pool: &Arc<Pool<Outgoing>>, freed: &Arc<EventFd>) -> Sink<Box<Outgoing>> {
    let (pool, freed) = (Arc::clone(pool), Arc::clone(freed));
    let mut arena = Arena::new();
    Box::new(move |mut batch| {
        if !batch.send.is_empty() {
            let begun = Instant::now();
            batch.queue_pair.sockets.send(&batch.send, &mut arena);
            count(Stage::Send, batch.send.packets(), batch.send.len(), begun);
            batch.send.clear();
        }
        batch.under_way = None;
        if pool.give(batch) {
            freed.ring();
        }
    })
}

/// The last stage of the way in.
pub(super) fn write_out(
    shared: &Arc<Shared>,
    pool: &Arc<Pool<Incoming>>,
    freed: &Arc<EventFd>,
    coalesce: Coalesce,
) -> Sink<Box<Incoming>> {
    let (shared, pool, freed) = (Arc::clone(shared), Arc::clone(pool), Arc::clone(freed));
    let mut again = ReceiveQueue::new(0, coalesce);
    Box::new(move |mut batch| {
        let begun = Instant::now();
        let (mut packets, mut octets) = (0, 0);
        {
            let Incoming { queue_pair, wire, ring, received, opened, receive } = &mut *batch;
            let mut write = |packet: &[u8], offload| {
                packets += 1;
                octets += packet.len();
                shared.write(&queue_pair.tun, packet, offload);
            };
            // AH has no way to be opened ahead of its turn.
            let open_ah = match wire {
                Wire::Ah4 => Some(ah::from_v4 as fn(&Shared, Instant, &_, &mut _)),
                Wire::Ah6 => Some(ah::from_v6 as _),
                Wire::Udp | Wire::Native4 | Wire::Native6 => None,
            };
            if let Some(open) = open_ah {
                let messages = (0..*received).filter_map(|index| ring.datagram(index));
                messages.for_each(|message| open(&shared, begun, &message, receive));
                receive.packets().for_each(|(packet, offload)| write(packet, offload));
            } else {
                shared.datapath.settle(
                    begun,
                    opened,
                    receive,
                    &|run| ring.datagram(run).map(|m| m.octets).unwrap_or_default(),
                    &mut again,
                    &mut write,
                );
            }
            receive.clear();
        }
        if packets > 0 {
            count(Stage::Write, packets, octets, begun);
        }
        if pool.give(batch) {
            freed.ring();
        }
    })
}
