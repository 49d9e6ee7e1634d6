//! The exchange of ours in flight on an established IKE SA, with everything that its conclusion needs.

mod frozen;

use super::child::RekeyForm;
use super::follow_up::FollowUp;
use super::keys::Base;
use super::lowest_nonce::LowestNonce;
use crate::crypto::key_exchange::PrivateKey;
use crate::durations::Exchange;
use crate::task::Task;
use crate::wire::header::IkeSpi;
use crate::wire::registry::ExchangeType;
use esp::plane::Spi;
use policy::{ChildProposal, ChildTunnel};
use std::sync::Arc;

/// An exchange of ours in flight, with what is needed to conclude it.
pub(crate) enum Active {
    Child(Box<PendingChild>),
    Rekey(Box<PendingRekey>),
    DeleteChildren(Vec<Spi>),
    DeleteIke,
    /// About addresses.
    Addresses(PendingAddresses),
    /// A liveness check. Its answer shows that the peer has these Child SAs, by inbound SPI.
    Liveness(Vec<Spi>),
    /// A ticket of session resumption.
    Ticket,
}

impl Active {
    /// The exchange whose answer is awaited.
    pub fn exchange(&self) -> ExchangeType {
        let follows_up = match self {
            Self::Child(pending) => pending.follow_up.is_some(),
            Self::Rekey(pending) => pending.follow_up.is_some(),
            _ => return ExchangeType::INFORMATIONAL,
        };
        if follows_up { ExchangeType::IKE_FOLLOWUP_KE } else { ExchangeType::CREATE_CHILD_SA }
    }

    /// The kind by which its duration is counted.
    pub fn measured_as(&self) -> Exchange {
        match self {
            Self::Child(pending) if pending.follow_up.is_some() => Exchange::FollowUp,
            Self::Rekey(pending) if pending.follow_up.is_some() => Exchange::FollowUp,
            Self::Child(pending) if pending.rekeys.is_none() => Exchange::NewChild,
            Self::Child(_) => Exchange::RekeyChild,
            Self::Rekey(_) => Exchange::RekeyIke,
            Self::DeleteChildren(_) | Self::DeleteIke => Exchange::Delete,
            Self::Addresses(_) => Exchange::Addresses,
            Self::Liveness(_) => Exchange::Liveness,
            Self::Ticket => Exchange::Ticket,
        }
    }

    /// The phase 2 tunnel that the exchange sets up or rekeys.
    pub fn child(&self) -> Option<&str> {
        match self {
            Self::Child(pending) => Some(&pending.tunnel.name),
            _ => None,
        }
    }

    /// Returns `true` if the exchange creates, rekeys or deletes a Child SA.
    pub fn concerns_child(&self) -> bool {
        matches!(self, Self::Child(_) | Self::DeleteChildren(_))
    }
}

/// A request of ours in flight.
pub(crate) struct PendingChild {
    pub tunnel: Arc<ChildTunnel>,
    /// The proposals that were offered.
    pub proposals: Vec<ChildProposal>,
    /// The Child SA it replaces, by inbound SPI.
    pub rekeys: Option<Spi>,
    /// How that was asked for.
    pub form: RekeyForm,
    pub spi_in: Spi,
    pub nonce: Vec<u8>,
    pub key_exchange: Option<PrivateKey>,
    /// SK_d with the postquantum preshared key that this side proposes.
    pub base: Option<Base>,
    /// Its additional key exchanges, once the request is answered.
    pub follow_up: Option<Box<FollowUp>>,
    pub restarts: u8,
    /// The operator has meanwhile taken the tunnel down.
    pub unwanted: bool,
    /// The peer's request to rekey the same Child SA, answered meanwhile.
    pub rival: Option<ChildRival>,
    /// SPIs the peer has deleted meanwhile that this side does not know: its answer, still on its way, may name one.
    pub deleted: Vec<Spi>,
}

/// The SA that a crossing rekey of the peer has made.
pub(crate) struct ChildRival {
    /// Its Child SA, by inbound SPI.
    pub child: Spi,
    pub lowest_nonce: LowestNonce,
}

/// A request of ours in flight.
pub(crate) struct PendingRekey {
    /// The new IKE SA's SPI on this side.
    pub spi: IkeSpi,
    pub nonce: Vec<u8>,
    pub key_exchange: PrivateKey,
    /// SK_d with the postquantum preshared key that this side proposes.
    pub base: Option<Base>,
    /// Its additional key exchanges, once the request is answered.
    pub follow_up: Option<Box<FollowUp>>,
    pub restarts: u8,
    /// The peer's request to rekey the same IKE SA, answered meanwhile.
    pub rival: Option<IkeRival>,
}

/// The SA that a crossing rekey of the peer has made.
pub(crate) struct IkeRival {
    /// Its IKE SA, by local SPI.
    pub sa: IkeSpi,
    pub lowest_nonce: LowestNonce,
}

/// A request of ours in flight.
pub(crate) struct PendingAddresses {
    pub purpose: Purpose,
    /// [`crate::sa::mobility::Mobility::moves`] when it was sent.
    pub moves: u64,
    pub cookie: Option<Vec<u8>>,
}

/// The purpose of a request of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The peer is to move the SAs to the addresses that the request shows.
    Update,
    /// The peer is to show that it receives.
    Verify,
    /// The peer is told of our other addresses.
    Tell,
    /// The peer is asked whether it lives, and how it sees our address.
    Liveness,
}

impl Purpose {
    /// The task that starts the exchange again.
    pub fn task(self) -> Task {
        match self {
            Self::Update => Task::UpdateAddresses,
            Self::Verify => Task::VerifyAddress,
            Self::Tell => Task::TellAddresses,
            Self::Liveness => Task::Liveness,
        }
    }
}
