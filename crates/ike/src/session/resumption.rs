//! The tickets of session resumption (RFC 5723) that a session gives and has been given.

use super::Session;
use crate::context::Context;
use crate::failure::FailureKind;
use crate::resumption::Authentication;
use crate::sa::attempt::Attempt;
use crate::task::Task;
use std::time::Duration;

impl Session {
    /// The proofs on which it rests, if its tunnel has tickets.
    pub fn authentication(&self) -> Option<&Authentication> {
        self.authentication.as_deref()
    }

    pub fn authentication_mut(&mut self) -> Option<&mut Authentication> {
        self.authentication.as_deref_mut()
    }

    /// The resumptions since both sides proved by their credentials who they are, if it is one.
    pub fn resumptions(&self) -> Option<u8> {
        self.authentication().map(|proofs| proofs.resumptions).filter(|times| *times > 0)
    }

    /// The time since both sides proved by their credentials who they are, as far as that was in another session.
    pub fn resumed_after(&self, cx: &Context<'_>) -> Duration {
        let resumed = self.authentication().filter(|proofs| proofs.resumptions > 0);
        let age = resumed.zip(cx.resumption.unix(cx.now));
        age.map_or(Duration::ZERO, |(proofs, unix)| {
            Duration::from_secs(unix.saturating_sub(proofs.proved))
        })
    }

    /// The ticket that this side has given counts no more (RFC 5723 §6.2).
    pub fn revoke_ticket(&mut self, cx: &mut Context<'_>) {
        let given = self.authentication.as_mut().and_then(|proofs| proofs.given.take());
        if let Some((given, unix)) = given.zip(cx.resumption.unix(cx.now)) {
            cx.resumption.spent.add(&self.tunnel.name, given, unix);
        }
    }

    /// The IKE SA has been rekeyed: its tickets are void, and another one is asked for (RFC 5723 §6.2).
    pub(super) fn renew_ticket(&mut self, cx: &mut Context<'_>) {
        self.revoke_ticket(cx);
        let Some(proofs) = &mut self.authentication else { return };
        proofs.kept = None;
        if self.begun_here() {
            self.queue(Task::AskTicket);
        }
    }

    /// The session ends; `None`: this side has chosen so. If the peer is silent, a ticket that this side has been given
    /// is kept, and one that it has given counts: the peer may come back with it. Otherwise the IKE SA was deleted, and
    /// its tickets with it.
    pub(super) fn leave_tickets(&mut self, cx: &mut Context<'_>, failure: Option<FailureKind>) {
        if let Some(Attempt::Resume(sa)) = &mut self.attempt
            && let Some(FailureKind::NoAnswer | FailureKind::NoLocalAddress | FailureKind::NoRoute) =
                failure
            && let Some(mut kept) = sa.state.kept.take()
        {
            // A ticket that has not left this host may go first again.
            kept.unanswered = failure == Some(FailureKind::NoAnswer);
            cx.resumption.keep(*kept);
        }
        if failure != Some(FailureKind::NoAnswer) {
            return self.revoke_ticket(cx);
        }
        if let Some(kept) = self.authentication.take().and_then(|proofs| proofs.kept) {
            cx.resumption.keep(*kept);
        }
    }
}
