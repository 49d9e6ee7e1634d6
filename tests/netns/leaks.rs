//! Nothing of a tunnel's traffic leaves in the clear: not while the daemon starts, reloads, crashes or fails to start, and not
//! while other programs change the host.
//!
//! The left gateway has a default route past the tunnel, to the right one, where a rule of the kernel counts every packet of
//! the tunnel's traffic that arrives as it is. Each transition happens under traffic of three kinds: of the gateway itself, of a
//! socket that is bound to the outer device, and of a host behind the gateway. A transition is over once each kind has sent
//! some more packets.

use crate::harness::gateway::{Gateway, PATIENT};
use crate::harness::policies::{SITE, changed};
use crate::harness::space::Space;
use crate::harness::{FILTERED, test, until};
use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt::BindToDevice};
use serde_json::Value;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

pub fn trials() -> Vec<Trial> {
    vec![
        test("nothing leaks while the policy changes, IPv4", FILTERED, || policy_changes(V4)),
        test("nothing leaks while the policy changes, IPv6", FILTERED, || policy_changes(V6)),
        test("nothing leaks while the daemon ends and starts, IPv4", FILTERED, || restarts(V4)),
        test("nothing leaks while the daemon ends and starts, IPv6", FILTERED, || restarts(V6)),
        test("nothing leaks while others change the host, IPv4", FILTERED, || disturbances(V4)),
        test("nothing leaks while others change the host, IPv6", FILTERED, || disturbances(V6)),
        test("nothing leaks while the guard is held, IPv4", FILTERED, || held(V4)),
        test("nothing leaks while the guard is held, IPv6", FILTERED, || held(V6)),
        test("a stop that is to block blocks until it is released", FILTERED, || blocked(V4)),
        test("cleartext that should be protected is not taken", FILTERED, inbound),
    ]
}

/// Packets of each kind that are sent after a transition before it is judged.
const SOME: u64 = 200;

/// The place of the sender whose socket is bound to the outer device.
const BOUND: usize = 1;

/// The addresses of one family.
#[derive(Clone, Copy)]
struct Family {
    /// First and last address of both networks.
    ranges: [[&'static str; 2]; 2],
    /// The gateways' own addresses in their networks.
    inner: [&'static str; 2],
    /// A host behind the left gateway, and the gateway's address towards it.
    lan: [&'static str; 2],
    /// The gateways' addresses on the wire.
    outer: [&'static str; 2],
    /// Lengths of an address and of a network.
    lengths: [u8; 2],
    word: &'static str,
}

const V4: Family = Family {
    ranges: [["10.1.0.0", "10.1.0.255"], ["10.2.0.0", "10.2.0.255"]],
    inner: ["10.1.0.1", "10.2.0.1"],
    lan: ["10.1.0.131", "10.1.0.130"],
    outer: ["192.0.2.1", "192.0.2.2"],
    lengths: [32, 24],
    word: "ip",
};

const V6: Family = Family {
    ranges: [["fd01::", "fd01::ffff"], ["fd02::", "fd02::ffff"]],
    inner: ["fd01::1", "fd02::1"],
    lan: ["fd01::8003", "fd01::8002"],
    outer: ["2001:db8::1", "2001:db8::2"],
    lengths: [128, 112],
    word: "ip6",
};

impl Family {
    /// The sample policy with these networks.
    fn policy(&self, seen_from: usize) -> String {
        let mut text = SITE[seen_from].to_owned();
        for (range, ours) in V4.ranges.iter().zip(self.ranges) {
            for (from, to) in range.iter().zip(ours) {
                text = changed(&text, &format!("\"{from}\""), &format!("\"{to}\""));
            }
        }
        match self.word {
            "ip6" => changed(&text, "IPV4_Address_Range", "IPV6_Address_Range"),
            _ => text,
        }
    }
}

/// Two gateways, a host behind the left one, and the traffic.
struct Scene {
    left: Gateway,
    right: Gateway,
    /// Kept for its namespace.
    _lan: Space,
    family: Family,
    senders: Vec<Sender>,
}

/// Sends until it is dropped.
struct Sender {
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
    fn new(family: Family) -> Self {
        let policies = [0, 1].map(|seen_from| family.policy(seen_from));
        let [left, right] = Gateway::pair(&policies, [1, 2], PATIENT);
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
        let scene = Self { left, right, _lan: lan, family, senders };
        // Without a daemon all of it leaks, by which the counter is known to count.
        scene.pause();
        assert!(scene.seen() > 0, "the counter sees what leaves in the clear");
        scene
    }

    /// Packets in the clear that have arrived so far.
    fn seen(&self) -> u64 {
        let text = self.right.space.sh("nft list counter inet leaks seen");
        let packets = text.split_whitespace().skip_while(|word| *word != "packets").nth(1);
        packets.and_then(|number| number.parse().ok()).expect("nft shows the counter")
    }

    /// Waits until each kind of traffic has sent some packets.
    fn pause(&self) {
        for sender in &self.senders {
            let enough = sender.tried.load(Ordering::Relaxed) + SOME;
            let done = || (sender.tried.load(Ordering::Relaxed) >= enough).then_some(());
            until("some packets more", done, String::new);
        }
    }

    /// Starts both daemons. What is sent before the left one is ready may be seen.
    fn start(&mut self) {
        self.right.start();
        self.left.start();
        self.pause();
    }

    /// Lets something happen under traffic, of which nothing is to be seen on the wire.
    fn quietly(&mut self, what: &str, work: impl FnOnce(&mut Self)) {
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

    /// Lets others change the host under traffic. Nothing is to be seen on the wire, and what they have removed is put back.
    fn comes_back(&mut self, what: &str, work: impl FnOnce(&mut Self)) {
        let told = |s: &Self| s.left.log().matches("put back after others").count();
        let before = told(self);
        self.quietly(what, work);
        until(what, || (told(self) > before).then_some(()), || self.left.log());
        // In several steps, if it was removed in several.
        let [from, to] = self.family.inner;
        let option = if self.family.word == "ip6" { "-6" } else { "-4" };
        let passes = || self.left.space.pings(&format!("{option} -I {from}"), 1, to).ok();
        until(&format!("traffic passes: {what}"), passes, || self.left.log());
    }

    /// Runs `vpnd` with the left gateway's configuration, and returns its output.
    fn vpnd_ok(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vpnd"));
        command.args(arguments).arg("--config").arg(self.left.path("vpnd.toml"));
        let output = self.left.space.run(move || command.stdin(Stdio::null()).output());
        let output = output.expect("vpnd is built");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Nothing is blocked any more: what is sent is seen on the wire.
    fn passes_in_the_clear(&self) {
        let before = self.seen();
        until("packets in the clear", || (self.seen() > before).then_some(()), String::new);
    }

    /// Traffic passes the tunnel.
    fn passes(&self) {
        let [from, to] = self.family.inner;
        let option = if self.family.word == "ip6" { "-6" } else { "-4" };
        let passes = self.left.space.pings(&format!("{option} -I {from}"), 3, to);
        assert!(passes.is_ok(), "{passes:?}");
    }
}

fn policy_changes(family: Family) {
    let mut scene = Scene::new(family);
    scene.start();
    scene.quietly("down", |_| {});
    scene.quietly("activate", |s| drop(s.left.ctl_ok(&["activate"])));
    scene.passes();
    scene.quietly("rekey of the Child SA", |s| drop(s.left.ctl_ok(&["rekey", "site_lan"])));
    scene.quietly("rekey of the IKE SA", |s| drop(s.left.ctl_ok(&["rekey", "site"])));
    let sample = family.policy(0);
    let key = sample.split("<IKEPresharedKey").nth(1).expect("the sample has a key");
    let value = key.split("Value=\"").nth(1).and_then(|v| v.split('"').next()).expect("its value");
    let changes = [
        ("another key", changed(&sample, value, "another-preshared-key-of-this-test")),
        ("the former key", sample.clone()),
        ("on demand", changed(&sample, "OnDemand=\"No\"", "OnDemand=\"Yes\"")),
        (
            "another lifetime",
            changed(&sample, "KeyRefreshMinutes=\"60\"", "KeyRefreshMinutes=\"50\""),
        ),
        ("a larger network", {
            let [_, last] = family.ranges[0];
            let larger = if family.word == "ip6" { "fd01::1:ffff" } else { "10.1.1.255" };
            changed(&sample, &format!("\"{last}\""), &format!("\"{larger}\""))
        }),
        ("the sample", sample.clone()),
        ("another name", sample.replace("site_lan", "other_lan")),
        ("the sample again", sample.clone()),
    ];
    for (what, policy) in changes {
        scene.quietly(what, |s| {
            s.left.write_policy(&policy);
            s.left.ctl_ok(&["reload"]);
        });
        scene.quietly(what, |s| drop(s.left.ctl(&["activate"])));
    }
    scene.quietly("reloads in a row", |s| {
        for name in ["other_lan", "site_lan"].repeat(5) {
            s.left.write_policy(&sample.replace("site_lan", name));
            s.left.ctl_ok(&["reload"]);
        }
    });
    scene.left.ctl_ok(&["activate"]);
    scene.passes();
    scene.quietly("deactivate", |s| drop(s.left.ctl_ok(&["deactivate", "site"])));
    scene.quietly("a broken policy", |s| {
        s.left.write_policy("<AIX_VPN");
        s.left.ctl_fails(&["reload"], 1);
    });
}

fn restarts(family: Family) {
    let mut scene = Scene::new(family);
    scene.start();
    scene.left.ctl_ok(&["activate"]);
    scene.quietly("a crash", |s| s.left.crash());
    scene.quietly("the start after it", |s| s.left.start());
    scene.quietly("activate", |s| drop(s.left.ctl_ok(&["activate"])));
    scene.passes();
    scene.quietly("another crash", |s| s.left.crash());
    let taken = scene.left.space.run(|| UdpSocket::bind(("0.0.0.0", 4500))).expect("it is free");
    scene.quietly("a start that fails", |s| {
        let mut command = s.left.command();
        let output = s.left.space.run(move || command.stdin(Stdio::null()).output());
        assert!(!output.expect("vpnd is built").status.success(), "4500 is taken");
    });
    scene.quietly("a start with a broken policy", |s| {
        s.left.write_policy("<AIX_VPN");
        let mut command = s.left.command();
        let output = s.left.space.run(move || command.stdin(Stdio::null()).output());
        assert!(!output.expect("vpnd is built").status.success(), "there is no policy");
        s.left.write_policy(&s.family.policy(0));
    });
    drop(taken);
    scene.quietly("the start that succeeds", |s| s.left.start());
    for _ in 0..3 {
        scene.quietly("a crash and a start", |s| {
            s.left.crash();
            s.left.start();
        });
    }
    scene.left.ctl_ok(&["activate"]);
    scene.passes();
}

/// `vpnd guard` outlives every daemon.
fn held(family: Family) {
    let mut scene = Scene::new(family);
    let show = |s: &Scene| {
        let shown = s.vpnd_ok(&["guard", "--show", "--json"]);
        serde_json::from_str::<Value>(&shown).expect("JSON")
    };
    assert_eq!(show(&scene)["in_force"], false);
    let policy = scene.left.path("policy.xml").display().to_string();
    let said = scene.vpnd_ok(&["guard", "--policy", &policy]);
    assert!(said.contains("to release it: vpnd release"), "{said}");
    scene.quietly("guarded before the first start", |_| {});
    let state = show(&scene);
    assert_eq!((&state["in_force"], &state["vpnd_runs"]), (&true.into(), &false.into()));
    assert!(state["unprotected_leaving"].as_u64().is_some_and(|n| n > 0), "{state}");
    scene.right.start();
    scene.quietly("the first start", |s| s.left.start());
    scene.quietly("activate", |s| drop(s.left.ctl_ok(&["activate"])));
    scene.passes();
    let status = scene.left.ctl_ok(&["status"]);
    assert!(status.contains("in force until vpnd release, held for "), "{status}");
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        scene.quietly("a signal and a start", |s| {
            s.left.signal(signal);
            s.left.wait();
            s.pause();
            s.left.start();
        });
    }
    scene.quietly("a stop by command", |s| {
        let said = s.left.ctl_ok(&["stop"]);
        assert!(said.contains("stays blocked; to release it: vpnd release"), "{said}");
        s.left.wait();
    });
    scene.quietly("a crash", |s| {
        s.left.start();
        s.left.crash();
    });
    scene.quietly("a change of the policy while no daemon runs", |s| {
        drop(s.vpnd_ok(&["guard", "--policy", &policy]));
    });
    let said = scene.vpnd_ok(&["release"]);
    assert!(said.starts_with("released: "), "{said}");
    scene.passes_in_the_clear();
    assert_eq!(scene.vpnd_ok(&["release"]), "nothing was blocked\n");
    // Held while the daemon runs.
    scene.left.start();
    scene.pause();
    scene.quietly("held while it runs", |s| drop(s.vpnd_ok(&["guard"])));
    scene.quietly("and stopped", |s| s.left.stop());
    scene.quietly("and started", |s| s.left.start());
    let said = scene.vpnd_ok(&["release"]);
    assert!(said.starts_with("vpnd runs: "), "{said}");
    scene.quietly("released while it runs", |_| {});
    scene.left.stop();
    scene.passes_in_the_clear();
}

fn blocked(family: Family) {
    let mut scene = Scene::new(family);
    scene.start();
    scene.left.ctl_ok(&["activate"]);
    scene.quietly("a stop that keeps the guard", |s| {
        let said = s.left.ctl_ok(&["stop", "--keep-guard"]);
        assert!(said.contains("stays blocked; to release it: vpnd release"), "{said}");
        s.left.wait();
    });
    let said = scene.vpnd_ok(&["guard", "--show"]);
    assert!(said.contains("a vpnd that has ended left its guard"), "{said}");
    scene.quietly("the start after it", |s| s.left.start());
    scene.left.ctl_ok(&["activate"]);
    scene.passes();
    // The next orderly end releases.
    scene.left.stop();
    scene.passes_in_the_clear();
    scene.left.configure("[filter]\non_stop = \"block\"\n");
    scene.left.start();
    scene.pause();
    scene.quietly("SIGTERM, and a start", |s| {
        s.left.signal(Signal::SIGTERM);
        s.left.wait();
        s.pause();
        s.left.start();
    });
    scene.quietly("SIGTERM", |s| s.left.stop());
    let said = scene.vpnd_ok(&["release"]);
    assert!(said.starts_with("released: "), "{said}");
    scene.passes_in_the_clear();
}

fn disturbances(family: Family) {
    let mut scene = Scene::new(family);
    scene.start();
    scene.left.ctl_ok(&["activate"]);
    let option = if family.word == "ip6" { "-6" } else { "-4" };
    let address = format!("{}/{} dev lo", family.inner[0], family.lengths[0]);
    let ip = |line: String| move |s: &mut Scene| drop(s.left.space.try_sh(&format!("ip {line}")));
    scene.comes_back("the routes are flushed", ip(format!("{option} route flush table 4500")));
    scene.comes_back("the rules are flushed", |s| {
        s.left.space.ip(&format!("{option} rule flush"));
        s.left.space.ip(&format!("{option} rule add from all lookup main priority 32766"));
    });
    scene.quietly("the address goes", ip(format!("address del {address}")));
    scene.comes_back("the address comes", ip(format!("address add {address}")));
    scene.comes_back("the device is down", ip("link set vpn0 down".to_owned()));
    for _ in 0..3 {
        scene.comes_back("the device is deleted", ip("link del vpn0".to_owned()));
    }
    scene.comes_back("all of it at once", |s| {
        for line in [
            "link del vpn0".to_owned(),
            format!("{option} route flush table 4500"),
            format!("{option} rule flush"),
            format!("{option} rule add from all lookup main priority 32766"),
        ] {
            s.left.space.try_sh(&format!("ip {line}"));
        }
    });
    scene.quietly("another device has the name", |s| {
        let batch = s.left.path("batch");
        std::fs::write(&batch, "link del vpn0\nlink add vpn0 type dummy\n").expect("writable");
        let state = |s: &Scene| s.left.json(&["list", "--json"])[0]["children"][0].clone();
        let blocked = || {
            // The daemon may have been faster and have the name again.
            s.left.space.try_sh(&format!("ip -batch {}", batch.display()));
            (state(s)["state"] == "blocked").then(|| state(s))
        };
        let child = until("the tunnel is blocked", blocked, || s.left.log());
        assert!(child["fault"].as_str().is_some_and(|why| why.contains("vpn0")), "{child}");
        let why = s.left.ctl_ok(&["why", "site"]);
        assert!(why.contains("no packet passes: "), "{why}");
    });
    scene.comes_back("the other device is gone", ip("link del vpn0".to_owned()));
    scene.quietly("and a reload", |s| {
        s.left.signal(Signal::SIGHUP);
        s.left.await_log(&["policy reloaded"]);
    });
    scene.passes();
    // While the guard is gone, only routes hold the traffic, which a socket that is bound to a device does not ask.
    drop(scene.senders.remove(BOUND));
    for line in [
        "delete table inet vpn_guard_vpn0",
        "flush table inet vpn_guard_vpn0",
        "flush ruleset",
        "insert rule inet vpn_guard_vpn0 after_translation accept",
    ] {
        scene.comes_back(line, |s| drop(s.left.space.sh(&format!("nft {line}"))));
        let table = scene.left.space.sh("nft list table inet vpn_guard_vpn0");
        assert!(
            table.contains("hook postrouting") && table.contains("10.") | table.contains("fd0"),
            "{table}"
        );
        let accepting = table.lines().filter(|line| line.trim() == "accept").count();
        assert_eq!(accepting, 0, "{table}");
    }
    let events = scene.left.log();
    assert!(
        events.contains("host: put back after others had removed or changed it: the tunnel device"),
        "{events}"
    );
}

fn inbound() {
    let mut scene = Scene::new(V4);
    scene.senders.clear();
    scene.start();
    let wire = scene
        .right
        .space
        .run(|| UdpSocket::bind(("10.2.0.1", 4567)).expect("an address of the namespace"));
    // Strict filtering of reverse paths would drop it, too.
    scene.right.space.set("ipv4/conf/all/rp_filter", "0");
    scene.right.space.set("ipv4/conf/wire/rp_filter", "0");
    // Past the left gateway's own guard: a namespace that has no daemon.
    let outsider = Space::new("outsider");
    Space::connect(
        (&scene.right.space, "other", &["198.51.100.1/24"]),
        (&outsider, "wire", &["198.51.100.2/24", "10.1.0.77/32"]),
    );
    scene.right.space.set("ipv4/conf/other/rp_filter", "0");
    outsider.ip("route add 10.2.0.0/24 via 198.51.100.1");
    let open = scene.right.space.run(|| UdpSocket::bind(("198.51.100.1", 4567))).expect("free");
    let sender = outsider.run(|| UdpSocket::bind(("10.1.0.77", 0))).expect("its address");
    sender.send_to(b"forged", "10.2.0.1:4567").expect("a route");
    // A later packet on the same link has arrived: the first one has been dropped or taken.
    let plain = outsider.run(|| UdpSocket::bind(("198.51.100.2", 0))).expect("its address");
    plain.send_to(b"plain", "198.51.100.1:4567").expect("a route");
    let mut packet = [0; 16];
    assert_eq!(open.recv(&mut packet).expect("no tunnel has it"), 5);
    wire.set_nonblocking(true).expect("a socket takes it");
    assert!(wire.recv(&mut packet).is_err(), "a packet that should have been protected was taken");
    let status = scene.right.json(&["status", "--json"]);
    assert_eq!(status["filter"]["inbound_guard"], true, "{status}");
}
