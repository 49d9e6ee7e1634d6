//! The daemon's numbers for monitoring systems.
//!
//! A scrape asks the engine for a few tunnels at a time, so that it answers its peers meanwhile.

use super::refusal::refusal;
use super::{Daemon, Gateway};
use ::metrics::{
    Address, BindError, Bound, Bytes, Fleet, Happenings, Ledger, Limits, Snapshot, Source,
};
use control::protocol::{GuardInfo, Refusal};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::task::JoinSet;
use tracing::{info, warn};
use vpn::Events;

/// Tunnels that the engine is asked for at a time.
const PAGE: usize = 64;
/// For so long, another client gets the same text.
const FRESH: Duration = Duration::from_secs(1);
/// For so long, the guard is not looked at again: `nft` runs for that.
const GUARD_FRESH: Duration = Duration::from_secs(10);

/// Listens at the address of the configuration, before the daemon is confined.
///
/// # Errors
/// If the address is taken, or the system refuses.
pub fn listen(address: &Address) -> Result<Bound, BindError> {
    let bound = Bound::new(address)?;
    if address.is_public() {
        warn!(
            "{address} tells the names and the traffic of all tunnels to everybody who reaches it"
        );
    }
    info!("metrics are served at {address}");
    Ok(bound)
}

/// Serves metrics until the returned tasks are dropped. `events` are those of the gateway.
pub fn serve<G: Gateway>(bound: Bound, daemon: &Arc<Daemon<G>>, events: Events) -> JoinSet<()> {
    let happenings = Arc::new(Mutex::new(Happenings::default()));
    let hosts = daemon.started_with.config.metrics.hosts.clone();
    let metrics = Metrics {
        daemon: Arc::clone(daemon),
        happenings: Arc::clone(&happenings),
        started: SystemTime::now() - daemon.started.elapsed(),
        kept: tokio::sync::Mutex::default(),
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(count(events, happenings));
    tasks.spawn(async move {
        let served = ::metrics::serve(bound, hosts, Limits::default(), Arc::new(metrics)).await;
        if let Err(error) = served {
            warn!(%error, "cannot serve metrics");
        }
    });
    tasks
}

async fn count(mut events: Events, happenings: Arc<Mutex<Happenings>>) {
    while let Some(event) = events.recv().await {
        let mut happenings = happenings.lock().unwrap_or_else(PoisonError::into_inner);
        happenings.miss(events.missed());
        happenings.see(&event, Instant::now());
    }
}

struct Metrics<G> {
    daemon: Arc<Daemon<G>>,
    happenings: Arc<Mutex<Happenings>>,
    started: SystemTime,
    /// One scrape at a time.
    kept: tokio::sync::Mutex<Kept>,
}

/// State that is kept from one scrape to the next.
#[derive(Default)]
struct Kept {
    ledger: Ledger,
    guard: Option<(Instant, Option<GuardInfo>)>,
    text: Option<(Instant, Bytes)>,
}

impl<G: Gateway> Source for Metrics<G> {
    async fn scrape(&self) -> Option<Bytes> {
        let mut kept = self.kept.lock().await;
        if let Some((at, text)) = &kept.text
            && at.elapsed() < FRESH
        {
            return Some(text.clone());
        }
        let snapshot = self.daemon.snapshot(self.started, &mut kept).await.ok()?;
        let tallies = self.happenings.lock().unwrap_or_else(PoisonError::into_inner).tallies();
        // Many tunnels make a long text.
        let text = tokio::task::spawn_blocking(move || Bytes::from(snapshot.text(tallies)));
        let text = text.await.ok()?;
        kept.text = Some((Instant::now(), text.clone()));
        Some(text)
    }
}

impl<G: Gateway> Daemon<G> {
    async fn snapshot(&self, started: SystemTime, kept: &mut Kept) -> Result<Snapshot, Refusal> {
        let fleet = self.fleet(&mut kept.ledger).await?;
        let unserved = self.tunnel_counters().await?;
        let unserved = unserved.into_iter().map(|(tunnel, n)| (tunnel, n.into_values().sum()));
        Ok(Snapshot {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started,
            fleet,
            exchanges: self.gateway.exchange_durations().await.map_err(refusal)?,
            dropped: self.counters().await?,
            unserved: unserved.collect::<BTreeMap<_, _>>(),
            guard: self.guard_seen(&mut kept.guard).await,
            confinement: self.confinement.clone(),
            keys_exported: self.keys_exported_to.is_some(),
            workers: self.workers(),
            crypto: self.crypto(),
            crypto_work: self.crypto_stats().await?,
            certificates: self.certificates.describe(),
        })
    }

    /// Reads all tunnels. A reload need not wait for that: it may come between two pages, and then the reading begins
    /// again, since the pages are those of another policy.
    async fn fleet(&self, ledger: &mut Ledger) -> Result<Fleet, Refusal> {
        loop {
            let mut round = ledger.round(self.started_with.config.metrics.tunnels);
            let policy = self.current();
            for first in (0..).step_by(PAGE) {
                let _guard = self.reloading.lock().await;
                if !Arc::ptr_eq(&policy, &self.current()) {
                    break;
                }
                let page = self.gateway.status_from(first, PAGE).await.map_err(refusal)?;
                round.add(&page);
                if page.len() < PAGE {
                    return Ok(round.finish());
                }
            }
        }
    }

    /// The guard as it was a while ago at most.
    async fn guard_seen(
        &self,
        seen: &mut Option<(Instant, Option<GuardInfo>)>,
    ) -> Option<GuardInfo> {
        match seen {
            Some((at, guard)) if at.elapsed() < GUARD_FRESH => *guard,
            _ => seen.insert((Instant::now(), self.guard().await)).1,
        }
    }
}
