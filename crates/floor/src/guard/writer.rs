//! The thread that changes the table: one transaction after the other, in the order in which they are asked for.
//!
//! `nft` can take long. Before it ends, it waits until the kernel has freed what former transactions removed. Key
//! management does not wait: it goes on with other work until it is told that a change is in force.
//!
//! If the program `nft` is missing, the start goes on with a warning, and routes and policies alone keep the traffic
//! from leaving in the clear.

#![forbid(unsafe_code)]

use super::Script;
use host::nft;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Whether nftables has the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// No rule needs it yet.
    #[default]
    Unneeded,
    InForce,
    /// nftables has refused a change: the whole table is to be built again.
    Outdated,
    /// nftables has refused the whole table, for this reason. It may take it later.
    Refused(String),
    /// This host has no nftables, or none that takes any table, for this reason.
    Unusable(String),
}

/// Called on another thread when nftables refuses a change, or the process that has the held table has ended: the
/// tables are to be built again.
pub type OnLoss = Arc<dyn Fn() + Send + Sync>;

/// Makes the script of a whole table, on the thread of the writer.
type WholeTable = Box<dyn FnOnce() -> Script + Send>;

enum Order {
    Change(Script),
    Replace(WholeTable),
    Tell(Tell),
}

/// Tells that all earlier changes have been carried out or refused: by being dropped, also with a thread that has
/// panicked.
struct Tell(Option<Box<dyn FnOnce() + Send>>);

impl Drop for Tell {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|tell| tell());
    }
}

/// The thread, and what it has done so far.
pub(super) struct Writer {
    /// `None` once the thread is to end.
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    progress: Arc<Progress>,
    /// The number of orders given.
    given: u64,
}

#[derive(Debug, Default)]
struct Progress {
    state: Mutex<State>,
    /// The number of orders that have been carried out.
    done: Mutex<u64>,
    advanced: Condvar,
}

/// A change that has been asked for.
#[derive(Clone, Debug)]
#[must_use = "until it has been waited for, the change may not be in force"]
pub struct Written {
    progress: Arc<Progress>,
    number: u64,
}

impl Written {
    /// Returns `true` if this change and all earlier ones have been carried out or refused.
    pub(super) fn is_done(&self) -> bool {
        *lock(&self.progress.done) >= self.number
    }

    /// Waits until this change and all earlier ones have been carried out or refused.
    pub fn wait(&self) {
        let mut done = lock(&self.progress.done);
        while *done < self.number {
            done = self.progress.advanced.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Writer {
    /// Starts the thread in the network namespace of the calling one. `held` is the name of the table that belongs to a
    /// process of this writer.
    pub(super) fn start(held: Option<String>, on_loss: OnLoss) -> io::Result<Self> {
        let (orders, queue) = mpsc::channel();
        let progress = Arc::new(Progress::default());
        let of_thread = Arc::clone(&progress);
        let held = Held { table: held, owner: None, is_told: false, on_loss: Arc::clone(&on_loss) };
        let thread = Builder::new()
            .name("guard".to_owned())
            .spawn(move || carry_out(&queue, &of_thread, held, &*on_loss))?;
        Ok(Self { orders: Some(orders), thread: Some(thread), progress, given: 0 })
    }

    /// The state of the table after what has been carried out so far.
    pub(super) fn state(&self) -> State {
        lock(&self.progress.state).clone()
    }

    /// Has the commands of a script carried out, all of them or none.
    pub(super) fn change(&mut self, script: Script) -> Written {
        self.order(Order::Change(script))
    }

    /// Has the table replaced by a whole new one.
    pub(super) fn replace(&mut self, script: impl FnOnce() -> Script + Send + 'static) -> Written {
        self.order(Order::Replace(Box::new(script)))
    }

    /// Has `tell` called on the thread of the writer when the changes so far have been carried out or refused.
    pub(super) fn tell_when_done(&mut self, tell: impl FnOnce() + Send + 'static) {
        let _ = self.order(Order::Tell(Tell(Some(Box::new(tell)))));
    }

    /// All changes that have been asked for so far.
    pub(super) fn all_given(&self) -> Written {
        Written { progress: Arc::clone(&self.progress), number: self.given }
    }

    /// A change that needs nothing done.
    pub(super) fn nothing(&self) -> Written {
        Written { progress: Arc::clone(&self.progress), number: 0 }
    }

    /// Carries out what has been asked for, and ends the thread.
    pub(super) fn finish(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the guard has panicked");
        }
    }

    fn order(&mut self, order: Order) -> Written {
        // If the thread has panicked, nobody takes it, and nobody waits for it.
        if self.orders.as_ref().is_some_and(|orders| orders.send(order).is_ok()) {
            self.given += 1;
        }
        self.all_given()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.finish();
    }
}

fn carry_out(queue: &Receiver<Order>, progress: &Progress, mut held: Held, on_loss: &dyn Fn()) {
    let _released = ReleaseWaiting(progress);
    for order in queue {
        let mut tell = None;
        match order {
            // After a refused change, the table lacks more than one change can bring.
            Order::Change(script) if *lock(&progress.state) == State::InForce => {
                let changed = nft::run(&script.guard).and_then(|()| held.change(&script.held));
                if let Err(error) = changed {
                    tracing::debug!(%error, "nftables refuses a change of the guard");
                    *lock(&progress.state) = State::Outdated;
                    on_loss();
                }
            }
            Order::Change(_) => {}
            Order::Replace(script) => {
                let script = script();
                if replace(&script.guard, progress) {
                    on_loss();
                }
                if *lock(&progress.state) == State::InForce {
                    held.replace(&script.held);
                }
            }
            Order::Tell(now) => tell = Some(now),
        }
        *lock(&progress.done) += 1;
        progress.advanced.notify_all();
        drop(tell);
    }
}

/// The table that belongs to a process, which has the same changes as the guard.
struct Held {
    /// `None`: there is to be none.
    table: Option<String>,
    owner: Option<Owner>,
    /// The log has the reason why there is none.
    is_told: bool,
    on_loss: OnLoss,
}

/// The process that has the table.
struct Owner {
    process: Box<dyn nft::Owner>,
    /// This side ends it.
    is_ended: Arc<AtomicBool>,
}

impl Owner {
    /// `on_loss` is called if the process ends by itself.
    fn start(table: &str, on_loss: OnLoss) -> io::Result<Self> {
        let process = nft::own(table)?;
        let (end, is_ended) = (process.end()?, Arc::new(AtomicBool::new(false)));
        let is_known = Arc::clone(&is_ended);
        Builder::new().name("guard-held".to_owned()).spawn(move || {
            if end.wait().is_ok() && !is_known.load(Ordering::SeqCst) {
                tracing::debug!("the process that has the held table has ended");
                on_loss();
            }
        })?;
        Ok(Self { process, is_ended })
    }

    fn run(mut self, script: &str, whole: bool) -> io::Result<Self> {
        self.process.run(script, whole).map(|()| self)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::SeqCst);
    }
}

impl Held {
    /// An error removes the table: it might block traffic that is to pass. It is to be built again.
    fn change(&mut self, script: &str) -> io::Result<()> {
        let Some(owner) = self.owner.take_if(|_| !script.is_empty()) else { return Ok(()) };
        self.owner = Some(owner.run(script, false)?);
        Ok(())
    }

    fn replace(&mut self, script: &str) {
        let Some(table) = &self.table else { return };
        let mut outcome = self.owner.take().map(|owner| owner.run(script, true));
        // The former process may have ended.
        if !matches!(outcome, Some(Ok(_))) {
            let owner = Owner::start(table, Arc::clone(&self.on_loss));
            outcome = Some(owner.and_then(|owner| owner.run(script, true)));
        }
        match outcome {
            Some(Ok(owner)) => {
                self.owner = Some(owner);
                self.is_told = false;
            }
            Some(Err(error)) if !self.is_told => {
                self.is_told = true;
                tracing::warn!(
                    %error,
                    table,
                    "a table of nftables that nobody can flush is not there: if another program removes the guard, some packets \
                     may leave in the clear before it is put back; Linux 5.12 and nft 1.0 have such tables"
                );
            }
            _ => {}
        }
    }
}

/// Returns `true` if nftables begins to refuse the table, but may take it later: further attempts are key management's.
fn replace(script: &str, progress: &Progress) -> bool {
    let outcome = nft::run(script);
    let mut state = lock(&progress.state);
    let works = !matches!(*state, State::Unneeded | State::Unusable(_));
    let is_told = matches!(*state, State::Refused(_));
    let next = match outcome {
        Ok(()) => State::InForce,
        Err(error) if works || nft::works() => State::Refused(error.to_string()),
        Err(error) => State::Unusable(error.to_string()),
    };
    if *state != next {
        match &next {
            State::Refused(error) => tracing::warn!(
                %error,
                "nftables refuses the guard of the tunnels; until it takes it, routes and policies alone keep their traffic from \
                 leaving in the clear"
            ),
            State::Unusable(error) => tracing::warn!(
                %error,
                "nftables does not guard the tunnels: routes and policies alone keep their traffic from leaving in the \
                 clear; install nftables"
            ),
            State::Unneeded | State::InForce | State::Outdated => {}
        }
        *state = next;
    }
    matches!(*state, State::Refused(_)) && !is_told
}

/// Nobody waits for a thread that has ended.
struct ReleaseWaiting<'a>(&'a Progress);

impl Drop for ReleaseWaiting<'_> {
    fn drop(&mut self) {
        *lock(&self.0.done) = u64::MAX;
        self.0.advanced.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
