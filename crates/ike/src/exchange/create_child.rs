//! CREATE_CHILD_SA for Child SAs: new ones and rekeys (RFC 7296 §1.3.1, §1.3.3, §2.8).

mod generic;

use super::{Answer, Granted, rekey_ike};
use crate::collision::{self, Request};
use crate::context::Cx;
use crate::crypto::key_exchange::PrivateKey;
use crate::effect::Lost;
use crate::effect::{Effect, Effects};
use crate::event::EventKind;
use crate::failure::facts::{KEPT, Modes, Offers, Shadowed, Traffic, Wanted};
use crate::failure::{Failure, FailureKind};
use crate::negotiation::proposal::{
    ChildChoice, ChildKeyExchange, accept_child, choose_child, describe, group_id, group_of,
    offer_child,
};
use crate::negotiation::selectors;
use crate::rejection::{Asked, Rejection, failure_of};
use crate::sa::active::{Active, ChildRival, PendingChild};
use crate::sa::child::{Blueprint, ChildState, History};
use crate::sa::keys::Nonces;
use crate::sa::lowest_nonce::{self, LowestNonce};
use crate::session::Session;
use crate::session::most_children;
use crate::task::Task;
use crate::wire::parts::{Parts, status};
use crate::wire::payload::{Notify, Payload, Proposal, TrafficSelector};
use crate::wire::registry::{ExchangeType, NotifyType, ProtocolId};
use esp::plane::{Spi, TrafficSelectors};
use policy::{AddressRange, ChildTunnel, Group, Mode, Secret, Selector};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// How often a peer may ask for another group.
const RESTARTS: u8 = 3;

/// So many child tunnels of a peer are compared with a request one by one; of more those that are near to it.
const FEW: usize = 16;

/// Asks for a new Child SA.
pub(crate) fn ask_new(session: &mut Session, cx: &mut Cx<'_>, index: usize, name: &str) -> Effects {
    let Some(tunnel) = cx.policy.child_of(&session.tunnel, name).cloned() else {
        return Effects::none();
    };
    if session.serving_child(name).is_some_and(|c| c.state == ChildState::Established) {
        return Effects::none();
    }
    cx.out.event(&session.tunnel.name, Some(name), EventKind::Negotiating { initiator: true });
    let group = tunnel.pfs.offer.first().copied();
    ask(session, cx, index, tunnel, None, group, 0)
}

/// Asks for the successor of a Child SA.
pub(crate) fn ask_rekey(
    session: &mut Session,
    cx: &mut Cx<'_>,
    index: usize,
    spi_in: Spi,
) -> Effects {
    let Some(child) =
        session.child_by_inbound(spi_in).filter(|c| c.state == ChildState::Established)
    else {
        return Effects::none();
    };
    let tunnel = Arc::clone(&child.tunnel);
    // What the peer has agreed to before it need not refuse first.
    let agreed = child.choice.group.filter(|g| tunnel.pfs.offer.contains(g));
    let group = agreed.or(tunnel.pfs.offer.first().copied());
    ask(session, cx, index, tunnel, Some(spi_in), group, 0)
}

fn ask(
    session: &mut Session,
    cx: &mut Cx<'_>,
    index: usize,
    tunnel: Arc<ChildTunnel>,
    rekeys: Option<Spi>,
    group: Option<Group>,
    restarts: u8,
) -> Effects {
    let proposals = session.child_path().carries(&tunnel.proposals);
    if proposals.is_empty() {
        // As if the peer had refused it.
        let failure = ah_and_nat(session, &tunnel);
        return fail(session, cx, (&tunnel, rekeys), failure);
    }
    let spi_in = cx.spis.allocate(cx.rng);
    let nonce = cx.rng.nonce();
    let key_exchange = group.map(PrivateKey::generate);
    let mut payloads = Vec::new();
    payloads.extend(rekeys.map(|spi| {
        let replaced = session.child_by_inbound(spi);
        let protocol = replaced.map_or(ProtocolId::ESP, |c| c.choice.protocol());
        let spi = spi.0.to_be_bytes().to_vec();
        Payload::Notify(Notify { protocol, spi, kind: NotifyType::REKEY_SA, data: vec![] })
    }));
    if tunnel.mode == Mode::Transport {
        payloads.push(status(NotifyType::USE_TRANSPORT_MODE, vec![]));
    }
    payloads.push(Payload::Sa(offer_child(&proposals, &tunnel.pfs.offer, spi_in)));
    payloads.push(Payload::Nonce(nonce.clone()));
    payloads.extend(key_exchange.as_ref().map(public_value));
    payloads.extend(session.asked_selectors(&tunnel));
    let pending = PendingChild {
        tunnel,
        proposals,
        rekeys,
        spi_in,
        nonce,
        key_exchange,
        restarts,
        unwanted: false,
        rival: None,
        deleted: Vec::new(),
    };
    let active = Some(Active::Child(Box::new(pending)));
    session.send_request(cx, index, ExchangeType::CREATE_CHILD_SA, &payloads, active);
    Effects::none()
}

fn public_value(key: &PrivateKey) -> Payload {
    Payload::KeyExchange { group: group_id(key.group()), data: key.public_value().to_vec() }
}

/// Answers a CREATE_CHILD_SA request.
pub(crate) fn answer(
    session: &mut Session,
    cx: &mut Cx<'_>,
    index: usize,
    payloads: Vec<Payload>,
) -> Answer {
    let parts = Parts::of(&payloads);
    let answered = if parts
        .sa
        .is_some_and(|p| p.iter().all(|p| p.protocol == ProtocolId::IKE) && !p.is_empty())
    {
        rekey_ike::answer(session, cx, index, &parts)
    } else {
        answer_child(session, cx, index, &parts)
    };
    match answered {
        Ok(granted) => granted.into(),
        Err(rejection) => Answer::from(&rejection),
    }
}

fn answer_child(
    session: &mut Session,
    cx: &mut Cx<'_>,
    index: usize,
    parts: &Parts<'_>,
) -> Result<Granted, Rejection> {
    let Some(initiator_nonce) = parts.nonce else {
        return Err(Rejection::invalid_syntax("CREATE_CHILD_SA without nonce".into()));
    };
    let rekeys = match parts.notify(NotifyType::REKEY_SA) {
        None => None,
        Some(notify) => {
            let octets = notify.spi.as_slice().try_into();
            let spi = Spi(u32::from_be_bytes(octets.map_err(|_| {
                Rejection::invalid_syntax("REKEY_SA without an SPI of four octets".into())
            })?));
            Some((notify.protocol, spi))
        }
    };
    let request =
        rekeys.map_or(Request::CreateChild, |(protocol, spi)| Request::RekeyChild(protocol, spi));
    let Some(established) = session.sas[index].established() else {
        return Err(Rejection::temporary());
    };
    collision::admit(session, established, request)?;
    let old = rekeys.and_then(|(protocol, spi)| session.child_by_outbound(protocol, spi));
    let old = old.map(|c| c.spi_in);
    let nonce = cx.rng.nonce();
    let nonces = Nonces { initiator: initiator_nonce, responder: &nonce };
    let granted =
        grant(session, cx, index, parts, &ChildRequest { rekeys: old, in_auth: false, nonces })?;
    if let Some(old) = old {
        note_successor(session, index, old, LowestNonce::of(nonces));
    }
    Ok(granted)
}

/// The Child SA just granted replaces `old`, and may meet a rekey of ours that is in flight.
fn note_successor(session: &mut Session, index: usize, old: Spi, lowest_nonce: LowestNonce) {
    let Some(new) = session.children.last().map(|c| c.spi_in) else { return };
    session.set_state(old, ChildState::Replaced(new));
    if let Some(established) = session.sas[index].established_mut()
        && let Some(Active::Child(pending)) = &mut established.active
        && pending.rekeys == Some(old)
    {
        pending.rival = Some(ChildRival { child: new, lowest_nonce });
    }
}

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
            cx.spis.release(spi_in);
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
    let Some(shadowing_rule) = cx.rules.shadowing_rule(&tunnel.name, peer, selectors) else {
        return Ok(());
    };
    let first = |selectors: &[Selector]| selectors.iter().take(KEPT).copied().collect();
    let wanted = Wanted {
        child: tunnel.name.clone(),
        local: first(&selectors.local),
        remote: first(&selectors.remote),
    };
    let (shadowing_rule, peer) =
        (Wanted::by(&shadowing_rule.child), shadowing_rule.peer.to_string());
    Err(Rejection::traffic_claimed(Shadowed { wanted, shadowing_rule, peer }))
}

/// Why a tunnel that offers nothing but AH cannot come up.
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

fn successor_history(session: &Session, cx: &mut Cx<'_>, rekeys: Option<Spi>) -> History {
    match rekeys.and_then(|spi| session.child_by_inbound(spi)) {
        Some(old) => {
            let mut history = old.history_so_far(cx);
            history.rekeys += 1;
            history
        }
        None => History::new(cx.now),
    }
}

/// The child tunnel that fits a request.
struct Match {
    tunnel: Arc<ChildTunnel>,
    selectors: Arc<TrafficSelectors>,
    /// Addresses were replaced by those seen from this side of a NAT.
    seen: bool,
}

fn find_tunnel(
    session: &Session,
    cx: &Cx<'_>,
    rekeys: Option<Spi>,
    transport: bool,
    tsi: &[TrafficSelector],
    tsr: &[TrafficSelector],
) -> Result<Match, Rejection> {
    let old = rekeys.and_then(|spi| session.child_by_inbound(spi)).map(|child| &child.tunnel);
    let translated = transport && (session.path.nat_local || session.path.nat_remote);
    let tunnels = match old {
        Some(tunnel) => vec![tunnel],
        None => may_fit(session, cx, translated, tsi, tsr),
    };
    let tunnels = tunnels.into_iter().filter(|tunnel| old.is_some() || tunnel.role.may_respond());
    let mut found: Option<(u8, Match)> = None;
    let mut wrong_mode = None;
    for tunnel in tunnels {
        // RFC 7296 §2.23.1: in transport mode the addresses that count are those this side sees.
        let (seen_i, seen_r);
        let (tsi, tsr) = if translated && tunnel.mode == Mode::Transport {
            (seen_i, seen_r) = both_as_seen(session, tsi, tsr);
            (seen_i.as_slice(), seen_r.as_slice())
        } else {
            (tsi, tsr)
        };
        let Some(selectors) = selectors::grant(tunnel, tsr, tsi) else { continue };
        if tunnel.mode == Mode::Transport && !transport {
            wrong_mode = Some(tunnel);
            continue;
        }
        let exact =
            selectors::is_exact(tunnel, tsr, tsi) && (tunnel.mode == Mode::Transport) == transport;
        // RFC 7296 §2.9: before a part of all that is asked for, what includes its first choice.
        let rank = match exact {
            true => 2,
            false => selectors::includes_first(tunnel, tsr, tsi).into(),
        };
        if found.as_ref().is_none_or(|(best, _)| rank > *best) {
            let seen = translated && tunnel.mode == Mode::Transport;
            let selectors = Arc::new(selectors);
            found = Some((rank, Match { tunnel: Arc::clone(tunnel), selectors, seen }));
        }
        if exact {
            break;
        }
    }
    if let Some((_, found)) = found {
        return Ok(found);
    }
    if rekeys.is_none()
        && let Some(found) = generic::matching(session, cx, transport, tsi, tsr)
    {
        return found;
    }
    if let Some(tunnel) = wrong_mode {
        return Err(Rejection::mode_mismatch(differing(tunnel)));
    }
    let theirs = Wanted {
        child: String::new(),
        local: selectors::known(tsr),
        remote: selectors::known(tsi),
    };
    let ours = session.tunnel.children.iter().take(KEPT).map(|c| Wanted::by(c)).collect();
    Err(Rejection::ts_unacceptable(Traffic { ours, theirs: Some(theirs) }))
}

/// The child tunnels that a request may mean, in their order: where there are many, those with addresses of it on both
/// sides. `translated`: or of it as it is seen from this side of a NAT.
fn may_fit<'a>(
    session: &'a Session,
    cx: &'a Cx<'_>,
    translated: bool,
    tsi: &[TrafficSelector],
    tsr: &[TrafficSelector],
) -> Vec<&'a Arc<ChildTunnel>> {
    let tunnels = &session.tunnel.children;
    if tunnels.len() <= FEW || !cx.policy.has(&session.tunnel) {
        return tunnels.iter().collect();
    }
    let seen = translated.then(|| both_as_seen(session, tsi, tsr));
    let (seen_i, seen_r) = seen.as_ref().map_or((&[][..], &[][..]), |(i, r)| (i, r));
    let local = [tsr, seen_r].into_iter().flat_map(selectors::addresses);
    let remote = [tsi, seen_i].into_iter().flat_map(selectors::addresses);
    let names = cx.rules.meeting(local, remote);
    names.filter_map(|name| cx.policy.child_of(&session.tunnel, name)).collect()
}

/// The tunnel is in one mode, the peer wants the other.
fn differing(tunnel: &ChildTunnel) -> Modes {
    let theirs = match tunnel.mode {
        Mode::Transport => Mode::Tunnel,
        Mode::Tunnel => Mode::Transport,
    };
    Modes { child: tunnel.name.clone(), ours: tunnel.mode, theirs }
}

/// TSi and TSr with the addresses that this side of a NAT sees.
fn both_as_seen(
    session: &Session,
    tsi: &[TrafficSelector],
    tsr: &[TrafficSelector],
) -> (Vec<TrafficSelector>, Vec<TrafficSelector>) {
    let path = &session.path;
    let seen_i = as_seen(tsi, path.remote.ip(), path.nat_remote);
    (seen_i, as_seen(tsr, path.local.ip(), path.nat_local))
}

fn as_seen(
    selectors: &[TrafficSelector],
    address: IpAddr,
    behind_nat: bool,
) -> Vec<TrafficSelector> {
    let replace = |selector: &TrafficSelector| match selector {
        TrafficSelector::Range(s) if behind_nat && s.addresses.start() == s.addresses.end() => {
            TrafficSelector::Range(Selector { addresses: AddressRange::from(address), ..*s })
        }
        other => other.clone(),
    };
    selectors.iter().map(replace).collect()
}

/// The granted traffic in the peer's terms: the address that the peer knows in place of the one seen here.
fn as_sent(granted: &[Selector], sent: &[TrafficSelector], replaced: bool) -> Vec<TrafficSelector> {
    let known = sent.iter().find_map(|selector| match selector {
        TrafficSelector::Range(s) if s.addresses.start() == s.addresses.end() => Some(s.addresses),
        _ => None,
    });
    let replace = |selector: &Selector| match known {
        Some(addresses) if replaced && selector.addresses.start() == selector.addresses.end() => {
            Selector { addresses, ..*selector }
        }
        _ => *selector,
    };
    granted.iter().map(replace).map(TrafficSelector::Range).collect()
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

/// Takes the answer to a request of ours.
pub(crate) fn conclude(
    session: &mut Session,
    cx: &mut Cx<'_>,
    index: usize,
    pending: PendingChild,
    payloads: Vec<Payload>,
) -> Effects {
    let parts = Parts::of(&payloads);
    let refused = parts.error().filter(|_| parts.sa.is_none());
    if pending.unwanted || session.is_closing() {
        // The policy may no longer have the tunnel: nothing is installed, and the peer is told to forget it. With an
        // IKE SA that is being deleted it goes anyway.
        cx.spis.release(pending.spi_in);
        if refused.is_none() && !session.is_closing() {
            session.tasks.push_front(Task::DeleteChild(pending.spi_in));
        }
        return Effects::none();
    }
    if let Some(error) = refused {
        cx.spis.release(pending.spi_in);
        return conclude_error(session, cx, index, pending, error.clone(), &parts);
    }
    match conclude_success(session, cx, index, &pending, &parts) {
        Ok(effects) => effects,
        Err(failure) => {
            // The peer has a Child SA that we do not want.
            session.tasks.push_front(Task::DeleteChild(pending.spi_in));
            cx.spis.release(pending.spi_in);
            fail(session, cx, (&pending.tunnel, pending.rekeys), failure)
        }
    }
}

fn conclude_success(
    session: &mut Session,
    cx: &mut Cx<'_>,
    index: usize,
    pending: &PendingChild,
    parts: &Parts<'_>,
) -> Result<Effects, Failure> {
    let broken = |detail: String| Failure::new(FailureKind::ProtocolError, detail);
    let tunnel = &pending.tunnel;
    let asked = TrafficSelectors { local: tunnel.local.clone(), remote: tunnel.remote.clone() };
    let answered = read_answer(tunnel, &asked, &tunnel.pfs.offer, parts)?;
    let Some(nonce) = parts.nonce else { return Err(broken("the answer has no nonce".into())) };
    let (choice, spi_out) = accept_child(&pending.proposals, &tunnel.pfs.offer, answered.proposals)
        .ok_or_else(|| {
            broken(format!(
                "the peer chose {}, which was not offered",
                describe(answered.proposals)
            ))
        })?;
    let shared = match (&pending.key_exchange, choice.group, parts.key_exchange) {
        (None, None, _) => None,
        (Some(key), Some(group), Some((sent, public)))
            if key.group() == group && group_of(sent) == Some(group) =>
        {
            match key.agree(public) {
                Ok(shared) => Some(shared),
                Err(error) => {
                    // RFC 6989 §2.5
                    cx.spis.release(pending.spi_in);
                    let reason = "the peer sent an invalid public value";
                    return Ok(session.break_off(cx, reason, broken(error.to_string())));
                }
            }
        }
        _ => return Err(broken("the answer's key exchange does not fit what was offered".into())),
    };
    if pending.deleted.contains(&spi_out) {
        return Ok(forget_deleted(session, cx, pending));
    }
    let nonces = Nonces { initiator: &pending.nonce, responder: nonce };
    let our_lowest = LowestNonce::of(nonces);
    // Even if the peer has replaced its Child SA once more since: what was decided then still holds.
    let rival = pending.rival.as_ref();
    let survives = rival.is_none_or(|r| lowest_nonce::ours_survives(our_lowest, r.lowest_nonce));
    let suite =
        choice.suite().expect("an accepted proposal has cipher and integrity that go together");
    let Some(established) = session.sas[index].established() else {
        cx.out.bug("CREATE_CHILD_SA is asked on an established IKE SA only");
        return Ok(Effects::none());
    };
    let keys = established.keys.child(suite, shared.as_ref(), nonces);
    let history = successor_history(session, cx, pending.rekeys);
    let blueprint = Blueprint {
        tunnel,
        choice,
        mode: tunnel.mode,
        selectors: answered.selectors,
        spi_in: pending.spi_in,
        spi_out,
        keys,
        initiator: true,
        standby: !survives,
        path: session.child_path(),
        history,
        lowest_nonce: our_lowest,
    };
    let mut child =
        blueprint.install(cx).map_err(|e| Failure::new(FailureKind::DataPlane, e.to_string()))?;
    let rival = rival.map(|r| r.child);
    if !survives {
        // RFC 7296 §2.8.1: the side that made the redundant Child SA deletes it; the peer deletes the old one.
        child.state = ChildState::Unwanted;
        let spi = child.spi_in;
        let effects = child.installed();
        session.children.push(child);
        session.tasks.push_front(Task::DeleteChild(spi));
        return Ok(effects);
    }
    let new = child.spi_in;
    let effects = session.add_child(cx, child, pending.rekeys.is_some());
    if let Some(redundant) = rival {
        session.set_state(redundant, ChildState::Unwanted);
    }
    match pending.rekeys {
        Some(old) => {
            if session.set_state(old, ChildState::Replaced(new)) {
                session.tasks.push_front(Task::DeleteChild(old));
            }
        }
        None => session.settle_duplicates(&tunnel.name),
    }
    Ok(effects)
}

/// Queues what was asked for on an IKE SA that is gone.
pub(crate) fn start_over(
    session: &mut Session,
    cx: &mut Cx<'_>,
    pending: &PendingChild,
) -> Effects {
    cx.spis.release(pending.spi_in);
    match pending.rekeys {
        _ if pending.unwanted => {}
        None => session.tasks.push_back(Task::CreateChild(pending.tunnel.name.clone())),
        Some(old) if stands(session, old) => session.tasks.push_back(Task::RekeyChild(old)),
        Some(_) => return lose(session, cx, pending),
    }
    Effects::none()
}

/// The peer has deleted the Child SA before its answer arrived: there is nothing to install, and what it was to replace goes,
/// too.
fn forget_deleted(session: &mut Session, cx: &mut Cx<'_>, pending: &PendingChild) -> Effects {
    cx.spis.release(pending.spi_in);
    let old = pending.rekeys.filter(|old| stands(session, *old));
    match old.and_then(|old| session.child_by_inbound(old)) {
        Some(old) => {
            let (spi, lost) = (old.spi_in, old.lost(cx.now));
            session.set_state(spi, ChildState::Unwanted);
            session.tasks.push_front(Task::DeleteChild(spi));
            Effect::Lost(lost).into()
        }
        None => lose(session, cx, pending),
    }
}

/// The peer has taken the tunnel down while this side was about to set it up or to renew it.
fn lose(session: &Session, cx: &mut Cx<'_>, pending: &PendingChild) -> Effects {
    let name = &pending.tunnel.name;
    if session.serving_child(name).is_none() {
        let reason = "deleted by the peer".into();
        cx.out.event(&session.tunnel.name, Some(name), EventKind::Closed { reason });
        return Effect::Lost(Lost { name: name.clone(), after: Duration::ZERO }).into();
    }
    Effects::none()
}

/// Whether a Child SA is there and not replaced yet.
fn stands(session: &Session, spi_in: Spi) -> bool {
    session.child_by_inbound(spi_in).is_some_and(|c| c.state == ChildState::Established)
}

fn conclude_error(
    session: &mut Session,
    cx: &mut Cx<'_>,
    index: usize,
    pending: PendingChild,
    error: Notify,
    parts: &Parts<'_>,
) -> Effects {
    // The peer's own rekey has done the work, or the Child SA is gone: so is the reason.
    if pending.rekeys.is_some_and(|old| !stands(session, old)) {
        return lose(session, cx, &pending);
    }
    let again = match pending.rekeys {
        Some(old) => Task::RekeyChild(old),
        None => Task::CreateChild(pending.tunnel.name.clone()),
    };
    match error.kind {
        NotifyType::TEMPORARY_FAILURE => session.delay(cx, again),
        NotifyType::NO_ADDITIONAL_SAS if pending.rekeys.is_some() => {
            rekey_ike::replace_whole(session, cx, &error)
        }
        NotifyType::INVALID_KE_PAYLOAD => {
            let wanted = parts
                .wanted_group()
                .and_then(group_of)
                .filter(|g| pending.tunnel.pfs.offer.contains(g));
            match wanted {
                Some(group) if pending.restarts < RESTARTS => {
                    let restarts = pending.restarts + 1;
                    ask(session, cx, index, pending.tunnel, pending.rekeys, Some(group), restarts)
                }
                _ => {
                    let failure = failure_of(
                        &error,
                        Asked::child(&pending.tunnel, &pending.tunnel.pfs.offer),
                    );
                    fail(session, cx, (&pending.tunnel, pending.rekeys), failure)
                }
            }
        }
        NotifyType::CHILD_SA_NOT_FOUND => {
            // RFC 7296 §2.25: the peer has lost it; start from scratch.
            // The request named no Child SA that the peer could have lost.
            let Some(old) = pending.rekeys else { return Effects::none() };
            let (gone, effects) = session.remove_child(cx, old, true);
            if gone.is_some_and(|c| c.state == ChildState::Established) {
                session.tasks.push_back(Task::CreateChild(pending.tunnel.name.clone()));
            }
            effects
        }
        _ => {
            let failure =
                failure_of(&error, Asked::child(&pending.tunnel, &pending.tunnel.pfs.offer));
            fail(session, cx, (&pending.tunnel, pending.rekeys), failure)
        }
    }
}

/// Tells the operator, and tries a rekey once more in what is left of the old Child SA's life.
fn fail(
    session: &mut Session,
    cx: &mut Cx<'_>,
    (tunnel, rekeys): (&ChildTunnel, Option<Spi>),
    failure: Failure,
) -> Effects {
    cx.out.fail(cx.now, &session.tunnel.name, Some(&tunnel.name), failure);
    if let Some(mut child) = rekeys.and_then(|old| session.child_mut(old)) {
        let left = child.expire_at.saturating_duration_since(cx.now);
        child.rekey_at = cx.now + (left / 2).max(Duration::from_secs(5));
    } else if rekeys.is_none() {
        let unserved = Effects::from(Effect::Unserved(tunnel.name.clone()));
        return unserved.and(session.close_when_idle(cx));
    }
    Effects::none()
}
