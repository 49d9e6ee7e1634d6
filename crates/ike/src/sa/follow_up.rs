//! Additional key exchanges behind CREATE_CHILD_SA (RFC 9370 §2.2.4), as each side keeps them between its exchanges.

mod frozen;

use super::child::AskedFor;
use super::keys::{Base, Nonces};
use crate::crypto::key_exchange::PrivateKey;
use crate::negotiation::suite::{Additional, ChildChoice, IkeSuite};
use crate::wire::header::IkeSpi;
use crate::wire::payload::Payload;
use esp::plane::{Spi, TrafficSelectors};
use policy::{ChildTunnel, Secret};
use std::sync::Arc;
use std::time::Instant;

/// A request of ours that was answered, and whose additional key exchanges are under way.
pub(crate) struct FollowUp {
    /// The answer to CREATE_CHILD_SA.
    pub answer: Vec<Payload>,
    pub additional: Additional,
    /// Of the additional key exchanges so far.
    pub shared: Vec<Secret>,
    pub key_exchange: PrivateKey,
}

/// A request of the peer that was answered, and whose next IKE_FOLLOWUP_KE is awaited.
pub(crate) struct Awaited {
    /// By it the peer's next request is known.
    pub link: Vec<u8>,
    pub additional: Additional,
    /// Of all key exchanges so far; g^ir first.
    pub shared: Vec<Secret>,
    pub until: Instant,
    pub purpose: Purpose,
}

/// The SA that stands at the end.
pub(crate) enum Purpose {
    Child(Box<AwaitedChild>),
    Rekey(Box<AwaitedIke>),
}

/// A Child SA that the peer has asked for.
pub(crate) struct AwaitedChild {
    pub tunnel: Arc<ChildTunnel>,
    pub agreed: Agreed,
    /// The Child SA that it replaces, by inbound SPI.
    pub rekeys: Option<Spi>,
    pub nonces: OwnNonces,
    /// SK_d with a postquantum preshared key that both sides have.
    pub base: Option<Base>,
}

/// The agreement of both sides on a Child SA.
pub(crate) struct Agreed {
    pub choice: ChildChoice,
    pub spi_in: Spi,
    pub spi_out: Spi,
    pub selectors: Arc<TrafficSelectors>,
    /// The request of the peer, where this side has granted less.
    pub asked: Option<Arc<AskedFor>>,
}

/// An IKE SA in place of one.
pub(crate) struct AwaitedIke {
    pub suite: IkeSuite,
    pub spi: IkeSpi,
    pub remote_spi: IkeSpi,
    pub nonces: OwnNonces,
    /// SK_d with a postquantum preshared key that both sides have.
    pub base: Option<Base>,
}

/// Nonces that are kept.
pub(crate) struct OwnNonces {
    pub initiator: Vec<u8>,
    pub responder: Vec<u8>,
}

impl OwnNonces {
    pub fn of(nonces: Nonces<'_>) -> Self {
        let [initiator, responder] = [nonces.initiator, nonces.responder].map(<[u8]>::to_vec);
        Self { initiator, responder }
    }

    pub fn as_nonces(&self) -> Nonces<'_> {
        Nonces { initiator: &self.initiator, responder: &self.responder }
    }
}

impl Awaited {
    /// The inbound SPI that is taken for it.
    pub fn spi_in(&self) -> Option<Spi> {
        match &self.purpose {
            Purpose::Child(child) => Some(child.agreed.spi_in),
            Purpose::Rekey(_) => None,
        }
    }
}
