//! Small views of a running gateway, one per topic.

use super::Handles;
use crate::driver::{Activation, Begun, Command, GatewayError, Handle, Selection};
use crate::manual::{ManualSa, ManualSas, ManualStatus, Removed, SaDirection};
use crate::planes::Found;
use crypto::CryptoProviders;
use esp::families::Families;
use esp::filter::{Filter, FilterStatus};
use esp::plane::{CryptoAccounting, Filtering, Maintenance, PacketSummary, Resynced};
use esp::trace::Trace;
use ike::failure::facts::Unsendable;
use ike::status::{IkeStatus, PageStart, StatusPage};
use std::collections::BTreeMap;
use std::sync::Arc;
use xfrm::placement::{Choice, Placed, Placement, Report as OffloadReport};

/// Phase 2 tunnels that the engine is asked for at a time where all are read.
const PAGE: usize = 64;

/// The tunnels of a gateway's policy.
#[derive(Clone, Copy, Debug)]
pub struct Tunnels<'a> {
    handle: &'a Handle,
}

impl<'a> Tunnels<'a> {
    pub(crate) fn new(handle: &'a Handle) -> Self {
        Self { handle }
    }

    /// A tunnel, by the name of a phase 1 tunnel or of a phase 2 tunnel. The name is looked up by each command.
    pub fn get(&self, name: &'a str) -> Tunnel<'a> {
        Tunnel { handle: self.handle, name }
    }

    /// The state of every tunnel of the policy. Many tunnels are read one page after the other, as by
    /// [`each_page`](Self::each_page), and all belong to one policy.
    ///
    /// # Errors
    /// If the gateway has ended.
    ///
    /// # Cancellation
    /// Dropping the future has no effect on the gateway.
    pub async fn status(&self) -> Result<Vec<IkeStatus>, GatewayError> {
        let mut all = Vec::new();
        let pages = self.each_page(|page| match page {
            Some(page) => page.join(&mut all),
            None => all.clear(),
        });
        pages.await?;
        Ok(all)
    }

    /// Reads every tunnel of the policy, and hands each page to `take`. `None` instead of a page: the policy has been
    /// replaced, the pages before are void, and those of the new policy follow.
    ///
    /// # Errors
    /// If the gateway has ended.
    ///
    /// # Cancellation
    /// Dropping the future has no effect on the gateway.
    pub async fn each_page(
        &self,
        mut take: impl FnMut(Option<StatusPage>),
    ) -> Result<(), GatewayError> {
        let mut start = None;
        loop {
            let mut page = self.status_page(start.take(), PAGE).await?;
            let is_void = page.is_none();
            start = page.as_mut().and_then(|page| page.next.take());
            take(page);
            if !is_void && start.is_none() {
                return Ok(());
            }
        }
    }

    /// A page of the policy's tunnels with at most `count` phase 2 tunnels: the first one, or the one that begins where
    /// another ends ([`StatusPage::next`]). `None`: the policy has been replaced since, and the reading has to begin
    /// again. The gateway answers its peers between two pages, so that a program which asks often does not hold it up.
    ///
    /// # Errors
    /// If the gateway has ended.
    ///
    /// # Cancellation
    /// Dropping the future has no effect on the gateway.
    pub async fn status_page(
        &self,
        start: Option<PageStart>,
        count: usize,
    ) -> Result<Option<StatusPage>, GatewayError> {
        self.handle.ask(|reply| Command::StatusPage(start, count, reply)).await
    }

    /// Starts the tunnels of these names, or with [`Selection::All`] all that this side may start, and waits until each
    /// is up or has failed, up to three minutes. A tunnel that is up counts as started.
    ///
    /// # Errors
    /// If a name is unknown, or belongs to a tunnel that this side may not start: then none is started.
    ///
    /// # Cancellation
    /// If the future is dropped, the negotiations go on; the events tell what became of them.
    pub async fn activate(
        &self,
        selection: impl Into<Selection>,
    ) -> Result<Vec<Activation>, GatewayError> {
        let selection = selection.into();
        self.handle.ask(|reply| Command::Activate(selection, reply)).await?
    }

    /// Starts tunnels as [`activate`](Self::activate) does, and does not wait for them. The events tell what becomes of
    /// them.
    ///
    /// # Errors
    /// As [`activate`](Self::activate).
    ///
    /// # Cancellation
    /// If the future is dropped, the negotiations may or may not have begun.
    pub async fn start_activate(
        &self,
        selection: impl Into<Selection>,
    ) -> Result<Vec<Begun>, GatewayError> {
        let selection = selection.into();
        self.handle.ask(|reply| Command::StartActivate(selection, reply)).await?
    }

    /// The tunnels that are down and cannot come up now, because this host lacks the address of this side or a route to
    /// the peer.
    ///
    /// # Errors
    /// If the gateway has ended.
    ///
    /// # Cancellation
    /// Dropping the future has no effect on the gateway.
    pub async fn lacking(&self) -> Result<Vec<(String, Unsendable)>, GatewayError> {
        self.handle.ask(Command::Lacking).await
    }

    /// The address families that tunnels may use.
    ///
    /// # Errors
    /// If the gateway has ended.
    ///
    /// # Cancellation
    /// Dropping the future has no effect on the gateway.
    pub async fn families(&self) -> Result<Families, GatewayError> {
        self.handle.ask(Command::Families).await
    }

    /// Switches IPsec of address families off or on. While a family is off, its tunnels are down, and its packets pass
    /// no tunnel: the data plane drops them, never sends them in the clear. With the family on again, the tunnels come
    /// back that were up or that start by themselves.
    ///
    /// # Errors
    /// If the data plane or the system refuses: then nothing changes. If the gateway has ended.
    ///
    /// # Cancellation
    /// If the future is dropped, the families may or may not have changed.
    pub async fn set_families(&self, families: Families) -> Result<(), GatewayError> {
        Ok(self.handle.ask(|reply| Command::SetFamilies(families, reply)).await??)
    }
}

/// One tunnel: a phase 1 tunnel with all its phase 2 tunnels, or a single phase 2 tunnel.
#[derive(Clone, Copy, Debug)]
pub struct Tunnel<'a> {
    handle: &'a Handle,
    name: &'a str,
}

impl Tunnel<'_> {
    /// Starts it and waits until it is up or has failed.
    ///
    /// # Errors
    /// If the name is unknown, if this side may not start it, or with the reason why it has failed.
    ///
    /// # Cancellation
    /// If the future is dropped, the negotiation goes on; the events tell what became of it.
    pub async fn activate(&self) -> Result<(), GatewayError> {
        let activations = Tunnels::new(self.handle).activate([self.name]).await?;
        activations.into_iter().try_for_each(|activation| Ok(activation.outcome?))
    }

    /// Deletes its SAs and waits until they are gone.
    ///
    /// # Errors
    /// If the name is unknown, or nothing is up under it.
    ///
    /// # Cancellation
    /// If the future is dropped, the SAs go nevertheless.
    pub async fn deactivate(&self) -> Result<(), GatewayError> {
        self.handle.ask(|reply| Command::Deactivate(self.name.into(), reply)).await?
    }

    /// Begins to delete its SAs, and does not wait for the peer.
    ///
    /// # Errors
    /// As [`deactivate`](Self::deactivate).
    ///
    /// # Cancellation
    /// If the future is dropped, the SAs may or may not go.
    pub async fn start_deactivate(&self) -> Result<(), GatewayError> {
        self.handle.ask(|reply| Command::StartDeactivate(self.name.into(), reply)).await?
    }

    /// Rekeys it and waits until the new SA is in use. No packet is lost.
    ///
    /// # Errors
    /// If the name is unknown, nothing is up under it, or the peer refuses.
    ///
    /// # Cancellation
    /// If the future is dropped, the rekeying goes on.
    pub async fn rekey(&self) -> Result<(), GatewayError> {
        self.handle.ask(|reply| Command::Rekey(self.name.into(), reply)).await?
    }

    /// Its state: that of the phase 1 tunnel of this name, or of the one with the phase 2 tunnel of this name, which
    /// then lists that phase 2 tunnel alone. `None`: the policy has no such tunnel.
    ///
    /// # Errors
    /// If the gateway has ended.
    ///
    /// # Cancellation
    /// Dropping the future has no effect on the gateway.
    pub async fn status(&self) -> Result<Option<IkeStatus>, GatewayError> {
        self.handle.ask(|reply| Command::StatusOf(self.name.into(), reply)).await
    }
}

/// The filter for traffic that belongs to no tunnel.
#[derive(Clone, Copy, Debug)]
pub struct FilterView<'a> {
    handle: &'a Handle,
}

impl<'a> FilterView<'a> {
    pub(super) fn new(handle: &'a Handle) -> Self {
        Self { handle }
    }

    /// The filter in force and how often each rule was used; `None` where the data plane has no filter.
    ///
    /// # Errors
    /// If the gateway has ended.
    ///
    /// # Cancellation
    /// Dropping the future has no effect on the gateway.
    pub async fn status(&self) -> Result<Option<FilterStatus>, GatewayError> {
        self.handle.ask(Command::Filter).await
    }

    /// Replaces the filter.
    ///
    /// # Errors
    /// If the data plane has no filter or the system refuses the new one; the old one stays in force then.
    ///
    /// # Cancellation
    /// If the future is dropped, the filter may or may not be replaced; it is never replaced in part.
    pub async fn replace(&self, filter: impl Into<Arc<Filter>>) -> Result<(), GatewayError> {
        let filter = filter.into();
        Ok(self.handle.ask(|reply| Command::SetFilter(filter, reply)).await??)
    }

    /// The predicted way of a packet, in both directions; `None` if the data plane cannot tell.
    ///
    /// # Errors
    /// If the gateway has ended.
    ///
    /// # Cancellation
    /// Dropping the future has no effect on the gateway.
    pub async fn trace(&self, packet: PacketSummary) -> Result<Option<Trace>, GatewayError> {
        self.handle.with_plane(move |plane| plane.filtering().trace(&packet)).await
    }
}

/// The plane that protects each tunnel's packets, and the offload to network cards.
#[derive(Clone, Copy, Debug)]
pub struct OffloadView<'a> {
    handle: &'a Handle,
    handles: &'a Handles,
}

impl<'a> OffloadView<'a> {
    pub(super) fn new(handle: &'a Handle, handles: &'a Handles) -> Self {
        Self { handle, handles }
    }

    /// The planes in use, and the reason for each tunnel that is not in the plane that was wanted.
    pub fn planes(&self) -> Found {
        self.handles.planes.found()
    }

    /// The work of network cards.
    pub fn report(&self) -> OffloadReport {
        self.handles.placement.report()
    }

    /// The SAs in the kernel, and where each is protected.
    pub fn sas(&self) -> Vec<Placed> {
        self.handles.placement.sas()
    }

    /// Those of the phase 2 tunnels for whose names `of` returns `true`.
    pub fn sas_of(&self, of: impl Fn(&str) -> bool) -> Vec<Placed> {
        self.handles.placement.sas_of(of)
    }

    /// Puts back what other programs have removed from the kernel's plane, and moves SAs to where they are wanted.
    ///
    /// # Errors
    /// If the gateway has ended, or the kernel refuses something; the rest is put back nevertheless.
    ///
    /// # Cancellation
    /// If the future is dropped, it may or may not be done.
    pub async fn resync(&self) -> Result<Resynced, GatewayError> {
        Ok(self.handle.with_plane(|plane| plane.maintenance().resync()).await??)
    }
}

/// The crypto providers of ESP and AH.
#[derive(Clone, Copy, Debug)]
pub struct CryptoView<'a> {
    handle: &'a Handle,
    handles: &'a Handles,
}

impl<'a> CryptoView<'a> {
    pub(super) fn new(handle: &'a Handle, handles: &'a Handles) -> Self {
        Self { handle, handles }
    }

    /// The providers, by which a program sees which instructions of the CPU are used, and switches them off and on.
    pub fn providers(&self) -> &'a Arc<CryptoProviders> {
        &self.handles.crypto
    }

    /// Brings [`providers`](Self::providers) up to date with what the kernel and network cards have done so far.
    ///
    /// # Errors
    /// If the gateway has ended.
    ///
    /// # Cancellation
    /// Dropping the future has no effect on the gateway.
    pub async fn count(&self) -> Result<(), GatewayError> {
        self.handle.with_plane(|plane| plane.crypto_accounting().count_work()).await
    }
}

/// SAs without IKE.
#[derive(Clone, Copy, Debug)]
pub struct ManualView<'a> {
    handle: &'a Handle,
    sas: &'a ManualSas,
    placement: &'a Placement,
}

impl<'a> ManualView<'a> {
    pub(super) fn new(handle: &'a Handle, handles: &'a Handles) -> Self {
        Self { handle, sas: &handles.manual, placement: &handles.placement }
    }

    /// Every SA that is there from the start, as it was configured.
    pub fn iter(&self) -> impl Iterator<Item = &'a ManualSa> {
        self.sas.iter()
    }

    /// The counters of each SA.
    ///
    /// # Errors
    /// If the gateway has ended.
    ///
    /// # Cancellation
    /// Dropping the future has no effect on the gateway.
    pub async fn status(&self) -> Result<Vec<ManualStatus>, GatewayError> {
        let sas = self.sas.clone();
        self.handle.with_plane(move |plane| sas.status(plane)).await
    }

    /// The names whose SAs were [removed](Self::remove) and whose traffic is blocked.
    pub fn blocked(&self) -> Vec<String> {
        self.sas.blocked()
    }

    /// Adds SAs until the gateway stops. Their traffic is protected or dropped from the moment at which this returns.
    /// They go on behind the sequence numbers that were ever used with their keys, as the file of sequence numbers
    /// says. `offload` is the wanted offload of single SAs, by name and direction.
    ///
    /// # Errors
    /// If an SA does not go together with the others, or the plane or the file of sequence numbers refuses: then none
    /// is added. If the gateway has ended.
    ///
    /// # Cancellation
    /// If the future is dropped, the SAs may or may not be added; never a part of them.
    pub async fn add(
        &self,
        sas: Vec<ManualSa>,
        offload: BTreeMap<(String, SaDirection), Choice>,
    ) -> Result<(), GatewayError> {
        let (handle, placement) = (self.handle.clone(), self.placement.clone());
        to_the_end(self.sas.clone().add(handle, placement, sas, offload)).await
    }

    /// Removes the SAs of a name, wipes their keys, and notes the last sequence number that was used. With
    /// `keep_blocked` their traffic stays blocked, until SAs of this name are added, or it is removed without
    /// `keep_blocked`, or the gateway stops. Otherwise it is no longer matched, and takes the host's other routes, in
    /// the clear.
    ///
    /// # Errors
    /// If no SA has that name. If the gateway has ended.
    ///
    /// # Cancellation
    /// If the future is dropped, the SAs may or may not be removed; never a part of them.
    pub async fn remove(&self, name: &str, keep_blocked: bool) -> Result<Removed, GatewayError> {
        let (handle, placement) = (self.handle.clone(), self.placement.clone());
        let name = name.to_owned();
        to_the_end(self.sas.clone().remove(handle, placement, name, keep_blocked)).await
    }
}

/// Has work go on if nobody waits for it any more.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, GatewayError>> + Send + 'static,
) -> Result<T, GatewayError> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.spawn(work).await.unwrap_or(Err(GatewayError::Stopped)),
        Err(_) => work.await,
    }
}
