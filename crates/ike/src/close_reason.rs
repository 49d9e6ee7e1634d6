//! Reasons for the end of an IKE SA or Child SA.

mod frozen;

use crate::wire::registry::NotifyType;
use std::fmt;

/// The reason why an IKE SA, with all that it carries, or a Child SA is gone. Its `Display` is a sentence for the
/// operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum CloseReason {
    /// A command took it down.
    Deactivated,
    /// IPsec of its address family was switched off.
    FamilyOff,
    /// The policy was replaced by one without it, or with another one of that name.
    PolicyChanged,
    /// The gateway stops.
    Stopping,
    /// The peer began with INITIAL_CONTACT: it knows nothing of this SA.
    PeerRestarted,
    /// The peer has resumed it in another IKE SA (RFC 5723).
    Resumed,
    /// The peer has begun more sessions than it may have.
    TooManySessions,
    /// Another IKE SA of the tunnel has taken over.
    Redundant,
    /// The peer did not show that it receives at its new address (RFC 4555 §3.7).
    AddressUnverified,
    /// The tunnel is protected with AH only, and a NAT is on the way.
    AhBehindNat,
    /// This side has no proof of who it is, or none in time.
    NoProof,
    /// This side refused the responder's proof.
    ProofRefused,
    /// The peer refused this side's proof.
    ProofRefusedByPeer,
    /// The peer refused IKE_SA_INIT.
    Refused,
    /// No Child SA could be set up.
    NoChildSa,
    /// The IKE SA could not be rekeyed.
    RekeyFailed,
    /// The peer answered a rekey with NO_ADDITIONAL_SAS.
    NoAdditionalSas,
    /// The peer answered TEMPORARY_FAILURE too often.
    TemporaryFailures,
    /// The lifetime of the IKE SA or Child SA ended before it was rekeyed.
    LifetimeEnded,
    /// The two sides have not authenticated again within [`Config::reauthenticate`](crate::Config::reauthenticate).
    NotReauthenticated,
    /// The peer does not answer.
    NoAnswer,
    /// This host could not send the first message.
    NotSent,
    /// The peer sent a request that cannot be read.
    MalformedRequest,
    /// The peer sent an answer that cannot be read.
    MalformedAnswer,
    /// The peer sent a public value that breaks the rules of its group (RFC 6989).
    InvalidPublicValue,
    /// The peer could not read a request of this side.
    RequestUnread,
    /// The peer could not read this side's answer of IKE_AUTH, and said so with this notification.
    AuthAnswerUnread(NotifyType),
    /// The peer's Delete.
    DeletedByPeer,
    /// This side's Delete of a Child SA.
    DeletedHere,
    /// The Delete of the last IKE SA.
    Deleted,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deactivated => "deactivated",
            Self::FamilyOff => "IPsec of its address family was switched off",
            Self::PolicyChanged => "the policy changed",
            Self::Stopping => "the gateway stops",
            Self::PeerRestarted => "the peer has restarted",
            Self::Resumed => "the peer has resumed it with a ticket",
            Self::TooManySessions => "the peer has too many",
            Self::Redundant => "another IKE SA serves the tunnel",
            Self::AddressUnverified => "the peer's address could not be checked",
            Self::AhBehindNat => "AH does not pass a NAT",
            Self::NoProof => "no proof",
            Self::ProofRefused => "the responder's proof was not accepted",
            Self::ProofRefusedByPeer => {
                "the peer did not accept our proof; compare preshared keys and identities"
            }
            Self::Refused => "refused by the peer",
            Self::NoChildSa => "no Child SA could be set up",
            Self::RekeyFailed => "the IKE SA could not be rekeyed",
            Self::NoAdditionalSas => "the peer makes no further SAs on this IKE SA",
            Self::TemporaryFailures => "the peer keeps answering TEMPORARY_FAILURE",
            Self::LifetimeEnded => "its lifetime ended",
            Self::NotReauthenticated => "the two sides have not authenticated again in time",
            Self::NoAnswer => "the peer does not answer",
            Self::NotSent => "this host could not send to the peer",
            Self::MalformedRequest => "the peer sent a malformed request",
            Self::MalformedAnswer => "the peer sent a malformed answer",
            Self::InvalidPublicValue => "the peer sent an invalid public value",
            Self::RequestUnread => "the peer could not read a request of this side",
            Self::AuthAnswerUnread(kind) => {
                return write!(f, "the peer could not read the answer of IKE_AUTH: {kind}");
            }
            Self::DeletedByPeer => "deleted by the peer",
            Self::DeletedHere => "deleted by this side",
            Self::Deleted => "deleted",
        })
    }
}
