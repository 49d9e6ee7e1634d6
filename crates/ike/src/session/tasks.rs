//! The tasks of a session, in their order, and those that wait for a time.

use crate::task::Task;
use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::time::Instant;

/// A queue of tasks, and those that enter it later. It knows which phase 2 tunnels are to come up, however many.
#[derive(Default)]
pub(crate) struct Tasks {
    queue: VecDeque<Task>,
    /// The number of tasks that set up each phase 2 tunnel.
    creating: HashMap<String, u32>,
    /// The number of tasks that name the IKE SA that they are for.
    particular: usize,
    /// Tasks that enter the queue at a time.
    delayed: Vec<(Instant, Task)>,
}

impl Deref for Tasks {
    type Target = VecDeque<Task>;

    fn deref(&self) -> &VecDeque<Task> {
        &self.queue
    }
}

impl Tasks {
    pub fn push_back(&mut self, task: Task) {
        self.note(&task);
        self.queue.push_back(task);
    }

    pub fn push_front(&mut self, task: Task) {
        self.note(&task);
        self.queue.push_front(task);
    }

    pub fn extend(&mut self, tasks: impl IntoIterator<Item = Task>) {
        tasks.into_iter().for_each(|task| self.push_back(task));
    }

    pub fn remove(&mut self, index: usize) -> Option<Task> {
        let task = self.queue.remove(index)?;
        self.forget(&task);
        Some(task)
    }

    /// Keeps some of them, also of those that are delayed.
    pub fn retain(&mut self, keep: impl Fn(&Task) -> bool) {
        let Self { queue, mut delayed, .. } = std::mem::take(self);
        delayed.retain(|(_, task)| keep(task));
        self.delayed = delayed;
        self.extend(queue.into_iter().filter(keep));
    }

    /// Takes all of them, those that are delayed last.
    pub fn take(&mut self) -> impl Iterator<Item = Task> + use<> {
        let Self { queue, delayed, .. } = std::mem::take(self);
        queue.into_iter().chain(delayed.into_iter().map(|(_, task)| task))
    }

    /// Has a task enter the queue at a time.
    pub fn delay(&mut self, at: Instant, task: Task) {
        self.delayed.push((at, task));
    }

    /// The tasks that enter the queue at a time.
    pub fn delayed(&self) -> impl Iterator<Item = &(Instant, Task)> {
        self.delayed.iter()
    }

    /// Has those of the delayed tasks enter the queue now for which `which` returns `true`.
    pub fn hurry(&mut self, which: impl Fn(Instant, &Task) -> bool) {
        let hurried: Vec<_> = self.delayed.extract_if(.., |(at, task)| which(*at, task)).collect();
        self.extend(hurried.into_iter().map(|(_, task)| task));
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns `true` if a task sets up the phase 2 tunnel.
    pub fn create(&self, child: &str) -> bool {
        self.creating.contains_key(child)
    }

    /// The phase 2 tunnels that are to come up.
    pub fn creating(&self) -> impl Iterator<Item = &String> {
        self.creating.keys()
    }

    /// Returns `true` if no task names the IKE SA that it is for: all are for the one that carries new exchanges.
    pub fn are_general(&self) -> bool {
        self.particular == 0
    }

    /// Gives back room.
    pub fn rest(&mut self) {
        self.delayed.shrink_to_fit();
        if self.queue.capacity() >= 2 * self.queue.len() {
            self.queue.shrink_to_fit();
            self.creating.shrink_to_fit();
        }
    }

    fn note(&mut self, task: &Task) {
        self.particular += usize::from(task.is_particular());
        if let Task::CreateChild(name) = task {
            match self.creating.get_mut(name) {
                Some(count) => *count += 1,
                None => _ = self.creating.insert(name.clone(), 1),
            }
        }
    }

    fn forget(&mut self, task: &Task) {
        self.particular -= usize::from(task.is_particular());
        if let Task::CreateChild(name) = task
            && let Some(count) = self.creating.get_mut(name)
        {
            *count -= 1;
            if *count == 0 {
                self.creating.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::header::IkeSpi;
    use esp::plane::Spi;

    fn create(name: &str) -> Task {
        Task::CreateChild(name.into())
    }

    #[test]
    fn a_child_to_create_is_known_until_its_task_begins() {
        let mut tasks = Tasks::default();
        tasks.extend([create("a"), Task::Liveness, create("b")]);
        tasks.push_front(create("a"));
        assert!(tasks.create("a") && tasks.create("b") && !tasks.create("c"));
        assert_eq!(tasks.remove(0), Some(create("a")));
        assert!(tasks.create("a"), "it is there twice");
        assert_eq!(tasks.remove(0), Some(create("a")));
        assert!(!tasks.create("a"));
        tasks.retain(|task| *task != create("b"));
        assert_eq!(tasks.creating().count(), 0);
        assert_eq!(*tasks, [Task::Liveness]);
    }

    #[test]
    fn tasks_that_name_their_ike_sa_are_counted() {
        let mut tasks = Tasks::default();
        tasks.extend([create("a"), Task::RekeyChild(Spi(7)), Task::TellAddresses]);
        assert!(tasks.are_general());
        tasks.push_front(Task::RekeyIke(IkeSpi(1)));
        tasks.push_back(Task::VerifyAddress);
        tasks.remove(0);
        assert!(!tasks.are_general());
        tasks.retain(|task| *task != Task::VerifyAddress);
        assert!(tasks.are_general());
        tasks.push_back(Task::DeleteIke(IkeSpi(1)));
        assert_eq!(tasks.take().count(), 4);
        assert!(tasks.are_general() && tasks.is_empty());
    }
}
