//! INFORMATIONAL (RFC 7296 §1.4): signs of life, deletions, notifications.

use super::address_update;
use super::{Answer, delete};
use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::datagram::Datagram;
use crate::effect::Effects;
use crate::sa::active::Active;
use crate::sa::active::Purpose;
use crate::session::Session;
use crate::wire::parts::Parts;
use crate::wire::payload::{Delete, Payload};
use crate::wire::registry::{ExchangeType, NotifyType};

/// Asks whether the peer lives.
pub(crate) fn ask_liveness(session: &mut Session, cx: &mut Context<'_>, index: usize) {
    // RFC 4555 §3.8: whether the NAT still shows the same address.
    if session.is_mobile() && session.begun_here && session.path.nat_local {
        return address_update::ask(session, cx, index, Purpose::Liveness);
    }
    let check = Active::Liveness(session.standing_by());
    session.send_request(cx, index, ExchangeType::INFORMATIONAL, &[], check);
}

/// Answers an INFORMATIONAL request.
pub(crate) fn answer(
    session: &mut Session,
    cx: &mut Context<'_>,
    index: usize,
    payloads: &[Payload],
    datagram: Datagram<'_>,
) -> Answer {
    let mut answer = address_update::answer(session, cx, index, payloads, datagram);
    let mut effects = Effects::none();
    for payload in payloads {
        match payload {
            Payload::Delete(Delete::ChildSas { protocol, spis }) => {
                let (deleted, caused) =
                    delete::answer_children(session, cx, index, *protocol, spis);
                answer.extend(deleted);
                effects += caused;
            }
            Payload::Delete(Delete::IkeSa) => {
                let reason =
                    session.deleted.take().map_or_else(|| CloseReason::DeletedByPeer, |(_, r)| r);
                session.deleted = Some((session.sas[index].local_spi, reason));
            }
            Payload::Notify(n) if n.kind == NotifyType::AUTHENTICATION_FAILED => {
                let reason = CloseReason::ProofRefusedByPeer;
                session.deleted = Some((session.sas[index].local_spi, reason));
            }
            // RFC 7296 §2.21.2: an initiator that could not read the answer of IKE_AUTH says so next.
            Payload::Notify(n) if follows_auth(session, index) && is_unread(n.kind) => {
                let reason = CloseReason::AuthAnswerUnread(n.kind);
                session.deleted = Some((session.sas[index].local_spi, reason));
            }
            Payload::Notify(n) if n.kind == NotifyType::AUTH_LIFETIME => {
                session.plan_renewal(cx, &Parts::of(payloads));
            }
            _ => {}
        }
    }
    Answer { payloads: answer, fatal: false, effects }
}

/// Returns `true` if the request being answered is the first after IKE_AUTH.
fn follows_auth(session: &Session, index: usize) -> bool {
    let sa = &session.sas[index];
    session.rekeys == 0 && !sa.initiator && sa.window.expects(2)
}

fn is_unread(kind: NotifyType) -> bool {
    matches!(kind, NotifyType::INVALID_SYNTAX | NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD)
}
