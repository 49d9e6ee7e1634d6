//! Two thousand tunnels, and a card that has room for half of them.

use crate::card;
use crate::guest::{Group, Kernel, scenario};
use crate::harness::Need;
use crate::harness::space::Space;
use esp::cipher::Suite;
use esp::placement::{Choice, Place, Placement, Reason, Wanted};
use esp::plane::{
    DataPlane, Encapsulation, InboundSa, Limits, OutboundSa, Path, Rule, RuleId, SaId, Spi,
    TrafficSelectors,
};
use esp::xfrm::{Config, Hooks, Xfrm};
use policy::{AddressRange, KeyBits, Mode, PortRange, Secret, Selector};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub fn group() -> Group {
    let play = || more_than_room(TUNNELS, card::ROOM);
    Group {
        name: "crowd",
        kernel: Kernel::Built,
        scenarios: vec![scenario("2,000 tunnels, room for 1,024", NEEDS, play)],
    }
}

const NEEDS: &[Need] = &[Need::Program("ip"), Need::Program("insmod")];
const TUNNELS: u32 = 2000;

/// The left gateway has a card and a spare way past it; the right one has everything in software.
fn more_than_room(tunnels: u32, room: usize) {
    let spaces = ["left", "right"].map(Space::new);
    let [left, right] = &spaces;
    card::connect((left, &["192.0.2.1/24"]), (right, &["192.0.2.2/24"]));
    Space::connect((left, "spare", &["198.51.100.1/24"]), (right, "spare", &["198.51.100.2/24"]));
    for (end, space) in spaces.iter().enumerate() {
        let router = 2 - end;
        // Every address of the network is this host's.
        space.ip(&format!("route add local 10.{}.0.0/16 dev lo", end + 1));
        let to = format!("10.{router}.0.0/16");
        space.ip(&format!("route add {to} via 192.0.2.{router} dev wire metric 10"));
        space.ip(&format!("route add {to} via 198.51.100.{router} dev spare metric 20"));
    }
    let watch = left.watch_leaving("spare");

    let began = Instant::now();
    let step = |what: &str| println!("{:.1} s: {what}", began.elapsed().as_secs_f64());
    let (mut plane, placement) = start(left, Wanted::Crypto);
    let (mut other, _) = start(right, Wanted::Off);
    (0..tunnels).for_each(|tunnel| install(&mut plane, 0, tunnel));
    step("SAs of the left");
    (0..tunnels).for_each(|tunnel| install(&mut other, 1, tunnel));
    step("SAs of the right");

    let inside = places(&placement);
    let beyond = 2 * (tunnels as usize - room);
    assert_eq!(inside, [0, 2 * room, beyond]);
    let report = placement.report();
    let [wire] = &report.cards[..] else { panic!("one card: {:?}", report.cards) };
    assert_eq!((wire.inside, wire.room), ([room; 2], [Some(room); 2]));
    let [fallback] = &wire.fallbacks[..] else { panic!("one reason: {:?}", wire.fallbacks) };
    assert_eq!((&fallback.reason, fallback.count), (&Reason::Full, beyond as u64));
    let of_the_card = |line: &&str| line.starts_with("sa ");
    assert_eq!(card::counters().lines().filter(of_the_card).count(), 2 * room);
    every_one_passes(&spaces, tunnels);
    step("traffic of each");

    card::pull();
    // Until it is noticed, and while it is made good, packets of all tunnels are on their way.
    let refused = try_all(left, tunnels);
    plane.network_changed();
    step("the card has gone");
    assert_eq!(places(&placement), [0, 0, 2 * tunnels as usize]);
    every_one_passes(&spaces, tunnels);
    step("traffic of each");
    println!("{refused} packets were refused before that was noticed");
    watch.nothing_in_the_clear();
    drop((plane, other));
    step("all removed");
    assert_eq!(left.ip("xfrm state"), "");
}

fn start(space: &Space, wanted: Wanted) -> (Xfrm, Placement) {
    let placement = Placement::new(Choice { wanted, device: None }, BTreeMap::new());
    let config = Config { placement: placement.clone(), ..Config::default() };
    let hooks = Hooks { notice: Arc::new(|_| {}), disturbance: Arc::new(|_| {}) };
    let plane = space.run(move || Xfrm::start(config, hooks)).expect("this kernel has XFRM");
    (plane, placement)
}

/// How many SAs are in each place.
fn places(placement: &Placement) -> [usize; 3] {
    let report = placement.report();
    [Place::Packet, Place::Crypto, Place::Software]
        .map(|place| report.sas.iter().filter(|sa| sa.place == place).count())
}

/// An address of a tunnel, at either end.
fn address(end: usize, tunnel: u32) -> Ipv4Addr {
    let network = [[10, 1, 0, 0], [10, 2, 0, 0]][end];
    Ipv4Addr::from_bits(Ipv4Addr::from(network).to_bits() + tunnel)
}

/// Both SAs of a tunnel between one address and another.
fn install(plane: &mut Xfrm, end: usize, tunnel: u32) {
    let only = |address: Ipv4Addr| {
        let addresses = AddressRange::new(address.into(), address.into()).expect("in order");
        vec![Selector { protocol: 0, addresses, ports: PortRange::ANY }]
    };
    let selectors = TrafficSelectors {
        local: only(address(end, tunnel)),
        remote: only(address(1 - end, tunnel)),
    };
    let rule = RuleId(tunnel);
    let name = format!("tunnel{tunnel}");
    plane
        .add_rule(Rule { id: rule, tunnel: name, selectors: selectors.clone(), trap: false })
        .expect("the kernel takes it");
    // Those that go right are even.
    let spi = |to: usize| Spi(0x1000 + 2 * tunnel + if to == 1 { 0 } else { 1 });
    let key = |to: usize| Secret::new(spi(to).0.to_be_bytes().repeat(5));
    let path = Path {
        local: (address(end, tunnel), 4500).into(),
        remote: (address(1 - end, tunnel), 4500).into(),
        encapsulation: Encapsulation::Native,
    };
    let (suite, mode, limits) =
        (Suite::AesGcm16(KeyBits::B128), Mode::Transport, Limits::default());
    let (id, selectors) = (u64::from(2 * tunnel), Arc::new(selectors));
    let inbound = InboundSa {
        id: SaId(id),
        rule,
        spi: spi(end),
        suite,
        key: key(end),
        esn: true,
        replay_window: 64,
        mode,
        path,
        selectors: Arc::clone(&selectors),
        limits,
    };
    plane.add_inbound(inbound).expect("the kernel takes it");
    let outbound = OutboundSa {
        id: SaId(id + 1),
        rule,
        spi: spi(1 - end),
        suite,
        key: key(1 - end),
        esn: true,
        mode,
        path,
        selectors,
        limits,
        standby: false,
    };
    plane.add_outbound(outbound).expect("the kernel takes it");
}

const PORT: u16 = 4000;

fn listen(space: &Space) -> UdpSocket {
    let socket = space.run(|| UdpSocket::bind(("0.0.0.0", PORT))).expect("a free port");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a socket");
    socket
}

/// One packet of each tunnel either way, one after the other.
fn every_one_passes(spaces: &[Space; 2], tunnels: u32) {
    for end in [0, 1] {
        let taker = listen(&spaces[1 - end]);
        spaces[end].run(move || {
            for tunnel in 0..tunnels {
                let sender = UdpSocket::bind((address(end, tunnel), 0)).expect("its address");
                let to = (address(1 - end, tunnel), PORT);
                sender
                    .send_to(&tunnel.to_be_bytes(), to)
                    .unwrap_or_else(|e| panic!("tunnel {tunnel} from end {end}: {e}"));
                let mut octets = [0; 8];
                let (length, from) = taker
                    .recv_from(&mut octets)
                    .unwrap_or_else(|e| panic!("tunnel {tunnel} from end {end}: {e}"));
                assert_eq!(octets[..length], tunnel.to_be_bytes());
                assert_eq!(from.ip(), address(end, tunnel));
            }
        });
    }
}

/// Sends one packet of each tunnel wherever it may go. Returns how many this host itself refused.
fn try_all(left: &Space, tunnels: u32) -> usize {
    left.run(move || {
        let send = |tunnel: &u32| {
            let sender = UdpSocket::bind((address(0, *tunnel), 0)).expect("its address");
            sender.send_to(&tunnel.to_be_bytes(), (address(1, *tunnel), PORT)).is_err()
        };
        (0..tunnels).filter(send).count()
    })
}
