//! CREATE_CHILD_SA for Child SAs: new ones and rekeys (RFC 7296 §1.3.1, §1.3.3, §2.8).

pub(crate) mod handover;
mod refusal;
mod success;

use super::child_sa::{Asker, ChildRequest, ah_and_nat, grant, public_value};
use super::follow_up::{self, Step};
use super::{Answer, Granted, child_sa, ppk, rekey_ike};
use crate::close_reason::CloseReason;
use crate::collision::{self, Request};
use crate::context::Context;
use crate::crypto::key_exchange::PrivateKey;
use crate::crypto::prf;
use crate::effect::Lost;
use crate::effect::{Effect, Effects};
use crate::event::EventKind;
use crate::failure::{Failure, FailureKind};
use crate::negotiation::proposal::{Offered, accept_child, offer_child};
use crate::negotiation::selectors;
use crate::negotiation::transforms::group_of;
use crate::rejection::Rejection;
use crate::sa::IkeSa;
use crate::sa::active::{Active, PendingChild};
use crate::sa::child::{ChildSa, ChildState, LatePackets, RekeyForm};
use crate::sa::keys::Nonces;
use crate::session::{Carrier, Session};
use crate::task::Task;
use crate::wire::parts::{Parts, status};
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::{ExchangeType, NotifyType, ProtocolId};
use esp::plane::Spi;
use policy::{ChildTunnel, Group, Mode};
use refusal::refused;
use std::sync::Arc;
use std::time::Duration;

/// The number of times that a peer may ask for another group.
const RESTARTS: u8 = 3;

/// A peer that answers TEMPORARY_FAILURE so often to the request for a new Child SA in place of another one refuses it.
const FAILURES_OF_A_NEW_ONE: u32 = 3;

/// A Child SA that is wanted of the peer.
struct Wish {
    tunnel: Arc<ChildTunnel>,
    /// The Child SA that it is to replace, by inbound SPI.
    rekeys: Option<Spi>,
    form: RekeyForm,
    group: Option<Group>,
    /// The number of times that the peer has asked for another group so far.
    restarts: u8,
}

/// Asks for a new Child SA.
pub(crate) fn ask_new(ike: &mut Carrier<'_>, cx: &mut Context<'_>, name: &str) -> Effects {
    let Some(tunnel) = cx.policy.child_of(ike.session.tunnel(), name).cloned() else {
        return Effects::none();
    };
    if ike.session.serving_child(name).is_some() {
        return Effects::none();
    }
    cx.out.event(
        &ike.session.tunnel().name,
        Some(name),
        EventKind::Negotiating { initiator: true },
    );
    let group = tunnel.pfs.offer.first().copied();
    ask(ike, cx, Wish { tunnel, rekeys: None, form: RekeyForm::Rekey, group, restarts: 0 })
}

/// Asks for the successor of a Child SA, in the form that was good for the one before.
pub(crate) fn ask_rekey(ike: &mut Carrier<'_>, cx: &mut Context<'_>, spi_in: Spi) -> Effects {
    let Some(child) =
        ike.session.child_by_inbound(spi_in).filter(|c| c.state == ChildState::Established)
    else {
        return Effects::none();
    };
    let wish = successor(child, child.history.form);
    ask(ike, cx, wish)
}

fn successor(child: &ChildSa, form: RekeyForm) -> Wish {
    let tunnel = Arc::clone(&child.tunnel);
    // The peer has agreed to this group before, so that it need not refuse another one first.
    let agreed = child.choice.algorithms.group.filter(|g| tunnel.pfs.offer.contains(g));
    let group = agreed.or(tunnel.pfs.offer.first().copied());
    Wish { tunnel, rekeys: Some(child.spi_in), form, group, restarts: 0 }
}

fn ask(ike: &mut Carrier<'_>, cx: &mut Context<'_>, wish: Wish) -> Effects {
    let Wish { tunnel, rekeys, form, group, restarts } = wish;
    let proposals = ike.session.child_path().carries(&tunnel.proposals);
    if proposals.is_empty() {
        // As if the peer had refused it.
        let failure = ah_and_nat(ike.session, &tunnel);
        return fail(ike.session, cx, (&tunnel, rekeys), failure);
    }
    let spi_in = cx.offer_spi(ike.session.child_path().remote.ip());
    let nonce = cx.rng.nonce();
    let key_exchange = group.map(PrivateKey::generate);
    let fresh = ppk::fresh(ike.session.tunnel(), cx.trust, &ike.state.keys, &nonce, ike.spis());
    let (base, proposed) = fresh.unzip();
    let mut payloads = Vec::new();
    payloads.extend(rekeys.filter(|_| form != RekeyForm::NewChildSa).map(|spi| {
        let replaced = ike.session.child_by_inbound(spi);
        let protocol = replaced.map_or(ProtocolId::ESP, |c| c.choice.protocol());
        let spi = spi.0.to_be_bytes().to_vec();
        Payload::Notify(Notify { protocol, spi, kind: NotifyType::REKEY_SA, data: vec![] })
    }));
    if tunnel.mode == Mode::Transport {
        payloads.push(status(NotifyType::USE_TRANSPORT_MODE, vec![]));
    }
    payloads.push(Payload::Sa(offer_child(&proposals, Offered::by(&tunnel.pfs), spi_in)));
    payloads.push(Payload::Nonce(nonce.clone()));
    payloads.extend(key_exchange.as_ref().map(public_value));
    payloads.extend(match form {
        RekeyForm::Widened => [
            Payload::TsInitiator(selectors::any(&tunnel.local)),
            Payload::TsResponder(selectors::any(&tunnel.remote)),
        ],
        RekeyForm::Rekey | RekeyForm::NewChildSa => ike.session.asked_selectors(&tunnel),
    });
    payloads.extend(proposed);
    let pending = PendingChild {
        tunnel,
        proposals,
        rekeys,
        form,
        spi_in,
        nonce,
        key_exchange,
        base,
        follow_up: None,
        restarts,
        unwanted: false,
        rival: None,
        deleted: Vec::new(),
    };
    let active = Active::Child(Box::new(pending));
    ike.ask(cx, ExchangeType::CREATE_CHILD_SA, &payloads, active);
    Effects::none()
}

/// The phase 2 tunnel that a CREATE_CHILD_SA request asks for, as long as the plane is not prepared for it.
pub(crate) fn unprepared(
    session: &Session,
    cx: &mut Context<'_>,
    payloads: &[Payload],
) -> Option<Arc<ChildTunnel>> {
    let parts = Parts::of(payloads);
    let is_refused = session.is_full();
    if is_refused || parts.notify(NotifyType::REKEY_SA).is_some() {
        return None;
    }
    child_sa::unprepared(Asker::from(session), cx, &parts)
}

/// Returns `true` if the answer to a CREATE_CHILD_SA request has to wait until the peer has answered a Delete of this
/// side.
pub(crate) fn waits_for_delete(session: &Session, sa: &IkeSa, payloads: &[Payload]) -> bool {
    match rekeyed(&Parts::of(payloads)) {
        Ok(Some((protocol, spi))) => collision::waits_for_delete(session, sa, protocol, spi),
        _ => false,
    }
}

/// The Child SA that a request is to rekey, by the SPI on which this side sends.
fn rekeyed(parts: &Parts<'_>) -> Result<Option<(ProtocolId, Spi)>, Rejection> {
    let Some(notify) = parts.notify(NotifyType::REKEY_SA) else { return Ok(None) };
    let octets =
        notify.spi.as_slice().try_into().map_err(|_| {
            Rejection::invalid_syntax("REKEY_SA without an SPI of four octets".into())
        })?;
    Ok(Some((notify.protocol, Spi(u32::from_be_bytes(octets)))))
}

/// Answers a CREATE_CHILD_SA request.
pub(crate) fn answer(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    payloads: Vec<Payload>,
) -> Answer {
    let parts = Parts::of(&payloads);
    let answered = if parts
        .sa
        .is_some_and(|p| p.iter().all(|p| p.protocol == ProtocolId::IKE) && !p.is_empty())
    {
        rekey_ike::answer(ike, cx, &parts)
    } else {
        answer_child(ike, cx, &parts)
    };
    match answered {
        Ok(granted) => granted.into(),
        Err(rejection) => Answer::from(&rejection),
    }
}

fn answer_child(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    parts: &Parts<'_>,
) -> Result<Granted, Rejection> {
    let Some(initiator_nonce) = parts.nonce else {
        return Err(Rejection::invalid_syntax("CREATE_CHILD_SA without nonce".into()));
    };
    let rekeys = rekeyed(parts)?;
    let request =
        rekeys.map_or(Request::CreateChild, |(protocol, spi)| Request::RekeyChild(protocol, spi));
    if !prf::is_long_enough(ike.state.keys.suite.prf, initiator_nonce) {
        return Err(Rejection::short_nonce());
    }
    collision::admit(ike.session, ike, request)?;
    let old = rekeys.and_then(|(protocol, spi)| ike.session.child_by_outbound(protocol, spi));
    let old = old.map(|c| c.spi_in);
    let nonce = cx.rng.nonce();
    let nonces = Nonces { initiator: initiator_nonce, responder: &nonce };
    grant(ike, cx, parts, &ChildRequest { rekeys: old, in_auth: false, nonces })
}

/// Takes the answer to a request of ours.
pub(crate) fn conclude(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    mut pending: PendingChild,
    payloads: Vec<Payload>,
) -> Effects {
    let offered = Offered::by(&pending.tunnel.pfs);
    let step = follow_up::take(pending.follow_up.take(), payloads, |parts| {
        let accepted = parts.sa.and_then(|sa| accept_child(&pending.proposals, offered, sa));
        accepted.map(|(choice, _)| choice.algorithms.additional).unwrap_or_default()
    });
    let (payloads, additional) = match step {
        // The peer makes the Child SA at the end of the key exchanges only.
        Step::Ask(..) if pending.unwanted || ike.session.is_closing() => {
            cx.release_spi(pending.spi_in);
            return Effects::none();
        }
        Step::Ask(follow_up, request) => {
            pending.follow_up = Some(follow_up);
            let active = Active::Child(Box::new(pending));
            ike.ask(cx, ExchangeType::IKE_FOLLOWUP_KE, &request, active);
            return Effects::none();
        }
        Step::Conclude(answer, shared) => (answer, shared),
        Step::Refused(error, payloads) => {
            cx.release_spi(pending.spi_in);
            if pending.unwanted || ike.session.is_closing() {
                return Effects::none();
            }
            return conclude_error(ike, cx, pending, error, &Parts::of(&payloads));
        }
        Step::Broken(detail) => {
            cx.release_spi(pending.spi_in);
            let failure = Failure::new(FailureKind::ProtocolError, detail);
            ike.session.delete_child_next(pending.spi_in);
            return fail(ike.session, cx, (&pending.tunnel, pending.rekeys), failure);
        }
    };
    let parts = Parts::of(&payloads);
    let refused = parts.error().filter(|_| parts.sa.is_none());
    if pending.unwanted || ike.session.is_closing() {
        // The policy may no longer have the tunnel: nothing is installed, and the peer is told to forget it. With an
        // IKE SA that is being deleted it goes anyway.
        cx.release_spi(pending.spi_in);
        if refused.is_none() && !ike.session.is_closing() {
            ike.session.delete_child_next(pending.spi_in);
        }
        return Effects::none();
    }
    if let Some(error) = refused {
        cx.release_spi(pending.spi_in);
        return conclude_error(ike, cx, pending, error.clone(), &parts);
    }
    match success::conclude(ike, cx, &pending, &parts, additional) {
        Ok(effects) => effects,
        Err(failure) => {
            // The peer has a Child SA that we do not want.
            if pending.form == RekeyForm::Widened
                && let Some(mut old) = pending.rekeys.and_then(|old| ike.session.child_mut(old))
            {
                old.history.form = RekeyForm::NewChildSa;
            }
            ike.session.delete_child_next(pending.spi_in);
            cx.release_spi(pending.spi_in);
            fail(ike.session, cx, (&pending.tunnel, pending.rekeys), failure)
        }
    }
}

/// Queues a request again whose IKE SA is gone.
pub(crate) fn start_over(
    session: &mut Session,
    cx: &mut Context<'_>,
    pending: &PendingChild,
) -> Effects {
    cx.release_spi(pending.spi_in);
    match pending.rekeys {
        _ if pending.unwanted => {}
        None => session.queue_all([Task::CreateChild(pending.tunnel.name.clone())]),
        Some(old) if stands(session, old) => session.queue_all([Task::RekeyChild(old)]),
        Some(_) => return lose(session, cx, pending),
    }
    Effects::none()
}

/// The peer has deleted the Child SA before its answer arrived. Nothing is installed, and the Child SA that it was to
/// replace is deleted.
fn forget_deleted(session: &mut Session, cx: &mut Context<'_>, pending: &PendingChild) -> Effects {
    cx.release_spi(pending.spi_in);
    let old = pending.rekeys.filter(|old| stands(session, *old));
    match old.and_then(|old| session.child_by_inbound(old)) {
        Some(old) => {
            let (spi, lost) = (old.spi_in, old.lost(cx.now));
            session.set_state(spi, ChildState::Unwanted);
            session.delete_child_next(spi);
            Effect::Lost(lost).into()
        }
        None => lose(session, cx, pending),
    }
}

/// The peer has taken the tunnel down while this side was about to set it up or to renew it.
fn lose(session: &Session, cx: &mut Context<'_>, pending: &PendingChild) -> Effects {
    let name = &pending.tunnel.name;
    if session.serving_child(name).is_none() {
        let reason = CloseReason::DeletedByPeer;
        cx.out.close(cx.now, session.tunnel(), Some(name), reason);
        return Effect::Lost(Lost { name: name.clone(), after: Duration::ZERO }).into();
    }
    Effects::none()
}

/// Returns `true` if a Child SA is there and not replaced yet.
fn stands(session: &Session, spi_in: Spi) -> bool {
    session.child_by_inbound(spi_in).is_some_and(|c| c.state == ChildState::Established)
}

fn conclude_error(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    pending: PendingChild,
    error: Notify,
    parts: &Parts<'_>,
) -> Effects {
    // The peer has rekeyed the Child SA itself, or the Child SA is gone: nothing is left to rekey.
    if pending.rekeys.is_some_and(|old| !stands(ike.session, old)) {
        return lose(ike.session, cx, &pending);
    }
    let again = match pending.rekeys {
        Some(old) => Task::RekeyChild(old),
        None => Task::CreateChild(pending.tunnel.name.clone()),
    };
    match error.kind {
        // libreswan (5.2) answers so as long as the old Child SA is there.
        NotifyType::TEMPORARY_FAILURE
            if pending.form == RekeyForm::NewChildSa
                && ike.session.temporary_failures() >= FAILURES_OF_A_NEW_ONE =>
        {
            ike.session.forget_temporary_failures();
            refused(ike, cx, &pending, &error)
        }
        NotifyType::TEMPORARY_FAILURE | NotifyType::STATE_NOT_FOUND => ike.session.delay(cx, again),
        NotifyType::NO_ADDITIONAL_SAS
            if pending.rekeys.is_some() && pending.form != RekeyForm::NewChildSa =>
        {
            rekey_ike::replace_whole(ike.session, cx, &error)
        }
        NotifyType::INVALID_KE_PAYLOAD => {
            let wanted = parts
                .wanted_group()
                .and_then(group_of)
                .filter(|g| pending.tunnel.pfs.offer.contains(g));
            match wanted {
                Some(group) if pending.restarts < RESTARTS => {
                    let PendingChild { tunnel, rekeys, form, restarts, .. } = pending;
                    let (group, restarts) = (Some(group), restarts + 1);
                    ask(ike, cx, Wish { tunnel, rekeys, form, group, restarts })
                }
                _ => refused(ike, cx, &pending, &error),
            }
        }
        NotifyType::CHILD_SA_NOT_FOUND if pending.form != RekeyForm::NewChildSa => {
            // RFC 7296 §2.25: the peer has lost it; start from scratch.
            // The request named no Child SA that the peer could have lost.
            let Some(old) = pending.rekeys else { return Effects::none() };
            let (gone, effects) = ike.session.remove_child(cx, old, LatePackets::Received);
            if gone.is_some_and(|c| c.state == ChildState::Established) {
                ike.session.queue_all([Task::CreateChild(pending.tunnel.name.clone())]);
            }
            effects
        }
        _ => refused(ike, cx, &pending, &error),
    }
}

/// Tells the operator. The old Child SA stays, and after half of the rest of its lifetime the rekey is tried again.
fn fail(
    session: &mut Session,
    cx: &mut Context<'_>,
    (tunnel, rekeys): (&ChildTunnel, Option<Spi>),
    failure: Failure,
) -> Effects {
    cx.out.fail(cx.now, &session.tunnel().name, Some(&tunnel.name), failure);
    if let Some(mut child) = rekeys.and_then(|old| session.child_mut(old)) {
        let left = child.expire_at.saturating_duration_since(cx.now);
        child.rekey_at = cx.now + (left / 2).max(Duration::from_secs(5));
        child.rekey_failed = true;
    } else if rekeys.is_none() {
        let unserved = Effects::from(Effect::Unserved(tunnel.name.clone()));
        return unserved.and(session.close_when_idle(cx));
    }
    Effects::none()
}
