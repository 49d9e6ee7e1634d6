//! Why a negotiation failed: a kind, and what is known of it. The words for both stand here and in [`facts`].

pub mod facts;

pub use facts::Facts;

use crate::unreachable::Lack;
use facts::Layer;
use std::fmt;

/// Why something could not be set up.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// The facts: the offers of both sides, the identity, the number of retransmissions.
    pub facts: Box<Facts>,
    /// Everything that is known comes from someone who has not proved its identity.
    pub unauthenticated: bool,
}

impl From<facts::Unsendable> for Failure {
    fn from(facts: facts::Unsendable) -> Self {
        let kind = match facts.lack {
            Lack::Address => FailureKind::NoLocalAddress,
            Lack::Route => FailureKind::NoRoute,
        };
        Self::with(kind, Facts::Unsendable(facts))
    }
}

impl Failure {
    /// A failure of which more is known in words only; they may be empty.
    pub fn new(kind: FailureKind, detail: String) -> Self {
        Self::with(kind, Facts::Words(detail))
    }

    /// A failure with its facts.
    pub fn with(kind: FailureKind, facts: Facts) -> Self {
        Self { kind, facts: Box::new(facts), unauthenticated: false }
    }

    /// Returns `true` if a Child SA that is up could not be renewed, because the two sides disagree.
    pub fn is_of_renewal(&self) -> bool {
        match &*self.facts {
            Facts::Offers(offers) => offers.renewal && offers.layer == Layer::Child,
            Facts::Traffic(traffic) => traffic.renewal,
            _ => false,
        }
    }

    /// The same, told by someone without proof.
    #[must_use]
    pub fn unauthenticated(self) -> Self {
        Self { unauthenticated: true, ..self }
    }
}

/// Makes each type of facts a failure of its kind.
macro_rules! tells_of {
    ($($facts:ident: $kind:ident,)*) => {
        $(impl From<facts::$facts> for Failure {
            fn from(facts: facts::$facts) -> Self {
                Self::with(FailureKind::$kind, Facts::$facts(facts))
            }
        })*
    };
}

tells_of! {
    Silence: NoAnswer,
    Offers: NoProposalChosen,
    Identities: NoMatchingTunnel,
    Proof: AuthenticationFailed,
    Ppk: AuthenticationFailed,
    Unsigned: AuthenticationFailed,
    Traffic: TsUnacceptable,
    Shadowed: TrafficClaimed,
    Modes: ModeMismatch,
    Addresses: NoMatchingTunnel,
    FamilyOff: FamilyOff,
    AhAndNat: NoProposalChosen,
    TooMuch: TsUnacceptable,
    UnknownRevocation: BadCertificate,
    NotWithSha2: BadCertificate,
}

/// The failures a person meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FailureKind {
    /// The peer does not answer.
    NoAnswer,
    /// This host does not have the address of this side.
    NoLocalAddress,
    /// This host has no route to the peer.
    NoRoute,
    /// IPsec of the tunnel's address family is switched off.
    FamilyOff,
    /// Preshared keys or identities differ.
    AuthenticationFailed,
    /// The peer's certificate or its signature is not accepted.
    BadCertificate,
    /// No proposal in common.
    NoProposalChosen,
    /// No traffic selectors in common.
    TsUnacceptable,
    /// The traffic belongs to the tunnel of another peer.
    TrafficClaimed,
    /// Transport and tunnel mode differ.
    ModeMismatch,
    /// The peer is not the one the policy names, or no tunnel of the policy fits.
    NoMatchingTunnel,
    /// The peer speaks another version of IKE.
    OtherVersion,
    /// The peer sent what the protocol does not allow.
    ProtocolError,
    /// The peer refused for a reason of its own.
    Refused,
    /// The data plane refused.
    DataPlane,
    /// Deactivated or stopped meanwhile.
    Cancelled,
}

impl FailureKind {
    /// All kinds.
    pub const ALL: &[Self] = &[
        Self::NoAnswer,
        Self::NoLocalAddress,
        Self::NoRoute,
        Self::FamilyOff,
        Self::AuthenticationFailed,
        Self::BadCertificate,
        Self::NoProposalChosen,
        Self::TsUnacceptable,
        Self::TrafficClaimed,
        Self::ModeMismatch,
        Self::NoMatchingTunnel,
        Self::OtherVersion,
        Self::ProtocolError,
        Self::Refused,
        Self::DataPlane,
        Self::Cancelled,
    ];

    /// Stable name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoAnswer => "no_answer",
            Self::NoLocalAddress => "no_local_address",
            Self::NoRoute => "no_route",
            Self::FamilyOff => "family_off",
            Self::AuthenticationFailed => "authentication_failed",
            Self::BadCertificate => "bad_certificate",
            Self::NoProposalChosen => "no_proposal_chosen",
            Self::TsUnacceptable => "ts_unacceptable",
            Self::TrafficClaimed => "traffic_claimed",
            Self::ModeMismatch => "mode_mismatch",
            Self::NoMatchingTunnel => "no_matching_tunnel",
            Self::OtherVersion => "other_version",
            Self::ProtocolError => "protocol_error",
            Self::Refused => "refused",
            Self::DataPlane => "data_plane",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAnswer => "no answer from the peer",
            Self::NoLocalAddress => "the local address is missing",
            Self::NoRoute => "no route to the peer",
            Self::FamilyOff => "its address family is off",
            Self::AuthenticationFailed => "authentication failed",
            Self::BadCertificate => "certificate not accepted",
            Self::NoProposalChosen => "no proposal in common",
            Self::TsUnacceptable => "no traffic selectors in common",
            Self::TrafficClaimed => "the traffic belongs to another peer",
            Self::ModeMismatch => "transport and tunnel mode differ",
            Self::NoMatchingTunnel => "no tunnel of the policy fits",
            Self::OtherVersion => "the peer speaks another version of IKE",
            Self::ProtocolError => "the peer broke the protocol",
            Self::Refused => "refused by the peer",
            Self::DataPlane => "the data plane refused",
            Self::Cancelled => "cancelled",
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let detail = self.facts.to_string();
        if detail.is_empty() {
            write!(f, "{}", self.kind)
        } else {
            write!(f, "{}: {detail}", self.kind)
        }
    }
}

impl std::error::Error for Failure {}

policy::readable_debug!(Failure);
