//! Everything that a worker waits for.

use super::event_fd::EventFd;
use super::queue_pair::{QueuePair, Wire};
use super::requests::{Orders, Release};
use super::waiting::{Patience, Source, Sources, Wait};
use socket2::Socket;
use std::io;
use std::sync::Arc;

/// The orders to a worker, its bells, and its traffic.
pub(super) struct Watched<'a> {
    sources: Sources<'a>,
    orders: (Source, &'a Orders),
    release: Option<(Source, &'a Release)>,
    freed: Option<(Source, &'a EventFd)>,
    traffic: Vec<Traffic<'a>>,
    patience: Patience,
}

/// A source of packets: the device, or a socket.
#[derive(Clone, Copy)]
pub(super) struct Traffic<'a> {
    source: Source,
    pub queue_pair: &'a Arc<QueuePair>,
    /// `None`: the device.
    pub socket: Option<(Wire, &'a Socket)>,
}

/// A worker obeys it before it looks at its traffic.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    Nothing,
    /// Send the packets that were held for an SA.
    Release,
    End,
}

impl<'a> Watched<'a> {
    /// `release` is for the worker that sends packets which were held for an SA, and `freed` rings for a worker that
    /// has found no room.
    pub(super) fn new(
        queue_pairs: &'a [Arc<QueuePair>],
        wait: Wait,
        orders: &'a Orders,
        release: Option<&'a Release>,
        freed: Option<&'a EventFd>,
    ) -> io::Result<Self> {
        let mut sources = Sources::new()?;
        let orders = (sources.add(orders)?, orders);
        let release = match release {
            Some(release) => Some((sources.add(&release.bell)?, release)),
            None => None,
        };
        let freed = match freed {
            Some(bell) => Some((sources.add(bell)?, bell)),
            None => None,
        };
        // Last, so that one can wait for the others alone.
        let mut traffic = Vec::new();
        for queue_pair in queue_pairs {
            let source = sources.add(&queue_pair.tun)?;
            traffic.push(Traffic { source, queue_pair, socket: None });
            for (wire, socket) in queue_pair.readable() {
                let source = sources.add(socket)?;
                traffic.push(Traffic { source, queue_pair, socket: Some((wire, socket)) });
            }
        }
        Ok(Self { sources, orders, release, freed, traffic, patience: Patience::new(wait) })
    }

    /// Waits until something is there. Without `room` to read to, traffic is of no interest.
    pub(super) fn wait(&mut self, room: bool) -> io::Result<Request> {
        match self.freed {
            Some((freed, _)) if !room => self.sources.wait_up_to(freed, &mut self.patience)?,
            _ => self.sources.wait(&mut self.patience)?,
        }
        let (ordered, orders) = self.orders;
        if self.sources.ready(ordered) && orders.answer_call() {
            return Ok(Request::End);
        }
        if let Some((freed, bell)) = self.freed
            && self.sources.ready(freed)
        {
            bell.quieten();
        }
        Ok(match self.release {
            Some((rung, release)) if self.sources.ready(rung) && release.take() => Request::Release,
            _ => Request::Nothing,
        })
    }

    /// All traffic, each with whether it had something at the last wait.
    pub(super) fn traffic(&self) -> impl Iterator<Item = (Traffic<'a>, bool)> {
        self.traffic.iter().map(|traffic| (*traffic, self.sources.ready(traffic.source)))
    }

    /// Takes note of what a round has moved.
    pub(super) fn moved(&mut self, packets: usize) {
        self.patience.moved(packets);
    }
}
