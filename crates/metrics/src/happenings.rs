//! Counts of a gateway's events, and durations between them.

use ike::Event;
use ike::durations::Durations;
use ike::event::EventKind;
use ike::failure::FailureKind;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// The label of each phase, in the order of counts.
pub(crate) const PHASES: [&str; 2] = ["1", "2"];

/// Counts of events since the gateway's start.
#[derive(Clone, Debug)]
pub struct Tallies {
    pub(crate) failures: BTreeMap<&'static str, u64>,
    pub(crate) turned_away: BTreeMap<&'static str, u64>,
    /// Phase 1 and phase 2 tunnels that came up.
    pub(crate) established: [u64; 2],
    /// Of those of phase 1, the ones that a ticket has brought up.
    pub(crate) resumed: u64,
    /// Those that went down.
    pub(crate) closed: [u64; 2],
    /// Negotiations that this side began, of IKE SAs and of Child SAs, from the first request until the SA was up.
    pub(crate) negotiated: [Durations; 2],
    /// Events that came faster than they were counted.
    pub(crate) missed: u64,
}

/// A listener to a gateway's events.
#[derive(Debug, Default)]
pub struct Happenings {
    tallies: Tallies,
    /// The beginnings of negotiations under way that this side has begun, by phase 1 and phase 2 tunnel: at most as many
    /// as tunnels of the policy.
    begun: HashMap<String, HashMap<Option<String>, Instant>>,
}

impl Default for Tallies {
    fn default() -> Self {
        let none = || FailureKind::ALL.iter().map(|kind| (kind.name(), 0)).collect();
        Self {
            failures: none(),
            turned_away: none(),
            established: [0; 2],
            resumed: 0,
            closed: [0; 2],
            negotiated: Default::default(),
            missed: 0,
        }
    }
}

impl Happenings {
    /// Counts an event that came now. Returns the label of the phase and the duration, if a negotiation that this side
    /// began has brought an SA up.
    pub fn see(&mut self, event: &Event, now: Instant) -> Option<(&'static str, Duration)> {
        let phase = usize::from(event.child.is_some());
        match &event.kind {
            EventKind::Negotiating { initiator: true } => {
                let tunnel = self.begun.entry(event.tunnel.clone()).or_default();
                tunnel.insert(event.child.clone(), now);
            }
            // The peer's attempt takes the place of this side's.
            EventKind::Negotiating { initiator: false } => _ = self.forget(event),
            EventKind::Established { .. } => {
                self.tallies.established[phase] += 1;
                let duration = now.saturating_duration_since(self.forget(event)?);
                self.tallies.negotiated[phase].note(duration);
                return Some((PHASES[phase], duration));
            }
            EventKind::Resumed { .. } => self.tallies.resumed += 1,
            EventKind::Failed(failure) => {
                *self.tallies.failures.entry(failure.kind.name()).or_default() += 1;
                self.end(event);
            }
            // By reason alone: the tunnel's name is the peer's address, of which there may be any number.
            EventKind::TurnedAway(failure) => {
                *self.tallies.turned_away.entry(failure.kind.name()).or_default() += 1;
            }
            EventKind::Closed { .. } => {
                self.tallies.closed[phase] += 1;
                self.end(event);
            }
            _ => {}
        }
        None
    }

    /// Notes that so many events were missed. Beginnings may be among them.
    pub fn miss(&mut self, events: u64) {
        if events > 0 {
            self.tallies.missed += events;
            self.begun.clear();
        }
    }

    /// Takes the beginning of a negotiation.
    fn forget(&mut self, event: &Event) -> Option<Instant> {
        let tunnel = self.begun.get_mut(&event.tunnel)?;
        let begun = tunnel.remove(&event.child);
        if tunnel.is_empty() {
            self.begun.remove(&event.tunnel);
        }
        begun
    }

    /// Negotiations under way end with their tunnel: those of phase 2 tunnels also with their IKE SA.
    fn end(&mut self, event: &Event) {
        match event.child {
            Some(_) => _ = self.forget(event),
            None => _ = self.begun.remove(&event.tunnel),
        }
    }

    /// The counts now.
    pub fn tallies(&self) -> Tallies {
        self.tallies.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ike::CloseReason;
    use ike::event::Negotiated;
    use ike::failure::Failure;
    use ike::negotiation::suite::IkeSuite;
    use policy::{Group, IkeEncryption, KeyBits, Prf};

    fn up() -> EventKind {
        let cipher = IkeEncryption::AesGcm16(KeyBits::B128);
        let suite = IkeSuite::new(cipher, None, Prf::HmacSha2_256, Group::Ecp384);
        EventKind::Established { suite: Negotiated::Ike(suite) }
    }

    #[test]
    fn a_negotiation_is_measured_from_its_beginning_to_its_end() {
        let mut happenings = Happenings::default();
        let start = Instant::now();
        let mut at = |ms, child: Option<&str>, kind| {
            let mut event = Event::new("site", kind);
            event.child = child.map(str::to_owned);
            happenings.see(&event, start + Duration::from_millis(ms))
        };
        let begin = |initiator| EventKind::Negotiating { initiator };
        at(0, None, begin(true));
        at(20, Some("lan"), begin(true));
        let millis = Duration::from_millis;
        assert_eq!(at(40, None, up()), Some(("1", millis(40))));
        assert_eq!(at(45, Some("lan"), up()), Some(("2", millis(25))));
        // The peer's negotiation, and one that fails before the next one.
        at(100, None, begin(false));
        assert_eq!(at(200, None, up()), None);
        at(300, None, begin(true));
        at(301, Some("lan"), begin(true));
        at(400, None, EventKind::Failed(Failure::new(FailureKind::NoAnswer, String::new())));
        assert_eq!([at(500, None, up()), at(501, Some("lan"), up())], [None, None]);
        // The peer's attempt comes up after one of this side.
        at(510, None, begin(true));
        at(520, None, begin(false));
        assert_eq!(at(530, None, up()), None);
        at(600, None, EventKind::Closed { reason: CloseReason::Deactivated });
        let Tallies { failures, established, closed, negotiated: [ike, child], .. } =
            happenings.tallies();
        assert_eq!((ike.count(), ike.sum()), (1, Duration::from_millis(40)));
        assert_eq!((child.count(), child.sum()), (1, Duration::from_millis(25)));
        assert_eq!(ike.buckets().nth(5), Some((0.05, 1)));
        assert_eq!((established, closed, failures["no_answer"]), ([4, 2], [1, 0], 1));
        assert_eq!(failures.len(), FailureKind::ALL.len());
    }

    #[test]
    fn nothing_is_measured_over_missed_events() {
        let mut happenings = Happenings::default();
        let now = Instant::now();
        happenings.see(&Event::new("site", EventKind::Negotiating { initiator: true }), now);
        happenings.miss(0);
        assert!(happenings.begun["site"].contains_key(&None));
        happenings.miss(3);
        happenings.see(&Event::new("site", up()), now);
        let tallies = happenings.tallies();
        assert_eq!((tallies.missed, tallies.negotiated[0].count()), (3, 0));
    }
}
