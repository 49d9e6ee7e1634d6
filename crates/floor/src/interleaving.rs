//! Turns, in every order in which threads may come to them (loom).
//!
//! No module of the library, but the root of the test target `interleaving`: it is beside the source, which is compiled
//! once more as its module, with loom's locks in place of the system's.

#![allow(
    dead_code,
    unused_imports,
    reason = "the model uses what threads share, and not the unit tests beside it"
)]

mod turns;

mod sync {
    pub(crate) use loom::sync::{Condvar, Mutex};
}

use libtest_mimic::{Arguments, Trial};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::process::ExitCode;
use turns::Turns;

fn main() -> ExitCode {
    let trial = Trial::test("work is done in turn, and all of it before the end", || {
        // Switches between threads beyond what they wait for; more finds no more and takes minutes.
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(in_turn);
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

fn in_turn() {
    let mut turns = Turns::default();
    let done = Arc::new(Mutex::new(Vec::new()));
    let [first, second, third] = [(); 3].map(|()| turns.give());
    let others = [(2, third), (0, first)].map(|(number, turn)| {
        let done = Arc::clone(&done);
        thread::spawn(move || {
            turn.wait();
            done.lock().expect("no panic").push(number);
        })
    });
    // Nobody takes it.
    drop(second);
    drop(turns);
    assert_eq!(*done.lock().expect("no panic"), [0, 2]);
    others.into_iter().for_each(|other| other.join().expect("no panic"));
}
