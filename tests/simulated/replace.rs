//! Replacing the policy of a running gateway.

use crate::{
    SETTLED, SOON, assert_all_arrived, assert_settled, calm, child_spi, ike_spis, talk, up,
};
use ike::EventKind;
use policy::{Group, KeyBits, Pfs, Policy};
use sim::host::{Side, esp_offer, ike_offer, lifetime};
use sim::invariant::{assert_agreement, assert_clean_stop, assert_nothing_left, disagreements};
use sim::{HostId, Site, World};
use std::sync::Arc;

fn replace(world: &mut World, host: HostId, site: &Site, side: Side) {
    let policy = site.policy(side);
    world
        .command(host, "replace policy", |e, now| e.replace_policy(now, policy))
        .expect("a valid policy");
    world.run_for(SETTLED);
}

fn site(children: u8) -> Site {
    Site { children, ..Site::default() }
}

#[test]
fn an_equal_policy_changes_nothing() {
    let (mut world, left, right) = up(1, &site(2));
    let before = (ike_spis(&mut world, left), child_spi(&mut world, left, "net0"));
    let messages = world.ladder().rows().len();
    replace(&mut world, left, &site(2), Side::Left);
    assert_eq!((ike_spis(&mut world, left), child_spi(&mut world, left, "net0")), before);
    assert_eq!(world.ladder().rows().len(), messages + 1, "nothing but the command");
    assert_agreement(&mut world, left, right, &site(2));
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn a_removed_child_goes_and_the_others_stay() {
    let (mut world, left, right) = up(1, &site(2));
    let before = (ike_spis(&mut world, left), child_spi(&mut world, left, "net0"));
    replace(&mut world, left, &site(1), Side::Left);
    let found = disagreements(&mut world, left, right, 1);
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(world.plane(left).rules().count(), 1, "its rule goes, too");
    assert_eq!((ike_spis(&mut world, left), child_spi(&mut world, left, "net0")), before);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn an_added_child_can_be_brought_up() {
    let (mut world, left, right) = up(1, &site(1));
    let before = (ike_spis(&mut world, left), child_spi(&mut world, left, "net0"));
    replace(&mut world, left, &site(2), Side::Left);
    replace(&mut world, right, &site(2), Side::Right);
    world.connect(right, "net1");
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site(2));
    assert_eq!((ike_spis(&mut world, left), child_spi(&mut world, left, "net0")), before);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn an_added_child_that_starts_by_itself_comes_up() {
    let auto = Site { auto_start: true, ..site(1) };
    let (mut world, left, right) = up(1, &auto);
    let more = Site { auto_start: true, ..site(2) };
    replace(&mut world, left, &more, Side::Left);
    replace(&mut world, right, &more, Side::Right);
    assert_agreement(&mut world, left, right, &more);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn a_removed_tunnel_goes_from_both_ends() {
    let (mut world, left, right) = up(1, &site(2));
    world.command(left, "replace policy", |e, now| {
        e.replace_policy(now, Arc::default()).expect("a valid policy")
    });
    world.run_for(SETTLED);
    assert_nothing_left(&mut world, left);
    assert_nothing_left(&mut world, right);
    assert_eq!(world.plane(left).rules().count(), 0);
}

#[test]
fn a_changed_key_counts_from_the_next_handshake() {
    let (mut world, left, right) = up(1, &site(1));
    let other = Site { secret: "another one".into(), ..site(1) };
    replace(&mut world, left, &other, Side::Left);
    replace(&mut world, right, &other, Side::Right);
    world.connect(left, Site::TUNNEL);
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &other);
    assert_clean_stop(&mut world, left, right);
}

/// Changes both ends, one after the other, and checks that nothing was ever down.
fn replaced_while_up(before: &Site, after: &Site) -> (World, HostId, HostId) {
    let (mut world, left, right) = up(1, before);
    let flows = talk(&mut world, left, right, before);
    for (host, side) in [(left, Side::Left), (right, Side::Right)] {
        let policy = after.policy(side);
        world
            .command(host, "replace policy", |e, now| e.replace_policy(now, policy))
            .expect("a valid policy");
        world.run_for(SOON);
    }
    let closed = |k: &EventKind| matches!(k, EventKind::Closed { .. });
    for host in [left, right] {
        assert_eq!(world.count_events(host, closed), 0, "nothing goes down");
    }
    assert_settled(&mut world, left, right, after, flows);
    (world, left, right)
}

fn suites(world: &World, host: HostId) -> Vec<String> {
    let rekeyed = |(_, e): &(std::time::Duration, ike::Event)| match &e.kind {
        EventKind::Rekeyed { suite } => Some(suite.to_string().split(", SPIs").next()?.to_owned()),
        _ => None,
    };
    world.host(host).events.iter().filter_map(rekeyed).collect()
}

#[test]
fn lifetimes_and_groups_count_from_the_next_rekey() {
    let hour = lifetime(std::time::Duration::from_secs(3600));
    let esp = vec![esp_offer(KeyBits::B128, hour)];
    let pfs = Pfs {
        offer: vec![Group::Ecp256],
        accept: vec![Group::Ecp256],
        accept_none: true,
        additional: Vec::new(),
    };
    let after = Site { lifetime: hour, esp, pfs, ..site(1) };
    let (world, left, _) = replaced_while_up(&site(1), &after);
    assert_eq!(suites(&world, left), [] as [&str; 0]);
}

#[test]
fn other_algorithms_come_with_a_rekey() {
    let day = lifetime(std::time::Duration::from_secs(86_400));
    let after = Site { esp: vec![esp_offer(KeyBits::B256, day)], ..site(2) };
    let (world, left, _) = replaced_while_up(&site(2), &after);
    assert_eq!(suites(&world, left), ["tunnel mode, AES-GCM-16-256"; 2]);

    let after = Site { ike: vec![ike_offer(&[Group::Ecp384])], ..site(1) };
    let (world, left, _) = replaced_while_up(&site(1), &after);
    assert_eq!(suites(&world, left), ["AES-GCM-16-128/PRF-HMAC-SHA2-256/ECP-384"]);
}

#[test]
fn the_order_of_the_file_decides_whose_traffic_it_is() {
    let before = site(2);
    let (mut world, left, right) = World::of_site_encrypting(1, &before, &calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(SETTLED);
    let flows = talk(&mut world, left, right, &before);
    let spis = ["net0", "net1"].map(|name| child_spi(&mut world, left, name));
    // The same two the other way round, and one that is new before them.
    let mut policy = Policy::clone(&site(3).policy(Side::Left));
    Arc::make_mut(&mut policy.tunnels[0]).children.reverse();
    world.replace_policy(left, Arc::new(policy));
    world.run_for(SETTLED);
    let rules: Vec<String> = world.plane(left).rules().map(|r| r.tunnel.clone()).collect();
    assert_eq!(rules, ["net2", "net1", "net0"]);
    assert_eq!(["net0", "net1"].map(|name| child_spi(&mut world, left, name)), spis);
    assert_all_arrived(&mut world, flows);
    // The SAs of a rule are still found when the rule has another place.
    world.rekey(left, "net0");
    let flows = talk(&mut world, left, right, &before);
    world.run_for(SETTLED);
    assert_all_arrived(&mut world, flows);
    world.connect(left, "net2");
    world.run_for(SETTLED);
    assert_eq!(
        world.host(left).engine.inventory().child_sas,
        2,
        "the peer does not have the third"
    );
}
