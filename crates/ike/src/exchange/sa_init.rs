//! IKE_SA_INIT (RFC 7296 §1.2). The responder's side keeps nothing before a cookie is due.

use super::auth::proving;
use super::half_open::{Begun, HalfOpen, Stage, Unproven};
use super::{address_update, intermediate, ppk};
use crate::admission::HALF_OPEN_FOR;
use crate::close_reason::CloseReason;
use crate::config::Config;
use crate::config::Encap;
use crate::context::Context;
use crate::crypto::key_exchange::{PrivateKey, Response, is_plausible, respond};
use crate::crypto::prf;
use crate::datagram::Datagram;
use crate::discard::Discard;
use crate::effect::{Effect, Effects};
use crate::event::{EventKind, Step};
use crate::failure::facts::{KEPT, Offers};
use crate::failure::{Failure, FailureKind};
use crate::negotiation::description::{describe, describe_group};
use crate::negotiation::proposal::{accept_ike, choose_ike, offer_ike};
use crate::negotiation::suite::IkeSuite;
use crate::negotiation::transforms::{group_id, group_of};
use crate::originator::Originator;
use crate::policy_index::Candidates;
use crate::product::{Product, VENDOR_ID};
use crate::proof::wishes::{Wanted, Wishes};
use crate::rejection::{Asked, Rejection, failure_of};
use crate::sa::IkeSa;
use crate::sa::attempt::{Attempt, Handshake, InitSent, Opening};
use crate::sa::int_auth::IntAuth;
use crate::sa::keys::{KeyInputs, Keys, Nonces, PpkUse};
use crate::sa::message::Message;
use crate::sa::path::{Path, announce, detect};
use crate::sa::window::Window;
use crate::session::Session;
use crate::wire::header::{Header, IkeSpi};
use crate::wire::message;
use crate::wire::parts::{Parts, status};
use crate::wire::payload::{Notify, Payload, Proposal};
use crate::wire::registry::{ExchangeType, GroupId, NotifyType, ProtocolId};
use policy::{ChildTunnel, IkeProposal, IkeTunnel, Secret};
use std::sync::Arc;

/// The number of times that a peer may send us back to the start (cookie, other group).
const RESTARTS: u8 = 5;

/// Begins a session: the first message goes out.
pub(crate) fn begin(
    cx: &mut Context<'_>,
    tunnel: &Arc<IkeTunnel>,
    child: &Arc<ChildTunnel>,
    mut path: Path,
) -> Session {
    path.pretended = cx.config.encap == Encap::Always;
    let sa = new_sa(cx, tunnel, Arc::clone(child), false);
    let mut session = Session::of_initiator(Arc::clone(tunnel), path, sa.local_spi, cx.now);
    cx.out.event(&tunnel.name, None, EventKind::Negotiating { initiator: true });
    ask(&mut session, cx, sa);
    session
}

/// Begins again with a new IKE SA in place of `old`; `childless`: its IKE_AUTH asks for no Child SA (RFC 6023).
pub(crate) fn begin_again(
    session: &mut Session,
    cx: &mut Context<'_>,
    old: IkeSpi,
    child: Arc<ChildTunnel>,
    childless: bool,
) -> Effects {
    let mut path = session.path().for_another(cx.config.first_port());
    path.pretended = cx.config.encap == Encap::Always;
    let sa = new_sa(cx, session.tunnel(), child, childless);
    let new = sa.local_spi;
    session.begin_again(new, path);
    ask(session, cx, sa);
    Effects::from(Effect::SpiGivenUp(old)).and(Effect::SpiTaken(new))
}

fn new_sa(
    cx: &mut Context<'_>,
    tunnel: &IkeTunnel,
    child: Arc<ChildTunnel>,
    childless: bool,
) -> Box<IkeSa<InitSent>> {
    let local_spi = cx.new_ike_spi();
    let init = InitSent {
        child,
        childless,
        nonce: cx.rng.nonce(),
        key_exchange: PrivateKey::generate(tunnel.proposals[0].groups[0]),
        request: Vec::new(),
        cookie: None,
        restarts: 0,
        heard: None,
        refusal: None,
    };
    Box::new(IkeSa {
        local_spi,
        remote_spi: IkeSpi(0),
        originator: Originator::ThisSide,
        window: Window::default(),
        state: init,
    })
}

fn ask(session: &mut Session, cx: &mut Context<'_>, mut sa: Box<IkeSa<InitSent>>) {
    sa.remote_spi = IkeSpi(0);
    let header = sa.request_header(ExchangeType::IKE_SA_INIT, 0);
    let spis = sa.spis();
    let init = &mut sa.state;
    let mut payloads = Vec::new();
    payloads.extend(init.cookie.clone().map(|c| status(NotifyType::COOKIE, c)));
    payloads.push(Payload::Sa(offer_ike(&session.tunnel().proposals, &[])));
    payloads.push(Payload::KeyExchange {
        group: group_id(init.key_exchange.group()),
        data: init.key_exchange.public_value().to_vec(),
    });
    payloads.push(Payload::Nonce(init.nonce.clone()));
    payloads.extend(announce(spis, session.path(), session.path().pretended));
    payloads.extend(introduction(cx.config));
    payloads.extend(cx.config.fragment_size.map(|_| takes_fragments()));
    payloads.extend(proving::announcement(Wanted::of(session.tunnel())));
    let ppk = ppk::announcements(session.tunnel(), cx.trust, cx.config);
    let may_go_on =
        session.tunnel().proposals.iter().any(|proposal| !proposal.additional.is_empty())
            || ppk.len() > 1;
    payloads.extend(may_go_on.then(goes_on));
    payloads.extend(ppk);
    init.request = message::encode(&header, &payloads);
    cx.out.transmit(session.path().local, session.path().remote, init.request.clone());
    let request = Message::unprotected(init.request.clone());
    sa.window.restart(cx.now, cx.config, request);
    cx.out.exchange(&session.tunnel().name, || sa.told(Step::Sent));
    session.keep_attempt(Attempt::Init(sa));
}

/// Tells a peer of the same kind that ESP may go in UDP without a NAT.
pub(super) fn introduction(config: &Config) -> Option<Payload> {
    (config.encap != Encap::Never).then(|| Payload::VendorId(VENDOR_ID.to_vec()))
}

pub(super) fn takes_fragments() -> Payload {
    status(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, vec![])
}

/// Announces IKE_INTERMEDIATE (RFC 9242 §3.1).
fn goes_on() -> Payload {
    status(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED, vec![])
}

/// The proposals for a peer that has not announced IKE_INTERMEDIATE: those that can do without.
fn without_additional(ours: &[IkeProposal]) -> Vec<IkeProposal> {
    ours.iter()
        .filter(|p| p.additional.iter().all(|a| a.optional))
        .map(|p| IkeProposal { additional: Vec::new(), ..p.clone() })
        .collect()
}

/// The responder's choice, from a peer that has announced IKE_INTERMEDIATE or not.
fn choice(
    ours: &[IkeProposal],
    theirs: &[Proposal],
    goes_on: bool,
) -> Option<(IkeSuite, Proposal)> {
    if goes_on || ours.iter().all(|p| p.additional.is_empty()) {
        return choose_ike(ours, theirs, GroupId::NONE, &[]);
    }
    choose_ike(&without_additional(ours), theirs, GroupId::NONE, &[])
}

/// Tells an initiator that IKE_AUTH needs no Child SA (RFC 6023 §3).
pub(super) fn sets_up_without_child() -> Payload {
    let kind = NotifyType::CHILDLESS_IKEV2_SUPPORTED;
    Payload::Notify(Notify { protocol: ProtocolId::IKE, spi: vec![], kind, data: vec![] })
}

/// The size of fragments, where both sides take them (RFC 7383 §2.3).
fn fragment_size(config: &Config, parts: &Parts<'_>) -> Option<u16> {
    parts.notify(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED).and(config.fragment_size)
}

/// Returns `true` if ESP is to travel in UDP although no NAT requires it. Two gateways of this implementation
/// recognize each other by their vendor ID and need not pretend a NAT for it. So they do not follow each other to
/// addresses that an attacker forges (RFC 7296 §2.23).
fn wants_udp(config: &Config, path: &Path, payloads: &[Payload]) -> bool {
    let kin = payloads.iter().any(|p| matches!(p, Payload::VendorId(v) if v == VENDOR_ID));
    match config.encap {
        Encap::Always => true,
        Encap::Auto => kin && !path.nat_local && !path.nat_remote,
        Encap::Never => false,
    }
}

/// A responder's reaction to a request.
pub(crate) enum Answer {
    /// Refuse or ask for something else; nothing is kept.
    Stateless(Payload),
    /// Go on.
    HalfOpen(Box<HalfOpen>),
    /// Nothing is said or kept, but a key was made before the public value showed to be none.
    Wasted,
}

/// Answers a request whose cookie, if one is due, was right. `candidates` fit its addresses.
pub(crate) fn answer(
    cx: &mut Context<'_>,
    header: &Header,
    datagram: Datagram<'_>,
    payloads: &[Payload],
    candidates: Candidates,
) -> Option<Answer> {
    let parts = Parts::of(payloads);
    let chosen = match Chosen::from(cx, datagram, &parts, candidates) {
        Ok(chosen) => chosen,
        Err(answer) => return answer,
    };
    let local_spi = cx.new_ike_spi();
    let spis = (header.initiator_spi, local_spi);
    let path = path_of_request(cx, header, datagram, payloads);
    let our_nonce = cx.rng.nonce();
    let (granted, ppk) = chosen.granted(cx, &parts, &path, spis, &our_nonce);
    let nonces = Nonces { initiator: chosen.nonce, responder: &our_nonce };
    let inputs = KeyInputs { nonces, spis, originator: Originator::Peer };
    let (keys, proof_keys) =
        Keys::initial(&cx.config.crypto, chosen.suite, &chosen.made.shared, inputs);
    let mut begun = Begun {
        local_spi,
        remote_spi: header.initiator_spi,
        path,
        keys,
        request: datagram.octets.to_vec(),
        response: Vec::new(),
        begun_at: cx.now,
        expires_at: cx.now + HALF_OPEN_FOR,
    };
    begun.response = message::encode(&begun.answer_header(ExchangeType::IKE_SA_INIT, 0), &granted);
    let unproven = Unproven {
        candidates: chosen.candidates,
        proposal: chosen.proposal,
        window: Window::of_stranger(),
        proof_keys,
        done: 0,
        before: None,
        int_auth: IntAuth::default(),
        initiator_nonce: chosen.nonce.to_vec(),
        responder_nonce: our_nonce,
        wishes: Wishes::of(payloads),
        ppk,
        ppk_settled: false,
        resumed: None,
        product: Product::of(payloads),
    };
    let stage = Stage::Waiting(Box::new(unproven));
    Some(Answer::HalfOpen(Box::new(HalfOpen { begun, stage })))
}

/// The path of an initiator that begins with this request.
pub(super) fn path_of_request(
    cx: &Context<'_>,
    header: &Header,
    datagram: Datagram<'_>,
    payloads: &[Payload],
) -> Path {
    let mut path = Path::new(datagram.local, datagram.remote);
    // RFC 7296 §2.23: the hashes cover the SPIs of the header, where the responder's is still zero.
    path.traverses = detect((header.initiator_spi, IkeSpi(0)), &mut path, payloads);
    path.pretended = path.traverses && wants_udp(cx.config, &path, payloads);
    path.fragment_size = fragment_size(cx.config, &Parts::of(payloads));
    path
}

/// A responder's choice from an initiator's offers, and its half of the key exchange.
struct Chosen<'a> {
    /// The tunnels that may take the proposal.
    candidates: Candidates,
    suite: IkeSuite,
    proposal: Proposal,
    made: Response,
    /// The initiator's.
    nonce: &'a [u8],
}

impl<'a> Chosen<'a> {
    /// Chooses. The checks that cost least come first, and the key last. Otherwise there is a refusal or nothing to
    /// answer.
    fn from(
        cx: &mut Context<'_>,
        datagram: Datagram<'_>,
        parts: &Parts<'a>,
        mut candidates: Candidates,
    ) -> Result<Self, Option<Answer>> {
        let (Some(theirs), Some((sent_group, public)), Some(nonce)) =
            (parts.sa, parts.key_exchange, parts.nonce)
        else {
            cx.out.discard(Discard::Malformed);
            return Err(None);
        };
        // The group that was sent does not count: an attacker who forges INVALID_KE_PAYLOAD can have the initiator send
        // any of its groups (RFC 7296 §1.2).
        let goes_on_there = parts.notify(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED).is_some();
        let chosen = candidates.proposals().find_map(|ours| choice(ours, theirs, goes_on_there));
        let Some((suite, proposal)) = chosen else {
            let ours: Vec<IkeProposal> =
                candidates.proposals().flatten().take(KEPT).cloned().collect();
            let rejection = Rejection::no_proposal_chosen(Asked::ike(&ours).offers.beside(theirs));
            cx.out.turn_away(cx.now, datagram, &candidates, &rejection);
            return Err(Some(Answer::Stateless(rejection.payload())));
        };
        if !prf::is_long_enough(suite.prf, nonce) {
            cx.out.discard(Discard::ShortNonce);
            return Err(None);
        }
        if group_of(sent_group) != Some(suite.group) {
            let rejection = Rejection::invalid_ke(group_id(suite.group));
            return Err(Some(Answer::Stateless(rejection.payload())));
        }
        let only = std::slice::from_ref(&proposal);
        candidates.retain(|ours| choice(ours, only, goes_on_there).is_some());
        // A public value that is obviously wrong costs no key.
        if !is_plausible(suite.group, public) {
            cx.out.discard(Discard::InvalidPublicValue);
            return Err(None);
        }
        let Ok(made) = respond(suite.group, public) else {
            cx.out.discard(Discard::InvalidPublicValue);
            return Err(Some(Answer::Wasted));
        };
        Ok(Self { candidates, suite, proposal, made, nonce })
    }

    /// The payloads of the answer, and what it agrees to about postquantum preshared keys.
    fn granted(
        &self,
        cx: &Context<'_>,
        parts: &Parts<'_>,
        path: &Path,
        spis: (IkeSpi, IkeSpi),
        our_nonce: &[u8],
    ) -> (Vec<Payload>, PpkUse) {
        let (suite, wanted) = (&self.suite, self.candidates.wanted());
        let mut granted = vec![
            Payload::Sa(vec![self.proposal.clone()]),
            Payload::KeyExchange {
                group: group_id(suite.group),
                data: self.made.public_value.clone(),
            },
            Payload::Nonce(our_nonce.to_vec()),
        ];
        if path.traverses {
            granted.extend(announce(spis, path, cx.config.encap == Encap::Always));
        }
        granted.extend(introduction(cx.config));
        granted.extend(path.fragment_size.map(|_| takes_fragments()));
        granted.push(sets_up_without_child());
        granted.extend(proving::announcement(wanted));
        granted.extend(proving::request(wanted, cx.trust));
        let (ppk, announced) = ppk::agree(wanted.ppk, cx.config, parts);
        let will_go_on = !suite.additional.is_empty() || ppk == PpkUse::BeforeProofs;
        granted.extend(will_go_on.then(goes_on));
        granted.extend(announced);
        (granted, ppk)
    }
}

/// The meaning of an answer.
enum Outcome {
    /// None: the datagram is ignored.
    Ignored(Discard),
    /// The responder wants a cookie or another group, or our key is spent: the request is sent once more.
    Again,
    /// A refusal that anyone could have sent: a real answer may still come.
    Refused(Failure),
    Agreed(Agreed),
}

/// The parts of an answer on which the keys of the IKE SA rest.
struct Agreed {
    suite: IkeSuite,
    shared: Secret,
    responder_nonce: Vec<u8>,
    ppk: PpkUse,
}

/// Takes the answer to our request.
pub(crate) fn conclude(
    session: &mut Session,
    cx: &mut Context<'_>,
    mut sa: Box<IkeSa<InitSent>>,
    header: &Header,
    datagram: Datagram<'_>,
) -> Effects {
    let payloads = match read_first_answer(ExchangeType::IKE_SA_INIT, header, datagram) {
        Ok(payloads) => payloads,
        Err(reason) => {
            session.keep_attempt(Attempt::Init(sa));
            return cx.discard(reason);
        }
    };
    let parts = Parts::of(&payloads);
    match judge(session.tunnel(), cx, &mut sa.state, header, &parts) {
        Outcome::Agreed(agreed) => {
            cx.out.products.note(&session.tunnel().name, Product::of(&payloads));
            sa.remote_spi = header.responder_spi;
            return go_on(session, cx, *sa, agreed, datagram, &payloads);
        }
        Outcome::Again => {
            sa.state.hears(&parts);
            sa.state.restarts += 1;
            ask(session, cx, sa);
            return Effects::none();
        }
        Outcome::Ignored(reason) => {
            sa.state.hears(&parts);
            cx.out.discard(reason)
        }
        Outcome::Refused(failure) => {
            cx.out.discard(Discard::UnauthenticatedRefusal);
            sa.state.refusal.get_or_insert_with(|| (failure.unauthenticated(), cx.now));
        }
    }
    session.keep_attempt(Attempt::Init(sa));
    Effects::none()
}

/// The payloads of an answer to the first request of an attempt, which nothing protects.
pub(super) fn read_first_answer(
    exchange: ExchangeType,
    header: &Header,
    datagram: Datagram<'_>,
) -> Result<Vec<Payload>, Discard> {
    if !header.response || header.exchange != exchange || header.message_id != 0 {
        return Err(Discard::UnexpectedResponse);
    }
    message::decode(header, datagram.octets).map_err(|_| Discard::Malformed)
}

/// Returns `true` if a cookie is one (RFC 7296 §2.6), and the request may be sent once more with it.
pub(super) fn takes_cookie(cookie: &[u8], restarts: u8) -> bool {
    (1..=64).contains(&cookie.len()) && restarts < RESTARTS
}

/// Reads an answer.
fn judge(
    tunnel: &IkeTunnel,
    cx: &mut Context<'_>,
    init: &mut InitSent,
    header: &Header,
    parts: &Parts<'_>,
) -> Outcome {
    if let Some(cookie) = parts.notify(NotifyType::COOKIE).filter(|_| parts.sa.is_none()) {
        if !takes_cookie(&cookie.data, init.restarts) {
            return Outcome::Ignored(Discard::Malformed);
        }
        init.cookie = Some(cookie.data.clone());
        return Outcome::Again;
    }
    if let Some(wanted) = parts.wanted_group().filter(|_| parts.sa.is_none()) {
        return change_group(tunnel, init, wanted);
    }
    if let Some(error) = parts.error().filter(|_| parts.sa.is_none()) {
        return Outcome::Refused(failure_of(error, Asked::ike(&tunnel.proposals)));
    }
    let (Some(chosen), Some((group, public)), Some(nonce)) =
        (parts.sa, parts.key_exchange, parts.nonce)
    else {
        return Outcome::Ignored(Discard::Malformed);
    };
    if header.responder_spi == IkeSpi(0) {
        return Outcome::Ignored(Discard::Malformed);
    }
    let goes_on_there = parts.notify(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED).is_some();
    let Some(suite) = accept_ike(&tunnel.proposals, chosen)
        .filter(|s| group_id(s.group) == group && init.key_exchange.group() == s.group)
        .filter(|s| s.additional.is_empty() || goes_on_there)
    else {
        let detail = format!("the peer chose {}, which was not offered", describe(chosen));
        return Outcome::Refused(Failure::new(FailureKind::ProtocolError, detail));
    };
    let ppk = match ppk::agreed(tunnel, cx.trust, cx.config, parts) {
        Ok(ppk) => ppk,
        Err(failure) => return Outcome::Refused(failure),
    };
    if !prf::is_long_enough(suite.prf, nonce) {
        return Outcome::Ignored(Discard::ShortNonce);
    }
    let fresh = PrivateKey::generate(suite.group);
    match std::mem::replace(&mut init.key_exchange, fresh).agree(public) {
        Ok(shared) => {
            Outcome::Agreed(Agreed { suite, shared, responder_nonce: nonce.to_vec(), ppk })
        }
        // The public value was not one; our private key is spent, so the exchange starts over.
        Err(_) if init.restarts < RESTARTS => {
            cx.out.discard(Discard::InvalidPublicValue);
            Outcome::Again
        }
        Err(_) => Outcome::Ignored(Discard::InvalidPublicValue),
    }
}

fn change_group(tunnel: &IkeTunnel, init: &mut InitSent, wanted: GroupId) -> Outcome {
    match group_of(wanted).filter(|g| tunnel.proposals.iter().any(|p| p.groups.contains(g))) {
        Some(group) if group != init.key_exchange.group() && init.restarts < RESTARTS => {
            init.key_exchange = PrivateKey::generate(group);
            Outcome::Again
        }
        // The group in use: an answer to an earlier request, come late. Or the peer has asked for too many.
        Some(_) => Outcome::Ignored(Discard::UnexpectedResponse),
        None => {
            let wanted_group = Some(describe_group(wanted));
            let offers = Asked::ike(&tunnel.proposals).offers;
            Outcome::Refused(Offers { wanted_group, ..offers }.into())
        }
    }
}

/// Goes on with an answer that is agreed with: makes the keys.
fn go_on(
    session: &mut Session,
    cx: &mut Context<'_>,
    sa: IkeSa<InitSent>,
    agreed: Agreed,
    datagram: Datagram<'_>,
    payloads: &[Payload],
) -> Effects {
    let Agreed { suite, shared, responder_nonce, ppk } = agreed;
    let parts = Parts::of(payloads);
    cx.out.exchange(&session.tunnel().name, || sa.told(Step::Answered));
    let (mut sa, init) = sa.part();
    sa.window.concluded();
    let spis = sa.spis();
    follow_answer(session, cx, spis, payloads);
    let nonces = Nonces { initiator: &init.nonce, responder: &responder_nonce };
    let inputs = KeyInputs { nonces, spis, originator: Originator::ThisSide };
    let (keys, proof_keys) = Keys::initial(&cx.config.crypto, suite, &shared, inputs);
    cx.out.log_keys(|| keys.logged(spis, Originator::ThisSide));
    let handshake = Handshake {
        initiator_nonce: init.nonce,
        responder_nonce,
        request: init.request,
        response: datagram.octets.to_vec(),
        proof_keys,
        int_auth: IntAuth::default(),
        wishes: Wishes::of(payloads),
        childless: parts.notify(NotifyType::CHILDLESS_IKEV2_SUPPORTED).is_some(),
        ppk,
        resumed: None,
    };
    let InitSent { child, childless, .. } = init;
    intermediate::ask(session, cx, Opening { sa, keys, child, childless, handshake }, 0)
}

/// Takes from the first answer how messages reach the responder.
pub(super) fn follow_answer(
    session: &mut Session,
    cx: &Context<'_>,
    spis: (IkeSpi, IkeSpi),
    payloads: &[Payload],
) {
    let path = session.path_mut();
    let traverses = detect(spis, path, payloads);
    path.traverses = traverses;
    path.pretended = traverses && wants_udp(cx.config, path, payloads);
    path.fragment_size = fragment_size(cx.config, &Parts::of(payloads));
    address_update::note_first_mapping(session, spis, payloads);
    // RFC 4555 §3.3: with MOBIKE even where there is no NAT, since there may be one on a later path.
    if session.path().in_udp() || (traverses && session.may_be_mobile(cx)) {
        session.path_mut().float(cx.config.natt_port);
    }
}

/// Believes a refusal that has stood long enough.
pub(crate) fn handle_timeout(session: &mut Session, cx: &mut Context<'_>) -> Effects {
    let Some(Attempt::Init(sa)) = session.attempt() else { return Effects::none() };
    let init = &sa.state;
    let believed =
        init.refusal.as_ref().filter(|_| init.refused_at(cx.config).is_some_and(|at| at <= cx.now));
    let believed = believed.map(|(failure, _)| failure.clone());
    if let Some(failure) = believed {
        return session.end(cx, CloseReason::Refused, Some(failure));
    }
    Effects::none()
}
