//! Packets that the guard has dropped: each tunnel tells of its own.

use crate::calm;
use esp::plane::{Notice, PacketSummary};
use ike::EventKind;
use sim::{HostId, Site, World};
use std::time::Duration;

/// A datagram of the phase 2 tunnel with this number, or of none.
fn datagram(site: &Site, number: u8, port: u16) -> PacketSummary {
    let (source, destination) = site.inner(number);
    esp::trace::parse(&format!("udp {source}:7 {destination}:{port}")).expect("a packet")
}

fn drop_one(world: &mut World, host: HostId, packet: &PacketSummary) {
    let notice = Notice::Unprotected(*packet);
    world.command(host, "a packet is dropped", |e, now| e.handle_notice(now, notice));
}

/// The phase 2 tunnels and packets of the events about dropped packets.
fn told(world: &World, host: HostId) -> Vec<(String, PacketSummary)> {
    let events = world.host(host).events.iter();
    let told = events.filter_map(|(_, event)| match &event.kind {
        EventKind::Unprotected(packet) => {
            Some((event.child.clone().expect("it has a tunnel"), *packet))
        }
        _ => None,
    });
    told.collect()
}

#[test]
fn a_tunnel_tells_of_dropped_packets_once_a_minute() {
    let site = Site { children: 2, ..Site::default() };
    let (mut world, left, _) = World::of_site_encrypting(1, &site, &calm());
    let second = Duration::from_secs(1);
    let first = datagram(&site, 0, 1000);
    drop_one(&mut world, left, &first);
    let events = told(&world, left);
    assert_eq!(events, [("net0".to_owned(), first)]);

    // Many packets within the minute change its last one alone, and the other tunnel has a minute of its own.
    for port in 1001..1060 {
        world.run_for(second);
        drop_one(&mut world, left, &datagram(&site, 0, port));
    }
    drop_one(&mut world, left, &datagram(&site, 1, 2000));
    let tunnels = |world: &World| told(world, left).into_iter().map(|(tunnel, _)| tunnel);
    assert!(tunnels(&world).eq(["net0", "net1"]), "{:?}", told(&world, left));
    let children = world.status(left).remove(0).children;
    let last = |number: usize| children[number].unprotected.expect("it has dropped packets");
    assert_eq!(last(0), (datagram(&site, 0, 1059), Duration::ZERO));
    assert_eq!(last(1).0, datagram(&site, 1, 2000));

    // The minute begins with the event, not with the last packet.
    world.run_for(second);
    drop_one(&mut world, left, &datagram(&site, 0, 1060));
    assert!(tunnels(&world).eq(["net0", "net1", "net0"]), "{:?}", told(&world, left));
    world.run_for(59 * second);
    drop_one(&mut world, left, &datagram(&site, 0, 1119));
    assert_eq!(told(&world, left).len(), 3);

    // A packet of no tunnel tells of none.
    drop_one(&mut world, left, &datagram(&site, 7, 1000));
    assert_eq!(told(&world, left).len(), 3);
}
