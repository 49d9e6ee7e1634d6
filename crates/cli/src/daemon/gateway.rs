//! The seam between the daemon and the engine. Tests have a twin of the engine in memory.

use esp::families::Families;
use esp::filter::{Filter, FilterStatus};
use esp::plane::{DataPlane, PacketSummary};
use esp::trace::Trace;
use ike::durations::ExchangeDurations;
use ike::failure::facts::Unsendable;
use ike::proof::trust::Trust;
use ike::status::{IkeStatus, PageStart, StatusPage};
use policy::Policy;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use userspace::workers::Workers;
use vpn::findings::Finding;
use vpn::manual::{ManualSa, ManualStatus, Removed, SaDirection};
use vpn::planes::Found;
use vpn::{Activation, Begun, Events, GatewayError, Selection};
use xfrm::placement::{Choice, Placed, Report};

/// A running gateway, as far as the daemon needs one; the methods are those of [`vpn::Gateway`] and its views.
pub trait Gateway: Clone + Send + Sync + 'static {
    /// Starts tunnels and waits until each is up or has failed.
    fn activate(
        &self,
        selection: Selection,
    ) -> impl Future<Output = Result<Vec<Activation>, GatewayError>> + Send;
    /// Deletes a tunnel and waits until it is gone.
    fn deactivate(&self, name: &str) -> impl Future<Output = Result<(), GatewayError>> + Send;
    /// Starts tunnels and does not wait.
    fn start_activate(
        &self,
        selection: Selection,
    ) -> impl Future<Output = Result<Vec<Begun>, GatewayError>> + Send;
    /// Begins to delete a tunnel.
    fn start_deactivate(&self, name: &str)
    -> impl Future<Output = Result<(), GatewayError>> + Send;
    /// The tunnels that are down and cannot come up, because this host lacks an address or a route.
    fn lacking(
        &self,
    ) -> impl Future<Output = Result<Vec<(String, Unsendable)>, GatewayError>> + Send;
    /// Rekeys a tunnel and waits until the new SA is in use.
    fn rekey(&self, name: &str) -> impl Future<Output = Result<(), GatewayError>> + Send;
    /// Every tunnel of the policy.
    fn status(&self) -> impl Future<Output = Result<Vec<IkeStatus>, GatewayError>> + Send;
    /// A page of them with at most `count` child tunnels. `None`: the policy has been replaced since the page before.
    fn status_page(
        &self,
        start: Option<PageStart>,
        count: usize,
    ) -> impl Future<Output = Result<Option<StatusPage>, GatewayError>> + Send;
    /// The phase 1 tunnel of this name, or the one with the phase 2 tunnel of this name, with that one alone. `None`:
    /// there is none.
    fn status_of(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<Option<IkeStatus>, GatewayError>> + Send;
    /// Reasons why packets do not pass through a tunnel that is up, or may not pass. The knowledge of the packet filter
    /// may be as old as `age`.
    fn findings(
        &self,
        tunnel: &IkeStatus,
        policy: &Policy,
        age: Duration,
    ) -> impl Future<Output = Result<Vec<Finding>, GatewayError>> + Send;
    /// Discarded datagrams and packets by reason.
    fn counters(&self) -> impl Future<Output = Result<BTreeMap<String, u64>, GatewayError>> + Send;
    /// The times from requests of this side to the peers' answers.
    fn exchange_durations(
        &self,
    ) -> impl Future<Output = Result<ExchangeDurations, GatewayError>> + Send;
    /// Replaces the policy; unchanged tunnels are untouched.
    fn replace_policy(
        &self,
        policy: Arc<Policy>,
    ) -> impl Future<Output = Result<(), GatewayError>> + Send;
    /// Replaces what this side trusts and proves itself by; tunnels that are up stay up.
    fn replace_trust(
        &self,
        trust: Arc<Trust>,
    ) -> impl Future<Output = Result<(), GatewayError>> + Send;
    /// The address families that tunnels may use.
    fn families(&self) -> impl Future<Output = Result<Families, GatewayError>> + Send;
    /// Switches IPsec of address families off or on.
    fn set_families(
        &self,
        families: Families,
    ) -> impl Future<Output = Result<(), GatewayError>> + Send;
    /// The filter for traffic outside the tunnels; `None` if the data plane has none.
    fn filter(&self) -> impl Future<Output = Result<Option<FilterStatus>, GatewayError>> + Send;
    /// Replaces that.
    fn set_filter(
        &self,
        filter: Arc<Filter>,
    ) -> impl Future<Output = Result<(), GatewayError>> + Send;
    /// Traces a packet; `None` if the data plane cannot.
    fn trace(
        &self,
        packet: PacketSummary,
    ) -> impl Future<Output = Result<Option<Trace>, GatewayError>> + Send;
    /// Works on the data plane itself.
    fn with_plane<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn DataPlane) -> R + Send + 'static,
    ) -> impl Future<Output = Result<R, GatewayError>> + Send;
    /// The SAs that are keyed by hand, and what each has done.
    fn manual_sas(&self) -> impl Future<Output = Result<Vec<ManualStatus>, GatewayError>> + Send;
    /// Adds SAs that are keyed by hand; `offload` by name and direction.
    fn add_manual_sas(
        &self,
        sas: Vec<ManualSa>,
        offload: BTreeMap<(String, SaDirection), Choice>,
    ) -> impl Future<Output = Result<(), GatewayError>> + Send;
    /// Removes those of a name.
    fn remove_manual_sas(
        &self,
        name: &str,
        keep_blocked: bool,
    ) -> impl Future<Output = Result<Removed, GatewayError>> + Send;
    /// Names of removed ones whose traffic is blocked.
    fn blocked_by_hand(&self) -> Vec<String>;
    /// The threads that carry packets.
    fn workers(&self) -> &Workers;
    /// The data planes in use.
    fn planes(&self) -> Found;
    /// The state of offload to network cards.
    fn cards(&self) -> Report;
    /// The SAs in the kernel, and where each is protected.
    fn placed(&self) -> Vec<Placed>;
    /// Sends deletes, waits for the peers a bounded time, undoes every change to the system and stops. With `blocked`,
    /// the traffic of the tunnels stays blocked.
    fn stop(&self, blocked: bool) -> impl Future<Output = ()> + Send;
    /// Events from now on.
    fn events(&self) -> Events;
}

impl Gateway for vpn::Gateway {
    async fn activate(&self, selection: Selection) -> Result<Vec<Activation>, GatewayError> {
        self.tunnels().activate(selection).await
    }

    async fn deactivate(&self, name: &str) -> Result<(), GatewayError> {
        self.tunnel(name).deactivate().await
    }

    async fn start_activate(&self, selection: Selection) -> Result<Vec<Begun>, GatewayError> {
        self.tunnels().start_activate(selection).await
    }

    async fn start_deactivate(&self, name: &str) -> Result<(), GatewayError> {
        self.tunnel(name).start_deactivate().await
    }

    async fn lacking(&self) -> Result<Vec<(String, Unsendable)>, GatewayError> {
        self.tunnels().lacking().await
    }

    async fn rekey(&self, name: &str) -> Result<(), GatewayError> {
        self.tunnel(name).rekey().await
    }

    async fn status(&self) -> Result<Vec<IkeStatus>, GatewayError> {
        self.tunnels().status().await
    }

    async fn status_page(
        &self,
        start: Option<PageStart>,
        count: usize,
    ) -> Result<Option<StatusPage>, GatewayError> {
        self.tunnels().status_page(start, count).await
    }

    async fn status_of(&self, name: &str) -> Result<Option<IkeStatus>, GatewayError> {
        self.tunnel(name).status().await
    }

    async fn findings(
        &self,
        tunnel: &IkeStatus,
        policy: &Policy,
        age: Duration,
    ) -> Result<Vec<Finding>, GatewayError> {
        vpn::Gateway::findings(self, tunnel, policy, age).await
    }

    async fn counters(&self) -> Result<BTreeMap<String, u64>, GatewayError> {
        vpn::Gateway::counters(self).await
    }

    async fn exchange_durations(&self) -> Result<ExchangeDurations, GatewayError> {
        vpn::Gateway::exchange_durations(self).await
    }

    async fn replace_policy(&self, policy: Arc<Policy>) -> Result<(), GatewayError> {
        vpn::Gateway::replace_policy(self, policy).await
    }

    async fn replace_trust(&self, trust: Arc<Trust>) -> Result<(), GatewayError> {
        vpn::Gateway::replace_trust(self, trust).await
    }

    async fn families(&self) -> Result<Families, GatewayError> {
        self.tunnels().families().await
    }

    async fn set_families(&self, families: Families) -> Result<(), GatewayError> {
        self.tunnels().set_families(families).await
    }

    async fn filter(&self) -> Result<Option<FilterStatus>, GatewayError> {
        vpn::Gateway::filter(self).status().await
    }

    async fn set_filter(&self, filter: Arc<Filter>) -> Result<(), GatewayError> {
        vpn::Gateway::filter(self).replace(filter).await
    }

    async fn trace(&self, packet: PacketSummary) -> Result<Option<Trace>, GatewayError> {
        vpn::Gateway::filter(self).trace(packet).await
    }

    async fn with_plane<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn DataPlane) -> R + Send + 'static,
    ) -> Result<R, GatewayError> {
        vpn::Gateway::with_plane(self, work).await
    }

    async fn manual_sas(&self) -> Result<Vec<ManualStatus>, GatewayError> {
        self.manual().status().await
    }

    async fn add_manual_sas(
        &self,
        sas: Vec<ManualSa>,
        offload: BTreeMap<(String, SaDirection), Choice>,
    ) -> Result<(), GatewayError> {
        self.manual().add(sas, offload).await
    }

    async fn remove_manual_sas(
        &self,
        name: &str,
        keep_blocked: bool,
    ) -> Result<Removed, GatewayError> {
        self.manual().remove(name, keep_blocked).await
    }

    fn blocked_by_hand(&self) -> Vec<String> {
        self.manual().blocked()
    }

    fn workers(&self) -> &Workers {
        vpn::Gateway::workers(self)
    }

    fn planes(&self) -> Found {
        self.offload().planes()
    }

    fn cards(&self) -> Report {
        self.offload().report()
    }

    fn placed(&self) -> Vec<Placed> {
        self.offload().sas()
    }

    async fn stop(&self, blocked: bool) {
        match blocked {
            true => self.stop_blocked().await,
            false => vpn::Gateway::stop(self).await,
        }
    }

    fn events(&self) -> Events {
        vpn::Gateway::events(self)
    }
}
