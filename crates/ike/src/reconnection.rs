//! The phase 2 tunnels that are to come back, and those that are not to: attempts with growing pauses, and the will of
//! the operator.

mod frozen;

use crate::crypto::rng::Rng;
use crate::deadlines::after;
use crate::effect::Lost;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A tunnel that has been up for this long is tried again after the shortest pause when it goes, others after growing
/// pauses, so that two ends that disagree do not go round in circles.
pub(crate) const LASTING: Duration = Duration::from_secs(60);

/// The phase 2 tunnels that the work of a session leaves to be done something about.
#[derive(Default)]
pub(crate) struct Losses {
    /// To be set up again.
    pub reconnect: Vec<String>,
    /// Deleted by the peer.
    pub lost: Vec<Lost>,
    /// Not set up although the IKE SA is there.
    pub unserved: Vec<String>,
}

/// The state of phase 2 tunnels that are not up, by name.
#[derive(Default)]
pub(crate) struct Reconnection {
    /// Those that are to be tried again, or were.
    retries: BTreeMap<String, Retry>,
    /// Those that the operator has taken down: they do not come back by themselves.
    deactivated: BTreeSet<String>,
    /// Those that were up or tried when their address family was switched off: they come back with it.
    interrupted: BTreeSet<String>,
}

/// A phase 2 tunnel that is to be tried again, or was.
struct Retry {
    attempts: u32,
    /// Not before this.
    at: Instant,
    /// It is tried until it is up; otherwise only when a packet asks for it.
    persistent: bool,
}

/// The bounds of the pause before an attempt. It begins with the shortest and doubles up to the longest.
#[derive(Clone, Copy)]
pub(crate) struct Pauses {
    pub shortest: Duration,
    pub longest: Duration,
}

impl Reconnection {
    // ---- the will of the operator

    /// The operator takes a tunnel down: it stays down until a command or the peer starts it.
    pub fn deactivate(&mut self, child: &str) {
        self.deactivated.insert(child.into());
    }

    /// A command starts a tunnel: it may come back by itself from now on.
    pub fn allow(&mut self, child: &str) {
        self.deactivated.remove(child);
    }

    pub fn is_deactivated(&self, child: &str) -> bool {
        self.deactivated.contains(child)
    }

    // ---- address families

    /// The address family of a tunnel that was up or tried is off.
    pub fn interrupt(&mut self, child: &str) {
        self.interrupted.insert(child.into());
    }

    /// The address family of a tunnel is on. Returns `true` if the tunnel was interrupted.
    pub fn end_interruption(&mut self, child: &str) -> bool {
        self.interrupted.remove(child)
    }

    /// Takes the names of all that are interrupted.
    pub fn take_interrupted(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.interrupted)
    }

    // ---- attempts

    /// The tunnels that are to be tried again, or were.
    pub fn tried(&self) -> impl Iterator<Item = &String> {
        self.retries.keys()
    }

    pub fn is_tried(&self, child: &str) -> bool {
        self.retries.contains_key(child)
    }

    /// The number of attempts in a row that have failed.
    pub fn failed_attempts(&self, child: &str) -> u32 {
        self.retries.get(child).map_or(0, |retry| retry.attempts + 1)
    }

    /// Returns `true` if a tunnel is tried until it is up.
    pub fn is_persistent(&self, child: &str) -> bool {
        self.retries.get(child).is_some_and(|retry| retry.persistent)
    }

    /// Has a tunnel tried until it is up.
    pub fn persist(&mut self, child: &str) {
        self.retries.entry(child.into()).and_modify(|retry| retry.persistent = true);
    }

    /// When the pause after a failure is over, if it is not.
    pub fn pauses_until(&self, child: &str, now: Instant) -> Option<Instant> {
        self.retries.get(child).map(|retry| retry.at).filter(|at| *at > now)
    }

    /// Counts one more attempt of a tunnel that has been up for `lasted`; returns when the next may be made. Each pause
    /// is twice as long as the one before, less jitter of up to half of it.
    pub fn pause(
        &mut self,
        now: Instant,
        child: &str,
        lasted: Duration,
        Pauses { shortest, longest }: Pauses,
        rng: &mut Rng,
    ) -> Instant {
        let before = self.retries.get(child);
        let persistent = before.is_some_and(|retry| retry.persistent);
        let attempts = match before {
            Some(retry) if lasted < LASTING => retry.attempts.saturating_add(1),
            _ => 0,
        };
        let pause = shortest.saturating_mul(1 << attempts.min(8)).min(longest);
        let jitter = rng.below(u64::try_from(pause.as_micros()).unwrap_or(u64::MAX));
        let at = after(now, pause / 2 + Duration::from_micros(jitter / 2));
        self.retries.insert(child.into(), Retry { attempts, at, persistent });
        at
    }

    /// The next attempt may be made now, and the pauses after it begin with the shortest.
    pub fn make_due(&mut self, child: &str, now: Instant) {
        if let Some(retry) = self.retries.get_mut(child) {
            (retry.attempts, retry.at) = (0, now);
        }
    }

    /// A tunnel is not to be tried again.
    pub fn forget_attempts(&mut self, child: &str) {
        self.retries.remove(child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSES: Pauses =
        Pauses { shortest: Duration::from_secs(1), longest: Duration::from_secs(60) };

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_again_once_a_tunnel_has_lasted() {
        let (mut reconnection, mut rng) = (Reconnection::default(), Rng::from_seed([7; 32]));
        let now = Instant::now();
        let mut pause = |reconnection: &mut Reconnection, lasted| {
            reconnection.pause(now, "net", lasted, PAUSES, &mut rng) - now
        };
        for whole in [1, 2, 4, 8, 16, 32, 60, 60].map(Duration::from_secs) {
            let pause = pause(&mut reconnection, Duration::ZERO);
            assert!(whole / 2 <= pause && pause <= whole, "{pause:?} of {whole:?}");
        }
        assert_eq!(reconnection.failed_attempts("net"), 8);
        assert!(pause(&mut reconnection, LASTING) <= PAUSES.shortest);
        assert_eq!(reconnection.failed_attempts("net"), 1);
    }

    #[test]
    fn a_tunnel_stays_persistent_until_its_attempts_are_forgotten() {
        let (mut reconnection, mut rng) = (Reconnection::default(), Rng::from_seed([7; 32]));
        let now = Instant::now();
        reconnection.persist("net");
        assert!(!reconnection.is_persistent("net"), "it was not tried yet");
        for _ in 0..2 {
            reconnection.pause(now, "net", Duration::ZERO, PAUSES, &mut rng);
            reconnection.persist("net");
            assert!(reconnection.is_persistent("net"));
            assert!(reconnection.pauses_until("net", now).is_some());
        }
        reconnection.make_due("net", now);
        assert!(reconnection.pauses_until("net", now).is_none());
        reconnection.forget_attempts("net");
        assert!(!reconnection.is_tried("net") && !reconnection.is_persistent("net"));
    }
}
