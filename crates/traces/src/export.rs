//! The way of finished spans to a collector: a bounded queue, and one request at a time.
//!
//! Nobody waits for the collector. A batch that it does not take is sent again, later and later; spans for which the
//! queue has no room meanwhile are lost, and counted.

mod message;
mod post;

use crate::endpoint::Endpoint;
use crate::span::Span;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use post::{PostError, post};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{debug, info, warn};

/// Limits of an exporter.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Spans that wait for the collector.
    pub queue: usize,
    /// Spans in one request.
    pub batch: usize,
    /// The time for which a span waits for others.
    pub delay: Duration,
    /// The time for one request.
    pub time: Duration,
    /// The pause after the first request that has failed. Each further pause is twice as long, up to a
    /// minute.
    pub pause: Duration,
    /// The time that the end of the exporter may take.
    pub finish_within: Duration,
}

/// The longest pause after a request that has failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

impl Default for Limits {
    fn default() -> Self {
        Self {
            queue: 4096,
            batch: 512,
            delay: Duration::from_secs(1),
            time: Duration::from_secs(10),
            pause: Duration::from_secs(1),
            finish_within: Duration::from_secs(2),
        }
    }
}

/// A number at random for a trace or a span, never 0.
pub fn random_id() -> u64 {
    loop {
        let id = u64::from_be_bytes(RandomIdGenerator::default().new_span_id().to_bytes());
        if id != 0 {
            return id;
        }
    }
}

/// Sends spans to a collector.
#[derive(Debug)]
pub struct Exporter {
    queue: mpsc::Sender<Span>,
    sender: JoinHandle<()>,
    losses: Arc<Losses>,
    finish_within: Duration,
}

/// The spans that the collector does not get.
#[derive(Debug, Default)]
struct Losses {
    count: AtomicU64,
    told: AtomicBool,
}

impl Losses {
    fn add(&self, count: usize) {
        self.count.fetch_add(count as u64, Ordering::Relaxed);
    }
}

impl Exporter {
    /// Starts to send, in the current tokio runtime. `service` and `host` are the names by which the collector's users know
    /// where the spans come from.
    pub fn start(endpoint: Endpoint, service: &str, host: &str, limits: Limits) -> Self {
        let (queue, spans) = mpsc::channel(limits.queue.max(1));
        let losses = Arc::new(Losses::default());
        let origin = message::origin(service, host);
        let sender =
            Sender { endpoint, origin, limits, losses: Arc::clone(&losses), spans, fails: false };
        Self {
            queue,
            sender: tokio::spawn(sender.run()),
            losses,
            finish_within: limits.finish_within,
        }
    }

    /// Hands over a span. It is lost, and counted, if the queue has no room: then the collector is too slow, or absent.
    pub fn push(&self, span: Span) {
        if self.queue.try_send(span).is_ok() {
            return;
        }
        self.losses.add(1);
        if !self.losses.told.swap(true, Ordering::Relaxed) {
            warn!(
                "spans of negotiations are lost: the collector of [traces] takes fewer than there are; the log tells their \
                 number once it takes them again"
            );
        }
    }

    /// The number of spans that are lost.
    pub fn lost(&self) -> u64 {
        self.losses.count.load(Ordering::Relaxed)
    }

    /// Sends the spans that are left, and ends. Those that the collector does not take in time stay unsent. Returns the
    /// number of spans that were lost before.
    pub async fn finish(self) -> u64 {
        let Self { queue, mut sender, losses, finish_within } = self;
        drop(queue);
        if timeout(finish_within, &mut sender).await.is_err() {
            debug!("the collector does not take the last spans in time");
            sender.abort();
        }
        losses.count.load(Ordering::Relaxed)
    }
}

/// The task that sends.
struct Sender {
    endpoint: Endpoint,
    origin: message::Origin,
    limits: Limits,
    losses: Arc<Losses>,
    spans: mpsc::Receiver<Span>,
    /// The last request has failed.
    fails: bool,
}

impl Sender {
    async fn run(mut self) {
        while let Some(batch) = self.next_batch().await {
            self.deliver(&batch).await;
        }
    }

    /// Some spans that have come within the delay. `None`: no more come.
    async fn next_batch(&mut self) -> Option<Vec<Span>> {
        let mut batch = vec![self.spans.recv().await?];
        let until = Instant::now() + self.limits.delay;
        while batch.len() < self.limits.batch {
            match timeout_at(until, self.spans.recv()).await {
                Ok(Some(span)) => batch.push(span),
                Ok(None) | Err(_) => break,
            }
        }
        Some(batch)
    }

    /// Sends a batch until the collector takes it or says that it never will.
    async fn deliver(&mut self, batch: &[Span]) {
        let body = self.origin.request(batch);
        let mut pause = self.limits.pause;
        loop {
            match post(&self.endpoint, body.clone(), self.limits.time).await {
                Ok(refused) => {
                    let refused = usize::try_from(refused).unwrap_or(usize::MAX);
                    self.losses.add(refused.min(batch.len()));
                    return self.tell_success();
                }
                Err(error) => {
                    self.tell(&error);
                    if error.is_final() {
                        return self.losses.add(batch.len());
                    }
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Tells of the first failure in a row.
    fn tell(&mut self, error: &PostError) {
        if !std::mem::replace(&mut self.fails, true) {
            warn!(
                %error,
                "spans of negotiations do not reach the collector {}; see endpoint of [traces] in vpnd.toml, and whether the \
                 collector runs. Tunnels do not depend on it",
                self.endpoint
            );
        }
    }

    /// Tells of the first success after failures or losses.
    fn tell_success(&mut self) {
        let failed = std::mem::take(&mut self.fails);
        let told = self.losses.told.swap(false, Ordering::Relaxed);
        if failed || told {
            let lost = self.losses.count.load(Ordering::Relaxed);
            info!(lost, "the collector {} takes spans again", self.endpoint);
        }
    }
}

#[cfg(test)]
mod tests;
