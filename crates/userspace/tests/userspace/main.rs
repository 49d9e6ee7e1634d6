//! The userspace plane between real network namespaces: a gateway on each side, and between them a network that hears
//! everything.
//!
//! Needs root, `/dev/net/tun`, `ip`, `nft` and `ping`; without them the tests say why they do nothing, or fail where
//! `VPN_TEST_REQUIRE=all`.

mod frozen;
mod handover;
mod kernel_offloads;
mod network;
mod schedules;
mod stress;
mod throughput;

use crypto::Suite;
use esp::filter::{DefaultAction, Filter};
use esp::plane::{
    DataPlane, Encapsulation, InboundSa, Limits, Notice, OutboundSa, Path, Rule, RuleId, SaId, Spi,
    TrafficSelectors,
};
use floor::{Floor, Settings};
use network::{
    Gateway, MARKER, Network, PATIENCE, Setup, inside, ping, tcp_echo, udp_arrives, udp_echo,
};
use policy::{AddressRange, Integrity, KeyBits, Mode, Secret, Selector};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use userspace::{Config, Hooks, IkeDatagram, Userspace};

const GCM: Suite = Suite::AesGcm16(KeyBits::B128);
const CBC: Suite = Suite::AesCbcMac(KeyBits::B256, Integrity::HmacSha2_256_128);
const RULE: RuleId = RuleId(1);

/// One of the two gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    A,
    B,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// Its address on the network between.
    fn outer(self, ipv6: bool) -> IpAddr {
        network::OUTER[usize::from(ipv6)][self as usize].parse().expect("an address")
    }

    /// Its address behind the tunnel.
    fn inner(self, ipv6: bool) -> IpAddr {
        network::INNER[usize::from(ipv6)][self as usize].parse().expect("an address")
    }
}

/// The parameters that two gateways agree on.
#[derive(Clone, Copy, Debug)]
struct Agreement {
    suite: Suite,
    mode: Mode,
    encapsulation: Encapsulation,
    outer_v6: bool,
    inner_v6: bool,
}

impl Agreement {
    /// The addresses whose traffic is protected, as seen from a side.
    fn ends(&self, side: Side) -> (IpAddr, IpAddr) {
        match self.mode {
            Mode::Tunnel => (side.inner(self.inner_v6), side.other().inner(self.inner_v6)),
            Mode::Transport => (side.outer(self.outer_v6), side.other().outer(self.outer_v6)),
        }
    }

    fn selectors(&self, side: Side) -> TrafficSelectors {
        let (local, remote) = self.ends(side);
        let all = |address: IpAddr| vec![Selector::all_of(AddressRange::from(address))];
        TrafficSelectors { local: all(local), remote: all(remote) }
    }

    fn rule(&self, side: Side) -> Rule {
        Rule { id: RULE, tunnel: "t".to_owned(), selectors: self.selectors(side), trap: true }
    }

    fn path(&self, side: Side) -> Path {
        Path {
            local: SocketAddr::new(side.outer(self.outer_v6), 4500),
            remote: SocketAddr::new(side.other().outer(self.outer_v6), 4500),
            encapsulation: self.encapsulation,
        }
    }

    /// The key of what `side` sends.
    fn key(&self, side: Side) -> Secret {
        Secret::new((0..self.suite.key_material_len()).map(|n| n as u8 ^ side as u8).collect())
    }

    fn inbound(&self, side: Side) -> InboundSa {
        InboundSa {
            id: SaId(1),
            rule: RULE,
            spi: Spi(0x1000 + side.other() as u32),
            suite: self.suite,
            key: self.key(side.other()),
            esn: true,
            replay_window: 4096,
            mode: self.mode,
            path: self.path(side),
            selectors: self.selectors(side).into(),
            limits: Limits::default(),
        }
    }

    fn outbound(&self, side: Side) -> OutboundSa {
        OutboundSa {
            id: SaId(2),
            rule: RULE,
            spi: Spi(0x1000 + side as u32),
            suite: self.suite,
            key: self.key(side),
            esn: true,
            mode: self.mode,
            path: self.path(side),
            selectors: self.selectors(side).into(),
            limits: Limits::default(),
            standby: false,
        }
    }
}

const TUNNEL: Agreement = Agreement {
    suite: GCM,
    mode: Mode::Tunnel,
    encapsulation: Encapsulation::Udp,
    outer_v6: false,
    inner_v6: false,
};

fn setup(state_dir: PathBuf) -> Setup {
    let settings = Settings { state_dir, ..Settings::default() };
    let floor = floor::Config { settings, ..floor::Config::default() };
    Setup { floor, plane: Config::default() }
}

fn silent() -> Hooks {
    Hooks { notice: Arc::new(|_| {}), ike: Arc::new(|_| {}) }
}

/// Both gateways, running, with the rule but without SAs.
fn gateways(network: &Network, agreement: Agreement) -> [Gateway; 2] {
    [Side::A, Side::B].map(|side| {
        let gateway = gateway(network, side, silent());
        gateway.with(move |plane| plane.add_rule(agreement.rule(side)).expect("the rule is added"));
        gateway
    })
}

fn gateway(network: &Network, side: Side, hooks: Hooks) -> Gateway {
    let setup = setup(network.state_dir(side as usize));
    Gateway::start(network.space(side as usize), setup, hooks)
}

/// A start after a crash, without rules: the leftovers of the crash are gone then.
fn next_start(network: &Network) -> Gateway {
    let gateway = gateway(network, Side::A, silent());
    gateway.with(Userspace::remove_stale_routes);
    gateway
}

/// Installs the SAs: both sides can receive before either sends.
fn connect(gateways: &[Gateway; 2], agreement: Agreement) {
    for (gateway, side) in gateways.iter().zip([Side::A, Side::B]) {
        gateway.with(move |p| p.add_inbound(agreement.inbound(side)).expect("the SA is added"));
    }
    for (gateway, side) in gateways.iter().zip([Side::A, Side::B]) {
        gateway.with(move |p| p.add_outbound(agreement.outbound(side)).expect("the SA is added"));
    }
}

#[test]
fn traffic_passes_protected_in_every_form() {
    let mut forms = Vec::new();
    for encapsulation in [Encapsulation::Udp, Encapsulation::Native] {
        for outer_v6 in [false, true] {
            for inner_v6 in [false, true] {
                let suite = if inner_v6 { CBC } else { GCM };
                let mode = Mode::Tunnel;
                forms.push(Agreement { suite, mode, encapsulation, outer_v6, inner_v6 });
            }
            let (suite, mode, inner_v6) = (GCM, Mode::Transport, outer_v6);
            forms.push(Agreement { suite, mode, encapsulation, outer_v6, inner_v6 });
        }
    }
    for form in forms {
        let Some(network) = Network::make() else { return };
        println!("{form:?}");
        let before = network.snapshots();
        let gateways = gateways(&network, form);
        connect(&gateways, form);
        let (a, b) = form.ends(Side::A);
        let [ns_a, ns_b] = [network.space(0), network.space(1)];
        let mut capture = network.capture();

        ping(ns_a, a, b);
        // The longest become fragments: those of the inner packet in tunnel mode, and in transport mode those of the
        // outer.
        udp_echo((ns_a, a), (ns_b, b), &[35, 64, 500, 1200, 1350, 3000]);
        tcp_echo((ns_a, a), (ns_b, b), 300_000);
        tcp_echo((ns_b, b), (ns_a, a), 300_000);

        let seen = capture.finish();
        assert!(seen.protected > 100, "{form:?}: {seen:?}");
        assert_eq!(seen.in_the_clear, Vec::<String>::new(), "{form:?}");
        for (gateway, side) in gateways.iter().zip([Side::A, Side::B]) {
            let counters = gateway.with(|plane| plane.counters());
            let lost: Vec<_> = counters.iter().filter(|(_, n)| **n > 0).collect();
            assert!(lost.is_empty(), "{form:?} {side:?} dropped {lost:?}");
            let usage = gateway.with(|plane| plane.usage(SaId(1))).expect("the SA exists");
            assert!(usage.packets > 50 && usage.refused == 0, "{form:?} {side:?} {usage:?}");
        }
        drop(gateways);
        assert_eq!(network.snapshots(), before, "{form:?}: shutdown leaves the host as it was");
    }
}

#[test]
fn without_an_sa_nothing_leaves_and_the_kept_packet_follows() {
    let Some(network) = Network::make() else { return };
    let (notices, acquired) = mpsc::channel();
    let hooks = Hooks {
        notice: Arc::new(move |notice| {
            let _ = notices.send(notice);
        }),
        ike: Arc::new(|_| {}),
    };
    let planes = [gateway(&network, Side::A, hooks), gateway(&network, Side::B, silent())];
    for (plane, side) in planes.iter().zip([Side::A, Side::B]) {
        plane.with(move |p| p.add_rule(TUNNEL.rule(side)).expect("the rule is added"));
    }
    let (a, b) = TUNNEL.ends(Side::A);
    let mut capture = network.capture();
    let listener = network::udp(network.space(1), b);
    let target = listener.local_addr().expect("bound");
    let sender = network::udp(network.space(0), a);
    sender.send_to(MARKER, target).expect("the kernel takes it");

    let notice = acquired.recv_timeout(PATIENCE).expect("a notice");
    let Notice::Acquire { rule: RULE, packet } = notice else { panic!("{notice:?}") };
    assert_eq!((packet.source.0, packet.destination.0), (a, b));
    let seen = capture.finish();
    assert_eq!((seen.protected, seen.in_the_clear), (0, vec![]));

    connect(&planes, TUNNEL);
    assert!(udp_arrives(&listener), "the packet that asked for the SA was kept");
    let seen = capture.finish();
    // Heard twice: as it enters the bridge and as it leaves.
    assert_eq!((seen.protected, seen.in_the_clear), (2, vec![]));
}

/// Key management's least wait for a worker that does not go on.
const WAIT: Duration = Duration::from_millis(100);

#[test]
fn key_management_waits_for_a_worker_that_has_not_sent_its_packets() {
    let Some(network) = Network::make() else { return };
    let (reached, is_held) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let hooks = Hooks {
        // The worker that has just taken a number for a packet calls it, and goes on with the packet afterwards.
        notice: Arc::new(move |notice| {
            if let Notice::Expiring { hard: false, .. } = notice {
                let _ = reached.send(());
                let _ = released.lock().map(|released| released.recv());
            }
        }),
        ike: Arc::new(|_| {}),
    };
    let planes = [gateway(&network, Side::A, hooks), gateway(&network, Side::B, silent())];
    for (plane, side) in planes.iter().zip([Side::A, Side::B]) {
        plane.with(move |p| p.add_rule(TUNNEL.rule(side)).expect("the rule is added"));
    }
    planes[1].with(|p| p.add_inbound(TUNNEL.inbound(Side::B)).expect("the SA is added"));
    let limits = Limits { soft_bytes: Some(1), hard_bytes: None };
    let old = OutboundSa { limits, ..TUNNEL.outbound(Side::A) };
    let id = old.id;
    planes[0].with(|p| p.add_outbound(old).expect("the SA is added"));
    let (a, b) = TUNNEL.ends(Side::A);
    let listener = network::udp(network.space(1), b);
    let sender = network::udp(network.space(0), a);
    let target = listener.local_addr().expect("bound");
    sender.send_to(MARKER, target).expect("the kernel takes it");
    is_held.recv_timeout(PATIENCE).expect("a worker is held");

    let waits = planes[0].with(move |p| {
        let timed = |work: &mut dyn FnMut()| {
            let begun = Instant::now();
            work();
            begun.elapsed()
        };
        let successor = |n, standby| OutboundSa {
            id: SaId(n),
            spi: Spi(0x2000 + n as u32),
            standby,
            ..TUNNEL.outbound(Side::A)
        };
        p.add_outbound(successor(4, true)).expect("the SA is added");
        [
            ("removed", timed(&mut || _ = p.remove(id))),
            ("added", timed(&mut || p.add_outbound(successor(3, false)).expect("it is added"))),
            ("promoted", timed(&mut || p.promote(SaId(4)).expect("it is there"))),
        ]
    });
    for (what, wait) in waits {
        assert!(wait >= WAIT, "an SA was {what} after {wait:?}, and the packet was not sent");
    }
    drop(release);
    assert!(udp_arrives(&listener), "the worker sends it then");
}

#[test]
fn rules_share_routes_until_the_last_goes() {
    let Some(network) = Network::make() else { return };
    let gateway = gateway(&network, Side::A, silent());
    let shown = || network.routes(0, 4500);
    let empty = shown();
    let second = Rule { id: RuleId(2), ..TUNNEL.rule(Side::A) };
    gateway.with(|p| p.add_rule(TUNNEL.rule(Side::A)).expect("the rule is added"));
    let one = shown();
    assert!(one.contains("10.2.0.1 dev vpn0") && one.contains("src 10.1.0.1"), "{one}");
    assert!(one.contains("blackhole 10.2.0.1"), "{one}");
    gateway.with(move |p| p.add_rule(second).expect("the rule is added"));
    assert_eq!(shown(), one);
    gateway.with(|p| p.remove_rule(RULE));
    assert_eq!(shown(), one);
    gateway.with(|p| p.remove_rule(RuleId(2)));
    assert_eq!(shown(), empty);
}

#[test]
fn a_replaced_rule_gives_up_its_former_routes() {
    let Some(network) = Network::make() else { return };
    let gateway = gateway(&network, Side::A, silent());
    gateway.with(|p| p.add_rule(TUNNEL.rule(Side::A)).expect("the rule is added"));
    let other = Agreement { inner_v6: true, ..TUNNEL };
    gateway.with(move |p| p.add_rule(other.rule(Side::A)).expect("the rule is added"));
    let shown = network.routes(0, 4500);
    assert!(!shown.contains("10.2.0.1"), "{shown}");
    assert!(shown.contains("fd02::1 dev vpn0"), "{shown}");
}

#[test]
fn ike_shares_the_port() {
    let Some(network) = Network::make() else { return };
    let (messages, received) = mpsc::channel();
    let hooks = Hooks {
        notice: Arc::new(|_| {}),
        ike: Arc::new(move |message| {
            let _ = messages.send(message);
        }),
    };
    let a = gateway(&network, Side::A, silent());
    let _b = gateway(&network, Side::B, hooks);
    for ipv6 in [false, true] {
        let local = SocketAddr::new(Side::A.outer(ipv6), 4500);
        let remote = SocketAddr::new(Side::B.outer(ipv6), 4500);
        let sender = a.with(|plane| plane.ike_sender());
        sender.send_keepalive(local, remote).expect("sent");
        sender.send_ike(local, remote, b"an IKE message").expect("sent");
        let got = received.recv_timeout(PATIENCE).expect("it arrives");
        let octets = b"an IKE message".to_vec();
        assert_eq!(got, IkeDatagram { local: remote, remote: local, octets });
    }
}

#[test]
fn ike_reaches_a_peer_whose_own_address_is_protected() {
    let Some(network) = Network::make() else { return };
    let (messages, received) = mpsc::channel();
    let hooks = Hooks {
        notice: Arc::new(|_| {}),
        ike: Arc::new(move |message| {
            let _ = messages.send(message);
        }),
    };
    let planes = [gateway(&network, Side::A, silent()), gateway(&network, Side::B, hooks)];
    let form = Agreement { mode: Mode::Transport, ..TUNNEL };
    for (plane, side) in planes.iter().zip([Side::A, Side::B]) {
        plane.with(move |p| p.add_rule(form.rule(side)).expect("the rule is added"));
    }
    let (local, remote) = (form.path(Side::A).local, form.path(Side::A).remote);
    let sender = planes[0].with(|plane| plane.ike_sender());
    sender.send_ike(local, remote, b"an IKE message").expect("sent");
    let got = received.recv_timeout(PATIENCE).expect("it arrives");
    assert_eq!(got.octets, b"an IKE message");
}

#[test]
fn a_link_narrower_than_configured_still_carries_everything() {
    for encapsulation in [Encapsulation::Udp, Encapsulation::Native] {
        let Some(network) = Network::make() else { return };
        let form = Agreement { encapsulation, ..TUNNEL };
        network.narrow(1400);
        let gateways = gateways(&network, form);
        connect(&gateways, form);
        let (a, b) = form.ends(Side::A);
        let mut capture = network.capture();
        tcp_echo((network.space(0), a), (network.space(1), b), 100_000);
        assert_eq!(capture.finish().in_the_clear, Vec::<String>::new());
    }
}

#[test]
fn a_device_and_a_table_have_one_owner() {
    let Some(network) = Network::make() else { return };
    let state_dir = network.state_dir(0);
    let _gateway = gateway(&network, Side::A, silent());
    let device = network.device(0);
    assert!(device.contains("qlen 1000"), "{device}");
    let refused = |setup: Setup| {
        inside(network.space(0), move || match network::start(setup, silent()) {
            Ok(_) => panic!("a second plane starts"),
            Err(error) => error.to_string(),
        })
    };
    let error = refused(setup(state_dir.clone()));
    assert!(error.contains("another process uses the device"), "{error}");
    let mut other = setup(state_dir);
    other.floor.settings.device = "vpn1".to_owned();
    let error = refused(other.clone());
    assert!(error.contains("choose another table"), "{error}");
    other.floor.natt_port = 4501;
    let settings = &mut other.floor.settings;
    (settings.table, settings.rule_priority) = (4501, 4501);
    let before = network.snapshots();
    let second = Gateway::start(network.space(0), other, silent());
    drop(second);
    assert_eq!(network.snapshots(), before, "the second leaves the first alone");
}

#[test]
fn the_filter_outlives_the_plane() {
    let Some(network) = Network::make() else { return };
    let (before, setup) = (network.snapshots(), setup(network.state_dir(0)));
    let (plane, floor) = inside(network.space(0), move || {
        let denied = Filter { ipv6: DefaultAction::Deny, ..Filter::default() };
        let floor = Floor::start(setup.floor, &Arc::new(denied)).expect("it starts");
        let mut plane = Userspace::start(&floor, setup.plane, silent()).expect("it starts");
        plane.add_rule(TUNNEL.rule(Side::A)).expect("the rule is added");
        (plane, floor)
    });
    inside(network.space(0), move || plane.shutdown());
    let table = format!("table inet {}", host::nft::table("filter", "vpn0"));
    let [after, _] = network.snapshots();
    assert!(after.contains(&table), "{after}");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&after.replace(&table, " ")), words(&before[0]), "the device is gone");
    inside(network.space(0), move || drop(floor));
    assert_eq!(network.snapshots(), before);
}

#[test]
fn a_missing_capability_is_named() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let Some(network) = Network::make() else { return };
    let setup = setup(network.state_dir(0));
    let error = inside(network.space(0), move || {
        let mut held = capabilities(None).expect("readable");
        held.effective.remove(CapabilitySet::NET_RAW);
        // A thread's own affair, and this thread ends here.
        set_capabilities(None, held).expect("given up");
        network::start(setup, silent()).map(drop).expect_err("refused").to_string()
    });
    assert!(error.contains("lacks CAP_NET_RAW;") && error.contains("run it as root"), "{error}");
}

#[test]
fn a_killed_process_fails_closed_and_the_next_cleans_up() {
    let Some(network) = Network::make() else { return };
    let state_dir = network.state_dir(0);
    let before = network.snapshots();
    let mut victim = Command::new(std::env::current_exe().expect("this program"));
    victim
        .args(["--exact", "victim", "--nocapture", "--ignored"])
        .env("USP_VICTIM", &state_dir)
        .stdout(Stdio::piped());
    let mut child = network.space(0).run(move || victim.spawn()).expect("it starts");
    let output = BufReader::new(child.stdout.take().expect("piped"));
    let ready = output.lines().map_while(Result::ok).any(|line| line.contains("ready"));
    assert!(ready, "the victim runs");
    child.kill().expect("killed");
    child.wait().expect("gone");

    assert_ne!(network.snapshots(), before, "the kernel does not clean up all of it");
    let (a, b) = TUNNEL.ends(Side::A);
    network.bypass_tunnel(0, b, Side::B.outer(false));
    let mut capture = network.capture();
    let sender = network::udp(network.space(0), a);
    assert!(sender.send_to(MARKER, (b, 9)).is_err(), "the blackhole stands");
    assert_eq!(capture.finish().in_the_clear, Vec::<String>::new());
    network.remove_bypass(0, b);

    drop(next_start(&network));
    assert_eq!(network.snapshots(), before);
    assert_eq!(std::fs::read_dir(state_dir).expect("readable").count(), 0);
}

#[test]
fn a_panic_of_the_owner_fails_closed_too() {
    let Some(network) = Network::make() else { return };
    let state_dir = network.state_dir(0);
    let before = network.snapshots();
    let setup = setup(state_dir.clone());
    let owner = std::panic::catch_unwind(AssertUnwindSafe(|| {
        inside(network.space(0), move || {
            let (_floor, mut plane) = network::start(setup, silent()).expect("it starts");
            plane.add_rule(TUNNEL.rule(Side::A)).expect("the rule is added");
            panic!("as a bug would");
        })
    }));
    assert!(owner.is_err());
    let (a, b) = TUNNEL.ends(Side::A);
    network.bypass_tunnel(0, b, Side::B.outer(false));
    let mut capture = network.capture();
    let sender = network::udp(network.space(0), a);
    assert!(sender.send_to(MARKER, (b, 9)).is_err(), "the blackhole stands");
    assert_eq!(capture.finish().in_the_clear, Vec::<String>::new());
    network.remove_bypass(0, b);

    drop(next_start(&network));
    assert_eq!(network.snapshots(), before);
    assert_eq!(std::fs::read_dir(state_dir).expect("readable").count(), 0);
}

/// Not a test: the process that [`a_killed_process_fails_closed_and_the_next_cleans_up`] kills.
#[test]
#[ignore = "started by another test"]
fn victim() {
    let Some(state_dir) = std::env::var_os("USP_VICTIM") else { return };
    let started = network::start(setup(state_dir.into()), silent());
    let (_floor, mut plane) = started.expect("it starts");
    plane.add_rule(TUNNEL.rule(Side::A)).expect("the rule is added");
    println!("ready");
    loop {
        std::thread::park();
    }
}
