//! Promises of other nodes while the store is away.
//!
//! A node that waives a service promises to send no claim for it during [`Settings::waiver`](crate::Settings::waiver),
//! counted from when it was asked. The owner counts from when it began to ask, so its fence passes first.

use crate::moment::Moment;
use crate::settings::Settings;
use crate::store::{Life, NodeId, Record, ServiceId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Rounds whose answers may still come.
const ROUNDS: usize = 8;

/// An owner asks another member to waive its claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The life of the owner, which the answer repeats: an earlier one had rounds with the same numbers.
    pub life: Life,
    /// The number of the round, which the answer repeats.
    pub round: u64,
    /// The services.
    pub services: Vec<ServiceId>,
}

/// A member's promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiver {
    /// The life of the owner that asked.
    pub life: Life,
    /// The number of the round.
    pub round: u64,
    /// The services that it does not claim for a while.
    pub services: Vec<ServiceId>,
}

/// Promises that this node has asked for, and those that it has given.
#[derive(Debug, Default)]
pub(super) struct Waivers {
    rounds: VecDeque<Round>,
    last_round: u64,
    given: BTreeMap<ServiceId, Moment>,
}

#[derive(Debug)]
struct Round {
    number: u64,
    begun: Moment,
    asked: BTreeMap<ServiceId, Asked>,
}

#[derive(Debug)]
struct Asked {
    /// The claim that the owner has.
    claim: Record,
    missing: BTreeSet<NodeId>,
}

/// A claim on which its owner may rely for longer.
pub(super) struct Extension {
    pub service: ServiceId,
    pub claim: Record,
    pub until: Moment,
}

impl Waivers {
    /// Begins a round: `others` are asked about these services, whose claims are given.
    pub fn begin(
        &mut self,
        now: Moment,
        life: Life,
        held: &[(ServiceId, Record)],
        others: &BTreeSet<NodeId>,
    ) -> Ask {
        self.last_round += 1;
        let asked = held
            .iter()
            .map(|(service, claim)| (*service, Asked { claim: *claim, missing: others.clone() }));
        let round = Round { number: self.last_round, begun: now, asked: asked.collect() };
        if self.rounds.len() == ROUNDS {
            self.rounds.pop_front();
        }
        self.rounds.push_back(round);
        Ask {
            life,
            round: self.last_round,
            services: held.iter().map(|(service, _)| *service).collect(),
        }
    }

    /// When the last round began.
    pub fn asked_at(&self) -> Option<Moment> {
        self.rounds.back().map(|round| round.begun)
    }

    /// The promise of a member.
    pub fn take(&mut self, from: NodeId, waiver: &Waiver) {
        let Some(round) = self.rounds.iter_mut().find(|round| round.number == waiver.round) else {
            return;
        };
        for service in &waiver.services {
            if let Some(asked) = round.asked.get_mut(service) {
                asked.missing.remove(&from);
            }
        }
    }

    /// The claims that all others have waived, and until when.
    pub fn extensions(&self, settings: &Settings) -> Vec<Extension> {
        let relied = Settings::relied(settings.waiver);
        let rounds = self.rounds.iter();
        rounds
            .flat_map(|round| {
                let complete = round.asked.iter().filter(|(_, asked)| asked.missing.is_empty());
                complete.map(move |(service, asked)| Extension {
                    service: *service,
                    claim: asked.claim,
                    until: round.begun.after(relied),
                })
            })
            .collect()
    }

    /// Promises not to claim a service.
    pub fn give(&mut self, now: Moment, settings: &Settings, service: ServiceId) {
        let until = now.after(Settings::awaited(settings.waiver));
        let given = self.given.entry(service).or_default();
        *given = until.max(*given);
    }

    /// When the last promise about a service ends.
    pub fn given_until(&self, service: ServiceId) -> Moment {
        self.given.get(&service).copied().unwrap_or_default()
    }
}
