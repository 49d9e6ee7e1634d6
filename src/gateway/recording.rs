//! The gateway's numbers for the recorder of the program, by the façade of the crate `metrics`. The metrics are the
//! table of `crates/metrics/src/numbers.rs`, as on the page of `vpnd`.

use super::{Gateway, Tunnels};
use crate::driver::{Command, GatewayError, Handle, WeakHandle};
use crate::events::Events;
use esp::plane::Maintenance;
use ike::status::StatusPage;
use metrics::{
    Fleet, Happenings, Kind, Ledger, METRICS, Metric, NEGOTIATION_DURATION, Numbers, Value,
};
use metrics_facade::{Key, Label, Level, Metadata, Unit, with_recorder};
use metrics_facade::{describe_counter, describe_gauge, describe_histogram, histogram};
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

impl Gateway {
    /// Feeds the recorder that the program has installed for the crate `metrics`, until the gateway ends. Spawn it. The
    /// future does not keep the gateway running.
    ///
    /// Names, labels and meaning are those of the metrics of `vpnd`, so that its alerts and its dashboard can be used:
    /// `docs/operate/metrics.md` lists them, and names the ones that no recorder has. Those of tunnels are
    /// `vpnd_tunnel_…` and `vpnd_child_…` with the labels `tunnel` and `child`. There are sums over all tunnels, counts
    /// of tunnels that came up and went down, of failures by reason and of discarded messages and packets, and
    /// `vpnd_negotiation_duration_seconds`, a histogram of the negotiations that this side began.
    ///
    /// The numbers are read every `every`: the tunnels 64 phase 2 tunnels at a time, so that the engine answers its
    /// peers meanwhile. Nothing is counted on the way of a packet. A tunnel that the policy has no more is shown as
    /// down, since a façade never takes a series back.
    ///
    /// All phase 2 tunnels that a peer has asked for under a generic policy have one label `child`, `*`: the peer makes
    /// up their names.
    ///
    /// Call it once for a gateway: a second future would count everything again.
    ///
    /// # Cancellation
    /// If the future is dropped, recording ends, and the gauges stay as they are.
    pub fn record_metrics(&self, every: Duration) -> impl Future<Output = ()> + Send + 'static {
        describe();
        run(self.handle.downgrade(), self.events(), every)
    }
}

async fn run(handle: WeakHandle, mut events: Events, every: Duration) {
    let happenings = Mutex::new(Happenings::default());
    let mut recording = Recording::default();
    // Apart from each other, so that no event is missed while very many tunnels are read.
    let counting = async {
        while let Some(event) = events.recv().await {
            let mut happenings = happenings.lock().unwrap_or_else(PoisonError::into_inner);
            happenings.miss(events.missed());
            if let Some((phase, duration)) = happenings.see(&event, Instant::now()) {
                histogram!(NEGOTIATION_DURATION, "phase" => phase).record(duration);
            }
        }
    };
    let reading = async {
        let mut ticks = interval(every.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // A gateway that is ending is not read: its events end, too.
            if let Some(handle) = handle.upgrade()
                && recording.read(&handle).await.is_ok()
            {
                recording.tell(&happenings);
            }
        }
    };
    tokio::select! {
        () = counting => {}
        () = reading => {}
    }
    recording.numbers.fleet = Fleet::default().into();
    recording.tell(&happenings);
}

/// The numbers of the last reading, and the part of them that the recorder has.
#[derive(Debug)]
struct Recording {
    ledger: Ledger,
    numbers: Numbers,
    /// The last value of each series.
    told: HashMap<Key, (Kind, u64)>,
}

impl Default for Recording {
    fn default() -> Self {
        let ledger = Ledger::of_lasting_series();
        Self { ledger, numbers: Numbers::default(), told: HashMap::new() }
    }
}

impl Recording {
    /// Reads all tunnels and counters.
    async fn read(&mut self, handle: &Handle) -> Result<(), GatewayError> {
        let dropped = handle.ask(Command::Counters).await?;
        let unserved = handle.with_plane(|plane| plane.maintenance().unserved()).await?;
        let mut round = self.ledger.round(usize::MAX, Instant::now());
        let take = |page: Option<StatusPage>| match page {
            Some(page) => round.add(&page.tunnels, Instant::now()),
            None => round.begin_again(),
        };
        Tunnels::new(handle).each_page(take).await?;
        self.numbers.fleet = round.finish().into();
        // A count that a plane does not tell for a while stays, unless its tunnel has left the policy.
        self.numbers.dropped.extend(dropped);
        self.numbers.unserved.extend(unserved);
        self.numbers.forget_unserved_of_others();
        Ok(())
    }

    /// Gives the recorder the numbers: of counters the difference to the last ones, so that several gateways of a program
    /// add up.
    fn tell(&mut self, happenings: &Mutex<Happenings>) {
        self.numbers.tallies = happenings.lock().unwrap_or_else(PoisonError::into_inner).tallies();
        let mut before = std::mem::take(&mut self.told);
        for metric in recorded() {
            (metric.read)(&self.numbers, &mut |labels, value| {
                // A recorder gets durations one by one, as they end.
                let Value::Whole(number) = value else { return };
                let key = key(metric, labels);
                let last = before.remove(&key).map_or(0, |(_, number)| number);
                set(&key, metric.kind, last, number);
                self.told.insert(key, (metric.kind, number));
            });
        }
        // A new policy may lack tunnels of the former one.
        for (key, (kind, number)) in before {
            if kind == Kind::Gauge {
                set(&key, kind, number, 0);
            }
        }
    }
}

/// The metrics that recorders get.
fn recorded() -> impl Iterator<Item = &'static Metric<Numbers>> {
    METRICS.iter().filter(|metric| !metric.page_only)
}

fn key(metric: &Metric<Numbers>, values: &[&str]) -> Key {
    let labels = metric.labels.iter().zip(values);
    let labels = labels.map(|(name, value)| Label::new(*name, (*value).to_owned()));
    Key::from_parts(metric.name, labels.collect::<Vec<_>>())
}

/// Brings a series from its last value to its value now.
fn set(key: &Key, kind: Kind, last: u64, now: u64) {
    static METADATA: Metadata<'static> =
        Metadata::new(module_path!(), Level::INFO, Some(module_path!()));
    with_recorder(|recorder| match kind {
        Kind::Counter => {
            recorder.register_counter(key, &METADATA).increment(now.saturating_sub(last));
        }
        Kind::Gauge => recorder.register_gauge(key, &METADATA).set(now as f64),
        Kind::Histogram | Kind::Info => {}
    });
}

fn describe() {
    for metric in recorded() {
        let unit = match metric.parts().1 {
            Some(metrics::Unit::Bytes) => Unit::Bytes,
            Some(metrics::Unit::Seconds) => Unit::Seconds,
            None => Unit::Count,
        };
        match metric.kind {
            Kind::Counter => describe_counter!(metric.name, unit, metric.help),
            Kind::Gauge => describe_gauge!(metric.name, metric.help),
            Kind::Histogram => describe_histogram!(metric.name, unit, metric.help),
            Kind::Info => {}
        }
    }
}

#[cfg(test)]
mod tests;
