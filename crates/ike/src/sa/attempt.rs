//! The IKE SA that this side sets up for a session, until both sides have proved who they are.

mod frozen;

use super::int_auth::IntAuth;
use super::keys::{Keys, Mixed, Nonces, PpkUse, ProofKeys};
use super::{IkeSa, Keyed, State};
use crate::config::Config;
use crate::crypto::key_exchange::PrivateKey;
use crate::deadlines::after;
use crate::failure::Failure;
use crate::failure::facts::{Heard, KEPT};
use crate::proof::Evidence;
use crate::proof::wishes::Wishes;
use crate::resumption::{Authentication, Kept};
use crate::wire::parts::Parts;
use crate::wire::payload::Payload;
use crate::wire::protected::Content;
use crate::wire::registry::ExchangeType;
use esp::plane::Spi;
use policy::{ChildTunnel, Secret};
use std::sync::Arc;
use std::time::Instant;

/// An IKE SA that this side sets up. A session has one or none: later ones are made by rekeying, and are established
/// from the beginning.
pub(crate) enum Attempt {
    /// IKE_SA_INIT is asked.
    Init(Box<IkeSa<InitSent>>),
    /// IKE_SESSION_RESUME is asked.
    Resume(Box<IkeSa<ResumeSent>>),
    /// IKE_INTERMEDIATE is asked.
    Intermediate(Box<IkeSa<IntermediateSent>>),
    /// IKE_AUTH is asked, or about to be.
    Auth(Box<IkeSa<AuthSent>>),
}

impl Attempt {
    pub fn sa(&self) -> &IkeSa<dyn State> {
        match self {
            Self::Init(sa) => &**sa,
            Self::Resume(sa) => &**sa,
            Self::Intermediate(sa) => &**sa,
            Self::Auth(sa) => &**sa,
        }
    }

    pub fn sa_mut(&mut self) -> &mut IkeSa<dyn State> {
        match self {
            Self::Init(sa) => &mut **sa,
            Self::Resume(sa) => &mut **sa,
            Self::Intermediate(sa) => &mut **sa,
            Self::Auth(sa) => &mut **sa,
        }
    }

    /// The phase 2 tunnel of the first Child SA.
    pub fn first_child(&self) -> &Arc<ChildTunnel> {
        match self {
            Self::Init(sa) => &sa.state.child,
            Self::Resume(sa) => &sa.state.child,
            Self::Intermediate(sa) => &sa.state.child,
            Self::Auth(sa) => &sa.state.child,
        }
    }

    /// The same, as long as it can be another one: it is not asked for yet.
    pub fn first_child_to_be(&mut self) -> Option<&mut Arc<ChildTunnel>> {
        match self {
            Self::Init(sa) => Some(&mut sa.state.child),
            Self::Resume(sa) => Some(&mut sa.state.child),
            Self::Intermediate(sa) => Some(&mut sa.state.child),
            Self::Auth(_) => None,
        }
    }

    /// The same, unless it has been taken down.
    pub fn wanted_child(&self) -> Option<&Arc<ChildTunnel>> {
        let unwanted = matches!(self, Self::Auth(sa) if sa.state.unwanted);
        (!unwanted).then(|| self.first_child())
    }

    /// The first Child SA's inbound SPI, once there is one.
    pub fn spi_in(&self) -> Option<Spi> {
        match self {
            Self::Init(_) | Self::Resume(_) | Self::Intermediate(_) => None,
            Self::Auth(sa) => sa.state.spi_in,
        }
    }

    /// Returns `true` if the responder may have our proof.
    pub fn has_asked_auth(&self) -> bool {
        matches!(self, Self::Auth(sa) if sa.state.has_asked())
    }
}

/// An initiator that has asked.
pub(crate) struct InitSent {
    /// The first Child SA.
    pub child: Arc<ChildTunnel>,
    /// Whether it is asked for after IKE_AUTH only (RFC 6023).
    pub childless: bool,
    pub nonce: Vec<u8>,
    pub key_exchange: PrivateKey,
    pub request: Vec<u8>,
    pub cookie: Option<Vec<u8>>,
    pub restarts: u8,
    /// The last answer that led nowhere.
    pub heard: Option<Heard>,
    /// An unauthenticated refusal, and when it came: believed if nothing better comes (RFC 7296 §2.21.1).
    pub refusal: Option<(Failure, Instant)>,
}

impl InitSent {
    /// Notes an answer that leads nowhere, for the operator.
    pub fn hears(&mut self, parts: &Parts<'_>) {
        let kinds: Vec<String> =
            parts.notifies.iter().take(KEPT).map(|n| n.kind.to_string()).collect();
        let answer = match kinds.is_empty() {
            true => "a message that lacks what it must have".to_owned(),
            false => kinds.join(", "),
        };
        let before = self.heard.take().filter(|before| before.answer == answer);
        let times = before.map_or(1, |before| before.times.saturating_add(1));
        self.heard = Some(Heard { answer, times });
    }

    /// When a refusal is believed.
    pub fn refused_at(&self, config: &Config) -> Option<Instant> {
        self.refusal.as_ref().map(|(_, at)| after(*at, config.retransmit_after.saturating_mul(2)))
    }
}

/// An initiator that has presented a ticket.
pub(crate) struct ResumeSent {
    /// The first Child SA.
    pub child: Arc<ChildTunnel>,
    pub nonce: Vec<u8>,
    pub request: Vec<u8>,
    pub cookie: Option<Vec<u8>>,
    pub restarts: u8,
    /// The ticket; `None` once it has been agreed on.
    pub kept: Option<Box<Kept>>,
}

/// An initiator that has sent a request of IKE_INTERMEDIATE.
pub(crate) struct IntermediateSent {
    pub keys: Keys,
    /// The first Child SA.
    pub child: Arc<ChildTunnel>,
    /// Whether it is asked for after IKE_AUTH only (RFC 6023).
    pub childless: bool,
    pub handshake: Handshake,
    pub key_exchange: Option<PrivateKey>,
    /// The postquantum preshared keys that this side proposes, by their names.
    pub ppks: Vec<(String, Secret)>,
    /// The number of additional key exchanges before this one.
    pub done: usize,
    /// The request, before its protection: fragment 1 or all of it, and its payloads.
    pub request: (Vec<u8>, Content),
}

/// The result of IKE_SA_INIT that the proofs need.
pub(crate) struct Handshake {
    pub initiator_nonce: Vec<u8>,
    pub responder_nonce: Vec<u8>,
    pub request: Vec<u8>,
    pub response: Vec<u8>,
    pub proof_keys: ProofKeys,
    pub int_auth: IntAuth,
    pub wishes: Wishes,
    /// The responder takes IKE_AUTH without a Child SA (RFC 6023).
    pub childless: bool,
    /// The use of postquantum preshared keys that is still to come.
    pub ppk: PpkUse,
    /// An IKE SA that is resumed: the proofs on which it rests.
    pub resumed: Option<Box<Authentication>>,
}

impl Handshake {
    pub fn nonces(&self) -> Nonces<'_> {
        Nonces { initiator: &self.initiator_nonce, responder: &self.responder_nonce }
    }
}

/// An IKE SA that has keys, as initiator, before its proofs: what IKE_INTERMEDIATE and IKE_AUTH go on with.
pub(crate) struct Opening {
    pub sa: IkeSa<()>,
    pub keys: Keys,
    /// The first Child SA.
    pub child: Arc<ChildTunnel>,
    /// Whether it is asked for after IKE_AUTH only (RFC 6023).
    pub childless: bool,
    pub handshake: Handshake,
}

/// An initiator that sends its proof, or has sent it.
pub(crate) struct AuthSent {
    pub keys: Keys,
    pub child: Arc<ChildTunnel>,
    /// Its inbound SPI; `None`: IKE_AUTH asks for no Child SA (RFC 6023).
    pub spi_in: Option<Spi>,
    /// The child has meanwhile been taken down.
    pub unwanted: bool,
    pub handshake: Handshake,
    /// The keys of the proofs if the responder has the PPK, too.
    pub mixed: Option<Mixed>,
    pub stage: Stage,
}

/// Where an initiator stands.
pub(crate) enum Stage {
    /// Our proof is being made. With `mixed`, it is there, and the one without the PPK is being made.
    Proving { until: Instant, mixed: Option<Evidence> },
    /// The request is out.
    Asked,
    /// The responder's proof is being checked; its answer.
    Checking { until: Instant, payloads: Vec<Payload> },
}

impl AuthSent {
    /// The keys of our proof, and of that of a responder that has the PPK, too.
    pub fn proof_keys(&self) -> &ProofKeys {
        self.mixed.as_ref().map_or(&self.handshake.proof_keys, |mixed| &mixed.proof_keys)
    }

    /// Returns `true` if the responder may have our proof.
    pub fn has_asked(&self) -> bool {
        !matches!(self.stage, Stage::Proving { .. })
    }

    /// When a job is given up.
    pub fn working_until(&self) -> Option<Instant> {
        match self.stage {
            Stage::Proving { until, .. } | Stage::Checking { until, .. } => Some(until),
            Stage::Asked => None,
        }
    }
}

impl State for InitSent {
    fn exchange(&self) -> ExchangeType {
        ExchangeType::IKE_SA_INIT
    }

    fn heard(&self) -> Option<&Heard> {
        // A cookie or another key exchange is asked for once in many negotiations.
        self.heard.as_ref().filter(|heard| heard.times > 1 || self.restarts == 0)
    }

    fn keys_if_any(&mut self) -> Option<&mut Keys> {
        None
    }
}

impl State for ResumeSent {
    fn exchange(&self) -> ExchangeType {
        ExchangeType::IKE_SESSION_RESUME
    }

    fn keys_if_any(&mut self) -> Option<&mut Keys> {
        None
    }
}

impl State for IntermediateSent {
    fn exchange(&self) -> ExchangeType {
        ExchangeType::IKE_INTERMEDIATE
    }

    fn keys_if_any(&mut self) -> Option<&mut Keys> {
        Some(&mut self.keys)
    }
}

impl Keyed for IntermediateSent {
    fn keys(&self) -> &Keys {
        &self.keys
    }

    fn keys_mut(&mut self) -> &mut Keys {
        &mut self.keys
    }
}

impl State for AuthSent {
    fn exchange(&self) -> ExchangeType {
        ExchangeType::IKE_AUTH
    }

    fn keys_if_any(&mut self) -> Option<&mut Keys> {
        Some(&mut self.keys)
    }
}

impl Keyed for AuthSent {
    fn keys(&self) -> &Keys {
        &self.keys
    }

    fn keys_mut(&mut self) -> &mut Keys {
        &mut self.keys
    }
}
