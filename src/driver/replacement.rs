//! Replacing the policy. First the plane prepares for the new tunnels, then the engine replaces the policy, and then
//! the plane lets go of the former tunnels. Another thread waits for the plane's part, so that the engine answers peers
//! meanwhile.

use super::handle::Reply;
use super::{Completion, Driver, PlaneHooks};
use esp::plane::DataPlane;
use policy::{InvalidPolicy, Policy};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

/// The policies that are to replace the present one. The plane prepares for the first of them.
pub(super) struct Replacements {
    queue: VecDeque<Replacement>,
    prepared: mpsc::UnboundedSender<Prepared>,
}

struct Replacement {
    policy: Arc<Policy>,
    reply: Reply<Result<(), InvalidPolicy>>,
}

/// The plane is prepared for the first of the policies.
pub(super) struct Prepared;

impl Replacements {
    /// None yet, and the end of the channel that tells when the plane is prepared.
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Prepared>) {
        let (prepared, told) = mpsc::unbounded_channel();
        (Self { queue: VecDeque::new(), prepared }, told)
    }
}

impl<P: DataPlane> Driver<P> {
    /// Begins to replace the policy, once earlier replacements are done.
    pub(super) fn begin_replacement(
        &mut self,
        policy: Arc<Policy>,
        reply: Reply<Result<(), InvalidPolicy>>,
    ) {
        let policy = (self.plane_hooks.complete_policy)(policy);
        // The plane is to prepare for no policy that the engine is going to refuse.
        if let Err(invalid) = policy.validate() {
            return drop(reply.send(Err(invalid)));
        }
        self.replacements.queue.push_back(Replacement { policy, reply });
        if self.replacements.queue.len() == 1 {
            self.prepare_replacement();
        }
    }

    /// Replaces the policy for which the plane is prepared.
    pub(super) fn finish_replacement(&mut self, now: Instant, Prepared: Prepared) {
        if let Some(ready) = (self.plane_hooks.retry_preparation)(self.engine.plane()) {
            return self.wait_until(ready);
        }
        let Some(Replacement { policy, reply }) = self.replacements.queue.pop_front() else {
            return;
        };
        let replaced = self.engine.replace_policy(now, Arc::clone(&policy));
        if replaced.is_ok() {
            let remarks = (self.plane_hooks.follow_policy)(&policy);
            remarks.into_iter().for_each(|event| self.events.send(event));
            self.jobs.replace_policy(policy);
        }
        let PlaneHooks { forget_former_policy, .. } = self.plane_hooks;
        let settled = forget_former_policy(self.engine.plane());
        spawn_blocking(move || {
            settled();
            // The caller may be gone.
            let _ = reply.send(replaced);
        });
        self.prepare_replacement();
    }

    fn prepare_replacement(&mut self) {
        let Some(Replacement { policy, .. }) = self.replacements.queue.front() else { return };
        let PlaneHooks { expect_policy, .. } = self.plane_hooks;
        let ready = expect_policy(self.engine.plane(), policy);
        self.wait_until(ready);
    }

    fn wait_until(&self, ready: Completion) {
        let prepared = self.replacements.prepared.clone();
        spawn_blocking(move || {
            ready();
            // The engine may have stopped.
            let _ = prepared.send(Prepared);
        });
    }
}
