//! The responder's side of IKE_FOLLOWUP_KE (RFC 9370 §2.2.4).

use super::follow_up::{give_up, new_link};
use super::{Granted, child_sa, rekey_ike};
use crate::collision::{self, Request};
use crate::context::Context;
use crate::crypto::key_exchange::respond;
use crate::deadlines::after;
use crate::effect::Effects;
use crate::negotiation::transforms::{group_id, group_of};
use crate::rejection::Rejection;
use crate::sa::follow_up::{Awaited, Purpose};
use crate::session::Carrier;
use crate::wire::parts::{Parts, status};
use crate::wire::payload::Payload;
use crate::wire::registry::NotifyType;

/// Answers an IKE_FOLLOWUP_KE request.
pub(crate) fn answer(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    payloads: &[Payload],
) -> Result<Granted, Rejection> {
    let parts = Parts::of(payloads);
    let Some(link) = parts.notify(NotifyType::ADDITIONAL_KEY_EXCHANGE) else {
        let detail = "IKE_FOLLOWUP_KE does not say what it follows";
        return Err(Rejection::invalid_syntax(detail.into()));
    };
    let established = &mut ike.state;
    let place = established.awaited.iter().position(|a| a.link == link.data);
    let Some(mut awaited) = place.map(|place| established.awaited.remove(place)) else {
        return Err(Rejection::state_not_found());
    };
    match go_on(ike, cx, &mut awaited, &parts) {
        Ok((own, Some(next))) => {
            awaited.link = next.clone();
            awaited.until = after(cx.now, cx.config.patience());
            ike.state.awaited.push(awaited);
            let payloads = vec![own, status(NotifyType::ADDITIONAL_KEY_EXCHANGE, next)];
            Ok(Granted { payloads, effects: Effects::none() })
        }
        Ok((own, None)) => {
            let effects = complete(ike, cx, awaited)?;
            Ok(Granted { payloads: vec![own], effects })
        }
        Err(rejection) => {
            give_up(cx, &awaited);
            Err(rejection)
        }
    }
}

/// Makes one key exchange; with the data for the next one, if there is one.
fn go_on(
    ike: &Carrier<'_>,
    cx: &mut Context<'_>,
    awaited: &mut Awaited,
    parts: &Parts<'_>,
) -> Result<(Payload, Option<Vec<u8>>), Rejection> {
    // Much may have happened since CREATE_CHILD_SA.
    let request = match &awaited.purpose {
        Purpose::Rekey(_) => Request::RekeyIke,
        Purpose::Child(child) => match child.rekeys {
            None => Request::CreateChild,
            Some(old) => match ike.session.child_by_inbound(old) {
                Some(old) => Request::RekeyChild(old.choice.protocol(), old.spi_out),
                None => return Err(Rejection::state_not_found()),
            },
        },
    };
    collision::admit(ike.session, ike, request)?;
    // The first secret is that of CREATE_CHILD_SA.
    let done = awaited.shared.len() - 1;
    let mut rest = awaited.additional.methods().skip(done);
    let (Some(group), next) = (rest.next(), rest.next()) else {
        return Err(Rejection::state_not_found());
    };
    let Some((_, public)) = parts.key_exchange.filter(|(sent, _)| group_of(*sent) == Some(group))
    else {
        return Err(Rejection::invalid_syntax(format!(
            "IKE_FOLLOWUP_KE without a public value of {group}, which was agreed on"
        )));
    };
    let made = respond(group, public).map_err(|e| Rejection::invalid_syntax(e.to_string()))?;
    awaited.shared.push(made.shared);
    let link = next.map(|_| new_link(cx));
    Ok((Payload::KeyExchange { group: group_id(group), data: made.public_value }, link))
}

fn complete(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    awaited: Awaited,
) -> Result<Effects, Rejection> {
    let spi_in = awaited.spi_in();
    let Awaited { shared, purpose, .. } = awaited;
    let made = match purpose {
        Purpose::Rekey(made) => Ok(rekey_ike::complete(ike, cx, &made, &shared)),
        Purpose::Child(child) => child_sa::complete(ike, cx, *child, &shared),
    };
    if made.is_err() {
        spi_in.into_iter().for_each(|spi| cx.release_spi(spi));
    }
    made
}
