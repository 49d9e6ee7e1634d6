//! The network delivers the Delete of SAs, or its answer, before packets that were sent earlier on them. The peer
//! forgets its SAs with that message, as many implementations do.

use crate::puppet::{Puppet, notified, notify};
use crate::{SETTLED, SOON, assert_nothing_lost, calm, talk};
use esp::plane::{Notice, Spi};
use ike::Config;
use ike::negotiation::proposal::{Offered, offer_child};
use ike::wire::payload::{Delete, Notify, Payload};
use ike::wire::registry::{ExchangeType, NotifyType, PayloadType, ProtocolId};
use policy::KeyBits;
use sim::host::{esp_offer, lifetime};
use sim::invariant::{assert_agreement, assert_clean_stop, assert_nothing_left};
use sim::traffic::FlowId;
use sim::{Conditions, Exchange, HostId, Site, World};
use std::sync::Arc;
use std::time::Duration;

const NET: &str = "net0";

/// Packets on their way when a message of IKE overtakes them are so late.
const BEHIND_DELETE: Duration = Duration::from_millis(900);
/// The same of the answer to a Delete: peers ask again after half a second.
const BEHIND_ANSWER: Duration = Duration::from_millis(200);

/// Two gateways with a tunnel up, and flows both ways. Both forget what they receive on with a Delete, or with its
/// answer.
struct Network {
    world: World,
    left: HostId,
    right: HostId,
    site: Site,
    flows: [FlowId; 2],
}

impl Network {
    fn new(seed: u64) -> Self {
        Self::with(seed, &Config { linger: Duration::ZERO, ..calm() })
    }

    fn with(seed: u64, config: &Config) -> Self {
        let site = Site { children: 2, ..Site::default() };
        let (mut world, left, right) = World::of_site(seed, &site, config);
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        let flows = talk(&mut world, left, right, &site);
        Self { world, left, right, site, flows }
    }

    /// Packets of a host take so much longer than its IKE messages.
    fn slow_down(&mut self, host: HostId, esp_behind: Duration) {
        self.world.set_conditions_from(host, Conditions { esp_behind, ..Conditions::default() });
        // Those on their way are slow.
        self.world.run_for(SOON);
    }

    fn assert_nothing_lost(&mut self) {
        let Self { world, left, right, site, flows } = self;
        assert_nothing_lost(world, *flows);
        world.heal();
        world.run_for(SETTLED);
        assert_agreement(world, *left, *right, site);
        assert_clean_stop(world, *left, *right);
    }
}

#[test]
fn the_delete_of_a_replaced_child_sa() {
    for by_initiator in [true, false] {
        let mut network = Network::new(1);
        let asks = if by_initiator { network.left } else { network.right };
        network.slow_down(asks, BEHIND_DELETE);
        for _ in 0..3 {
            assert!(network.world.rekey(asks, NET));
            network.world.run_for(SOON * 2);
        }
        network.assert_nothing_lost();
    }
}

#[test]
fn the_answer_to_the_delete_of_a_replaced_child_sa() {
    for by_initiator in [true, false] {
        let mut network = Network::new(1);
        let (asks, answers) = match by_initiator {
            true => (network.left, network.right),
            false => (network.right, network.left),
        };
        network.slow_down(answers, BEHIND_ANSWER);
        for _ in 0..3 {
            assert!(network.world.rekey(asks, NET));
            network.world.run_for(SOON * 2);
        }
        network.assert_nothing_lost();
    }
}

#[test]
fn deletes_after_rekeys_that_cross() {
    for seed in 0..16 {
        let mut network = Network::new(seed);
        for host in [network.left, network.right] {
            network.slow_down(host, BEHIND_ANSWER);
        }
        let Network { world, left, right, .. } = &mut network;
        let gates = [*left, *right].map(|host| world.hold(host, |l| !l.response));
        assert!(world.rekey(*left, NET) && world.rekey(*right, NET));
        gates.into_iter().for_each(|gate| world.release(gate));
        world.run_for(SOON * 5);
        network.assert_nothing_lost();
    }
}

#[test]
fn the_delete_of_a_session_that_another_one_has_succeeded() {
    for by_initiator in [true, false] {
        let mut network = Network::new(1);
        let asks = if by_initiator { network.left } else { network.right };
        network.slow_down(asks, BEHIND_DELETE);
        let begun = network
            .world
            .command(asks, "reauthenticate", |e, now| e.reauthenticate(now, Site::TUNNEL));
        begun.expect("it is up");
        network.world.run_for(SOON * 5);
        network.assert_nothing_lost();
    }
}

#[test]
fn the_answer_to_the_delete_of_a_session() {
    for by_initiator in [true, false] {
        let mut network = Network::new(1);
        let (asks, answers) = match by_initiator {
            true => (network.left, network.right),
            false => (network.right, network.left),
        };
        network.slow_down(answers, BEHIND_ANSWER);
        let begun = network
            .world
            .command(asks, "reauthenticate", |e, now| e.reauthenticate(now, Site::TUNNEL));
        begun.expect("it is up");
        network.world.run_for(SOON * 5);
        network.assert_nothing_lost();
    }
}

#[test]
fn the_delete_of_an_ike_sa_that_was_rekeyed() {
    for by_initiator in [true, false] {
        let mut network = Network::new(1);
        let asks = if by_initiator { network.left } else { network.right };
        for host in [network.left, network.right] {
            network.slow_down(host, BEHIND_DELETE);
        }
        assert!(network.world.rekey(asks, Site::TUNNEL));
        network.world.run_for(SOON * 5);
        network.assert_nothing_lost();
    }
}

/// Both ends set up the same phase 2 tunnel at once.
fn set_up_twice(seed: u64, behind: Duration) {
    let mut network = Network::new(seed);
    let Network { world, left, right, site, .. } = &mut network;
    assert!(world.disconnect(*left, "net1"));
    world.run_for(SOON * 5);
    for host in [*left, *right] {
        let slow = Conditions { esp_behind: behind, ..Conditions::default() };
        world.set_conditions_from(host, slow);
    }
    let gates =
        [*left, *right].map(|host| world.hold(host, |l| l.is_request(Exchange::CreateChild)));
    world.connect(*left, "net1");
    world.connect(*right, "net1");
    let [first, second] = gates;
    world.release(first);
    world.run_for(Duration::from_millis(seed % 5 * 5));
    world.release(second);
    let both_up = |world: &mut World, host| {
        let status = world.status(host);
        status[0].children.iter().all(|child| child.sa.is_some())
    };
    let (l, r) = (*left, *right);
    assert!(world.run_until(SOON, |world| both_up(world, l) && both_up(world, r)));
    let (inner_left, inner_right) = site.inner(1);
    let every = Duration::from_millis(10);
    let flows = [
        world.start_flow(l, inner_left, inner_right, every),
        world.start_flow(r, inner_right, inner_left, every),
    ];
    world.run_for(SOON * 5);
    assert_nothing_lost(world, flows);
    network.assert_nothing_lost();
}

#[test]
fn the_delete_of_a_duplicate() {
    (0..16).for_each(|seed| set_up_twice(seed, BEHIND_ANSWER));
}

/// Requests of a host since so many of its messages.
fn requests(world: &World, host: &str, since: usize) -> Vec<Exchange> {
    let sent = world.ladder().sent_by(host).skip(since);
    sent.filter(|label| !label.response).map(|label| label.exchange).collect()
}

/// A moment at which the Delete of the Child SA that a rekey has replaced waits.
fn while_a_delete_waits(by_initiator: bool) -> Network {
    let mut network = Network::new(1);
    let asks = if by_initiator { network.left } else { network.right };
    assert!(network.world.rekey(asks, NET));
    network.world.run_for(Duration::from_millis(200));
    let waits = |(_, _, why): &(String, Duration, &str)| *why == "Delete of replaced SAs";
    let at = network.world.host(asks).engine.inventory().child_sas;
    assert_eq!(at, 3, "{:?}", network.world.deadlines());
    assert!(network.world.deadlines().iter().any(waits));
    network
}

#[test]
fn another_rekey_waits_for_the_delete_of_the_one_before() {
    // strongSwan begins to send with that Delete, and on the wrong SA if another rekey came first.
    let mut network = Network::new(1);
    let Network { world, left, .. } = &mut network;
    let before = world.ladder().sent_by("left").count();
    for _ in 0..2 {
        assert!(world.rekey(*left, NET));
        world.run_for(Duration::from_millis(100));
    }
    world.run_for(SOON * 2);
    let made = [Exchange::CreateChild, Exchange::Informational];
    assert_eq!(requests(world, "left", before), [made, made].concat());
    network.assert_nothing_lost();
}

#[test]
fn a_successor_that_runs_out_does_not_wait() {
    let mut network = while_a_delete_waits(true);
    let Network { world, left, .. } = &mut network;
    let before = world.ladder().sent_by("left").count();
    let spi = crate::child_spi(world, *left, NET);
    let sa = world.plane(*left).inbound().find(|i| i.spi.0 == spi).map(|i| i.id);
    let notice = Notice::Expiring { sa: sa.expect("it is in the plane"), hard: false };
    world.command(*left, "volume", |e, now| e.handle_notice(now, notice));
    world.run_for(Duration::from_millis(600));
    let expected = [Exchange::Informational, Exchange::CreateChild];
    assert_eq!(requests(world, "left", before), expected, "before the time of the Delete");
    world.run_for(SOON * 2);
    network.assert_nothing_lost();
}

#[test]
fn a_replacement_while_a_delete_waits_loses_nothing() {
    for by_initiator in [true, false] {
        for other_asks in [false, true] {
            for what in ["child", "IKE SA", "session", "another child"] {
                let mut network = while_a_delete_waits(by_initiator);
                let Network { world, left, right, .. } = &mut network;
                let host = if by_initiator == other_asks { *right } else { *left };
                match what {
                    "child" => assert!(world.rekey(host, NET)),
                    "IKE SA" => assert!(world.rekey(host, Site::TUNNEL)),
                    "session" => world
                        .command(host, what, |e, now| e.reauthenticate(now, Site::TUNNEL))
                        .expect("it is up"),
                    _ => assert!(world.rekey(host, "net1")),
                }
                world.run_for(SOON * 20);
                network.assert_nothing_lost();
            }
        }
    }
}

#[test]
fn a_change_of_address_while_a_delete_waits() {
    for by_initiator in [true, false] {
        let mut network = while_a_delete_waits(by_initiator);
        let Network { world, left, .. } = &mut network;
        world.readdress(*left, &[[198, 51, 100, 7].into()]);
        world.run_for(SOON * 5);
        let Network { world, left, right, site, flows } = &mut network;
        flows.iter().for_each(|flow| world.stop_flow(*flow));
        world.run_for(SETTLED);
        assert_agreement(world, *left, *right, site);
        assert_clean_stop(world, *left, *right);
    }
}

#[test]
fn a_deactivation_does_not_wait() {
    for by_initiator in [true, false] {
        for name in [NET, Site::TUNNEL] {
            let mut network = while_a_delete_waits(by_initiator);
            let Network { world, left, right, .. } = &mut network;
            let (host, side) = if by_initiator { (*left, "left") } else { (*right, "right") };
            let before = world.ladder().sent_by(side).count();
            assert!(world.disconnect(host, name));
            world.run_for(Duration::from_millis(600));
            // Both Child SAs, or all at once.
            let deletes = if name == NET { 2 } else { 1 };
            assert_eq!(requests(world, side, before), vec![Exchange::Informational; deletes]);
            world.run_for(SETTLED);
            let after = requests(world, side, before);
            assert_eq!(after.len(), deletes, "none of them comes twice: {after:?}");
            let left_over = world.host(host).engine.inventory().child_sas;
            assert_eq!(left_over, if name == NET { 1 } else { 0 });
            assert_clean_stop(world, *left, *right);
        }
    }
}

#[test]
fn a_policy_without_the_tunnel_does_not_wait() {
    for by_initiator in [true, false] {
        let mut network = while_a_delete_waits(by_initiator);
        let Network { world, left, right, .. } = &mut network;
        let host = if by_initiator { *left } else { *right };
        world.replace_policy(host, Arc::default());
        world.run_for(Duration::from_millis(600));
        for host in [*left, *right] {
            assert_nothing_left(world, host);
        }
        assert_clean_stop(world, *left, *right);
    }
}

/// The answer of a puppet to a request for a Child SA.
fn granted(puppet: &Puppet, asked: Vec<Payload>, spi: Spi) -> Vec<Payload> {
    let mut answer = vec![Payload::Sa(offer_child(&puppet.site.esp, Offered::default(), spi))];
    let wanted = [PayloadType::NONCE, PayloadType::TSI, PayloadType::TSR];
    answer.extend(asked.into_iter().filter(|p| wanted.contains(&p.kind())));
    answer
}

/// A gateway with a Child SA that has just replaced another one, and the peer's request to rekey one of both.
fn rekey_before_the_delete(of_new: bool) -> Puppet {
    let new = Spi(0x7000_0002);
    let mut puppet = Puppet::called(&Site::default());
    let old = puppet.sending()[0];
    assert!(puppet.world.rekey(puppet.left, NET));
    puppet.world.run_for(Duration::from_millis(50));
    let (request, payloads) = puppet.next_request();
    let answer = granted(&puppet, payloads, new);
    puppet.answer(&request, &answer);
    let mut rekey = puppet.child_payloads(Spi(0x7000_0003));
    let replaces = Notify {
        protocol: ProtocolId::ESP,
        spi: if of_new { new } else { old }.0.to_be_bytes().to_vec(),
        kind: NotifyType::REKEY_SA,
        data: vec![],
    };
    rekey.insert(0, Payload::Notify(replaces));
    puppet.ask(ExchangeType::CREATE_CHILD_SA, &rekey);
    puppet
}

/// The peer answers the Delete that has been waiting; the gateway's answer to the peer's request.
fn answer_after_the_delete(puppet: &mut Puppet) -> Vec<Payload> {
    puppet.world.run_for(calm().drain);
    let (delete, _) = puppet.next_request();
    puppet.answer(&delete, &[]);
    puppet.world.run_for(Duration::from_millis(50));
    let messages = puppet.sent();
    assert_eq!(messages.len(), 1, "{messages:?}");
    let (header, octets) = &messages[0];
    assert!(header.response && header.exchange == ExchangeType::CREATE_CHILD_SA, "{header:?}");
    puppet.open(header, octets)
}

#[test]
fn a_peer_that_rekeys_the_successor_is_answered_after_the_delete() {
    for by_both in [false, true] {
        let mut puppet = rekey_before_the_delete(true);
        if by_both {
            assert!(puppet.world.rekey(puppet.left, NET));
        }
        let granted = answer_after_the_delete(&mut puppet);
        assert!(granted.iter().any(|p| matches!(p, Payload::Sa(_))), "{granted:?}");
    }
}

#[test]
fn a_peer_that_rekeys_what_is_replaced_is_answered_after_the_delete() {
    let mut puppet = rekey_before_the_delete(false);
    let refused = answer_after_the_delete(&mut puppet);
    assert_eq!(notified(&refused), [NotifyType::CHILD_SA_NOT_FOUND]);
}

#[test]
fn an_sa_whose_lifetime_ends_while_its_delete_waits_goes_at_once() {
    let minute = Duration::from_secs(60);
    let esp = vec![esp_offer(KeyBits::B128, lifetime(10 * minute))];
    let mut puppet = Puppet::called(&Site { esp, ..Site::default() });
    let end = puppet.world.now() + 10 * minute;
    // The peer agrees to a rekey in the last moment only.
    let mut asked = None;
    while asked.is_none() {
        puppet.world.run_for(Duration::from_millis(500));
        for (request, octets) in puppet.sent() {
            match end - puppet.world.now() < calm().drain {
                true => asked = Some((request, puppet.open(&request, &octets))),
                false => puppet.answer(&request, &[notify(NotifyType::TEMPORARY_FAILURE, &[])]),
            }
        }
        if end - puppet.world.now() < calm().drain && asked.is_none() {
            assert!(puppet.world.rekey(puppet.left, NET));
        }
    }
    let (request, payloads) = asked.expect("it is asked");
    let new = Spi(0x7000_0002);
    let answer = granted(&puppet, payloads, new);
    puppet.answer(&request, &answer);
    assert_eq!(puppet.child_sas(), 2);
    puppet.world.run_for(end + Duration::from_millis(100) - puppet.world.now());
    assert_eq!((puppet.child_sas(), puppet.sending()), (1, vec![new]));
    let (delete, payloads) = puppet.next_request();
    assert!(matches!(payloads[..], [Payload::Delete(Delete::ChildSas { .. })]), "{payloads:?}");
    puppet.answer(&delete, &[]);
    puppet.world.run_for(calm().drain * 2);
    assert!(puppet.sent().is_empty(), "the Delete comes once");
}
