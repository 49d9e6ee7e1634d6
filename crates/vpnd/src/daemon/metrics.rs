//! The daemon's numbers for monitoring systems, and for the page that browsers are shown.
//!
//! A reading of all tunnels asks the engine for a few of them at a time, so that it answers its peers meanwhile.

mod late;

use super::Daemon;
use super::refusal::refusal;
use super::tunnels::FILTER_KNOWN;
use crate::{counters, view};
use ::metrics::{
    About, Access, Address, BindError, Bound, Bytes, Drops, Fleet, Happenings, Ledger, Limits,
    News, Numbers, Reading, Reason, Snapshot, Source, Why,
};
use control::protocol::{CertificateInfo, GuardInfo, Refusal, Tunnel};
use ike::status::StatusPage;
use late::Late;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use terminal::report::{self, Colour};
use tokio::join;
use tokio::task::JoinSet;
use tracing::{info, warn};
use vpn::Events;

/// For so long, another client gets the same text.
const FRESH: Duration = Duration::from_secs(1);
/// For so long, the guard is not looked at again: `nft` runs for that.
const GUARD_FRESH: Duration = Duration::from_secs(10);

/// The page is shown the last reading for so many times as long as the reading took: readings for pages take at most a
/// twentieth of the time, however many tunnels there are and however many browsers ask.
const SHARE: u32 = 20;
/// It is never shown an older one than this.
const OLDEST: Duration = Duration::from_secs(5);

/// Listens at the address of the configuration, before the daemon is confined.
///
/// # Errors
/// If the address is taken, or the system refuses.
pub fn listen(address: &Address, page: bool) -> Result<Bound, BindError> {
    let bound = Bound::new(address)?;
    if address.is_public() {
        warn!(
            "{address} tells the names and the traffic of all tunnels to everybody who reaches it"
        );
    }
    match address.page().filter(|_| page) {
        Some(page) => info!("metrics are served at {address}, and a page for browsers at {page}"),
        None => info!("metrics are served at {address}"),
    }
    Ok(bound)
}

/// Serves metrics until the returned tasks are dropped. `events` are those of the gateway.
pub fn serve(bound: Bound, daemon: &Arc<Daemon>, events: Events) -> JoinSet<()> {
    let config = &daemon.started_with.config.metrics;
    let access = Access { hosts: config.hosts.clone(), page: config.page };
    let metrics = Arc::new(Metrics {
        daemon: Arc::clone(daemon),
        started: SystemTime::now() - daemon.started.elapsed(),
        happenings: Mutex::default(),
        news: News::default(),
        text: tokio::sync::Mutex::default(),
        readings: tokio::sync::Mutex::default(),
        guard: Late::default(),
        dropped: Late::default(),
        explaining: tokio::sync::Mutex::default(),
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(follow(events, Arc::clone(&metrics)));
    tasks.spawn(async move {
        if let Err(error) = ::metrics::serve(bound, access, Limits::default(), metrics).await {
            warn!(%error, "cannot serve metrics");
        }
    });
    tasks
}

/// Counts events, and tells browsers of them.
async fn follow(mut events: Events, metrics: Arc<Metrics>) {
    while let Some(event) = events.recv().await {
        let (now, missed) = (SystemTime::now(), events.missed());
        let mut happenings = metrics.happenings.lock().unwrap_or_else(PoisonError::into_inner);
        happenings.miss(missed);
        happenings.see(&event, Instant::now());
        drop(happenings);
        if missed > 0 {
            metrics.news.tell(&view::missed(missed, now));
        }
        metrics.news.tell(&view::happening(&event, now));
    }
}

struct Metrics {
    daemon: Arc<Daemon>,
    started: SystemTime,
    happenings: Mutex<Happenings>,
    news: News,
    /// The last text, and when it was made. One scrape at a time.
    text: tokio::sync::Mutex<Option<(Instant, Bytes)>>,
    /// One reading at a time.
    readings: tokio::sync::Mutex<Readings>,
    /// Those that `nft` tells.
    guard: Late<Option<GuardInfo>>,
    dropped: Late<BTreeMap<String, u64>>,
    /// One explanation at a time: it looks at the host.
    explaining: tokio::sync::Mutex<()>,
}

/// State that is kept from one reading of all tunnels to the next.
#[derive(Default)]
struct Readings {
    ledger: Ledger,
    last: Option<LastReading>,
}

struct LastReading {
    ended: Instant,
    took: Duration,
    reading: Reading,
}

impl Source for Metrics {
    async fn scrape(&self) -> Option<Bytes> {
        let mut kept = self.text.lock().await;
        if let Some((at, text)) = &*kept
            && at.elapsed() < FRESH
        {
            return Some(text.clone());
        }
        let snapshot = self.snapshot().await.ok()?;
        // Many tunnels make a long text.
        let text = tokio::task::spawn_blocking(move || Bytes::from(snapshot.text()));
        let text = text.await.ok()?;
        *kept = Some((Instant::now(), text.clone()));
        Some(text)
    }

    fn about(&self) -> About {
        About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            up: self.daemon.started.elapsed(),
            keys_exported: self.daemon.keys_exported_to.is_some(),
        }
    }

    async fn fleet(&self) -> Option<Reading> {
        self.read(SHARE).await.ok()
    }

    async fn tunnel(&self, name: &str) -> Option<Tunnel> {
        let status = self.daemon.gateway.tunnel(name).status().await.ok()??;
        Some(view::tunnel(&status, SystemTime::now()))
    }

    async fn why(&self, name: &str) -> Result<Why, Refusal> {
        let _one = self.explaining.lock().await;
        let found = self.daemon.why(name, FILTER_KNOWN).await?;
        let mut text = report::why(&found, false, Colour(false));
        if let Some(tunnel) = self.tunnel(name).await.filter(|_| found.up_seconds.is_some()) {
            let legacy = host::firewall::has_legacy_tables();
            text.extend(report::quiet(&found, &tunnel, legacy));
        }
        // The explanation of a phase 2 tunnel begins with the phase 1 tunnel that carries it.
        let child = found.children.iter().find(|child| child.name == name && found.name != name);
        Ok(Why { state: child.unwrap_or(&found).state.clone(), text })
    }

    fn certificates(&self) -> Vec<CertificateInfo> {
        self.daemon.certificates.describe()
    }

    async fn drops(&self) -> Option<Drops> {
        let counts = self.dropped().await.ok()?.into_iter().filter(|(_, count)| *count > 0);
        let reasons = counts.map(|(name, count)| {
            let meaning = counters::explanation(&name).unwrap_or_default();
            Reason { name, count, meaning }
        });
        let reasons = reasons.collect();
        Some(Drops { reasons, unserved: self.unserved().await.ok()?, guard: self.guard().await })
    }

    fn news(&self) -> &News {
        &self.news
    }
}

impl Metrics {
    async fn snapshot(&self) -> Result<Snapshot, Refusal> {
        let daemon = &self.daemon;
        let (reading, dropped, guard) = join!(self.read(0), self.dropped(), self.guard());
        let numbers = Numbers {
            fleet: reading?.fleet,
            exchanges: daemon.gateway.exchange_durations().await.map_err(refusal)?,
            dropped: dropped?,
            unserved: self.unserved().await?,
            tallies: self.happenings.lock().unwrap_or_else(PoisonError::into_inner).tallies(),
        };
        Ok(Snapshot {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: self.started,
            numbers,
            guard,
            confinement: daemon.confinement.clone(),
            keys_exported: daemon.keys_exported_to.is_some(),
            workers: daemon.workers(),
            crypto: daemon.crypto(),
            crypto_work: daemon.crypto_stats().await?,
            certificates: daemon.certificates.describe(),
        })
    }

    /// All tunnels. A reading is used again for `share` times as long as it took.
    async fn read(&self, share: u32) -> Result<Reading, Refusal> {
        let mut readings = self.readings.lock().await;
        let Readings { ledger, last } = &mut *readings;
        if let Some(last) = last
            && last.ended.elapsed() < OLDEST.min(last.took * share)
        {
            return Ok(last.reading.clone());
        }
        let begun = Instant::now();
        let fleet = Arc::new(self.daemon.fleet(ledger).await?);
        let reading = Reading { at: self.daemon.started.elapsed(), fleet };
        let (ended, took) = (Instant::now(), begun.elapsed());
        *last = Some(LastReading { ended, took, reading: reading.clone() });
        Ok(reading)
    }

    /// Packets that no SA served, by phase 2 tunnel.
    async fn unserved(&self) -> Result<BTreeMap<String, u64>, Refusal> {
        let unserved = self.daemon.tunnel_counters().await?;
        Ok(unserved.into_iter().map(|(tunnel, n)| (tunnel, n.into_values().sum())).collect())
    }

    /// Discarded packets and messages by reason.
    async fn dropped(&self) -> Result<BTreeMap<String, u64>, Refusal> {
        let daemon = Arc::clone(&self.daemon);
        self.dropped.get(Duration::ZERO, async move { daemon.counters().await }).await
    }

    /// The guard as it was a while ago at most.
    async fn guard(&self) -> Option<GuardInfo> {
        let daemon = Arc::clone(&self.daemon);
        self.guard.get(GUARD_FRESH, async move { Ok(daemon.guard().await) }).await.ok()?
    }
}

impl Daemon {
    /// Reads all tunnels.
    async fn fleet(&self, ledger: &mut Ledger) -> Result<Fleet, Refusal> {
        let mut round = ledger.round(self.started_with.config.metrics.tunnels, Instant::now());
        let take = |page: Option<StatusPage>| match page {
            Some(page) => round.add(&page.tunnels, Instant::now()),
            None => round.begin_again(),
        };
        self.gateway.tunnels().each_page(take).await.map_err(refusal)?;
        Ok(round.finish())
    }
}
