//! Values that the threads of the plane share, in every order in which the threads may come to them (loom): the in-order
//! stage, its pools, and requests to workers.
//!
//! No module of the library, but the root of the test target `interleaving`: it is beside the sources, which are compiled
//! once more as its modules, with loom's locks in place of the system's.

#![allow(
    dead_code,
    unused_imports,
    reason = "the models use what threads share, and not the unit tests beside it"
)]

mod order;
mod pool;
mod requests;

mod sync {
    use loom::sync::MutexGuard;
    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering};
    use std::ops::{Deref, DerefMut};
    use std::sync::{LockResult, PoisonError};

    /// A lock that others may find taken up to the very moment it is let go: loom's own lets nobody run between what
    /// its owner did last and that moment, which is where whoever only tries it can be missed.
    pub(crate) struct Mutex<T> {
        value: loom::sync::Mutex<T>,
        letting_go: AtomicBool,
    }

    pub(crate) struct Guard<'a, T> {
        value: MutexGuard<'a, T>,
        letting_go: &'a AtomicBool,
    }

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
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

/// An event descriptor without a system: its calls see what was done before the calls that they follow.
mod event_fd {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd};

    pub(crate) struct EventFd(loom::sync::Mutex<bool>);

    impl EventFd {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(loom::sync::Mutex::new(false)))
        }

        pub(crate) fn ring(&self) {
            *self.0.lock().expect("no panic") = true;
        }

        pub(crate) fn quieten(&self) {
            *self.0.lock().expect("no panic") = false;
        }

        pub(crate) fn is_rung(&self) -> bool {
            *self.0.lock().expect("no panic")
        }
    }

    impl AsFd for EventFd {
        fn as_fd(&self) -> BorrowedFd<'_> {
            unimplemented!("nobody polls in a model")
        }
    }
}

use libtest_mimic::{Arguments, Trial};
use loom::sync::{Arc, Mutex};
use loom::thread;
use order::InOrder;
use pool::Pool;
use requests::{Orders, Release};
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
        model("batches finished in any order leave in order, and all of them", in_order),
        model("an item that finds the sink taken is not forgotten", not_forgotten),
        model("a taker that finds no batch is told of the next", told),
        model("a worker that is asked for something does not sleep on", asked),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The items that have come out of an in-order stage.
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

fn asked() {
    let release = Arc::new(Release::new().expect("a bell"));
    let orders = Arc::new(Orders::new().expect("a bell"));
    let other = {
        let (release, orders) = (Arc::clone(&release), Arc::clone(&orders));
        thread::spawn(move || {
            release.want();
            assert!(orders.call(), "it was not called before");
            orders.end();
        })
    };
    let taken = release.take();
    let ended = orders.answer_call();
    other.join().expect("no panic");
    assert!(taken || release.bell.is_rung(), "nobody wakes the worker");
    assert!(taken ^ release.take(), "it is done once");
    assert!(ended || orders.bell.is_rung(), "nobody wakes the worker");
    assert!(orders.answer_call() && orders.call(), "a call was answered");
}
