//! An initiator that proves who it is.

use super::int_auth::IntAuth;
use super::keys::{Keys, Mixed, Nonces, PpkUse, ProofKeys};
use crate::proof::Evidence;
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
    pub int_auth: IntAuth,
    pub wishes: Wishes,
    /// The responder takes IKE_AUTH without a Child SA (RFC 6023).
    pub childless: bool,
    /// The use of postquantum preshared keys that is still to come.
    pub ppk: PpkUse,
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
