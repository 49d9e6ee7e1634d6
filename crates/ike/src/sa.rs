//! One IKE SA: its states, and the data that belongs to it alone. Data that survives its rekeys is in
//! [`crate::session`].

pub(crate) mod active;
pub(crate) mod auth_sent;
pub(crate) mod child;
pub(crate) mod follow_up;
pub(crate) mod init_sent;
pub(crate) mod int_auth;
pub(crate) mod intermediate_sent;
pub(crate) mod keys;
pub(crate) mod lowest_nonce;
pub(crate) mod message;
pub(crate) mod mobility;
pub(crate) mod path;
pub(crate) mod postponed;
pub(crate) mod reassembly;
pub(crate) mod window;

use crate::event::{ExchangeStep, Step};
use crate::wire::header::{Header, IkeSpi};
use crate::wire::registry::{ExchangeType, PayloadType};
use active::Active;
use auth_sent::AuthSent;
use follow_up::Awaited;
use init_sent::InitSent;
use intermediate_sent::IntermediateSent;
use keys::Keys;
use policy::ChildTunnel;
use std::sync::Arc;
use std::time::Instant;
use window::Window;

/// An IKE SA, or the attempt to set one up.
pub(crate) struct IkeSa {
    pub local_spi: IkeSpi,
    /// Zero until the peer has answered IKE_SA_INIT.
    pub remote_spi: IkeSpi,
    /// This side is its original initiator.
    pub initiator: bool,
    pub window: Window,
    pub state: State,
}

/// Each state owns what is true in it.
pub(crate) enum State {
    /// IKE_SA_INIT is asked.
    InitSent(Box<InitSent>),
    /// IKE_INTERMEDIATE is asked.
    IntermediateSent(Box<IntermediateSent>),
    /// IKE_AUTH is asked.
    AuthSent(Box<AuthSent>),
    /// Both have proved who they are.
    Established(Box<Established>),
    /// Between two states; never seen from outside a transition.
    Moving,
}

/// An IKE SA in use.
pub(crate) struct Established {
    pub keys: Keys,
    /// The exchange of ours in flight.
    pub active: Option<Active>,
    /// Requests of the peer whose additional key exchanges have not all come.
    pub awaited: Vec<Awaited>,
    pub phase: Phase,
    /// The peer asked for it, and has not shown yet that it has our answer: a request of ours might meet nobody.
    pub unproven: bool,
    pub rekey_at: Instant,
    pub expire_at: Instant,
}

/// Where an established IKE SA stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Carries new exchanges.
    Serving,
    /// Replaced by a newer IKE SA; only its deletion is left.
    Superseded,
}

impl IkeSa {
    /// The header of a message of ours.
    pub fn header(&self, exchange: ExchangeType, message_id: u32, response: bool) -> Header {
        let (initiator_spi, responder_spi) = if self.initiator {
            (self.local_spi, self.remote_spi)
        } else {
            (self.remote_spi, self.local_spi)
        };
        Header {
            initiator_spi,
            responder_spi,
            next_payload: PayloadType::NONE,
            exchange,
            from_initiator: self.initiator,
            response,
            higher_version: false,
            minor_version: 0,
            message_id,
        }
    }

    /// SPIs in the order of the header: original initiator's, original responder's.
    pub fn spis(&self) -> (IkeSpi, IkeSpi) {
        if self.initiator {
            (self.local_spi, self.remote_spi)
        } else {
            (self.remote_spi, self.local_spi)
        }
    }

    /// A step of the exchange of ours that is in flight, with the child tunnel that it sets up or rekeys, if the IKE SA
    /// was up before.
    pub fn told(&self, step: Step) -> Option<(Option<&str>, ExchangeStep)> {
        let (exchange, active) = match &self.state {
            State::InitSent(_) => (ExchangeType::IKE_SA_INIT, None),
            State::IntermediateSent(_) => (ExchangeType::IKE_INTERMEDIATE, None),
            State::AuthSent(_) => (ExchangeType::IKE_AUTH, None),
            State::Established(established) => {
                let active = established.active.as_ref()?;
                (active.exchange(), Some(active))
            }
            State::Moving => return None,
        };
        let told = ExchangeStep {
            step,
            exchange,
            purpose: active.map(Active::measured_as),
            message_id: self.window.outstanding_id()?,
            local_spi: self.local_spi,
            remote_spi: self.remote_spi,
        };
        Some((active.and_then(Active::child), told))
    }

    pub fn established(&self) -> Option<&Established> {
        match &self.state {
            State::Established(e) => Some(e),
            _ => None,
        }
    }

    pub fn established_mut(&mut self) -> Option<&mut Established> {
        match &mut self.state {
            State::Established(e) => Some(e),
            _ => None,
        }
    }
}

impl State {
    /// The keys, once there are any.
    pub fn keys_mut(&mut self) -> Option<&mut Keys> {
        match self {
            Self::Established(e) => Some(&mut e.keys),
            Self::IntermediateSent(i) => Some(&mut i.keys),
            Self::AuthSent(a) => Some(&mut a.keys),
            Self::InitSent(_) | Self::Moving => None,
        }
    }

    /// The first Child SA of an IKE SA that this side sets up, before it has sent a proof.
    pub fn intended_child(&mut self) -> Option<&mut Arc<ChildTunnel>> {
        match self {
            Self::InitSent(i) => Some(&mut i.child),
            Self::IntermediateSent(i) => Some(&mut i.child),
            Self::AuthSent(_) | Self::Established(_) | Self::Moving => None,
        }
    }
}
