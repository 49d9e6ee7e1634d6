//! Refusals that become a Notify: the one place that decides what the peer is told (RFC 7296 §2.21, §3.10.1).

use crate::failure::{Failure, FailureKind};
use crate::wire::payload::{Notify, Payload};
use crate::wire::reader::WireError;
use crate::wire::registry::{GroupId, NotifyType, ProtocolId};
use esp::plane::Spi;

/// Why a request is refused: what the peer is told, and what the operator is.
#[derive(Clone, Debug)]
pub(crate) struct Rejection {
    pub notify: Notify,
    /// What went wrong in the operator's words; `None` for what sorts itself out.
    pub failure: Option<Failure>,
}

fn notify(kind: NotifyType, data: Vec<u8>) -> Notify {
    Notify { protocol: ProtocolId::NONE, spi: vec![], kind, data }
}

impl Rejection {
    fn plain(kind: NotifyType, failure: FailureKind, detail: String) -> Self {
        Self { notify: notify(kind, vec![]), failure: Some(Failure { kind: failure, detail }) }
    }

    pub fn payload(&self) -> Payload {
        Payload::Notify(self.notify.clone())
    }

    pub fn no_proposal_chosen(detail: String) -> Self {
        Self::plain(NotifyType::NO_PROPOSAL_CHOSEN, FailureKind::NoProposalChosen, detail)
    }

    pub fn mode_mismatch(detail: String) -> Self {
        Self::plain(NotifyType::NO_PROPOSAL_CHOSEN, FailureKind::ModeMismatch, detail)
    }

    pub fn ts_unacceptable(detail: String) -> Self {
        Self::plain(NotifyType::TS_UNACCEPTABLE, FailureKind::TsUnacceptable, detail)
    }

    /// RFC 7296 §2.21.2: the same answer for an unknown identity and a wrong key.
    pub fn authentication_failed(kind: FailureKind, detail: String) -> Self {
        Self::plain(NotifyType::AUTHENTICATION_FAILED, kind, detail)
    }

    pub fn invalid_syntax(detail: String) -> Self {
        Self::plain(NotifyType::INVALID_SYNTAX, FailureKind::ProtocolError, detail)
    }

    /// The Notify for octets that cannot be read (RFC 7296 §2.5, §2.21.3).
    pub fn unreadable(error: &WireError) -> Self {
        match error {
            WireError::UnsupportedCritical(kind) => Self {
                notify: notify(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, vec![kind.0]),
                failure: Some(Failure {
                    kind: FailureKind::ProtocolError,
                    detail: error.to_string(),
                }),
            },
            _ => Self::invalid_syntax(error.to_string()),
        }
    }

    /// The data plane did not take the SA.
    pub fn plane(error: &esp::plane::PlaneError) -> Self {
        Self::plain(NotifyType::NO_ADDITIONAL_SAS, FailureKind::DataPlane, error.to_string())
    }

    /// RFC 7296 §1.3: enough is enough.
    pub fn no_additional_sas(have: usize) -> Self {
        let detail = format!("the peer asks for one more Child SA, it has {have} already");
        Self::plain(NotifyType::NO_ADDITIONAL_SAS, FailureKind::Refused, detail)
    }

    /// RFC 7296 §1.2: asks for another group.
    pub fn invalid_ke(group: GroupId) -> Self {
        Self {
            notify: notify(NotifyType::INVALID_KE_PAYLOAD, group.0.to_be_bytes().to_vec()),
            failure: None,
        }
    }

    /// RFC 7296 §2.25.
    pub fn temporary() -> Self {
        Self { notify: notify(NotifyType::TEMPORARY_FAILURE, vec![]), failure: None }
    }

    /// RFC 7296 §2.25: names the SPI of the request.
    pub fn child_sa_not_found(spi: Spi) -> Self {
        Self {
            notify: Notify {
                protocol: ProtocolId::ESP,
                spi: spi.0.to_be_bytes().to_vec(),
                kind: NotifyType::CHILD_SA_NOT_FOUND,
                data: vec![],
            },
            failure: None,
        }
    }

    /// Whether the IKE SA ends with it, without a Delete (RFC 7296 §2.21.3).
    pub fn is_fatal(&self) -> bool {
        matches!(self.notify.kind, NotifyType::INVALID_SYNTAX | NotifyType::AUTHENTICATION_FAILED)
    }
}

/// What a peer's error Notify means to the operator. `or` is what else NO_PROPOSAL_CHOSEN may mean in this exchange.
pub(crate) fn failure_of(notify: &Notify, ours: &str, or: &str) -> Failure {
    let (kind, detail) = match notify.kind {
        NotifyType::NO_PROPOSAL_CHOSEN => (
            FailureKind::NoProposalChosen,
            format!(
                "the peer accepts none of our proposals{or}; we offered {ours}; compare with the peer's policy and log"
            ),
        ),
        NotifyType::AUTHENTICATION_FAILED => (
            FailureKind::AuthenticationFailed,
            format!(
                "the peer does not accept our proof; compare preshared keys and identities on both sides ({ours})"
            ),
        ),
        NotifyType::TS_UNACCEPTABLE => (
            FailureKind::TsUnacceptable,
            format!(
                "the peer protects none of the traffic we asked for: {ours}; selectors must mirror each other"
            ),
        ),
        other => (FailureKind::Refused, format!("the peer answered {other}")),
    };
    Failure { kind, detail }
}
