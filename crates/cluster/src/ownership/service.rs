//! One service as a node knows it.

use super::output::RequestId;
use crate::moment::Moment;
use crate::settings::Settings;
use crate::store::{Attempt, Claim, Life, NodeId, Record, Revision};

/// The states of a service.
#[derive(Debug, Default)]
pub(super) enum State {
    /// Nothing has been read about it since the start, or since the store went back.
    #[default]
    Unknown,
    /// Another node has it, or an earlier life of this one.
    Owned(NodeId),
    /// It has had no owner since the answer that came at `since`, or for longer.
    Vacant { since: Moment, last: Record },
    /// A claim of this node may take effect. The service has had no owner since `since`, or for longer.
    Claiming { request: RequestId, claim: Claim, since: Moment, sent: Moment },
    /// This node owns it.
    Held { claim: Record, fence: Moment },
    /// A claim of this node is to end; its fence is closed.
    Releasing { claim: Record },
}

/// A change that a read has shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    /// A claim of this node is in force.
    Taken,
    /// The fence has moved.
    Extended(Moment),
    /// Another process may have the service.
    Lost,
    /// A claim of this node is in force that nobody uses.
    Unused(Record),
}

/// A read, as far as it is known.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    pub sent: Moment,
    pub received: Moment,
    /// The attempt of this node.
    pub attempt: Attempt,
    /// The life of this node.
    pub life: Life,
}

impl State {
    /// Takes in what a read shows of the service.
    pub fn see(&mut self, reading: Reading, record: Record, settings: &Settings) -> Change {
        match self {
            Self::Held { claim, fence } => {
                if record.in_force && record.is_claim_of(claim) {
                    return extend(fence, reading.sent, settings);
                }
                *self = Self::Unknown;
                // A claim of this life that is still in force is ended by the next read.
                self.see_free(reading, record);
                Change::Lost
            }
            Self::Claiming { claim, since, .. } => {
                let (claim, since) = (*claim, *since);
                let is_ours = record.life == reading.life && record.attempt == claim.attempt;
                if record.is_claim_of(&claim.seen) {
                    // Not yet. It never will under another number.
                    let Attempt { life, number, .. } = reading.attempt;
                    if life == reading.life && number > claim.attempt {
                        // Nobody has claimed it since, so the wait goes on.
                        *self = Self::Vacant { since, last: claim.seen };
                        return self.see_free(reading, record);
                    }
                    return Change::None;
                }
                if is_ours && record.in_force {
                    let fence = reading.sent.after(Settings::relied(settings.hold));
                    *self = Self::Held { claim: record, fence };
                    return Change::Taken;
                }
                // Somebody else has claimed it since, or the claim was in force and has ended.
                self.see_free(reading, record)
            }
            Self::Releasing { claim } if record.in_force && record.is_claim_of(claim) => {
                Change::Unused(record)
            }
            _ => self.see_free(reading, record),
        }
    }

    /// The same for a service of which this node has no claim under way.
    fn see_free(&mut self, reading: Reading, record: Record) -> Change {
        if record.in_force && record.life == reading.life {
            *self = Self::Releasing { claim: record };
            return Change::Unused(record);
        }
        if record.in_force {
            *self = Self::Owned(record.node);
            return Change::None;
        }
        // Without a new claim in between: others may have owned it meanwhile.
        if !matches!(self, Self::Vacant { last, .. } if last.is_claim_of(&record)) {
            *self = Self::Vacant { since: reading.received, last: record };
        }
        Change::None
    }

    /// When the fence of the last owner has passed for certain.
    pub fn unfenced_at(&self, life: Life, settings: &Settings) -> Option<Moment> {
        let Self::Vacant { since, last } = self else { return None };
        let nobody = last.at == Revision(0) || last.released || last.life == life;
        Some(if nobody { *since } else { since.after(Settings::awaited(settings.hold)) })
    }

    /// The store may have been restored: others may have owned the service since it was read, and the same claim may have been
    /// in force again.
    pub fn interrupt(&mut self, now: Moment) {
        match self {
            Self::Vacant { .. } => *self = Self::Unknown,
            Self::Claiming { since, .. } => *since = now,
            _ => {}
        }
    }
}

fn extend(fence: &mut Moment, sent: Moment, settings: &Settings) -> Change {
    let until = sent.after(Settings::relied(settings.hold));
    if until <= *fence {
        return Change::None;
    }
    *fence = until;
    Change::Extended(until)
}
