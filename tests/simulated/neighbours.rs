//! Several clients behind one NAT (RFC 3948 §5), and traffic that more than one peer asks for.

use crate::{SETTLED, SOON, calm, failure};
use ike::Config;
use ike::failure::FailureKind;
use policy::{Binding, Bindings, ChildTunnel, Identity, IkeTunnel, Mode, Policy, Selector};
use sim::host::{Side, network};
use sim::{Behaviour, HostId, Nat, Site, World};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

const OUTSIDE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 1));
const FIRST: &str = Site::TUNNEL;
const SECOND: &str = "other";
/// The phase 2 tunnel of each.
const FIRST_NET: &str = "net0";
const SECOND_NET: &str = "net9";

/// A change of the selectors of the second client's side.
type Change<'a> = &'a dyn Fn(&mut Vec<Selector>);

/// Two clients behind one NAT, and the gateway.
struct Scene {
    world: World,
    one: HostId,
    two: HostId,
    gateway: HostId,
}

/// The second client's tunnel: other names, and the selectors of the client's side with `change`.
fn second(policy: &Policy, client: Side, change: Change<'_>) -> Arc<IkeTunnel> {
    let rename = |text: &str| text.replace("left", "second").replace(FIRST, SECOND);
    let mut tunnel = IkeTunnel::clone(&policy.tunnels[0]);
    tunnel.name = rename(&tunnel.name);
    for endpoint in [&mut tunnel.local, &mut tunnel.remote] {
        endpoint.identity = Identity::Fqdn(rename(&endpoint.identity.to_string()));
    }
    let mut child = ChildTunnel { name: SECOND_NET.into(), ..(*tunnel.children[0]).clone() };
    change(if client == Side::Left { &mut child.local } else { &mut child.remote });
    tunnel.children = vec![Arc::new(child)];
    Arc::new(tunnel)
}

/// `seen` is the site as the gateway sees it; `change` changes the second client's side of the traffic, in the client's
/// policy and in the gateway's.
fn scene(site: &Site, seen: &Site, change: [Change<'_>; 2], config: &Config) -> Scene {
    let strict = Behaviour::AddressAndPortDependent;
    let mut world = World::new(1);
    let nat = Nat::new(OUTSIDE, strict, strict, Duration::from_secs(60));
    let policy = site.policy(Side::Left);
    let one = world.add_host_behind(nat, "one", site.left, policy, config.clone());
    let beside = Site { left: [10, 0, 0, 6].into(), ..site.clone() };
    let tunnels = vec![second(&beside.policy(Side::Left), Side::Left, change[0])];
    let policy = Arc::new(Policy { tunnels });
    let two = world.add_host_beside(one, "two", beside.left, policy, config.clone());
    let right = seen.policy(Side::Right);
    let tunnels = vec![Arc::clone(&right.tunnels[0]), second(&right, Side::Right, change[1])];
    let policy = Arc::new(Policy { tunnels });
    let gateway = world.add_host("gateway", seen.right, policy, config.clone());
    Scene { world, one, two, gateway }
}

fn roaming() -> Site {
    Site { left: IpAddr::from([10, 0, 0, 5]), left_roams: true, ..Site::default() }
}

fn same(_: &mut Vec<Selector>) {}

/// Tunnel mode; the second client has this network on both sides.
fn with_networks(net: policy::AddressRange, config: &Config) -> Scene {
    let own = move |selectors: &mut Vec<Selector>| *selectors = vec![Selector::all_of(net)];
    scene(&roaming(), &roaming(), [&own, &own], config)
}

impl Scene {
    fn connect(&mut self, client: HostId) {
        let name = if client == self.one { FIRST } else { SECOND };
        self.world.connect(client, name);
        self.world.run_for(SOON);
    }

    /// Whether a phase 2 tunnel is up on a host.
    fn is_up(&mut self, host: HostId, child: &str) -> bool {
        let status = self.world.status(host);
        status.iter().flat_map(|s| &s.children).any(|c| c.name == child && c.sa.is_some())
    }

    fn peers(&mut self) -> Vec<SocketAddr> {
        let status = self.world.status(self.gateway);
        status.iter().map(|s| s.sa.as_ref().expect("it is up").remote).collect()
    }

    /// The number of the gateway's packets that a client has opened.
    fn received(&mut self, client: HostId) -> u64 {
        let status = self.world.status(client);
        let children = status.iter().flat_map(|s| &s.children);
        children.filter_map(|c| c.sa.as_ref()).map(|sa| sa.packets_in).sum()
    }

    fn refuses_the_second(&mut self) {
        let Self { gateway, two, .. } = *self;
        assert!(!self.is_up(gateway, SECOND_NET) && !self.is_up(two, SECOND_NET));
        let told = failure(&self.world, two, SECOND_NET);
        assert_eq!(told, Some(FailureKind::TsUnacceptable));
        let known = self.world.host(gateway).engine.last_failure(SECOND_NET).expect("it failed");
        assert_eq!(known.kind, FailureKind::TrafficClaimed);
        let words = known.to_string();
        for part in [SECOND_NET, FIRST_NET, "left.example", "tunnel mode"] {
            assert!(words.contains(part), "{words} does not name {part}");
        }
    }
}

#[test]
fn they_are_told_apart_by_their_identities() {
    for mobike in [true, false] {
        let config = Config { mobike, ..Config::default() };
        let mut scene = with_networks(network([10, 1, 9, 0]), &config);
        let Scene { one, two, gateway, .. } = scene;
        scene.connect(one);
        scene.connect(two);
        let inner = roaming().inner(0).1;
        let both_ways = |world: &mut World| {
            for (host, address) in [(one, [10, 1, 0, 7]), (two, [10, 1, 9, 7])] {
                assert!(world.probe(host, address.into(), inner));
                assert!(world.probe(gateway, inner, address.into()));
            }
        };
        both_ways(&mut scene.world);
        let before = scene.peers();
        assert!(before.iter().all(|p| p.ip() == OUTSIDE) && before[0] != before[1], "{before:?}");
        scene.world.nat(one).reboot();
        scene.world.run_for(SETTLED);
        let after = scene.peers();
        assert!(after.iter().all(|p| !before.contains(p)) && after[0] != after[1], "{after:?}");
        both_ways(&mut scene.world);
        for (host, name) in
            [(one, FIRST_NET), (gateway, SECOND_NET), (gateway, FIRST), (two, SECOND)]
        {
            assert!(scene.world.rekey(host, name));
        }
        scene.world.run_for(SETTLED);
        both_ways(&mut scene.world);
    }
}

#[test]
fn in_transport_mode_they_look_alike_and_the_second_is_refused() {
    let site = Site { mode: Mode::Transport, ..roaming() };
    let seen = Site { left: OUTSIDE, ..site.clone() };
    for first_first in [true, false] {
        let mut scene = scene(&site, &seen, [&same, &same], &calm());
        let Scene { one, two, gateway, .. } = scene;
        let order = if first_first { [one, two] } else { [two, one] };
        order.into_iter().for_each(|client| scene.connect(client));
        scene.refuses_the_second();
        assert!(scene.is_up(one, FIRST_NET) && scene.is_up(gateway, FIRST_NET));
        // The gateway sends to the address that both have.
        let every = Duration::from_millis(100);
        let flow = scene.world.start_flow(gateway, seen.right, OUTSIDE, every);
        scene.world.run_for(SOON);
        scene.world.stop_flow(flow);
        assert_eq!(scene.world.flow(flow).without_sa, 0);
        let status = scene.world.status(gateway);
        let sent = status[0].children[0].sa.as_ref().map(|sa| sa.packets_out);
        assert_eq!(sent, Some(scene.world.flow(flow).offered), "they go to the first");
    }
}

#[test]
fn a_network_within_that_of_a_peer_named_earlier_is_refused() {
    let part = |selectors: &mut Vec<Selector>| {
        *selectors = vec![Selector::all_of(IpAddr::from([10, 1, 0, 7]).into())];
    };
    // Whether the policy says so, or the peer asks for no more than that.
    let wide = |selectors: &mut Vec<Selector>| {
        let all = policy::AddressRange::new([10, 1, 0, 0].into(), [10, 1, 255, 255].into());
        *selectors = vec![Selector::all_of(all.expect("ascending"))];
    };
    for granted in [&part as Change<'_>, &wide] {
        let mut scene = scene(&roaming(), &roaming(), [&part, granted], &calm());
        let Scene { one, two, gateway, .. } = scene;
        scene.connect(two);
        scene.refuses_the_second();
        scene.connect(one);
        let (theirs, ours) = roaming().inner(0);
        assert!(scene.world.probe(gateway, ours, theirs) && scene.world.probe(one, theirs, ours));
        assert!(scene.received(one) > 0);
    }
}

#[test]
fn the_network_of_a_peer_named_earlier_never_goes_to_a_wider_one() {
    let all = policy::AddressRange::new([10, 1, 0, 0].into(), [10, 1, 255, 255].into());
    let mut scene = with_networks(all.expect("ascending"), &calm());
    let Scene { one, two, gateway, .. } = scene;
    let (theirs, ours) = roaming().inner(0);
    scene.connect(two);
    assert!(!scene.world.probe(gateway, ours, theirs), "not even while the first is away");
    assert_eq!(scene.received(two), 0);
    scene.connect(one);
    assert!(scene.world.probe(gateway, ours, theirs));
    assert!(scene.world.probe(gateway, ours, [10, 1, 9, 7].into()));
    assert_eq!((scene.received(one), scene.received(two)), (1, 1));
    for (host, name) in [(gateway, SECOND_NET), (two, SECOND_NET), (one, FIRST_NET)] {
        assert!(scene.world.rekey(host, name));
        scene.world.run_for(SETTLED);
    }
    assert!(scene.world.probe(gateway, ours, theirs));
    assert_eq!((scene.received(one), scene.received(two)), (2, 1));
}

/// The bindings by which the gateway's plane tells the two tunnels apart.
fn bound([first, second]: [Binding; 2]) -> Bindings {
    [(FIRST_NET.to_owned(), first), (SECOND_NET.to_owned(), second)].into_iter().collect()
}

#[test]
fn equal_networks_are_of_both_if_marks_or_interfaces_tell_their_packets_apart() {
    let mark = |value| Binding { mark: Some((value, 0xff)), ..Binding::default() };
    let interface = |if_id| Binding { if_id: Some(if_id), ..Binding::default() };
    let none = Binding::default();
    let apart = [
        [mark(1), mark(2)],
        [interface(1), interface(2)],
        [none, interface(2)],
        // Packets without the mark are of the second one.
        [mark(1), none],
    ];
    for (bindings, second_first) in apart.into_iter().flat_map(|b| [(b, false), (b, true)]) {
        let mut scene = scene(&roaming(), &roaming(), [&same, &same], &calm());
        let Scene { one, two, gateway, .. } = scene;
        scene.world.plane(gateway).bind(bound(bindings));
        let order = if second_first { [two, one] } else { [one, two] };
        order.into_iter().for_each(|client| scene.connect(client));
        let up = [(one, FIRST_NET), (two, SECOND_NET), (gateway, FIRST_NET), (gateway, SECOND_NET)];
        for (host, child) in up {
            assert!(scene.is_up(host, child), "{child}, {bindings:?}");
        }
        for (host, name) in [(gateway, FIRST_NET), (gateway, SECOND_NET), (two, SECOND_NET)] {
            assert!(scene.world.rekey(host, name));
            scene.world.run_for(SETTLED);
        }
        assert!(scene.is_up(gateway, FIRST_NET) && scene.is_up(gateway, SECOND_NET));
    }
    // The first one takes every packet of the second one.
    let not_apart = [
        [none, none],
        [mark(1), mark(1)],
        [interface(1), interface(1)],
        [none, mark(2)],
        // Userspace looks at no interface.
        [Binding::ANY, interface(2)],
        [interface(1), Binding::ANY],
    ];
    for bindings in not_apart {
        let mut scene = scene(&roaming(), &roaming(), [&same, &same], &calm());
        let (two, gateway) = (scene.two, scene.gateway);
        scene.world.plane(gateway).bind(bound(bindings));
        scene.connect(two);
        scene.refuses_the_second();
    }
}
