//! A plane that another one goes on with. Both are in this process, with copies of the descriptors, as two processes have
//! them.

use crate::network::{
    Frozen, Gateway, MARKER, Network, PATIENCE, adopt, inside, tcp_echo, udp, udp_echo,
};
use crate::schedules::{Numbered, all_changes, lost, working};
use crate::{Agreement, RULE, Side, TUNNEL, connect, gateways, setup, silent};
use esp::plane::{DataPlane, Encapsulation, Notice, PlaneError, Rule, SaId};
use floor::Floor;
use floor::guard::{Dropped, Guard, GuardedTraffic, HeldTable, Hold, Holder, Surroundings};
use host::handover::{Baton, Descriptors, Taken};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::{Arc, mpsc};
use std::time::Instant;
use userspace::workers::Workers;
use userspace::{Hooks, Userspace};

/// Freezes a plane on its floor, and gives everything away.
fn give(floor: &mut Floor, plane: &mut Userspace) -> (Frozen, Descriptors) {
    let frozen = Frozen {
        floor: floor.freeze().expect("no change is under way"),
        plane: plane.freeze(PATIENCE).expect("no worker is stuck"),
        then: Instant::now(),
    };
    (frozen, copies(floor, plane))
}

fn copies(floor: &Floor, plane: &Userspace) -> Descriptors {
    let mut descriptors = Descriptors::default();
    floor.give(&mut descriptors).expect("there are descriptors");
    plane.give(&mut descriptors).expect("there are descriptors");
    descriptors
}

/// The right to go on, for both.
fn batons() -> [Baton; 2] {
    let ours = Baton::new().expect("a pipe");
    let theirs = ours.as_fd().try_clone_to_owned().expect("a descriptor");
    [ours, Baton::of(theirs).expect("a pipe")]
}

/// The successor of a gateway, which is frozen.
fn successor(
    network: &Network,
    side: Side,
    workers: &Workers,
    (frozen, mut descriptors): (Frozen, Descriptors),
) -> Gateway {
    let mut setup = setup(network.state_dir(side as usize));
    setup.plane.workers = workers.clone();
    Gateway::own(network.space(side as usize), move || {
        let adopted = adopt(setup, silent(), frozen, &mut descriptors).expect("it is all there");
        assert_eq!(descriptors.names().collect::<Vec<_>>(), Vec::<&str>::new());
        adopted
    })
}

fn thaw(gateway: &Gateway) {
    gateway.with_floor(|floor, plane| {
        floor.thaw();
        plane.thaw().expect("the threads start");
    });
}

/// Hands a gateway over, whose successor has these workers.
fn hand_over(network: &Network, side: Side, gateway: Gateway, workers: &Workers) -> Gateway {
    let [ours, theirs] = batons();
    let given = gateway.with_floor(give);
    let successor = successor(network, side, workers, given);
    assert_eq!(theirs.take().expect("known"), Taken::Ours);
    thaw(&successor);
    assert_eq!(ours.take().expect("known"), Taken::Theirs);
    drop(gateway);
    successor
}

#[test]
fn nothing_is_lost_or_overtaken_while_planes_are_handed_over_in_every_schedule() {
    let Some(network) = Network::make() else { return };
    let before = network.snapshots();
    let (gateways, _) = working(&network, TUNNEL);
    let (running, device) = (network.snapshots(), network.device(0));
    let mut gateways = gateways.map(Some);
    let mut flows = [Numbered::new(&network, Side::A), Numbered::new(&network, Side::B)];
    for round in all_changes().iter().chain(&all_changes()) {
        let what = format!("{round:?}");
        for side in [Side::A, Side::B] {
            let gateway = gateways[side as usize].take().expect("there is always one");
            let workers = Workers::default();
            workers.change(round).expect("in force later");
            flows.iter_mut().for_each(|flow| flow.send(60));
            // A successor that fails leaves everything to its predecessor.
            let [ours, theirs] = batons();
            let given = gateway.with_floor(give);
            drop(successor(&network, side, &Workers::default(), given));
            drop(theirs);
            flows.iter_mut().for_each(|flow| flow.send(60));
            assert_eq!(ours.take().expect("known"), Taken::Ours, "{what}");
            thaw(&gateway);
            flows.iter_mut().for_each(|flow| flow.receive(&what));

            flows.iter_mut().for_each(|flow| flow.send(60));
            let gateway = hand_over(&network, side, gateway, &workers);
            flows.iter_mut().for_each(|flow| flow.send(60));
            flows.iter_mut().for_each(|flow| flow.receive(&what));
            assert!(!workers.report().threads.is_empty(), "{what}");
            gateways[side as usize] = Some(gateway);
        }
    }
    let gateways = gateways.map(|gateway| gateway.expect("there is always one"));
    assert_eq!(lost(&gateways), Vec::<String>::new());
    for gateway in &gateways {
        let [received, sent] = [1, 2].map(|sa| gateway.with(move |p| p.usage(SaId(sa))));
        let (received, sent) = (received.expect("the SA exists"), sent.expect("the SA exists"));
        let packets = u64::from(flows[0].sent);
        assert_eq!((received.packets, received.refused, sent.packets), (packets, 0, packets));
    }
    assert_eq!((network.snapshots(), network.device(0)), (running, device));
    // The last successor undoes all that the first process did.
    drop(gateways);
    assert_eq!(network.snapshots(), before);
}

#[test]
fn every_form_goes_on_with_another_plane() {
    for (encapsulation, outer_v6) in [
        (Encapsulation::Udp, false),
        (Encapsulation::Udp, true),
        (Encapsulation::Native, false),
        (Encapsulation::Native, true),
    ] {
        let Some(network) = Network::make() else { return };
        let form = Agreement { encapsulation, outer_v6, ..TUNNEL };
        let before = network.snapshots();
        let planes = gateways(&network, form);
        connect(&planes, form);
        let [a, b] = planes;
        let [from, to] = [Side::A, Side::B].map(|side| side.inner(false));
        let [ns_a, ns_b] = [network.space(0), network.space(1)];
        let mut capture = network.capture();
        tcp_echo((ns_a, from), (ns_b, to), 100_000);
        let a = hand_over(&network, Side::A, a, &Workers::default());
        let b = hand_over(&network, Side::B, b, &Workers::default());
        tcp_echo((ns_a, from), (ns_b, to), 100_000);
        // Longer than a packet of the outer network, so that it is in two pieces.
        udp_echo((ns_b, to), (ns_a, from), &[35, 1350, 3000]);
        let seen = capture.finish();
        assert!(seen.protected > 100, "{form:?}: {seen:?}");
        assert_eq!(seen.in_the_clear, Vec::<String>::new(), "{form:?}");
        let planes = [a, b];
        assert_eq!(lost(&planes), Vec::<String>::new(), "{form:?}");
        // Rules and SAs are those of the successor: they go, and new ones come.
        for (gateway, side) in planes.iter().zip([Side::A, Side::B]) {
            gateway.with(move |plane| {
                assert!(plane.remove(SaId(1)).is_some() && plane.remove(SaId(2)).is_some());
                plane.remove_rule(RULE);
                plane.add_rule(form.rule(side)).expect("the rule is added");
            });
        }
        connect(&planes, form);
        tcp_echo((ns_b, to), (ns_a, from), 100_000);
        drop(planes);
        assert_eq!(network.snapshots(), before, "{form:?}");
    }
}

#[test]
fn a_descriptor_that_is_missing_or_another_one_is_refused_and_nothing_is_changed() {
    let Some(network) = Network::make() else { return };
    let (gateways, _) = working(&network, TUNNEL);
    let running = network.snapshots();
    let (frozen, descriptors) = gateways[0].with_floor(give);
    let names: Vec<String> = descriptors.names().map(str::to_owned).collect();
    assert!(names.len() >= 10, "{names:?}");
    let attempt = |mut descriptors: Descriptors| -> Option<PlaneError> {
        let Frozen { floor, plane, then } = &frozen;
        let frozen = Frozen { floor: floor.clone(), plane: plane.clone(), then: *then };
        let setup = setup(network.state_dir(0));
        inside(network.space(0), move || adopt(setup, silent(), frozen, &mut descriptors).err())
    };
    let copied = || gateways[0].with_floor(|floor, plane| copies(floor, plane));
    for name in &names {
        let mut others = copied();
        others.take(name).expect("it is there");
        let missing = attempt(others);
        // A host may lack IPv6.
        assert_eq!(missing.is_none(), name.ends_with(".6"), "{name}: {missing:?}");
        let mut others = copied();
        others.take(name).expect("it is there");
        let other = UdpSocket::bind("127.0.0.1:0").expect("bound");
        others.add(name, other.into()).expect("the name is free");
        let error = attempt(others).unwrap_or_else(|| panic!("{name}: it is another one"));
        let told = error.to_string();
        assert!(told.contains(name.as_str()) || told.contains("vpn0"), "{name}: {told}");
    }
    let mut another = copied();
    let [first, second] = ["port.first.4", "port.joined.0.6"].map(|n| another.take(n).expect("it"));
    another.add("port.first.4", second).expect("the name is free");
    another.add("port.joined.0.6", first).expect("the name is free");
    assert!(attempt(another).is_some(), "one is of IPv6");
    assert_eq!(attempt(descriptors), None);

    assert_eq!(network.snapshots(), running);
    thaw(&gateways[0]);
    let mut flow = Numbered::new(&network, Side::A);
    flow.send(60);
    flow.receive("its predecessor goes on");
}

#[test]
fn a_plane_whose_device_has_failed_is_not_handed_over() {
    let Some(network) = Network::make() else { return };
    let (notices, told) = mpsc::channel();
    let hooks = Hooks {
        notice: Arc::new(move |notice| {
            let _ = notices.send(notice);
        }),
        ike: Arc::new(|_| {}),
    };
    let setup = setup(network.state_dir(0));
    let gateway = Gateway::start(network.space(0), setup, hooks);
    gateway.with(|plane| {
        plane.add_rule(TUNNEL.rule(Side::A)).expect("the rule is added");
        plane.add_inbound(TUNNEL.inbound(Side::A)).expect("the SA is added");
    });
    network.space(0).ip("link delete vpn0");
    let notice = told.recv_timeout(PATIENCE).expect("a worker has ended");
    assert_eq!(notice, Notice::HostChanged);
    let refused = gateway.with(|plane| plane.freeze(PATIENCE).map(drop)).expect_err("refused");
    assert!(refused.to_string().contains("has failed"), "{refused}");
}

/// The values that a guard is started with.
struct Guarding {
    rule: Rule,
    hold: Hold,
}

impl Guarding {
    fn surroundings(&self) -> Surroundings {
        let floor::Settings { device, mark, .. } = floor::Settings::default();
        Surroundings { device, mark, natt_port: 4500, inbound: false, kernel: false }
    }

    /// `adopts`: another one has put it in force.
    fn guard(&self, held: HeldTable, adopts: bool) -> Guard {
        let (hold, holder) = (self.hold.clone(), Holder::Gateway { logs: false, held });
        let rules = [(&self.rule, Some(GuardedTraffic::default()))].into_iter();
        let (surroundings, filter, on_loss) =
            (self.surroundings(), Arc::default(), Arc::new(|| {}));
        let guard = match adopts {
            true => Guard::adopt(surroundings, hold, holder, &filter, rules, on_loss),
            false => Guard::start(surroundings, hold, holder, &filter, rules, on_loss),
        };
        guard.expect("the system starts a thread")
    }
}

#[test]
fn the_guard_and_a_held_table_are_there_at_every_moment() {
    const HELD: [HeldTable; 2] = [HeldTable::First, HeldTable::Second];
    let Some(network) = Network::make() else { return };
    let (state_dir, space) = (network.state_dir(0), network.space(0));
    let (_, b) = TUNNEL.ends(Side::A);
    // Routes lead past the tunnel, so that the guard alone holds the packets.
    network.bypass_tunnel(0, b, Side::B.outer(false));
    let sender = udp(space, Side::A.inner(false));
    let mut capture = network.capture();
    let tables = || {
        let listed = space.try_sh("nft list tables").1;
        let names: Vec<&str> =
            listed.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
        ["guard", "held", "held2"]
            .map(|purpose| names.contains(&host::nft::table(purpose, "vpn0").as_str()))
    };
    let dropped = || inside(space, || Dropped::of(&floor::guard::table("vpn0")).leaving);
    let guarding = {
        let hold = inside(space, move || Hold::of(&state_dir, "vpn0")).expect("it has a name");
        Arc::new(Guarding { rule: TUNNEL.rule(Side::A), hold })
    };
    let make = |held, adopts| {
        let guarding = Arc::clone(&guarding);
        inside(space, move || guarding.guard(held, adopts))
    };
    let mut guard = make(HELD[0], false);
    assert_eq!(tables(), [true, true, false]);
    let mut sent = 0;
    let mut send = || {
        // The kernel may tell that it was dropped.
        let _ = sender.send_to(MARKER, (b, 9));
        sent += 1;
        sent
    };
    assert_eq!((send(), dropped()), (1, 1));
    for round in 1..=4 {
        // A successor that fails changes nothing.
        guard.freeze().expect("no change is under way");
        drop(make(HELD[round % 2], true));
        assert_eq!(tables(), [true, round % 2 == 1, round % 2 == 0]);
        guard.thaw();
        guard.freeze().expect("no change is under way");
        let mut successor = make(HELD[round % 2], true);
        assert_eq!(send(), 2 * round as u64);
        assert_eq!(dropped(), 2 * round as u64);
        successor = inside(space, move || {
            successor.thaw();
            successor
        });
        assert_eq!(tables(), [true, true, true]);
        inside(space, move || drop(guard));
        assert_eq!(tables(), [true, round % 2 == 0, round % 2 == 1]);
        assert_eq!(send(), 2 * round as u64 + 1);
        assert_eq!(dropped(), 2 * round as u64 + 1, "the counters go on");
        guard = successor;
    }
    inside(space, move || drop(guard));
    assert_eq!(tables(), [false; 3]);
    assert_eq!(capture.finish().in_the_clear, Vec::<String>::new());
}
