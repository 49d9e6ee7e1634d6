//! Workers that are frozen: no thread carries a packet, and the packets that come wait in the device and the sockets. The
//! device and the sockets stay as they are, so that the same process, or another one that has got them, goes on.

use super::plane::Plane;
use super::{State, Workers};
use crate::queue_pair::QueuePair;
use crate::worker::Shared;
use esp::plane::PlaneError;
use floor::refused;
use host::handover::Descriptors;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The pause between two calls of threads that have not answered.
const PAUSE: Duration = Duration::from_micros(100);

/// The workers of a device, as another process goes on with its packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrozenWorkers {
    /// They worked: the sockets take packets.
    pub worked: bool,
    /// They are to work.
    pub works: bool,
    /// For each queue pair: routers may fragment the packets that its socket of IPv4 sends now.
    pub fragmenting: Vec<bool>,
    /// Datagrams that full sockets had no room for.
    pub unreceived: u64,
    /// Datagrams that the sockets have not taken because no SA was up.
    pub declined: u64,
    /// The part of the sockets' drops that has been counted.
    pub accounted: u64,
}

/// The work of the workers before, and that which is theirs once they are thawed.
#[derive(Clone, Copy)]
pub(super) struct Frozen {
    /// They worked when they were frozen: the device and the sockets are open.
    worked: bool,
    /// They are to work.
    pub(super) works: bool,
}

impl Workers {
    /// Has all threads finish the packets that they have begun with, and end. Afterwards none carries a packet until the
    /// workers are [thawed](Self::thaw). Whatever is changed about them meanwhile is in force then.
    ///
    /// # Errors
    /// If a thread is stuck, which is waited for no longer than `limit`. Everything is then as before.
    pub(crate) fn freeze(&self, limit: Duration) -> Result<(), PlaneError> {
        let mut state = self.lock();
        if state.frozen.is_some() {
            return Ok(());
        }
        // A thread that is stuck would be waited for without a limit.
        let deadline = Instant::now() + limit;
        let mut calls = 0;
        loop {
            let stuck = state.silent();
            calls += 1;
            match stuck {
                // The first call answers for those before it.
                None if calls > 1 => break,
                Some(name) if Instant::now() >= deadline => {
                    let stuck = io::Error::new(io::ErrorKind::TimedOut, "it does not answer");
                    return Err(refused(format!("waiting for the worker {name}"), &stuck));
                }
                _ => std::thread::sleep(PAUSE),
            }
        }
        let works = state.team.is_some();
        state.disband();
        state.frozen = Some(Frozen { worked: works, works });
        Ok(())
    }

    /// Has the workers go on.
    ///
    /// # Errors
    /// If the system refuses a thread. Then no traffic passes until they are to [begin](Self::begin) again.
    pub(crate) fn thaw(&self) -> Result<(), PlaneError> {
        let mut state = self.lock();
        let Some(Frozen { worked, works }) = state.frozen.take() else { return Ok(()) };
        match (worked, works) {
            (true, true) => state.widen().and_then(|()| state.assemble()),
            (true, false) => {
                state.close();
                Ok(())
            }
            (false, true) => {
                drop(state);
                self.begin()
            }
            (false, false) => Ok(()),
        }
    }

    /// The state of workers that are frozen; `None` if they serve no device.
    pub(crate) fn frozen(&self) -> Option<FrozenWorkers> {
        let mut state = self.lock();
        let (open, frozen) = (state.takes_packets(), state.frozen?);
        let plane = state.plane.as_mut()?;
        plane.account(open);
        Some(FrozenWorkers {
            worked: frozen.worked,
            works: frozen.works,
            fragmenting: plane.queue_pairs.iter().map(|q| q.sockets.is_fragmenting()).collect(),
            unreceived: plane.unreceived,
            declined: plane.declined,
            accounted: plane.accounted,
        })
    }

    /// Gives copies of all queues and sockets away.
    ///
    /// # Errors
    /// If the system has no more descriptors.
    pub(crate) fn give(&self, to: &mut Descriptors) -> io::Result<()> {
        let state = self.lock();
        let Some(plane) = &state.plane else { return Ok(()) };
        for (number, queue_pair) in plane.queue_pairs.iter().enumerate() {
            queue_pair.give(number, to)?;
        }
        plane.queue_pairs.first().map_or(Ok(()), |first| first.sockets.raw().give(to))
    }

    /// Lets them work for a plane that another process has frozen, once they are thawed.
    ///
    /// # Errors
    /// If they serve another one.
    pub(crate) fn adopt(
        &self,
        device: &str,
        shared: Arc<Shared>,
        queue_pairs: Vec<Arc<QueuePair>>,
        frozen: &FrozenWorkers,
    ) -> Result<(), PlaneError> {
        let mut state = self.lock();
        state.may_serve()?;
        let FrozenWorkers { unreceived, declined, accounted, .. } = *frozen;
        let plane = Plane::of(device, shared, queue_pairs);
        state.plane = Some(Plane { unreceived, declined, accounted, ..plane });
        state.frozen = Some(Frozen { worked: frozen.worked, works: frozen.works });
        Ok(())
    }
}

impl State {
    /// Returns `true` if the sockets take packets, for a thread that reads them now or later.
    pub(super) fn takes_packets(&self) -> bool {
        self.team.is_some() || self.frozen.is_some_and(|frozen| frozen.worked)
    }

    /// Calls every thread. Returns the name of one that has not answered the call before.
    fn silent(&self) -> Option<String> {
        let threads = self.team.iter().flat_map(|team| &team.threads);
        // All of them are called.
        let silent: Vec<_> = threads.filter(|thread| !thread.orders.call()).collect();
        silent.first().map(|thread| thread.name.clone())
    }
}
