//! Session resumption (RFC 5723): a peer that was lost comes back with a ticket, and proves no more than that it knows
//! the session before. Every ticket that must not count leads to a full handshake.

use crate::certificates::{any, side};
use crate::{SETTLED, SOON, calm};
use ike::discard::Discard;
use ike::event::EventKind;
use ike::proof::trust::{Material, Trust};
use ike::ticket::{KEY_LEN, TicketKey};
use ike::wire::header::Header;
use ike::wire::message;
use ike::wire::payload::{Notify, Payload};
use ike::wire::registry::{CertEncoding, ExchangeType, NotifyType, PayloadType};
use ike::{CloseReason, Config, RestartAction};
use policy::{Identity, KeyKind, Ppk, Secret, Signature};
use sim::certificates::{Authority, Wallet};
use sim::host::{Side, lifetime};
use sim::invariant::{assert_agreement, assert_clean_stop};
use sim::ladder::Label;
use sim::link::{Content, Parcel};

use sim::{Behaviour, Exchange, HostId, Nat, Site, World};
use std::sync::Arc;
use std::time::Duration;

const RESUME: Exchange = Exchange::Other(38);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn site() -> Site {
    Site { resumption: true, ..Site::default() }
}

/// A peer that is silent for half a minute is asked, and what it served is set up again.
fn watchful() -> Config {
    Config { liveness_action: RestartAction::Restart, ..Config::default() }
}

fn key(octet: u8) -> TicketKey {
    TicketKey::new(Secret::new(vec![octet; KEY_LEN])).expect("the length is right")
}

fn with_keys(keys: &[u8]) -> Material {
    Material { ticket_keys: keys.iter().map(|octet| key(*octet)).collect(), ..Material::default() }
}

fn trust(material: Material) -> Arc<Trust> {
    let (trust, defects) = Trust::new(material);
    assert_eq!(defects, []);
    Arc::new(trust)
}

/// A world where the left side has begun a session, and has a ticket of the right side. Only the left side asks whether
/// the other one lives.
fn up(site: &Site, config: &Config, keys: &[u8]) -> (World, HostId, HostId) {
    let mut world = World::new(1);
    let left = world.add_host("left", site.left, site.policy(Side::Left), config.clone());
    let calm = Config { liveness_interval: None, ..config.clone() };
    let right = world.add_host("right", site.right, site.policy(Side::Right), calm);
    world.trust(right, trust(with_keys(keys)));
    begin(&mut world, left);
    (world, left, right)
}

fn begin(world: &mut World, left: HostId) {
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
}

/// The right side loses its memory, and the left side finds it out.
fn lose(world: &mut World, right: HostId) {
    world.restart(right);
    world.run_for(SETTLED);
}

/// The requests of a host that begin an IKE SA, in their order; a repetition counts once.
fn begun(world: &World, host: &str) -> Vec<Exchange> {
    let mut begun: Vec<(Exchange, u64)> = Vec::new();
    for label in world.ladder().sent_by(host) {
        let begins = !label.response && [Exchange::SaInit, RESUME].contains(&label.exchange);
        if begins && begun.last() != Some(&(label.exchange, label.initiator_spi)) {
            begun.push((label.exchange, label.initiator_spi));
        }
    }
    begun.into_iter().map(|(exchange, _)| exchange).collect()
}

fn resumed(world: &World, host: HostId) -> usize {
    world.count_events(host, |kind| matches!(kind, EventKind::Resumed { .. }))
}

fn refused(world: &World, host: HostId) -> usize {
    world.count_events(host, |kind| matches!(kind, EventKind::TicketRefused))
}

fn discarded(world: &World, host: HostId, reason: Discard) -> u64 {
    world.host(host).engine.discards().get(reason.name()).copied().unwrap_or(0)
}

/// The ticket was presented and refused for this reason, and a full handshake followed at once.
fn falls_back(world: &mut World, site: &Site, hosts: (HostId, HostId), reason: Discard) {
    let (left, right) = hosts;
    assert_eq!(begun(world, "left"), [Exchange::SaInit, RESUME, Exchange::SaInit]);
    assert_eq!(discarded(world, right, reason), 1, "{reason:?}");
    assert_eq!((resumed(world, left), resumed(world, right)), (0, 0));
    assert_eq!(refused(world, left), 1);
    assert_agreement(world, left, right, site);
    assert_clean_stop(world, left, right);
}

#[test]
fn a_responder_that_has_restarted_with_its_ticket_key_is_resumed_with() {
    let site = site();
    let (mut world, left, right) = up(&site, &watchful(), &[1]);
    lose(&mut world, right);
    assert_eq!(begun(&world, "left"), [Exchange::SaInit, RESUME]);
    assert_eq!(begun(&world, "right"), []);
    assert_eq!((resumed(&world, left), resumed(&world, right)), (1, 1));
    assert_agreement(&mut world, left, right, &site);
    let (inside, outside) = site.inner(0);
    assert!(world.probe(left, inside, outside) && world.probe(right, outside, inside));
    let status = world.status(left);
    assert_eq!(status[0].sa.as_ref().and_then(|sa| sa.resumptions), Some(1));
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn without_the_key_that_sealed_the_ticket_a_full_handshake_follows_at_once() {
    let site = site();
    for (before, after) in [(&[][..], &[][..]), (&[1], &[2]), (&[1], &[]), (&[], &[1])] {
        let (mut world, left, right) = up(&site, &watchful(), before);
        world.trust(right, trust(with_keys(after)));
        lose(&mut world, right);
        falls_back(&mut world, &site, (left, right), Discard::TicketUnknown);
    }
}

#[test]
fn the_key_of_tickets_is_rotated_without_loss() {
    let site = site();
    let (mut world, left, right) = up(&site, &watchful(), &[1]);
    world.trust(right, trust(with_keys(&[2, 1])));
    lose(&mut world, right);
    // The ticket of the resumed session is sealed under the new key.
    world.trust(right, trust(with_keys(&[2])));
    lose(&mut world, right);
    assert_eq!(begun(&world, "left"), [Exchange::SaInit, RESUME, RESUME]);
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn a_session_that_the_responder_still_has_ends_without_a_word() {
    let site = site();
    let (mut world, left, right) = up(&site, &watchful(), &[]);
    world.cut(right);
    assert!(world.run_until(SETTLED, |world| world.host(left).engine.is_idle()));
    world.heal();
    world.run_for(SETTLED);
    assert_eq!(begun(&world, "left")[..2], [Exchange::SaInit, RESUME]);
    assert_eq!((resumed(&world, left), resumed(&world, right)), (1, 1));
    let ended =
        |kind: &EventKind| matches!(kind, EventKind::Closed { reason: CloseReason::Resumed });
    assert!(world.count_events(right, ended) > 0);
    let deletes = world.ladder().sent_by("right").filter(|l| l.is_request(Exchange::Informational));
    assert_eq!(deletes.count(), 0);
    assert_agreement(&mut world, left, right, &site);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn a_policy_without_consent_gives_asks_and_takes_no_ticket() {
    for (left_consents, right_consents) in [(false, false), (true, false), (false, true)] {
        let mut world = World::new(1);
        let of = |resumption| Site { resumption, ..Site::default() };
        let config = watchful();
        let policy = of(left_consents).policy(Side::Left);
        let left = world.add_host("left", site().left, policy, config.clone());
        let policy = of(right_consents).policy(Side::Right);
        let right = world.add_host("right", site().right, policy, config);
        world.trust(right, trust(with_keys(&[1])));
        begin(&mut world, left);
        lose(&mut world, right);
        assert_eq!(begun(&world, "left"), [Exchange::SaInit, Exchange::SaInit]);
        assert_agreement(&mut world, left, right, &of(false));
    }
}

#[test]
fn a_consent_that_is_withdrawn_counts_for_tickets_that_are_out() {
    let site = site();
    let (mut world, left, right) = up(&site, &watchful(), &[1]);
    world.cut(right);
    world.replace_policy(right, Site::default().policy(Side::Right));
    world.run_for(Duration::from_secs(60));
    world.heal();
    world.run_for(SETTLED);
    falls_back(&mut world, &site, (left, right), Discard::TicketNotAllowed);
}

#[test]
fn a_ticket_counts_once() {
    let site = site();
    let (mut world, left, right) = up(&site, &watchful(), &[1]);
    let requests = world.hold(left, |label: &Label| label.is_request(RESUME));
    world.restart(right);
    assert!(world.run_until(SETTLED, |world| world.held(requests) > 0));
    let request = world.take_first(requests).expect("one is held");
    world.discard(requests);
    world.deliver(left, request.clone());
    world.run_for(SETTLED);
    assert_eq!(resumed(&world, right), 1);
    let before = world.host(right).engine.inventory();
    world.inject(Duration::ZERO, request);
    world.run_for(SOON);
    assert_eq!(discarded(&world, right, Discard::TicketSpent), 1);
    assert_eq!(world.host(right).engine.inventory().half_open, before.half_open);
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn a_stolen_ticket_opens_nothing_and_costs_its_owner_nothing() {
    let site = site();
    let (mut world, left, right) = up(&site, &watchful(), &[1]);
    let requests = world.hold(left, |label: &Label| label.is_request(RESUME));
    world.restart(right);
    assert!(world.run_until(SETTLED, |world| world.held(requests) > 0));
    let request = world.take_first(requests).expect("one is held");
    // Somebody else presents it first, under another SPI. Without SK_d there is no IKE_AUTH to follow.
    let Content::Ike(octets) = &request.content else { panic!("an IKE message") };
    let mut stolen = octets.clone();
    stolen[0] ^= 1;
    let stolen = Parcel { content: Content::Ike(stolen), ..request.clone() };
    world.inject(Duration::ZERO, stolen);
    world.run_for(SECOND);
    assert_eq!(world.host(right).engine.inventory().half_open, 1);
    world.discard(requests);
    world.deliver(left, request);
    world.run_for(SETTLED);
    assert_eq!((resumed(&world, left), resumed(&world, right)), (1, 1));
    assert_eq!(world.host(right).engine.inventory().half_open, 0);
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn a_forged_refusal_costs_a_full_handshake_and_no_more() {
    let site = site();
    let (mut world, left, right) = up(&site, &watchful(), &[1]);
    let answers = world.hold(right, |label: &Label| label.is_response(RESUME));
    world.restart(right);
    assert!(world.run_until(SETTLED, |world| world.held(answers) > 0));
    let answer = world.take_first(answers).expect("one is held");
    world.discard(answers);
    let Content::Ike(octets) = &answer.content else { panic!("an IKE message") };
    let header = Header { responder_spi: ike::wire::header::IkeSpi(0), ..parsed(octets) };
    let refusal = Payload::Notify(Notify::new(NotifyType::TICKET_NACK, vec![]));
    let forged = Content::Ike(message::encode(&header, &[refusal]));
    world.inject(Duration::ZERO, Parcel { content: forged, ..answer.clone() });
    world.run_for(SECOND);
    // The real answer comes too late.
    world.deliver(right, answer);
    world.run_for(SETTLED);
    assert_eq!(begun(&world, "left"), [Exchange::SaInit, RESUME, Exchange::SaInit]);
    assert_eq!((refused(&world, left), resumed(&world, left)), (1, 0));
    assert_agreement(&mut world, left, right, &site);
    assert_clean_stop(&mut world, left, right);
}

fn parsed(octets: &[u8]) -> Header {
    Header::parse(octets).expect("a message")
}

#[test]
fn a_cookie_is_due_before_a_ticket_is_opened() {
    let site = site();
    let config = Config { cookie_threshold: 0, ..watchful() };
    let (mut world, left, right) = up(&site, &config, &[1]);
    world.restart(right);
    assert!(world.run_until(SETTLED, |world| resumed(world, right) > 0));
    assert_eq!(discarded(&world, right, Discard::WithoutCookie), 1);
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
    // A ticket that nobody could open does not get as far without a cookie.
    let request = resume_request(&site, 7, &[1; 300]);
    world.inject(Duration::ZERO, request);
    world.run_for(SOON);
    assert_eq!(discarded(&world, right, Discard::TicketUnknown), 0);
    assert_eq!(discarded(&world, right, Discard::WithoutCookie), 2);
}

/// A request of the left side's address with this ticket.
fn resume_request(site: &Site, spi: u64, ticket: &[u8]) -> Parcel {
    let header = Header {
        initiator_spi: ike::wire::header::IkeSpi(spi),
        responder_spi: ike::wire::header::IkeSpi(0),
        next_payload: PayloadType::NONE,
        exchange: ExchangeType::IKE_SESSION_RESUME,
        from_initiator: true,
        response: false,
        higher_version: false,
        minor_version: 0,
        message_id: 0,
    };
    let payloads = [
        Payload::Nonce(vec![3; 32]),
        Payload::Notify(Notify::new(NotifyType::TICKET_OPAQUE, ticket.to_vec())),
    ];
    Parcel {
        source: (site.left, 500).into(),
        destination: (site.right, 500).into(),
        content: Content::Ike(message::encode(&header, &payloads)),
    }
}

#[test]
fn junk_in_place_of_a_ticket_is_refused_and_nothing_is_kept() {
    let site = site();
    let (mut world, left, right) = up(&site, &calm(), &[1]);
    let before = world.host(right).engine.inventory();
    for len in 0..700_usize {
        let ticket = vec![1; len];
        world.inject(Duration::ZERO, resume_request(&site, 0x1000 + len as u64, &ticket));
        world.run_for(Duration::from_millis(20));
    }
    assert_eq!(discarded(&world, right, Discard::TicketUnknown), 700);
    assert_eq!(world.host(right).engine.inventory(), before);
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn a_ticket_ends_after_eight_hours_on_both_sides() {
    let site = site();
    // The initiator knows it.
    let (mut world, left, right) = up(&site, &watchful(), &[1]);
    world.cut(right);
    world.run_for(9 * HOUR);
    world.heal();
    world.run_for(SETTLED);
    let begun_last = begun(&world, "left").last().copied();
    assert_eq!((begun_last, resumed(&world, left)), (Some(Exchange::SaInit), 0));
    assert_agreement(&mut world, left, right, &site);
    // The responder does not rely on that.
    let (mut world, left, right) = up(&site, &watchful(), &[1]);
    let requests = world.hold(left, |label: &Label| label.is_request(RESUME));
    world.restart(right);
    assert!(world.run_until(SETTLED, |world| world.held(requests) > 0));
    let request = world.take_first(requests).expect("one is held");
    world.discard(requests);
    world.run_for(8 * HOUR);
    world.inject(Duration::ZERO, request);
    world.run_for(SOON);
    assert!(discarded(&world, right, Discard::TicketExpired) >= 1);
}

#[test]
fn no_ticket_outlives_the_ike_sa_or_the_time_between_authentications() {
    let bounds = [
        (Site { lifetime: lifetime(2 * HOUR), ..site() }, watchful()),
        (site(), Config { reauthenticate: Some(2 * HOUR), ..watchful() }),
    ];
    for (site, config) in bounds {
        let (mut world, left, right) = up(&site, &config, &[1]);
        world.cut(right);
        world.run_for(3 * HOUR);
        world.heal();
        world.run_for(SETTLED);
        assert_eq!(begun(&world, "left").last(), Some(&Exchange::SaInit));
        assert_eq!((resumed(&world, left), resumed(&world, right)), (0, 0));
    }
}

#[test]
fn a_resumption_does_not_put_the_next_authentication_off() {
    let site = site();
    let config = Config { reauthenticate: Some(HOUR), ..watchful() };
    let (mut world, left, right) = up(&site, &config, &[1]);
    world.run_for(HOUR / 2);
    lose(&mut world, right);
    assert_eq!(begun(&world, "left"), [Exchange::SaInit, RESUME]);
    // Counted from the first handshake, not from the resumption.
    let rest = (HOUR + Duration::from_secs(120)).saturating_sub(world.now());
    world.run_for(rest);
    assert_eq!(begun(&world, "left"), [Exchange::SaInit, RESUME, Exchange::SaInit]);
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn after_eight_resumptions_both_sides_prove_again_who_they_are() {
    let site = site();
    let (mut world, left, right) = up(&site, &watchful(), &[1]);
    for _ in 0..9 {
        lose(&mut world, right);
    }
    let mut expected = vec![Exchange::SaInit];
    expected.extend([RESUME; 8]);
    expected.push(Exchange::SaInit);
    assert_eq!(begun(&world, "left"), expected);
    let eighth = |kind: &EventKind| matches!(kind, EventKind::Resumed { times: 8 });
    assert_eq!(world.count_events(left, eighth), 1);
    assert_agreement(&mut world, left, right, &site);
    lose(&mut world, right);
    assert_eq!(begun(&world, "left").last(), Some(&RESUME), "the chain begins again");
}

#[test]
fn a_rekeyed_ike_sa_gets_another_ticket_and_its_old_one_is_void() {
    let site = site();
    for by_initiator in [true, false] {
        let (mut world, left, right) = up(&site, &watchful(), &[1]);
        assert!(world.rekey(if by_initiator { left } else { right }, Site::TUNNEL));
        world.run_for(SETTLED);
        lose(&mut world, right);
        assert_eq!(begun(&world, "left"), [Exchange::SaInit, RESUME], "{by_initiator}");
        assert_eq!(resumed(&world, right), 1);
        assert_agreement(&mut world, left, right, &site);
    }
    // The answer with the new ticket is lost, and the IKE SA with it: the old ticket is not presented.
    let (mut world, left, right) = up(&site, &watchful(), &[1]);
    let asked = world.hold(left, |label: &Label| label.is_request(Exchange::Informational));
    assert!(world.rekey(left, Site::TUNNEL));
    world.run_for(SECOND);
    world.cut(right);
    world.discard(asked);
    world.run_for(SETTLED);
    world.heal();
    world.run_for(SETTLED);
    assert_eq!((resumed(&world, left), resumed(&world, right)), (0, 0));
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn a_session_that_was_deleted_is_not_resumed() {
    let site = site();
    for by_initiator in [true, false] {
        let (mut world, left, right) = up(&site, &watchful(), &[1]);
        assert!(world.disconnect(if by_initiator { left } else { right }, Site::TUNNEL));
        world.run_for(SETTLED);
        begin(&mut world, left);
        assert_eq!(begun(&world, "left"), [Exchange::SaInit, Exchange::SaInit], "{by_initiator}");
        assert_agreement(&mut world, left, right, &site);
    }
}

#[test]
fn a_responder_without_resumption_gets_a_full_handshake_after_one_attempt() {
    let site = site();
    let (mut world, left, right) = up(&site, &watchful(), &[1]);
    // An implementation that knows nothing of it says nothing.
    let _requests = world.hold(left, |label: &Label| label.is_request(RESUME));
    world.restart(right);
    world.run_for(SETTLED);
    assert_eq!(begun(&world, "left"), [Exchange::SaInit, RESUME, Exchange::SaInit]);
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn a_ticket_of_a_peer_that_stays_away_is_presented_again() {
    let site = site();
    let (mut world, left, right) = up(&site, &watchful(), &[1]);
    world.cut(right);
    assert!(world.run_until(2 * SETTLED, |world| begun(world, "left").len() == 4));
    world.heal();
    world.run_for(SETTLED);
    let [_, attempts @ ..] = &begun(&world, "left")[..4] else { panic!("four") };
    assert_eq!(attempts, [RESUME, Exchange::SaInit, RESUME]);
    assert_eq!(resumed(&world, left), 1);
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn postquantum_preshared_keys_stay_in_the_keys() {
    let ppk = Ppk { ids: vec!["a".into()], required: true };
    let site = Site { ppk: Some(ppk), ..site() };
    let secret = || Secret::new(vec![9; 32]);
    let with = |ppk: Secret| Material { ppks: [("a".into(), ppk)].into(), ..with_keys(&[1]) };
    let start = || {
        let (mut world, left, right) = World::of_site(1, &site, &watchful());
        world.trust(left, trust(with(secret())));
        world.trust(right, trust(with(secret())));
        begin(&mut world, left);
        (world, left, right)
    };
    let (mut world, left, right) = start();
    lose(&mut world, right);
    assert_eq!(begun(&world, "left"), [Exchange::SaInit, RESUME]);
    for host in [left, right] {
        let status = world.status(host);
        let sa = status[0].sa.as_ref().expect("an IKE SA is up");
        assert!(sa.ppk);
        assert_eq!(sa.quantum_safety, Some(ike::quantum::QuantumSafety::Safe));
    }
    assert_agreement(&mut world, left, right, &site);
    // With another PPK of that name the session is not resumed.
    let (mut world, left, right) = start();
    let other = trust(with(Secret::new(vec![8; 32])));
    world.trust(right, Arc::clone(&other));
    world.restart(right);
    assert!(world.run_until(SETTLED, |world| refused(world, left) > 0));
    world.trust(left, other);
    world.run_for(SETTLED);
    assert_eq!(discarded(&world, right, Discard::TicketNotAllowed), 1);
    assert_eq!(begun(&world, "left")[..3], [Exchange::SaInit, RESUME, Exchange::SaInit]);
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn a_resumption_under_another_name_is_refused() {
    let site = site();
    let (mut world, left, right) = up(&site, &watchful(), &[1]);
    world.cut(right);
    assert!(world.run_until(SETTLED, |world| world.host(left).engine.is_idle()));
    // The name of the right side has changed there: its tunnel is another one, and has no session.
    let renamed = Site { right_id: Identity::Fqdn("other.example".into()), ..site.clone() };
    world.replace_policy(right, renamed.policy(Side::Right));
    world.heal();
    world.run_for(SETTLED);
    assert_eq!((resumed(&world, left), resumed(&world, right)), (0, 0));
    // The left side believes the new name only once its own policy has it, and then has no ticket for it.
    world.replace_policy(left, renamed.policy(Side::Left));
    begin(&mut world, left);
    world.run_for(SETTLED);
    assert_eq!((resumed(&world, left), resumed(&world, right)), (0, 0));
    assert_agreement(&mut world, left, right, &renamed);
}

/// Both sides of a site with certificates; the right side has a ticket key.
fn with_certificates(rules: Signature) -> (World, HostId, HostId, Site, [Wallet; 2]) {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let site = Site { signature: Some(rules), ..site() };
    let wallets = ["left", "right"].map(|name| Wallet {
        crls: vec![root.crl(&[])],
        ticket_keys: vec![key(1)],
        ..side(&root, KeyKind::EcdsaP256, name)
    });
    let (mut world, left, right) = World::of_site(1, &site, &watchful());
    world.trust(left, wallets[0].trust());
    world.trust(right, wallets[1].trust());
    begin(&mut world, left);
    (world, left, right, site, wallets)
}

#[test]
fn certificates_are_neither_sent_nor_asked_for() {
    let (mut world, left, right, site, _) = with_certificates(Signature { use_crl: true, ..any() });
    let proofs = world.hold(left, |label: &Label| label.is_request(Exchange::Auth));
    world.restart(right);
    assert!(world.run_until(SETTLED, |world| world.held(proofs) > 0));
    let proof = world.take_first(proofs).expect("one is held");
    let Content::Ike(octets) = &proof.content else { panic!("an IKE message") };
    let (_, payloads) = world.overhear(right, octets).expect("a message that can be opened");
    let is_about_certificates = |payload: &Payload| {
        matches!(
            payload,
            Payload::Certificate { encoding: CertEncoding(_), .. }
                | Payload::CertificateRequest { .. }
        )
    };
    assert!(!payloads.iter().any(is_about_certificates), "{payloads:?}");
    world.discard(proofs);
    world.deliver(left, proof);
    world.run_for(SETTLED);
    assert_eq!((resumed(&world, left), resumed(&world, right)), (1, 1));
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn another_revocation_list_ends_tickets_that_are_out() {
    let rules = Signature { use_crl: true, ..any() };
    let (mut world, left, right, site, [_, wallet]) = with_certificates(rules);
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let crls = vec![root.crl(&[]), root.crl_until(&[77], 28)];
    world.trust(right, Wallet { crls, ..wallet }.trust());
    lose(&mut world, right);
    falls_back(&mut world, &site, (left, right), Discard::TicketNotAllowed);
}

#[test]
fn a_peer_whose_revocation_is_unknown_gets_no_ticket() {
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let site = Site { signature: Some(Signature { use_crl: true, ..any() }), ..site() };
    let (mut world, left, right) = World::of_site(1, &site, &watchful());
    for (host, name) in [(left, "left"), (right, "right")] {
        let wallet = Wallet { lenient: true, ..side(&root, KeyKind::EcdsaP256, name) };
        world.trust(host, Wallet { ticket_keys: vec![key(1)], ..wallet }.trust());
    }
    begin(&mut world, left);
    lose(&mut world, right);
    assert_eq!(begun(&world, "left"), [Exchange::SaInit, Exchange::SaInit]);
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn a_peer_resumes_from_another_address_behind_another_nat() {
    let site = Site { left_roams: true, ..site() };
    let (mut world, left, right) = up(&site, &watchful(), &[1]);
    world.cut(right);
    assert!(world.run_until(SETTLED, |world| world.host(left).engine.is_idle()));
    let outside = std::net::IpAddr::from([203, 0, 113, 7]);
    let any = Behaviour::EndpointIndependent;
    let nat = Nat::new(outside, any, any, Duration::from_secs(60));
    world.put_behind(left, Some(nat));
    world.heal();
    world.run_for(SETTLED);
    assert_eq!((resumed(&world, left), resumed(&world, right)), (1, 1));
    let status = world.status(right);
    let sa = status[0].sa.as_ref().expect("an IKE SA is up");
    assert_eq!(sa.remote.ip(), outside);
    assert!(sa.nat_remote);
    let (inside, beyond) = site.inner(0);
    assert!(world.probe(left, inside, beyond) && world.probe(right, beyond, inside));
}

#[test]
fn losses_on_the_way_delay_a_resumption_only() {
    let site = site();
    for count in 1..4 {
        for (from, exchange, response) in [
            ("left", RESUME, false),
            ("right", RESUME, true),
            ("left", Exchange::Auth, false),
            ("right", Exchange::Auth, true),
        ] {
            let (mut world, left, right) = up(&site, &watchful(), &[1]);
            world.restart(right);
            let host = if from == "left" { left } else { right };
            let lost = move |l: &Label| l.exchange == exchange && l.response == response;
            world.drop_next(host, count, lost);
            world.run_for(SETTLED);
            assert_eq!(begun(&world, "left"), [Exchange::SaInit, RESUME], "{from} {exchange:?}");
            assert_eq!(resumed(&world, right), 1, "{from} {exchange:?}");
            assert_agreement(&mut world, left, right, &site);
        }
    }
}
