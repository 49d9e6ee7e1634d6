//! The commands that the rest of a program sends to a running engine.

use super::selection::Selection;
use crate::closed::{Closed, End};
use crate::events::Events;
use crate::manual::ManualSaError;
use esp::families::Families;
use esp::filter::{Filter, FilterStatus};
use esp::plane::{DataPlane, PlaneError};
use ike::CommandError;
use ike::durations::ExchangeDurations;
use ike::event::Event;
use ike::failure::Failure;
use ike::failure::facts::Unsendable;
use ike::proof::trust::Trust;
use ike::status::{IkeStatus, PageStart, StatusPage};
use policy::{InvalidPolicy, Policy};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tokio::sync::{broadcast, mpsc, oneshot};

/// Talks to a running engine; clones talk to the same one. The engine stops when the last of them is dropped.
#[derive(Clone, Debug)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    /// Weak, so that listeners see the end of the engine.
    events: broadcast::WeakSender<Event>,
    end: End,
}

/// As [`Handle`], but the engine may stop although there is one.
#[derive(Clone, Debug)]
pub struct WeakHandle {
    commands: mpsc::WeakSender<Command>,
    events: broadcast::WeakSender<Event>,
    end: End,
}

impl WeakHandle {
    /// A handle, as long as somebody else has one.
    pub fn upgrade(&self) -> Option<Handle> {
        let commands = self.commands.upgrade()?;
        Some(Handle { commands, events: self.events.clone(), end: self.end.clone() })
    }
}

/// The outcome for one name of an activation.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Activation {
    /// The name asked for.
    pub name: String,
    /// Up, or why not. It is serialized as `failure`: null, or the failure.
    #[cfg_attr(feature = "serde", serde(rename = "failure", serialize_with = "failure_of"))]
    pub outcome: Result<(), Failure>,
}

#[cfg(feature = "serde")]
fn failure_of<S: serde::Serializer>(
    outcome: &Result<(), Failure>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&outcome.as_ref().err(), serializer)
}

impl Activation {
    /// An outcome.
    pub fn new(name: impl Into<String>, outcome: Result<(), Failure>) -> Self {
        Self { name: name.into(), outcome }
    }
}

/// A tunnel whose start has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Begun {
    /// The name asked for.
    pub name: String,
    /// It is up already.
    pub up: bool,
}

impl Begun {
    /// A start.
    pub fn new(name: impl Into<String>, up: bool) -> Self {
        Self { name: name.into(), up }
    }
}

/// A command failed.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The engine refused it.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The negotiation it started failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The policy is invalid.
    #[error(transparent)]
    Policy(#[from] InvalidPolicy),
    /// The data plane refused.
    #[error(transparent)]
    Plane(#[from] PlaneError),
    /// SAs keyed by hand could not be added or removed.
    #[error(transparent)]
    Manual(Arc<ManualSaError>),
    /// The engine has stopped.
    #[error("the gateway has stopped")]
    Stopped,
}

policy::readable_debug!(GatewayError);

impl From<ManualSaError> for GatewayError {
    fn from(error: ManualSaError) -> Self {
        Self::Manual(Arc::new(error))
    }
}

pub(crate) type Reply<T> = oneshot::Sender<T>;

/// Work on the plane; it sends its own answer.
type PlaneWork = Box<dyn FnOnce(&mut dyn DataPlane) + Send>;

/// A command, with the place for its answer. The views of [`Gateway`](crate::Gateway) send them, and the driver carries
/// them out.
pub(crate) enum Command {
    Activate(Selection, Reply<Result<Vec<Activation>, GatewayError>>),
    StartActivate(Selection, Reply<Result<Vec<Begun>, GatewayError>>),
    Deactivate(String, Reply<Result<(), GatewayError>>),
    StartDeactivate(String, Reply<Result<(), GatewayError>>),
    Rekey(String, Reply<Result<(), GatewayError>>),
    StatusPage(Option<PageStart>, usize, Reply<Option<StatusPage>>),
    StatusOf(String, Reply<Option<IkeStatus>>),
    Lacking(Reply<Vec<(String, Unsendable)>>),
    Counters(Reply<BTreeMap<String, u64>>),
    ExchangeDurations(Reply<ExchangeDurations>),
    ReplacePolicy(Arc<Policy>, Reply<Result<(), InvalidPolicy>>),
    ReplaceTrust(Arc<Trust>, Reply<()>),
    Families(Reply<Families>),
    SetFamilies(Families, Reply<Result<(), PlaneError>>),
    Trust(Reply<Arc<Trust>>),
    Filter(Reply<Option<FilterStatus>>),
    SetFilter(Arc<Filter>, Reply<Result<(), PlaneError>>),
    Plane(PlaneWork),
    Stop,
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Command")
    }
}

impl Handle {
    pub(crate) fn new(
        commands: mpsc::Sender<Command>,
        events: broadcast::WeakSender<Event>,
        end: End,
    ) -> Self {
        Self { commands, events, end }
    }

    /// Sends a command, and waits for its answer.
    ///
    /// # Errors
    /// If the engine has stopped.
    pub async fn ask<T>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, GatewayError> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| GatewayError::Stopped)?;
        answer.await.map_err(|_| GatewayError::Stopped)
    }

    /// Works on the data plane itself, between two messages: nothing else is done meanwhile. For SAs that are not
    /// IKE's.
    ///
    /// # Errors
    /// If the engine has stopped.
    pub async fn with_plane<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn DataPlane) -> R + Send + 'static,
    ) -> Result<R, GatewayError> {
        self.ask(|reply: Reply<R>| {
            // The caller may be gone.
            Command::Plane(Box::new(move |plane| drop(reply.send(work(plane)))))
        })
        .await
    }

    /// A handle that does not keep the engine from stopping.
    pub fn downgrade(&self) -> WeakHandle {
        let (events, end) = (self.events.clone(), self.end.clone());
        WeakHandle { commands: self.commands.downgrade(), events, end }
    }

    /// Sends Deletes, waits a bounded time for the peers' answers, undoes every change to the system and stops. Returns
    /// once sockets and device are free.
    pub async fn stop(&self) {
        // An engine that has stopped already needs no stopping.
        let _ = self.commands.send(Command::Stop).await;
        self.end.seen().await;
    }

    /// Waits for the end of the engine.
    pub async fn closed(&self) -> Closed {
        self.end.seen().await
    }

    /// Events from now on.
    pub fn events(&self) -> Events {
        self.events.upgrade().map_or_else(Events::ended, |sender| sender.subscribe().into())
    }
}
