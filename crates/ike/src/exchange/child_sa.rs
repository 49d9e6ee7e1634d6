//! The agreement on a Child SA, with the payloads SA, TSi and TSr, which IKE_AUTH and CREATE_CHILD_SA share: the
//! responder grants it, the initiator reads the answer (RFC 7296 §1.2, §1.3.1, §2.9).

mod generic;
mod matching;

use super::{Granted, follow_up, ppk};
use crate::context::Context;
use crate::crypto::key_exchange::{PrivateKey, respond};
use crate::effect::Effects;
use crate::failure::facts::{AhAndNat, KEPT, Offers, Shadowed, Traffic, Wanted};
use crate::failure::{Failure, FailureKind};
use crate::negotiation::proposal::{ChildKeyExchange, Offered, choose_child};
use crate::negotiation::selectors;
use crate::negotiation::transforms::{group_id, group_of};
use crate::originator::Originator;
use crate::past_failures::Success;
use crate::rejection::{Asked, Rejection, failure_of};
use crate::rules::Ruled;
use crate::sa::active::{Active, ChildRival};
use crate::sa::child::{Blueprint, ChildState, History};
use crate::sa::follow_up::{Agreed, AwaitedChild, OwnNonces, Purpose};
use crate::sa::keys::{Base, Nonces};
use crate::sa::lowest_nonce::LowestNonce;
use crate::session::{Carrier, Session};
use crate::wire::parts::{Parts, status};
use crate::wire::payload::{Payload, Proposal};
use crate::wire::registry::NotifyType;
use esp::plane::{Spi, TrafficSelectors};
pub(crate) use matching::Asker;
use matching::{Match, as_sent, differing, find_tunnel};
use policy::{ChildTunnel, Group, Mode, Secret, Selector};
use std::sync::Arc;

/// The context of a peer's request for a Child SA.
pub(crate) struct ChildRequest<'a> {
    /// The Child SA to be replaced, by inbound SPI.
    pub rekeys: Option<Spi>,
    /// In IKE_AUTH: no nonce and no key exchange of its own.
    pub in_auth: bool,
    pub nonces: Nonces<'a>,
}

/// Grants a Child SA: installs it and makes the payloads of the answer. Failures are noted for the operator.
pub(crate) fn grant(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    parts: &Parts<'_>,
    request: &ChildRequest<'_>,
) -> Result<Granted, Rejection> {
    let granted = try_grant(ike, cx, parts, request);
    if let Err(Rejection { failure: Some(failure), .. }) = &granted {
        let name = match ike.session.tunnel().children.as_slice() {
            [only] => Some(only.name.clone()),
            _ => request
                .rekeys
                .and_then(|spi| Some(ike.session.child_by_inbound(spi)?.tunnel.name.clone())),
        };
        cx.out.fail(cx.now, &ike.session.tunnel().name, name.as_deref(), failure.clone());
    }
    granted
}

fn try_grant(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    parts: &Parts<'_>,
    request: &ChildRequest<'_>,
) -> Result<Granted, Rejection> {
    let (Some(theirs), Some(tsi), Some(tsr)) = (parts.sa, parts.ts_initiator, parts.ts_responder)
    else {
        return Err(Rejection::invalid_syntax(
            "a Child SA is asked for without SA, TSi or TSr".into(),
        ));
    };
    let transport = parts.notify(NotifyType::USE_TRANSPORT_MODE).is_some();
    if ike.session.is_full() {
        return Err(Rejection::no_additional_sas(ike.session.children().len()));
    }
    let asker = Asker::from(&*ike.session);
    let old = request.rekeys.and_then(|spi| ike.session.child_by_inbound(spi)).map(|c| &c.tunnel);
    let Match { tunnel, selectors, seen, asked } =
        find_tunnel(asker, cx, old, transport, tsi, tsr)?;
    if request.rekeys.is_none() {
        refuse_claimed(asker, cx, &tunnel, &selectors)?;
    }
    let spi_in = cx.spis.allocate(cx.rng);
    let wanted = match request.in_auth {
        true => ChildKeyExchange::Never,
        false => ChildKeyExchange::Policy(&tunnel.pfs, parts.key_exchange.map(|(group, _)| group)),
    };
    let proposals = ike.session.child_path().carries(&tunnel.proposals);
    let made = choose_child(&proposals, wanted, theirs, spi_in)
        .ok_or_else(|| match proposals.is_empty() {
            true => Rejection::not_through_nat(ah_and_nat(ike.session, &tunnel)),
            false => no_proposal(&tunnel, theirs, request),
        })
        .and_then(|(mut choice, spi_out, proposal)| {
            choice.lifetime = choice.lifetime.of(false);
            let (shared, mut public) = exchange_keys(choice.algorithms.group, parts)?;
            let (selectors, asked) = (Arc::clone(&selectors), asked.clone());
            let agreed = Agreed { choice, spi_in, spi_out, selectors, asked };
            let (rekeys, nonces) = (request.rekeys, OwnNonces::of(request.nonces));
            let tunnel = Arc::clone(&tunnel);
            let (base, selected) = fresh_ppk(ike, cx, parts, request).unzip();
            public.extend(selected);
            let awaited = AwaitedChild { tunnel, agreed, rekeys, nonces, base };
            let additional = choice.algorithms.additional;
            if additional.is_empty() {
                let effects = complete(ike, cx, awaited, &shared)?;
                return Ok((proposal, public, effects));
            }
            let purpose = Purpose::Child(Box::new(awaited));
            let told = follow_up::expect(ike, cx, additional, shared, purpose)?;
            public.push(told);
            Ok((proposal, public, Effects::none()))
        });
    let (proposal, public, effects) = match made {
        Ok(made) => made,
        Err(rejection) => {
            cx.release_spi(spi_in);
            return Err(rejection);
        }
    };
    let mut payloads = Vec::new();
    if tunnel.mode == Mode::Transport {
        payloads.push(status(NotifyType::USE_TRANSPORT_MODE, vec![]));
    }
    payloads.push(Payload::Sa(vec![proposal]));
    if !request.in_auth {
        payloads.push(Payload::Nonce(request.nonces.responder.to_vec()));
        payloads.extend(public);
    }
    // RFC 7296 §2.23.1: the peer knows itself by the addresses it sent.
    let path = ike.session.path();
    payloads.push(Payload::TsInitiator(as_sent(&selectors.remote, tsi, seen && path.nat_remote)));
    payloads.push(Payload::TsResponder(as_sent(&selectors.local, tsr, seen && path.nat_local)));
    // RFC 7296 §2.9
    let additional = asked.is_some_and(|asked| asked.additional);
    payloads.extend(additional.then(|| status(NotifyType::ADDITIONAL_TS_POSSIBLE, vec![])));
    Ok(Granted { payloads, effects })
}

/// Has the plane prepare for the Child SA that a request asks for, where the peer names its traffic. Returns its phase
/// 2 tunnel as long as the plane is not prepared: the request has to wait. A request that is going to be refused waits
/// for nothing.
pub(crate) fn unprepared(
    asker: Asker<'_>,
    cx: &mut Context<'_>,
    parts: &Parts<'_>,
) -> Option<Arc<ChildTunnel>> {
    asker.tunnel.generic.as_ref()?;
    let (_, tsi, tsr) = (parts.sa?, parts.ts_initiator?, parts.ts_responder?);
    let transport = parts.notify(NotifyType::USE_TRANSPORT_MODE).is_some();
    let Match { tunnel, selectors, .. } = find_tunnel(asker, cx, None, transport, tsi, tsr).ok()?;
    refuse_claimed(asker, cx, &tunnel, &selectors).ok()?;
    (!generic::prepare(asker, cx, &tunnel)).then_some(tunnel)
}

/// Refuses traffic that goes to another peer, whatever is agreed with this one (RFC 3948 §5.2).
fn refuse_claimed(
    asker: Asker<'_>,
    cx: &Context<'_>,
    tunnel: &ChildTunnel,
    selectors: &TrafficSelectors,
) -> Result<(), Rejection> {
    let peer = &asker.tunnel.remote.identity;
    match cx
        .rules
        .shadowing_rule(&tunnel.name, peer, selectors, &|child| cx.plane.binding_of(child))
    {
        Some(rule) => Err(claimed(tunnel, &selectors.local, &selectors.remote, rule)),
        None => Ok(()),
    }
}

/// The refusal of traffic of a phase 2 tunnel that a rule of another peer has.
fn claimed(
    tunnel: &ChildTunnel,
    local: &[Selector],
    remote: &[Selector],
    rule: &Ruled,
) -> Rejection {
    let [local, remote] =
        [local, remote].map(|selectors| selectors.iter().take(KEPT).copied().collect());
    let wanted = Wanted { child: tunnel.name.clone(), local, remote };
    let (shadowing_rule, peer) = (Wanted::by(&rule.child), rule.peer.to_string());
    Rejection::traffic_claimed(Shadowed { wanted, shadowing_rule, peer })
}

/// The failure of a tunnel that offers AH only, if ESP has to travel in UDP.
pub(crate) fn ah_and_nat(session: &Session, tunnel: &ChildTunnel) -> Failure {
    let path = session.child_path();
    let (local, remote) = (path.local.ip(), path.remote.ip());
    AhAndNat { child: tunnel.name.clone(), local, remote }.into()
}

fn no_proposal(tunnel: &ChildTunnel, theirs: &[Proposal], request: &ChildRequest<'_>) -> Rejection {
    let offered = match request.in_auth {
        true => Offered::default(),
        false => Offered { groups: &tunnel.pfs.accept, additional: &tunnel.pfs.additional },
    };
    let ours = Asked::child(tunnel, offered).offers;
    let group_optional = tunnel.pfs.accept_none && !offered.groups.is_empty();
    let renewal = request.rekeys.is_some();
    Rejection::no_proposal_chosen(Offers { group_optional, renewal, ..ours.beside(theirs) })
}

/// A PPK that the peer proposes for a Child SA, and the payload that selects it. In IKE_AUTH there is none.
fn fresh_ppk(
    ike: &Carrier<'_>,
    cx: &Context<'_>,
    parts: &Parts<'_>,
    request: &ChildRequest<'_>,
) -> Option<(Base, Payload)> {
    if request.in_auth {
        return None;
    }
    let (keys, nonce) = (&ike.state.keys, request.nonces.initiator);
    ppk::for_new_sa(ike.session.tunnel(), cx.trust, keys, nonce, ike.spis(), parts)
}

/// The payload KE of a key exchange of the Child SA's own.
pub(super) fn public_value(key: &PrivateKey) -> Payload {
    Payload::KeyExchange { group: group_id(key.group()), data: key.public_value().to_vec() }
}

/// Our half of a key exchange of the Child SA's own: the shared secret, and the payload of the answer. Both are empty
/// if there is none.
fn exchange_keys(
    group: Option<Group>,
    parts: &Parts<'_>,
) -> Result<(Vec<Secret>, Vec<Payload>), Rejection> {
    let Some(group) = group else { return Ok((Vec::new(), Vec::new())) };
    let (sent, public) =
        parts.key_exchange.ok_or_else(|| Rejection::invalid_ke(group_id(group)))?;
    if group_of(sent) != Some(group) {
        return Err(Rejection::invalid_ke(group_id(group)));
    }
    let made = respond(group, public).map_err(|e| Rejection::invalid_syntax(e.to_string()))?;
    let answer = Payload::KeyExchange { group: group_id(group), data: made.public_value };
    Ok((vec![made.shared], vec![answer]))
}

/// Makes the Child SA that the peer has asked for, once all keys are exchanged.
pub(super) fn complete(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    awaited: AwaitedChild,
    shared: &[Secret],
) -> Result<Effects, Rejection> {
    let AwaitedChild { tunnel, agreed, rekeys, nonces, base } = awaited;
    let nonces = nonces.as_nonces();
    let suite =
        agreed.choice.suite().expect("a chosen proposal has cipher and integrity that go together");
    let keys = ike.state.keys.child(suite, shared, nonces, base.as_ref());
    generic::add_rule(ike.session.tunnel(), cx, &tunnel)?;
    let history = successor_history(ike.session, cx, rekeys);
    let blueprint = Blueprint {
        tunnel: &tunnel,
        choice: agreed.choice,
        mode: tunnel.mode,
        selectors: agreed.selectors,
        asked: agreed.asked,
        spi_in: agreed.spi_in,
        spi_out: agreed.spi_out,
        keys,
        originator: Originator::Peer,
        // The peer has the new SA only once our answer has arrived; what it then deletes tells us.
        standby: rekeys.is_some() || ike.session.waits_for_predecessor(),
        path: ike.session.child_path(),
        history,
        lowest_nonce: ike.session.inherited_nonce(rekeys, LowestNonce::of(nonces)),
    };
    let child = blueprint.install(cx).map_err(|e| Rejection::plane(&e))?;
    let effects = ike.session.add_child(cx, child, Success::in_place_of(rekeys));
    match rekeys {
        Some(old) => note_successor(ike, old, LowestNonce::of(nonces)),
        None => ike.session.delete_duplicate_children(cx, &tunnel.name),
    }
    Ok(effects)
}

/// The Child SA just granted replaces `old`, and may meet a rekey of ours that is in flight.
fn note_successor(ike: &mut Carrier<'_>, old: Spi, lowest_nonce: LowestNonce) {
    let Some(new) = ike.session.children().last().map(|c| c.spi_in) else { return };
    ike.session.set_state(old, ChildState::Replaced(new));
    if let Some(Active::Child(pending)) = &mut ike.state.active
        && pending.rekeys == Some(old)
    {
        pending.rival = Some(ChildRival { child: new, lowest_nonce });
    }
}

pub(super) fn successor_history(
    session: &Session,
    cx: &mut Context<'_>,
    rekeys: Option<Spi>,
) -> History {
    match rekeys.and_then(|spi| session.child_by_inbound(spi)) {
        Some(old) => {
            let mut history = old.history_so_far(cx);
            history.rekeys += 1;
            history
        }
        None => History::new(cx.now),
    }
}

/// The parts of an answer that creates a Child SA.
pub(crate) struct Answered<'a> {
    pub proposals: &'a [Proposal],
    pub selectors: Arc<TrafficSelectors>,
}

/// Reads an answer to a request for `tunnel`'s Child SA that offered these key exchanges.
pub(crate) fn read_answer<'a>(
    tunnel: &ChildTunnel,
    asked: &TrafficSelectors,
    offered: Offered<'_>,
    parts: &Parts<'a>,
) -> Result<Answered<'a>, Failure> {
    // RFC 7296 §3.10.1: with an error the request has failed, whatever else the answer holds.
    if let Some(error) = parts.error() {
        return Err(failure_of(error, Asked::child(tunnel, offered)));
    }
    let (Some(proposals), Some(tsi), Some(tsr)) =
        (parts.sa, parts.ts_initiator, parts.ts_responder)
    else {
        let detail = "the answer has no Child SA".into();
        return Err(Failure::new(FailureKind::ProtocolError, detail));
    };
    let confirmed = parts.notify(NotifyType::USE_TRANSPORT_MODE).is_some();
    if (tunnel.mode == Mode::Transport) != confirmed {
        return Err(differing(tunnel).into());
    }
    let selectors = selectors::accept(asked, tsi, tsr).ok_or_else(|| {
        // OpenIKED answers with its own traffic, whatever it was asked for.
        let theirs = Wanted {
            child: String::new(),
            local: selectors::known(tsi),
            remote: selectors::known(tsr),
        };
        Failure::from(Traffic {
            ours: vec![Wanted::by(tunnel)],
            theirs: Some(theirs),
            renewal: false,
        })
    })?;
    Ok(Answered { proposals, selectors: Arc::new(selectors) })
}
