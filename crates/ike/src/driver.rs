//! The tokio shell: sockets, clock and commands around an [`Engine`](crate::Engine).

use crate::engine::CommandError;
use crate::event::Event;
use crate::failure::Failure;
use crate::status::IkeStatus;
use policy::Policy;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::broadcast;

/// Talks to a running engine; clones talk to the same one.
#[derive(Clone)]
pub struct Handle {}

/// How one name of [`Handle::activate`] ended.
#[derive(Clone, Debug)]
pub struct Activation {
    /// The name asked for.
    pub name: String,
    /// Up, or why not.
    pub outcome: Result<(), Failure>,
}

/// A command failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HandleError {
    /// The engine refused it.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The negotiation it started failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The engine has stopped.
    #[error("the gateway has stopped")]
    Stopped,
}

impl Handle {
    /// Starts tunnels (all this side may start, if none is named) and waits until each is up or has failed.
    pub async fn activate(&self, names: Vec<String>) -> Result<Vec<Activation>, HandleError> {
        let _ = names;
        unimplemented!()
    }

    /// Deletes a tunnel and waits until it is gone.
    pub async fn deactivate(&self, name: &str) -> Result<(), HandleError> {
        let _ = name;
        unimplemented!()
    }

    /// Rekeys a tunnel and waits until the new SA is in use.
    pub async fn rekey(&self, name: &str) -> Result<(), HandleError> {
        let _ = name;
        unimplemented!()
    }

    /// Every tunnel of the policy.
    pub async fn status(&self) -> Result<Vec<IkeStatus>, HandleError> {
        unimplemented!()
    }

    /// Discarded datagrams and packets by reason.
    pub async fn counters(&self) -> Result<BTreeMap<String, u64>, HandleError> {
        unimplemented!()
    }

    /// Replaces the policy; unchanged tunnels are untouched.
    pub async fn replace_policy(&self, policy: Arc<Policy>) -> Result<(), HandleError> {
        let _ = policy;
        unimplemented!()
    }

    /// Sends deletes, waits for the peers a bounded time, undoes every change to the system and stops.
    pub async fn stop(&self) {
        unimplemented!()
    }

    /// Events from now on.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        unimplemented!()
    }
}
