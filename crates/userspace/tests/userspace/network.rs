//! Three namespaces: a gateway on each side, and a bridge between them that hears everything.

use esp::plane::PlaneError;
use floor::{Floor, FrozenFloor};
use host::handover::Descriptors;
use rustix::event::{PollFd, PollFlags, poll};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;
use testkit::capture::{Kind, classify};
use testkit::space::Space;
use testkit::traffic;
use testkit::until;
use userspace::{Config, FrozenUserspace, Hooks, IkeReceiver, Userspace};

pub use testkit::PATIENCE;

/// Addresses of the gateways on the network between them, by family.
pub const OUTER: [[&str; 2]; 2] = [["192.0.2.1", "192.0.2.2"], ["2001:db8::1", "2001:db8::2"]];
/// Addresses behind the gateways, by family.
pub const INNER: [[&str; 2]; 2] = [["10.1.0.1", "10.2.0.1"], ["fd01::1", "fd02::1"]];

/// A plaintext that no one between the gateways may read.
pub const MARKER: &[u8] = b"read by no one between the gateways";

/// One network at a time: a program that one test starts holds, until it runs, the sockets another has just closed.
static ONE: Mutex<()> = Mutex::new(());

/// The namespaces of one test, which go with it.
pub struct Network {
    gateways: [Space; 2],
    between: Space,
    state: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Network {
    /// Makes the network; `None`, with the reason printed, where this process may not.
    pub fn make() -> Option<Self> {
        if let Some(reason) = testkit::missing(testkit::FILTERED) {
            testkit::skip(&reason);
            return None;
        }
        let alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let state = tempfile::tempdir().expect("a temporary directory");
        let gateways = ["a", "b"].map(Space::new);
        let between = Space::new("between");
        between.ip("link add br0 type bridge mcast_snooping 0");
        between.ip("link set br0 up");
        for (side, gateway) in gateways.iter().enumerate() {
            let port = format!("port{side}");
            Space::connect((&between, &port, &[]), (gateway, "wan", &[]));
            between.ip(&format!("link set {port} master br0"));
            // Strict filtering is what the plane must get along with.
            for which in ["all", "default", "wan"] {
                gateway.set(&format!("ipv4/conf/{which}/rp_filter"), "1");
            }
            gateway.ip(&format!("address add {}/24 dev wan", OUTER[0][side]));
            gateway.ip(&format!("address add {}/64 dev wan nodad", OUTER[1][side]));
            gateway.ip(&format!("address add {}/32 dev lo", INNER[0][side]));
            gateway.ip(&format!("address add {}/128 dev lo nodad", INNER[1][side]));
        }
        gateways.iter().for_each(await_addresses);
        Some(Self { gateways, between, state, _alone: alone })
    }

    pub fn space(&self, side: usize) -> &Space {
        &self.gateways[side]
    }

    pub fn state_dir(&self, side: usize) -> PathBuf {
        self.state.path().join(side.to_string())
    }

    /// Everything a plane may have changed on both gateways.
    pub fn snapshots(&self) -> [String; 2] {
        self.gateways.each_ref().map(|gateway| {
            let mut shown = String::new();
            for question in ["rule", "-6 rule", "route show table all", "-6 route show table all"] {
                shown += &gateway.ip(question);
            }
            for line in gateway.ip("-o link").lines() {
                shown += line.split(": ").nth(1).unwrap_or(line);
                shown += "\n";
            }
            let (_, tables) = gateway.try_sh("nft list tables");
            let filter = inside(gateway, || {
                std::fs::read_to_string("/proc/sys/net/ipv4/conf/wan/rp_filter")
            });
            shown + &tables + &filter.expect("readable")
        })
    }

    /// The output of `ip` about the tunnel device.
    pub fn device(&self, side: usize) -> String {
        self.gateways[side].ip("link show vpn0")
    }

    pub fn routes(&self, side: usize, table: u32) -> String {
        let show = |family: &str| {
            let line = format!("ip {family} route show table {table}");
            // A table that never had a route is an error.
            let (exists, shown) = self.gateways[side].try_sh(&line);
            if exists { shown } else { String::new() }
        };
        show("-4") + &show("-6")
    }

    /// Routes an address behind the other gateway around the tunnel.
    pub fn bypass_tunnel(&self, side: usize, remote: IpAddr, via: IpAddr) {
        self.gateways[side].ip(&format!("route add {remote} via {via}"));
    }

    /// Lowers the MTU of the network between the gateways.
    pub fn narrow(&self, mtu: u16) {
        for gateway in &self.gateways {
            gateway.ip(&format!("link set wan mtu {mtu}"));
        }
    }

    pub fn remove_bypass(&self, side: usize, remote: IpAddr) {
        self.gateways[side].ip(&format!("route del {remote}"));
    }

    /// Listens between the gateways.
    pub fn capture(&self) -> Capture {
        let socket = inside(&self.between, || {
            // ETH_P_ALL, in the byte order of the network.
            let every = Protocol::from(i32::from(3u16.to_be()));
            let socket = Socket::new(Domain::PACKET, Type::RAW, Some(every)).expect("a socket");
            rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20)
                .expect("a large buffer");
            socket.set_nonblocking(true).expect("set");
            socket
        });
        Capture { socket }
    }
}

/// The packets that passed between the gateways.
#[derive(Debug, Default)]
pub struct Seen {
    pub protected: usize,
    /// Octets of the longest frame.
    pub longest: usize,
    pub in_the_clear: Vec<String>,
}

/// A socket that hears every frame of the bridge.
pub struct Capture {
    socket: Socket,
}

impl Capture {
    /// The packets that have passed since the last call.
    pub fn finish(&mut self) -> Seen {
        let mut seen = Seen::default();
        let mut buffer = vec![0; 1 << 17];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(length) => seen.sort(&buffer[..length]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return seen,
                Err(e) => panic!("{e}"),
            }
        }
    }
}

impl Seen {
    fn sort(&mut self, frame: &[u8]) {
        if frame.windows(MARKER.len()).any(|w| w == MARKER) {
            self.in_the_clear.push("a packet shows its content".to_owned());
            return;
        }
        self.longest = self.longest.max(frame.len());
        match classify(frame) {
            Kind::Neighbour => {}
            Kind::Esp | Kind::Ike => self.protected += 1,
            Kind::Cleartext if is_fragment(frame) => self.protected += 1,
            Kind::Cleartext => {
                let begins = &frame[..frame.len().min(64)];
                self.in_the_clear.push(format!("{begins:02x?}"));
            }
        }
    }
}

/// Whether it is a fragment of ESP or UDP: all of IPv6, and the later ones of IPv4, whose first one has been
/// classified.
fn is_fragment(frame: &[u8]) -> bool {
    match frame {
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x08, 0x00, packet @ ..] if packet.len() >= 24 => {
            let is_later = packet[6] & 0x1f != 0 || packet[7] != 0;
            is_later && matches!(packet[9], 17 | 50)
        }
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x86, 0xdd, packet @ ..] if packet.len() >= 44 => {
            packet[6] == 44 && matches!(packet[40], 17 | 50)
        }
        _ => false,
    }
}

/// The settings of a plane, and of its floor.
#[derive(Clone)]
pub struct Setup {
    pub floor: floor::Config,
    pub plane: Config,
}

/// Starts a plane on a floor of its own, which has no filter. Bound in this order, the plane is dropped first.
pub fn start(setup: Setup, hooks: Hooks) -> Result<(Floor, Userspace), PlaneError> {
    let mut floor = Floor::start(setup.floor, &Arc::default())?;
    let plane = Userspace::start(&floor, setup.plane, hooks)?;
    floor.forget_left_filter();
    Ok((floor, plane))
}

/// The state of a plane that is frozen, and of its floor.
pub struct Frozen {
    pub floor: FrozenFloor,
    pub plane: FrozenUserspace,
    pub then: Instant,
}

/// Makes the plane of a successor, and its floor. Both are frozen.
pub fn adopt(
    setup: Setup,
    hooks: Hooks,
    frozen: Frozen,
    descriptors: &mut Descriptors,
) -> Result<(Floor, Userspace), PlaneError> {
    let Frozen { floor, plane, then } = frozen;
    let floor = Floor::adopt(setup.floor, floor, descriptors)?;
    let plane = Userspace::adopt(&floor, setup.plane, hooks, plane, descriptors, then)?;
    Ok((floor, plane))
}

/// A plane, and the thread in its namespace that owns it.
pub struct Gateway {
    orders: Option<mpsc::Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

type Order = Box<dyn FnOnce(&mut Floor, &mut Userspace) + Send>;

impl Gateway {
    pub fn start(space: &Space, setup: Setup, hooks: Hooks) -> Self {
        Self::own(space, move || start(setup, hooks).expect("the plane starts"))
    }

    /// Owns a plane on its floor.
    pub fn own(space: &Space, start: impl FnOnce() -> (Floor, Userspace) + Send + 'static) -> Self {
        let (orders, given) = mpsc::channel::<Order>();
        let thread = spawn(space, move || {
            let (mut floor, mut plane) = start();
            let (end, ended) = rustix::pipe::pipe().expect("a pipe");
            let receivers = plane.ike_receivers();
            let listener = std::thread::spawn(move || listen(receivers, &end));
            given.iter().for_each(|order| order(&mut floor, &mut plane));
            drop(ended);
            listener.join().expect("the listener does not panic");
            plane.shutdown();
        });
        let gateway = Self { orders: Some(orders), thread: Some(thread) };
        gateway.with(|_| ());
        gateway
    }

    /// Has the plane's thread do something, and waits for it.
    pub fn with<T: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Userspace) -> T + Send + 'static,
    ) -> T {
        self.with_floor(|_, plane| order(plane))
    }

    /// As [`with`](Self::with), with the floor.
    pub fn with_floor<T: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Floor, &mut Userspace) -> T + Send + 'static,
    ) -> T {
        let (answer, answered) = mpsc::channel();
        let order: Order = Box::new(move |floor, plane| {
            let _ = answer.send(order(floor, plane));
        });
        self.orders.as_ref().expect("running").send(order).expect("the plane's thread runs");
        answered.recv().expect("the plane's thread did not panic")
    }
}

/// Waits for IKE messages until the other end of `end` is gone.
fn listen(mut receivers: Vec<IkeReceiver>, end: &OwnedFd) {
    loop {
        let mut sources = vec![PollFd::new(end, PollFlags::IN)];
        sources.extend(receivers.iter().map(|receiver| PollFd::new(receiver, PollFlags::IN)));
        poll(&mut sources, None).expect("waited");
        let ready: Vec<bool> = sources.iter().map(|s| !s.revents().is_empty()).collect();
        if ready[0] {
            return;
        }
        for (receiver, _) in receivers.iter_mut().zip(&ready[1..]).filter(|(_, ready)| **ready) {
            while receiver.receive() {}
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.orders = None;
        let outcome = self.thread.take().expect("running").join();
        if !std::thread::panicking() {
            outcome.expect("the plane's thread did not panic");
        }
    }
}

/// A new thread in a namespace.
fn spawn<T: Send + 'static>(
    space: &Space,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    space.run(move || std::thread::spawn(work))
}

/// Does something in a thread of its own in a namespace.
pub fn inside<T: Send + 'static>(space: &Space, work: impl FnOnce() -> T + Send + 'static) -> T {
    spawn(space, work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

pub fn ping(space: &Space, from: IpAddr, to: IpAddr) {
    space.sh(&format!("ping -n -c 3 -i 0.05 -W 120 -s 1200 -I {from} {to}"));
}

/// A UDP socket on a free port.
pub fn udp(space: &Space, address: IpAddr) -> UdpSocket {
    inside(space, move || {
        let socket = UdpSocket::bind((address, 0)).expect("bound");
        socket.set_read_timeout(Some(PATIENCE)).expect("set");
        socket
    })
}

/// Whether the marker comes within a generous time.
pub fn udp_arrives(socket: &UdpSocket) -> bool {
    let mut buffer = [0; 2048];
    socket.recv(&mut buffer).is_ok_and(|length| buffer[..length].starts_with(MARKER))
}

/// Sends datagrams of these lengths there and back.
pub fn udp_echo(from: (&Space, IpAddr), to: (&Space, IpAddr), lengths: &[usize]) {
    let (client, server) = (udp(from.0, from.1), udp(to.0, to.1));
    let target = server.local_addr().expect("bound");
    let mut buffer = [0; 4096];
    for &length in lengths {
        let mut octets = MARKER.repeat(length / MARKER.len() + 1);
        octets.truncate(length);
        client.send_to(&octets, target).expect("sent");
        let (got, source) = server.recv_from(&mut buffer).expect("the request comes");
        assert!(buffer[..got] == octets && source.ip() == from.1, "{length} octets");
        server.send_to(&octets, source).expect("sent");
        let got = client.recv(&mut buffer).expect("the answer comes");
        assert!(buffer[..got] == octets, "{length} octets");
    }
}

/// Sends so many octets there and back through one connection.
pub fn tcp_echo(from: (&Space, IpAddr), to: (&Space, IpAddr), octets: usize) {
    let octets: Vec<u8> = MARKER.iter().copied().cycle().take(octets).collect();
    traffic::exchange((&from.0.0, from.1), (&to.0.0, to.1), &octets).expect("they come back");
}

/// Waits until the kernel has made the routes of all IPv6 addresses, which it does some time later.
fn await_addresses(gateway: &Space) {
    let (addresses, routes) = ("-6 -o address", "-6 route show table local");
    let has_routes = || {
        let (addresses, routes) = (gateway.ip(addresses), gateway.ip(routes));
        let mut lines = addresses.lines();
        let is_there = |line: &str| {
            let address = line.split("inet6 ").nth(1).and_then(|rest| rest.split('/').next());
            let route = address.map(|address| format!("local {address} "));
            !line.contains("tentative") && route.is_some_and(|route| routes.contains(&route))
        };
        lines.all(is_there).then_some(())
    };
    until("the addresses are there", has_routes, || gateway.ip(addresses) + &gateway.ip(routes));
}
