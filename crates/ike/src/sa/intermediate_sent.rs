//! An initiator that makes an additional key exchange before the proofs.

use super::auth_sent::Handshake;
use super::keys::Keys;
use crate::crypto::key_exchange::PrivateKey;
use crate::wire::protected::Content;
use policy::{ChildTunnel, Secret};
use std::sync::Arc;

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
