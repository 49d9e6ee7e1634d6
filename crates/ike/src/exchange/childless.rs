//! IKE_AUTH without a Child SA, as initiator (RFC 6023): for responders that insist on it.

use crate::context::Context;
use crate::effect::Effects;
use crate::event::EventKind;
use crate::exchange::{auth, sa_init};
use crate::sa::IkeSa;
use crate::sa::attempt::AuthSent;
use crate::session::Session;
use crate::wire::parts::Parts;
use crate::wire::payload::Payload;
use crate::wire::registry::NotifyType;

/// Returns `true` if the responder may have refused IKE_AUTH only because of the Child SA in it. It has said in
/// IKE_SA_INIT that it can do without. RFC 6023 names no error for this; strongSwan (`childless = force`) sends
/// INVALID_SYNTAX.
pub(crate) fn is_wanted(auth: &AuthSent, payloads: &[Payload]) -> bool {
    let parts = Parts::of(payloads);
    let error = parts.error().filter(|_| parts.sa.is_none());
    let refused = error.is_some_and(|error| error.kind == NotifyType::INVALID_SYNTAX);
    refused && auth.spi_in.is_some() && auth.handshake.childless && !auth.unwanted
}

/// Starts over: the responder has dropped the IKE SA. The IKE_AUTH request of the next one asks for no Child SA.
pub(crate) fn begin(session: &mut Session, cx: &mut Context<'_>, sa: IkeSa<AuthSent>) -> Effects {
    let child = sa.state.child;
    auth::release(cx, sa.state.spi_in);
    let refuses = "the peer refuses a Child SA in IKE_AUTH: the IKE SA is set up again without one";
    let warning = EventKind::Warning(refuses.into());
    cx.out.event(&session.tunnel().name, Some(&child.name), warning);
    sa_init::begin_again(session, cx, sa.local_spi, child, true)
}
