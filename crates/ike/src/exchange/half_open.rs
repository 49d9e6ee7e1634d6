//! A responder between its answer to IKE_SA_INIT and the peer's proof.

use crate::negotiation::proposal::choose_ike;
use crate::policy_index::{Candidates, PolicyIndex};
use crate::proof::wishes::Wishes;
use crate::sa::IkeSa;
use crate::sa::keys::{Keys, ProofKeys};
use crate::sa::path::Path;
use crate::wire::header::Header;
use crate::wire::payload::{Payload, Proposal};
use crate::wire::registry::GroupId;
use policy::IkeTunnel;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// A responder that has answered.
pub(crate) struct HalfOpen {
    pub path: Path,
    /// The tunnels that fit the addresses and the chosen suite; IKE_AUTH tells which it is.
    pub candidates: Candidates,
    /// What was chosen.
    pub proposal: Proposal,
    pub sa: IkeSa,
    pub keys: Option<Keys>,
    pub proof_keys: ProofKeys,
    pub request: Vec<u8>,
    pub response: Vec<u8>,
    pub initiator_nonce: Vec<u8>,
    pub responder_nonce: Vec<u8>,
    pub begun_at: Instant,
    /// When it is forgotten, or the work on its IKE_AUTH given up.
    pub expires_at: Instant,
    /// A refusal in IKE_AUTH: the request (or fragment 1 of it) and the answer, kept for its repetitions.
    pub refused: Option<(Vec<u8>, Vec<Vec<u8>>)>,
    pub wishes: Wishes,
    /// An IKE_AUTH request whose proof is being checked.
    pub checking: Option<Box<Checking>>,
}

impl HalfOpen {
    /// Looks for its tunnels in another policy.
    pub fn reconsider(&mut self, policy: &PolicyIndex) {
        self.candidates = policy.candidates(self.path.local.ip(), self.path.remote.ip());
        let only = std::slice::from_ref(&self.proposal);
        self.candidates.retain(|ours| choose_ike(ours, only, GroupId::NONE, &[]).is_some());
    }
}

/// A request whose proof is being checked.
pub(crate) struct Checking {
    pub tunnel: Arc<IkeTunnel>,
    pub payloads: Vec<Payload>,
    pub request: Request,
}

/// A request as its answer needs it.
pub(crate) struct Request {
    pub reply: Header,
    /// Where it came to, and from.
    pub path: (SocketAddr, SocketAddr),
    /// Fragment 1 of it, or all of it.
    pub octets: Vec<u8>,
}
