//! INFORMATIONAL (RFC 7296 §1.4): signs of life, deletions, notifications.

use super::address_update;
use super::{Answer, delete, ticket};
use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::datagram::Datagram;
use crate::effect::Effects;
use crate::originator::Originator;
use crate::sa::active::Active;
use crate::sa::active::Purpose;
use crate::session::Carrier;
use crate::wire::parts::Parts;
use crate::wire::payload::{Delete, Payload};
use crate::wire::registry::{ExchangeType, NotifyType};

/// Asks whether the peer lives.
pub(crate) fn ask_liveness(ike: &mut Carrier<'_>, cx: &mut Context<'_>) {
    // RFC 4555 §3.8: whether the NAT still shows the same address.
    if ike.session.is_mobile() && ike.session.begun_here() && ike.session.path().nat_local {
        return address_update::ask(ike, cx, Purpose::Liveness);
    }
    let check = Active::Liveness(ike.session.standing_by());
    ike.ask(cx, ExchangeType::INFORMATIONAL, &[], check);
}

/// Answers an INFORMATIONAL request.
pub(crate) fn answer(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    payloads: &[Payload],
    datagram: Datagram<'_>,
) -> Answer {
    let mut answer = address_update::answer(ike, cx, payloads, datagram);
    answer.extend(ticket::grant(ike, cx, &Parts::of(payloads)));
    let mut effects = Effects::none();
    for payload in payloads {
        match payload {
            Payload::Delete(Delete::ChildSas { protocol, spis }) => {
                let (deleted, caused) = delete::answer_children(ike, cx, *protocol, spis);
                answer.extend(deleted);
                effects += caused;
            }
            Payload::Delete(Delete::IkeSa) => {
                // Another payload of the same request may have told why.
                let told = ike.session.take_deleted().map(|(_, reason)| reason);
                let spi = ike.local_spi;
                ike.session.note_deleted(spi, told.unwrap_or(CloseReason::DeletedByPeer));
            }
            Payload::Notify(n) if n.kind == NotifyType::AUTHENTICATION_FAILED => {
                let reason = CloseReason::ProofRefusedByPeer;
                let spi = ike.local_spi;
                ike.session.note_deleted(spi, reason);
            }
            // RFC 7296 §2.21.2: an initiator that could not read the answer of IKE_AUTH says so next.
            Payload::Notify(n) if follows_auth(ike) && is_unread(n.kind) => {
                let reason = CloseReason::AuthAnswerUnread(n.kind);
                let spi = ike.local_spi;
                ike.session.note_deleted(spi, reason);
            }
            Payload::Notify(n) if n.kind == NotifyType::AUTH_LIFETIME => {
                ike.session.plan_reauthentication(cx, &Parts::of(payloads));
            }
            _ => {}
        }
    }
    Answer { payloads: answer, fatal: false, effects }
}

/// Returns `true` if the request being answered is the first after IKE_AUTH.
fn follows_auth(ike: &Carrier<'_>) -> bool {
    ike.session.rekeys() == 0 && ike.originator == Originator::Peer && ike.window.expects(2)
}

fn is_unread(kind: NotifyType) -> bool {
    matches!(kind, NotifyType::INVALID_SYNTAX | NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD)
}
