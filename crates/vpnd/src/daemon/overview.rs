//! The daemon's answers about itself and about traffic outside the tunnels.

use super::Daemon;
use super::refusal::refusal;
use crate::config::Config;
use crate::counters::{UNSERVED, explanation};
use crate::filter::KeptDefaults;
use crate::preflight;
use crate::remark::Severity;
use crate::{filter, trace, view};
use control::protocol::DefaultAction;
use control::protocol::{
    Fallback, FilterChange, FilterInfo, Fleet, GuardInfo, Overview, PlaneInfo, Refusal,
    RefusalCode, TraceInfo, Unrouted,
};
use esp::filter::{Filter, FilterStatus};
use esp::plane::Maintenance;
use ike::status::{State, StatusPage};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};
use vpn::planes::{Found, KernelUse};

impl Daemon {
    pub(super) async fn overview(&self) -> Result<Overview, Refusal> {
        let [tunnels, children] = self.count().await?;
        let counters = self.gateway().counters().await.map_err(refusal)?;
        let [ike_discarded, esp_discarded] = ["ike.", "esp."].map(|layer| {
            counters.iter().filter(|(name, _)| name.starts_with(layer)).map(|(_, n)| n).sum()
        });
        let filter = self.gateway().filter().status().await.map_err(refusal)?;
        let config = &self.started_with.config;
        let in_force = filter.as_ref().map(|status| Arc::clone(&status.filter)).unwrap_or_default();
        let remarks = self.remarks(&in_force).await?;
        let warnings = remarks.iter().filter(|remark| remark.severity == Severity::Warning);
        let warnings = warnings.map(ToString::to_string).collect();
        let offload_advice = remarks.iter().filter(|remark| remark.kind == preflight::OFFLOAD);
        let offload_advice = offload_advice.map(ToString::to_string).collect();
        let (found, offload) = (self.gateway().offload().planes(), self.offload());
        Ok(Overview {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            up_seconds: self.started.elapsed().as_secs(),
            policy: self.source.to_string(),
            log_level: Some(self.levels.current()),
            configuration: self.started_with.file.as_ref().map(|file| file.display().to_string()),
            tunnels,
            children,
            warnings,
            planes: planes(&found, &config.esp.device),
            fallbacks: found
                .fallbacks
                .into_iter()
                .map(|(tunnel, reason)| Fallback { tunnel, reason })
                .collect(),
            unrouted: found
                .unrouted
                .into_values()
                .map(|u| Unrouted { tunnel: u.tunnel, network: u.network, command: u.command })
                .collect(),
            offload_advice,
            remarks: remarks.iter().map(view::remark).collect(),
            not_offloaded: terminal::report::not_offloaded(&offload),
            offload: Some(offload)
                .filter(|info| !info.sas.is_empty())
                .map(|info| terminal::report::offload_summary(&info)),
            manual_sas: self.manual_sas().await?,
            guard: self.guard().await,
            confinement: self.confinement.clone(),
            filter: filter.as_ref().map(|status| view::filter(status, self.filter_settings.file())),
            ike_discarded,
            esp_discarded,
            keys_exported_to: self.keys_exported_to.as_ref().map(|d| d.display().to_string()),
        })
    }

    /// Counts phase 1 and phase 2 tunnels, one page after the other, and keeps none of them.
    async fn count(&self) -> Result<[Fleet; 2], Refusal> {
        let mut count = Count::default();
        self.gateway().tunnels().each_page(|page| count.take(page)).await.map_err(refusal)?;
        Ok([count.tunnels, count.children])
    }

    /// The state of the guard; `None` where it cannot be told. `nft` may take long to answer.
    pub(super) async fn guard(&self) -> Option<GuardInfo> {
        let esp = &self.started_with.config.esp;
        let (directory, device) = (esp.state_dir.clone(), esp.device.clone());
        let asked = tokio::task::spawn_blocking(move || vpn::guard::state(&directory, &device));
        let state = asked.await.ok()?.ok()?;
        Some(GuardInfo {
            in_force: state.in_force,
            held_seconds: state.held_for().map(|held| held.as_secs()),
            unprotected_leaving: state.unprotected_leaving,
            unprotected_arriving: state.unprotected_arriving,
        })
    }

    /// Counts of discarded packets and messages, with those of the kernel if it protects packets.
    pub(super) async fn counters(&self) -> Result<BTreeMap<String, u64>, Refusal> {
        let mut counters = self.gateway().counters().await.map_err(refusal)?;
        if matches!(self.gateway().offload().planes().kernel, KernelUse::Used { .. }) {
            // In the thread that is surely in the plane's namespace.
            let asked = self.gateway().with_plane(|_| xfrm::statistics()).await;
            let kernel = asked.map_err(refusal)?.into_iter();
            counters.extend(kernel.map(|(name, n)| (format!("xfrm.{name}"), n)));
        }
        Ok(counters)
    }

    /// A sentence about each of the counters, and about those of tunnels.
    pub(super) async fn counter_meanings(&self) -> Result<BTreeMap<String, String>, Refusal> {
        let names = self.counters().await?.into_keys().chain([UNSERVED.to_owned()]);
        Ok(names
            .filter_map(|name| explanation(&name).map(|meaning| (name, meaning.into())))
            .collect())
    }

    /// Counts of discarded packets of each tunnel.
    pub(super) async fn tunnel_counters(
        &self,
    ) -> Result<BTreeMap<String, BTreeMap<String, u64>>, Refusal> {
        let asked = self.gateway().with_plane(|plane| plane.maintenance().unserved()).await;
        let unserved = asked.map_err(refusal)?.into_iter();
        let counters =
            unserved.map(|(tunnel, n)| (tunnel, BTreeMap::from([(UNSERVED.to_owned(), n)])));
        Ok(counters.collect())
    }

    pub(super) async fn trace(&self, description: &str) -> Result<TraceInfo, Refusal> {
        let packet = esp::trace::parse(description)
            .map_err(|error| Refusal::new(RefusalCode::BadPacket, error.to_string()))?;
        let trace = self.gateway().filter().trace(packet).await.map_err(refusal)?;
        let message = "this data plane cannot tell what it would do";
        let trace = trace.ok_or_else(|| Refusal::new(RefusalCode::NotPossible, message))?;
        let families = self.gateway().tunnels().families().await.map_err(refusal)?;
        Ok(trace::explain(&packet, &trace, families))
    }

    pub(super) async fn filter(&self) -> Result<FilterStatus, Refusal> {
        let message = "this data plane leaves traffic that is no tunnel's alone";
        let filter = self.gateway().filter().status().await.map_err(refusal)?;
        filter.ok_or_else(|| Refusal::new(RefusalCode::NotPossible, message))
    }

    pub(super) async fn set_defaults(
        &self,
        ipv4: Option<DefaultAction>,
        ipv6: Option<DefaultAction>,
        undo_after: Option<Duration>,
        persist: bool,
    ) -> Result<FilterInfo, Refusal> {
        // One at a time with reloads, which replace the filter, too.
        let _guard = self.reloading.lock().await;
        let before = self.filter().await?.filter;
        let kept = if persist { KeptDefaults { ipv4, ipv6 } } else { KeptDefaults::default() };
        match undo_after {
            Some(time) => self.pending_filter.set(Arc::clone(&before), time, kept),
            None => self.confirm_filter()?,
        }
        let after = Filter {
            ipv4: ipv4.map_or(before.ipv4, view::default_action),
            ipv6: ipv6.map_or(before.ipv6, view::default_action),
            rules: before.rules.clone(),
        };
        if *before != after {
            self.change_filter(Arc::new(after)).await?;
        }
        if persist && undo_after.is_none() {
            self.persist_defaults(kept)?;
        }
        self.described_filter().await
    }

    /// Has the defaults of the configuration count again.
    pub(super) async fn forget_defaults(&self) -> Result<FilterInfo, Refusal> {
        let _guard = self.reloading.lock().await;
        let configured = match self.started_with.file.clone() {
            Some(file) => {
                let read = tokio::task::spawn_blocking(move || Config::read(&file)).await;
                let read = read
                    .map_err(|error| error.to_string())
                    .and_then(|read| read.map_err(|error| error.to_string()));
                read.map_err(|error| Refusal::new(RefusalCode::BadConfiguration, error))?
            }
            None => self.started_with.config.clone(),
        };
        let before = self.filter().await?.filter;
        self.filter_settings.forget().map_err(|error| {
            let file = self.filter_settings.file().display();
            Refusal::new(RefusalCode::NotPossible, format!("{file} cannot be written: {error}"))
        })?;
        let _ = self.pending_filter.confirm();
        let Filter { ipv4, ipv6, .. } = configured.filter.filter();
        let after = Filter { ipv4, ipv6, rules: before.rules.clone() };
        if *before != after {
            self.change_filter(Arc::new(after)).await?;
        }
        self.described_filter().await
    }

    /// The filter with the time until a change of it is undone.
    pub(super) async fn described_filter(&self) -> Result<FilterInfo, Refusal> {
        let undo_in_seconds = self.pending_filter.left().map(|left| left.as_secs());
        let filter = view::filter(&self.filter().await?, self.filter_settings.file());
        Ok(FilterInfo { undo_in_seconds, ..filter })
    }

    /// Puts the filter of a configuration in force, unless `dry_run`. Tells what that changes, and of what needs a
    /// restart.
    pub(super) async fn reconfigure(
        &self,
        config: Option<Config>,
        dry_run: bool,
        undo_after: Option<Duration>,
    ) -> Result<(Vec<FilterChange>, Option<String>), Refusal> {
        let Some(config) = config else { return Ok(Default::default()) };
        let remark = self.needs_restart(&config);
        let Some(status) = self.gateway().filter().status().await.map_err(refusal)? else {
            return Ok((Vec::new(), remark));
        };
        let after = self.filter_settings.filter(&config.filter);
        let changes = filter::changes(&status.filter, &after);
        if dry_run {
            return Ok((changes, remark));
        }
        match undo_after.filter(|_| *status.filter != after) {
            Some(time) => {
                let before = Arc::clone(&status.filter);
                self.pending_filter.set(before, time, KeptDefaults::default());
            }
            // The file is what counts from now on.
            None => _ = self.pending_filter.confirm(),
        }
        if *status.filter != after {
            self.set_filter(Arc::new(after)).await?;
        }
        self.keep_filter_section(config.filter);
        Ok((changes, remark))
    }

    /// A remark, if the configuration file has changed in settings that only a restart puts in force. It names them,
    /// without their values, which may be secret.
    fn needs_restart(&self, config: &Config) -> Option<String> {
        let changed = config.needs_restart(&self.started_with.config);
        let file = self.started_with.file.as_ref().filter(|_| !changed.is_empty())?;
        let text = "a change of [filter] is in force now; restart vpnd for the other changes there";
        Some(format!("{}: {text}: {}", file.display(), changed.join(", ")))
    }

    /// Puts a filter in force that no reload has brought, whose remarks would say what it denies.
    pub(super) async fn change_filter(&self, filter: Arc<Filter>) -> Result<(), Refusal> {
        self.set_filter(Arc::clone(&filter)).await?;
        let device = &self.started_with.config.esp.device;
        if let Some(told) = preflight::filter::denial(&filter, device) {
            warn!("{told}");
        }
        Ok(())
    }

    async fn set_filter(&self, filter: Arc<Filter>) -> Result<(), Refusal> {
        self.gateway().filter().replace(Arc::clone(&filter)).await.map_err(refusal)?;
        info!(
            rules = filter.rules.len(),
            ipv4 = filter.ipv4.name(),
            ipv6 = filter.ipv6.name(),
            "filter replaced"
        );
        Ok(())
    }
}

/// Tunnels of both phases, so far.
#[derive(Default)]
struct Count {
    tunnels: Fleet,
    children: Fleet,
    /// The phase 1 tunnel at the end of the last page. The next page may begin with the rest of it.
    last: String,
}

impl Count {
    /// Counts the tunnels of a page, or begins again.
    fn take(&mut self, page: Option<StatusPage>) {
        let Some(page) = page else {
            *self = Self::default();
            return;
        };
        for tunnel in page.tunnels {
            if self.tunnels.defined == 0 || tunnel.name != self.last {
                add(&mut self.tunnels, tunnel.state);
            }
            tunnel.children.iter().for_each(|child| add(&mut self.children, child.state));
            self.last = tunnel.name;
        }
    }
}

fn add(fleet: &mut Fleet, state: State) {
    fleet.defined += 1;
    fleet.up += usize::from(state.is_up());
}

/// The data planes in use: the kernel's if it is wanted and usable, then userspace if a tunnel is there or the
/// kernel is not used.
fn planes(found: &Found, device: &str) -> Vec<PlaneInfo> {
    let (kind, device) = ("userspace".to_owned(), device.to_owned());
    let userspace = PlaneInfo { kind, device, remark: None };
    let missing = match &found.kernel {
        KernelUse::NotWanted => return vec![userspace],
        KernelUse::Unusable(why) => {
            let remark = Some(format!("the kernel cannot: {why}"));
            return vec![PlaneInfo { remark, ..userspace }];
        }
        KernelUse::Used { missing } => missing,
    };
    let remark = (!missing.is_empty()).then(|| format!("this kernel lacks {}", missing.join(", ")));
    let xfrm = PlaneInfo { kind: "xfrm".to_owned(), device: String::new(), remark };
    [xfrm].into_iter().chain(found.userspace.then_some(userspace)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ike::status::{ChildStatus, IkeStatus};
    use policy::Mode;

    fn tunnel(name: &str, state: State, children: &[State]) -> IkeStatus {
        let mut tunnel = IkeStatus::new(name);
        tunnel.state = state;
        let child = |state: &State| {
            let mut child = ChildStatus::new("net", Mode::Tunnel);
            child.state = *state;
            child
        };
        tunnel.children = children.iter().map(child).collect();
        tunnel
    }

    #[test]
    fn a_tunnel_on_two_pages_is_counted_once() {
        use State::{Blocked, Down, Established, Rekeying};
        let mut count = Count::default();
        let page = |tunnels| Some(StatusPage { tunnels, next: None });
        count.take(page(vec![tunnel("gone", Down, &[Down])]));
        // The policy has been replaced.
        count.take(None);
        count.take(page(vec![tunnel("a", Down, &[]), tunnel("b", Rekeying, &[Established, Down])]));
        count.take(page(vec![tunnel("b", Rekeying, &[Blocked]), tunnel("c", Established, &[])]));
        assert_eq!(count.tunnels, Fleet { defined: 3, up: 2 });
        assert_eq!(count.children, Fleet { defined: 3, up: 1 });
    }
}
