//! Why a gateway has ended.

use std::any::Any;
use std::fmt;
use tokio::sync::watch;

/// Why a gateway has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Closed {
    /// [`Gateway::stop`](crate::Gateway::stop) was called.
    Stopped,
    /// The last clone of the gateway was dropped.
    Dropped,
    /// A bug: the task of the engine has panicked. The traffic of the tunnels stays blocked until the next start.
    Panicked {
        /// The message of the panic.
        message: String,
    },
    /// The tokio runtime was shut down while the gateway ran.
    RuntimeEnded,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("the gateway was stopped"),
            Self::Dropped => f.write_str("the gateway was dropped"),
            Self::Panicked { message } => write!(f, "the gateway's engine has panicked: {message}"),
            Self::RuntimeEnded => f.write_str("the tokio runtime of the gateway was shut down"),
        }
    }
}

impl Closed {
    /// The end of a task that has panicked.
    pub(crate) fn of_panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self::Panicked { message: text.unwrap_or("(no message)").to_owned() }
    }
}

/// Where the end of a gateway will be seen.
#[derive(Clone, Debug)]
pub(crate) struct End(watch::Receiver<Option<Closed>>);

/// Tells the end. If it is dropped without a word, the runtime has ended.
pub(crate) struct TellEnd(watch::Sender<Option<Closed>>);

pub(crate) fn channel() -> (TellEnd, End) {
    let (sender, receiver) = watch::channel(None);
    (TellEnd(sender), End(receiver))
}

impl TellEnd {
    pub(crate) fn tell(self, closed: Closed) {
        self.0.send_replace(Some(closed));
    }
}

impl End {
    /// Waits for it.
    pub(crate) async fn seen(&self) -> Closed {
        let mut receiver = self.0.clone();
        let closed = receiver.wait_for(Option::is_some).await;
        closed.ok().and_then(|closed| closed.clone()).unwrap_or(Closed::RuntimeEnded)
    }
}
