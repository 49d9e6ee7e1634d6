//! An initiator that has asked for an IKE SA.

use crate::config::Config;
use crate::crypto::key_exchange::PrivateKey;
use crate::deadlines::after;
use crate::failure::Failure;
use policy::ChildTunnel;
use std::sync::Arc;
use std::time::Instant;

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
    /// An unauthenticated refusal, and when it came: believed if nothing better comes (RFC 7296 §2.21.1).
    pub refusal: Option<(Failure, Instant)>,
}

impl InitSent {
    /// When a refusal is believed.
    pub fn refused_at(&self, config: &Config) -> Option<Instant> {
        self.refusal.as_ref().map(|(_, at)| after(*at, config.retransmit_after.saturating_mul(2)))
    }
}
