//! The agreement on a Child SA, with the payloads SA, TSi and TSr, which IKE_AUTH and CREATE_CHILD_SA share: the responder
//! grants it, the initiator reads the answer (RFC 7296 §1.2, §1.3.1, §2.9).

mod generic;
mod matching;

use super::Granted;
use crate::context::Cx;
use crate::crypto::key_exchange::PrivateKey;
use crate::effect::Effects;
use crate::failure::facts::{KEPT, Offers, Shadowed, Wanted};
use crate::failure::{Failure, FailureKind};
use crate::negotiation::proposal::{ChildKeyExchange, choose_child};
use crate::negotiation::selectors;
use crate::negotiation::suite::ChildChoice;
use crate::negotiation::transforms::{group_id, group_of};
use crate::rejection::{Asked, Rejection, failure_of};
use crate::rules::Ruled;
use crate::sa::child::{Blueprint, History};
use crate::sa::keys::Nonces;
use crate::sa::lowest_nonce::LowestNonce;
use crate::session::Session;
use crate::session::most_children;
use crate::wire::parts::{Parts, status};
use crate::wire::payload::{Payload, Proposal};
use crate::wire::registry::NotifyType;
use esp::plane::{Spi, TrafficSelectors};
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
    session: &mut Session,
    cx: &mut Cx<'_>,
    index: usize,
    parts: &Parts<'_>,
    request: &ChildRequest<'_>,
) -> Result<Granted, Rejection> {
    let granted = try_grant(session, cx, index, parts, request);
    if let Err(Rejection { failure: Some(failure), .. }) = &granted {
        let name = match session.tunnel.children.as_slice() {
            [only] => Some(only.name.clone()),
            _ => request
                .rekeys
                .and_then(|spi| Some(session.child_by_inbound(spi)?.tunnel.name.clone())),
        };
        cx.out.fail(cx.now, &session.tunnel.name, name.as_deref(), failure.clone());
    }
    granted
}

fn try_grant(
    session: &mut Session,
    cx: &mut Cx<'_>,
    index: usize,
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
    if session.children.len() >= most_children(&session.tunnel) {
        return Err(Rejection::no_additional_sas(session.children.len()));
    }
    let Match { tunnel, selectors, seen } =
        find_tunnel(session, cx, request.rekeys, transport, tsi, tsr)?;
    if request.rekeys.is_none() {
        refuse_claimed(session, cx, &tunnel, &selectors)?;
    }
    let spi_in = cx.spis.allocate(cx.rng);
    let wanted = match request.in_auth {
        true => ChildKeyExchange::Never,
        false => ChildKeyExchange::Policy(&tunnel.pfs, parts.key_exchange.map(|(group, _)| group)),
    };
    let proposals = session.child_path().carries(&tunnel.proposals);
    let made = choose_child(&proposals, wanted, theirs, spi_in)
        .ok_or_else(|| match proposals.is_empty() {
            true => Rejection::not_through_nat(ah_and_nat(session, &tunnel)),
            false => no_proposal(&tunnel, theirs, request.in_auth),
        })
        .and_then(|(choice, spi_out, proposal)| {
            let (shared, public) = exchange_keys(choice.group, parts)?;
            let offer = Agreed { choice, spi_in, spi_out, selectors: Arc::clone(&selectors) };
            let effects = install(session, cx, index, &tunnel, offer, shared.as_ref(), request)?;
            Ok((proposal, public, effects))
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
    let path = &session.path;
    payloads.push(Payload::TsInitiator(as_sent(&selectors.remote, tsi, seen && path.nat_remote)));
    payloads.push(Payload::TsResponder(as_sent(&selectors.local, tsr, seen && path.nat_local)));
    Ok(Granted { payloads, effects })
}

/// Refuses traffic that goes to another peer, whatever is agreed with this one (RFC 3948 §5.2).
fn refuse_claimed(
    session: &Session,
    cx: &Cx<'_>,
    tunnel: &ChildTunnel,
    selectors: &TrafficSelectors,
) -> Result<(), Rejection> {
    let peer = &session.tunnel.remote.identity;
    match cx.rules.shadowing_rule(&tunnel.name, peer, selectors) {
        Some(rule) => Err(claimed(tunnel, &selectors.local, &selectors.remote, rule)),
        None => Ok(()),
    }
}

/// The refusal of traffic of a child tunnel that a rule of another peer has.
fn claimed(
    tunnel: &ChildTunnel,
    local: &[Selector],
    remote: &[Selector],
    rule: &Ruled,
) -> Rejection {
    let first = |selectors: &[Selector]| selectors.iter().take(KEPT).copied().collect();
    let wanted = Wanted { child: tunnel.name.clone(), local: first(local), remote: first(remote) };
    let (shadowing_rule, peer) = (Wanted::by(&rule.child), rule.peer.to_string());
    Rejection::traffic_claimed(Shadowed { wanted, shadowing_rule, peer })
}

/// The failure of a tunnel that offers AH only, if ESP has to travel in UDP.
pub(crate) fn ah_and_nat(session: &Session, tunnel: &ChildTunnel) -> Failure {
    let path = session.child_path();
    let detail = format!(
        "{} is protected with AH only, and between {} and {} is a NAT, or one side has ESP in UDP without one (encap): AH covers the addresses; use IPSecESPProtocol on both sides",
        tunnel.name,
        path.local.ip(),
        path.remote.ip()
    );
    Failure::new(FailureKind::NoProposalChosen, detail)
}

fn no_proposal(tunnel: &ChildTunnel, theirs: &[Proposal], in_auth: bool) -> Rejection {
    let groups: &[Group] = if in_auth { &[] } else { &tunnel.pfs.accept };
    let ours = Asked::child(tunnel, groups).offers;
    let group_optional = tunnel.pfs.accept_none && !groups.is_empty();
    Rejection::no_proposal_chosen(Offers { group_optional, ..ours.beside(theirs) })
}

/// The payload KE of a key exchange of the Child SA's own.
pub(super) fn public_value(key: &PrivateKey) -> Payload {
    Payload::KeyExchange { group: group_id(key.group()), data: key.public_value().to_vec() }
}

/// Our half of a key exchange of the Child SA's own.
fn exchange_keys(
    group: Option<Group>,
    parts: &Parts<'_>,
) -> Result<(Option<Secret>, Option<Payload>), Rejection> {
    let Some(group) = group else { return Ok((None, None)) };
    let (sent, public) =
        parts.key_exchange.ok_or_else(|| Rejection::invalid_ke(group_id(group)))?;
    if group_of(sent) != Some(group) {
        return Err(Rejection::invalid_ke(group_id(group)));
    }
    let key = PrivateKey::generate(group);
    let answer = public_value(&key);
    let shared = key.agree(public).map_err(|e| Rejection::invalid_syntax(e.to_string()))?;
    Ok((Some(shared), Some(answer)))
}

/// The agreement of both sides on a Child SA.
struct Agreed {
    choice: ChildChoice,
    spi_in: Spi,
    spi_out: Spi,
    selectors: Arc<TrafficSelectors>,
}

fn install(
    session: &mut Session,
    cx: &mut Cx<'_>,
    index: usize,
    tunnel: &Arc<ChildTunnel>,
    agreed: Agreed,
    shared: Option<&Secret>,
    request: &ChildRequest<'_>,
) -> Result<Effects, Rejection> {
    let suite =
        agreed.choice.suite().expect("a chosen proposal has cipher and integrity that go together");
    let keys = match session.sas[index].established() {
        Some(established) => established.keys.child(suite, shared, request.nonces),
        None => return Err(Rejection::temporary()),
    };
    generic::add_rule(session, cx, tunnel)?;
    let history = successor_history(session, cx, request.rekeys);
    let blueprint = Blueprint {
        tunnel,
        choice: agreed.choice,
        mode: tunnel.mode,
        selectors: agreed.selectors,
        spi_in: agreed.spi_in,
        spi_out: agreed.spi_out,
        keys,
        initiator: false,
        // The peer has the new SA only once our answer has arrived; what it then deletes tells us.
        standby: request.rekeys.is_some() || session.renewal.relieves_at.is_some(),
        path: session.child_path(),
        history,
        lowest_nonce: LowestNonce::of(request.nonces),
    };
    let child = blueprint.install(cx).map_err(|e| Rejection::plane(&e))?;
    let effects = session.add_child(cx, child, request.rekeys.is_some());
    if request.rekeys.is_none() {
        session.settle_duplicates(&tunnel.name);
    }
    Ok(effects)
}

pub(super) fn successor_history(
    session: &Session,
    cx: &mut Cx<'_>,
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

/// Reads an answer to a request for `tunnel`'s Child SA that offered these groups.
pub(crate) fn read_answer<'a>(
    tunnel: &ChildTunnel,
    asked: &TrafficSelectors,
    groups: &[Group],
    parts: &Parts<'a>,
) -> Result<Answered<'a>, Failure> {
    // RFC 7296 §3.10.1: with an error the request has failed, whatever else the answer holds.
    if let Some(error) = parts.error() {
        return Err(failure_of(error, Asked::child(tunnel, groups)));
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
        Failure::new(
            FailureKind::TsUnacceptable,
            format!(
                "the peer answers {} to {}, more than was asked for",
                selectors::describe_wire(tsi),
                selectors::describe_wire(tsr)
            ),
        )
    })?;
    Ok(Answered { proposals, selectors: Arc::new(selectors) })
}
