//! Two gateways, the traffic of a tunnel, and a counter on the wire that sees what leaves in the clear.

use nix::sys::socket::{setsockopt, sockopt::BindToDevice};
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use testkit::gateway::{Gateway, PATIENT};
use testkit::policies::{SITE, changed};
use testkit::space::Space;
use testkit::until;

/// Packets of each kind that are sent after a transition before it is judged.
const SOME: u64 = 200;

/// The place of the sender whose socket is bound to the outer device.
pub const BOUND: usize = 1;

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
    pub word: &'static str,
}

pub const V4: Family = Family {
    ranges: [["10.1.0.0", "10.1.0.255"], ["10.2.0.0", "10.2.0.255"]],
    inner: ["10.1.0.1", "10.2.0.1"],
    lan: ["10.1.0.131", "10.1.0.130"],
    outer: ["192.0.2.1", "192.0.2.2"],
    lengths: [32, 24],
    word: "ip",
};

pub const V6: Family = Family {
    ranges: [["fd01::", "fd01::ffff"], ["fd02::", "fd02::ffff"]],
    inner: ["fd01::1", "fd02::1"],
    lan: ["fd01::8003", "fd01::8002"],
    outer: ["2001:db8::1", "2001:db8::2"],
    lengths: [128, 112],
    word: "ip6",
};

/// The plane of the left gateway's tunnels. The right gateway's is in userspace, so that what the kernel has decapsulated is not
/// taken for cleartext.
#[derive(Clone, Copy, PartialEq)]
#[allow(dead_code, reason = "each of the programs with these scenes has one of them")]
pub enum Plane {
    Userspace,
    Xfrm,
}

/// What a scene is played with.
#[derive(Clone, Copy)]
pub struct Setting {
    pub family: Family,
    pub plane: Plane,
    /// Tunnels of the left gateway besides the one with the traffic. Their peers do not exist.
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
    /// Kept for its namespace.
    _lan: Space,
    pub setting: Setting,
    pub senders: Vec<Sender>,
}

/// Sends until it is dropped.
pub struct Sender {
    tried: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sender {
    fn start(socket: UdpSocket, to: SocketAddr) -> Self {
        let (tried, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, end) = (Arc::clone(&tried), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                // Whatever the system says to it: nothing may be on the wire.
                let _ = socket.send_to(b"secret", to);
                count.fetch_add(1, Ordering::Relaxed);
                // Nothing depends on this pace; it leaves the processor to others.
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        Self { tried, stop, thread: Some(thread) }
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
        // The way that every leak would take.
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

        let to = SocketAddr::new(inner[1].parse().expect("an address"), 4567);
        let bind = |space: &Space, address: &str, device: Option<&'static str>| {
            let address: IpAddr = address.parse().expect("an address");
            let socket = space.run(move || {
                let socket = UdpSocket::bind((address, 0)).expect("an address of the namespace");
                if let Some(device) = device {
                    setsockopt(&socket, BindToDevice, &OsString::from(device)).expect("as root");
                }
                socket
            });
            Sender::start(socket, to)
        };
        let senders = vec![
            bind(&left.space, inner[0], None),
            bind(&left.space, inner[0], Some("wire")),
            bind(&lan, host, None),
        ];
        let scene = Self { left, right, _lan: lan, setting, senders };
        // Without a daemon all of it leaks, by which the counter is known to count.
        scene.pause();
        assert!(scene.seen() > 0, "the counter sees what leaves in the clear");
        scene
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

    /// Starts both daemons. What is sent before the left one is ready may be seen.
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

    /// Lets others change the host under traffic. Nothing is to be seen on the wire, and what they have removed is put back.
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

    /// Waits until traffic passes the tunnel.
    pub fn passes_again(&self, what: &str) {
        let [from, to] = self.setting.family.inner;
        let option = self.option();
        let passes = || self.left.space.pings(&format!("{option} -I {from}"), 1, to).ok();
        until(&format!("traffic passes: {what}"), passes, || self.left.log());
    }

    /// Runs `vpnd` with the left gateway's configuration, and returns its output.
    pub fn vpnd_ok(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vpnd"));
        command.args(arguments).arg("--config").arg(self.left.path("vpnd.toml"));
        let output = self.left.space.run(move || command.stdin(Stdio::null()).output());
        let output = output.expect("vpnd is built");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// The family, as `ip` and `ping` take it.
    pub fn option(&self) -> &'static str {
        if self.setting.family.word == "ip6" { "-6" } else { "-4" }
    }

    /// Nothing is blocked any more: what is sent is seen on the wire.
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
