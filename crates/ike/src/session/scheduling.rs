//! The tasks of a session: which enter the queue, and which of them can start.

use super::Session;
use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::deadlines::after;
use crate::effect::Effects;
use crate::sa::active::Active;
use crate::sa::child::ChildState;
use crate::sa::window::Until;
use crate::sa::{IkeSa, Phase};
use crate::task::Task;
use crate::wire::header::IkeSpi;
use esp::plane::Spi;
use std::time::{Duration, Instant};

/// After this many TEMPORARY_FAILUREs in a row the two sides' views have parted (RFC 7296 §2.25).
const TEMPORARY_FAILURES: u32 = 20;

impl Session {
    /// Takes the first task that can start out of the queue, with the IKE SA, by local SPI, that is to carry it.
    pub fn take_startable(&mut self) -> Option<(IkeSpi, Task)> {
        let mut index = 0;
        while !self.is_over() && index < self.tasks.len() {
            // However many wait for the answer that is awaited.
            let serving = self.serving_sa();
            if self.tasks.are_general() && !serving.is_some_and(IkeSa::may_ask) {
                return None;
            }
            let carrier = match &self.tasks[index] {
                Task::DeleteIke(spi) | Task::RekeyIke(spi) => self.sa(*spi),
                Task::UpdateAddresses | Task::VerifyAddress => self.known_to_the_peer(),
                _ => serving,
            };
            // Its IKE SA is gone: so is the reason.
            let Some(carrier) = carrier else {
                self.tasks.remove(index);
                continue;
            };
            if carrier.may_ask() && !self.is_early(&self.tasks[index], carrier) {
                let spi = carrier.local_spi;
                return self.tasks.remove(index).map(|task| (spi, task));
            }
            index += 1;
        }
        None
    }

    /// Returns `true` if something else has to happen before a task starts, although the IKE SA could carry it.
    fn is_early(&self, task: &Task, carrier: &IkeSa) -> bool {
        match task {
            // Made by a rekey just now, and one side may not send on it yet: the Delete of the old one tells.
            Task::RekeyChild(spi) => {
                self.child_by_inbound(*spi).is_some_and(|c| c.standby)
                    || self.awaits_delete_of_predecessor(*spi)
            }
            // The peer's request could not be answered on it any more.
            Task::RekeyIke(_) => {
                let postponed = &carrier.window.postponed;
                postponed.as_ref().is_some_and(|p| matches!(p.until, Until::Deleted))
            }
            _ => false,
        }
    }

    /// Has the IKE SA replaced before its message IDs run out (RFC 7296 §2.2).
    pub fn renew_numbers(&mut self) {
        // The session is over.
        let Some(sa) = self.serving_sa() else { return };
        let task = Task::RekeyIke(sa.local_spi);
        let worn = sa.window.is_worn()
            && sa.state.phase == Phase::Serving
            && !matches!(sa.state.active, Some(Active::Rekey(_)));
        let delayed = self.tasks.delayed().any(|(_, t)| *t == task);
        if worn && !delayed && !self.is_closing() {
            self.queue(task);
        }
    }

    /// Queues tasks behind the others, also those that are among them.
    pub fn queue_all(&mut self, tasks: impl IntoIterator<Item = Task>) {
        self.tasks.extend(tasks);
    }

    /// Queues a task before the others, also if it is among them.
    pub fn queue_next(&mut self, task: Task) {
        self.tasks.push_front(task);
    }

    /// Has the peer delete a Child SA, by this side's inbound SPI, before anything else is asked of it.
    pub fn delete_child_next(&mut self, spi_in: Spi) {
        self.tasks.push_front(Task::DeleteChild(spi_in));
    }

    /// Has the peer delete an IKE SA, by this side's SPI, before anything else is asked of it.
    pub fn delete_ike_next(&mut self, spi: IkeSpi) {
        self.tasks.push_front(Task::DeleteIke(spi));
    }

    /// Queues the delayed tasks whose time has come.
    pub fn queue_due(&mut self, now: Instant) {
        self.tasks.hurry(|at, _| at <= now);
    }

    /// Takes a task out of the queue that is done with another one.
    pub fn drop_task(&mut self, task: &Task) {
        self.tasks.retain(|t| t != task);
    }

    /// Queues a task behind the others, unless it is among them.
    pub fn queue(&mut self, task: Task) {
        if !self.tasks.contains(&task) {
            self.tasks.push_back(task);
        }
    }

    /// Queues a task before the others, unless it is among them.
    pub fn queue_first(&mut self, task: Task) {
        if !self.tasks.contains(&task) {
            self.tasks.push_front(task);
        }
    }

    /// Has the peer delete a Child SA on which this side has just stopped to send, once packets on their way have
    /// arrived.
    pub fn delete_when_drained(&mut self, cx: &Context<'_>, spi_in: Spi) {
        self.forget_delete(spi_in);
        let delete = Task::DeleteChild(spi_in);
        match cx.config.drain.is_zero() {
            true => self.tasks.push_front(delete),
            false => self.tasks.delay(after(cx.now, cx.config.drain), delete),
        }
    }

    /// Returns `true` if this side deletes a Child SA, or is about to.
    pub fn is_deleting(&self, spi_in: Spi) -> bool {
        let delete = Task::DeleteChild(spi_in);
        self.tasks.contains(&delete)
            || self.tasks.delayed().any(|(_, task)| *task == delete)
            || self.sas.iter().any(|sa| {
                matches!(&sa.state.active, Some(Active::DeleteChildren(spis)) if spis.contains(&spi_in))
            })
    }

    /// Returns `true` if this side is about to delete the Child SA that this one has replaced.
    pub fn awaits_delete_of_predecessor(&self, spi_in: Spi) -> bool {
        let Some(child) = self.child_by_inbound(spi_in) else { return false };
        let mut predecessors = self
            .children
            .of_tunnel(&child.tunnel.name)
            .filter(|c| c.state == ChildState::Replaced(spi_in));
        predecessors.any(|old| self.is_deleting(old.spi_in))
    }

    /// Deletes the predecessor of a Child SA at once whose own volume runs out already, so that it can be replaced in
    /// time.
    pub fn hurry_delete_of_predecessor(&mut self, spi_in: Spi) {
        let Some(child) = self.child_by_inbound(spi_in) else { return };
        let predecessors = self
            .children
            .of_tunnel(&child.tunnel.name)
            .filter(|c| c.state == ChildState::Replaced(spi_in));
        let deletes: Vec<Task> = predecessors.map(|old| Task::DeleteChild(old.spi_in)).collect();
        self.tasks.hurry(|_, task| deletes.contains(task));
    }

    /// Tries a task again later (RFC 7296 §2.25: not at once), or ends the session when it has been tried too often.
    pub fn delay(&mut self, cx: &mut Context<'_>, task: Task) -> Effects {
        self.temporary_failures += 1;
        if self.temporary_failures > TEMPORARY_FAILURES {
            return self.close_and_reconnect(cx, CloseReason::TemporaryFailures);
        }
        let growth = 1 << self.temporary_failures.min(4);
        let pause = cx.config.retransmit_after.saturating_mul(growth);
        let jitter = cx.rng.below(u64::try_from(pause.as_micros()).unwrap_or(u64::MAX));
        let pause = (pause / 2).saturating_add(Duration::from_micros(jitter));
        self.tasks.delay(after(cx.now, pause), task);
        Effects::none()
    }

    /// TEMPORARY_FAILUREs in a row.
    pub fn temporary_failures(&self) -> u32 {
        self.temporary_failures
    }

    /// The peer has shown that it does not mean them as temporary, so that they are counted from 0 again.
    pub fn forget_temporary_failures(&mut self) {
        self.temporary_failures = 0;
    }
}
