//! A plane that is frozen and goes on, as one does whose successor fails.

use crate::network::{MARKER, Network, PATIENCE, udp, udp_arrives};
use crate::schedules::{Numbered, all_changes, lost, working};
use crate::{RULE, Side, TUNNEL, gateways};
use esp::plane::{DataPlane, SaId};

#[test]
fn nothing_is_lost_or_overtaken_while_both_planes_are_frozen_in_every_schedule() {
    let Some(network) = Network::make() else { return };
    let (gateways, workers) = working(&network, TUNNEL);
    let mut flows = [Numbered::new(&network, Side::A), Numbered::new(&network, Side::B)];
    for round in all_changes().iter().chain(&all_changes()) {
        let what = format!("{round:?}");
        for (gateway, workers) in gateways.iter().zip(&workers) {
            flows.iter_mut().for_each(|flow| flow.send(60));
            let frozen = gateway.with(|plane| plane.freeze(PATIENCE)).expect("no worker is stuck");
            let frozen = frozen.datapath;
            assert_eq!((frozen.inbound.len(), frozen.outbound.len()), (1, 1));
            assert_eq!(workers.report().threads.len(), 0, "{what}");
            // The packets that come now wait in the device and in the sockets.
            flows.iter_mut().for_each(|flow| flow.send(60));
            // A reader of counters reads nothing from the device meanwhile.
            gateway.with(|plane| plane.counters());
            workers.change(round).expect("in force later");
            let again = gateway.with(|plane| plane.freeze(PATIENCE)).expect("it is frozen");
            let again = again.datapath;
            assert_eq!(again.outbound, frozen.outbound, "no number was used");
            assert_eq!(again.inbound, frozen.inbound, "nothing was taken");
            gateway.with(|plane| plane.thaw()).expect("the threads start");
            flows.iter_mut().for_each(|flow| flow.receive(&what));
        }
    }
    assert_eq!(lost(&gateways), Vec::<String>::new());
    for gateway in &gateways {
        let usage = gateway.with(|plane| plane.usage(SaId(1))).expect("the SA exists");
        assert_eq!((usage.packets, usage.refused), (flows[0].sent.into(), 0));
    }
}

#[test]
fn what_key_management_wants_of_a_frozen_plane_is_in_force_once_it_is_thawed() {
    let Some(network) = Network::make() else { return };
    let gateways = gateways(&network, TUNNEL);
    let listener = udp(network.space(1), Side::B.inner(false));
    let target = listener.local_addr().expect("bound");
    let sender = udp(network.space(0), Side::A.inner(false));
    // SAs come while both are frozen.
    for gateway in &gateways {
        gateway.with(|plane| plane.freeze(PATIENCE)).expect("no worker is stuck");
    }
    sender.send_to(MARKER, target).expect("the kernel takes it");
    crate::connect(&gateways, TUNNEL);
    for gateway in gateways.iter().rev() {
        gateway.with(|plane| plane.thaw()).expect("the threads start");
    }
    assert!(udp_arrives(&listener), "it waited in the device");
    // SAs go while both are frozen, and the rule with them.
    for gateway in &gateways {
        gateway.with(|plane| plane.freeze(PATIENCE)).expect("no worker is stuck");
        gateway.with(|plane| {
            assert!(plane.remove(SaId(1)).is_some() && plane.remove(SaId(2)).is_some());
            plane.remove_rule(RULE);
            plane.thaw().expect("nothing is to start");
        });
    }
}
