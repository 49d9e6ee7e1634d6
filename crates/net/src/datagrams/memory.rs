//! Datagrams between two ends in one process, with the faults of a network.

use super::{Datagrams, Incoming, Outgoing};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Datagrams that wait in one direction; more are lost.
const ROOM: usize = 1 << 16;

/// The network between two ends: it decides about each datagram, by the number of the datagram in its direction.
pub type Wire = Arc<dyn Fn(u64) -> Fate + Send + Sync>;

/// The fate of one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Arrives,
    /// It is lost.
    Lost,
    /// It arrives behind the one after it.
    Overtaken,
    /// It arrives twice.
    Twice,
}

/// One of two ends that are connected to each other.
pub struct Memory {
    here: SocketAddr,
    wire: Wire,
    outward: Arc<Mutex<Direction>>,
    inward: Arc<Mutex<Direction>>,
}

/// One direction.
#[derive(Default)]
struct Direction {
    runs: VecDeque<Run>,
    /// Datagrams so far.
    count: u64,
    overtaken: Option<Run>,
    reader: Option<Waker>,
}

struct Run {
    remote: SocketAddr,
    octets: Vec<u8>,
    segment_len: usize,
}

impl Memory {
    /// Two ends with these addresses.
    pub fn pair(addresses: [SocketAddr; 2], wire: Wire) -> [Self; 2] {
        let directions: [Arc<Mutex<Direction>>; 2] = Default::default();
        [0, 1].map(|end| Self {
            here: addresses[end],
            wire: Arc::clone(&wire),
            outward: Arc::clone(&directions[end]),
            inward: Arc::clone(&directions[1 - end]),
        })
    }
}

fn lock(direction: &Mutex<Direction>) -> MutexGuard<'_, Direction> {
    direction.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Direction {
    fn carry(&mut self, fate: Fate, run: Run) {
        match fate {
            Fate::Lost => {}
            Fate::Overtaken if self.overtaken.is_none() => {
                self.overtaken = Some(run);
                return;
            }
            Fate::Twice => {
                let again = Run { octets: run.octets.clone(), ..run };
                self.runs.extend([again, run]);
            }
            Fate::Arrives | Fate::Overtaken => self.runs.push_back(run),
        }
        self.runs.extend(self.overtaken.take());
    }
}

impl Datagrams for Memory {
    fn try_send(&self, outgoing: &Outgoing<'_>) -> io::Result<()> {
        let mut direction = lock(&self.outward);
        for octets in outgoing.octets.chunks(outgoing.segment_len) {
            let fate =
                if direction.runs.len() < ROOM { (self.wire)(direction.count) } else { Fate::Lost };
            direction.count += 1;
            let run = Run { remote: self.here, octets: octets.to_vec(), segment_len: octets.len() };
            direction.carry(fate, run);
        }
        if let Some(reader) = direction.reader.take() {
            reader.wake();
        }
        Ok(())
    }

    fn poll_writable(&self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(Incoming<'_>),
    ) -> Poll<io::Result<()>> {
        let mut direction = lock(&self.inward);
        if direction.runs.is_empty() {
            direction.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let runs = std::mem::take(&mut direction.runs);
        drop(direction);
        for Run { remote, octets, segment_len } in &runs {
            take(Incoming {
                local: self.here,
                remote: *remote,
                octets,
                segment_len: *segment_len,
                tos: None,
            });
        }
        Poll::Ready(Ok(()))
    }
}
