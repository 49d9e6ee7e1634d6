//! A responder between its answer to IKE_SA_INIT and the peer's proof: the states of a half-open IKE SA.

mod frozen;

use crate::context::Context;
use crate::crypto::tally;
use crate::datagram::Datagram;
use crate::deadlines::Deadline;
use crate::negotiation::proposal::choose_ike;
use crate::originator::Originator;
use crate::policy_index::{Candidates, PolicyIndex};
use crate::product::Product;
use crate::proof::wishes::Wishes;
use crate::proof::{Checked, Evidence};
use crate::resumption::Authentication;
use crate::sa::int_auth::IntAuth;
use crate::sa::keys::{Keys, Nonces, PpkUse, ProofKeys};
use crate::sa::path::Path;
use crate::sa::reassembly::{Body, Received};
use crate::sa::window::Window;
use crate::ticket::{Fingerprint, TicketId};
use crate::wire::header::{Header, IkeSpi};
use crate::wire::payload::{Payload, Proposal};
use crate::wire::reader::WireError;
use crate::wire::registry::{ExchangeType, GroupId, PayloadType};
use crypto::asymmetric::Hash;
use policy::{ChildTunnel, Group, IkeTunnel};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// Names the IKE_SA_INIT request that began a half-open IKE SA: its source, and a hash of the whole datagram. The
/// initiator's SPI is not enough, since everybody who sees it can send another request with it (RFC 7296 §2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Init {
    source: SocketAddr,
    /// SHA-256.
    hash: [u8; 32],
}

impl Init {
    /// The name of the request with these octets.
    pub fn of(source: SocketAddr, octets: &[u8]) -> Self {
        let hash = tally::digest(Hash::Sha256, octets).try_into();
        Self { source, hash: hash.expect("SHA-256 makes 32 octets") }
    }
}

/// An IKE SA whose initiator has not proved yet who it is.
pub(crate) struct HalfOpen {
    pub begun: Begun,
    pub stage: Stage,
}

/// The result of IKE_SA_INIT, which holds in every stage.
pub(crate) struct Begun {
    /// This side's SPI, which names the half-open IKE SA.
    pub local_spi: IkeSpi,
    /// The initiator's SPI.
    pub remote_spi: IkeSpi,
    pub path: Path,
    pub keys: Keys,
    /// The IKE_SA_INIT request and its answer, octet by octet.
    pub request: Vec<u8>,
    pub response: Vec<u8>,
    pub begun_at: Instant,
    /// When it is forgotten, or the work on its IKE_AUTH given up.
    pub expires_at: Instant,
}

/// The stages of a half-open IKE SA. Each owns what is true in it.
pub(crate) enum Stage {
    /// The initiator's IKE_AUTH is awaited, or its next IKE_INTERMEDIATE.
    Waiting(Box<Unproven>),
    /// A job checks the initiator's proof and makes this side's.
    Checking(Box<Unproven>, Box<Checking>),
    /// Both proofs are there. The plane prepares for the Child SA that is asked for.
    Preparing(Box<Unproven>, Box<Preparing>),
    /// The proof was refused: only the answer is repeated. `request` is fragment 1 of the request, or all of it.
    Refused { request: Vec<u8>, answer: Vec<Vec<u8>> },
}

/// Everything that a proof is checked and made with.
pub(crate) struct Unproven {
    /// The tunnels that fit the addresses and the chosen suite; IKE_AUTH tells which of them is meant.
    pub candidates: Candidates,
    /// The proposal that this side has chosen.
    pub proposal: Proposal,
    pub window: Window,
    pub proof_keys: ProofKeys,
    /// The number of additional key exchanges so far.
    pub done: usize,
    /// The keys before the last of them: its request may come again.
    pub before: Option<Keys>,
    pub int_auth: IntAuth,
    pub initiator_nonce: Vec<u8>,
    pub responder_nonce: Vec<u8>,
    pub wishes: Wishes,
    /// The agreement on postquantum preshared keys.
    pub ppk: PpkUse,
    /// One that was agreed on before the proofs is settled, or that there is none.
    pub ppk_settled: bool,
    /// The ticket that takes the place of credentials.
    pub resumed: Option<Box<Resumed>>,
    pub product: Option<Product>,
}

/// A ticket that was checked: only `resume.rs` makes it.
pub(crate) struct Resumed {
    pub id: TicketId,
    /// In seconds since 1970.
    pub expires: u64,
    /// The fingerprint of the tunnel's name.
    pub tunnel: Fingerprint,
    /// The fingerprint of this side's ID payload.
    pub responder: Fingerprint,
    /// SHA-256 of the postquantum preshared key in SK_d.
    pub ppk: Option<Fingerprint>,
    pub suite: Proposal,
    /// The SPIs of the IKE SA that is resumed.
    pub spis: (IkeSpi, IkeSpi),
    /// The proofs on which the session rests.
    pub authentication: Authentication,
}

/// An IKE_AUTH request whose proof is being checked.
pub(crate) struct Checking {
    pub tunnel: Arc<IkeTunnel>,
    pub payloads: Vec<Payload>,
    pub request: Request,
}

/// An IKE_AUTH request whose proof is good.
pub(crate) struct Proven {
    pub tunnel: Arc<IkeTunnel>,
    pub payloads: Vec<Payload>,
    pub request: Request,
    /// The proof of this side.
    pub proof: Evidence,
    /// The check of the initiator's signature.
    pub checked: Option<Checked>,
}

/// An IKE_AUTH request whose proof is good, and whose answer waits for the plane.
pub(crate) struct Preparing {
    pub proven: Proven,
    /// The phase 2 tunnel that is asked for. Its rule stays as long as this is there.
    pub child: Arc<ChildTunnel>,
}

/// A request as its answer needs it.
pub(crate) struct Request {
    pub reply: Header,
    /// The address and port of this side that it came to, and those of the peer.
    pub ends: (SocketAddr, SocketAddr),
    /// Fragment 1 of it, or all of it.
    pub octets: Vec<u8>,
}

impl HalfOpen {
    /// Looks for its tunnels in another policy.
    pub fn reconsider(&mut self, policy: &PolicyIndex) {
        let path = &self.begun.path;
        match &mut self.stage {
            Stage::Waiting(unproven)
            | Stage::Checking(unproven, _)
            | Stage::Preparing(unproven, _) => {
                let only = std::slice::from_ref(&unproven.proposal);
                let mut candidates = policy.candidates(path.local.ip(), path.remote.ip());
                candidates.retain(|ours| choose_ike(ours, only, GroupId::NONE, &[]).is_some());
                unproven.candidates = candidates;
            }
            Stage::Refused { .. } => {}
        }
    }

    /// Returns `true` if its IKE_AUTH request waits for the plane.
    pub fn is_preparing(&self) -> bool {
        matches!(self.stage, Stage::Preparing(..))
    }

    pub fn deadline(&self) -> Deadline {
        Deadline { at: self.begun.expires_at, reason: "half-open IKE SA" }
    }
}

impl Begun {
    /// The name by which a repeated IKE_SA_INIT is recognised.
    pub fn init(&self) -> Init {
        Init::of(self.path.remote, &self.request)
    }

    /// SPIs in the order of the header.
    pub fn spis(&self) -> (IkeSpi, IkeSpi) {
        (self.remote_spi, self.local_spi)
    }

    /// Takes a request: its content, or the reason why that cannot be read, and the parts that its answer needs. `None`:
    /// it is discarded, or fragments of it are missing.
    pub fn receive(
        &mut self,
        cx: &mut Context<'_>,
        unproven: &mut Unproven,
        header: &Header,
        datagram: Datagram<'_>,
    ) -> Option<(Result<Body, WireError>, Request)> {
        let requests = &mut unproven.window.requests;
        let (body, fragments) =
            match requests.receive(cx.now, &self.path, &self.keys, header, datagram.octets) {
                Ok(Received::Message { body, fragments }) => (body, fragments),
                Ok(Received::Fragment) => return None,
                Err(reason) => {
                    cx.out.discard(reason);
                    return None;
                }
            };
        // Not sooner: an IKE_SA_INIT, which anyone can send, logs no key.
        cx.out.log_keys(|| self.keys.logged(self.spis(), Originator::Peer));
        if let Some(fragments) = &fragments {
            self.path.follow_fragments(fragments.largest);
        }
        let request = Request {
            reply: self.answer_header(header.exchange, header.message_id),
            ends: (datagram.local, datagram.remote),
            octets: fragments.map_or_else(|| datagram.octets.to_vec(), |f| f.first),
        };
        Some((body, request))
    }

    /// The header of an answer.
    pub fn answer_header(&self, exchange: ExchangeType, message_id: u32) -> Header {
        Header {
            initiator_spi: self.remote_spi,
            responder_spi: self.local_spi,
            next_payload: PayloadType::NONE,
            exchange,
            from_initiator: false,
            response: true,
            higher_version: false,
            minor_version: 0,
            message_id,
        }
    }
}

impl Unproven {
    /// The method of the additional key exchange that is next.
    pub fn next_additional(&self, keys: &Keys) -> Option<Group> {
        keys.suite.additional.methods().nth(self.done)
    }

    /// Returns `true` if an IKE_INTERMEDIATE is to come before IKE_AUTH.
    pub fn goes_on(&self, keys: &Keys) -> bool {
        self.next_additional(keys).is_some() || self.awaits_ppk()
    }

    /// Returns `true` if the initiator is still to propose postquantum preshared keys.
    pub fn awaits_ppk(&self) -> bool {
        self.ppk == PpkUse::BeforeProofs && !self.ppk_settled
    }

    pub fn nonces(&self) -> Nonces<'_> {
        Nonces { initiator: &self.initiator_nonce, responder: &self.responder_nonce }
    }
}
