//! An initiator that proves who it is.

use super::keys::{Keys, Nonces, ProofKeys};
use crate::proof::wishes::Wishes;
use crate::wire::payload::Payload;
use esp::plane::Spi;
use policy::ChildTunnel;
use std::sync::Arc;
use std::time::Instant;

/// The result of IKE_SA_INIT that the proofs need.
pub(crate) struct Handshake {
    pub initiator_nonce: Vec<u8>,
    pub responder_nonce: Vec<u8>,
    pub request: Vec<u8>,
    pub response: Vec<u8>,
    pub proof_keys: ProofKeys,
    pub wishes: Wishes,
}

impl Handshake {
    pub fn nonces(&self) -> Nonces<'_> {
        Nonces { initiator: &self.initiator_nonce, responder: &self.responder_nonce }
    }
}

/// An initiator that sends its proof, or has sent it.
pub(crate) struct AuthSent {
    pub keys: Keys,
    pub child: Arc<ChildTunnel>,
    pub spi_in: Spi,
    /// The child has meanwhile been taken down.
    pub unwanted: bool,
    pub handshake: Handshake,
    pub stage: Stage,
}

/// Where an initiator stands.
pub(crate) enum Stage {
    /// Our proof is being made.
    Proving { until: Instant },
    /// The request is out.
    Asked,
    /// The responder's proof is being checked; its answer.
    Checking { until: Instant, payloads: Vec<Payload> },
}

impl AuthSent {
    /// Returns `true` if the responder may have our proof.
    pub fn has_asked(&self) -> bool {
        !matches!(self.stage, Stage::Proving { .. })
    }

    /// When a job is given up.
    pub fn working_until(&self) -> Option<Instant> {
        match self.stage {
            Stage::Proving { until } | Stage::Checking { until, .. } => Some(until),
            Stage::Asked => None,
        }
    }
}
