//! Work of several threads that is done in the order in which it was given out.

use crate::sync::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

/// Gives out turns. Dropping it waits until all of them are over.
#[derive(Default)]
pub(crate) struct Turns {
    state: Arc<State>,
    given: u64,
}

/// One turn. It is over when this is dropped, taken or not.
pub(crate) struct Turn {
    state: Arc<State>,
    number: u64,
}

#[derive(Default)]
struct State {
    over: Mutex<Over>,
    advanced: Condvar,
}

#[derive(Default)]
struct Over {
    /// The first turn that is not over.
    first_open: u64,
    /// Turns behind it that are over.
    early: BTreeSet<u64>,
}

impl Turns {
    /// The next turn, behind those that were given out before.
    pub(crate) fn give(&mut self) -> Turn {
        let number = self.given;
        self.given += 1;
        Turn { state: Arc::clone(&self.state), number }
    }
}

impl Turn {
    /// Waits until the turns before this one are over.
    pub(crate) fn wait(&self) {
        self.state.wait_for(self.number);
    }
}

impl State {
    /// Waits until the turns before this number are over.
    fn wait_for(&self, number: u64) {
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        while over.first_open < number {
            over = self.advanced.wait(over).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut over = self.state.over.lock().unwrap_or_else(PoisonError::into_inner);
        over.early.insert(self.number);
        loop {
            let first = over.first_open;
            if !over.early.remove(&first) {
                break;
            }
            over.first_open += 1;
        }
        self.state.advanced.notify_all();
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.state.wait_for(self.given);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_in_the_order_in_which_it_was_given_out() {
        let mut turns = Turns::default();
        let done = Arc::new(std::sync::Mutex::new(Vec::new()));
        let given: Vec<_> = (0..4).map(|number| (number, turns.give())).collect();
        let threads = given.into_iter().rev().map(|(number, turn)| {
            let done = Arc::clone(&done);
            std::thread::spawn(move || {
                // One is not taken.
                if number != 2 {
                    turn.wait();
                    done.lock().expect("no panic").push(number);
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        drop(turns);
        assert_eq!(*done.lock().expect("no panic"), [0, 1, 3]);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}
