//! A refused request for a Child SA: the other ways to the successor of one that is up.

use super::{ask, fail, successor};
use crate::context::Context;
use crate::effect::{Effect, Effects};
use crate::event::EventKind;
use crate::negotiation::proposal::Offered;
use crate::rejection::{Asked, failure_of};
use crate::sa::active::PendingChild;
use crate::sa::child::Way;
use crate::session::Session;
use crate::wire::payload::Notify;
use crate::wire::registry::NotifyType;
use policy::ChildProposal;

/// The peer refuses for good. A Child SA that it does not rekey is replaced in other [ways](Way), at last with the
/// whole IKE SA.
pub(super) fn refused(
    session: &mut Session,
    cx: &mut Context<'_>,
    index: usize,
    pending: &PendingChild,
    error: &Notify,
) -> Effects {
    let tunnel = &pending.tunnel;
    let asked = Asked::child(tunnel, Offered::by(&tunnel.pfs));
    let old = pending.rekeys.and_then(|old| session.child_by_inbound(old));
    // The peer has accepted them before. In IKE_AUTH they have no key exchange, to which it may object, or which it may
    // demand.
    let same_algorithms = old.is_some_and(|old| {
        let accepted =
            |p: &ChildProposal| (p.protection, p.esn) == (old.choice.protection, old.choice.esn);
        tunnel.proposals.iter().any(accepted)
    });
    let asked = if old.is_some() { asked.again(same_algorithms) } else { asked };
    let failure = failure_of(error, asked);
    let warn = |cx: &mut Context<'_>, session: &Session, what: &str| {
        let warning = EventKind::Warning(format!("the peer refuses {what}"));
        cx.out.event(&session.tunnel.name, Some(&tunnel.name), warning);
    };
    let algorithms =
        matches!(error.kind, NotifyType::NO_PROPOSAL_CHOSEN | NotifyType::INVALID_KE_PAYLOAD);
    let next = pending.way.after(error.kind, tunnel.mode).filter(|_| !algorithms);
    let old = pending.rekeys.and_then(|old| session.child_mut(old));
    let wish = next.zip(old).map(|(way, mut old)| {
        old.history.way = way;
        successor(&old, way)
    });
    if let Some(wish) = wish {
        // The tunnel stays up: this is no failure yet.
        let name = &session.tunnel.name;
        cx.out.failures.note_child(cx.now, name, &tunnel.name, failure);
        warn(
            cx,
            session,
            match wish.way {
                Way::Widened => "to rekey the Child SA: it is asked again, for any traffic",
                _ => "to rekey the Child SA: it is asked for a new one in its place",
            },
        );
        return ask(session, cx, index, wish);
    }
    let effects = fail(session, cx, (tunnel, pending.rekeys), failure);
    let may_begin = session.may_begin_successor();
    let Some(mut old) = pending.rekeys.and_then(|old| session.child_mut(old)) else {
        return effects;
    };
    // The first way is tried again.
    old.history.way = Way::default();
    drop(old);
    if !may_begin || (algorithms && !same_algorithms) {
        return effects;
    }
    warn(
        cx,
        session,
        match (algorithms, tunnel.pfs.offer.is_empty()) {
            (true, false) => "to rekey the Child SA with a key exchange: a new IKE SA replaces all",
            (true, true) => {
                "to rekey the Child SA without a key exchange: a new IKE SA replaces all"
            }
            (false, _) => "a new Child SA, too: a new IKE SA replaces all",
        },
    );
    effects.and(Effect::SuccessorDue)
}
