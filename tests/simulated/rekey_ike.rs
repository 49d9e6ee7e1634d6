//! Rekeying IKE SAs (RFC 7296 §2.8, §2.8.2, §2.25.2).

use crate::{SETTLED, SOON, assert_nothing_lost, child_spi, failure, ike_spis, talk, up};
use ike::failure::FailureKind;
use policy::Group;
use sim::host::{Side, ike_offer};
use sim::invariant::{assert_agreement, assert_clean_stop};
use sim::{Exchange, Gate, HostId, Site, World};
use std::collections::BTreeSet;
use std::time::Duration;

fn site() -> Site {
    Site { children: 2, ..Site::default() }
}

fn hold_requests(world: &mut World, host: HostId) -> Gate {
    world.hold(host, |l| l.is_request(Exchange::CreateChild))
}

fn is_initiator(world: &mut World, host: HostId) -> bool {
    world.status(host)[0].sa.as_ref().is_some_and(|sa| sa.initiator)
}

#[test]
fn either_side_rekeys_and_the_child_sas_go_along() {
    let (mut world, left, right) = up(1, &site());
    let flows = talk(&mut world, left, right, &site());
    for host in [left, right, right, left] {
        let (ike, child) = (ike_spis(&mut world, left), child_spi(&mut world, left, "net0"));
        assert!(world.rekey(host, Site::TUNNEL));
        world.run_for(Duration::from_secs(20));
        let renewed = ike_spis(&mut world, left);
        assert!(renewed.0 != ike.0 && renewed.1 != ike.1, "both SPIs are new");
        assert_eq!(child_spi(&mut world, left, "net0"), child, "Child SAs stay as they are");
        assert!(is_initiator(&mut world, host), "who rekeys is the new SA's original initiator");
        assert_agreement(&mut world, left, right, &site());
    }
    // Either side can still rekey the Child SAs.
    for host in [left, right] {
        assert!(world.rekey(host, "net0") && world.rekey(host, "net1"));
        world.run_for(Duration::from_secs(20));
    }
    assert_nothing_lost(&mut world, flows);
    assert_agreement(&mut world, left, right, &site());
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn message_ids_start_over() {
    let (mut world, left, right) = up(1, &site());
    assert!(world.rekey(left, Site::TUNNEL));
    world.run_for(SETTLED);
    let spis = ike_spis(&mut world, left);
    assert!(world.rekey(right, "net0"));
    world.run_for(SETTLED);
    let first = world.ladder().sent_by("right").find(|l| {
        (l.initiator_spi, l.responder_spi) == spis && l.is_request(Exchange::CreateChild)
    });
    let first = first.expect("the rekey of a Child SA goes over the new IKE SA");
    assert_eq!(first.message_id, 0);
    assert!(!first.from_initiator, "the I flag follows the new SA's original initiator");
    assert_agreement(&mut world, left, right, &site());
}

#[test]
fn every_message_of_a_rekey_may_be_lost() {
    for message in 0..4 {
        for times in [1, 3] {
            let (mut world, left, right) = up(1, &site());
            let flows = talk(&mut world, left, right, &site());
            let before = ike_spis(&mut world, left);
            let (from, exchange) = match message {
                0 => (left, Exchange::CreateChild),
                1 => (right, Exchange::CreateChild),
                2 => (left, Exchange::Informational),
                _ => (right, Exchange::Informational),
            };
            world.drop_next(from, times, move |l| l.exchange == exchange);
            assert!(world.rekey(left, Site::TUNNEL));
            world.run_for(SETTLED);
            assert_ne!(ike_spis(&mut world, left), before);
            assert_nothing_lost(&mut world, flows);
            assert_agreement(&mut world, left, right, &site());
            assert_clean_stop(&mut world, left, right);
        }
    }
}

#[test]
fn the_answer_to_the_last_delete_may_never_come() {
    // The peer has forgotten the old SA with its answer, so that nobody can repeat it.
    let (mut world, left, right) = up(1, &site());
    world.drop_next(right, u32::MAX, |l| l.is_response(Exchange::Informational));
    assert!(world.rekey(left, Site::TUNNEL));
    world.run_for(Duration::from_secs(600));
    assert_agreement(&mut world, left, right, &site());
}

/// Both requests under way at once. Returns whether the left one's SA survived.
fn simultaneous(seed: u64, answers: impl Fn(&mut World, HostId, HostId)) -> bool {
    let (mut world, left, right) = up(seed, &site());
    let flows = talk(&mut world, left, right, &site());
    let before = ike_spis(&mut world, left);
    let gates = [left, right].map(|h| hold_requests(&mut world, h));
    assert!(world.rekey(left, Site::TUNNEL) && world.rekey(right, Site::TUNNEL));
    gates.iter().for_each(|&g| assert_eq!(world.held(g), 1, "a rekey asks at once"));
    answers(&mut world, left, right);
    gates.iter().for_each(|&g| world.release(g));
    world.run_for(Duration::from_secs(20));
    assert_nothing_lost(&mut world, flows);
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site());
    assert_ne!(ike_spis(&mut world, left), before);
    let left_won = is_initiator(&mut world, left);
    // The surviving SA works for both: a Child SA is rekeyed over it from each side.
    for host in [left, right] {
        assert!(world.rekey(host, "net1"));
        world.run_for(Duration::from_secs(20));
    }
    assert_agreement(&mut world, left, right, &site());
    assert_clean_stop(&mut world, left, right);
    left_won
}

#[test]
fn both_sides_at_once_with_either_nonce_the_lowest() {
    let outcomes: BTreeSet<bool> = (0..24).map(|seed| simultaneous(seed, |_, _, _| {})).collect();
    assert_eq!(outcomes.len(), 2, "the seeds bring both outcomes");
}

#[test]
fn both_sides_at_once_and_one_answer_is_late() {
    for late_side in [0, 1] {
        for seed in 0..24 {
            simultaneous(seed, |world, left, right| {
                let late = [left, right][late_side];
                world.drop_next(late, 2, |l| l.is_response(Exchange::CreateChild));
            });
        }
    }
}

#[test]
fn the_answerer_keeps_its_requests_until_the_new_sa_is_known() {
    // The peer hears nothing on an IKE SA that it does not have yet: retransmissions would run out in vain.
    let (mut world, left, right) = up(1, &site());
    let flows = talk(&mut world, left, right, &site());
    let gate = world.hold(right, |l| l.is_response(Exchange::CreateChild));
    assert!(world.rekey(left, Site::TUNNEL));
    assert!(world.run_until(SOON, |w| w.held(gate) > 0));
    assert!(world.rekey(right, "net0"));
    world.run_for(Duration::from_secs(20));
    let asked = |w: &World| {
        w.ladder().sent_by("right").filter(|l| l.is_request(Exchange::CreateChild)).count()
    };
    assert_eq!(asked(&world), 0);
    world.release(gate);
    world.run_for(Duration::from_secs(20));
    assert_eq!(asked(&world), 1);
    assert_nothing_lost(&mut world, flows);
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site());
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn again_at_once_over_the_new_sa() {
    let (mut world, left, right) = up(1, &site());
    for _ in 0..10 {
        world.rekey(left, Site::TUNNEL);
        world.run_for(Duration::from_millis(35));
        world.rekey(right, Site::TUNNEL);
        world.run_for(Duration::from_millis(35));
    }
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site());
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn the_last_answer_of_the_old_ike_sa_is_kept_for_half_a_minute() {
    let (mut world, left, right) = up(1, &site());
    let keeps = |world: &World| {
        [left, right].map(|host| {
            let held = world.host(host).engine.inventory();
            assert_eq!(held.deadlines, held.sessions + held.final_answers);
            held.final_answers
        })
    };
    // Its loss shows that the answer is there for a repetition of the Delete.
    world.drop_next(right, 1, |l| l.exchange == Exchange::Informational);
    assert!(world.rekey(left, Site::TUNNEL));
    world.run_for(SOON);
    assert_eq!(world.host(left).engine.inventory().ike_sas, 1, "the Delete was answered again");
    assert_eq!(keeps(&world), [0, 1]);
    world.run_for(Duration::from_secs(25));
    assert_eq!(keeps(&world), [0, 1]);
    world.run_for(Duration::from_secs(10));
    assert_eq!(keeps(&world), [0, 0]);
    assert_agreement(&mut world, left, right, &site());
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn a_refused_rekey_is_told_on_both_sides_until_one_succeeds() {
    let (mut world, left, right) = up(1, &site());
    let other = Site { ike: vec![ike_offer(&[Group::Ecp256])], ..site() };
    world.replace_policy(right, other.policy(Side::Right));
    world.run_for(SETTLED);
    for host in [left, right] {
        let told = failure(&world, host, Site::TUNNEL);
        assert_eq!(told, Some(FailureKind::NoProposalChosen), "the IKE SA stays up");
    }
    world.replace_policy(right, site().policy(Side::Right));
    assert!(world.rekey(right, Site::TUNNEL));
    world.run_for(SETTLED);
    for host in [left, right] {
        assert_eq!(failure(&world, host, Site::TUNNEL), None, "they agree again");
    }
    assert_agreement(&mut world, left, right, &site());
}
