//! A refused request for a Child SA: the other forms of request for the successor of one that is up.

use super::{ask, fail, successor};
use crate::context::Context;
use crate::effect::{Effect, Effects};
use crate::event::EventKind;
use crate::negotiation::proposal::Offered;
use crate::rejection::{Asked, failure_of};
use crate::sa::active::PendingChild;
use crate::sa::child::RekeyForm;
use crate::session::{Carrier, Session};
use crate::wire::payload::Notify;
use crate::wire::registry::NotifyType;
use policy::ChildTunnel;

/// The peer refuses for good. A Child SA that it does not rekey is replaced in other [forms](RekeyForm), at last with the
/// whole IKE SA.
pub(super) fn refused(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    pending: &PendingChild,
    error: &Notify,
) -> Effects {
    let tunnel = &pending.tunnel;
    let asked = Asked::child(tunnel, Offered::by(&tunnel.pfs));
    let old = pending.rekeys.and_then(|old| ike.session.child_by_inbound(old));
    // The peer has accepted them before. In IKE_AUTH they have no key exchange, to which it may object, or which it may
    // demand.
    let same_algorithms = old.is_some_and(|old| {
        let agreed = &old.choice.algorithms;
        tunnel.proposals.iter().any(|p| (p.protection, p.esn) == (agreed.protection, agreed.esn))
    });
    let asked = if old.is_some() { asked.again(same_algorithms) } else { asked };
    let failure = failure_of(error, asked);
    let algorithms =
        matches!(error.kind, NotifyType::NO_PROPOSAL_CHOSEN | NotifyType::INVALID_KE_PAYLOAD);
    let next = pending.form.after(error.kind, tunnel.mode).filter(|_| !algorithms);
    let old = pending.rekeys.and_then(|old| ike.session.child_mut(old));
    let wish = next.zip(old).map(|(form, mut old)| {
        old.history.form = form;
        successor(&old, form)
    });
    if let Some(wish) = wish {
        // The tunnel stays up: this is no failure yet.
        let name = &ike.session.tunnel().name;
        cx.out.failures.note_child(cx.now, name, &tunnel.name, failure);
        let what = match wish.form {
            RekeyForm::Widened => "to rekey the Child SA: it is asked again, for any traffic",
            _ => "to rekey the Child SA: it is asked for a new one in its place",
        };
        warn(ike.session, cx, tunnel, what);
        return ask(ike, cx, wish);
    }
    let effects = fail(ike.session, cx, (tunnel, pending.rekeys), failure);
    let may_begin = ike.session.may_begin_successor();
    let Some(mut old) = pending.rekeys.and_then(|old| ike.session.child_mut(old)) else {
        return effects;
    };
    // The first form is tried again.
    old.history.form = RekeyForm::default();
    drop(old);
    if !may_begin || (algorithms && !same_algorithms) {
        return effects;
    }
    let what = match (algorithms, tunnel.pfs.offer.is_empty()) {
        (true, false) => "to rekey the Child SA with a key exchange: a new IKE SA replaces all",
        (true, true) => "to rekey the Child SA without a key exchange: a new IKE SA replaces all",
        (false, _) => "a new Child SA, too: a new IKE SA replaces all",
    };
    warn(ike.session, cx, tunnel, what);
    effects.and(Effect::SuccessorDue)
}

fn warn(session: &Session, cx: &mut Context<'_>, tunnel: &ChildTunnel, what: &str) {
    let warning = EventKind::Warning(format!("the peer refuses {what}"));
    cx.out.event(&session.tunnel().name, Some(&tunnel.name), warning);
}
