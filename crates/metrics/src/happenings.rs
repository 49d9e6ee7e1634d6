//! Counts of a gateway's events, and durations between them.

use ike::Event;
use ike::durations::Durations;
use ike::event::EventKind;
use ike::failure::FailureKind;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// Counts of events since the daemon's start.
#[derive(Clone, Debug)]
pub struct Tallies {
    pub(crate) failures: BTreeMap<&'static str, u64>,
    pub(crate) turned_away: BTreeMap<&'static str, u64>,
    /// Phase 1 and phase 2 tunnels that came up.
    pub(crate) established: [u64; 2],
    /// Those that went down.
    pub(crate) closed: [u64; 2],
    /// Negotiations that this side began, of IKE SAs and of Child SAs, from the first request until the SA was up.
    pub(crate) negotiated: [Durations; 2],
    /// Events that came faster than they were counted.
    pub(crate) missed: u64,
}

/// A listener to a gateway's events.
#[derive(Debug)]
pub struct Happenings {
    tallies: Tallies,
    /// Negotiations under way that this side has begun, so that there are at most as many as tunnels of the policy.
    begun: HashMap<(String, Option<String>), Instant>,
}

impl Default for Happenings {
    fn default() -> Self {
        let none = || FailureKind::ALL.iter().map(|kind| (kind.name(), 0)).collect();
        let tallies = Tallies {
            failures: none(),
            turned_away: none(),
            established: [0; 2],
            closed: [0; 2],
            negotiated: Default::default(),
            missed: 0,
        };
        Self { tallies, begun: HashMap::new() }
    }
}

impl Happenings {
    /// Counts an event that came now.
    pub fn see(&mut self, event: &Event, now: Instant) {
        let Tallies { failures, turned_away, established, closed, negotiated, .. } =
            &mut self.tallies;
        let phase = usize::from(event.child.is_some());
        let subject = || (event.tunnel.clone(), event.child.clone());
        match &event.kind {
            EventKind::Negotiating { initiator: true } => {
                self.begun.insert(subject(), now);
            }
            EventKind::Established { .. } => {
                established[phase] += 1;
                if let Some(begun) = self.begun.remove(&subject()) {
                    negotiated[phase].note(now.saturating_duration_since(begun));
                }
            }
            EventKind::Failed(failure) => {
                *failures.entry(failure.kind.name()).or_default() += 1;
                self.forget(event);
            }
            EventKind::TurnedAway(failure) => {
                *turned_away.entry(failure.kind.name()).or_default() += 1;
            }
            EventKind::Closed { .. } => {
                closed[phase] += 1;
                self.forget(event);
            }
            _ => {}
        }
    }

    /// Notes that so many events were missed. Beginnings may be among them.
    pub fn miss(&mut self, events: u64) {
        if events > 0 {
            self.tallies.missed += events;
            self.begun.clear();
        }
    }

    /// Negotiations under way end with their tunnel: those of phase 2 tunnels also with their IKE SA.
    fn forget(&mut self, event: &Event) {
        self.begun.retain(|(tunnel, child), _| {
            *tunnel != event.tunnel || (event.child.is_some() && *child != event.child)
        });
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
    use std::time::Duration;

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
            happenings.see(&event, start + Duration::from_millis(ms));
        };
        let begin = |initiator| EventKind::Negotiating { initiator };
        at(0, None, begin(true));
        at(20, Some("lan"), begin(true));
        at(40, None, up());
        at(45, Some("lan"), up());
        // The peer's negotiation, and one that fails before the next one.
        at(100, None, begin(false));
        at(200, None, up());
        at(300, None, begin(true));
        at(301, Some("lan"), begin(true));
        at(400, None, EventKind::Failed(Failure::new(FailureKind::NoAnswer, String::new())));
        at(500, None, up());
        at(501, Some("lan"), up());
        at(600, None, EventKind::Closed { reason: CloseReason::Deactivated });
        let Tallies { failures, established, closed, negotiated: [ike, child], .. } =
            happenings.tallies();
        assert_eq!((ike.count(), ike.sum()), (1, Duration::from_millis(40)));
        assert_eq!((child.count(), child.sum()), (1, Duration::from_millis(25)));
        assert_eq!(ike.buckets().nth(5), Some((0.05, 1)));
        assert_eq!((established, closed, failures["no_answer"]), ([3, 2], [1, 0], 1));
        assert_eq!(failures.len(), FailureKind::ALL.len());
    }

    #[test]
    fn nothing_is_measured_over_missed_events() {
        let mut happenings = Happenings::default();
        let now = Instant::now();
        happenings.see(&Event::new("site", EventKind::Negotiating { initiator: true }), now);
        happenings.miss(0);
        assert_eq!(happenings.begun.len(), 1);
        happenings.miss(3);
        happenings.see(&Event::new("site", up()), now);
        let tallies = happenings.tallies();
        assert_eq!((tallies.missed, tallies.negotiated[0].count()), (3, 0));
    }
}
