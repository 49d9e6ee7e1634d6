//! A thread per token, so that a token that hangs delays nothing else; and who waits for it no longer than is allowed.

use crate::connection::{Address, Connection, RefusedPin};
use crate::error::{Kind, TokenError};
use crate::module::lock;
use crate::object::{Key, KeyName};
use ike::proof::outside::Order;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Work that may wait for one token.
const ROOM: usize = 64;
/// The time that a thread has to log out.
const LOGOUT_LIMIT: Duration = Duration::from_secs(1);

static WORKERS: Mutex<BTreeMap<Address, Weak<Worker>>> = Mutex::new(BTreeMap::new());

/// A token's thread. It ends when nobody holds this any more, once it is done with its work.
#[derive(Debug)]
pub(crate) struct Worker {
    /// `None` only while this is dropped.
    work: Option<SyncSender<Work>>,
    progress: Arc<Progress>,
    /// Loses its sender when the thread has logged out.
    ended: Mutex<Receiver<Infallible>>,
    thread: Option<JoinHandle<()>>,
    /// The time that the thread has to log out. One that hangs is left behind.
    logout_limit: Duration,
}

#[derive(Debug, Default)]
struct Progress {
    done: AtomicU64,
    /// The beginning of the work that the thread has in hand.
    since: Mutex<Option<Instant>>,
}

/// A key that was found.
pub(crate) struct Found {
    pub key: Key,
    pub knows_pss: bool,
}

#[derive(Debug)]
enum Work {
    Find { key: KeyName, load: u64, answer: SyncSender<Result<Found, TokenError>> },
    Sign { key: KeyName, order: Order, answer: oneshot::Sender<Result<Vec<u8>, TokenError>> },
}

impl std::fmt::Debug for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Found").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Worker {
    /// The thread of a token: the one that there is, or a new one.
    pub fn of(address: &Address) -> Result<Arc<Self>, TokenError> {
        let mut workers = lock(&WORKERS);
        workers.retain(|_, worker| worker.strong_count() > 0);
        if let Some(worker) = workers.get(address).and_then(Weak::upgrade) {
            return Ok(worker);
        }
        let progress = Arc::new(Progress::default());
        let desk = Desk {
            address: address.clone(),
            progress: Arc::clone(&progress),
            connection: None,
            refused: RefusedPin::default(),
        };
        let started = Self::start(progress, LOGOUT_LIMIT, move |orders| desk.run(orders));
        let worker = started.map(Arc::new).map_err(|error| {
            TokenError::new(
                Kind::Refused,
                format!("no thread can be started for the token: {error}"),
                "see the limits of the service vpnd (TasksMax)",
            )
        })?;
        workers.insert(address.clone(), Arc::downgrade(&worker));
        Ok(worker)
    }

    fn start(
        progress: Arc<Progress>,
        logout_limit: Duration,
        run: impl FnOnce(Receiver<Work>) + Send + 'static,
    ) -> io::Result<Self> {
        let (work, orders) = mpsc::sync_channel(ROOM);
        let (until_ended, ended) = mpsc::channel();
        let thread = thread::Builder::new().name("token".to_owned()).spawn(move || {
            run(orders);
            drop(until_ended);
        })?;
        let ended = Mutex::new(ended);
        Ok(Self { work: Some(work), progress, ended, thread: Some(thread), logout_limit })
    }

    /// Finds a key. The caller waits; `load` is the number of the load of keys that this belongs to.
    pub fn find(&self, key: KeyName, load: u64, limit: Duration) -> Result<Found, TokenError> {
        let (answer, answers) = mpsc::sync_channel(1);
        self.give(Work::Find { key, load, answer }, limit)?;
        loop {
            let done = self.progress.done.load(Ordering::Relaxed);
            match answers.recv_timeout(limit) {
                Ok(found) => return found,
                Err(RecvTimeoutError::Timeout) if self.has_done_more_than(done) => {}
                Err(RecvTimeoutError::Timeout) => return Err(TokenError::silent(limit)),
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
            }
        }
    }

    /// Signs. While the token does other work, its time has not begun.
    pub async fn sign(
        self: Arc<Self>,
        key: KeyName,
        order: Order,
        limit: Duration,
    ) -> Result<Vec<u8>, TokenError> {
        let (answer, mut made) = oneshot::channel();
        self.give(Work::Sign { key, order, answer }, limit)?;
        loop {
            let done = self.progress.done.load(Ordering::Relaxed);
            match tokio::time::timeout(limit, &mut made).await {
                Ok(Ok(made)) => return made,
                Ok(Err(_)) => return Err(ended()),
                Err(_) if self.has_done_more_than(done) => {}
                Err(_) => return Err(TokenError::silent(limit)),
            }
        }
    }

    fn give(&self, work: Work, limit: Duration) -> Result<(), TokenError> {
        let silent = lock(&self.progress.since).is_some_and(|since| since.elapsed() > limit);
        if silent {
            return Err(TokenError::silent(limit));
        }
        let orders = self.work.as_ref().ok_or_else(ended)?;
        orders.try_send(work).map_err(|error| match error {
            TrySendError::Full(_) => TokenError::crowded(ROOM),
            TrySendError::Disconnected(_) => ended(),
        })
    }

    fn has_done_more_than(&self, done: u64) -> bool {
        self.progress.done.load(Ordering::Relaxed) != done
    }
}

/// Waits until the thread has logged out. A module has destructors, which run when the process ends: a thread that was
/// still in it would crash.
impl Drop for Worker {
    fn drop(&mut self) {
        self.work = None;
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(self.logout_limit) == Err(RecvTimeoutError::Disconnected) {
            self.thread.take().map(JoinHandle::join);
        }
    }
}

fn ended() -> TokenError {
    TokenError::new(
        Kind::Refused,
        "the thread of the token has ended".to_owned(),
        "this is a mistake in vpnd: report it, and restart vpnd",
    )
}

/// The thread's own.
struct Desk {
    address: Address,
    progress: Arc<Progress>,
    connection: Option<Connection>,
    refused: RefusedPin,
}

impl Desk {
    fn run(mut self, orders: Receiver<Work>) {
        for work in orders {
            *lock(&self.progress.since) = Some(Instant::now());
            self.work(work);
            *lock(&self.progress.since) = None;
            self.progress.done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The answer is dropped if nobody waits for it any more.
    fn work(&mut self, work: Work) {
        match work {
            Work::Find { key, load, answer } => {
                let found = self.connected(Some(load), |connection| {
                    let found = connection.key(&key)?;
                    Ok(Found { key: found, knows_pss: connection.knows_pss() })
                });
                let _ = answer.send(found);
            }
            // Nobody wants it any more.
            Work::Sign { answer, .. } if answer.is_closed() => {}
            Work::Sign { key, order, answer } => {
                let made = self.connected(None, |connection| connection.sign(&key, &order));
                let _ = answer.send(made);
            }
        }
    }

    /// Works with a session. If the token has ended an earlier one, it works once more with a new one.
    fn connected<T>(
        &mut self,
        load: Option<u64>,
        work: impl Fn(&mut Connection) -> Result<T, TokenError>,
    ) -> Result<T, TokenError> {
        if let Some(connection) = &mut self.connection {
            match work(connection) {
                Err(error) if error.kind == Kind::Lost => {
                    tracing::info!(token = %self.address.token, %error, "logging in to the token again");
                    self.connection = None;
                }
                done => return done,
            }
        }
        let mut connection = Connection::open(&self.address, &mut self.refused, load)?;
        let done = work(&mut connection);
        if !matches!(&done, Err(error) if error.kind == Kind::Lost) {
            self.connection = Some(connection);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn the_thread_has_ended_when_its_worker_is_gone() {
        let logged_out = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&logged_out);
        // Longer than any host is busy.
        let logout_limit = Duration::from_secs(300);
        let worker = Worker::start(Arc::default(), logout_limit, move |orders| {
            orders.iter().for_each(drop);
            // Others have the processor while the module closes its session.
            (0..1000).for_each(|_| thread::yield_now());
            noted.store(true, Ordering::SeqCst);
        });
        drop(worker.expect("a thread"));
        assert!(logged_out.load(Ordering::SeqCst));
    }
}
