//! IKE_SESSION_RESUME (RFC 5723 §4.3.2): takes the place of IKE_SA_INIT. A ticket names an earlier IKE SA, from which
//! the new one has its algorithms and its SK_d. IKE_AUTH follows, with proofs that come from the new keys.

use super::auth;
use super::half_open::{Begun, HalfOpen, Resumed, Stage, Unproven};
use super::sa_init::{self, Answer};
use crate::admission::HALF_OPEN_FOR;
use crate::config::Encap;
use crate::context::Context;
use crate::crypto::prf;
use crate::datagram::Datagram;
use crate::discard::Discard;
use crate::effect::Effects;
use crate::event::{EventKind, Step};
use crate::originator::Originator;
use crate::policy_index::{Candidates, fingerprint_of_name};
use crate::product::Product;
use crate::proof::wishes::Wishes;
use crate::resumption::{self, Authentication, Kept, LONGEST_LIFE, MOST_RESUMPTIONS};
use crate::sa::IkeSa;
use crate::sa::attempt::{Attempt, AuthSent, Handshake, Opening, ResumeSent};
use crate::sa::int_auth::IntAuth;
use crate::sa::keys::{KeyInputs, Keys, Nonces, PpkUse, Resumable};
use crate::sa::message::Message;
use crate::sa::path::{Path, announce};
use crate::sa::window::Window;
use crate::session::Session;
use crate::ticket::fingerprint_of_id;
use crate::wire::header::{Header, IkeSpi};
use crate::wire::message;
use crate::wire::parts::{Parts, status};
use crate::wire::payload::{Identification, Payload};
use crate::wire::registry::{ExchangeType, NotifyType};
use policy::{ChildTunnel, IkeTunnel};
use std::sync::Arc;

/// Begins a session with a ticket: the first message goes out.
pub(crate) fn begin(
    cx: &mut Context<'_>,
    tunnel: &Arc<IkeTunnel>,
    child: &Arc<ChildTunnel>,
    mut path: Path,
    kept: Kept,
) -> Session {
    path.pretended = cx.config.encap == Encap::Always;
    let state = ResumeSent {
        child: Arc::clone(child),
        nonce: cx.rng.nonce(),
        request: Vec::new(),
        cookie: None,
        restarts: 0,
        kept: Some(Box::new(kept)),
    };
    let sa = Box::new(IkeSa {
        local_spi: cx.new_ike_spi(),
        remote_spi: IkeSpi(0),
        originator: Originator::ThisSide,
        window: Window::default(),
        state,
    });
    let mut session = Session::of_initiator(Arc::clone(tunnel), path, sa.local_spi, cx.now);
    cx.out.event(&tunnel.name, None, EventKind::Negotiating { initiator: true });
    ask(&mut session, cx, sa);
    session
}

fn ask(session: &mut Session, cx: &mut Context<'_>, mut sa: Box<IkeSa<ResumeSent>>) {
    let header = sa.request_header(ExchangeType::IKE_SESSION_RESUME, 0);
    let spis = sa.spis();
    let state = &mut sa.state;
    let mut payloads = Vec::new();
    payloads.extend(state.cookie.clone().map(|c| status(NotifyType::COOKIE, c)));
    payloads.push(Payload::Nonce(state.nonce.clone()));
    let ticket = state.kept.as_ref().map(|kept| kept.ticket.clone());
    payloads.extend(ticket.map(|ticket| status(NotifyType::TICKET_OPAQUE, ticket)));
    payloads.extend(announce(spis, session.path(), session.path().pretended));
    payloads.extend(sa_init::introduction(cx.config));
    payloads.extend(cx.config.fragment_size.map(|_| sa_init::takes_fragments()));
    state.request = message::encode(&header, &payloads);
    cx.out.transmit(session.path().local, session.path().remote, state.request.clone());
    let request = Message::unprotected(state.request.clone());
    sa.window.restart(cx.now, cx.config, request);
    cx.out.exchange(&session.tunnel().name, || sa.told(Step::Sent));
    session.keep_attempt(Attempt::Resume(sa));
}

/// A ticket that may be resumed from, and what it holds.
struct Judged {
    resumed: Resumed,
    old: Resumable,
}

/// Answers a request whose cookie, if one is due, was right. `candidates` fit its addresses.
pub(crate) fn answer(
    cx: &mut Context<'_>,
    header: &Header,
    datagram: Datagram<'_>,
    payloads: &[Payload],
    candidates: Candidates,
) -> Option<Answer> {
    let parts = Parts::of(payloads);
    let (Some(nonce), Some(ticket)) = (parts.nonce, parts.notify(NotifyType::TICKET_OPAQUE)) else {
        cx.out.discard(Discard::Malformed);
        return None;
    };
    let Judged { resumed, old } = match judge(cx, datagram, &ticket.data) {
        Ok(judged) => judged,
        Err(reason) => {
            cx.out.discard(reason);
            return Some(Answer::Stateless(status(NotifyType::TICKET_NACK, vec![])));
        }
    };
    if !prf::is_long_enough(old.suite.prf, nonce) {
        cx.out.discard(Discard::ShortNonce);
        return None;
    }
    let local_spi = cx.new_ike_spi();
    let spis = (header.initiator_spi, local_spi);
    let path = sa_init::path_of_request(cx, header, datagram, payloads);
    let our_nonce = cx.rng.nonce();
    let mut granted = vec![Payload::Nonce(our_nonce.clone())];
    if path.traverses {
        granted.extend(announce(spis, &path, cx.config.encap == Encap::Always));
    }
    granted.extend(sa_init::introduction(cx.config));
    granted.extend(path.fragment_size.map(|_| sa_init::takes_fragments()));
    granted.push(sa_init::sets_up_without_child());
    let nonces = Nonces { initiator: nonce, responder: &our_nonce };
    let inputs = KeyInputs { nonces, spis, originator: Originator::Peer };
    let (keys, proof_keys) = Keys::resumed(&cx.config.crypto, &old, inputs);
    let mut begun = Begun {
        local_spi,
        remote_spi: header.initiator_spi,
        path,
        keys,
        request: datagram.octets.to_vec(),
        response: Vec::new(),
        begun_at: cx.now,
        expires_at: cx.now + HALF_OPEN_FOR,
    };
    let answer = begun.answer_header(ExchangeType::IKE_SESSION_RESUME, 0);
    begun.response = message::encode(&answer, &granted);
    let unproven = Unproven {
        candidates,
        proposal: resumed.suite.clone(),
        window: Window::of_stranger(),
        proof_keys,
        // Those of the earlier IKE SA are not made again.
        done: old.suite.additional.methods().count(),
        before: None,
        int_auth: IntAuth::default(),
        initiator_nonce: nonce.to_vec(),
        responder_nonce: our_nonce,
        wishes: Wishes::default(),
        ppk: PpkUse::None,
        ppk_settled: true,
        product: Product::of(payloads),
        resumed: Some(Box::new(resumed)),
    };
    let stage = Stage::Waiting(Box::new(unproven));
    Some(Answer::HalfOpen(Box::new(HalfOpen { begun, stage })))
}

/// Decides whether a ticket may be resumed from. A stranger who has none of this side costs one AEAD.
fn judge(cx: &Context<'_>, datagram: Datagram<'_>, ticket: &[u8]) -> Result<Judged, Discard> {
    let unix = cx.resumption.unix(cx.now).ok_or(Discard::TicketNotAllowed)?;
    let keys = cx.trust.ticket_keys();
    let opened = cx.resumption.sealer.open(&cx.config.crypto, keys, ticket);
    let (id, content) = opened.map_err(|_| Discard::TicketUnknown)?;
    let expires = content.expires.min(content.proof_until);
    if expires <= unix || content.expires > unix.saturating_add(LONGEST_LIFE) {
        return Err(Discard::TicketExpired);
    }
    let (local, remote) = (datagram.local.ip(), datagram.remote.ip());
    let tunnel = cx.policy.resumable(&content.tunnel);
    let tunnel = tunnel.filter(|tunnel| tunnel.may_answer(local, remote));
    let tunnel = tunnel.ok_or(Discard::TicketNotAllowed)?;
    if !cx.resumption.spent.admits(&tunnel.name, id, unix) {
        return Err(Discard::TicketSpent);
    }
    let ppk = content.ppk.as_ref();
    let allowed = resumption::allowed(tunnel, cx.trust, &content.credential, &content.suite, ppk);
    let allowed = allowed.filter(|_| content.resumptions < MOST_RESUMPTIONS);
    let (suite, ppk) = allowed.ok_or(Discard::TicketNotAllowed)?;
    if content.sk_d.len() != prf::output_len(suite.prf) {
        return Err(Discard::TicketNotAllowed);
    }
    let resumed = Resumed {
        id,
        expires: content.expires,
        tunnel: content.tunnel,
        responder: content.responder,
        ppk: content.ppk,
        suite: content.suite,
        spis: content.spis,
        authentication: Authentication {
            proved: content.proved,
            until: content.proof_until,
            resumptions: content.resumptions + 1,
            method: content.method,
            initiator: content.initiator,
            credential: content.credential,
            given: None,
            kept: None,
        },
    };
    let old = Resumable { suite, sk_d: content.sk_d, ppk, quantum_safe: content.quantum_safe };
    Ok(Judged { resumed, old })
}

impl Resumed {
    /// Returns `true` if the ticket may still be resumed from by the peer that names itself `initiator`, as the policy
    /// is by now: RFC 5723 §4.3.3 has both identities be those of the ticket.
    pub fn admits(&self, cx: &Context<'_>, tunnel: &IkeTunnel, initiator: &Identification) -> bool {
        let Some(unix) = cx.resumption.unix(cx.now) else { return false };
        let (proofs, ppk) = (&self.authentication, self.ppk.as_ref());
        let responder = Identification::of(&tunnel.local.identity);
        fingerprint_of_name(tunnel) == self.tunnel
            && fingerprint_of_id(initiator) == proofs.initiator
            && fingerprint_of_id(&responder) == self.responder
            && unix < self.expires.min(proofs.until)
            && cx.resumption.spent.admits(&tunnel.name, self.id, unix)
            && resumption::allowed(tunnel, cx.trust, &proofs.credential, &self.suite, ppk).is_some()
    }

    /// The ticket is used: its owner has proved that it knows the session.
    pub fn spend(&self, cx: &mut Context<'_>, tunnel: &IkeTunnel) {
        if let Some(unix) = cx.resumption.unix(cx.now) {
            cx.resumption.spent.add(&tunnel.name, (self.id, self.expires), unix);
        }
    }
}

/// The meaning of an answer.
enum Outcome {
    /// None: the datagram is ignored.
    Ignored(Discard),
    /// The responder wants a cookie.
    Again,
    /// The responder does not take the ticket, or somebody says so in its name.
    Refused,
    /// The ticket that is agreed on, and the responder's nonce.
    Agreed(Box<Kept>, Vec<u8>),
}

/// Takes the answer to our request.
pub(crate) fn conclude(
    session: &mut Session,
    cx: &mut Context<'_>,
    mut sa: Box<IkeSa<ResumeSent>>,
    header: &Header,
    datagram: Datagram<'_>,
) -> Effects {
    let read = sa_init::read_first_answer(ExchangeType::IKE_SESSION_RESUME, header, datagram);
    let payloads = match read {
        Ok(payloads) => payloads,
        Err(reason) => {
            session.keep_attempt(Attempt::Resume(sa));
            return cx.discard(reason);
        }
    };
    let parts = Parts::of(&payloads);
    match read_answer(&mut sa.state, header, &parts) {
        Outcome::Agreed(kept, nonce) => {
            cx.out.products.note(&session.tunnel().name, Product::of(&payloads));
            sa.remote_spi = header.responder_spi;
            go_on(session, cx, *sa, (*kept, nonce), (datagram, &payloads))
        }
        Outcome::Again => {
            sa.state.restarts += 1;
            ask(session, cx, sa);
            Effects::none()
        }
        // Anybody may have sent it, so it must not cost the tunnel: the full handshake needs no ticket.
        Outcome::Refused => {
            cx.out.discard(Discard::UnauthenticatedRefusal);
            fall_back(session, cx, sa.local_spi, sa.state.child)
        }
        Outcome::Ignored(reason) => {
            session.keep_attempt(Attempt::Resume(sa));
            cx.discard(reason)
        }
    }
}

fn read_answer(state: &mut ResumeSent, header: &Header, parts: &Parts<'_>) -> Outcome {
    if let Some(cookie) = parts.notify(NotifyType::COOKIE).filter(|_| parts.nonce.is_none()) {
        if !sa_init::takes_cookie(&cookie.data, state.restarts) {
            return Outcome::Ignored(Discard::Malformed);
        }
        state.cookie = Some(cookie.data.clone());
        return Outcome::Again;
    }
    if parts.notify(NotifyType::TICKET_NACK).is_some() || parts.error().is_some() {
        return Outcome::Refused;
    }
    let Some(nonce) = parts.nonce.filter(|_| header.responder_spi != IkeSpi(0)) else {
        return Outcome::Ignored(Discard::Malformed);
    };
    let prf = state.kept.as_ref().map(|kept| kept.old.suite.prf);
    if !prf.is_some_and(|prf| prf::is_long_enough(prf, nonce)) {
        return Outcome::Ignored(Discard::ShortNonce);
    }
    match state.kept.take() {
        Some(kept) => Outcome::Agreed(kept, nonce.to_vec()),
        None => Outcome::Refused,
    }
}

/// Begins a full handshake in place of a resumption that the responder refuses.
fn fall_back(
    session: &mut Session,
    cx: &mut Context<'_>,
    old: IkeSpi,
    child: Arc<ChildTunnel>,
) -> Effects {
    cx.out.event(&session.tunnel().name, None, EventKind::TicketRefused);
    sa_init::begin_again(session, cx, old, child, false)
}

/// Returns `true` if the responder has taken the ticket, and refuses the IKE_AUTH that follows: the policy has changed
/// meanwhile.
pub(crate) fn is_refused(auth: &AuthSent, payloads: &[Payload]) -> bool {
    let parts = Parts::of(payloads);
    let has_proof = payloads.iter().any(|p| matches!(p, Payload::Auth { .. }));
    auth.handshake.resumed.is_some() && !has_proof && parts.error().is_some() && !auth.unwanted
}

/// Goes on with a full handshake after that.
pub(crate) fn begin_in_full(
    session: &mut Session,
    cx: &mut Context<'_>,
    sa: IkeSa<AuthSent>,
) -> Effects {
    auth::release(cx, sa.state.spi_in);
    fall_back(session, cx, sa.local_spi, sa.state.child)
}

/// Goes on with an answer that is agreed with: makes the keys.
fn go_on(
    session: &mut Session,
    cx: &mut Context<'_>,
    sa: IkeSa<ResumeSent>,
    (kept, responder_nonce): (Kept, Vec<u8>),
    (datagram, payloads): (Datagram<'_>, &[Payload]),
) -> Effects {
    cx.out.exchange(&session.tunnel().name, || sa.told(Step::Answered));
    let (mut sa, ResumeSent { child, nonce, request, .. }) = sa.part();
    sa.window.concluded();
    let spis = sa.spis();
    sa_init::follow_answer(session, cx, spis, payloads);
    let nonces = Nonces { initiator: &nonce, responder: &responder_nonce };
    let inputs = KeyInputs { nonces, spis, originator: Originator::ThisSide };
    let (keys, proof_keys) = Keys::resumed(&cx.config.crypto, &kept.old, inputs);
    cx.out.log_keys(|| keys.logged(spis, Originator::ThisSide));
    let handshake = Handshake {
        initiator_nonce: nonce,
        responder_nonce,
        request,
        response: datagram.octets.to_vec(),
        proof_keys,
        int_auth: IntAuth::default(),
        wishes: Wishes::default(),
        childless: Parts::of(payloads).notify(NotifyType::CHILDLESS_IKEV2_SUPPORTED).is_some(),
        ppk: PpkUse::None,
        resumed: Some(Box::new(kept.authentication())),
    };
    auth::ask(session, cx, Opening { sa, keys, child, childless: false, handshake })
}
