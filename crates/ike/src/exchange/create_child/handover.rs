//! When this side begins to send on a Child SA that it has made in place of another one.

use crate::context::Cx;
use crate::product::ProductKind;
use crate::sa::child::ChildState;
use crate::session::Session;
use crate::task::Task;
use esp::plane::Spi;

/// Returns `true` if the peer may answer before it can receive on a Child SA, though RFC 7296 §2.8 has this side send then.
/// OpenIKED does. It handles one message after the other, so that its answer to the next request shows that it can receive.
pub(super) fn waits(session: &Session, cx: &Cx<'_>) -> bool {
    let product = cx.out.products.of(&session.tunnel.name);
    product.is_some_and(|product| product.kind == ProductKind::OpenIked)
}

/// Has the peer delete a Child SA that this side has replaced. If the new one waits, a sign of life comes first.
pub(super) fn retire(session: &mut Session, old: Spi, waits: bool) {
    session.tasks.push_front(Task::DeleteChild(old));
    if waits {
        session.tasks.push_front(Task::Liveness);
    }
}

/// Sends on the successor of a Child SA that the peer is about to be asked to delete.
pub(crate) fn take_over(session: &mut Session, cx: &mut Cx<'_>, old: Spi) {
    let state = session.child_by_inbound(old).map(|child| child.state);
    if let Some(ChildState::Replaced(successor)) = state {
        session.promote_child(cx, successor);
    }
}
