//! Refusals that become a Notify: the one place that decides what the peer is told (RFC 7296 §2.21, §3.10.1).

use crate::failure::facts::{
    Addresses, Identities, Layer, Modes, Offers, Proof, Shadowed, TooMuch, Traffic, Wanted,
};
use crate::failure::{Failure, FailureKind};
use crate::negotiation::description::describe_group;
use crate::negotiation::proposal::{Offered, offer_child, offer_ike};
use crate::wire::payload::{Notify, Payload};
use crate::wire::reader::WireError;
use crate::wire::registry::{GroupId, NotifyType, ProtocolId};
use esp::plane::Spi;
use policy::{ChildTunnel, IkeProposal};
use std::net::IpAddr;

/// The operator's words for a nonce of the peer that RFC 7296 §2.10 forbids.
pub(crate) const SHORT_NONCE: &str = "the peer's nonce is shorter than half the key of the PRF (RFC 7296 section 2.10); \
    the peer's implementation must be repaired, or the policy must name a PRF with a shorter key";

/// Why a request is refused: what the peer is told, and what the operator is.
#[derive(Clone, Debug)]
pub(crate) struct Rejection {
    pub notify: Notify,
    /// The failure in the operator's words; `None` if the next message sorts it out.
    pub failure: Option<Failure>,
}

fn notify(kind: NotifyType, data: Vec<u8>) -> Notify {
    Notify { protocol: ProtocolId::NONE, spi: vec![], kind, data }
}

impl Rejection {
    fn because(kind: NotifyType, failure: Failure) -> Self {
        Self { notify: notify(kind, vec![]), failure: Some(failure) }
    }

    fn plain(kind: NotifyType, failure: FailureKind, detail: String) -> Self {
        Self::because(kind, Failure::new(failure, detail))
    }

    pub fn payload(&self) -> Payload {
        Payload::Notify(self.notify.clone())
    }

    pub fn no_proposal_chosen(offers: Offers) -> Self {
        Self::because(NotifyType::NO_PROPOSAL_CHOSEN, offers.into())
    }

    /// No tunnel is there to be negotiated: RFC 7296 has no Notify of its own for it.
    pub fn no_tunnel(addresses: Addresses) -> Self {
        Self::because(NotifyType::NO_PROPOSAL_CHOSEN, addresses.into())
    }

    /// The tunnel's proposals cannot reach the peer (AH through a NAT).
    pub fn not_through_nat(failure: Failure) -> Self {
        Self::because(NotifyType::NO_PROPOSAL_CHOSEN, failure)
    }

    /// The peer begins with IKEv1. It is not told: it would not understand the Notify.
    pub fn other_version(peer: IpAddr) -> Self {
        let detail = format!("{peer} speaks IKEv1; set it to IKEv2");
        Self::plain(NotifyType::INVALID_MAJOR_VERSION, FailureKind::OtherVersion, detail)
    }

    pub fn mode_mismatch(modes: Modes) -> Self {
        Self::because(NotifyType::NO_PROPOSAL_CHOSEN, modes.into())
    }

    pub fn ts_unacceptable(traffic: Traffic) -> Self {
        Self::because(NotifyType::TS_UNACCEPTABLE, traffic.into())
    }

    /// A peer names more traffic than a generic policy gives it.
    pub fn too_much_traffic(traffic: TooMuch) -> Self {
        Self::because(NotifyType::TS_UNACCEPTABLE, traffic.into())
    }

    /// RFC 3948 §5.2: what another peer has is not given away.
    pub fn traffic_claimed(claim: Shadowed) -> Self {
        Self::because(NotifyType::TS_UNACCEPTABLE, claim.into())
    }

    /// RFC 7296 §2.21.2: the same answer for an unknown identity and a wrong key.
    pub fn unknown_identity(identities: Identities) -> Self {
        Self::because(NotifyType::AUTHENTICATION_FAILED, identities.into())
    }

    /// RFC 7296 §2.21.2.
    pub fn unproven(failure: Failure) -> Self {
        Self::because(NotifyType::AUTHENTICATION_FAILED, failure)
    }

    /// RFC 7296 §2.21.2: the same answer for an unknown identity and a wrong key.
    pub fn authentication_failed(kind: FailureKind, detail: String) -> Self {
        Self::plain(NotifyType::AUTHENTICATION_FAILED, kind, detail)
    }

    pub fn invalid_syntax(detail: String) -> Self {
        Self::plain(NotifyType::INVALID_SYNTAX, FailureKind::ProtocolError, detail)
    }

    /// RFC 7296 §2.10.
    pub fn short_nonce() -> Self {
        Self::invalid_syntax(SHORT_NONCE.into())
    }

    /// The Notify for octets that cannot be read (RFC 7296 §2.5, §2.21.3).
    pub fn unreadable(error: &WireError) -> Self {
        match error {
            WireError::UnsupportedCritical(kind) => Self {
                notify: notify(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, vec![kind.0]),
                failure: Some(Failure::new(FailureKind::ProtocolError, error.to_string())),
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
    /// The request that IKE_FOLLOWUP_KE names is not known, or was given up (RFC 9370 §2.2.4).
    pub fn state_not_found() -> Self {
        Self { notify: notify(NotifyType::STATE_NOT_FOUND, vec![]), failure: None }
    }

    pub fn temporary() -> Self {
        Self { notify: notify(NotifyType::TEMPORARY_FAILURE, vec![]), failure: None }
    }

    /// RFC 7296 §2.25: names the SPI of the request.
    pub fn child_sa_not_found(protocol: ProtocolId, spi: Spi) -> Self {
        Self {
            notify: Notify {
                protocol,
                spi: spi.0.to_be_bytes().to_vec(),
                kind: NotifyType::CHILD_SA_NOT_FOUND,
                data: vec![],
            },
            failure: None,
        }
    }

    /// Returns `true` if the IKE SA ends with it, without a Delete (RFC 7296 §2.21.3).
    pub fn is_fatal(&self) -> bool {
        matches!(self.notify.kind, NotifyType::INVALID_SYNTAX | NotifyType::AUTHENTICATION_FAILED)
    }
}

/// The contents of a request of this side that was refused.
pub(crate) struct Asked {
    pub offers: Offers,
    pub traffic: Option<Traffic>,
    pub proof: Option<Proof>,
}

impl Asked {
    /// An IKE SA.
    pub fn ike(ours: &[IkeProposal]) -> Self {
        let offers = Offers::of(Layer::Ike, &offer_ike(ours, &[]));
        Self { offers, traffic: None, proof: None }
    }

    /// A Child SA with these key exchanges.
    pub fn child(tunnel: &ChildTunnel, offered: Offered<'_>) -> Self {
        let offers = Offers::of(Layer::Child, &offer_child(&tunnel.proposals, offered, Spi(0)));
        let traffic = Traffic { ours: vec![Wanted::by(tunnel)], theirs: None, renewal: false };
        Self { offers, traffic: Some(traffic), proof: None }
    }

    /// The same in place of an SA that is up, and that has these algorithms or others.
    pub fn again(self, same_algorithms: bool) -> Self {
        let traffic = self.traffic.map(|traffic| Traffic { renewal: true, ..traffic });
        Self { traffic, offers: Offers { renewal: same_algorithms, ..self.offers }, ..self }
    }
}

/// The meaning of a peer's error Notify for the operator.
pub(crate) fn failure_of(notify: &Notify, asked: Asked) -> Failure {
    match (notify.kind, asked) {
        (NotifyType::NO_PROPOSAL_CHOSEN, Asked { offers, .. }) => offers.into(),
        (NotifyType::INVALID_KE_PAYLOAD, Asked { offers, .. }) => {
            let group = notify.data.as_slice().try_into().map(u16::from_be_bytes);
            let wanted_group = group.ok().map(|g| describe_group(GroupId(g)));
            Offers { wanted_group, ..offers }.into()
        }
        (NotifyType::TS_UNACCEPTABLE, Asked { traffic: Some(traffic), .. }) => traffic.into(),
        (NotifyType::AUTHENTICATION_FAILED, Asked { proof: Some(proof), .. }) => proof.into(),
        (NotifyType::INVALID_MAJOR_VERSION, _) => Failure::new(
            FailureKind::OtherVersion,
            "the peer answered INVALID_MAJOR_VERSION; set it to IKEv2".to_owned(),
        ),
        _ => unasked(notify),
    }
}

/// The failure of an exchange whose answer cannot be read.
pub(crate) fn malformed(error: &WireError) -> Failure {
    Failure::new(FailureKind::ProtocolError, format!("malformed answer: {error}"))
}

/// The meaning of an error Notify that has nothing to do with the contents of the request.
pub(crate) fn unasked(notify: &Notify) -> Failure {
    Failure::new(FailureKind::Refused, format!("the peer answered {}", notify.kind))
}
