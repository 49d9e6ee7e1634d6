//! The seam between the daemon and the engine, with an in-memory twin.

use esp::filter::{Filter, FilterStatus};
use esp::plane::{DataPlane, PacketSummary};
use esp::trace::Trace;
use ike::event::Event;
use ike::proof::trust::Trust;
use ike::status::IkeStatus;
use policy::Policy;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::broadcast;
use vpn::driver::{Activation, Handle, HandleError};

pub mod memory;

/// A running gateway, as far as the daemon needs one; the methods are those of [`Handle`].
pub trait Gateway: Clone + Send + Sync + 'static {
    /// Starts tunnels (all this side may start, if none is named) and waits until each is up or has failed.
    fn activate(
        &self,
        names: Vec<String>,
    ) -> impl Future<Output = Result<Vec<Activation>, HandleError>> + Send;
    /// Deletes a tunnel and waits until it is gone.
    fn deactivate(&self, name: &str) -> impl Future<Output = Result<(), HandleError>> + Send;
    /// Rekeys a tunnel and waits until the new SA is in use.
    fn rekey(&self, name: &str) -> impl Future<Output = Result<(), HandleError>> + Send;
    /// Every tunnel of the policy.
    fn status(&self) -> impl Future<Output = Result<Vec<IkeStatus>, HandleError>> + Send;
    /// Discarded datagrams and packets by reason.
    fn counters(&self) -> impl Future<Output = Result<BTreeMap<String, u64>, HandleError>> + Send;
    /// Replaces the policy; unchanged tunnels are untouched.
    fn replace_policy(
        &self,
        policy: Arc<Policy>,
    ) -> impl Future<Output = Result<(), HandleError>> + Send;
    /// Replaces what this side trusts and proves itself by; what is up stays up.
    fn replace_trust(
        &self,
        trust: Arc<Trust>,
    ) -> impl Future<Output = Result<(), HandleError>> + Send;
    /// What happens to traffic that is no tunnel's; `None` where the data plane leaves it alone.
    fn filter(&self) -> impl Future<Output = Result<Option<FilterStatus>, HandleError>> + Send;
    /// Replaces that.
    fn set_filter(
        &self,
        filter: Arc<Filter>,
    ) -> impl Future<Output = Result<(), HandleError>> + Send;
    /// What would become of a packet; `None` where the data plane cannot tell.
    fn trace(
        &self,
        packet: PacketSummary,
    ) -> impl Future<Output = Result<Option<Trace>, HandleError>> + Send;
    /// Works on the data plane itself.
    fn with_plane<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn DataPlane) -> R + Send + 'static,
    ) -> impl Future<Output = Result<R, HandleError>> + Send;
    /// Sends deletes, waits for the peers a bounded time, undoes every change to the system and stops.
    fn stop(&self) -> impl Future<Output = ()> + Send;
    /// Events from now on.
    fn events(&self) -> broadcast::Receiver<Event>;
}

impl Gateway for Handle {
    async fn activate(&self, names: Vec<String>) -> Result<Vec<Activation>, HandleError> {
        Handle::activate(self, names).await
    }

    async fn deactivate(&self, name: &str) -> Result<(), HandleError> {
        Handle::deactivate(self, name).await
    }

    async fn rekey(&self, name: &str) -> Result<(), HandleError> {
        Handle::rekey(self, name).await
    }

    async fn status(&self) -> Result<Vec<IkeStatus>, HandleError> {
        Handle::status(self).await
    }

    async fn counters(&self) -> Result<BTreeMap<String, u64>, HandleError> {
        Handle::counters(self).await
    }

    async fn replace_policy(&self, policy: Arc<Policy>) -> Result<(), HandleError> {
        Handle::replace_policy(self, policy).await
    }

    async fn replace_trust(&self, trust: Arc<Trust>) -> Result<(), HandleError> {
        Handle::replace_trust(self, trust).await
    }

    async fn filter(&self) -> Result<Option<FilterStatus>, HandleError> {
        Handle::filter(self).await
    }

    async fn set_filter(&self, filter: Arc<Filter>) -> Result<(), HandleError> {
        Handle::set_filter(self, filter).await
    }

    async fn trace(&self, packet: PacketSummary) -> Result<Option<Trace>, HandleError> {
        Handle::trace(self, packet).await
    }

    async fn with_plane<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn DataPlane) -> R + Send + 'static,
    ) -> Result<R, HandleError> {
        Handle::with_plane(self, work).await
    }

    async fn stop(&self) {
        Handle::stop(self).await;
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        Handle::events(self)
    }
}
