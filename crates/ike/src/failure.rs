//! Why a negotiation failed, in words for the operator.

use std::fmt;

/// Why something could not be set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which failure.
    pub kind: FailureKind,
    /// What was seen: what each side offered, which identity, how many retransmissions.
    pub detail: String,
}

/// The failures a person meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FailureKind {
    /// The peer does not answer.
    NoAnswer,
    /// Preshared keys or identities differ.
    AuthenticationFailed,
    /// No proposal in common.
    NoProposalChosen,
    /// No traffic selectors in common.
    TsUnacceptable,
    /// Transport and tunnel mode differ.
    ModeMismatch,
    /// The peer is not the one the policy names, or no tunnel of the policy fits.
    NoMatchingTunnel,
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
    /// Stable name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoAnswer => "no_answer",
            Self::AuthenticationFailed => "authentication_failed",
            Self::NoProposalChosen => "no_proposal_chosen",
            Self::TsUnacceptable => "ts_unacceptable",
            Self::ModeMismatch => "mode_mismatch",
            Self::NoMatchingTunnel => "no_matching_tunnel",
            Self::ProtocolError => "protocol_error",
            Self::Refused => "refused",
            Self::DataPlane => "data_plane",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            FailureKind::NoAnswer => "no answer from the peer",
            FailureKind::AuthenticationFailed => "authentication failed",
            FailureKind::NoProposalChosen => "no proposal in common",
            FailureKind::TsUnacceptable => "no traffic selectors in common",
            FailureKind::ModeMismatch => "transport and tunnel mode differ",
            FailureKind::NoMatchingTunnel => "no tunnel of the policy fits",
            FailureKind::ProtocolError => "the peer broke the protocol",
            FailureKind::Refused => "refused by the peer",
            FailureKind::DataPlane => "the data plane refused",
            FailureKind::Cancelled => "cancelled",
        })?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
