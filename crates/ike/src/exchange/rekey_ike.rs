//! CREATE_CHILD_SA for the IKE SA itself (RFC 7296 §1.3.2, §2.8, §2.18).

use super::follow_up::{self, Step};
use super::{Granted, ppk};
use crate::close_reason::CloseReason;
use crate::collision::{self, Request};
use crate::context::Context;
use crate::crypto::key_exchange::{PrivateKey, respond};
use crate::crypto::prf;
use crate::deadlines::after;
use crate::effect::{Effect, Effects};
use crate::event::{EventKind, Negotiated};
use crate::failure::{Failure, FailureKind};
use crate::negotiation::description::describe;
use crate::negotiation::proposal::{accept_ike, choose_ike, offer_ike};
use crate::negotiation::suite::IkeSuite;
use crate::negotiation::transforms::{group_id, group_of};
use crate::originator::Originator;
use crate::past_failures::Success;
use crate::rejection::{Asked, Rejection, SHORT_NONCE, failure_of, unasked};
use crate::sa::active::{Active, IkeRival, PendingRekey};
use crate::sa::follow_up::{AwaitedIke, OwnNonces, Purpose};
use crate::sa::keys::{KeyInputs, Keys, Nonces};
use crate::sa::lowest_nonce::{self, LowestNonce};
use crate::sa::window::Window;
use crate::sa::{Established, IkeSa, Phase};
use crate::session::{Carrier, Session};
use crate::task::Task;
use crate::wire::header::IkeSpi;
use crate::wire::parts::Parts;
use crate::wire::payload::{Payload, Proposal};
use crate::wire::registry::{ExchangeType, NotifyType};
use policy::{Group, Secret};
use std::time::Duration;

/// The number of times that a peer may ask for another group.
const RESTARTS: u8 = 3;

/// Asks for the successor of an IKE SA.
pub(crate) fn ask(ike: &mut Carrier<'_>, cx: &mut Context<'_>) {
    if ike.state.phase != Phase::Serving || ike.local_spi != ike.session.current_spi() {
        return;
    }
    // The policy may have changed since.
    let mut offered = ike.session.tunnel().proposals.iter().flat_map(|p| &p.groups).copied();
    let now = ike.state.keys.suite.group;
    // A new policy without key exchanges for it: the IKE SA stays until its lifetime ends.
    let Some(group) = offered.clone().find(|g| *g == now).or_else(|| offered.next()) else {
        return;
    };
    send(ike, cx, group, 0);
}

fn send(ike: &mut Carrier<'_>, cx: &mut Context<'_>, group: Group, restarts: u8) {
    let spi = cx.new_ike_spi();
    let nonce = cx.rng.nonce();
    let key_exchange = PrivateKey::generate(group);
    let fresh = ppk::fresh(ike.session.tunnel(), cx.trust, &ike.state.keys, &nonce, ike.spis());
    let (base, proposed) = fresh.unzip();
    let mut payloads = vec![
        Payload::Sa(offer_ike(&ike.session.tunnel().proposals, &spi.0.to_be_bytes())),
        Payload::Nonce(nonce.clone()),
        Payload::KeyExchange { group: group_id(group), data: key_exchange.public_value().to_vec() },
    ];
    payloads.extend(proposed);
    let (follow_up, rival) = (None, None);
    let pending = PendingRekey { spi, nonce, key_exchange, base, follow_up, restarts, rival };
    let active = Active::Rekey(Box::new(pending));
    ike.ask(cx, ExchangeType::CREATE_CHILD_SA, &payloads, active);
}

fn peer_spi(proposal: &Proposal) -> Option<IkeSpi> {
    let spi = u64::from_be_bytes(proposal.spi.as_slice().try_into().ok()?);
    (spi != 0).then_some(IkeSpi(spi))
}

/// Answers the peer's request. A refusal is noted for the operator.
pub(crate) fn answer(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    parts: &Parts<'_>,
) -> Result<Granted, Rejection> {
    let answered = try_answer(ike, cx, parts);
    if let Err(Rejection { failure: Some(failure), .. }) = &answered {
        cx.out.fail(cx.now, &ike.session.tunnel().name, None, failure.clone());
    }
    answered
}

fn try_answer(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    parts: &Parts<'_>,
) -> Result<Granted, Rejection> {
    collision::admit(ike.session, ike, Request::RekeyIke)?;
    let (Some(theirs), Some((sent, public)), Some(nonce)) =
        (parts.sa, parts.key_exchange, parts.nonce)
    else {
        return Err(Rejection::invalid_syntax(
            "the IKE SA is to be rekeyed without SA, KE or nonce".into(),
        ));
    };
    let spi = cx.new_ike_spi();
    let chosen = choose_ike(&ike.session.tunnel().proposals, theirs, sent, &spi.0.to_be_bytes());
    let Some((suite, proposal)) = chosen else {
        let ours = Asked::ike(&ike.session.tunnel().proposals).again(true).offers;
        return Err(Rejection::no_proposal_chosen(ours.beside(theirs)));
    };
    let offered = theirs.iter().find(|p| p.number == proposal.number).and_then(peer_spi);
    let Some(remote_spi) = offered else {
        return Err(Rejection::invalid_syntax("the new IKE SA has no SPI of eight octets".into()));
    };
    if !prf::is_long_enough(suite.prf, nonce) {
        return Err(Rejection::short_nonce());
    }
    if group_of(sent) != Some(suite.group) {
        return Err(Rejection::invalid_ke(group_id(suite.group)));
    }
    let made = respond(suite.group, public);
    let made = made.map_err(|e| Rejection::invalid_syntax(e.to_string()))?;
    let our_nonce = cx.rng.nonce();
    let nonces = OwnNonces { initiator: nonce.to_vec(), responder: our_nonce.clone() };
    let (keys, spis) = (&ike.state.keys, ike.spis());
    let fresh = ppk::for_new_sa(ike.session.tunnel(), cx.trust, keys, nonce, spis, parts);
    let (base, selected) = fresh.unzip();
    let awaited = AwaitedIke { suite, spi, remote_spi, nonces, base };
    let mut payloads = vec![
        Payload::Sa(vec![proposal]),
        Payload::Nonce(our_nonce),
        Payload::KeyExchange { group: group_id(suite.group), data: made.public_value },
    ];
    payloads.extend(selected);
    let shared = vec![made.shared];
    if suite.additional.is_empty() {
        let effects = complete(ike, cx, &awaited, &shared);
        return Ok(Granted { payloads, effects });
    }
    let purpose = Purpose::Rekey(Box::new(awaited));
    payloads.push(follow_up::expect(ike, cx, suite.additional, shared, purpose)?);
    Ok(Granted { payloads, effects: Effects::none() })
}

/// Makes the IKE SA that the peer has asked for, once all keys are exchanged.
pub(super) fn complete(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    awaited: &AwaitedIke,
    shared: &[Secret],
) -> Effects {
    let &AwaitedIke { suite, spi, remote_spi, ref nonces, ref base } = awaited;
    let base = base.as_ref();
    let nonces = nonces.as_nonces();
    let inputs = KeyInputs { nonces, spis: (remote_spi, spi), originator: Originator::Peer };
    let keys = ike.state.keys.successor(suite, shared, inputs, base);
    let old = ike.local_spi;
    let effects = take_in(ike.session, cx, (spi, remote_spi), Originator::Peer, keys);
    let lowest_nonce = LowestNonce::of(nonces);
    match &mut ike.state.active {
        Some(Active::Rekey(pending)) => pending.rival = Some(IkeRival { sa: spi, lowest_nonce }),
        _ => succeed(ike.session, cx, old, spi, suite),
    }
    effects
}

fn take_in(
    session: &mut Session,
    cx: &mut Context<'_>,
    (local_spi, remote_spi): (IkeSpi, IkeSpi),
    originator: Originator,
    keys: Keys,
) -> Effects {
    let spis = originator.in_order(local_spi, remote_spi);
    cx.out.log_keys(|| keys.logged(spis, originator));
    let lifetime = session.tunnel().lifetime.of(originator.is_here());
    let established = Established {
        keys,
        active: None,
        awaited: Vec::new(),
        phase: Phase::Serving,
        unproven: originator == Originator::Peer,
        rekey_at: cx.jittered(lifetime.soft(), lifetime.hard),
        expire_at: after(cx.now, lifetime.hard),
    };
    session.take_in(IkeSa {
        local_spi,
        remote_spi,
        originator,
        window: Window::default(),
        state: established,
    });
    Effect::SpiTaken(local_spi).into()
}

fn succeed(session: &mut Session, cx: &mut Context<'_>, old: IkeSpi, new: IkeSpi, suite: IkeSuite) {
    session.note_rekeyed(cx, old, new);
    cx.out.failures.overcome(cx.now, &session.tunnel().name, Success::Renewal);
    cx.out.event(
        &session.tunnel().name,
        None,
        EventKind::Rekeyed { suite: Negotiated::Ike(suite) },
    );
}

/// Settles for the peer's rekey where ours has come to nothing.
pub(crate) fn yield_to(
    session: &mut Session,
    cx: &mut Context<'_>,
    old: IkeSpi,
    rival: &IkeRival,
) -> bool {
    let Some(suite) = session.sa(rival.sa).map(|sa| sa.state.keys.suite) else { return false };
    succeed(session, cx, old, rival.sa, suite);
    true
}

/// Takes the answer to a request of ours.
pub(crate) fn conclude(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    mut pending: PendingRekey,
    payloads: Vec<Payload>,
) -> Effects {
    let ours = &ike.session.tunnel().proposals;
    let old = ike.local_spi;
    let step = follow_up::take(pending.follow_up.take(), payloads, |parts| {
        parts.sa.and_then(|sa| accept_ike(ours, sa)).map(|s| s.additional).unwrap_or_default()
    });
    let (payloads, additional) = match step {
        Step::Ask(..) if ike.session.is_closing() => return Effects::none(),
        Step::Ask(follow_up, request) => {
            pending.follow_up = Some(follow_up);
            let active = Active::Rekey(Box::new(pending));
            ike.ask(cx, ExchangeType::IKE_FOLLOWUP_KE, &request, active);
            return Effects::none();
        }
        Step::Conclude(answer, shared) => (answer, shared),
        Step::Refused(_, payloads) => (payloads, Vec::new()),
        Step::Broken(detail) => return break_off(ike.session, cx, detail),
    };
    let parts = Parts::of(&payloads);
    if ike.session.is_closing() {
        // The successor was not there when the session began to close, and has to go like the rest.
        if let Ok((keys, remote_spi, _)) = read(ike, &pending, &parts, additional) {
            ike.session.delete_ike_next(pending.spi);
            return take_in(ike.session, cx, (pending.spi, remote_spi), Originator::ThisSide, keys);
        }
        return Effects::none();
    }
    if let Some(error) = parts.error() {
        if let Some(rival) = &pending.rival
            && yield_to(ike.session, cx, old, rival)
        {
            return Effects::none();
        }
        return conclude_error(ike, cx, &pending, error.clone(), &parts);
    }
    match read(ike, &pending, &parts, additional) {
        Ok((keys, remote_spi, lowest_nonce)) => {
            let suite = keys.suite;
            let spi = pending.spi;
            let rival = pending.rival.as_ref().filter(|r| ike.session.sa(r.sa).is_some());
            let survives =
                rival.is_none_or(|r| lowest_nonce::ours_survives(lowest_nonce, r.lowest_nonce));
            let effects = take_in(ike.session, cx, (spi, remote_spi), Originator::ThisSide, keys);
            match rival {
                // RFC 7296 §2.8.2: the side that made the redundant IKE SA deletes it; the peer deletes the old one.
                Some(rival) if !survives => {
                    yield_to(ike.session, cx, old, rival);
                    ike.session.supersede(cx, spi, rival.sa);
                    ike.session.delete_ike_next(spi);
                }
                rival => {
                    if let Some(rival) = rival {
                        ike.session.supersede(cx, rival.sa, spi);
                    }
                    succeed(ike.session, cx, old, spi, suite);
                    ike.session.delete_ike_next(old);
                }
            }
            effects
        }
        Err(detail) => break_off(ike.session, cx, detail),
    }
}

/// The peer holds an IKE SA that we cannot use: there is no safe way on.
fn break_off(session: &mut Session, cx: &mut Context<'_>, detail: String) -> Effects {
    let failure = Failure::new(FailureKind::ProtocolError, detail);
    cx.out.fail(cx.now, &session.tunnel().name, None, failure);
    session.close_and_reconnect(cx, CloseReason::RekeyFailed)
}

fn read(
    ike: &Carrier<'_>,
    pending: &PendingRekey,
    parts: &Parts<'_>,
    additional: Vec<Secret>,
) -> Result<(Keys, IkeSpi, LowestNonce), String> {
    let (Some(chosen), Some((sent, public)), Some(nonce)) =
        (parts.sa, parts.key_exchange, parts.nonce)
    else {
        return Err("the answer to the IKE SA's rekey has no SA, KE or nonce".into());
    };
    let suite = accept_ike(&ike.session.tunnel().proposals, chosen)
        .filter(|s| group_of(sent) == Some(s.group) && s.group == pending.key_exchange.group())
        .ok_or_else(|| format!("the peer chose {}, which was not offered", describe(chosen)))?;
    if !prf::is_long_enough(suite.prf, nonce) {
        return Err(SHORT_NONCE.into());
    }
    let remote_spi =
        chosen.first().and_then(peer_spi).ok_or("the new IKE SA has no SPI of eight octets")?;
    let mut shared = vec![pending.key_exchange.agree(public).map_err(|e| e.to_string())?];
    shared.extend(additional);
    let nonces = Nonces { initiator: &pending.nonce, responder: nonce };
    let base = ppk::base_of(pending.base.as_ref(), parts)?;
    let spis = (pending.spi, remote_spi);
    let inputs = KeyInputs { nonces, spis, originator: Originator::ThisSide };
    let keys = ike.state.keys.successor(suite, &shared, inputs, base);
    Ok((keys, remote_spi, LowestNonce::of(nonces)))
}

fn conclude_error(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    pending: &PendingRekey,
    error: crate::wire::payload::Notify,
    parts: &Parts<'_>,
) -> Effects {
    match error.kind {
        NotifyType::TEMPORARY_FAILURE | NotifyType::STATE_NOT_FOUND => {
            let spi = ike.local_spi;
            return ike.session.delay(cx, Task::RekeyIke(spi));
        }
        NotifyType::INVALID_KE_PAYLOAD if pending.restarts < RESTARTS => {
            match parts
                .wanted_group()
                .and_then(group_of)
                .filter(|g| ike.session.tunnel().proposals.iter().any(|p| p.groups.contains(g)))
            {
                Some(group) => send(ike, cx, group, pending.restarts + 1),
                None => fail(ike, cx, &error),
            }
        }
        NotifyType::NO_ADDITIONAL_SAS => return replace_whole(ike.session, cx, &error),
        _ => fail(ike, cx, &error),
    }
    Effects::none()
}

/// Deletes the IKE SA and makes a new one: the peer makes no SA by CREATE_CHILD_SA (RFC 7296 §4).
pub(crate) fn replace_whole(
    session: &mut Session,
    cx: &mut Context<'_>,
    error: &crate::wire::payload::Notify,
) -> Effects {
    let failure = unasked(error);
    session.break_off(cx, CloseReason::NoAdditionalSas, failure)
}

/// Tells the operator. The IKE SA stays, and after half of the rest of its life the rekey is tried again.
fn fail(ike: &mut Carrier<'_>, cx: &mut Context<'_>, error: &crate::wire::payload::Notify) {
    let asked = Asked::ike(&ike.session.tunnel().proposals).again(true);
    cx.out.fail(cx.now, &ike.session.tunnel().name, None, failure_of(error, asked));
    let now = cx.now;
    let left = ike.state.expire_at.saturating_duration_since(now);
    ike.state.rekey_at = now + (left / 2).max(Duration::from_secs(5));
}
