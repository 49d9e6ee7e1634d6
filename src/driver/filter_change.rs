//! Changing the filter for traffic outside of tunnels, one change after the other. Another thread waits for the plane's
//! part, so that the engine answers peers meanwhile.

use super::handle::Reply;
use esp::filter::Filter;
use esp::plane::{DataPlane, Filtering, PlaneError};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

/// The filters that are to replace the present one. The first of them is under way.
pub(super) struct FilterChanges {
    queue: VecDeque<FilterChange>,
    done: mpsc::UnboundedSender<FilterDone>,
}

struct FilterChange {
    filter: Arc<Filter>,
    reply: Reply<Result<(), PlaneError>>,
}

/// The result of the plane's work for the first of the changes.
pub(super) struct FilterDone(Result<(), PlaneError>);

impl FilterChanges {
    /// None yet, and the end of the channel that tells when the plane's work is done.
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<FilterDone>) {
        let (done, told) = mpsc::unbounded_channel();
        (Self { queue: VecDeque::new(), done }, told)
    }

    /// Begins to change the filter, once earlier changes are done.
    pub(super) fn begin(
        &mut self,
        plane: &mut dyn DataPlane,
        filter: Arc<Filter>,
        reply: Reply<Result<(), PlaneError>>,
    ) {
        self.queue.push_back(FilterChange { filter, reply });
        if self.queue.len() == 1 {
            self.begin_next(plane);
        }
    }

    /// Ends the change that is under way.
    pub(super) fn finish(&mut self, plane: &mut dyn DataPlane, FilterDone(outcome): FilterDone) {
        let finished = plane.filtering().finish_filter(outcome);
        if let Some(FilterChange { reply, .. }) = self.queue.pop_front() {
            match finished {
                Ok(rest) => _ = spawn_blocking(move || drop(reply.send(rest.run()))),
                // The caller may be gone.
                Err(error) => _ = reply.send(Err(error)),
            }
        }
        self.begin_next(plane);
    }

    fn begin_next(&mut self, plane: &mut dyn DataPlane) {
        while let Some(FilterChange { filter, .. }) = self.queue.front() {
            match plane.filtering().begin_filter(Arc::clone(filter)) {
                Ok(work) => {
                    let done = self.done.clone();
                    // The engine may have stopped.
                    spawn_blocking(move || drop(done.send(FilterDone(work.run()))));
                    return;
                }
                Err(error) => {
                    let refused = self.queue.pop_front();
                    if let Some(FilterChange { reply, .. }) = refused {
                        let _ = reply.send(Err(error));
                    }
                }
            }
        }
    }
}
