//! Two gateways, the traffic of a tunnel, and a counter on the wire that sees what leaves in the clear.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use socket2::{Protocol, SockAddr, Socket, Type};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use testkit::gateway::{Gateway, PATIENT};
use testkit::policies::{SITE, changed};
use testkit::space::Space;
use testkit::until;

/// Packets of each kind that are sent after a transition before it is judged.
const SOME: u64 = 200;

/// A kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of the gateway, from its inner address: datagrams, some of them in fragments, and echo requests.
    Inner,
    /// As [`Kind::Inner`], TCP connections.
    InnerTcp,
    /// Of the gateway, from a socket without a source address: the kernel selects one by the route.
    Unbound,
    /// As [`Kind::Unbound`], TCP connections.
    UnboundTcp,
    /// Of the gateway, from its outer address on purpose.
    Outer,
    /// Of the gateway, from its inner address and a socket that is bound to the outer device.
    Device,
    /// Of a host behind the gateway: as [`Kind::Inner`], and ESP and datagrams from the ports of IKE, which may pass
    /// only if they are the gateway's own.
    Behind,
}

impl Kind {
    /// The kinds that the selectors of the tunnel do not hold, unless its route selects the source.
    pub const WITHOUT_SOURCE: [Self; 3] = [Self::Unbound, Self::UnboundTcp, Self::Outer];
}

/// The addresses of one family.
#[derive(Clone, Copy)]
pub struct Family {
    /// First and last address of both networks.
    pub ranges: [[&'static str; 2]; 2],
    /// The gateways' own addresses in their networks.
    pub inner: [&'static str; 2],
    /// A host behind the left gateway, and the gateway's address towards it.
    pub lan: [&'static str; 2],
    /// The gateways' addresses on the wire.
    pub outer: [&'static str; 2],
    /// Lengths of an address and of a network.
    pub lengths: [u8; 2],
    /// The name of the family in rules of nftables.
    pub word: &'static str,
}

/// IPv4.
pub const V4: Family = Family {
    ranges: [["10.1.0.0", "10.1.0.255"], ["10.2.0.0", "10.2.0.255"]],
    inner: ["10.1.0.1", "10.2.0.1"],
    lan: ["10.1.0.131", "10.1.0.130"],
    outer: ["192.0.2.1", "192.0.2.2"],
    lengths: [32, 24],
    word: "ip",
};

/// IPv6.
pub const V6: Family = Family {
    ranges: [["fd01::", "fd01::ffff"], ["fd02::", "fd02::ffff"]],
    inner: ["fd01::1", "fd02::1"],
    lan: ["fd01::8003", "fd01::8002"],
    outer: ["2001:db8::1", "2001:db8::2"],
    lengths: [128, 112],
    word: "ip6",
};

/// The plane of the left gateway's tunnels. The right gateway's is in userspace, so that what the kernel has
/// decapsulated is not taken for cleartext.
#[derive(Clone, Copy, PartialEq)]
pub enum Plane {
    /// In userspace.
    Userspace,
    /// In the kernel.
    Xfrm,
}

/// The conditions of a scene.
#[derive(Clone, Copy)]
pub struct Setting {
    /// The family of the tunnel.
    pub family: Family,
    /// The plane of the left gateway.
    pub plane: Plane,
    /// Tunnels of the left gateway other than the one with the traffic. Their peers do not exist.
    pub others: usize,
}

impl Setting {
    /// The sample policy with the family's networks, and the other tunnels on the left.
    pub fn policy(&self, seen_from: usize) -> String {
        let mut text = SITE[seen_from].to_owned();
        for (range, ours) in V4.ranges.iter().zip(self.family.ranges) {
            for (from, to) in range.iter().zip(ours) {
                text = changed(&text, &format!("\"{from}\""), &format!("\"{to}\""));
            }
        }
        if self.family.word == "ip6" {
            text = changed(&text, "IPV4_Address_Range", "IPV6_Address_Range");
        }
        if seen_from == 0 {
            let others: String = (0..self.others).map(|n| self.other(n)).collect();
            text = changed(&text, "</AIX_VPN>", &format!("{others}</AIX_VPN>"));
        }
        text
    }

    /// The policy of the left gateway without every fifth of the other tunnels.
    pub fn policy_without_some(&self) -> String {
        let others = (0..self.others).filter(|n| n % 5 == 0).map(|n| self.other(n));
        others.fold(self.policy(0), |text, other| changed(&text, &other, ""))
    }

    fn other(&self, number: usize) -> String {
        let (high, low) = (number >> 8, number & 255);
        let [[from, to], [first, last]] = match self.family.word {
            "ip6" => [
                [format!("fd03:{number:x}::"), format!("fd03:{number:x}::ffff")],
                self.family.ranges[0].map(str::to_owned),
            ],
            _ => [
                [format!("10.{}.{low}.0", 64 + high), format!("10.{}.{low}.255", 64 + high)],
                self.family.ranges[0].map(str::to_owned),
            ],
        };
        let kind = if self.family.word == "ip6" { "IPV6" } else { "IPV4" };
        let peer = format!("198.18.{high}.{low}");
        format!(
            r#"<IKETunnel IKE_TunnelName="other{number}" IKE_ProtectionRef="site_p1" IKE_Flags_AutoStart="No">
<IKELocalIdentity><IPV4_Address Value="192.0.2.1"/></IKELocalIdentity>
<IKERemoteIdentity><IPV4_Address Value="{peer}"/></IKERemoteIdentity></IKETunnel>
<IKEPresharedKey Format="ASCII" Value="a-preshared-key-of-nobody">
<IKEPresharedRemoteID><PK_IPV4_Address Value="{peer}"/></IKEPresharedRemoteID></IKEPresharedKey>
<IPSecTunnel IPSec_TunnelName="other{number}_lan" IKE_TunnelName="other{number}" IPSec_ProtectionRef="site_p2"
IPSec_Flags_AutoStart="No" IPSec_Flags_OnDemand="No">
<IPSecLocalIdentity Protocol="0" Port="0" EndPort="65535">
<{kind}_Address_Range From_IPAddr="{first}" To_IPAddr="{last}"/></IPSecLocalIdentity>
<IPSecRemoteIdentity Protocol="0" Port="0" EndPort="65535">
<{kind}_Address_Range From_IPAddr="{from}" To_IPAddr="{to}"/></IPSecRemoteIdentity></IPSecTunnel>
"#
        )
    }
}

/// Two gateways, a host behind the left one, and the traffic.
pub struct Scene {
    pub left: Gateway,
    pub right: Gateway,
    pub lan: Space,
    pub setting: Setting,
    senders: Vec<Sender>,
}

/// Sends until it is dropped.
pub struct Sender {
    kind: Kind,
    tried: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sender {
    /// Sends datagrams, or begins connections, to `to`. `None`: the kernel selects the source.
    fn start(kind: Kind, space: &Space, from: Option<IpAddr>, to: IpAddr) -> Self {
        let (tried, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, end) = (Arc::clone(&tried), Arc::clone(&stop));
        // A thread belongs to the namespace of the thread that starts it, and so do its sockets.
        let thread = space.run(move || {
            std::thread::spawn(move || {
                let socket_kinds = kind.socket_kinds(to.is_ipv6());
                let open = |socket_kind: &SocketKind| kind.socket(socket_kind, from, to);
                let sockets: Vec<Socket> = socket_kinds
                    .iter()
                    .filter(|socket_kind| socket_kind.kind != Type::STREAM)
                    .map(open)
                    .collect();
                let mut pace = Pace::new();
                while !end.load(Ordering::Relaxed) {
                    let turn = count.fetch_add(1, Ordering::Relaxed) as usize;
                    let socket_kind = &socket_kinds[turn % socket_kinds.len()];
                    let to = socket_kind.destination(to);
                    // Every other packet of each kind of sockets is long.
                    let long = turn / socket_kinds.len() % 2 == 1;
                    let octets = &[8; 4_000][..if long { 4_000 } else { 8 }];
                    // The result does not matter: nothing may be on the wire.
                    let _ = match sockets.get(turn % socket_kinds.len()) {
                        Some(socket) => socket.send_to(octets, &to).map(drop),
                        None => kind
                            .socket(socket_kind, from, to.as_socket().expect("IP").ip())
                            .connect(&to),
                    };
                    std::thread::sleep(pace.rest());
                }
            })
        });
        Self { kind, tried, stop, thread: Some(thread) }
    }
}

/// The senders of this process, of all its scenes.
static SENDERS: AtomicU32 = AtomicU32::new(0);

/// How often a sender sends. All senders of the process together take half of a processor at most, so that the daemons
/// of a slow machine get their share. No test depends on it.
struct Pace {
    /// The processor's time that this thread has taken so far.
    taken: Duration,
}

impl Pace {
    const SHORTEST: Duration = Duration::from_micros(300);
    /// A guest whose host is busy counts the time for which it waits for a processor as time that its thread has taken.
    const LONGEST: Duration = Duration::from_millis(20);

    fn new() -> Self {
        SENDERS.fetch_add(1, Ordering::Relaxed);
        Self { taken: Duration::ZERO }
    }

    /// How long the thread rests after a packet.
    fn rest(&mut self) -> Duration {
        let now = clock_gettime(ClockId::ThreadCPUTime).try_into().expect("not negative");
        let before = std::mem::replace(&mut self.taken, now);
        let share = 2 * SENDERS.load(Ordering::Relaxed);
        (share * self.taken.saturating_sub(before)).clamp(Self::SHORTEST, Self::LONGEST)
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        SENDERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One kind of sockets. Octets 8 are an echo request, and no header of the others.
struct SocketKind {
    kind: Type,
    protocol: Option<i32>,
    /// The source; 0: any.
    port: u16,
}

impl SocketKind {
    const UDP: Self = Self { kind: Type::DGRAM, protocol: None, port: 0 };
    const TCP: Self = Self { kind: Type::STREAM, protocol: None, port: 0 };

    fn raw(protocol: i32) -> Self {
        Self { kind: Type::RAW, protocol: Some(protocol), port: 0 }
    }

    fn destination(&self, to: IpAddr) -> SockAddr {
        let port = if self.kind == Type::RAW { 0 } else { 4567 };
        SocketAddr::new(to, port).into()
    }
}

impl Kind {
    fn socket_kinds(self, ipv6: bool) -> Vec<SocketKind> {
        let echo = SocketKind::raw(if ipv6 { 58 } else { 1 });
        match self {
            Self::InnerTcp | Self::UnboundTcp => vec![SocketKind::TCP],
            Self::Inner => vec![SocketKind::UDP, echo],
            Self::Unbound | Self::Outer | Self::Device => vec![SocketKind::UDP],
            Self::Behind => {
                let [ike, natt] = [500, 4500].map(|port| SocketKind { port, ..SocketKind::UDP });
                vec![SocketKind::UDP, echo, SocketKind::raw(50), ike, natt]
            }
        }
    }

    fn socket(self, socket_kind: &SocketKind, from: Option<IpAddr>, to: IpAddr) -> Socket {
        let is_stream = socket_kind.kind == Type::STREAM;
        let kind = if is_stream { Type::STREAM.nonblocking() } else { socket_kind.kind };
        let protocol = socket_kind.protocol.map(Protocol::from);
        let socket =
            Socket::new(socket_kind.destination(to).domain(), kind, protocol).expect("a socket");
        if let Some(from) = from {
            let from = SocketAddr::new(from, socket_kind.port).into();
            // The address may be away for a moment.
            let bound = socket.bind(&from);
            assert!(is_stream || bound.is_ok(), "an address of the namespace: {bound:?}");
        }
        if self == Self::Device {
            socket.bind_device(Some(b"wire")).expect("as root");
        }
        socket
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Scene {
    pub fn new(setting: Setting) -> Self {
        let Setting { family, plane, .. } = setting;
        let esp = match plane {
            Plane::Userspace => "",
            Plane::Xfrm => "dataplane = \"xfrm\"\n",
        };
        let left = Gateway::new("left", &setting.policy(0), PATIENT, esp);
        let right = Gateway::new("right", &setting.policy(1), PATIENT, "");
        Space::connect(
            (&left.space, "wire", &["192.0.2.1/24"]),
            (&right.space, "wire", &["192.0.2.2/24"]),
        );
        let lan = Space::new("lan");
        let Family { inner, lan: [host, router], outer, lengths: [whole, net], word, .. } = family;
        if word == "ip6" {
            left.space.ip(&format!("address add {}/64 dev wire nodad", outer[0]));
            right.space.ip(&format!("address add {}/64 dev wire nodad", outer[1]));
        }
        left.space.ip(&format!("address add {}/{whole} dev lo", inner[0]));
        right.space.ip(&format!("address add {}/{whole} dev lo", inner[1]));
        Space::connect(
            (&left.space, "inside", &[&format!("{router}/{}", whole - 1)]),
            (&lan, "outside", &[&format!("{host}/{}", whole - 1)]),
        );
        left.space.set("ipv4/ip_forward", "1");
        left.space.set("ipv6/conf/all/forwarding", "1");
        let option = if word == "ip6" { "-6" } else { "-4" };
        lan.ip(&format!("{option} route add default via {router}"));
        // Every leak would take this way.
        left.space.ip(&format!("{option} route add default via {}", outer[1]));
        let remote = format!("{}/{net}", family.ranges[1][0]);
        for line in [
            "add table inet leaks".to_owned(),
            "add counter inet leaks seen".to_owned(),
            "add chain inet leaks c { type filter hook prerouting priority -400 ; }".to_owned(),
            format!("add rule inet leaks c iifname wire {word} daddr {remote} counter name seen"),
        ] {
            right.space.sh(&format!("nft {line}"));
        }

        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let senders = [
            (Kind::Inner, &left.space, Some(inner[0])),
            (Kind::InnerTcp, &left.space, Some(inner[0])),
            (Kind::Unbound, &left.space, None),
            (Kind::UnboundTcp, &left.space, None),
            (Kind::Outer, &left.space, Some(outer[0])),
            (Kind::Device, &left.space, Some(inner[0])),
            (Kind::Behind, &lan, Some(host)),
        ];
        let start = |(kind, space, from): (Kind, &Space, Option<&str>)| {
            Sender::start(kind, space, from.map(address), address(inner[1]))
        };
        let senders = senders.into_iter().map(start).collect();
        let scene = Self { left, right, lan, setting, senders };
        // Without a daemon all of it leaks, by which the counter is known to count.
        scene.pause();
        assert!(scene.seen() > 0, "the counter sees what leaves in the clear");
        scene
    }

    /// Ends traffic of these kinds.
    pub fn without(&mut self, kinds: &[Kind]) {
        self.senders.retain(|sender| !kinds.contains(&sender.kind));
    }

    /// Packets in the clear that have arrived so far.
    pub fn seen(&self) -> u64 {
        let text = self.right.space.sh("nft list counter inet leaks seen");
        let packets = text.split_whitespace().skip_while(|word| *word != "packets").nth(1);
        packets.and_then(|number| number.parse().ok()).expect("nft shows the counter")
    }

    /// Waits until each kind of traffic has sent some packets.
    pub fn pause(&self) {
        for sender in &self.senders {
            let enough = sender.tried.load(Ordering::Relaxed) + SOME;
            let done = || (sender.tried.load(Ordering::Relaxed) >= enough).then_some(());
            until("some packets more", done, String::new);
        }
    }

    /// Starts both daemons. Packets sent before the left one is ready may be seen.
    pub fn start(&mut self) {
        self.right.start();
        self.left.start();
        self.pause();
    }

    /// Lets something happen under traffic, of which nothing is to be seen on the wire.
    pub fn quietly(&mut self, what: &str, work: impl FnOnce(&mut Self)) {
        let before = self.seen();
        work(self);
        self.pause();
        let leaked = self.seen() - before;
        let dump = || {
            ["nft list ruleset", "ip rule", "ip route show table all"]
                .map(|line| self.left.space.try_sh(line).1)
                .concat()
        };
        assert_eq!(leaked, 0, "{what}: packets in the clear\n{}", dump());
    }

    /// Something that holds the traffic is missing: some of it is to be seen on the wire.
    pub fn leaks(&mut self, what: &str, work: impl FnOnce(&mut Self)) {
        let before = self.seen();
        work(self);
        let seen = || (self.seen() > before).then_some(());
        until(&format!("packets in the clear: {what}"), seen, || self.left.log());
    }

    /// Lets others change the host under traffic. Nothing is to be seen on the wire, and the daemon puts back the parts
    /// that they have removed.
    pub fn comes_back(&mut self, what: &str, work: impl FnOnce(&mut Self)) {
        let told = |s: &Self| s.left.log().matches("put back after others").count();
        let before = told(self);
        self.quietly(what, work);
        if self.setting.plane == Plane::Userspace {
            until(what, || (told(self) > before).then_some(()), || self.left.log());
        }
        // In several steps, if it was removed in several.
        self.passes_again(what);
    }

    /// Waits until everything that holds the traffic is there again.
    pub fn settled(&self) {
        let there = || {
            let shows = |line: &str, text: &str| self.left.space.try_sh(line).1.contains(text);
            let guard = shows("nft list table inet vpn_guard_vpn0", "hook postrouting");
            let rest = match self.setting.plane {
                Plane::Userspace => {
                    shows(&format!("ip {} rule", self.option()), "lookup 4500")
                        && shows(&format!("ip {} route show table 4500", self.option()), "dev vpn0")
                }
                Plane::Xfrm => {
                    let network = format!("{}/", self.setting.family.ranges[1][0]);
                    shows("ip xfrm policy", &network)
                }
            };
            (guard && rest).then_some(())
        };
        until("everything is there again", there, || self.left.log());
    }

    /// Waits until the table that nobody can flush has the same flows as the guard.
    pub fn held(&self) {
        let flows = |table: &str| {
            let text = self.left.space.try_sh(&format!("nft list table inet {table}")).1;
            let sets = text.split("\tset ").skip(1).filter(|set| !set.starts_with("in_"));
            let mut flows: Vec<Vec<String>> = sets
                .filter_map(|set| {
                    let (set, _) = set.split_once("\n\t}")?;
                    let mut words: Vec<_> = set
                        .split([',', '\n', '\t', '{', '}', '='])
                        .map(str::trim)
                        .map(str::to_owned)
                        .collect();
                    words[1..].sort();
                    Some(words)
                })
                .collect();
            flows.sort();
            flows
        };
        let same = || {
            let [guard, held] = ["vpn_guard_vpn0", "vpn_held_vpn0"].map(flows);
            (!guard.is_empty() && guard == held).then_some(())
        };
        until("the held table has the same flows", same, || {
            self.left.space.try_sh("nft list ruleset").1 + &self.left.log()
        });
    }

    /// Ends the process that has the table which nobody can flush.
    pub fn end_owner(&self) {
        let ours = self.left.space.run(|| std::fs::read_link("/proc/thread-self/ns/net")).ok();
        let is_owner = |process: &i32| {
            let of = Path::new("/proc").join(process.to_string());
            std::fs::read_link(of.join("ns/net")).ok() == ours
                && std::fs::read(of.join("cmdline")).is_ok_and(|line| line.ends_with(b"\0-i\0"))
        };
        let entries = std::fs::read_dir("/proc").expect("readable").flatten();
        let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let owners: Vec<i32> = processes.filter(is_owner).collect();
        let [owner] = owners[..] else { panic!("{owners:?}") };
        kill(Pid::from_raw(owner), Signal::SIGKILL).expect("it belongs to the daemon");
        // The kernel shows no command of a process that has ended.
        let ended = || (!is_owner(&owner)).then_some(());
        until("the process has ended", ended, String::new);
    }

    /// Waits until traffic passes the tunnel.
    pub fn passes_again(&self, what: &str) {
        let [from, to] = self.setting.family.inner;
        let option = self.option();
        let passes = || self.left.space.pings(&format!("{option} -I {from}"), 1, to).ok();
        until(&format!("traffic passes: {what}"), passes, || self.left.log());
    }

    /// Runs `vpnd` with the left gateway's configuration, and returns its output.
    pub fn vpnd_ok(&self, arguments: &[&str]) -> String {
        let output = self.left.vpnd(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// The state of the guard, for programs.
    pub fn guard_state(&self) -> Value {
        serde_json::from_str(&self.vpnd_ok(&["guard", "--show", "--json"])).expect("JSON")
    }

    /// Waits until the guard is there, and the watch holds it, too.
    pub fn guarded(&self) {
        let there = || {
            let tables = self.left.space.try_sh("nft list tables").1;
            let whole = self.left.space.try_sh("nft list table inet vpn_guard_vpn0").1;
            (whole.contains("hook postrouting") && tables.contains("vpn_watch_vpn0")).then_some(())
        };
        until("the guard is there", there, || self.left.space.try_sh("nft list ruleset").1);
    }

    /// The family, as `ip` and `ping` take it.
    pub fn option(&self) -> &'static str {
        if self.setting.family.word == "ip6" { "-6" } else { "-4" }
    }

    /// Nothing is blocked any more: the packets are seen on the wire.
    pub fn passes_in_the_clear(&self) {
        let before = self.seen();
        until("packets in the clear", || (self.seen() > before).then_some(()), String::new);
    }

    /// Traffic passes the tunnel.
    pub fn passes(&self) {
        let [from, to] = self.setting.family.inner;
        let option = self.option();
        let passes = self.left.space.pings(&format!("{option} -I {from}"), 3, to);
        assert!(passes.is_ok(), "{passes:?}");
    }
}
