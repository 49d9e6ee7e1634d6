//! The steps of exchanges are events of an engine that was asked to tell them, and of no other.

use crate::{SETTLED, calm};
use ike::EventKind;
use ike::durations::Exchange as Purpose;
use sim::{Exchange, HostId, Site, World};

/// The steps that a host has told since the first one of these, in words, with the phase 2 tunnel.
fn steps(world: &World, host: HostId, known: usize) -> Vec<String> {
    let told = world.host(host).events.iter().filter_map(|(_, event)| match &event.kind {
        EventKind::Exchange(step) => {
            let child = event.child.as_ref().map(|child| format!(" ({child})"));
            assert_eq!(event.tunnel, Site::TUNNEL);
            assert_ne!(step.local_spi.0, 0, "{event:?}");
            Some(format!("{step}{}", child.unwrap_or_default()))
        }
        _ => None,
    });
    told.skip(known).collect()
}

#[test]
fn steps_are_told_on_request() {
    let (mut world, left, right) = World::of_site(1, &Site::default(), &calm());
    world.command(left, "tell exchanges", |engine, _| engine.tell_exchanges());
    world.drop_next(right, 1, |label| label.is_response(Exchange::SaInit));
    world.connect(left, Site::TUNNEL);
    world.run_for(SETTLED);
    let first = [
        "IKE_SA_INIT sent",
        "IKE_SA_INIT sent again",
        "IKE_SA_INIT answered",
        "IKE_AUTH sent",
        "IKE_AUTH answered",
    ];
    let told = steps(&world, left, 0);
    assert_eq!(told[..first.len()], first);

    world.drop_next(right, 2, |label| label.is_response(Exchange::CreateChild));
    assert!(world.rekey(left, "net0"));
    world.run_for(SETTLED);
    let rekeyed = [
        "CREATE_CHILD_SA sent (net0)",
        "CREATE_CHILD_SA sent again (net0)",
        "CREATE_CHILD_SA sent again (net0)",
        "CREATE_CHILD_SA answered (net0)",
    ];
    let of_rekey: Vec<String> =
        steps(&world, left, told.len()).into_iter().filter(|s| s.contains("CREATE")).collect();
    assert_eq!(of_rekey, rekeyed);
    let is_rekey = |kind: &EventKind| matches!(kind, EventKind::Exchange(step) if step.purpose == Some(Purpose::RekeyChild));
    assert_eq!(world.count_events(left, is_rekey), rekeyed.len());
    assert_eq!(world.count_events(right, |kind| matches!(kind, EventKind::Exchange(_))), 0);
}
