//! IKE_AUTH (RFC 7296 §1.2, §2.15): both prove who they are, and the first Child SA. The initiator's side is here, the
//! responder's in `auth/responder.rs`.

mod ppk;
pub(crate) mod preparing;
pub(crate) mod proving;
pub(crate) mod responder;

use super::{address_update, child_sa, ticket};
use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::deadlines::after;
use crate::effect::{Effect, Effects};
use crate::event::EventKind;
use crate::failure::facts::{Facts, Identities, Parties, Proof};
use crate::failure::{Failure, FailureKind};
use crate::negotiation::description::describe;
use crate::negotiation::proposal::{Offered, accept_child, offer_child};
use crate::originator::Originator;
use crate::past_failures::Success;
use crate::proof::wishes::Wanted;
use crate::proof::{Checked, Claim, Evidence, Proved, SignedOctets};
use crate::rejection::{Asked, failure_of};
use crate::sa::attempt::{self, Attempt, AuthSent, Handshake, Opening};
use crate::sa::child::{Blueprint, History};
use crate::sa::keys::{Keys, Nonces, ProofKeys};
use crate::sa::lowest_nonce::LowestNonce;
use crate::sa::{Established, IkeSa, Phase};
use crate::session::{Carrier, Session};
use crate::task::Task;
use crate::wire::parts::{Parts, status};
use crate::wire::payload::{Identification, Payload};
use crate::wire::registry::{ExchangeType, NotifyType};
use esp::plane::{Spi, TrafficSelectors};
use policy::{ChildTunnel, IkeTunnel, Lifetime, Mode};
use proving::{Proving, Said};
use std::sync::Arc;
use std::time::Duration;

/// The time that work with certificates may take, including the download of revocation lists.
const WORK_FOR: Duration = Duration::from_secs(60);

fn asked(child: &ChildTunnel) -> TrafficSelectors {
    TrafficSelectors { local: child.local.clone(), remote: child.remote.clone() }
}

/// Begins to make our proof.
pub(crate) fn ask(session: &mut Session, cx: &mut Context<'_>, opening: Opening) -> Effects {
    let Opening { sa, keys, child, childless, handshake } = opening;
    let tunnel = Arc::clone(session.tunnel());
    if session.path().carries(&child.proposals).is_empty() {
        let failure = child_sa::ah_and_nat(session, &child);
        return session.give_up(cx, sa, &child, CloseReason::AhBehindNat, failure);
    }
    let auth_id = sa.window.next_id();
    let begun = ppk::choose(&tunnel, cx.trust, &keys, &handshake).and_then(|mixed| {
        let proof_keys = mixed.as_ref().map_or(&handshake.proof_keys, |m| &m.proof_keys);
        Ok((prove_to_responder(&tunnel, &keys, &handshake, auth_id, proof_keys)?, mixed))
    });
    let (proving, mixed) = match begun {
        Ok(begun) => begun,
        Err(failure) => return session.give_up(cx, sa, &child, CloseReason::NoProof, failure),
    };
    cx.out.event(&tunnel.name, Some(&child.name), EventKind::Negotiating { initiator: true });
    // RFC 6023 §3: only if the responder has said that it supports this.
    let childless = childless && handshake.childless;
    let spi_in = (!childless).then(|| cx.offer_spi(session.path().remote.ip()));
    let stage = attempt::Stage::Proving { until: cx.now + WORK_FOR, mixed: None };
    let auth = AuthSent { keys, child, spi_in, unwanted: false, handshake, mixed, stage };
    let sa = Box::new(sa.with(auth));
    match proving {
        Proving::Ready(proof) => proved(session, cx, sa, proof),
        Proving::Signing(signing) => {
            proving::hand_out(cx, sa.local_spi, None, Some(signing));
            session.keep_attempt(Attempt::Auth(sa));
            Effects::none()
        }
    }
}

fn prove_to_responder(
    tunnel: &IkeTunnel,
    keys: &Keys,
    handshake: &Handshake,
    auth_id: u32,
    proof_keys: &ProofKeys,
) -> Result<Proving, Failure> {
    let octets = SignedOctets {
        message: &handshake.request,
        nonce: &handshake.responder_nonce,
        sk_p: &proof_keys.initiator,
        id: &Identification::of(&tunnel.local.identity),
        by: keys.prf_provider(),
        intermediate: &handshake.int_auth.octets(auth_id),
    };
    let prf = keys.suite.prf;
    match handshake.resumed {
        Some(_) => Ok(Proving::Ready(proving::prove_resumed(prf, octets))),
        None => proving::prove(tunnel, prf, octets, &handshake.wishes),
    }
}

/// Goes on with a proof of ours. If it needs a PPK that the responder may lack, another one without it is made, too.
fn proved(
    session: &mut Session,
    cx: &mut Context<'_>,
    mut sa: Box<IkeSa<AuthSent>>,
    proof: Evidence,
) -> Effects {
    let tunnel = Arc::clone(session.tunnel());
    let auth_id = sa.window.next_id();
    let auth = &mut sa.state;
    let first = match &mut auth.stage {
        attempt::Stage::Proving { mixed, .. } => mixed.take(),
        _ => None,
    };
    if auth.mixed.is_none() || !ppk::may_do_without(&tunnel) {
        return send(session, cx, sa, &proof, None);
    }
    if let Some(first) = first {
        return send(session, cx, sa, &first, Some(&proof));
    }
    let plain = &auth.handshake.proof_keys;
    match prove_to_responder(&tunnel, &auth.keys, &auth.handshake, auth_id, plain) {
        Ok(Proving::Ready(without)) => send(session, cx, sa, &proof, Some(&without)),
        Ok(Proving::Signing(signing)) => {
            let until = cx.now + WORK_FOR;
            auth.stage = attempt::Stage::Proving { until, mixed: Some(proof) };
            proving::hand_out(cx, sa.local_spi, None, Some(signing));
            session.keep_attempt(Attempt::Auth(sa));
            Effects::none()
        }
        Err(failure) => session.fail(cx, Attempt::Auth(sa), CloseReason::NoProof, failure),
    }
}

/// Sends our proof and asks for the first Child SA. `without` is the proof without the PPK, where that is optional.
fn send(
    session: &mut Session,
    cx: &mut Context<'_>,
    mut sa: Box<IkeSa<AuthSent>>,
    proof: &Evidence,
    without: Option<&Evidence>,
) -> Effects {
    let tunnel = Arc::clone(session.tunnel());
    let auth = &mut sa.state;
    auth.stage = attempt::Stage::Asked;
    let child = Arc::clone(&auth.child);
    let spi_in = auth.spi_in;
    // RFC 8784 §3: the method of both proofs is the same. It is not if the certificates were replaced between them.
    let without = without.filter(|without| without.method == proof.method);
    let without = without.map(|without| without.data.as_slice());
    let ppk = auth.mixed.as_ref().map(|mixed| ppk::request(&mixed.base.ppk.id, without));
    let (certificates, proof) = proving::payloads(proof);
    let mut payloads = vec![Payload::IdInitiator(Identification::of(&tunnel.local.identity))];
    payloads.extend(certificates);
    if !cx.contacts.knows(&tunnel) {
        payloads.push(status(NotifyType::INITIAL_CONTACT, vec![]));
    }
    // RFC 5723 §4.3.3: no certificates with a ticket.
    if auth.handshake.resumed.is_none() {
        payloads.extend(proving::request(Wanted::of(&tunnel), cx.trust));
    }
    payloads.push(Payload::IdResponder(Identification::of(&tunnel.remote.identity)));
    payloads.push(proof);
    payloads.extend(ppk.into_iter().flatten());
    payloads.extend(ticket::request(session, cx));
    if let Some(spi_in) = spi_in {
        if child.mode == Mode::Transport {
            payloads.push(status(NotifyType::USE_TRANSPORT_MODE, vec![]));
        }
        let offer =
            offer_child(&session.path().carries(&child.proposals), Offered::default(), spi_in);
        payloads.push(Payload::Sa(offer));
        payloads.extend(session.asked_selectors(&child));
    }
    if session.path().traverses && session.may_be_mobile(cx) {
        payloads.extend(address_update::introduction(session, cx));
    }
    sa.request(cx, &tunnel, session.path(), ExchangeType::IKE_AUTH, &payloads);
    session.keep_attempt(Attempt::Auth(sa));
    Effects::none()
}

/// Takes the responder's answer, and begins to check its proof.
pub(crate) fn conclude(
    session: &mut Session,
    cx: &mut Context<'_>,
    mut sa: Box<IkeSa<AuthSent>>,
    payloads: Vec<Payload>,
) -> Effects {
    // An IKE SA that is only deleted needs no proof. A successor process has none to check it with.
    if session.is_closing() {
        return finish(session, cx, *sa, &payloads, Ok(Verdict::default()));
    }
    // Its answer is here, so the next number is one further.
    let auth_id = sa.window.next_id() - 1;
    match check(cx, session.tunnel(), &sa.state, auth_id, &payloads) {
        Ok(None) => finish(session, cx, *sa, &payloads, Ok(Verdict::default())),
        Ok(Some(claim)) => {
            sa.state.stage = attempt::Stage::Checking { until: cx.now + WORK_FOR, payloads };
            proving::hand_out(cx, sa.local_spi, Some(claim), None);
            session.keep_attempt(Attempt::Auth(sa));
            Effects::none()
        }
        Err(failure) => finish(session, cx, *sa, &payloads, Err(failure)),
    }
}

/// Hands the job out on which an attempt waits: the process that had it is gone.
pub(crate) fn work_again(session: &mut Session, cx: &mut Context<'_>) -> Effects {
    if session.is_closing() {
        return resume(session, cx, Ok(Proved::default()));
    }
    let Some(Attempt::Auth(sa)) = session.attempt() else { return Effects::none() };
    let (tunnel, auth) = (session.tunnel(), &sa.state);
    let next_id = sa.window.next_id();
    let (claim, signing) = match &auth.stage {
        attempt::Stage::Asked => return Effects::none(),
        attempt::Stage::Proving { mixed, .. } => {
            // Behind the proof with the PPK comes the one without it.
            let plain = &auth.handshake.proof_keys;
            let keys = if mixed.is_some() { plain } else { auth.proof_keys() };
            match prove_to_responder(tunnel, &auth.keys, &auth.handshake, next_id, keys) {
                Ok(Proving::Signing(signing)) => (None, Some(signing)),
                _ => (None, None),
            }
        }
        attempt::Stage::Checking { payloads, .. } => {
            (check(cx, tunnel, auth, next_id - 1, payloads).ok().flatten(), None)
        }
    };
    // Without one, the session no longer is what it was when the job began. It is given up in time.
    if claim.is_some() || signing.is_some() {
        proving::hand_out(cx, sa.local_spi, claim, signing);
    }
    Effects::none()
}

/// Goes on with what came of a job.
pub(crate) fn resume(
    session: &mut Session,
    cx: &mut Context<'_>,
    outcome: Result<Proved, Failure>,
) -> Effects {
    // Otherwise the job was given up, and its IKE SA has gone on.
    let Some(mut sa) = session.take_auth() else { return Effects::none() };
    match (std::mem::replace(&mut sa.state.stage, attempt::Stage::Asked), outcome) {
        (stage @ attempt::Stage::Proving { .. }, Ok(Proved { proof: Some(proof), .. })) => {
            sa.state.stage = stage;
            proved(session, cx, sa, proof)
        }
        (attempt::Stage::Proving { .. }, Err(failure)) => {
            session.fail(cx, Attempt::Auth(sa), CloseReason::NoProof, failure)
        }
        (attempt::Stage::Checking { payloads, .. }, outcome) => {
            let verdict =
                outcome.map(|Proved { warning, checked, .. }| Verdict { warning, checked });
            finish(session, cx, *sa, &payloads, verdict)
        }
        (stage, _) => {
            sa.state.stage = stage;
            session.keep_attempt(Attempt::Auth(sa));
            Effects::none()
        }
    }
}

/// Gives up on jobs that nobody does.
pub(crate) fn handle_timeout(session: &mut Session, cx: &mut Context<'_>) -> Effects {
    match session.attempt() {
        Some(Attempt::Auth(sa))
            if sa.state.working_until().is_some_and(|until| until <= cx.now) =>
        {
            resume(session, cx, Err(too_late()))
        }
        _ => Effects::none(),
    }
}

fn too_late() -> Failure {
    let detail = format!(
        "work with certificates took more than {} s; is a server of revocation lists slow, or this host?",
        WORK_FOR.as_secs()
    );
    Failure::new(FailureKind::AuthenticationFailed, detail)
}

/// The result of the check of a responder's proof that is good.
#[derive(Default)]
struct Verdict {
    warning: Option<String>,
    /// The check of a signature.
    checked: Option<Checked>,
}

/// Goes on once the responder's proof is checked.
fn finish(
    session: &mut Session,
    cx: &mut Context<'_>,
    sa: IkeSa<AuthSent>,
    payloads: &[Payload],
    verdict: Result<Verdict, Failure>,
) -> Effects {
    let (sa, auth) = sa.part();
    let AuthSent { mut keys, child, spi_in, unwanted, mut handshake, mixed, .. } = auth;
    let parts = Parts::of(payloads);
    if let Some(mixed) = mixed.filter(|_| parts.notify(NotifyType::PPK_IDENTITY).is_some()) {
        keys.adopt(&mixed);
    }
    let has_ppk = keys.ppk.is_some();
    let tunnel = Arc::clone(session.tunnel());
    let suite = keys.suite;
    let mut ike = session.take_in(sa.with(established(cx, tunnel.lifetime, keys)));
    let Verdict { warning, checked } = match verdict {
        Ok(verdict) => verdict,
        Err(failure) => {
            release(cx, spi_in);
            ike.session.note_failed(&child.name);
            cx.out.fail(cx.now, &tunnel.name, Some(&child.name), failure.clone());
            let told = parts
                .error()
                .is_some_and(|e| parts.sa.is_none() && e.kind == NotifyType::AUTHENTICATION_FAILED);
            if !told {
                // RFC 7296 §2.21.2: the responder believes the IKE SA is up; it is told otherwise.
                super::delete::ask_refused(&mut ike, cx);
            }
            return ike.session.end(cx, CloseReason::ProofRefused, Some(failure));
        }
    };
    for warning in warning.into_iter().chain(ppk::warning(&tunnel, has_ppk)) {
        cx.out.event(&tunnel.name, None, EventKind::Warning(warning));
    }
    if ike.session.is_closing() {
        release(cx, spi_in);
        return Effects::none();
    }
    let proofs = handshake.resumed.take().map(|proofs| *proofs).or_else(|| {
        let initiator = Identification::of(&tunnel.local.identity);
        ticket::authentication(cx, &tunnel, &initiator, proving::method(&tunnel), checked)
    });
    let nonces = handshake.nonces();
    let mut effects = ike.session.establish(cx, suite, nonces, proofs);
    ticket::keep(&mut ike, cx, &parts);
    ike.session.plan_reauthentication(cx, &parts);
    if ike.session.path().traverses && ike.session.may_be_mobile(cx) {
        address_update::agree(ike.session, &parts);
    }
    let Some(spi_in) = spi_in else {
        if unwanted {
            return effects.and(ike.session.close_when_idle(cx));
        }
        ike.session.queue_next(Task::CreateChild(child.name.clone()));
        return effects;
    };
    if unwanted {
        cx.release_spi(spi_in);
        if parts.sa.is_some() {
            ike.session.delete_child_next(spi_in);
        }
        return effects;
    }
    match conclude_child(&mut ike, cx, &child, spi_in, nonces, &parts) {
        Ok(installed) => effects += installed,
        Err(failure) => {
            cx.release_spi(spi_in);
            effects.push(Effect::Unserved(child.name.clone()));
            cx.out.fail(cx.now, &tunnel.name, Some(&child.name), failure);
            if parts.sa.is_some() {
                // The responder has the Child SA that we do not want.
                ike.session.delete_child_next(spi_in);
            }
            // An IKE SA that carries nothing is of no use to anyone.
            effects += ike.session.close_when_idle(cx);
        }
    }
    effects
}

pub(super) fn release(cx: &mut Context<'_>, spi_in: Option<Spi>) {
    spi_in.into_iter().for_each(|spi| cx.release_spi(spi));
}

fn established(cx: &mut Context<'_>, lifetime: Lifetime, keys: Keys) -> Established {
    Established {
        keys,
        active: None,
        awaited: Vec::new(),
        phase: Phase::Serving,
        unproven: false,
        rekey_at: cx.jittered(lifetime.soft(), lifetime.hard),
        expire_at: after(cx.now, lifetime.hard),
    }
}

/// Checks what can be at once: errors, the identity, a preshared key. The claim of a signature is left to be checked.
fn check(
    cx: &mut Context<'_>,
    tunnel: &IkeTunnel,
    auth: &AuthSent,
    auth_id: u32,
    payloads: &[Payload],
) -> Result<Option<Claim>, Failure> {
    let parts = Parts::of(payloads);
    let id = payloads.iter().find_map(|p| match p {
        Payload::IdResponder(id) => Some(id),
        _ => None,
    });
    let proof = payloads.iter().find_map(|p| match p {
        Payload::Auth { method, data } => Some((*method, data)),
        _ => None,
    });
    let (Some(id), Some((method, data))) = (id, proof) else {
        return Err(match parts.error() {
            Some(error)
                if proving::signs(tunnel) && error.kind == NotifyType::AUTHENTICATION_FAILED =>
            {
                let named = auth.mixed.as_ref().map(|mixed| mixed.base.ppk.id.as_str());
                ppk::name_it(proving::unaccepted(tunnel), named)
            }
            Some(error) => {
                // The proposals of IKE_AUTH are for the Child SA. OpenIKED refuses the IKE SA with it.
                let asked = match auth.spi_in {
                    Some(_) => Asked::child(&auth.child, Offered::default()),
                    None => Asked::ike(&tunnel.proposals),
                };
                let named = auth.mixed.as_ref().map(|mixed| mixed.base.ppk.id.clone());
                let proof = Proof { ppk: named, ..Proof::of(tunnel, false) };
                failure_of(error, Asked { proof: Some(proof), ..asked })
            }
            None => Failure::new(FailureKind::ProtocolError, "the answer has no proof".into()),
        });
    };
    let kind = FailureKind::AuthenticationFailed;
    let Some(identity) = id.identity() else {
        let detail = format!(
            "the peer names itself by an identity of type {}; the policy expects {}",
            id.kind,
            tunnel.remote.identity.qualified()
        );
        return Err(Failure::new(kind, detail));
    };
    if !identity.matches(&tunnel.remote.identity) {
        let known = vec![Parties::of(tunnel)];
        let identities = Identities {
            peer: identity,
            address: tunnel.remote.address,
            own_address: None,
            asked: None,
            known,
        };
        return Err(Failure::with(kind, Facts::Identities(identities)));
    }
    let used = ppk::concluded(tunnel, auth.mixed.as_ref(), &parts)?;
    let proof_keys = if used { auth.proof_keys() } else { &auth.handshake.proof_keys };
    let octets = SignedOctets {
        message: &auth.handshake.response,
        nonce: &auth.handshake.initiator_nonce,
        sk_p: &proof_keys.responder,
        id,
        by: auth.keys.prf_provider(),
        intermediate: &auth.handshake.int_auth.octets(auth_id),
    };
    if auth.handshake.resumed.is_some() {
        return proving::check_resumed(tunnel, auth.keys.suite.prf, octets, (method, data));
    }
    let said = Said { identity: identity.clone(), method, data, payloads };
    let id = auth.mixed.as_ref().filter(|_| used).map(|mixed| mixed.base.ppk.id.as_str());
    proving::check(cx, tunnel, auth.keys.suite.prf, octets, said)
        .map_err(|failure| ppk::name_it(failure, id))
}

/// Takes the Child SA that the peer has granted with its proof.
fn conclude_child(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    child: &Arc<ChildTunnel>,
    spi_in: Spi,
    nonces: Nonces<'_>,
    parts: &Parts<'_>,
) -> Result<Effects, Failure> {
    let asked = asked(child);
    let agreed = child_sa::read_answer(child, &asked, Offered::default(), parts)?;
    let (choice, spi_out) = accept_child(
        &ike.session.path().carries(&child.proposals),
        Offered::default(),
        agreed.proposals,
    )
    .ok_or_else(|| {
        Failure::new(
            FailureKind::ProtocolError,
            format!("the peer chose {}, which was not offered", describe(agreed.proposals)),
        )
    })?;
    let suite =
        choice.suite().expect("an accepted proposal has cipher and integrity that go together");
    let blueprint = Blueprint {
        tunnel: child,
        choice,
        mode: child.mode,
        selectors: agreed.selectors,
        asked: None,
        spi_in,
        spi_out,
        keys: ike.state.keys.child(suite, &[], nonces, None),
        originator: Originator::ThisSide,
        standby: false,
        path: ike.session.child_path(),
        history: History::new(cx.now),
        lowest_nonce: LowestNonce::of(nonces),
    };
    let sa =
        blueprint.install(cx).map_err(|e| Failure::new(FailureKind::DataPlane, e.to_string()))?;
    Ok(ike.session.add_child(cx, sa, Success::SetUp))
}
