//! Keys go to a sink that an engine was given, and to nobody else.

use crate::{SOON, calm};
use ike::key_log::{LoggedKeys, Sink};
use sim::invariant::assert_agreement;
use sim::link::Conditions;
use sim::{HostId, Site, World};
use std::sync::{Arc, Mutex, PoisonError};

type Kept = Arc<Mutex<Vec<LoggedKeys>>>;

/// Has everything kept that a host logs.
fn listen(world: &mut World, host: HostId) -> Kept {
    let kept = Kept::default();
    let into = Arc::clone(&kept);
    let sink =
        Sink::new(move |keys| into.lock().unwrap_or_else(PoisonError::into_inner).push(keys));
    world.command(host, "log keys", |engine, _| engine.log_keys(sink));
    kept
}

/// The kept keys, in an order that is the same on both sides.
fn sorted(kept: &Kept) -> Vec<LoggedKeys> {
    let mut keys = kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
    keys.sort_by_key(|keys| match keys {
        LoggedKeys::Ike(keys) => (0, keys.initiator_spi.0, keys.responder_spi.0),
        LoggedKeys::Esp(keys) => (1, keys.spi.0.into(), 0),
    });
    keys
}

#[test]
fn both_ends_log_the_same_keys_of_every_sa() {
    let site = Site::default();
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    let kept = [listen(&mut world, left), listen(&mut world, right)];
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert_eq!(sorted(&kept[0]).len(), 3, "an IKE SA and both halves of a Child SA");
    for (host, name) in
        [(left, Site::TUNNEL), (right, Site::TUNNEL), (left, "net0"), (right, "net0")]
    {
        assert!(world.rekey(host, name));
        world.run_for(SOON * 5);
    }
    assert_agreement(&mut world, left, right, &site);
    let [here, there] = kept.each_ref().map(sorted);
    assert_eq!(here, there);
    assert_eq!(here.len(), 3 + 2 + 4);
}

#[test]
fn the_first_message_of_a_stranger_logs_no_key() {
    let site = Site::default();
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    let kept = listen(&mut world, right);
    world.set_conditions_from(right, Conditions { loss: 1000, ..Conditions::default() });
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert!(world.host(right).engine.inventory().half_open > 0, "it has got the message");
    assert!(sorted(&kept).is_empty());
}
