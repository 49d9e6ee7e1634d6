//! INFORMATIONAL with Delete (RFC 7296 §1.4.1).

use super::{create_child, follow_up, rekey_ike};
use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::effect::{Effect, Effects};
use crate::sa::active::Active;
use crate::sa::child::{ChildState, LatePackets};
use crate::session::{Carrier, Session};
use crate::task::Task;
use crate::wire::parts::status;
use crate::wire::payload::{Delete, Payload};
use crate::wire::registry::{ExchangeType, NotifyType, ProtocolId};
use esp::plane::Spi;

/// SPIs unknown to this side that a peer may delete while its answer is awaited: what bounds the memory it can take.
const DELETED_UNKNOWN: usize = 16;

/// Asks the peer to delete a Child SA.
pub(crate) fn ask_child(ike: &mut Carrier<'_>, cx: &mut Context<'_>, spi_in: Spi) {
    create_child::handover::take_over(ike.session, cx, spi_in);
    let of_it = ike.session.child_mut(spi_in).map(|mut child| {
        if child.state == ChildState::Established {
            child.state = ChildState::Unwanted;
        }
        vec![child.choice.protocol()]
    });
    // The peer may have made what was not installed here.
    let protocols = of_it.unwrap_or_else(|| ike.session.protocols());
    let payloads: Vec<Payload> = protocols
        .into_iter()
        .map(|protocol| Payload::Delete(Delete::ChildSas { protocol, spis: vec![spi_in.0] }))
        .collect();
    ike.ask(cx, ExchangeType::INFORMATIONAL, &payloads, Active::DeleteChildren(vec![spi_in]));
}

/// Asks the peer to delete an IKE SA, and with the last one everything.
pub(crate) fn ask_ike(ike: &mut Carrier<'_>, cx: &mut Context<'_>) {
    ike.ask(cx, ExchangeType::INFORMATIONAL, &[Payload::Delete(Delete::IkeSa)], Active::DeleteIke);
}

/// Tells a responder whose proof was not accepted (RFC 7296 §2.21.2). Nothing waits for its answer.
pub(crate) fn ask_refused(ike: &mut Carrier<'_>, cx: &mut Context<'_>) {
    let payloads =
        [status(NotifyType::AUTHENTICATION_FAILED, vec![]), Payload::Delete(Delete::IkeSa)];
    ike.ask(cx, ExchangeType::INFORMATIONAL, &payloads, Active::DeleteIke);
}

/// The peer has deleted its halves.
pub(crate) fn conclude_children(
    session: &mut Session,
    cx: &mut Context<'_>,
    spis: &[Spi],
) -> Effects {
    let mut effects = Effects::none();
    for spi in spis {
        effects += give_up_child(session, cx, *spi, CloseReason::DeletedHere).unwrap_or_default();
    }
    effects
}

/// Forgets a Child SA; its successor, if it has one, takes over. `None`: it is not there.
fn give_up_child(
    session: &mut Session,
    cx: &mut Context<'_>,
    spi_in: Spi,
    reason: CloseReason,
) -> Option<Effects> {
    session.forget_delete(spi_in);
    let child = session.child_by_inbound(spi_in)?;
    let (name, state) = (child.tunnel.name.clone(), child.state);
    if let ChildState::Replaced(successor) = state {
        session.promote_child(cx, successor);
    }
    let (removed, mut effects) = session.remove_child(cx, spi_in, LatePackets::Received);
    if !matches!(state, ChildState::Replaced(_)) {
        serve_again(session, spi_in, &name);
        revive(session, cx, &name);
    }
    let is_last = !matches!(state, ChildState::Replaced(_)) && !session.is_rekeying(&name);
    if is_last && session.serving_child(&name).is_none() {
        cx.out.close(cx.now, session.tunnel(), Some(&name), reason);
        if state == ChildState::Established {
            effects.extend(removed.map(|c| Effect::Lost(c.lost(cx.now))));
        }
    }
    Some(effects)
}

/// Lets a Child SA serve on whose successor is gone: the peer has undone the rekey.
fn serve_again(session: &mut Session, successor: Spi, name: &str) {
    let spi = session
        .children()
        .of_tunnel(name)
        .find(|c| c.state == ChildState::Replaced(successor))
        .map(|c| c.spi_in);
    if let Some(spi) = spi.filter(|spi| !session.is_deleting(*spi)) {
        session.set_state(spi, ChildState::Established);
    }
}

/// Lets a redundant Child SA serve after all: the peer was to delete it, and has deleted the other one.
fn revive(session: &mut Session, cx: &mut Context<'_>, name: &str) {
    if session.serving_child(name).is_some() {
        return;
    }
    let spare = session.children().of_tunnel(name).find(|c| {
        c.state == ChildState::Unwanted && !c.originator.is_here() && !session.is_deleting(c.spi_in)
    });
    // There is none.
    let Some(spare) = spare.map(|c| c.spi_in) else { return };
    session.set_state(spare, ChildState::Established);
    session.promote_child(cx, spare);
}

/// Answers the peer's Delete of Child SAs: the SPIs of our halves, but for those we are deleting ourselves (RFC 7296
/// §1.4.1, §2.25.1).
pub(crate) fn answer_children(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    protocol: ProtocolId,
    spis: &[u32],
) -> (Option<Payload>, Effects) {
    let ours: Vec<Spi> = match &ike.state.active {
        Some(Active::DeleteChildren(spis)) => spis.clone(),
        _ => Vec::new(),
    };
    let mut deleted = Vec::new();
    let mut effects = Effects::none();
    for spi in spis {
        let Some(spi_in) = ike.session.child_by_outbound(protocol, Spi(*spi)).map(|c| c.spi_in)
        else {
            note_unknown(ike.session, Spi(*spi));
            continue;
        };
        let given_up = give_up_child(ike.session, cx, spi_in, CloseReason::DeletedByPeer);
        if given_up.is_some() && !ours.contains(&spi_in) {
            deleted.push(spi_in.0);
        }
        effects += given_up.unwrap_or_default();
    }
    let answer = (!deleted.is_empty())
        .then_some(Payload::Delete(Delete::ChildSas { protocol, spis: deleted }));
    (answer, effects)
}

/// The peer deletes what this side does not know: it may be what an answer still on its way would create.
fn note_unknown(session: &mut Session, spi_out: Spi) {
    for active in session.sas_mut().filter_map(|sa| sa.state.active.as_mut()) {
        if let Active::Child(pending) = active
            && pending.deleted.len() < DELETED_UNKNOWN
        {
            pending.deleted.push(spi_out);
        }
    }
}

/// Does what the peer's Delete of an IKE SA asks for, after it was answered.
pub(crate) fn carry_out(session: &mut Session, cx: &mut Context<'_>) -> Effects {
    // The request had no Delete of an IKE SA.
    let Some((spi, reason)) = session.take_deleted() else { return Effects::none() };
    // The session has ended while it answered.
    let Some(ike) = session.carrier(spi) else { return Effects::none() };
    if ike.session.has_one_sa() {
        return ike.session.end_by_peer(cx, reason, None);
    }
    drop_ike(ike, cx)
}

/// Forgets an IKE SA; the session ends with the last.
pub(crate) fn drop_ike(ike: Carrier<'_>, cx: &mut Context<'_>) -> Effects {
    if ike.session.has_one_sa() {
        return ike.session.end(cx, CloseReason::Deleted, None);
    }
    let (session, sa) = ike.remove();
    let mut effects = Effects::from(Effect::SpiGivenUp(sa.local_spi));
    sa.state.awaited.iter().for_each(|awaited| follow_up::give_up(cx, awaited));
    // A peer that deletes the predecessor knows the new one; if no peer does, waiting is over, too.
    session.sas_mut().for_each(|sa| sa.state.unproven = false);
    match sa.state.active {
        // RFC 7296 §2.25.2: the peer's rekey of the same IKE SA stands, ours is forgotten.
        Some(Active::Rekey(pending)) => {
            if let Some(rival) = &pending.rival {
                rekey_ike::yield_to(session, cx, sa.local_spi, rival);
            }
        }
        Some(Active::Child(pending)) => effects += create_child::start_over(session, cx, &pending),
        Some(Active::DeleteChildren(spis)) => {
            session.queue_all(spis.into_iter().map(Task::DeleteChild))
        }
        Some(Active::Addresses(pending)) => session.queue_all([pending.purpose.task()]),
        _ => {}
    }
    session.replace_current(sa.local_spi);
    effects
}
