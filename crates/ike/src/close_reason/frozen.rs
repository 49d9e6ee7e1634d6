//! Reasons of ends in a frozen engine.

use super::CloseReason::{self, *};
use crate::wire::registry::NotifyType;

/// Numbers stay for good; a new reason gets the next one.
const NUMBERED: [CloseReason; 29] = [
    Deactivated,
    FamilyOff,
    PolicyChanged,
    Stopping,
    PeerRestarted,
    TooManySessions,
    Redundant,
    AddressUnverified,
    AhBehindNat,
    NoProof,
    ProofRefused,
    ProofRefusedByPeer,
    Refused,
    NoChildSa,
    RekeyFailed,
    NoAdditionalSas,
    TemporaryFailures,
    LifetimeEnded,
    NotReauthenticated,
    NoAnswer,
    NotSent,
    MalformedRequest,
    MalformedAnswer,
    InvalidPublicValue,
    RequestUnread,
    DeletedByPeer,
    DeletedHere,
    Deleted,
    Resumed,
];

/// The notification of [`AuthAnswerUnread`] stands behind this.
const UNREAD: u64 = 1 << 16;

impl CloseReason {
    /// Its number in a frozen engine, from 1.
    pub(crate) fn number(self) -> u64 {
        if let AuthAnswerUnread(kind) = self {
            return UNREAD | u64::from(kind.0);
        }
        let place = NUMBERED.iter().position(|reason| *reason == self);
        place.map_or(0, |place| place as u64 + 1)
    }

    pub(crate) fn of_number(number: u64) -> Option<Self> {
        match number.checked_sub(UNREAD) {
            Some(kind) => u16::try_from(kind).ok().map(|kind| AuthAnswerUnread(NotifyType(kind))),
            None => NUMBERED.get(usize::try_from(number).ok()?.checked_sub(1)?).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_number() {
        let unread = AuthAnswerUnread(NotifyType::INVALID_SYNTAX);
        for reason in NUMBERED.into_iter().chain([unread]) {
            assert_eq!(CloseReason::of_number(reason.number()), Some(reason));
        }
        assert_eq!([Deactivated, Deleted].map(CloseReason::number), [1, 28]);
        let of_none = [0, 30, UNREAD - 1, UNREAD << 1].map(CloseReason::of_number);
        assert_eq!(of_none, [None; 4]);
    }
}
