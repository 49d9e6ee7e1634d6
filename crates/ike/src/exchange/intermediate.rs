//! IKE_INTERMEDIATE (RFC 9242): the additional key exchanges between IKE_SA_INIT and IKE_AUTH (RFC 9370 §2.2.2), and
//! postquantum preshared keys (RFC 9867 §3.1).

use super::auth;
use super::auth::responder::{self, Answer};
use super::half_open::{Begun, HalfOpen, Stage, Unproven};
use super::ppk;
use crate::admission::{HALF_OPEN_AT_MOST, HALF_OPEN_FOR};
use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::crypto::key_exchange::{PrivateKey, respond};
use crate::datagram::Datagram;
use crate::discard::Discard;
use crate::effect::Effects;
use crate::failure::facts::PpkLack;
use crate::failure::{Failure, FailureKind};
use crate::negotiation::transforms::{group_id, group_of};
use crate::originator::Originator;
use crate::proof::trust::Trust;
use crate::rejection::{Asked, Rejection, failure_of, malformed};
use crate::sa::IkeSa;
use crate::sa::attempt::{Attempt, Handshake, IntermediateSent, Opening};
use crate::sa::int_auth::Covered;
use crate::sa::keys::{KeyInputs, Keys, PpkUse, ProofKeys};
use crate::sa::message::Message;
use crate::sa::reassembly::Body;
use crate::sa::window;
use crate::session::Session;
use crate::wire::fragment;
use crate::wire::header::{Header, IkeSpi};
use crate::wire::parts::Parts;
use crate::wire::payload::Payload;
use crate::wire::protected::Content;
use crate::wire::registry::{ExchangeType, NotifyType};
use policy::{Group, IkeTunnel, Secret};
use std::sync::Arc;

/// Asks for the additional key exchange that comes after `done` others, or begins the proofs after the last. With the
/// last, this side proposes its PPKs.
pub(crate) fn ask(
    session: &mut Session,
    cx: &mut Context<'_>,
    opening: Opening,
    done: usize,
) -> Effects {
    let (group, is_last) = {
        let mut rest = opening.keys.suite.additional.methods().skip(done);
        (rest.next(), rest.next().is_none())
    };
    let proposes = is_last && opening.handshake.ppk == PpkUse::BeforeProofs;
    if group.is_none() && !proposes {
        return auth::ask(session, cx, opening);
    }
    let Opening { sa, keys, child, childless, handshake } = opening;
    let ppks = match proposes {
        true => ppk::to_propose(session.tunnel(), cx.trust),
        false => Ok(Vec::new()),
    };
    let ppks = match ppks {
        Ok(ppks) => ppks,
        Err(failure) => {
            return session.give_up(cx, sa, &child, CloseReason::NoProof, failure);
        }
    };
    let nonces = handshake.nonces();
    let nonces = [nonces.initiator, nonces.responder];
    let key_exchange = group.map(PrivateKey::generate);
    let payloads: Vec<Payload> = key_exchange
        .as_ref()
        .map(public_value)
        .into_iter()
        .chain(
            ppks.iter()
                .map(|(id, ppk)| ppk::proposal(id, &keys.confirmation(ppk, &nonces, sa.spis()))),
        )
        .collect();
    let header = sa.request_header(ExchangeType::IKE_INTERMEDIATE, sa.window.next_id());
    let request = (Vec::new(), Content::of(&header, &payloads));
    let mut sa = Box::new(sa.with(IntermediateSent {
        keys,
        child,
        childless,
        handshake,
        key_exchange,
        ppks,
        done,
        request,
    }));
    let exchange = ExchangeType::IKE_INTERMEDIATE;
    sa.request(cx, session.tunnel(), session.path(), exchange, &payloads);
    if let Some(datagrams) = sa.window.outstanding() {
        sa.state.request.0 = datagrams[0].clone();
    }
    session.keep_attempt(Attempt::Intermediate(sa));
    Effects::none()
}

/// Takes the responder's answer.
pub(crate) fn conclude(
    session: &mut Session,
    cx: &mut Context<'_>,
    mut sa: Box<IkeSa<IntermediateSent>>,
    header: &Header,
    datagram: Datagram<'_>,
) -> Effects {
    let tunnel = Arc::clone(session.tunnel());
    let Some(answer) = sa.read_answer(cx, &tunnel, session.path(), header, datagram) else {
        session.keep_attempt(Attempt::Intermediate(sa));
        return Effects::none();
    };
    let Body { payloads, content } = match answer.body {
        Ok(body) => body,
        Err(error) => {
            let attempt = Attempt::Intermediate(sa);
            return session.fail(cx, attempt, CloseReason::MalformedAnswer, malformed(&error));
        }
    };
    session.heard(cx, datagram);
    // The message or its fragment 1.
    let datagram = answer.fragments.as_ref().map_or(datagram.octets, |f| &f.first);
    let covered = Covered { datagram, content: &content };
    let spis = sa.spis();
    let parts = Parts::of(&payloads);
    let agreed = agree(&tunnel, &mut sa.state, &parts, covered)
        .and_then(|shared| Ok((shared, chosen_ppk(&tunnel, &sa.state, &parts)?)));
    let (shared, place) = match agreed {
        Ok(agreed) => agreed,
        Err(failure) => {
            let attempt = Attempt::Intermediate(sa);
            return session.fail(cx, attempt, CloseReason::Refused, failure);
        }
    };
    let (sa, sent) = sa.part();
    let IntermediateSent { mut keys, child, childless, mut handshake, ppks, done, .. } = sent;
    if let Some((method, shared)) = shared {
        let made = (method, &shared);
        (keys, handshake.proof_keys) = keys.after_additional(made, key_inputs(&handshake, spis));
    }
    // RFC 9867 §3.1.1: after everything else.
    if let Some((id, ppk)) = place.map(|place| &ppks[place]) {
        (keys, handshake.proof_keys) = keys.after_ppk(id, ppk, key_inputs(&handshake, spis));
    }
    if !ppks.is_empty() {
        handshake.ppk = PpkUse::None;
    }
    cx.out.log_keys(|| keys.logged(spis, Originator::ThisSide));
    ask(session, cx, Opening { sa, keys, child, childless, handshake }, done + 1)
}

fn key_inputs(handshake: &Handshake, spis: (IkeSpi, IkeSpi)) -> KeyInputs<'_> {
    KeyInputs { nonces: handshake.nonces(), spis, originator: Originator::ThisSide }
}

/// The place of the PPK that an answer selects; an error if it selects none, and one is required.
fn chosen_ppk(
    tunnel: &IkeTunnel,
    sent: &IntermediateSent,
    parts: &Parts<'_>,
) -> Result<Option<usize>, Failure> {
    let Some(names) = names(&sent.ppks) else { return Ok(None) };
    let ids = sent.ppks.iter().map(|(id, _)| id.as_str());
    match ppk::selected(ids, parts).map_err(broken)? {
        None if ppk::is_required(tunnel) => Err(ppk::failure(tunnel, PpkLack::Unused, Some(names))),
        place => Ok(place),
    }
}

/// The names of the PPKs that were proposed; `None`: there are none.
fn names(ppks: &[(String, Secret)]) -> Option<String> {
    let names: Vec<&str> = ppks.iter().map(|(id, _)| id.as_str()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// The shared secret of an answer, which is added to what the proofs cover.
fn agree(
    tunnel: &IkeTunnel,
    sent: &mut IntermediateSent,
    parts: &Parts<'_>,
    response: Covered<'_>,
) -> Result<Option<(Group, Secret)>, Failure> {
    if let Some(error) = parts.error() {
        let refuses_ppks = error.kind == NotifyType::AUTHENTICATION_FAILED;
        return Err(match names(&sent.ppks).filter(|_| refuses_ppks) {
            Some(names) => ppk::failure(tunnel, PpkLack::Unused, Some(names)),
            None => failure_of(error, Asked::ike(&tunnel.proposals)),
        });
    }
    let shared = match (&sent.key_exchange, parts.key_exchange) {
        (None, _) => None,
        (Some(key), Some((group, public))) if group_of(group) == Some(key.group()) => {
            let shared = key.agree(public).map_err(|error| broken(&error.to_string()))?;
            Some((key.group(), shared))
        }
        _ => return Err(broken("the answer of IKE_INTERMEDIATE has no public value as agreed")),
    };
    let request = Covered { datagram: &sent.request.0, content: &sent.request.1 };
    let Handshake { int_auth, proof_keys, .. } = &mut sent.handshake;
    let covered =
        int_auth.add(sent.keys.prf_provider(), sent.keys.suite.prf, proof_keys, request, response);
    covered.ok_or_else(|| broken("the answer of IKE_INTERMEDIATE has unprotected payloads"))?;
    Ok(shared)
}

fn broken(detail: &str) -> Failure {
    Failure::new(FailureKind::ProtocolError, detail.to_owned())
}

/// Answers an IKE_INTERMEDIATE request on a half-open IKE SA.
pub(crate) fn answer(
    cx: &mut Context<'_>,
    half: HalfOpen,
    header: &Header,
    datagram: Datagram<'_>,
) -> Answer {
    let HalfOpen { mut begun, stage } = half;
    let Stage::Waiting(mut unproven) = stage else {
        cx.out.discard(Discard::AnswerPending);
        return Answer::waits(begun, stage);
    };
    if header.response
        || (header.initiator_spi, header.responder_spi) != begun.spis()
        || !header.from_initiator
    {
        cx.out.discard(Discard::WrongExchange);
        return Answer::waits(begun, Stage::Waiting(unproven));
    }
    let class = unproven.window.classify(header.message_id);
    if class == window::Request::Repeated {
        if let Some(datagrams) = repeated(cx, &mut begun, &mut unproven, header, datagram) {
            cx.out.transmit_all(datagram.local, datagram.remote, &datagrams);
        }
        return Answer::waits(begun, Stage::Waiting(unproven));
    }
    if !unproven.goes_on(&begun.keys) {
        cx.out.discard(Discard::WrongExchange);
        return Answer::waits(begun, Stage::Waiting(unproven));
    }
    if class == window::Request::Foreign {
        cx.out.discard(Discard::MessageId);
        return Answer::waits(begun, Stage::Waiting(unproven));
    }
    let Some((body, request)) = begun.receive(cx, &mut unproven, header, datagram) else {
        return Answer::waits(begun, Stage::Waiting(unproven));
    };
    let made = match body {
        Ok(Body { payloads, content }) => {
            exchange(cx.trust, &begun, &unproven, &payloads).map(|made| (made, content))
        }
        Err(error) => Err(Rejection::unreadable(&error)),
    };
    let (Made { payloads, shared, ppk, settled }, content) = match made {
        Ok(made) => made,
        Err(rejection) => {
            return responder::refuse(cx, begun, &unproven, request, &rejection);
        }
    };
    let sent = Content::of(&request.reply, &payloads);
    let message = Message::seal(request.reply, &payloads, &mut begun.keys, &begun.path, cx.rng);
    let covered = unproven.int_auth.add(
        begun.keys.prf_provider(),
        begun.keys.suite.prf,
        &unproven.proof_keys,
        Covered { datagram: &request.octets, content: &content },
        Covered { datagram: &message.datagrams()[0], content: &sent },
    );
    if covered.is_none() {
        let detail = "IKE_INTERMEDIATE has unprotected payloads";
        let rejection = Rejection::invalid_syntax(detail.into());
        return responder::refuse(cx, begun, &unproven, request, &rejection);
    }
    let keys = renewed(&begun, &unproven, shared.as_ref(), ppk);
    unproven.done += usize::from(shared.is_some());
    unproven.ppk_settled |= settled;
    unproven.before = None;
    if let Some((keys, proof_keys)) = keys {
        unproven.before = Some(std::mem::replace(&mut begun.keys, keys));
        unproven.proof_keys = proof_keys;
    }
    // However many additional key exchanges there are, a stranger keeps its place no longer than for two.
    let later = (cx.now + HALF_OPEN_FOR).min(begun.begun_at + HALF_OPEN_AT_MOST);
    begun.expires_at = begun.expires_at.max(later);
    let datagrams = message.datagrams().to_vec();
    unproven.window.answered(message);
    Answer::Answered(Box::new(HalfOpen { begun, stage: Stage::Waiting(unproven) }), datagrams)
}

/// A responder's side of one exchange.
struct Made<'a> {
    payloads: Vec<Payload>,
    /// Of the additional key exchange, if there is one.
    shared: Option<(Group, Secret)>,
    /// The PPK that is selected, by its name.
    ppk: Option<(String, &'a Secret)>,
    /// PPKs were proposed, or were to be.
    settled: bool,
}

/// This side's half of an additional key exchange, and its choice of the PPKs that are proposed with the last.
fn exchange<'a>(
    trust: &'a Trust,
    begun: &Begun,
    unproven: &Unproven,
    payloads: &[Payload],
) -> Result<Made<'a>, Rejection> {
    let parts = Parts::of(payloads);
    let mut rest = begun.keys.suite.additional.methods().skip(unproven.done);
    let (group, is_last) = (rest.next(), rest.next().is_none());
    let mut payloads = Vec::new();
    let mut shared = None;
    if let Some(group) = group {
        let (own, secret) = exchange_keys(group, &parts)?;
        payloads.push(own);
        shared = Some((group, secret));
    }
    // A peer may send them behind the last key exchange.
    let settled = is_last && unproven.awaits_ppk() && (group.is_none() || ppk::proposes(&parts));
    let ppk = if settled { select(trust, begun, unproven, &parts)? } else { None };
    payloads.extend(ppk.iter().map(|(id, _)| ppk::selection(id)));
    Ok(Made { payloads, shared, ppk, settled })
}

/// This side's half of an additional key exchange, and the shared secret.
fn exchange_keys(group: Group, parts: &Parts<'_>) -> Result<(Payload, Secret), Rejection> {
    let Some((_, public)) = parts.key_exchange.filter(|(sent, _)| group_of(*sent) == Some(group))
    else {
        return Err(Rejection::invalid_syntax(format!(
            "IKE_INTERMEDIATE without a public value of {group}, which was agreed on"
        )));
    };
    let made = respond(group, public).map_err(|e| Rejection::invalid_syntax(e.to_string()))?;
    let data = made.public_value;
    Ok((Payload::KeyExchange { group: group_id(group), data }, made.shared))
}

/// Selects a PPK before the peer's identity is known: one of any tunnel that fits so far.
fn select<'a>(
    trust: &'a Trust,
    begun: &Begun,
    unproven: &Unproven,
    parts: &Parts<'_>,
) -> Result<Option<(String, &'a Secret)>, Rejection> {
    let nonces = unproven.nonces();
    let nonces = [nonces.initiator, nonces.responder];
    let candidates = &unproven.candidates;
    let selected = ppk::select(
        parts,
        trust,
        |id| {
            let mut ids = candidates.iter().flat_map(|t| &t.ppk).flat_map(|ppk| &ppk.ids);
            ids.any(|known| known == id)
        },
        |ppk| begun.keys.confirmation(ppk, &nonces, begun.spis()),
    );
    match (selected, candidates.iter().next()) {
        (Ok(selected), _) => Ok(Some(selected)),
        (Err((lack, asked)), Some(first)) if candidates.iter().all(|t| ppk::is_required(t)) => {
            Err(Rejection::unproven(ppk::failure(first, lack, asked)))
        }
        // IKE_AUTH tells whether the tunnel can do without.
        (Err(_), _) => Ok(None),
    }
}

/// The keys after an exchange; `None`: it has changed none.
fn renewed(
    begun: &Begun,
    unproven: &Unproven,
    shared: Option<&(Group, Secret)>,
    ppk: Option<(String, &Secret)>,
) -> Option<(Keys, ProofKeys)> {
    let (nonces, spis) = (unproven.nonces(), begun.spis());
    let inputs = KeyInputs { nonces, spis, originator: Originator::Peer };
    let exchanged =
        shared.map(|(method, shared)| begun.keys.after_additional((*method, shared), inputs));
    let Some((id, ppk)) = ppk else { return exchanged };
    // RFC 9867 §3.1.1: after everything else.
    let keys = exchanged.as_ref().map_or(&begun.keys, |(keys, _)| keys);
    Some(keys.after_ppk(&id, ppk, inputs))
}

fn public_value(key: &PrivateKey) -> Payload {
    Payload::KeyExchange { group: group_id(key.group()), data: key.public_value().to_vec() }
}

/// The answer to the last request, which has come again.
fn repeated(
    cx: &mut Context<'_>,
    begun: &mut Begun,
    unproven: &mut Unproven,
    header: &Header,
    datagram: Datagram<'_>,
) -> Option<Vec<Vec<u8>>> {
    // RFC 7383 §2.6.1: once for all fragments of the request.
    let Begun { path, keys, .. } = begun;
    // An exchange without a key of any kind has changed none.
    let keys = unproven.before.as_mut().unwrap_or(keys);
    let reason = match fragment::place(header, datagram.octets) {
        Ok(place) if place.is_some_and(|p| p.number > 1) => Discard::RepeatedFragment,
        _ if keys.proves(header, datagram.octets) => {
            let rng = &mut *cx.rng;
            return unproven
                .window
                .repeat_answer(|message| {
                    let (size, message) = message.smaller(keys, path, rng)?;
                    path.fragment_size = Some(size);
                    Some(message)
                })
                .map(<[Vec<u8>]>::to_vec);
        }
        _ => Discard::NotAuthentic,
    };
    cx.out.discard(reason);
    None
}
