//! The peer has agreed to a Child SA that this side asked for: its answer is read, the keys are derived, and the Child SA
//! takes its place.

use super::{forget_deleted, handover};
use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::crypto::prf;
use crate::effect::Effects;
use crate::exchange::child_sa::{read_answer, successor_history};
use crate::exchange::ppk;
use crate::failure::{Failure, FailureKind};
use crate::negotiation::description::describe;
use crate::negotiation::proposal::{Offered, accept_child};
use crate::negotiation::suite::ChildChoice;
use crate::negotiation::transforms::group_of;
use crate::originator::Originator;
use crate::past_failures::Success;
use crate::rejection::SHORT_NONCE;
use crate::sa::active::PendingChild;
use crate::sa::child::{Blueprint, ChildSa, ChildState, History, RekeyForm};
use crate::sa::keys::{ChildKeys, Nonces};
use crate::sa::lowest_nonce::{self, LowestNonce};
use crate::session::{Carrier, Session};
use crate::wire::parts::Parts;
use esp::plane::{Spi, TrafficSelectors};
use policy::Secret;
use std::sync::Arc;

/// Takes in the Child SA of an answer. `additional` are the shared secrets of its additional key exchanges.
pub(super) fn conclude(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    pending: &PendingChild,
    parts: &Parts<'_>,
    additional: Vec<Secret>,
) -> Result<Effects, Failure> {
    let mut agreed = match Agreed::read(pending, parts) {
        Ok(agreed) => agreed,
        Err(Unusable::Answer(failure)) => return Err(failure),
        Err(Unusable::PublicValue(failure)) => {
            // RFC 6989 §2.5
            cx.release_spi(pending.spi_in);
            return Ok(ike.session.break_off(cx, CloseReason::InvalidPublicValue, failure));
        }
    };
    if pending.deleted.contains(&agreed.spi_out) {
        return Ok(forget_deleted(ike.session, cx, pending));
    }
    let keys = derive(ike, pending, parts, &mut agreed, additional)?;
    let place = Place::of(ike.session, cx, pending, agreed.nonces);
    let child = install(ike.session, cx, pending, agreed, keys, &place)?;
    Ok(place.take(ike.session, cx, pending, child))
}

fn broken(detail: String) -> Failure {
    Failure::new(FailureKind::ProtocolError, detail)
}

/// An answer that makes no Child SA.
enum Unusable {
    /// It does not fit the request.
    Answer(Failure),
    /// Its public value is none.
    PublicValue(Failure),
}

/// The parts of an answer on which the Child SA rests. They fit what this side has offered.
struct Agreed<'a> {
    choice: ChildChoice,
    selectors: Arc<TrafficSelectors>,
    spi_out: Spi,
    nonces: Nonces<'a>,
    /// The shared secret of the Child SA's own key exchange.
    shared: Option<Secret>,
}

impl<'a> Agreed<'a> {
    fn read(pending: &'a PendingChild, parts: &Parts<'a>) -> Result<Self, Unusable> {
        let tunnel = &pending.tunnel;
        let asked = TrafficSelectors { local: tunnel.local.clone(), remote: tunnel.remote.clone() };
        let offered = Offered::by(&tunnel.pfs);
        let answered = read_answer(tunnel, &asked, offered, parts).map_err(Unusable::Answer)?;
        let Some(nonce) = parts.nonce else {
            return Err(Unusable::Answer(broken("the answer has no nonce".into())));
        };
        let accepted = accept_child(&pending.proposals, offered, answered.proposals);
        let Some((choice, spi_out)) = accepted else {
            let chosen = describe(answered.proposals);
            let detail = format!("the peer chose {chosen}, which was not offered");
            return Err(Unusable::Answer(broken(detail)));
        };
        let shared = match (&pending.key_exchange, choice.algorithms.group, parts.key_exchange) {
            (None, None, _) => None,
            (Some(key), Some(group), Some((sent, public)))
                if key.group() == group && group_of(sent) == Some(group) =>
            {
                let agreed = key.agree(public);
                Some(agreed.map_err(|error| Unusable::PublicValue(broken(error.to_string())))?)
            }
            _ => {
                let detail = "the answer's key exchange does not fit what was offered".into();
                return Err(Unusable::Answer(broken(detail)));
            }
        };
        let nonces = Nonces { initiator: &pending.nonce, responder: nonce };
        Ok(Self { choice, selectors: answered.selectors, spi_out, nonces, shared })
    }
}

/// The keys of the Child SA.
fn derive(
    ike: &Carrier<'_>,
    pending: &PendingChild,
    parts: &Parts<'_>,
    agreed: &mut Agreed<'_>,
    additional: Vec<Secret>,
) -> Result<ChildKeys, Failure> {
    let suite = agreed
        .choice
        .suite()
        .expect("an accepted proposal has cipher and integrity that go together");
    let parent = &ike.state.keys;
    if !prf::is_long_enough(parent.suite.prf, agreed.nonces.responder) {
        return Err(broken(SHORT_NONCE.into()));
    }
    let shared: Vec<Secret> = agreed.shared.take().into_iter().chain(additional).collect();
    let base = ppk::base_of(pending.base.as_ref(), parts).map_err(|e| broken(e.into()))?;
    Ok(parent.child(suite, &shared, agreed.nonces, base))
}

/// Where the new Child SA stands beside those that the peer and this side have for the tunnel.
struct Place {
    lowest_nonce: LowestNonce,
    /// It serves. Otherwise the peer's own rekey, which has crossed this one, stands in its place.
    survives: bool,
    /// This side sends on it only once the peer is known to be able to receive.
    waits: bool,
}

impl Place {
    fn of(session: &Session, cx: &Context<'_>, pending: &PendingChild, nonces: Nonces<'_>) -> Self {
        let ours = LowestNonce::of(nonces);
        // The decision between crossing rekeys stands, even if the peer has replaced its Child SA once more since. A
        // request that did not name the old Child SA is no rekey to the peer: its own rekey stands.
        let survives = pending.rival.as_ref().is_none_or(|rival| {
            pending.form != RekeyForm::NewChildSa
                && lowest_nonce::ours_survives(ours, rival.lowest_nonce)
        });
        let waits = survives && pending.rekeys.is_some() && handover::waits(session, cx);
        // To the peer, a request that did not name the old Child SA has set up a new one.
        let lowest_nonce = match pending.form {
            RekeyForm::NewChildSa => ours,
            RekeyForm::Rekey | RekeyForm::Widened => session.inherited_nonce(pending.rekeys, ours),
        };
        Self { lowest_nonce, survives, waits }
    }

    /// Takes in the Child SA, which is installed, and has the ones that it makes redundant go.
    fn take(
        self,
        session: &mut Session,
        cx: &mut Context<'_>,
        pending: &PendingChild,
        child: ChildSa,
    ) -> Effects {
        if !self.survives {
            // RFC 7296 §2.8.1: the side that made the redundant Child SA deletes it; the peer deletes the old one.
            return session.add_redundant_child(child);
        }
        let new = child.spi_in;
        let effects = session.add_child(cx, child, Success::in_place_of(pending.rekeys));
        if let Some(rival) = &pending.rival {
            session.set_state(rival.child, ChildState::Unwanted);
        }
        if let Some(old) = pending.rekeys
            && session.set_state(old, ChildState::Replaced(new))
        {
            handover::retire(session, cx, old, self.waits);
        }
        // The peer may have set the tunnel up once more while this side waited.
        session.delete_duplicate_children(cx, &pending.tunnel.name);
        effects
    }
}

/// Installs both halves of the Child SA in the plane.
fn install(
    session: &Session,
    cx: &mut Context<'_>,
    pending: &PendingChild,
    agreed: Agreed<'_>,
    keys: ChildKeys,
    place: &Place,
) -> Result<ChildSa, Failure> {
    let history = History { form: pending.form, ..successor_history(session, cx, pending.rekeys) };
    let blueprint = Blueprint {
        tunnel: &pending.tunnel,
        choice: agreed.choice,
        mode: pending.tunnel.mode,
        selectors: agreed.selectors,
        asked: None,
        spi_in: pending.spi_in,
        spi_out: agreed.spi_out,
        keys,
        originator: Originator::ThisSide,
        standby: !place.survives || place.waits,
        path: session.child_path(),
        history,
        lowest_nonce: place.lowest_nonce,
    };
    blueprint.install(cx).map_err(|e| Failure::new(FailureKind::DataPlane, e.to_string()))
}
