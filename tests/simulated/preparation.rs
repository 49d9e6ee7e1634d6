//! A data plane that takes time to prepare for the traffic that a peer names: only the answer to that peer waits.

use crate::generic::{ANYTHING, children, generic, rules, up, world};
use crate::{SETTLED, SOON, assert_nothing_lost, calm, talk};
use esp::plane::Notice;
use ike::event::EventKind;
use policy::{Identity, IkeTunnel, Policy};
use sim::host::Side;
use sim::invariant::assert_clean_stop;
use sim::{HostId, Site, World};
use std::sync::Arc;
use std::time::Duration;

/// Longer than two retransmissions, and shorter than the patience of a peer.
const SLOW: Duration = Duration::from_secs(10);

fn prepare(world: &mut World, host: HostId) {
    world.command(host, "the plane is prepared", |engine, now| {
        engine.plane().prepare_all();
        engine.handle_notice(now, Notice::Prepared);
    });
}

fn pending(world: &World, host: HostId) -> u64 {
    world.host(host).engine.discards().get("answer_pending").copied().unwrap_or(0)
}

fn preparing(world: &mut World, host: HostId) -> usize {
    world.plane(host).preparing().len()
}

/// Two networks, of which the first comes up with IKE_AUTH and the second with CREATE_CHILD_SA, and a host of another
/// peer.
fn crowd() -> (Site, World, [HostId; 3]) {
    let site = Site { children: 2, ..Site::default() };
    let other = Site {
        left: [192, 0, 2, 3].into(),
        left_id: Identity::Fqdn("other.example".into()),
        ..Site::default()
    };
    let mut second = IkeTunnel::clone(&other.policy(Side::Right).tunnels[0]);
    second.name = "other".into();
    let mut theirs = (*second.children[0]).clone();
    theirs.name = "other0".into();
    let net = policy::AddressRange::new([10, 9, 0, 0].into(), [10, 9, 0, 255].into());
    theirs.remote = vec![policy::Selector::all_of(net.expect("in order"))];
    second.children = vec![Arc::new(theirs.clone())];
    let (mut world, left, right) = world(&site, vec![generic(&site, ANYTHING, &[]), second]);
    let mut policy = Policy::clone(&other.policy(Side::Left));
    let tunnel = Arc::make_mut(&mut policy.tunnels[0]);
    let child = Arc::make_mut(&mut tunnel.children[0]);
    child.local.clone_from(&theirs.remote);
    let third = world.add_host("other", other.left, Arc::new(policy), calm());
    world.plane(right).hold_preparation();
    (site, world, [left, right, third])
}

#[test]
fn a_request_waits_for_the_plane_and_no_other_peer_does() {
    let (site, mut world, [left, right, other]) = crowd();
    world.connect(left, Site::TUNNEL);
    world.run_for(SLOW);
    assert_eq!(children(&mut world, right), []);
    assert_eq!((preparing(&mut world, right), rules(&mut world, right)), (1, 1));
    assert!(pending(&world, right) >= 2, "the request comes again");
    world.connect(other, Site::TUNNEL);
    world.run_for(SOON);
    assert_eq!(children(&mut world, right).len(), 1, "another peer is served");
    assert!(world.rekey(other, "net0"));
    world.run_for(SOON);

    prepare(&mut world, right);
    world.run_for(SLOW);
    assert_eq!(children(&mut world, right).len(), 2, "the request of IKE_AUTH is answered");
    assert_eq!((preparing(&mut world, right), rules(&mut world, right)), (1, 2), "net1 follows");
    let before = pending(&world, right);
    assert!(before >= 4, "{before}");
    assert!(world.rekey(other, Site::TUNNEL));
    world.run_for(SOON);

    prepare(&mut world, right);
    world.run_for(SOON);
    assert_eq!(children(&mut world, right).len(), 3, "the request of CREATE_CHILD_SA is answered");
    let flows = talk(&mut world, left, right, &site);
    assert!(world.rekey(left, "net1"));
    world.run_for(SETTLED / 10);
    assert_nothing_lost(&mut world, flows);
    assert_eq!(world.count_events(right, |e| matches!(e, EventKind::Failed(_))), 0);
}

/// A notice that comes before the plane is prepared for this rule changes nothing.
#[test]
fn the_plane_is_asked_again() {
    let (_, mut world, [left, right, _]) = crowd();
    world.connect(left, "net0");
    world.run_for(SOON);
    world.command(right, "an early notice", |engine, now| {
        engine.handle_notice(now, Notice::Prepared);
    });
    world.run_for(SOON);
    assert_eq!((children(&mut world, right).len(), preparing(&mut world, right)), (0, 1));
    prepare(&mut world, right);
    world.run_for(SOON);
    assert_eq!(children(&mut world, right).len(), 1);
}

/// Nothing stays behind of a request whose peer is gone.
#[test]
fn the_plane_prepares_no_longer_for_a_peer_that_is_gone() {
    let (_, mut world, [left, right, _]) = crowd();
    world.connect(left, "net0");
    world.run_for(SLOW);
    assert_eq!(preparing(&mut world, right), 1);
    world.command(left, "falls silent", |engine, now| engine.stop(now));
    world.run_for(2 * SETTLED);
    assert_eq!((preparing(&mut world, right), rules(&mut world, right)), (0, 1));
    prepare(&mut world, right);
    assert_eq!(children(&mut world, right), []);
    assert_eq!(world.host(right).engine.inventory().half_open, 0);
}

#[test]
fn a_stop_does_not_wait_for_the_plane() {
    for what in ["net0", Site::TUNNEL] {
        let (_, mut world, [left, right, _]) = crowd();
        world.connect(left, what);
        world.run_for(SOON);
        if what == Site::TUNNEL {
            prepare(&mut world, right);
            world.run_for(SOON);
        }
        assert_eq!(preparing(&mut world, right), 1, "{what}");
        assert_clean_stop(&mut world, left, right);
        assert_eq!((preparing(&mut world, right), rules(&mut world, right)), (0, 1), "{what}");
    }
}

/// The request is looked at again: the answer follows the new policy.
#[test]
fn a_policy_is_replaced_while_the_plane_prepares() {
    for (what, goes) in
        [("net0", false), (Site::TUNNEL, false), ("net0", true), (Site::TUNNEL, true)]
    {
        let (site, mut world, [left, right, _]) = crowd();
        world.connect(left, what);
        world.run_for(SOON);
        if what == Site::TUNNEL {
            prepare(&mut world, right);
            world.run_for(SOON);
        }
        let tunnel = generic(&site, ANYTHING, &[]);
        let after = match goes {
            true => IkeTunnel { generic: None, ..tunnel },
            false => tunnel,
        };
        world.replace_policy(right, Arc::new(Policy { tunnels: vec![Arc::new(after)] }));
        prepare(&mut world, right);
        world.run_for(SOON);
        assert_eq!(preparing(&mut world, right), usize::from(!goes), "{what}: asked again");
        prepare(&mut world, right);
        world.run_for(SOON);
        let expected = match (goes, what) {
            (true, _) => 0,
            (false, "net0") => 1,
            (false, _) => 2,
        };
        assert_eq!(children(&mut world, right).len(), expected, "{what}, {goes}");
        assert_eq!(rules(&mut world, right), expected, "{what}, {goes}");
    }
}

/// A plane that is prepared at once is not waited for.
#[test]
fn nothing_waits_without_need() {
    let site = Site { children: 2, ..Site::default() };
    let (mut world, _, right) = up(&site, generic(&site, ANYTHING, &[]));
    assert_eq!(children(&mut world, right).len(), 2);
    assert_eq!(pending(&world, right), 0);
}
