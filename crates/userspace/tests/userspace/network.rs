//! Three namespaces: a gateway on each side, and a bridge between them that hears everything.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use socket2::{Domain, Protocol, Socket, Type};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use userspace::{Config, Hooks, IkeReceiver, Userspace};

/// Addresses of the gateways on the network between them, by family.
pub const OUTER: [[&str; 2]; 2] = [["192.0.2.1", "192.0.2.2"], ["2001:db8::1", "2001:db8::2"]];
/// Addresses behind the gateways, by family.
pub const INNER: [[&str; 2]; 2] = [["10.1.0.1", "10.2.0.1"], ["fd01::1", "fd02::1"]];

/// What no one between the gateways may read.
pub const MARKER: &[u8] = b"read by no one between the gateways";

pub const PATIENCE: Duration = Duration::from_secs(300);

static COUNT: AtomicU32 = AtomicU32::new(0);

/// One network at a time: a program that one test starts holds, until it runs, the sockets another has just closed.
static ONE: Mutex<()> = Mutex::new(());

/// The namespaces of one test, which go with it.
pub struct Network {
    gateways: [String; 2],
    between: String,
    state: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Network {
    /// Makes the network; `None`, with the reason printed, where this process may not.
    pub fn make() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("making network namespaces needs root");
            return None;
        }
        let alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |role| format!("usp{role}{}-{number}", std::process::id());
        let state = std::env::temp_dir().join(name("state"));
        let network =
            Self { gateways: [name("a"), name("b")], between: name("m"), state, _alone: alone };
        for namespace in network.gateways.iter().chain([&network.between]) {
            run("ip", &["netns", "add", namespace]);
        }
        let middle = &network.between;
        ip(middle, "link add br0 type bridge mcast_snooping 0");
        ip(middle, "link set br0 up");
        for (side, gateway) in network.gateways.iter().enumerate() {
            ip(middle, &format!("link add port{side} type veth peer name wan netns {gateway}"));
            ip(middle, &format!("link set port{side} master br0 up"));
            // Strict filtering is what the plane must get along with.
            for which in ["all", "default", "wan"] {
                write(gateway, &format!("/proc/sys/net/ipv4/conf/{which}/rp_filter"), "1");
            }
            ip(gateway, "link set lo up");
            ip(gateway, "link set wan addrgenmode none");
            ip(gateway, "link set wan up");
            ip(gateway, &format!("address add {}/24 dev wan", OUTER[0][side]));
            ip(gateway, &format!("address add {}/64 dev wan nodad", OUTER[1][side]));
            ip(gateway, &format!("address add {}/32 dev lo", INNER[0][side]));
            ip(gateway, &format!("address add {}/128 dev lo nodad", INNER[1][side]));
        }
        Some(network)
    }

    pub fn namespace(&self, side: usize) -> &str {
        &self.gateways[side]
    }

    pub fn state_dir(&self, side: usize) -> PathBuf {
        self.state.join(side.to_string())
    }

    /// Everything a plane may have changed on both gateways.
    pub fn snapshots(&self) -> [String; 2] {
        [0, 1].map(|side| {
            let namespace = &self.gateways[side];
            let mut shown = String::new();
            for question in ["rule", "-6 rule", "route show table all", "-6 route show table all"] {
                shown += &ip(namespace, question);
            }
            for line in ip(namespace, "-o link").lines() {
                shown += line.split(": ").nth(1).unwrap_or(line);
                shown += "\n";
            }
            shown += &inside(namespace, || {
                let tables = Command::new("nft").args(["list", "tables"]).output();
                let tables = tables.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
                let filter = std::fs::read_to_string("/proc/sys/net/ipv4/conf/wan/rp_filter");
                format!("{}{}", tables.unwrap_or_default(), filter.expect("readable"))
            });
            shown
        })
    }

    /// What `ip` says of the tunnel device.
    pub fn device(&self, side: usize) -> String {
        ip(&self.gateways[side], "link show vpn0")
    }

    pub fn routes(&self, side: usize, table: u32) -> String {
        let show = |family| {
            let command = format!("{family} route show table {table}");
            let output = Command::new("ip")
                .args(["-n", &self.gateways[side]])
                .args(command.split(' '))
                .output();
            // A table that never had a route is an error.
            String::from_utf8_lossy(&output.expect("ip runs").stdout).into_owned()
        };
        show("-4") + &show("-6")
    }

    /// Routes an address behind the other gateway around the tunnel.
    pub fn bypass_tunnel(&self, side: usize, remote: IpAddr, via: IpAddr) {
        ip(&self.gateways[side], &format!("route add {remote} via {via}"));
    }

    /// Lowers the MTU of the network between the gateways.
    pub fn narrow(&self, mtu: u16) {
        for gateway in &self.gateways {
            ip(gateway, &format!("link set wan mtu {mtu}"));
        }
    }

    pub fn remove_bypass(&self, side: usize, remote: IpAddr) {
        ip(&self.gateways[side], &format!("route del {remote}"));
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

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in self.gateways.iter().chain([&self.between]) {
            let _ = Command::new("ip").args(["netns", "del", namespace]).status();
        }
        let _ = std::fs::remove_dir_all(&self.state);
    }
}

/// What passed between the gateways.
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
    /// What has passed since the last call.
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
        let Some(packet) = frame.get(14..) else { return };
        match frame[12..14] {
            [0x08, 0x06] => {}
            [0x08, 0x00] if packet.len() >= 24 => {
                let upper = &packet[usize::from(packet[0] & 15) * 4..];
                let follows_a_fragment = packet[6] & 0x1f != 0 || packet[7] != 0;
                match packet[9] {
                    17 | 50 if follows_a_fragment => self.protected += 1,
                    protocol => self.protocol(protocol, upper),
                }
            }
            [0x86, 0xdd] if packet.len() >= 44 => self.protocol(packet[6], &packet[40..]),
            _ => self.in_the_clear.push(format!("{:02x?}", &frame[..frame.len().min(64)])),
        }
    }

    fn protocol(&mut self, protocol: u8, upper: &[u8]) {
        let port = |at: usize| upper.get(at..at + 2) == Some(&4500u16.to_be_bytes()[..]);
        match protocol {
            50 => self.protected += 1,
            // A fragment of IPv6.
            44 if matches!(upper[0], 17 | 50) => self.protected += 1,
            17 if port(0) && port(2) => self.protected += 1,
            // Neighbour discovery, and the multicast reports (behind a hop-by-hop header) that go with it.
            58 if (133..=137).contains(&upper[0]) => {}
            0 if upper.first() == Some(&58) => {}
            2 => {}
            _ => self.in_the_clear.push(format!("protocol {protocol}: {:02x?}", &upper[..8])),
        }
    }
}

/// A plane, and the thread in its namespace that owns it.
pub struct Gateway {
    orders: Option<mpsc::Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

type Order = Box<dyn FnOnce(&mut Userspace) + Send>;

impl Gateway {
    pub fn start(namespace: &str, config: Config, hooks: Hooks) -> Self {
        let namespace = namespace.to_owned();
        let (orders, given) = mpsc::channel::<Order>();
        let thread = std::thread::spawn(move || {
            enter(&namespace);
            let mut plane = Userspace::start(config, hooks).expect("the plane starts");
            let (end, ended) = rustix::pipe::pipe().expect("a pipe");
            let receivers = plane.ike_receivers();
            let listener = std::thread::spawn(move || listen(receivers, &end));
            given.iter().for_each(|order| order(&mut plane));
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
        let (answer, answered) = mpsc::channel();
        let order: Order = Box::new(move |plane| {
            let _ = answer.send(order(plane));
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

/// Does something in a namespace.
pub fn inside<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(namespace);
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

pub fn ping(namespace: &str, from: IpAddr, to: IpAddr) {
    let (from, to) = (from.to_string(), to.to_string());
    let arguments = ["-n", "-c", "3", "-i", "0.05", "-W", "120", "-s", "1200", "-I", &from, &to];
    run("ip", &[&["netns", "exec", namespace, "ping"], &arguments[..]].concat());
}

/// A UDP socket on a free port.
pub fn udp(namespace: &str, address: IpAddr) -> UdpSocket {
    inside(namespace, || {
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
pub fn udp_echo(from: (&str, IpAddr), to: (&str, IpAddr), lengths: &[usize]) {
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
pub fn tcp_echo(from: &str, from_address: IpAddr, to: &str, to_address: IpAddr, octets: usize) {
    let listener = inside(to, || TcpListener::bind((to_address, 0)).expect("bound"));
    let target = listener.local_addr().expect("bound");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("the whole request");
        stream.write_all(&all).expect("the whole answer");
    });
    let mut stream: TcpStream = inside(from, || {
        let domain = if from_address.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::STREAM, None).expect("a socket");
        socket.bind(&std::net::SocketAddr::new(from_address, 0).into()).expect("bound");
        socket.connect_timeout(&target.into(), PATIENCE).expect("connected");
        socket.into()
    });
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.set_write_timeout(Some(PATIENCE)).expect("set");
    let request: Vec<u8> = MARKER.iter().copied().cycle().take(octets).collect();
    stream.write_all(&request).expect("the whole request");
    stream.shutdown(Shutdown::Write).expect("closed");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the whole answer");
    assert!(answer == request, "the octets come back as they went");
    server.join().expect("the server ends");
}

/// Says why a test does nothing, unless everything is required.
pub fn skip(reason: &str) {
    assert!(!left_out::is_forbidden(), "VPN_TEST_REQUIRE=all, and {reason}");
    left_out::note(reason, 1);
    println!("skipped: {reason}");
}

fn enter(namespace: &str) {
    let file = File::open(format!("/run/netns/{namespace}")).expect("the namespace exists");
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("entered");
}

fn write(namespace: &str, path: &str, value: &str) {
    inside(namespace, || std::fs::write(path, value)).expect("the setting exists");
}

fn ip(namespace: &str, command: &str) -> String {
    run("ip", &[&["-n", namespace], &command.split(' ').collect::<Vec<_>>()[..]].concat())
}

/// Runs a program to its end and gives what it says.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("the program exists");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {shown}{complaint}");
    shown
}
