//! The gateway's numbers for the recorder of the program, by the façade of the crate `metrics`.

use super::{Gateway, Tunnels};
use crate::driver::{Command, WeakHandle};
use crate::events::Events;
use ike::event::{Event, EventKind};
use ike::status::IkeStatus;
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
    /// Events are counted as they come. The tunnels are read every `every`, 64 child tunnels at a time, so that the
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
    /// # Cancellation
    /// If the future is dropped, recording ends.
    pub fn record_metrics(&self, every: Duration) -> impl Future<Output = ()> + Send + 'static {
        describe();
        let recorder = Recorder::default();
        run(recorder, self.handle.downgrade(), self.events(), every)
    }
}

async fn run(mut recorder: Recorder, handle: WeakHandle, mut events: Events, every: Duration) {
    let mut ticks = interval(every.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            event = events.recv() => {
                recorder.miss(events.missed());
                match event {
                    Some(event) => recorder.see(&event, Instant::now()),
                    None => return recorder.end(),
                }
            }
            _ = ticks.tick() => recorder.read(&handle).await,
        }
    }
}

/// The labels of a child tunnel.
type Child = (String, String);

/// Values of the last reading, so that differences can be counted.
#[derive(Debug, Default)]
struct Recorder {
    children: HashMap<Child, Counts>,
    tunnels: HashSet<String>,
    discarded: HashMap<String, u64>,
    /// Negotiations under way that this side has begun.
    begun: HashMap<(String, Option<String>), Instant>,
}

/// Counts of a Child SA and those before it.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    octets: [u64; 2],
    packets: [u64; 2],
    refused: u64,
}

impl Recorder {
    fn see(&mut self, event: &Event, now: Instant) {
        let phase = if event.child.is_some() { "2" } else { "1" };
        let tunnel = || event.tunnel.clone();
        let subject = || (event.tunnel.clone(), event.child.clone());
        match &event.kind {
            EventKind::Negotiating { initiator: true } => {
                self.begun.insert(subject(), now);
            }
            EventKind::Established { .. } => {
                counter!("vpn_established_total", "tunnel" => tunnel(), "phase" => phase)
                    .increment(1);
                if let Some(begun) = self.begun.remove(&subject()) {
                    let time = now.saturating_duration_since(begun);
                    histogram!("vpn_negotiation_seconds", "phase" => phase).record(time);
                }
            }
            EventKind::Rekeyed { .. } => {
                counter!("vpn_rekeyed_total", "tunnel" => tunnel(), "phase" => phase).increment(1);
            }
            EventKind::Closed { .. } => {
                counter!("vpn_closed_total", "tunnel" => tunnel(), "phase" => phase).increment(1);
                self.forget(event);
            }
            EventKind::Failed(failure) => {
                let reason = failure.kind.name();
                counter!(
                    "vpn_failures_total", "tunnel" => tunnel(), "phase" => phase, "reason" => reason
                )
                .increment(1);
                self.forget(event);
            }
            // The tunnel's name would be the peer's address, of which there may be any number.
            EventKind::TurnedAway(failure) => {
                counter!("vpn_turned_away_total", "reason" => failure.kind.name()).increment(1);
            }
            _ => {}
        }
    }

    /// Negotiations under way end with their tunnel: those of child tunnels also with their IKE SA.
    fn forget(&mut self, event: &Event) {
        self.begun.retain(|(tunnel, child), _| {
            *tunnel != event.tunnel || (event.child.is_some() && *child != event.child)
        });
    }

    /// Notes that so many events were missed. Beginnings may be among them.
    fn miss(&mut self, events: u64) {
        if events > 0 {
            counter!("vpn_missed_events_total").increment(events);
            self.begun.clear();
        }
    }

    /// Reads all tunnels and counters. A gateway that is ending is not read: its events end, too.
    async fn read(&mut self, handle: &WeakHandle) {
        let Some(handle) = handle.upgrade() else { return };
        let Ok(discarded) = handle.ask(Command::Counters).await else { return };
        for (reason, count) in discarded {
            let before = self.discarded.insert(reason.clone(), count).unwrap_or(0);
            counter!("vpn_discarded_total", "reason" => reason).increment(grown(before, count));
        }
        if let Ok(all) = Tunnels::new(&handle).status().await {
            self.show(&all);
        }
    }

    fn show(&mut self, all: &[IkeStatus]) {
        let (mut tunnels, mut children) = (HashSet::new(), HashMap::new());
        for ike in all {
            let tunnel = || SharedString::from(ike.name.clone());
            gauge!("vpn_tunnel_up", "tunnel" => tunnel())
                .set(f64::from(u8::from(ike.state.is_up())));
            tunnels.insert(ike.name.clone());
            self.tunnels.remove(&ike.name);
            for child in &ike.children {
                let name = || SharedString::from(child.name.clone());
                let up = f64::from(u8::from(child.state.is_up()));
                gauge!("vpn_child_up", "tunnel" => tunnel(), "child" => name()).set(up);
                let labels = (ike.name.clone(), child.name.clone());
                let before = self.children.remove(&labels).unwrap_or_default();
                let now = child.sa.as_ref().map_or(Counts::default(), |sa| Counts {
                    octets: [sa.bytes_in, sa.bytes_out],
                    packets: [sa.packets_in, sa.packets_out],
                    refused: sa.refused,
                });
                for (way, direction) in ["in", "out"].into_iter().enumerate() {
                    let labels = [
                        ("tunnel", tunnel()),
                        ("child", name()),
                        ("direction", SharedString::const_str(direction)),
                    ];
                    counter!("vpn_child_bytes_total", &labels)
                        .increment(grown(before.octets[way], now.octets[way]));
                    counter!("vpn_child_packets_total", &labels)
                        .increment(grown(before.packets[way], now.packets[way]));
                }
                counter!("vpn_child_refused_packets_total", "tunnel" => tunnel(), "child" => name())
                    .increment(grown(before.refused, now.refused));
                children.insert(labels, now);
            }
        }
        // Those that a new policy has no more.
        self.all_down();
        (self.tunnels, self.children) = (tunnels, children);
    }

    fn end(mut self) {
        self.all_down();
    }

    /// Shows the tunnels of the last reading as down. A façade cannot take a series back.
    fn all_down(&mut self) {
        for tunnel in self.tunnels.drain() {
            gauge!("vpn_tunnel_up", "tunnel" => tunnel).set(0.0);
        }
        for ((tunnel, child), _) in self.children.drain() {
            gauge!("vpn_child_up", "tunnel" => tunnel, "child" => child).set(0.0);
        }
    }
}

/// The difference to an earlier count. The count of an SA begins at zero again when its tunnel comes up again.
fn grown(before: u64, now: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

fn describe() {
    describe_gauge!("vpn_tunnel_up", "Whether the IKE SA of a tunnel of the policy is up.");
    describe_gauge!("vpn_child_up", "Whether the Child SA of a child tunnel of the policy is up.");
    describe_counter!(
        "vpn_child_bytes_total",
        Unit::Bytes,
        "Octets that a child tunnel has protected (out) and accepted (in), without those of ESP."
    );
    describe_counter!(
        "vpn_child_packets_total",
        Unit::Count,
        "Packets that a child tunnel has protected (out) and accepted (in)."
    );
    describe_counter!(
        "vpn_child_refused_packets_total",
        Unit::Count,
        "Packets that were refused on the SAs of a child tunnel."
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
