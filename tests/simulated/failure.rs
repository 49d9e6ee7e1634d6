//! A tunnel that cannot come up says why on both ends and leaves nothing behind.

use crate::puppet::{Puppet, notify};
use crate::{SETTLED, SOON, calm, failure, up};
use esp::plane::PlaneError;
use ike::CommandError;
use ike::failure::FailureKind;
use ike::failure::facts::{Facts, Layer};
use ike::status::PastFailure;
use ike::wire::registry::NotifyType;
use policy::{Group, KeyBits, Mode, Policy, Role, Selector};
use sim::host::{Side, esp_offer, ike_offer, lifetime, network};
use sim::invariant::{assert_agreement, assert_clean_stop, assert_nothing_left};
use sim::{Exchange, HostId, Site, World};
use std::sync::Arc;
use std::time::Duration;

/// Two ends with different ideas of the site; the left one tries to connect.
fn clash(left_site: &Site, right_site: &Site) -> (World, HostId, HostId) {
    let mut world = World::new(1);
    let left = world.add_host("left", left_site.left, left_site.policy(Side::Left), calm());
    let right = world.add_host("right", right_site.right, right_site.policy(Side::Right), calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(SETTLED);
    (world, left, right)
}

/// No Child SA on either end, and planes without SAs.
fn assert_no_child(world: &mut World, hosts: [HostId; 2]) {
    for host in hosts {
        let up = world.status(host).iter().flat_map(|s| &s.children).any(|c| c.sa.is_some());
        assert!(!up, "a Child SA is up");
        let plane = world.plane(host);
        assert_eq!((plane.inbound().count(), plane.outbound().count()), (0, 0));
        assert_eq!(plane.misuse(), [] as [&str; 0]);
    }
}

#[test]
fn different_preshared_keys() {
    let site = Site::default();
    let other = Site { secret: "Tr0ub4dor&3".into(), ..site.clone() };
    let (mut world, left, right) = clash(&site, &other);
    for host in [left, right] {
        assert_nothing_left(&mut world, host);
        let kind = failure(&world, host, Site::TUNNEL);
        assert_eq!(kind, Some(FailureKind::AuthenticationFailed));
    }
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn no_ike_proposal_in_common() {
    let site = Site::default();
    let other = Site { ike: vec![ike_offer(&[Group::Ecp256])], ..site.clone() };
    let (mut world, left, right) = clash(&site, &other);
    for host in [left, right] {
        assert_nothing_left(&mut world, host);
        assert_eq!(failure(&world, host, Site::TUNNEL), Some(FailureKind::NoProposalChosen));
    }
}

#[test]
fn no_esp_proposal_in_common() {
    let site = Site::default();
    let offer = esp_offer(KeyBits::B256, lifetime(Duration::from_secs(3600)));
    let (mut world, left, right) = clash(&site, &Site { esp: vec![offer], ..site.clone() });
    assert_no_child(&mut world, [left, right]);
    for host in [left, right] {
        assert_eq!(failure(&world, host, "net0"), Some(FailureKind::NoProposalChosen));
    }
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn no_traffic_selectors_in_common() {
    let site = Site::default();
    let elsewhere = vec![Selector::all_of(network([172, 16, 0, 0]))];
    let (mut world, left, right) =
        clash(&site, &Site { left_net: Some(elsewhere), ..site.clone() });
    assert_no_child(&mut world, [left, right]);
    assert_eq!(failure(&world, left, "net0"), Some(FailureKind::TsUnacceptable));
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn one_end_wants_transport_mode_and_the_other_tunnel_mode() {
    // Selectors that fit each other, so that only the mode differs.
    let net = |address| Some(vec![Selector::all_of(policy::AddressRange::from(address))]);
    let site = Site::default();
    let transport = Site { mode: Mode::Transport, left_net: net(site.left), ..site.clone() };
    for (l, r) in [(Mode::Transport, Mode::Tunnel), (Mode::Tunnel, Mode::Transport)] {
        let set_mode = |policy: &Arc<Policy>, mode| {
            let mut policy = Policy::clone(policy);
            for tunnel in &mut policy.tunnels {
                let tunnel = Arc::make_mut(tunnel);
                tunnel.children.iter_mut().for_each(|c| Arc::make_mut(c).mode = mode);
            }
            Arc::new(policy)
        };
        let mut world = World::new(1);
        let [left_policy, right_policy] =
            [(Side::Left, l), (Side::Right, r)].map(|(s, m)| set_mode(&transport.policy(s), m));
        let left = world.add_host("left", site.left, left_policy, calm());
        let right = world.add_host("right", site.right, right_policy, calm());
        world.connect(left, Site::TUNNEL);
        world.run_for(SETTLED);
        assert_no_child(&mut world, [left, right]);
        // There is no Notify for it: a responder that cannot do tunnel mode has only NO_PROPOSAL_CHOSEN, and knows
        // better.
        let (knows, other) = if l == Mode::Transport { (left, right) } else { (right, left) };
        assert_eq!(failure(&world, knows, "net0"), Some(FailureKind::ModeMismatch));
        if other == left {
            assert_eq!(failure(&world, left, "net0"), Some(FailureKind::NoProposalChosen));
        }
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn nobody_answers() {
    let (mut world, left, right) = World::of_site(1, &Site::default(), &calm());
    world.cut(right);
    world.connect(left, Site::TUNNEL);
    world.run_for(Duration::from_secs(3600));
    assert_nothing_left(&mut world, left);
    assert_nothing_left(&mut world, right);
    assert_eq!(failure(&world, left, Site::TUNNEL), Some(FailureKind::NoAnswer));
    let tries = world.ladder().sent_by("left").count();
    assert_eq!(tries, 1 + calm().retransmissions as usize);
    world.heal();
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &Site::default());
}

#[test]
fn the_answer_to_ike_auth_never_comes() {
    let (mut world, left, right) = World::of_site(1, &Site::default(), &calm());
    world.drop_next(right, u32::MAX, |l| l.is_response(Exchange::Auth));
    world.connect(left, Site::TUNNEL);
    world.run_for(Duration::from_secs(600));
    assert_nothing_left(&mut world, left);
    assert_eq!(failure(&world, left, Site::TUNNEL), Some(FailureKind::NoAnswer));
}

#[test]
fn a_stranger_is_not_served() {
    let site = Site::default();
    let mut world = World::new(1);
    let left = world.add_host("left", site.left, site.policy(Side::Left), calm());
    let right = world.add_host("right", site.right, Arc::default(), calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(SETTLED);
    assert_nothing_left(&mut world, left);
    assert_nothing_left(&mut world, right);
    assert!(failure(&world, left, Site::TUNNEL).is_some());
}

#[test]
fn a_responder_does_not_start() {
    let site = Site { role: Role::Responder, ..Site::default() };
    let (mut world, left, _) = World::of_site(1, &site, &calm());
    let refused = world.command(left, "connect", |e, now| e.connect(now, Site::TUNNEL));
    assert_eq!(refused, Err(CommandError::ResponderOnly(Site::TUNNEL.into())));
    let unknown = world.command(left, "connect", |e, now| e.connect(now, "sit"));
    let hint = Some(Site::TUNNEL.to_owned());
    assert_eq!(unknown, Err(CommandError::NoSuchTunnel("sit".into(), hint)));
    assert!(!world.rekey(left, Site::TUNNEL), "what is not up cannot be rekeyed");
}

#[test]
fn two_initiators_do_not_answer_each_other() {
    let site = Site { role: Role::Initiator, ..Site::default() };
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(SETTLED);
    assert_nothing_left(&mut world, left);
    assert_nothing_left(&mut world, right);
}

fn system_error() -> PlaneError {
    PlaneError::System { what: "add SA".into(), why: "no buffer space".into() }
}

#[test]
fn a_plane_that_refuses_an_sa_leaves_no_half_of_it() {
    for refusing_side in [Side::Left, Side::Right] {
        for accepted_before in [0, 1] {
            let site = Site::default();
            let (mut world, left, right) = World::of_site(1, &site, &calm());
            let refusing = if refusing_side == Side::Left { left } else { right };
            world.plane(refusing).refuse_next_after(accepted_before, system_error());
            world.connect(left, Site::TUNNEL);
            world.run_for(SETTLED);
            assert_no_child(&mut world, [left, right]);
            assert_eq!(failure(&world, refusing, "net0"), Some(FailureKind::DataPlane));
            assert!(failure(&world, left, "net0").is_some(), "the initiator is told");
            world.connect(left, Site::TUNNEL);
            world.run_for(SETTLED);
            assert_agreement(&mut world, left, right, &site);
            assert_clean_stop(&mut world, left, right);
        }
    }
}

#[test]
fn a_plane_that_refuses_a_rekey_leaves_the_old_sa() {
    for refusing_side in [Side::Left, Side::Right] {
        for accepted_before in [0, 1] {
            let site = Site::default();
            let (mut world, left, right) = up(1, &site);
            let refusing = if refusing_side == Side::Left { left } else { right };
            world.plane(refusing).refuse_next_after(accepted_before, system_error());
            assert!(world.rekey(left, "net0"));
            world.run_for(SETTLED);
            assert_agreement(&mut world, left, right, &site);
            assert_clean_stop(&mut world, left, right);
        }
    }
}

#[test]
fn a_strangers_refusal_does_not_hide_what_is_known() {
    let site = Site::default();
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    world.cut(right);
    world.connect(left, Site::TUNNEL);
    world.run_for(SETTLED);
    world.heal();
    assert_eq!(failure(&world, left, Site::TUNNEL), Some(FailureKind::NoAnswer));
    // Somebody with the peer's address and other algorithms.
    let other = Site { ike: vec![ike_offer(&[Group::Ecp256])], ..site };
    let mut elsewhere = World::new(2);
    let liar = elsewhere.add_host("liar", other.right, other.policy(Side::Right), calm());
    elsewhere.tap();
    elsewhere.connect(liar, Site::TUNNEL);
    for parcel in elsewhere.take_tapped() {
        world.inject(Duration::ZERO, parcel);
    }
    world.run_for(SOON);
    assert_eq!(failure(&world, left, Site::TUNNEL), Some(FailureKind::NoAnswer));
    let status = &world.status(left)[0];
    let kinds = |past: &[PastFailure]| past.iter().map(|p| p.failure.kind).collect::<Vec<_>>();
    assert_eq!(kinds(&status.failures), [FailureKind::NoAnswer]);
    assert_eq!(kinds(&status.turned_away), [FailureKind::NoProposalChosen]);
    assert!(
        status.turned_away[0].failure.unauthenticated
            && !status.failures[0].failure.unauthenticated
    );
}

/// The peer's operator has mended one thing and not the other, within a minute.
#[test]
fn the_last_reason_for_a_refusal_is_told() {
    let site = Site::default();
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    let reasons = [Group::Modp2048, Group::Modp3072].map(|group| {
        let other = Site { ike: vec![ike_offer(&[group])], ..site.clone() };
        world.replace_policy(left, other.policy(Side::Left));
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        world.status(right)[0].turned_away[0].failure.clone()
    });
    assert_ne!(reasons[0], reasons[1]);
}

/// The operator may have tried to mend it in vain.
#[test]
fn a_refusal_is_told_again_after_a_reload() {
    let site = Site::default();
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    for secret in ["Tr0ub4dor&3", "correct horse"] {
        let other = Site { secret: secret.into(), ..site.clone() };
        world.replace_policy(right, other.policy(Side::Right));
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        let status = &world.status(right)[0];
        let told = &status.turned_away[0];
        assert_eq!(told.failure.kind, FailureKind::AuthenticationFailed);
        assert!(told.outdated_ago.is_none(), "it is of this policy: {told:?}");
    }
}

/// As OpenIKED does.
#[test]
fn a_responder_may_refuse_the_ike_sa_for_the_offers_of_the_child_sa() {
    let mut puppet = Puppet::new(&Site::default(), calm());
    puppet.pick_up();
    let (request, _) = puppet.next_request();
    puppet.answer(&request, &[notify(NotifyType::NO_PROPOSAL_CHOSEN, &[])]);
    let status = &puppet.world.status(puppet.left)[0];
    let [past] = &status.failures[..] else { panic!("{:?}", status.failures) };
    let Facts::Offers(offers) = &*past.failure.facts else { panic!("{past:?}") };
    assert_eq!((past.failure.kind, offers.layer), (FailureKind::NoProposalChosen, Layer::Child));
}
