//! The responder's side of IKE_AUTH: the proof of the initiator is checked, this side's made, and the first Child SA
//! granted.

use super::{WORK_FOR, established, ppk, preparing, proving, too_late};
use crate::admission::HALF_OPEN_FOR;
use crate::context::Context;
use crate::datagram::Datagram;
use crate::discard::Discard;
use crate::effect::Effects;
use crate::event::EventKind;
use crate::exchange::child_sa::{self, ChildRequest};
use crate::exchange::half_open::{
    Begun, Checking, HalfOpen, Init, Proven, Request, Stage, Unproven,
};
use crate::exchange::{address_update, ticket};
use crate::failure::facts::{Facts, Identities, KEPT, Parties};
use crate::failure::{Failure, FailureKind};
use crate::originator::Originator;
use crate::proof::{Claim, Proved, SignedOctets};
use crate::rejection::Rejection;
use crate::sa::IkeSa;
use crate::sa::keys::{Mixed, PpkUse, ProofKeys};
use crate::sa::message::Message;
use crate::sa::path::Path;
use crate::sa::window::Window;
use crate::session::Session;
use crate::wire::header::{Header, IkeSpi};
use crate::wire::parts::Parts;
use crate::wire::payload::{Identification, Payload};
use crate::wire::registry::{AuthMethod, ExchangeType, NotifyType};
use policy::IkeTunnel;
use proving::{Proving, Said};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The shortest time for which a refusal is repeated if the request comes again.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// The outcome of an IKE_AUTH request for a half-open IKE SA.
pub(crate) enum Answer {
    /// It stays, and nothing is answered now.
    Waits(Box<HalfOpen>),
    /// It stays and goes on after this answer.
    Answered(Box<HalfOpen>, Vec<Vec<u8>>),
    /// It stays, and only repeats this answer from now on.
    Refused(Box<HalfOpen>, Vec<Vec<u8>>),
    /// Both sides have proved who they are: a session takes the place of the half-open IKE SA.
    Established {
        /// The name by which a repeated IKE_SA_INIT was recognised.
        init: Init,
        session: Box<Session>,
        answer: Vec<Vec<u8>>,
        initial_contact: bool,
        /// The SPIs of the IKE SA that it resumes.
        resumes: Option<(IkeSpi, IkeSpi)>,
        effects: Effects,
    },
}

impl Answer {
    pub(crate) fn waits(begun: Begun, stage: Stage) -> Self {
        Self::Waits(Box::new(HalfOpen { begun, stage }))
    }
}

/// Answers an IKE_AUTH request on a half-open IKE SA that waits for one.
pub(crate) fn answer(
    cx: &mut Context<'_>,
    half: HalfOpen,
    header: &Header,
    datagram: Datagram<'_>,
) -> Answer {
    let HalfOpen { mut begun, stage } = half;
    if header.response
        || header.exchange != ExchangeType::IKE_AUTH
        || (header.initiator_spi, header.responder_spi) != begun.spis()
        || !header.from_initiator
    {
        cx.out.discard(Discard::WrongExchange);
        return Answer::waits(begun, stage);
    }
    let mut unproven = match stage {
        Stage::Waiting(unproven) => unproven,
        Stage::Checking(..) | Stage::Preparing(..) => {
            cx.out.discard(Discard::AnswerPending);
            return Answer::waits(begun, stage);
        }
        Stage::Refused { .. } => {
            cx.out.discard(Discard::AlreadyRefused);
            return Answer::waits(begun, stage);
        }
    };
    if !unproven.window.expects(header.message_id) || unproven.goes_on(&begun.keys) {
        cx.out.discard(Discard::WrongExchange);
        return Answer::waits(begun, Stage::Waiting(unproven));
    }
    let Some((body, request)) = begun.receive(cx, &mut unproven, header, datagram) else {
        return Answer::waits(begun, Stage::Waiting(unproven));
    };
    let payloads = body.map(|body| body.payloads);
    let judged = payloads.map_err(|error| Rejection::unreadable(&error)).and_then(|p| {
        let id = header.message_id;
        Ok((authenticate(cx, &begun, &unproven, (id, &p), datagram)?, p))
    });
    let (Authentic { tunnel, claim, mixed }, payloads) = match judged {
        Ok(judged) => judged,
        Err(rejection) => return refuse(cx, begun, &unproven, request, &rejection),
    };
    if let Some(mixed) = mixed {
        begun.keys.adopt(&mixed);
        unproven.proof_keys = mixed.proof_keys;
    }
    unproven.wishes.add(&payloads);
    match (prove(&begun, &unproven, &tunnel, header.message_id), claim) {
        (Ok(Proving::Ready(proof)), None) => {
            let proven = Proven { tunnel, payloads, request, proof, checked: None };
            preparing::establish(cx, begun, unproven, proven)
        }
        (Ok(Proving::Signing(signing)), Some(claim)) => {
            proving::hand_out(cx, begun.local_spi, Some(claim), Some(signing));
            // A half-open IKE SA that expired during this work would waste it.
            begun.expires_at = begun.expires_at.max(cx.now + WORK_FOR);
            let checking = Box::new(Checking { tunnel, payloads, request });
            Answer::waits(begun, Stage::Checking(unproven, checking))
        }
        _ => {
            cx.out.bug("proof and claim follow from the same credential");
            Answer::waits(begun, Stage::Waiting(unproven))
        }
    }
}

/// Hands the job out on which a half-open IKE SA waits: the process that had it is gone.
pub(crate) fn work_again(cx: &mut Context<'_>, half: &HalfOpen) {
    let HalfOpen { begun, stage: Stage::Checking(unproven, checking) } = half else { return };
    let Checking { tunnel, payloads, request } = &**checking;
    let auth_id = request.reply.message_id;
    let parts = Parts::of(payloads);
    // Where both sides have named PPKs, but share none, the proof without one was taken.
    let waived = unproven.ppk == PpkUse::InProofs && begun.keys.ppk.is_none();
    let without = parts.notify(NotifyType::NO_PPK_AUTH).filter(|_| waived);
    let said = payloads.iter().find_map(|payload| match payload {
        Payload::Auth { method, data } => Some((*method, without.map_or(data, |n| &n.data))),
        _ => None,
    });
    let id = payloads.iter().find_map(|payload| match payload {
        Payload::IdInitiator(id) => Some((id, id.identity()?)),
        _ => None,
    });
    let (Some((method, data)), Some((id, identity))) = (said, id) else { return };
    let intermediate = unproven.int_auth.octets(auth_id);
    let octets = initiator_signs(begun, unproven, id, &unproven.proof_keys, &intermediate);
    let said = Said { identity, method, data, payloads };
    let claim = proving::check(cx, tunnel, begun.keys.suite.prf, octets, said);
    // Otherwise the tunnel no longer is what it was when the job began. The request is refused in time.
    if let (Ok(Some(claim)), Ok(Proving::Signing(signing))) =
        (claim, prove(begun, unproven, tunnel, auth_id))
    {
        proving::hand_out(cx, begun.local_spi, Some(claim), Some(signing));
    }
}

/// Goes on with an IKE_AUTH request once its proof is checked and ours made. The addresses are those of its answer;
/// `Err`: the half-open IKE SA does not wait for that.
pub(crate) fn resume_answer(
    cx: &mut Context<'_>,
    half: HalfOpen,
    outcome: Result<Proved, Failure>,
) -> Result<((SocketAddr, SocketAddr), Answer), Box<HalfOpen>> {
    let HalfOpen { begun, stage } = half;
    let (unproven, checking) = match stage {
        Stage::Checking(unproven, checking) => (unproven, checking),
        stage => return Err(Box::new(HalfOpen { begun, stage })),
    };
    let Checking { tunnel, payloads, request } = *checking;
    let ends = request.ends;
    let tunnel = match still_there(&unproven, &tunnel) {
        Ok(tunnel) => tunnel,
        Err(rejection) => return Ok((ends, refuse(cx, begun, &unproven, request, &rejection))),
    };
    let answer = match outcome {
        Ok(Proved { proof: Some(proof), warning, checked }) => {
            if let Some(warning) = warning {
                cx.out.event(&tunnel.name, None, EventKind::Warning(warning));
            }
            let proven = Proven { tunnel, payloads, request, proof, checked };
            preparing::establish(cx, begun, unproven, proven)
        }
        Ok(Proved { proof: None, .. }) => {
            cx.out.bug("a job that was to make a proof made none");
            Answer::Waits(Box::new(HalfOpen { begun, stage: Stage::Waiting(unproven) }))
        }
        // The peer has proved who it is; the tunnel is known.
        Err(failure) if matches!(*failure.facts, Facts::Unprovable(_)) => {
            cx.out.fail(cx.now, &tunnel.name, None, failure.clone());
            cx.out.name_peer(&tunnel.name, ends.1);
            refuse_silently(cx, begun, request, &Rejection::unproven(failure))
        }
        Err(failure) => refuse(cx, begun, &unproven, request, &Rejection::unproven(failure)),
    };
    Ok((ends, answer))
}

/// The tunnel as the policy has it now. It may have changed meanwhile: a proof counts only for the tunnel it was given
/// for.
pub(super) fn still_there(
    unproven: &Unproven,
    tunnel: &IkeTunnel,
) -> Result<Arc<IkeTunnel>, Rejection> {
    let present = unproven.candidates.of_peer(&tunnel.remote.identity);
    present
        .into_iter()
        .find(|c| c.name == tunnel.name && tunnel.difference(c).0 < policy::Effect::Reestablished)
        .cloned()
        .ok_or_else(|| {
            let detail = format!("{} is no longer in the policy as it was", tunnel.name);
            Rejection::authentication_failed(FailureKind::NoMatchingTunnel, detail)
        })
}

/// Refuses a request whose job nobody does. `Err`: there is none.
pub(crate) fn give_up(
    cx: &mut Context<'_>,
    half: HalfOpen,
) -> Result<((SocketAddr, SocketAddr), Answer), Box<HalfOpen>> {
    resume_answer(cx, half, Err(too_late()))
}

fn prove(
    begun: &Begun,
    unproven: &Unproven,
    tunnel: &IkeTunnel,
    auth_id: u32,
) -> Result<Proving, Failure> {
    let octets = SignedOctets {
        message: &begun.response,
        nonce: &unproven.initiator_nonce,
        sk_p: &unproven.proof_keys.responder,
        id: &Identification::of(&tunnel.local.identity),
        by: begun.keys.prf_provider(),
        intermediate: &unproven.int_auth.octets(auth_id),
    };
    let prf = begun.keys.suite.prf;
    match unproven.resumed {
        Some(_) => Ok(Proving::Ready(proving::prove_resumed(prf, octets))),
        None => proving::prove(tunnel, prf, octets, &unproven.wishes),
    }
}

pub(crate) fn refuse(
    cx: &mut Context<'_>,
    begun: Begun,
    unproven: &Unproven,
    request: Request,
    rejection: &Rejection,
) -> Answer {
    let (local, remote) = request.ends;
    let datagram = Datagram { local, remote, octets: &request.octets };
    cx.out.turn_away(cx.now, datagram, &unproven.candidates, rejection);
    refuse_silently(cx, begun, request, rejection)
}

/// Refuses a request of which the operator knows.
fn refuse_silently(
    cx: &mut Context<'_>,
    mut begun: Begun,
    request: Request,
    rejection: &Rejection,
) -> Answer {
    begun.expires_at = (begun.begun_at + HALF_OPEN_FOR).max(cx.now + REFUSED_FOR);
    let payloads = [rejection.payload()];
    let answer = Message::seal(request.reply, &payloads, &mut begun.keys, &begun.path, cx.rng);
    let answer = answer.datagrams().to_vec();
    let stage = Stage::Refused { request: request.octets, answer: answer.clone() };
    Answer::Refused(Box::new(HalfOpen { begun, stage }), answer)
}

/// A request of IKE_AUTH whose proof is good, as far as it is checked.
struct Authentic {
    tunnel: Arc<IkeTunnel>,
    /// The part of the proof that a job is still to check.
    claim: Option<Claim>,
    /// The keys with the PPK that both sides have.
    mixed: Option<Mixed>,
}

/// Finds the tunnel that the peer's identity names and checks its proof.
fn authenticate(
    cx: &mut Context<'_>,
    begun: &Begun,
    unproven: &Unproven,
    (auth_id, payloads): (u32, &[Payload]),
    datagram: Datagram<'_>,
) -> Result<Authentic, Rejection> {
    let mut id = None;
    let mut wanted = None;
    let mut auth = None;
    for payload in payloads {
        match payload {
            Payload::IdInitiator(i) => id = Some(i),
            Payload::IdResponder(i) => wanted = Some(i),
            Payload::Auth { method, data } => auth = Some((*method, data)),
            _ => {}
        }
    }
    let Some(id) = id else {
        return Err(Rejection::invalid_syntax("IKE_AUTH without identity".into()));
    };
    let Some((method, proof)) = auth else {
        // RFC 7296 §2.16
        let detail = format!(
            "{} sends no proof and so asks for EAP, which is not supported; set it to the policy's method",
            datagram.remote.ip()
        );
        return Err(Rejection::authentication_failed(FailureKind::AuthenticationFailed, detail));
    };
    let Some(identity) = id.identity() else {
        let detail =
            format!("{} names itself by an identity of type {}", datagram.remote.ip(), id.kind);
        return Err(Rejection::authentication_failed(FailureKind::NoMatchingTunnel, detail));
    };
    let local = wanted.map(|w| w.identity());
    let Some(tunnel) = unproven.candidates.of_peer(&identity).into_iter().find(|t| {
        local.as_ref().is_none_or(|w| w.as_ref().is_some_and(|w| w.matches(&t.local.identity)))
    }) else {
        return Err(Rejection::unknown_identity(Identities {
            peer: identity,
            address: Some(datagram.remote.ip()),
            own_address: Some(datagram.local.ip()),
            asked: local.flatten(),
            known: unproven.candidates.iter().take(KEPT).map(|t| Parties::of(t)).collect(),
        }));
    };
    let derived = (&begun.keys, &unproven.proof_keys);
    let parts = Parts::of(payloads);
    let (mixed, proof) = match ppk::judge(tunnel, cx.trust, unproven.ppk, derived, &parts)? {
        ppk::Use::None => (None, proof.as_slice()),
        ppk::Use::Mixed(mixed) => (Some(mixed), proof.as_slice()),
        ppk::Use::Waived(without) => (None, without),
    };
    let intermediate = unproven.int_auth.octets(auth_id);
    let proof_keys = mixed.as_ref().map_or(&unproven.proof_keys, |mixed| &mixed.proof_keys);
    let octets = initiator_signs(begun, unproven, id, proof_keys, &intermediate);
    if let Some(resumed) = &unproven.resumed {
        if !resumed.admits(cx, tunnel, id) {
            let detail = format!("the ticket of {identity} counts no more");
            return Err(Rejection::authentication_failed(
                FailureKind::AuthenticationFailed,
                detail,
            ));
        }
        let checked = proving::check_resumed(tunnel, begun.keys.suite.prf, octets, (method, proof));
        let claim = checked.map_err(Rejection::unproven)?;
        // Not later: another half-open IKE SA may have come of the same ticket.
        resumed.spend(cx, tunnel);
        return Ok(Authentic { tunnel: Arc::clone(tunnel), claim, mixed });
    }
    let said = Said { identity, method, data: proof, payloads };
    let id = mixed.as_ref().map(|mixed| mixed.base.ppk.id.as_str());
    let claim = proving::check(cx, tunnel, begun.keys.suite.prf, octets, said)
        .map_err(|failure| Rejection::unproven(ppk::name_it(failure, id)))?;
    Ok(Authentic { tunnel: Arc::clone(tunnel), claim, mixed })
}

/// The octets that an initiator proves itself with.
fn initiator_signs<'a>(
    begun: &'a Begun,
    unproven: &'a Unproven,
    id: &'a Identification,
    proof_keys: &'a ProofKeys,
    intermediate: &'a [u8],
) -> SignedOctets<'a> {
    SignedOctets {
        message: &begun.request,
        nonce: &unproven.responder_nonce,
        sk_p: &proof_keys.initiator,
        id,
        by: begun.keys.prf_provider(),
        intermediate,
    }
}

/// The path of the peer's messages from its IKE_AUTH request on.
pub(super) fn path_of(cx: &Context<'_>, begun: &Begun, request: &Request) -> Path {
    let (local, remote) = request.ends;
    let mut path = begun.path;
    // RFC 7296 §2.23: the peer may have moved to the port of NAT traversal meanwhile, but to another address only
    // behind a NAT: a copy sent from elsewhere must not draw the tunnel there.
    if path.nat_remote || path.remote.ip() == remote.ip() {
        (path.local, path.remote) = (local, remote);
    } else if local.port() == cx.config.natt_port {
        path.float(cx.config.natt_port);
    }
    path
}

/// Makes the session, and the answer.
pub(super) fn establish(
    cx: &mut Context<'_>,
    begun: Begun,
    mut unproven: Unproven,
    proven: Proven,
) -> Answer {
    let Proven { tunnel, payloads, request, proof, checked } = proven;
    let (init, path) = (begun.init(), path_of(cx, &begun, &request));
    let Begun { local_spi, remote_spi, keys, begun_at, .. } = begun;
    let parts = Parts::of(&payloads);
    let (suite, has_ppk) = (keys.suite, keys.ppk.is_some());
    let in_proofs = has_ppk && unproven.ppk == PpkUse::InProofs;
    let sa = IkeSa {
        local_spi,
        remote_spi,
        originator: Originator::Peer,
        window: Window::default(),
        state: established(cx, tunnel.lifetime.of(false), keys),
    };
    let mut session = Session::of_responder(Arc::clone(&tunnel), path, local_spi, begun_at, cx.now);
    cx.out.event(&tunnel.name, None, EventKind::Negotiating { initiator: false });
    cx.out.products.note(&tunnel.name, unproven.product.clone());
    if let Some(warning) = ppk::warning(&tunnel, has_ppk) {
        cx.out.event(&tunnel.name, None, EventKind::Warning(warning));
    }
    let initial_contact = parts.notify(NotifyType::INITIAL_CONTACT).is_some();
    if cx.contacts.knows(&tunnel) && !initial_contact {
        session.wait_for_predecessor(cx.now);
    }
    let resumes = unproven.resumed.as_ref().map(|resumed| resumed.spis);
    let proofs = match unproven.resumed.take() {
        Some(resumed) => Some(resumed.authentication),
        None => id_and_method(&payloads)
            .and_then(|(id, method)| ticket::authentication(cx, &tunnel, id, method, checked)),
    };
    let nonces = unproven.nonces();
    let mut effects = session.establish(cx, suite, nonces, proofs);
    let mut ike = session.take_in(sa);
    let (certificates, proof) = proving::payloads(&proof);
    let mut answer = vec![Payload::IdResponder(Identification::of(&tunnel.local.identity))];
    answer.extend(certificates);
    answer.push(proof);
    answer.extend(in_proofs.then(ppk::answer));
    answer.extend(ike.session.limit_authentication(cx));
    answer.extend(ticket::grant(&mut ike, cx, &parts));
    if path.traverses && ike.session.may_be_mobile(cx) {
        address_update::agree(ike.session, &parts);
    }
    if ike.session.mobility().supported {
        answer.extend(address_update::introduction(ike.session, cx));
    }
    let child = ChildRequest { rekeys: None, in_auth: true, nonces };
    // RFC 6023 §3: the peer asks for Child SAs later, if at all.
    let childless =
        parts.sa.is_none() && parts.ts_initiator.is_none() && parts.ts_responder.is_none();
    if !childless {
        match child_sa::grant(&mut ike, cx, &parts, &child) {
            Ok(granted) => {
                answer.extend(granted.payloads);
                effects += granted.effects;
            }
            // RFC 7296 §1.2: the IKE SA stands without its first Child SA.
            Err(rejection) => answer.push(rejection.payload()),
        }
    }
    let message = Message::seal(request.reply, &answer, &mut ike.state.keys, &path, cx.rng);
    let datagrams = message.datagrams().to_vec();
    ike.window = Window::after_auth_answered(request.reply.message_id, message);
    Answer::Established {
        init,
        session: Box::new(session),
        answer: datagrams,
        initial_contact,
        resumes,
        effects,
    }
}

/// How the initiator names itself, and the method of its proof.
fn id_and_method(payloads: &[Payload]) -> Option<(&Identification, AuthMethod)> {
    let id = payloads.iter().find_map(|p| match p {
        Payload::IdInitiator(id) => Some(id),
        _ => None,
    });
    let method = payloads.iter().find_map(|p| match p {
        Payload::Auth { method, .. } => Some(*method),
        _ => None,
    });
    id.zip(method)
}
