//! Traffic selectors as RFC 7296 §2.9 has them, with a peer that asks for and grants what a test wants.

use crate::calm;
use crate::puppet::{Puppet, notified};
use esp::plane::{Notice, PacketSummary};
use ike::event::EventKind;
use ike::failure::FailureKind;
use ike::failure::facts::{Facts, Traffic};
use ike::negotiation::selectors::encode;
use ike::status::{ChildStatus, NarrowedBy};
use ike::wire::payload::{Payload, TrafficSelector};
use ike::wire::registry::{ExchangeType, NotifyType};
use policy::{AddressRange, PortRange, Selector};
use sim::Site;
use sim::host::network;
use std::net::IpAddr;
use std::time::Duration;

/// A packet of the left network that asks for the tunnel.
fn acquire(puppet: &mut Puppet) {
    let (l, r) = puppet.site.inner(0);
    let left = puppet.left;
    puppet.world.command(left, "a packet", |e, now| {
        let rule = e.plane().rules().next().expect("a rule").id;
        let (source, destination) = ((l, Some(40_000)), (r, Some(443)));
        let packet = PacketSummary { protocol: 6, source, destination };
        e.handle_notice(now, Notice::Acquire { rule, packet });
    });
}

fn one(protocol: u8, address: IpAddr, port: u16) -> Selector {
    let ports = PortRange::new(port, port).expect("one port");
    Selector { protocol, addresses: AddressRange::from(address), ports }
}

fn selectors_of(payloads: &[Payload]) -> [Vec<TrafficSelector>; 2] {
    let [mut tsi, mut tsr] = [vec![], vec![]];
    for payload in payloads {
        match payload {
            Payload::TsInitiator(ts) => tsi.clone_from(ts),
            Payload::TsResponder(ts) => tsr.clone_from(ts),
            _ => {}
        }
    }
    [tsi, tsr]
}

#[test]
fn the_packet_that_asked_for_the_tunnel_comes_first_in_the_request() {
    let site = Site { on_demand: true, children: 2, ..Site::default() };
    let (l, r) = site.inner(0);
    let nets = [network([10, 1, 0, 0]), network([10, 2, 0, 0])].map(Selector::all_of);
    let wanted = [[one(6, l, 40_000), nets[0]], [one(6, r, 443), nets[1]]].map(|s| encode(&s));
    let mut puppet = Puppet::new(&site, calm());
    acquire(&mut puppet);
    puppet.pick_up_call();
    let (request, payloads) = puppet.next_request();
    assert_eq!(selectors_of(&payloads), wanted);
    // The responder narrows to the packet; the next packet asks for one more.
    let mut answer = puppet.auth_payloads();
    for payload in &mut answer {
        match payload {
            Payload::TsInitiator(ts) => *ts = encode(&[one(6, l, 40_000)]),
            Payload::TsResponder(ts) => *ts = encode(&[one(6, r, 443)]),
            _ => {}
        }
    }
    puppet.answer(&request, &answer);
    assert_eq!(puppet.child_sas(), 1);
}

#[test]
fn a_rekey_asks_for_all_of_the_tunnel_again() {
    let site = Site { on_demand: true, ..Site::default() };
    let mut puppet = Puppet::new(&site, calm());
    acquire(&mut puppet);
    puppet.pick_up_call();
    let (request, _) = puppet.next_request();
    let answer = puppet.auth_payloads();
    puppet.answer(&request, &answer);
    assert!(puppet.world.rekey(puppet.left, "net0"));
    puppet.world.run_for(Duration::from_millis(50));
    let (_, payloads) = puppet.next_request();
    let nets = [network([10, 1, 0, 0]), network([10, 2, 0, 0])];
    assert_eq!(selectors_of(&payloads), nets.map(|n| encode(&[Selector::all_of(n)])));
}

#[test]
fn granted_selectors_include_the_first_choice() {
    let site = Site { children: 3, ..Site::default() };
    let all = |first, last| Selector::all_of(AddressRange::new(first, last).expect("a range"));
    let wide = [
        all(IpAddr::from([10, 1, 0, 0]), IpAddr::from([10, 1, 255, 255])),
        all(IpAddr::from([10, 2, 0, 0]), IpAddr::from([10, 2, 255, 255])),
    ];
    for n in 0..3 {
        let (l, r) = site.inner(n);
        let mut puppet = Puppet::new(&site, calm());
        puppet.call();
        let mut payloads = puppet.auth_payloads();
        for payload in &mut payloads {
            match payload {
                Payload::TsInitiator(ts) => *ts = encode(&[one(6, r, 443), wide[1]]),
                Payload::TsResponder(ts) => *ts = encode(&[one(6, l, 80), wide[0]]),
                _ => {}
            }
        }
        let answer = puppet.request(ExchangeType::IKE_AUTH, &payloads);
        let nets = [network([10, 2, n, 0]), network([10, 1, n, 0])];
        assert_eq!(selectors_of(&answer), nets.map(|n| encode(&[Selector::all_of(n)])));
    }
}

/// The answer to IKE_AUTH of a peer that asks for these networks in one Child SA, and the status of what it got.
fn granted(site: &Site, left: &[u8], right: &[u8]) -> (Vec<NotifyType>, ChildStatus, usize) {
    let mut puppet = Puppet::new(site, calm());
    puppet.call();
    let nets = |side: u8, of: &[u8]| {
        let net = |n: &u8| Selector::all_of(network([10, side, *n, 0]));
        encode(&of.iter().map(net).collect::<Vec<_>>())
    };
    let mut payloads = puppet.auth_payloads();
    for payload in &mut payloads {
        match payload {
            Payload::TsInitiator(ts) => *ts = nets(2, right),
            Payload::TsResponder(ts) => *ts = nets(1, left),
            _ => {}
        }
    }
    let answer = puppet.request(ExchangeType::IKE_AUTH, &payloads);
    let status = puppet.world.status(puppet.left).remove(0);
    let child = status.children.into_iter().find(|child| child.sa.is_some()).expect("one is up");
    let told = "gets that of one: local 10.1.0.0/24 (asked 10.1.0.0/24, 10.1.1.0/24), remote";
    let warned = puppet.world.count_events(puppet.left, |kind| match kind {
        EventKind::Warning(text) => text.contains(told),
        _ => false,
    });
    (notified(&answer), child, warned)
}

#[test]
fn a_peer_that_asks_for_several_tunnels_in_one_child_sa_is_told_that_more_is_possible() {
    let site = Site { children: 2, ..Site::default() };
    let (told, child, warned) = granted(&site, &[0, 1], &[0, 1]);
    assert!(told.contains(&NotifyType::ADDITIONAL_TS_POSSIBLE), "{told:?}");
    let narrowed = child.narrowed.expect("it has less than was asked for");
    assert_eq!(
        (narrowed.by, narrowed.local.len(), narrowed.remote.len()),
        (NarrowedBy::Grant, 2, 2)
    );
    assert_eq!(warned, 1);

    // The policy has no more of it.
    let (told, child, warned) = granted(&site, &[0, 7], &[0, 7]);
    assert!(!told.contains(&NotifyType::ADDITIONAL_TS_POSSIBLE), "{told:?}");
    assert_eq!(child.narrowed.map(|narrowed| narrowed.by), Some(NarrowedBy::Grant));
    assert_eq!(warned, 0);

    let (told, child, _) = granted(&site, &[0], &[0]);
    assert!(!told.contains(&NotifyType::ADDITIONAL_TS_POSSIBLE), "{told:?}");
    assert_eq!(child.narrowed, None);
}

#[test]
fn traffic_selectors_of_unknown_kinds_are_passed_over() {
    let mut puppet = Puppet::new(&Site::default(), calm());
    puppet.call();
    let mut payloads = puppet.auth_payloads();
    for payload in &mut payloads {
        if let Payload::TsInitiator(ts) | Payload::TsResponder(ts) = payload {
            ts.insert(0, TrafficSelector::Unsupported { kind: 241 });
        }
    }
    let answer = puppet.request(ExchangeType::IKE_AUTH, &payloads);
    assert!(answer.iter().any(|p| matches!(p, Payload::Sa(_))), "{answer:?}");
    assert_eq!(puppet.child_sas(), 1);
}

/// As OpenIKED does.
#[test]
fn an_answer_with_other_traffic_than_was_asked_for_tells_what_the_peer_wants() {
    let mut puppet = Puppet::new(&Site::default(), calm());
    puppet.pick_up();
    let (request, asked) = puppet.next_request();
    let [tsi, tsr] = selectors_of(&asked);
    let mut payloads = puppet.auth_payloads();
    for payload in &mut payloads {
        match payload {
            Payload::TsInitiator(ts) => ts.clone_from(&tsr),
            Payload::TsResponder(ts) => ts.clone_from(&tsi),
            _ => {}
        }
    }
    puppet.answer(&request, &payloads);
    let left = puppet.left;
    let status = &puppet.world.status(left)[0].children[0];
    let [past] = &status.failures[..] else { panic!("{:?}", status.failures) };
    assert_eq!(past.failure.kind, FailureKind::TsUnacceptable);
    let Facts::Traffic(Traffic { ours, theirs: Some(theirs), .. }) = &*past.failure.facts else {
        panic!("{past:?}")
    };
    assert_eq!((&ours[0].local, &ours[0].remote), (&theirs.remote, &theirs.local));
}
