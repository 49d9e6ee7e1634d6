//! Recent failures, a bounded number of each kind. Attempts of strangers are kept apart, so that nobody without proof
//! can push out what is known.

mod frozen;

use crate::datagram::Datagram;
use crate::failure::{Facts, Failure, FailureKind};
use crate::status::PastFailure;
use esp::plane::Spi;
use policy::IkeTunnel;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

/// Failures kept of a tunnel.
const KEPT: usize = 4;
/// Phase 2 tunnels of one phase 1 tunnel of which failures are kept. With a generic policy, the peer makes up their
/// names.
const CHILDREN: usize = 256;
/// Attempts of strangers kept of the whole gateway.
const STRANGERS: usize = 32;

/// Failures by tunnel, and those of strangers.
#[derive(Default)]
pub(crate) struct Failures {
    by_name: BTreeMap<String, VecDeque<Past>>,
    /// The names of phase 2 tunnels among them, by phase 1 tunnel; the one that failed last is the last.
    children: BTreeMap<String, VecDeque<String>>,
    strangers: VecDeque<(SocketAddr, Past)>,
}

struct Past {
    failure: Failure,
    /// A Child SA that is up could not be renewed.
    of_renewal: bool,
    /// No tunnel is between the addresses.
    of_no_tunnel: bool,
    at: Instant,
    times: u32,
    /// Where it failed; `None`: where the tunnel's peer is.
    met: Option<(SocketAddr, SocketAddr)>,
    /// When the tunnel has come up since, or was renewed.
    overcome: Option<Instant>,
    /// When the policy or the certificates were loaded again since.
    outdated: Option<Instant>,
}

/// The exchange by which an SA has come up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Success {
    /// The first SA of the tunnel.
    SetUp,
    /// The successor of another one.
    Renewal,
}

impl Success {
    /// Of a Child SA that replaces another one, or none.
    pub fn in_place_of(replaced: Option<Spi>) -> Self {
        if replaced.is_some() { Self::Renewal } else { Self::SetUp }
    }
}

impl Failures {
    /// Remembers why a phase 2 tunnel of a phase 1 tunnel is not up.
    pub fn note_child(&mut self, now: Instant, tunnel: &str, child: &str, failure: Failure) {
        if failure.kind == FailureKind::Cancelled {
            return;
        }
        let names = self.children.entry(tunnel.into()).or_default();
        names.retain(|name| name != child);
        if names.len() == CHILDREN
            && let Some(first) = names.pop_front()
        {
            self.by_name.remove(&first);
        }
        names.push_back(child.into());
        self.note(now, child, failure);
    }

    /// Remembers why a phase 1 or phase 2 tunnel is not up. That somebody gave up is no reason of its own.
    pub fn note(&mut self, now: Instant, name: &str, failure: Failure) {
        if failure.kind == FailureKind::Cancelled {
            return;
        }
        let past = self.by_name.entry(name.into()).or_default();
        if let Some(last) = past.back_mut().filter(|p| p.failure == failure && p.is_current()) {
            (last.at, last.times) = (now, last.times.saturating_add(1));
            return;
        }
        if past.len() == KEPT {
            past.pop_front();
        }
        past.push_back(Past::new(failure, now, 1, None));
    }

    /// Remembers why somebody who has not proved who it is was refused.
    pub fn note_stranger(&mut self, now: Instant, met: Datagram<'_>, failure: Failure) {
        let mut times = 1;
        let known = self.strangers.iter().position(|(remote, past)| {
            remote.ip() == met.remote.ip() && past.failure.kind == failure.kind
        });
        if let Some(index) = known {
            times = self.strangers.remove(index).map_or(1, |(_, p)| p.times.saturating_add(1));
        } else if self.strangers.len() == STRANGERS {
            self.strangers.pop_front();
        }
        let past = Past::new(failure, now, times, Some((met.local, met.remote)));
        self.strangers.push_back((met.remote, past));
    }

    /// Somebody who was refused before is refused for another reason of the same kind: only the last one helps.
    pub fn correct_stranger(&mut self, now: Instant, met: Datagram<'_>, failure: Failure) {
        let known = self.strangers.iter_mut().find(|(remote, past)| {
            remote.ip() == met.remote.ip() && past.failure.kind == failure.kind
        });
        if let Some((_, past)) = known
            && past.failure != failure
        {
            *past = Past::new(failure, now, 1, Some((met.local, met.remote)));
        }
    }

    /// The tunnel is up. Only a renewal shows that the two sides agree about renewals.
    pub fn overcome(&mut self, now: Instant, name: &str, by: Success) {
        let past = self.by_name.get_mut(name).into_iter().flatten();
        past.filter(|past| past.overcome.is_none() && (by == Success::Renewal || !past.of_renewal))
            .for_each(|p| p.overcome = Some(now));
    }

    /// The policy or the certificates were loaded again: what failed before may have been mended.
    pub fn outdate(&mut self, now: Instant) {
        let strangers = self.strangers.iter_mut().map(|(_, past)| past);
        let all = self.by_name.values_mut().flatten().chain(strangers);
        all.filter(|p| p.is_current()).for_each(|p| p.outdated = Some(now));
    }

    /// The policy no longer has the tunnel. With a phase 1 tunnel, its phase 2 tunnels are forgotten too.
    pub fn forget(&mut self, name: &str) {
        self.by_name.remove(name);
        for child in self.children.remove(name).unwrap_or_default() {
            self.by_name.remove(&child);
        }
    }

    /// The last failure since the tunnel was last up.
    pub fn last(&self, name: &str) -> Option<(&Failure, Instant)> {
        let last = self.by_name.get(name)?.back().filter(|p| p.overcome.is_none())?;
        Some((&last.failure, last.at))
    }

    /// The last refusal of a stranger that may have meant this phase 1 tunnel.
    pub fn last_stranger(&self, tunnel: &IkeTunnel) -> Option<(&Failure, Instant)> {
        self.strangers
            .iter()
            .rev()
            .find(|(_, p)| p.may_mean(tunnel))
            .map(|(_, p)| (&p.failure, p.at))
    }

    /// Failures of a tunnel, the last one first.
    pub fn of(&self, now: Instant, name: &str) -> Vec<PastFailure> {
        let past = self.by_name.get(name).into_iter().flatten();
        past.rev().map(|p| p.told(now)).collect()
    }

    /// Refusals of strangers that may have meant this phase 1 tunnel, or that no tunnel fits; the last one first.
    pub fn of_strangers(&self, now: Instant, tunnel: &IkeTunnel) -> Vec<PastFailure> {
        let strangers =
            self.strangers.iter().rev().filter(|(_, p)| p.may_mean(tunnel) || p.of_no_tunnel);
        strangers.take(KEPT).map(|(_, p)| p.told(now)).collect()
    }
}

impl Past {
    fn new(
        failure: Failure,
        at: Instant,
        times: u32,
        met: Option<(SocketAddr, SocketAddr)>,
    ) -> Self {
        // A failure of a predecessor process has its facts in words only.
        let of_renewal = failure.is_of_renewal();
        let of_no_tunnel = matches!(*failure.facts, Facts::Addresses(_));
        Self { failure, of_renewal, of_no_tunnel, at, times, met, overcome: None, outdated: None }
    }

    fn is_current(&self) -> bool {
        self.overcome.is_none() && self.outdated.is_none()
    }

    fn may_mean(&self, tunnel: &IkeTunnel) -> bool {
        self.met.is_some_and(|(local, remote)| tunnel.may_answer(local.ip(), remote.ip()))
    }

    fn told(&self, now: Instant) -> PastFailure {
        PastFailure {
            failure: self.failure.clone(),
            ago: now.saturating_duration_since(self.at),
            times: self.times,
            peer: self.met.map(|(_, remote)| remote),
            overcome: self.overcome.is_some(),
            overcome_ago: self.overcome.map(|at| now.saturating_duration_since(at)),
            outdated_ago: self.outdated.map(|at| now.saturating_duration_since(at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::facts::{Layer, Offers};
    use std::time::Duration;

    fn failure(text: &str) -> Failure {
        Failure::new(FailureKind::Refused, text.into())
    }

    #[test]
    fn the_last_few_are_kept_and_repetitions_counted() {
        let now = Instant::now();
        let mut failures = Failures::default();
        for text in ["a", "b", "b", "c", "d", "e"] {
            failures.note(now, "site", failure(text));
        }
        failures.note(now, "site", Failure::new(FailureKind::Cancelled, "deactivated".into()));
        let kept = failures.of(now, "site");
        let texts: Vec<String> = kept.iter().map(|p| p.failure.facts.to_string()).collect();
        assert_eq!(texts, ["e", "d", "c", "b"]);
        assert_eq!(kept[3].times, 2);
        failures.overcome(now, "site", Success::SetUp);
        assert_eq!(failures.last("site"), None);
        assert!(failures.of(now, "site").iter().all(|p| p.overcome));
        failures.note(now, "site", failure("e"));
        assert_eq!(failures.of(now, "site")[0].times, 1, "once since it was up");
        failures.outdate(now);
        let kept = failures.of(now, "site");
        assert_eq!((kept[0].outdated_ago, kept[1].outdated_ago), (Some(Duration::ZERO), None));
        assert!(failures.last("site").is_some(), "it is still the last one");
        failures.note(now, "site", failure("e"));
        assert_eq!(failures.of(now, "site")[0].times, 1, "once since the reload");
        failures.forget("site");
        assert!(failures.of(now, "site").is_empty());
    }

    #[test]
    fn a_refused_renewal_is_overcome_by_a_renewal_only() {
        let now = Instant::now();
        let mut failures = Failures::default();
        let offers = Offers { renewal: true, ..Offers::of(Layer::Child, &[]) };
        failures.note(now, "site_lan", offers.into());
        failures.overcome(now, "site_lan", Success::SetUp);
        assert!(failures.last("site_lan").is_some(), "a new IKE SA has taken over");
        failures.overcome(now, "site_lan", Success::Renewal);
        assert_eq!(failures.last("site_lan"), None);
    }

    #[test]
    fn names_that_a_peer_makes_up_push_out_only_each_other() {
        let now = Instant::now();
        let mut failures = Failures::default();
        failures.note_child(now, "site", "net", failure("another tunnel's"));
        for n in 0..10 * CHILDREN {
            failures.note_child(now, "peers", &format!("peers:{n}"), failure("made up"));
            failures.note_child(now, "peers", "peers net", failure("fails again and again"));
        }
        assert_eq!(failures.by_name.len(), CHILDREN + 1);
        assert_eq!(failures.last("net").map(|(f, _)| f.clone()), Some(failure("another tunnel's")));
        assert_eq!(failures.of(now, "peers net")[0].times, 10 * CHILDREN as u32);
        let last = format!("peers:{}", 10 * CHILDREN - 1);
        assert!(failures.last(&last).is_some() && failures.last("peers:0").is_none());
        failures.forget("peers");
        assert_eq!((failures.by_name.len(), failures.children.len()), (1, 1));
    }

    #[test]
    fn strangers_push_out_only_each_other() {
        let now = Instant::now();
        let mut failures = Failures::default();
        failures.note(now, "site", failure("the truth"));
        let local = SocketAddr::from(([192, 0, 2, 1], 500));
        for n in 0..=255u8 {
            for seconds in 0..2 {
                let remote = SocketAddr::from(([198, 51, 100, n], 500));
                let met = Datagram { local, remote, octets: &[] };
                failures.note_stranger(now + Duration::from_secs(seconds), met, failure("a lie"));
            }
        }
        assert_eq!(failures.last("site").map(|(f, _)| f.clone()), Some(failure("the truth")));
        assert_eq!(failures.strangers.len(), STRANGERS);
        assert!(failures.strangers.iter().all(|(_, p)| p.times == 2));
    }
}
