//! When this side begins to send on a Child SA that takes the place of another one.
//!
//! This side sends on an SA that it has asked for at once; to OpenIKED only after the next exchange. On one that the
//! peer has asked for, it sends as the Delete of the old one comes, which proves that the peer has the new one. Beside
//! another session of the peer, `session/reauthentication.rs` decides.

use crate::context::Context;
use crate::product::ProductKind;
use crate::sa::child::ChildState;
use crate::session::Session;
use crate::task::Task;
use crate::wire::payload::{Delete, Payload};
use esp::plane::Spi;

/// Returns `true` if the peer may answer before it can receive on a Child SA, though RFC 7296 §2.8 has this side send
/// then. OpenIKED does. It handles one message after the other, so that its answer to the next request shows that it
/// can receive.
pub(super) fn waits(session: &Session, cx: &Context<'_>) -> bool {
    let product = cx.out.products.of(&session.tunnel().name);
    product.is_some_and(|product| product.kind == ProductKind::OpenIked)
}

/// Has the peer delete a Child SA that this side has replaced. If the new one waits, a sign of life comes first.
pub(super) fn retire(session: &mut Session, cx: &Context<'_>, old: Spi, waits: bool) {
    session.delete_when_drained(cx, old);
    if waits {
        session.queue_next(Task::Liveness);
    }
}

/// The peer has answered a sign of life: it can receive on the Child SAs that this side has made in place of others.
pub(crate) fn conclude_waiting(session: &mut Session, cx: &mut Context<'_>) {
    let replaced = session.children().iter().filter_map(|child| match child.state {
        ChildState::Replaced(successor)
            if session
                .child_by_inbound(successor)
                .is_some_and(|c| c.standby && c.originator.is_here()) =>
        {
            Some(child.spi_in)
        }
        _ => None,
    });
    for old in replaced.collect::<Vec<_>>() {
        take_over(session, cx, old);
        session.delete_when_drained(cx, old);
    }
}

/// Sends on the successor of a Child SA that the peer is about to be asked to delete.
pub(crate) fn take_over(session: &mut Session, cx: &mut Context<'_>, old: Spi) {
    let state = session.child_by_inbound(old).map(|child| child.state);
    if let Some(ChildState::Replaced(successor)) = state {
        session.promote_child(cx, successor);
    }
}

/// Sends on the successors of Child SAs that the peer deletes, before they go. Returns `true` if this side has sent on
/// one of them until now.
pub(crate) fn take_over_deleted(
    session: &mut Session,
    cx: &mut Context<'_>,
    payloads: &[Payload],
) -> bool {
    let deletes = payloads.iter().filter_map(|payload| match payload {
        Payload::Delete(Delete::ChildSas { protocol, spis }) => Some((*protocol, spis)),
        _ => None,
    });
    let deleted =
        deletes.flat_map(|(protocol, spis)| spis.iter().map(move |s| (protocol, Spi(*s))));
    let mut has_sent = false;
    for (protocol, spi) in deleted {
        let Some(child) = session.child_by_outbound(protocol, spi) else { continue };
        let ChildState::Replaced(successor) = child.state else { continue };
        has_sent |= session.child_by_inbound(successor).is_some_and(|c| c.standby);
        session.promote_child(cx, successor);
    }
    has_sent
}
