//! The plane that the threads serve: its device and its sockets.

use crate::queue_pair::QueuePair;
use crate::socket_filter::fill;
use crate::worker::{self, Shared};
use esp::plane::PlaneError;
use esp::queue::SendQueue;
use floor::refused;
use host::namespace::Namespace;
use std::sync::Arc;
use std::time::Instant;

/// Most packets that are dropped together because nobody reads them: several times what the device holds.
const UNREAD: usize = 4096;

/// The plane that the threads serve.
pub(super) struct Plane {
    pub(super) device: String,
    pub(super) namespace: Option<Namespace>,
    pub(super) shared: Arc<Shared>,
    pub(super) queue_pairs: Vec<Arc<QueuePair>>,
    /// Datagrams that full sockets had no room for.
    pub(super) unreceived: u64,
    /// Datagrams that the sockets have not taken because no SA was up.
    pub(super) declined: u64,
    /// The part of the sockets' drops that has been counted.
    pub(super) accounted: u64,
}

impl Plane {
    /// A plane in the network namespace of the calling thread, which has lost nothing.
    pub(super) fn of(device: &str, shared: Arc<Shared>, queue_pairs: Vec<Arc<QueuePair>>) -> Self {
        let namespace = Namespace::current()
            .inspect_err(|error| tracing::debug!(%error, "the network namespace has no name"))
            .ok();
        let device = device.to_owned();
        let (unreceived, declined, accounted) = (0, 0, 0);
        Self { device, namespace, shared, queue_pairs, unreceived, declined, accounted }
    }

    /// Begins to take packets.
    pub(super) fn open(&mut self) -> Result<(), PlaneError> {
        self.account(false);
        self.discard_unread()?;
        let Some(first) = self.queue_pairs.first() else { return Ok(()) };
        first.reopen().map_err(|e| refused("opening the sockets of ESP".into(), &e))?;
        first.sockets.leave_to_kernel()
    }

    /// Nobody has read the device since the last SA went, and its packets have waited for none.
    pub(super) fn discard_unread(&self) -> Result<(), PlaneError> {
        let Some(first) = self.queue_pairs.first() else { return Ok(()) };
        let (mut packet, mut none) = (vec![0; worker::LONGEST], SendQueue::new(0));
        // The bound keeps an endless sender from being waited for.
        for _ in 0..UNREAD {
            let read = first.tun.read(&mut packet);
            let read = read.map_err(|e| refused("reading the TUN device".into(), &e))?;
            let Some((length, offload)) = read else { break };
            let packet = &mut packet[..length];
            let datapath = &self.shared.datapath;
            let _ = datapath.encapsulate(Instant::now(), packet, offload, &mut none);
        }
        Ok(())
    }

    /// Takes no more.
    pub(super) fn close(&mut self) {
        self.account(true);
        let Some(first) = self.queue_pairs.first() else { return };
        self.queue_pairs.iter().for_each(|queue_pair| queue_pair.close());
        if let Err(error) = first.sockets.port().steer(1) {
            tracing::debug!(%error, "steering ESP to the first queue_pair");
        }
    }

    /// Gives up all queue pairs but the first.
    pub(super) fn narrow(&mut self) {
        self.account(false);
        self.queue_pairs.truncate(1);
        self.accounted = self.dropped();
    }

    /// Puts what the sockets have dropped down to one cause or the other.
    pub(super) fn account(&mut self, open: bool) {
        let dropped = self.dropped();
        let more = dropped.saturating_sub(self.accounted);
        *(if open { &mut self.unreceived } else { &mut self.declined }) += more;
        self.accounted = dropped;
    }

    pub(super) fn widen(&mut self, wanted: usize) -> Result<(), PlaneError> {
        let Some(first) = self.queue_pairs.first().map(Arc::clone) else { return Ok(()) };
        while self.queue_pairs.len() < wanted {
            let queue_pair = match &self.namespace {
                Some(namespace) => namespace.inside(|| first.another()).map_err(|e| {
                    refused("entering the network namespace of the plane".into(), &e)
                })??,
                None => first.another()?,
            };
            self.queue_pairs.push(Arc::new(queue_pair));
        }
        first.sockets.port().steer(self.queue_pairs.len())
    }

    /// The total of packets that the sockets have dropped.
    pub(super) fn dropped(&self) -> u64 {
        let sockets = self.queue_pairs.iter().flat_map(|queue_pair| queue_pair.readable());
        sockets.map(|(_, socket)| fill(socket).dropped).sum()
    }
}
