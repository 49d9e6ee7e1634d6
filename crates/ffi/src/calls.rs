//! Calls: connects and accepts that are under way.

use crate::streams::Stream;
use std::future::Future;
use std::io::Write;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// The reason of a call or a connection that the end of its gateway has ended.
pub const STOPPED: &str = "the gateway has stopped";

/// The end of a tunnel or listener, which ends its calls.
pub struct Life {
    ended: watch::Sender<bool>,
    reason: &'static str,
}

impl Life {
    /// A life after which calls end with this reason.
    pub fn new(reason: &'static str) -> Self {
        Self { ended: watch::Sender::new(false), reason }
    }

    /// Ends all calls that were begun, and those that are begun later.
    pub fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Waits for the end, and returns the reason.
    pub fn ended(&self) -> impl Future<Output = &'static str> + Send + use<> {
        let (mut ended, reason) = (self.ended.subscribe(), self.reason);
        async move {
            // An error says that the sender is gone, which is the end, too.
            let _ = ended.wait_for(|ended| *ended).await;
            reason
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.end();
    }
}

/// A connect or an accept that is under way.
pub struct Call {
    what: String,
    outcome: Arc<Outcome>,
    task: AbortHandle,
    descriptor: UnixStream,
}

enum State {
    Pending,
    Ended(Result<Stream, String>),
    /// Somebody has the outcome.
    Taken,
}

struct Outcome {
    state: Mutex<State>,
    ended: Condvar,
}

impl Outcome {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first outcome counts.
    fn is(&self, outcome: Result<Stream, String>) {
        let mut state = self.lock();
        if matches!(*state, State::Pending) {
            *state = State::Ended(outcome);
            self.ended.notify_all();
        }
    }
}

/// The side of a call that does it.
struct Promise {
    outcome: Arc<Outcome>,
    /// A socket, and no pipe: after its call is freed, a pipe would end the program with SIGPIPE.
    bell: UnixStream,
}

impl Drop for Promise {
    fn drop(&mut self) {
        // If the task was dropped, its runtime has ended: `cancel` has set its reason before.
        self.outcome.is(Err(STOPPED.to_owned()));
        // There is room for one octet.
        let _ = self.bell.write(&[0]);
    }
}

impl Call {
    /// Begins to do `work`, until `ended`. `what` tells in words what is done.
    ///
    /// # Errors
    /// If there is no descriptor for it.
    pub fn begin(
        runtime: &Handle,
        what: String,
        ended: impl Future<Output = &'static str> + Send + 'static,
        work: impl Future<Output = Result<Stream, String>> + Send + 'static,
    ) -> Result<Self, String> {
        let (descriptor, bell) =
            UnixStream::pair().map_err(|error| format!("cannot make a descriptor: {error}"))?;
        let outcome = Outcome { state: Mutex::new(State::Pending), ended: Condvar::new() };
        let outcome = Arc::new(outcome);
        let promise = Promise { outcome: Arc::clone(&outcome), bell };
        let task = runtime.spawn(async move {
            let promise = promise;
            let result = tokio::select! {
                biased;
                reason = ended => Err(reason.to_owned()),
                result = work => result,
            };
            promise.outcome.is(result);
        });
        Ok(Self { what, outcome, task: task.abort_handle(), descriptor })
    }

    /// A descriptor that is readable once the call has ended.
    pub fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// Waits for the outcome. After the limit the call is cancelled.
    ///
    /// # Errors
    /// If it fails, has not ended within the limit, is cancelled, or its outcome is taken.
    pub fn finish(&self, limit: Option<Duration>) -> Result<Stream, String> {
        let state = self.outcome.lock();
        let pending = |state: &mut State| matches!(state, State::Pending);
        let ended = &self.outcome.ended;
        let mut state = match limit {
            None => ended.wait_while(state, pending).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                ended
                    .wait_timeout_while(state, limit, pending)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        match std::mem::replace(&mut *state, State::Taken) {
            State::Ended(outcome) => outcome,
            State::Taken => Err(format!("{}: another thread has the outcome", self.what)),
            State::Pending => {
                drop(state);
                self.task.abort();
                let limit = limit.unwrap_or_default().as_millis();
                Err(format!("{}: not within {limit} ms", self.what))
            }
        }
    }

    /// Ends the call. A connection that has come about meanwhile is freed with the call.
    pub fn cancel(&self) {
        self.outcome.is(Err(format!("{}: cancelled", self.what)));
        self.task.abort();
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.cancel();
    }
}
