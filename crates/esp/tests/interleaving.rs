//! What workers share, in every order in which threads may come to it (loom): the in-order stage, its pools, sequence
//! numbers, and the anti-replay window.
//!
//! The sources are those of the crate, compiled once more with loom's locks in place of the system's.

#![allow(
    dead_code,
    unused_imports,
    reason = "the models use what threads share, and not the unit tests beside it"
)]

#[path = "../../userspace/src/order.rs"]
mod order;
#[path = "../../userspace/src/pool.rs"]
mod pool;
#[path = "../src/replay.rs"]
mod replay;
#[path = "../src/sequence.rs"]
mod sequence;

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
    use loom::sync::{MutexGuard, atomic::AtomicBool};
    use std::ops::{Deref, DerefMut};
    use std::sync::{LockResult, PoisonError};

    /// A lock that others may find taken up to the very moment it is let go: loom's own lets nobody run between what its
    /// owner did last and that moment, which is where whoever only tries it can be missed.
    pub(crate) struct Mutex<T> {
        value: loom::sync::Mutex<T>,
        letting_go: AtomicBool,
    }

    pub(crate) struct Guard<'a, T> {
        value: MutexGuard<'a, T>,
        letting_go: &'a AtomicBool,
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            let value = loom::sync::Mutex::new(value);
            Self { value, letting_go: AtomicBool::new(false) }
        }

        pub(crate) fn lock(&self) -> LockResult<Guard<'_, T>> {
            let guard = |value| Guard { value, letting_go: &self.letting_go };
            self.value.lock().map(guard).map_err(|e| PoisonError::new(guard(e.into_inner())))
        }

        pub(crate) fn try_lock(&self) -> Result<Guard<'_, T>, ()> {
            let value = self.value.try_lock().map_err(drop)?;
            Ok(Guard { value, letting_go: &self.letting_go })
        }
    }

    impl<T> Drop for Guard<'_, T> {
        fn drop(&mut self) {
            // Every access to an atomic is a moment at which others may run.
            self.letting_go.store(true, Ordering::Relaxed);
        }
    }

    impl<T> Deref for Guard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.value
        }
    }

    impl<T> DerefMut for Guard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.value
        }
    }
}

mod discard {
    pub(crate) use esp::discard::Discard;
}

use libtest_mimic::{Arguments, Trial};
use loom::sync::{Arc, Mutex};
use loom::thread;
use order::InOrder;
use pool::Pool;
use replay::Window;
use sequence::{NoNumber, Sequence};
use std::process::ExitCode;

fn main() -> ExitCode {
    let model = |name: &str, model: fn()| {
        Trial::test(name, move || {
            // Switches between threads beyond what they wait for; more finds no more and takes minutes.
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(3);
            builder.check(model);
            Ok(())
        })
    };
    let trials = vec![
        model("what is finished in any order leaves in order, and all of it", in_order),
        model("an item that finds the sink taken is not forgotten", not_forgotten),
        model("who finds no batch is told of the next", told),
        model("every sequence number is given once, and none past the last", claimed_once),
        model(
            "a sequence that is closed has counted every number it has given",
            closed_and_counted,
        ),
        model("of two packets with one number one passes", replayed_once),
        model("batches settle as a whole or not at all", settled_once),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// What has come out of an in-order stage.
type Came = Arc<Mutex<Vec<u64>>>;

fn stage(room: usize) -> (Arc<InOrder<u64, impl FnMut(u64)>>, Came) {
    let came = Came::default();
    let order = InOrder::new(room, {
        let came = Arc::clone(&came);
        move |item| came.lock().expect("no panic").push(item)
    });
    (Arc::new(order), came)
}

fn in_order() {
    let (order, came) = stage(3);
    let others = [2, 1].map(|number| {
        let order = Arc::clone(&order);
        thread::spawn(move || order.put(number, number))
    });
    order.put(0, 0);
    others.into_iter().for_each(|other| other.join().expect("no panic"));
    assert_eq!(*came.lock().expect("no panic"), [0, 1, 2]);
}

fn not_forgotten() {
    let (order, came) = stage(2);
    let other = {
        let order = Arc::clone(&order);
        thread::spawn(move || order.put(1, 1))
    };
    order.put(0, 0);
    other.join().expect("no panic");
    assert_eq!(*came.lock().expect("no panic"), [0, 1]);
    // The slots are used again.
    order.put(2, 2);
    assert_eq!(*came.lock().expect("no panic"), [0, 1, 2]);
}

fn told() {
    let pool = Arc::new(Pool::new(1, || ()));
    let batch = pool.take().expect("one is free");
    let reader = {
        let pool = Arc::clone(&pool);
        thread::spawn(move || pool.take().is_some())
    };
    let tells = pool.give(batch);
    let got = reader.join().expect("no panic");
    assert!(got || tells, "the reader waits for ever");
    assert!(!(got && tells), "nobody waits");
}

fn claimed_once() {
    const LAST: u64 = 5;
    let sequence = Arc::new(Sequence::after(0));
    let claim = |sequence: &Sequence| [sequence.claim(2, LAST), sequence.claim(1, LAST)];
    let others = [(); 2].map(|()| {
        let sequence = Arc::clone(&sequence);
        thread::spawn(move || claim(&sequence))
    });
    let mut numbers: Vec<u64> = others
        .into_iter()
        .flat_map(|other| other.join().expect("no panic"))
        .zip([2, 1, 2, 1])
        .filter_map(|(first, count)| first.ok().map(|first| first..first + count))
        .flatten()
        .collect();
    numbers.sort_unstable();
    assert!(numbers.windows(2).all(|pair| pair[0] != pair[1]), "{numbers:?}");
    assert!(numbers.iter().all(|number| (1..=LAST).contains(number)), "{numbers:?}");
}

fn closed_and_counted() {
    let sequence = Arc::new(Sequence::after(7));
    let others = [1, 2].map(|count| {
        let sequence = Arc::clone(&sequence);
        thread::spawn(move || match sequence.claim(count, 100) {
            Ok(_) => count,
            Err(why) => {
                assert_eq!(why, NoNumber::Closed);
                0
            }
        })
    });
    sequence.close();
    let (given, used) = (sequence.given(), sequence.used());
    let claimed: u64 = others.into_iter().map(|other| other.join().expect("no panic")).sum();
    assert_eq!((given, used), (claimed, 7 + claimed));
    assert_eq!(sequence.given(), given, "none follows");
    assert_eq!(sequence.claim(1, 100), Err(NoNumber::Closed));
}

fn replayed_once() {
    let window = Arc::new(Mutex::new(Window::new(64)));
    // As a packet is taken in: it may be new, it is opened, it is new.
    let receive = |window: &Mutex<Window>, number| {
        let may_be_new = window.lock().expect("no panic").check(number).is_ok();
        may_be_new && window.lock().expect("no panic").commit(number).is_ok()
    };
    let other = {
        let window = Arc::clone(&window);
        thread::spawn(move || [receive(&window, 7), receive(&window, 8)])
    };
    let mine = [receive(&window, 7), receive(&window, 9)];
    let others = other.join().expect("no panic");
    assert!(mine[0] ^ others[0], "one of the two");
    assert!(mine[1] && others[1], "these have no double");
}

fn settled_once() {
    let window = Arc::new(Mutex::new(Window::new(64)));
    // As a batch is settled: at once, or one by one where its numbers are not new as a whole.
    let settle = |window: &Mutex<Window>, mut numbers: Vec<u64>| {
        let mut window = window.lock().expect("no panic");
        if window.takes(&mut numbers) {
            numbers.iter().for_each(|n| assert!(window.commit(*n).is_ok(), "{n}"));
            return numbers;
        }
        numbers.retain(|number| window.commit(*number).is_ok());
        numbers
    };
    let other = {
        let window = Arc::clone(&window);
        thread::spawn(move || settle(&window, vec![1, 2, 4]))
    };
    let mut passed = settle(&window, vec![3, 2, 5]);
    passed.extend(other.join().expect("no panic"));
    passed.sort_unstable();
    assert_eq!(passed, [1, 2, 3, 4, 5]);
}
