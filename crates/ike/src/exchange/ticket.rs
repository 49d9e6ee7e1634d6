//! Tickets of session resumption are asked for and given in IKE_AUTH, and in INFORMATIONAL once the IKE SA is rekeyed
//! (RFC 5723 §4.1, §4.2).

use crate::context::Context;
use crate::deadlines::after;
use crate::negotiation::proposal::proposal_of;
use crate::policy_index::fingerprint_of_name;
use crate::proof::Checked;
use crate::resumption::{Authentication, Kept, LONGEST_LIFE, MOST_RESUMPTIONS, credential};
use crate::sa::active::Active;
use crate::session::{Carrier, Session};
use crate::ticket::{Content, fingerprint_of_id};
use crate::wire::parts::{Parts, status};
use crate::wire::payload::{Identification, Payload};
use crate::wire::registry::{AuthMethod, ExchangeType, NotifyType};
use policy::IkeTunnel;
use std::sync::Arc;
use std::time::Duration;

/// Octets of the longest ticket that this side keeps. Those of libreswan have about 900.
const LONGEST: usize = 2048;

/// The proofs of a session that both sides have just given by their credentials, the initiator as `initiator`. `None`:
/// its tunnel has no tickets. `checked`: the check of the peer's signature.
pub(super) fn authentication(
    cx: &Context<'_>,
    tunnel: &IkeTunnel,
    initiator: &Identification,
    method: AuthMethod,
    checked: Option<Checked>,
) -> Option<Authentication> {
    let proved = cx.resumption.unix(cx.now).filter(|_| tunnel.resumption)?;
    Some(Authentication {
        proved,
        until: checked.map_or(u64::MAX, |checked| checked.until.as_secs()),
        resumptions: 0,
        method,
        initiator: fingerprint_of_id(initiator),
        // The trust store may have been replaced since.
        credential: credential(tunnel, &checked.map_or(*cx.trust.digest(), |c| c.trust)),
        given: None,
        kept: None,
    })
}

/// The initiator's request for a ticket, where the policy consents.
pub(super) fn request(session: &Session, cx: &Context<'_>) -> Option<Payload> {
    let wanted = session.begun_here() && session.tunnel().resumption;
    (wanted && cx.resumption.unix(cx.now).is_some())
        .then(|| status(NotifyType::TICKET_REQUEST, vec![]))
}

/// Asks for a ticket of an IKE SA that has come of a rekey.
pub(crate) fn ask(ike: &mut Carrier<'_>, cx: &mut Context<'_>) {
    let Some(request) = request(ike.session, cx) else { return };
    ike.ask(cx, ExchangeType::INFORMATIONAL, &[request], Active::Ticket);
}

/// The responder's answer to a request for a ticket: one, or that there is none.
pub(super) fn grant(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    parts: &Parts<'_>,
) -> Option<Payload> {
    parts.notify(NotifyType::TICKET_REQUEST)?;
    let granted = seal(ike, cx);
    Some(granted.unwrap_or_else(|| status(NotifyType::TICKET_NACK, vec![])))
}

fn seal(ike: &mut Carrier<'_>, cx: &mut Context<'_>) -> Option<Payload> {
    let unix = cx.resumption.unix(cx.now)?;
    let tunnel = Arc::clone(ike.session.tunnel());
    let proofs = ike.session.authentication()?;
    let may = tunnel.resumption
        && !ike.session.begun_here()
        && proofs.resumptions < MOST_RESUMPTIONS
        && cx.resumption.spent.has_room(&tunnel.name, unix);
    // RFC 5723 §6.2: the ticket ends with the IKE SA, and with the time until the next authentication.
    let of_sa = ike.state.expire_at.saturating_duration_since(cx.now).as_secs();
    let of_proofs = cx.config.reauthenticate.map_or(u64::MAX, |lifetime| lifetime.as_secs());
    let until = proofs.until.min(proofs.proved.saturating_add(of_proofs));
    let life = LONGEST_LIFE.min(of_sa).min(until.saturating_sub(unix));
    if !may || life == 0 {
        return None;
    }
    let old = ike.state.keys.resumable();
    let content = Content {
        expires: unix + life,
        proved: proofs.proved,
        proof_until: proofs.until,
        resumptions: proofs.resumptions,
        method: proofs.method,
        tunnel: fingerprint_of_name(&tunnel),
        initiator: proofs.initiator,
        responder: fingerprint_of_id(&Identification::of(&tunnel.local.identity)),
        credential: proofs.credential,
        ppk: old.ppk.as_ref().map(|ppk| *ppk.hash()),
        quantum_safe: old.quantum_safe,
        spis: ike.spis(),
        suite: proposal_of(&old.suite),
        sk_d: old.sk_d,
    };
    let keys = cx.trust.ticket_keys();
    let (id, ticket) = cx.resumption.sealer.seal(&cx.config.crypto, keys, &content)?;
    // RFC 5723 §6.2: an IKE SA has one ticket.
    ike.session.revoke_ticket(cx);
    if let Some(proofs) = ike.session.authentication_mut() {
        proofs.given = Some((id, content.expires));
    }
    let seconds = u32::try_from(life).unwrap_or(u32::MAX).to_be_bytes();
    Some(status(NotifyType::TICKET_LT_OPAQUE, [seconds.as_slice(), &ticket].concat()))
}

/// Keeps the ticket that the responder has given, if there is one.
pub(crate) fn keep(ike: &mut Carrier<'_>, cx: &Context<'_>, parts: &Parts<'_>) {
    let given = parts.notify(NotifyType::TICKET_LT_OPAQUE);
    let given = given.and_then(|given| given.data.split_first_chunk());
    let Some((seconds, ticket)) = given.filter(|(_, t)| (1..=LONGEST).contains(&t.len())) else {
        return;
    };
    let lifetime = Duration::from_secs(u64::from(u32::from_be_bytes(*seconds)).min(LONGEST_LIFE));
    let old = ike.state.keys.resumable();
    let tunnel = Arc::clone(ike.session.tunnel());
    let Some(proofs) = ike.session.authentication_mut() else { return };
    proofs.kept = Some(Box::new(Kept {
        ticket: ticket.to_vec(),
        expires: after(cx.now, lifetime),
        old,
        tunnel,
        proved: proofs.proved,
        until: proofs.until,
        resumptions: proofs.resumptions,
        method: proofs.method,
        initiator: proofs.initiator,
        credential: proofs.credential,
        unanswered: false,
    }));
}
