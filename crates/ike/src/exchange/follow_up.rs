//! IKE_FOLLOWUP_KE: the additional key exchanges behind CREATE_CHILD_SA (RFC 9370 §2.2.4).

use crate::context::Context;
use crate::crypto::key_exchange::PrivateKey;
use crate::deadlines::after;
use crate::negotiation::suite::Additional;
use crate::negotiation::transforms::{group_id, group_of};
use crate::rejection::Rejection;
use crate::sa::follow_up::{Awaited, FollowUp, Purpose};
use crate::session::{Carrier, Session};
use crate::wire::parts::{Parts, status};
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::NotifyType;
use policy::Secret;

/// The most requests of the peer, on one IKE SA, whose additional key exchanges are awaited.
const MOST_AWAITED: usize = 4;

/// Octets of the data by which a request is known.
const LINK: usize = 16;

/// The next step of a request of ours after an answer.
pub(crate) enum Step {
    /// Another IKE_FOLLOWUP_KE with these payloads.
    Ask(Box<FollowUp>, Vec<Payload>),
    /// All is exchanged, or there was nothing to exchange: the answer to CREATE_CHILD_SA, and the secrets of the
    /// additional key exchanges.
    Conclude(Vec<Payload>, Vec<Secret>),
    /// The peer refuses to go on.
    Refused(Notify, Vec<Payload>),
    /// The answer has an error.
    Broken(String),
}

/// Takes an answer. `chosen`: the additional key exchanges that the answer to CREATE_CHILD_SA chooses.
pub(crate) fn take(
    under_way: Option<Box<FollowUp>>,
    payloads: Vec<Payload>,
    chosen: impl FnOnce(&Parts<'_>) -> Additional,
) -> Step {
    let parts = Parts::of(&payloads);
    let link = parts.notify(NotifyType::ADDITIONAL_KEY_EXCHANGE).map(|n| n.data.clone());
    let Some(mut follow_up) = under_way else {
        let additional = match parts.error() {
            Some(_) => Additional::default(),
            None => chosen(&parts),
        };
        let Some(first) = additional.methods().next() else {
            return Step::Conclude(payloads, Vec::new());
        };
        let Some(link) = link else { return without_link() };
        let key_exchange = PrivateKey::generate(first);
        let request = request(&key_exchange, link);
        let shared = Vec::new();
        let follow_up = FollowUp { answer: payloads, additional, shared, key_exchange };
        return Step::Ask(Box::new(follow_up), request);
    };
    if let Some(error) = parts.error() {
        return Step::Refused(error.clone(), payloads);
    }
    let key = &follow_up.key_exchange;
    let shared = match parts.key_exchange {
        Some((sent, public)) if group_of(sent) == Some(key.group()) => key.agree(public),
        _ => {
            let group = key.group();
            return Step::Broken(format!("the answer has no public value of {group}"));
        }
    };
    match shared {
        Ok(shared) => follow_up.shared.push(shared),
        Err(error) => return Step::Broken(error.to_string()),
    }
    let Some(next) = follow_up.additional.methods().nth(follow_up.shared.len()) else {
        return Step::Conclude(follow_up.answer, follow_up.shared);
    };
    let Some(link) = link else { return without_link() };
    follow_up.key_exchange = PrivateKey::generate(next);
    let request = request(&follow_up.key_exchange, link);
    Step::Ask(follow_up, request)
}

fn without_link() -> Step {
    Step::Broken("the answer says nothing of the key exchange that comes next".into())
}

fn request(key: &PrivateKey, link: Vec<u8>) -> Vec<Payload> {
    let data = key.public_value().to_vec();
    vec![
        Payload::KeyExchange { group: group_id(key.group()), data },
        status(NotifyType::ADDITIONAL_KEY_EXCHANGE, link),
    ]
}

/// Data by which the peer's next request is known.
pub(super) fn new_link(cx: &mut Context<'_>) -> Vec<u8> {
    let mut link = vec![0; LINK];
    cx.rng.fill(&mut link);
    link
}

/// Awaits the additional key exchanges of a request of the peer. Returns the payload of the answer that says so.
pub(super) fn expect(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    additional: Additional,
    shared: Vec<Secret>,
    purpose: Purpose,
) -> Result<Payload, Rejection> {
    let link = new_link(cx);
    let until = after(cx.now, cx.config.patience());
    let established = &mut ike.state;
    if established.awaited.len() >= MOST_AWAITED {
        return Err(Rejection::temporary());
    }
    let told = status(NotifyType::ADDITIONAL_KEY_EXCHANGE, link.clone());
    established.awaited.push(Awaited { link, additional, shared, until, purpose });
    Ok(told)
}

/// Gives up on a request whose additional key exchanges have not come.
pub(crate) fn give_up(cx: &mut Context<'_>, awaited: &Awaited) {
    awaited.spi_in().into_iter().for_each(|spi| cx.release_spi(spi));
}

/// Gives up on those that are too late.
pub(crate) fn handle_timeout(session: &mut Session, cx: &mut Context<'_>) {
    for sa in session.sas_mut() {
        let late: Vec<Awaited> = sa.state.awaited.extract_if(.., |a| a.until <= cx.now).collect();
        late.iter().for_each(|awaited| give_up(cx, awaited));
    }
}
