//! IKE_AUTH (RFC 7296 §1.2, §2.15): both prove who they are, and the first Child SA.

use super::create_child::{self, ChildRequest};
use super::sa_init::HalfOpen;
use super::{Parts, status};
use crate::collision;
use crate::discard::Discard;
use crate::engine::{Cx, Datagram};
use crate::event::EventKind;
use crate::failure::facts::{Facts, Identities, KEPT, Parties, Proof};
use crate::failure::{Failure, FailureKind};
use crate::negotiation::proposal::{accept_esp, describe, offer_esp};
use crate::negotiation::selectors;
use crate::proof::psk::{self, SignedOctets};
use crate::rejection::{Asked, Rejection, failure_of};
use crate::sa::child::{Blueprint, History};
use crate::sa::keys::{Keys, Nonces};
use crate::sa::message::Message;
use crate::sa::path::NAT_T_PORT;
use crate::sa::reassembly::Received;
use crate::sa::window::Window;
use crate::sa::{Established, IkeSa, Phase, State};
use crate::session::Session;
use crate::task::Task;
use crate::wire::header::Header;
use crate::wire::payload::{Identification, Payload};
use crate::wire::registry::{AuthMethod, ExchangeType, NotifyType};
use esp::plane::{Spi, TrafficSelectors};
use policy::{ChildTunnel, Credential, IkeTunnel, Mode};
use std::sync::Arc;

/// What IKE_SA_INIT left for the proofs.
pub(crate) struct Handshake {
    pub initiator_nonce: Vec<u8>,
    pub responder_nonce: Vec<u8>,
    pub request: Vec<u8>,
    pub response: Vec<u8>,
}

impl Handshake {
    fn nonces(&self) -> Nonces<'_> {
        Nonces { initiator: &self.initiator_nonce, responder: &self.responder_nonce }
    }
}

/// An initiator that has sent its proof.
pub(crate) struct AuthSent {
    pub keys: Keys,
    pub child: Arc<ChildTunnel>,
    pub spi_in: Spi,
    /// The child has meanwhile been taken down.
    pub unwanted: bool,
    handshake: Handshake,
}

fn asked(child: &ChildTunnel) -> TrafficSelectors {
    TrafficSelectors { local: child.local.clone(), remote: child.remote.clone() }
}

/// Sends our proof and asks for the first Child SA.
pub(crate) fn ask(
    session: &mut Session,
    cx: &mut Cx<'_>,
    index: usize,
    keys: Keys,
    child: Arc<ChildTunnel>,
    handshake: Handshake,
) {
    let tunnel = Arc::clone(&session.tunnel);
    let Credential::PresharedKey(key) = &tunnel.credential else {
        let detail = "this kind of credential is not supported".into();
        return session.end(
            cx,
            "no proof",
            Some(Failure::new(FailureKind::AuthenticationFailed, detail)),
        );
    };
    let id = Identification::of(&tunnel.local.identity);
    let octets = SignedOctets {
        message: &handshake.request,
        nonce: &handshake.responder_nonce,
        sk_p: &keys.initiator_proof,
        id: &id,
    };
    let proof = psk::sign(keys.suite.prf, key, octets);
    let spi_in = cx.spis.allocate(cx.rng);
    let mut payloads = vec![Payload::IdInitiator(id.clone())];
    if !cx.out.knows(&tunnel) {
        payloads.push(status(NotifyType::INITIAL_CONTACT, vec![]));
    }
    payloads.push(Payload::IdResponder(Identification::of(&tunnel.remote.identity)));
    payloads
        .push(Payload::Auth { method: AuthMethod::SHARED_KEY_MIC, data: proof.expose().to_vec() });
    if child.mode == Mode::Transport {
        payloads.push(status(NotifyType::USE_TRANSPORT_MODE, vec![]));
    }
    payloads.push(Payload::Sa(offer_esp(&child.proposals, &[], spi_in)));
    payloads.push(Payload::TsInitiator(selectors::encode(&child.local)));
    payloads.push(Payload::TsResponder(selectors::encode(&child.remote)));
    cx.out.event(&tunnel.name, Some(&child.name), EventKind::Negotiating { initiator: true });
    session.sas[index].state =
        State::AuthSent(Box::new(AuthSent { keys, child, spi_in, unwanted: false, handshake }));
    session.send_request(cx, index, ExchangeType::IKE_AUTH, &payloads, None);
}

/// Takes the responder's proof.
pub(crate) fn conclude(
    session: &mut Session,
    cx: &mut Cx<'_>,
    index: usize,
    payloads: Vec<Payload>,
) {
    let State::AuthSent(auth) = std::mem::replace(&mut session.sas[index].state, State::Moving)
    else {
        return;
    };
    let AuthSent { keys, child, spi_in, unwanted, handshake } = *auth;
    let parts = Parts::of(&payloads);
    let tunnel = Arc::clone(&session.tunnel);
    let verdict = verify(&tunnel, &keys, &handshake, &payloads, &parts);
    let suite = keys.suite;
    session.sas[index].state = State::Established(Box::new(established(cx, &tunnel, keys)));
    if let Err(failure) = verdict {
        cx.spis.release(spi_in);
        session.failed.push(child.name.clone());
        cx.out.fail(cx.now, &tunnel.name, Some(&child.name), failure.clone());
        let told = parts
            .error()
            .is_some_and(|e| parts.sa.is_none() && e.kind == NotifyType::AUTHENTICATION_FAILED);
        if !told {
            // RFC 7296 §2.21.2: the responder believes the IKE SA is up; it is told otherwise.
            super::delete::ask_refused(session, cx, index);
        }
        return session.end(cx, "the responder's proof was not accepted", Some(failure));
    }
    if session.is_closing() {
        cx.spis.release(spi_in);
        return;
    }
    let nonces = handshake.nonces();
    session.establish(cx, suite.to_string(), nonces);
    if unwanted {
        cx.spis.release(spi_in);
        if parts.sa.is_some() {
            session.tasks.push_front(Task::DeleteChild(spi_in));
        }
    } else if let Err(failure) = conclude_child(session, cx, index, &child, spi_in, nonces, &parts)
    {
        cx.spis.release(spi_in);
        cx.out.unserved.push(child.name.clone());
        cx.out.fail(cx.now, &tunnel.name, Some(&child.name), failure);
        if parts.sa.is_some() {
            // The responder has the Child SA that we do not want.
            session.tasks.push_front(Task::DeleteChild(spi_in));
        }
        // An IKE SA that carries nothing is of no use to anyone.
        session.close_when_idle(cx);
    }
    session.pump(cx);
}

fn established(cx: &mut Cx<'_>, tunnel: &IkeTunnel, keys: Keys) -> Established {
    Established {
        keys,
        active: None,
        phase: Phase::Serving,
        unproven: false,
        rekey_at: cx.jittered(tunnel.lifetime.soft(), tunnel.lifetime.hard),
        expire_at: cx.now + tunnel.lifetime.hard,
    }
}

fn verify(
    tunnel: &IkeTunnel,
    keys: &Keys,
    handshake: &Handshake,
    payloads: &[Payload],
    parts: &Parts<'_>,
) -> Result<(), Failure> {
    let id = payloads.iter().find_map(|p| match p {
        Payload::IdResponder(id) => Some(id),
        _ => None,
    });
    let auth = payloads.iter().find_map(|p| match p {
        Payload::Auth { method, data } => Some((*method, data)),
        _ => None,
    });
    let (Some(id), Some((method, proof))) = (id, auth) else {
        return Err(match parts.error() {
            Some(error) => failure_of(
                error,
                Asked { proof: Some(unproven(tunnel, false)), ..Asked::ike(&tunnel.proposals) },
            ),
            None => Failure::new(FailureKind::ProtocolError, "the answer has no proof".into()),
        });
    };
    let failed = |detail| Err(Failure::new(FailureKind::AuthenticationFailed, detail));
    if !id.identity().is_some_and(|i| i.matches(&tunnel.remote.identity)) {
        let got = id
            .identity()
            .map_or_else(|| format!("an identity of type {}", id.kind), |i| i.to_string());
        let known = vec![Parties::of(tunnel)];
        let identities = Identities { peer: got, asked: None, known };
        let kind = FailureKind::AuthenticationFailed;
        return Err(Failure::with(kind, Facts::Identities(identities)));
    }
    let Credential::PresharedKey(key) = &tunnel.credential else {
        return failed("this kind of credential is not supported".into());
    };
    let octets = SignedOctets {
        message: &handshake.response,
        nonce: &handshake.initiator_nonce,
        sk_p: &keys.responder_proof,
        id,
    };
    if method != AuthMethod::SHARED_KEY_MIC {
        return failed(format!(
            "the peer proves itself by {method}, the policy expects a preshared key"
        ));
    }
    if !psk::verify(keys.suite.prf, key, octets, proof) {
        return Err(unproven(tunnel, true).into());
    }
    Ok(())
}

/// A proof that was not accepted, by us or by the peer.
fn unproven(tunnel: &IkeTunnel, by_us: bool) -> Proof {
    let (local, remote) = (tunnel.local.identity.to_string(), tunnel.remote.identity.to_string());
    Proof { by_us, local, remote }
}

fn conclude_child(
    session: &mut Session,
    cx: &mut Cx<'_>,
    index: usize,
    child: &Arc<ChildTunnel>,
    spi_in: Spi,
    nonces: Nonces<'_>,
    parts: &Parts<'_>,
) -> Result<(), Failure> {
    let asked = asked(child);
    let agreed = create_child::read_answer(child, &asked, &[], parts)?;
    let (choice, spi_out) =
        accept_esp(&child.proposals, &[], agreed.proposals).ok_or_else(|| {
            Failure::new(
                FailureKind::ProtocolError,
                format!("the peer chose {}, which was not offered", describe(agreed.proposals)),
            )
        })?;
    let suite =
        choice.suite().expect("an accepted proposal has cipher and integrity that go together");
    let Some(established) = session.sas[index].established() else { return Ok(()) };
    let blueprint = Blueprint {
        tunnel: child,
        choice,
        mode: child.mode,
        selectors: agreed.selectors,
        spi_in,
        spi_out,
        keys: established.keys.child(suite, None, nonces),
        initiator: true,
        standby: false,
        path: &session.path,
        history: History::new(cx.now),
        lowest_nonce: collision::lowest(nonces.initiator, nonces.responder).to_vec(),
    };
    let sa =
        blueprint.install(cx).map_err(|e| Failure::new(FailureKind::DataPlane, e.to_string()))?;
    session.add_child(cx, sa, false);
    Ok(())
}

/// What a responder makes of an IKE_AUTH request.
pub(crate) enum Answer {
    /// Not to be answered; nothing changes.
    Nothing,
    /// Refused: the half-open IKE SA only repeats this answer from now on.
    /// `request` is fragment 1 of what it answers, or all of it.
    Refused { request: Vec<u8>, answer: Vec<Vec<u8>> },
    /// Both have proved who they are.
    Established { session: Box<Session>, answer: Vec<Vec<u8>>, initial_contact: bool },
}

/// Answers an IKE_AUTH request on a half-open IKE SA.
pub(crate) fn answer(
    cx: &mut Cx<'_>,
    half: &mut HalfOpen,
    header: &Header,
    datagram: Datagram<'_>,
) -> Answer {
    let spis = half.sa.spis();
    if header.response
        || header.exchange != ExchangeType::IKE_AUTH
        || header.message_id != 1
        || (header.initiator_spi, header.responder_spi) != spis
        || !header.from_initiator
    {
        cx.out.discard(Discard::WrongExchange);
        return Answer::Nothing;
    }
    let Some(keys) = &half.keys else { return Answer::Nothing };
    let requests = &mut half.sa.window.requests;
    let received = requests.receive(cx.now, &half.path, keys, header, datagram.octets);
    let (payloads, fragments) = match received {
        Ok(Received::Message { payloads, fragments }) => (payloads, fragments),
        Ok(Received::Fragment) => return Answer::Nothing,
        Err(reason) => {
            cx.out.discard(reason);
            return Answer::Nothing;
        }
    };
    if let Some(fragments) = &fragments {
        half.path.follow_fragments(fragments.largest);
    }
    let payloads = payloads.map_err(|error| Rejection::unreadable(&error));
    let judged = payloads.and_then(|p| Ok((authenticate(half, &p, datagram)?, p)));
    let reply = half.sa.header(ExchangeType::IKE_AUTH, 1, true);
    let (tunnel, payloads) = match judged {
        Ok(judged) => judged,
        Err(rejection) => {
            cx.out.turn_away(cx.now, datagram, &half.candidates, &rejection);
            let keys = half.keys.as_mut().expect("checked above");
            let answer = Message::seal(reply, &[rejection.payload()], keys, &half.path, cx.rng);
            let request = fragments.map_or_else(|| datagram.octets.to_vec(), |f| f.first);
            return Answer::Refused { request, answer: answer.datagrams().to_vec() };
        }
    };
    let keys = half.keys.take().expect("checked above");
    establish(cx, half, datagram, tunnel, keys, &reply, &payloads)
}

/// Finds the tunnel that the peer's identity names and checks its proof.
fn authenticate(
    half: &HalfOpen,
    payloads: &[Payload],
    datagram: Datagram<'_>,
) -> Result<Arc<IkeTunnel>, Rejection> {
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
    let refused = |kind, detail| Err(Rejection::authentication_failed(kind, detail));
    let Some(id) = id else {
        return Err(Rejection::invalid_syntax("IKE_AUTH without identity".into()));
    };
    let Some((method, proof)) = auth else {
        // RFC 7296 §2.16
        let detail = format!(
            "{} sends no proof and so asks for EAP, which is not supported; set it to the policy's method",
            datagram.remote.ip()
        );
        return refused(FailureKind::AuthenticationFailed, detail);
    };
    let Some(identity) = id.identity() else {
        let detail =
            format!("{} names itself by an identity of type {}", datagram.remote.ip(), id.kind);
        return refused(FailureKind::NoMatchingTunnel, detail);
    };
    let local = wanted.map(|w| w.identity());
    let fits = |t: &&Arc<IkeTunnel>| {
        t.remote.identity.matches(&identity)
            && local
                .as_ref()
                .is_none_or(|w| w.as_ref().is_some_and(|w| w.matches(&t.local.identity)))
    };
    let Some(tunnel) = half.candidates.iter().find(fits) else {
        return Err(Rejection::unknown_identity(Identities {
            peer: identity.to_string(),
            asked: local.flatten().map(|l| l.to_string()),
            known: half.candidates.iter().take(KEPT).map(|t| Parties::of(t)).collect(),
        }));
    };
    let Credential::PresharedKey(key) = &tunnel.credential else {
        return refused(
            FailureKind::AuthenticationFailed,
            "this kind of credential is not supported".into(),
        );
    };
    if method != AuthMethod::SHARED_KEY_MIC {
        let detail =
            format!("{identity} proves itself by {method}, the policy expects a preshared key");
        return refused(FailureKind::AuthenticationFailed, detail);
    }
    let keys = half.keys.as_ref().expect("a half-open IKE SA has keys until it is established");
    let octets = SignedOctets {
        message: &half.request,
        nonce: &half.responder_nonce,
        sk_p: &keys.initiator_proof,
        id,
    };
    if !psk::verify(keys.suite.prf, key, octets, proof) {
        return Err(Rejection::wrong_proof(Proof {
            remote: identity.to_string(),
            ..unproven(tunnel, true)
        }));
    }
    Ok(Arc::clone(tunnel))
}

fn establish(
    cx: &mut Cx<'_>,
    half: &HalfOpen,
    datagram: Datagram<'_>,
    tunnel: Arc<IkeTunnel>,
    keys: Keys,
    reply: &Header,
    payloads: &[Payload],
) -> Answer {
    let parts = Parts::of(payloads);
    let Credential::PresharedKey(key) = &tunnel.credential else { return Answer::Nothing };
    let id = Identification::of(&tunnel.local.identity);
    let octets = SignedOctets {
        message: &half.response,
        nonce: &half.initiator_nonce,
        sk_p: &keys.responder_proof,
        id: &id,
    };
    let proof = psk::sign(keys.suite.prf, key, octets);
    let suite = keys.suite;
    let mut path = half.path;
    // RFC 7296 §2.23: the peer may have moved to port 4500 meanwhile, but to another address only behind a NAT: a copy
    // sent from elsewhere must not draw the tunnel there.
    if path.nat_remote || path.remote.ip() == datagram.remote.ip() {
        (path.local, path.remote) = (datagram.local, datagram.remote);
    } else if datagram.local.port() == NAT_T_PORT {
        path.float();
    }
    let sa = IkeSa {
        local_spi: half.sa.local_spi,
        remote_spi: half.sa.remote_spi,
        initiator: false,
        window: Window::default(),
        state: State::Established(Box::new(established(cx, &tunnel, keys))),
    };
    let mut session = Session::new(Arc::clone(&tunnel), path, sa, false, half.begun_at, cx.now);
    cx.out.event(&tunnel.name, None, EventKind::Negotiating { initiator: false });
    let nonces = Nonces { initiator: &half.initiator_nonce, responder: &half.responder_nonce };
    session.establish(cx, suite.to_string(), nonces);
    let mut answer = vec![
        Payload::IdResponder(id.clone()),
        Payload::Auth { method: AuthMethod::SHARED_KEY_MIC, data: proof.expose().to_vec() },
    ];
    let request = ChildRequest { rekeys: None, in_auth: true, nonces };
    match create_child::grant(&mut session, cx, 0, &parts, &request) {
        Ok(payloads) => answer.extend(payloads),
        // RFC 7296 §1.2: the IKE SA stands without its first Child SA.
        Err(rejection) => answer.push(rejection.payload()),
    }
    let message = match session.sas[0].state.keys_mut() {
        Some(keys) => Message::seal(*reply, &answer, keys, &path, cx.rng),
        None => return Answer::Nothing,
    };
    let datagrams = message.datagrams().to_vec();
    session.sas[0].window = Window::after_auth_answered(message);
    let initial_contact = parts.notify(NotifyType::INITIAL_CONTACT).is_some();
    Answer::Established { session: Box::new(session), answer: datagrams, initial_contact }
}
