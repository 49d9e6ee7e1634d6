//! The messages that come to the sockets of IKE, and that no worker reads.

use super::worker::Shared;
use esp::queue::{Coalesce, ReceiveQueue};
use floor::port::{Arrived, IkeDatagram, Strays};
use host::netlink::Family;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Hands on the messages that the receivers of the port take for this plane.
pub(super) struct OfReceivers {
    shared: Arc<Shared>,
    /// ESP that the kernel has put together with IKE.
    queue: Mutex<ReceiveQueue>,
}

impl OfReceivers {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        let queue = Mutex::new(ReceiveQueue::new(0, Coalesce::default()));
        Self { shared: Arc::clone(shared), queue }
    }
}

impl Strays for OfReceivers {
    fn ike(&self, datagram: IkeDatagram) {
        (self.shared.hooks.ike)(datagram);
    }

    fn esp(&self, now: Instant, arrived: &Arrived<'_>) {
        let Self { shared, queue } = self;
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Arrived { octets, segment_len, arrival, .. } = *arrived;
        shared.datapath.decapsulate_run(now, octets, segment_len, arrival, &mut queue);
        for (packet, offload) in queue.packets() {
            shared.tun_writer.write(packet, offload);
        }
        queue.clear();
    }

    fn too_long(&self, now: Instant, family: Family, message: &[u8]) {
        // The datapath counts messages that are not believed.
        let _ = match family {
            Family::V4 => self.shared.datapath.take_icmp_v4(now, message),
            Family::V6 => self.shared.datapath.take_icmp_v6(now, message),
        };
    }
}
