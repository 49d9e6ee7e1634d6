//! The gateway's numbers for the recorder of the program, by the façade of the crate `metrics`.

use super::{Gateway, Tunnels};
use crate::driver::{Command, WeakHandle};
use crate::events::Events;
use ike::event::{Event, EventKind};
use ike::status::{ChildSaStatus, IkeStatus};
use metrics_facade::{SharedString, Unit};
use metrics_facade::{
    counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

impl Gateway {
    /// Feeds the recorder that the program has installed for the crate `metrics`, until the gateway ends. Spawn it. The
    /// future does not keep the gateway running.
    ///
    /// Events are counted as they come. The tunnels are read every `every`, 64 phase 2 tunnels at a time, so that the
    /// engine answers its peers meanwhile. Nothing is counted on the way of a packet.
    ///
    /// | metric | labels | |
    /// |---|---|---|
    /// | `vpn_tunnel_up`, `vpn_child_up` | `tunnel`, `child` | gauge: 1 if the SA is up, else 0; of every tunnel of the policy |
    /// | `vpn_child_bytes_total`, `vpn_child_packets_total` | `tunnel`, `child`, `direction` | counter: protected (`out`) and accepted (`in`); octets without those of ESP |
    /// | `vpn_child_refused_packets_total` | `tunnel`, `child` | counter |
    /// | `vpn_established_total`, `vpn_rekeyed_total`, `vpn_closed_total` | `tunnel`, `phase` | counter of events; phase 1 is the IKE SA, 2 a Child SA |
    /// | `vpn_failures_total` | `tunnel`, `phase`, `reason` | counter; the reason is [`FailureKind::name`](ike::FailureKind::name) |
    /// | `vpn_turned_away_total` | `reason` | counter of peers that have not proved their identity |
    /// | `vpn_negotiation_seconds` | `phase` | histogram: negotiations that this side began, until the SA was up |
    /// | `vpn_discarded_total` | `reason` | counter of datagrams (`ike.…`) and packets (`esp.…`), as [`counters`](Self::counters) |
    /// | `vpn_missed_events_total` | | counter of events that came faster than they were counted |
    ///
    /// All phase 2 tunnels that a peer has asked for under a generic policy have one label, `*`: the peer makes up
    /// their names.
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
    let mut readings = Readings::default();
    // Apart from each other, so that no event is missed while very many tunnels are read.
    let counting = async {
        let mut happenings = Happenings::default();
        while let Some(event) = events.recv().await {
            happenings.miss(events.missed());
            happenings.see(&event, Instant::now());
        }
    };
    let reading = async {
        let mut ticks = interval(every.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            readings.read(&handle).await;
        }
    };
    tokio::select! {
        () = counting => {}
        () = reading => {}
    }
    readings.all_down();
}

/// Negotiations under way that this side has begun, by tunnel and phase 2 tunnel.
#[derive(Debug, Default)]
struct Happenings(HashMap<String, HashMap<Option<String>, Instant>>);

impl Happenings {
    fn see(&mut self, event: &Event, now: Instant) {
        let phase = if event.child.is_some() { "2" } else { "1" };
        let tunnel = || event.tunnel.clone();
        match &event.kind {
            EventKind::Negotiating { initiator: true } => {
                self.0.entry(tunnel()).or_default().insert(event.child.clone(), now);
            }
            EventKind::Negotiating { initiator: false } => _ = self.forget(event),
            EventKind::Established { .. } => {
                counter!("vpn_established_total", "tunnel" => tunnel(), "phase" => phase)
                    .increment(1);
                if let Some(begun) = self.forget(event) {
                    let time = now.saturating_duration_since(begun);
                    histogram!("vpn_negotiation_seconds", "phase" => phase).record(time);
                }
            }
            EventKind::Rekeyed { .. } => {
                counter!("vpn_rekeyed_total", "tunnel" => tunnel(), "phase" => phase).increment(1);
            }
            EventKind::Closed { .. } => {
                counter!("vpn_closed_total", "tunnel" => tunnel(), "phase" => phase).increment(1);
                self.end(event);
            }
            EventKind::Failed(failure) => {
                let reason = failure.kind.name();
                counter!(
                    "vpn_failures_total", "tunnel" => tunnel(), "phase" => phase, "reason" => reason
                )
                .increment(1);
                self.end(event);
            }
            // The tunnel's name would be the peer's address, of which there may be any number.
            EventKind::TurnedAway(failure) => {
                counter!("vpn_turned_away_total", "reason" => failure.kind.name()).increment(1);
            }
            _ => {}
        }
    }

    /// The beginning of a negotiation, which is known no longer.
    fn forget(&mut self, event: &Event) -> Option<Instant> {
        let of_tunnel = self.0.get_mut(&event.tunnel)?;
        let begun = of_tunnel.remove(&event.child);
        if of_tunnel.is_empty() {
            self.0.remove(&event.tunnel);
        }
        begun
    }

    /// Negotiations under way end with their tunnel: those of phase 2 tunnels also with their IKE SA.
    fn end(&mut self, event: &Event) {
        match event.child {
            Some(_) => _ = self.forget(event),
            None => _ = self.0.remove(&event.tunnel),
        }
    }

    /// Notes that so many events were missed. Beginnings may be among them.
    fn miss(&mut self, events: u64) {
        if events > 0 {
            counter!("vpn_missed_events_total").increment(events);
            self.0.clear();
        }
    }
}

/// The label of all phase 2 tunnels together that peers have asked for under a generic policy. Their own names are the
/// peers' choice, and a façade never takes a series back.
const ASKED_FOR: &str = "*";

/// Values of the last reading, so that differences can be counted.
#[derive(Debug, Default)]
struct Readings {
    /// The last one began then.
    at: Option<Instant>,
    tunnels: HashSet<String>,
    children: HashMap<(String, String), Counts>,
    /// The labels `tunnel` and `child` of series that show phase 2 tunnels.
    shown: HashSet<(String, String)>,
    discarded: HashMap<String, u64>,
}

/// Counts of a phase 2 tunnel since it came up, over all rekeys.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    octets: [u64; 2],
    packets: [u64; 2],
    refused: u64,
}

impl Counts {
    fn of(sa: &ChildSaStatus) -> Self {
        Self {
            octets: [sa.bytes_in, sa.bytes_out],
            packets: [sa.packets_in, sa.packets_out],
            refused: sa.refused,
        }
    }

    /// The higher value of each, since a count never goes back.
    fn most(self, other: Self) -> Self {
        let each = |one: [u64; 2], other: [u64; 2]| [one[0].max(other[0]), one[1].max(other[1])];
        Self {
            octets: each(self.octets, other.octets),
            packets: each(self.packets, other.packets),
            refused: self.refused.max(other.refused),
        }
    }
}

impl Readings {
    /// Reads all tunnels and counters. A gateway that is ending is not read: its events end, too.
    async fn read(&mut self, handle: &WeakHandle) {
        let Some(handle) = handle.upgrade() else { return };
        let Ok(discarded) = handle.ask(Command::Counters).await else { return };
        for (reason, count) in discarded {
            let before = self.discarded.insert(reason.clone(), count).unwrap_or(0);
            let grown = count.saturating_sub(before);
            counter!("vpn_discarded_total", "reason" => reason).increment(grown);
        }
        let at = Instant::now();
        if let Ok(all) = Tunnels::new(&handle).status().await {
            self.show(&all, at);
        }
    }

    /// Takes the tunnels of a reading that began at `at`.
    fn show(&mut self, all: &[IkeStatus], at: Instant) {
        let last = self.at.replace(at);
        let (mut tunnels, mut children) = (HashSet::new(), HashMap::new());
        let mut up: HashMap<(String, String), bool> = HashMap::new();
        for ike in all {
            let is_up = f64::from(u8::from(ike.state.is_up()));
            gauge!("vpn_tunnel_up", "tunnel" => ike.name.clone()).set(is_up);
            tunnels.insert(ike.name.clone());
            self.tunnels.remove(&ike.name);
            for child in &ike.children {
                let shown_as = if child.is_asked_for { ASKED_FOR } else { &child.name };
                let labels = (ike.name.clone(), shown_as.to_owned());
                *up.entry(labels.clone()).or_default() |= child.state.is_up();
                let name = (ike.name.clone(), child.name.clone());
                let before = self.children.remove(&name).unwrap_or_default();
                let now = match &child.sa {
                    None => Counts::default(),
                    // It came up again after the last reading.
                    Some(sa) if last.is_some_and(|last| began_after(last, at, sa)) => {
                        count(&labels, Counts::default(), Counts::of(sa));
                        Counts::of(sa)
                    }
                    Some(sa) => {
                        let now = before.most(Counts::of(sa));
                        count(&labels, before, now);
                        now
                    }
                };
                children.insert(name, now);
            }
        }
        for ((tunnel, child), is_up) in &up {
            let is_up = f64::from(u8::from(*is_up));
            gauge!("vpn_child_up", "tunnel" => tunnel.clone(), "child" => child.clone()).set(is_up);
            self.shown.remove(&(tunnel.clone(), child.clone()));
        }
        // A new policy may lack tunnels of the former one.
        self.all_down();
        (self.tunnels, self.children) = (tunnels, children);
        self.shown = up.into_keys().collect();
    }

    /// Shows the tunnels of the last reading as down. A façade cannot take a series back.
    fn all_down(&mut self) {
        for tunnel in self.tunnels.drain() {
            gauge!("vpn_tunnel_up", "tunnel" => tunnel).set(0.0);
        }
        for (tunnel, child) in self.shown.drain() {
            gauge!("vpn_child_up", "tunnel" => tunnel, "child" => child).set(0.0);
        }
    }
}

/// Returns `true` if a phase 2 tunnel has come up since the last reading. This one began at `at`, before the engine
/// told the age of the SA.
fn began_after(last: Instant, at: Instant, sa: &ChildSaStatus) -> bool {
    at.saturating_duration_since(last) > sa.established_for
}

fn count((tunnel, child): &(String, String), before: Counts, now: Counts) {
    for (way, direction) in ["in", "out"].into_iter().enumerate() {
        let labels = [
            ("tunnel", SharedString::from(tunnel.clone())),
            ("child", SharedString::from(child.clone())),
            ("direction", SharedString::const_str(direction)),
        ];
        counter!("vpn_child_bytes_total", &labels)
            .increment(now.octets[way].saturating_sub(before.octets[way]));
        counter!("vpn_child_packets_total", &labels)
            .increment(now.packets[way].saturating_sub(before.packets[way]));
    }
    let refused = now.refused.saturating_sub(before.refused);
    counter!(
        "vpn_child_refused_packets_total", "tunnel" => tunnel.clone(), "child" => child.clone()
    )
    .increment(refused);
}

fn describe() {
    describe_gauge!("vpn_tunnel_up", "Whether the IKE SA of a tunnel of the policy is up.");
    describe_gauge!(
        "vpn_child_up",
        "Whether the Child SA of a phase 2 tunnel of the policy is up."
    );
    describe_counter!(
        "vpn_child_bytes_total",
        Unit::Bytes,
        "Octets that a phase 2 tunnel has protected (out) and accepted (in), without those of ESP."
    );
    describe_counter!(
        "vpn_child_packets_total",
        Unit::Count,
        "Packets that a phase 2 tunnel has protected (out) and accepted (in)."
    );
    describe_counter!(
        "vpn_child_refused_packets_total",
        Unit::Count,
        "Packets that were refused on the SAs of a phase 2 tunnel."
    );
    describe_counter!("vpn_established_total", Unit::Count, "SAs that came up.");
    describe_counter!("vpn_rekeyed_total", Unit::Count, "SAs that were rekeyed.");
    describe_counter!("vpn_closed_total", Unit::Count, "SAs that went down.");
    describe_counter!("vpn_failures_total", Unit::Count, "Negotiations that failed, by reason.");
    describe_counter!(
        "vpn_turned_away_total",
        Unit::Count,
        "Peers that have not proved their identity, by reason."
    );
    describe_histogram!(
        "vpn_negotiation_seconds",
        Unit::Seconds,
        "Time of negotiations that this side began, until the SA was up."
    );
    describe_counter!(
        "vpn_discarded_total",
        Unit::Count,
        "Datagrams and packets that were discarded, by reason."
    );
    describe_counter!(
        "vpn_missed_events_total",
        Unit::Count,
        "Events that came faster than they were counted."
    );
}

#[cfg(test)]
mod tests;
