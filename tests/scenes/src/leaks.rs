//! Nothing of a tunnel's traffic leaves in the clear: not while the daemon starts, reloads, crashes or fails to start,
//! and not while other programs change the host.
//!
//! The left gateway has a default route past the tunnel, to the right one, where a rule of the kernel counts every
//! packet of the tunnel's traffic that arrives as it is. Each transition happens under traffic of several kinds,
//! datagrams and connections: of the gateway itself, from its inner address, from sockets without a source address,
//! from its outer address, and past its routes; and of a host behind the gateway. A transition is over once each kind
//! has sent some more packets.

mod faults;
mod random;
mod scene;

use nix::sys::signal::Signal;
use nix::unistd::{Uid, setfsuid};
pub use random::sequences;
use scene::Scene;
pub use scene::{Family, Plane, Setting, V4, V6};
use socket2::{Protocol, SockAddr, Socket, Type};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Stdio;
use testkit::policies::changed;
use testkit::{GuardWatch, until};

/// A scene that is played in a setting.
pub type Play = fn(Setting);

/// All of them, by name.
pub const PLAYS: [(&str, Play); 13] = [
    ("nothing leaks while the policy changes", policy_changes),
    ("nothing leaks while the store, the planes and the bypasses change", places),
    ("nothing leaks while the daemon ends and starts", restarts),
    ("nothing leaks while others change the host", disturbances),
    ("nothing leaks while others remove everything at once", everything),
    ("nothing leaks while the host translates addresses", translations),
    ("nothing leaks while the guard is held", held),
    ("nothing leaks for what it looks like", exceptions),
    ("a stop that is to block blocks until it is released", blocked),
    ("nothing leaks while calls to the host fail", faults::faults),
    ("nothing leaks while nftables refuses every change", faults::refusals),
    ("nothing leaks in random sequences", sequences),
    ("a planted leak is seen", planted),
];

/// The scenes that are played with many tunnels, too.
pub const MANY: [&str; 4] = [
    "nothing leaks while the policy changes",
    "nothing leaks while the daemon ends and starts",
    "nothing leaks while others change the host",
    "nothing leaks in random sequences",
];

fn policy_changes(setting: Setting) {
    let mut scene = Scene::new(setting);
    scene.start();
    scene.quietly("down", |_| {});
    let [from, to] = [setting.family.outer[0], setting.family.inner[1]];
    let told = scene.left.ctl_ok(&["trace", "udp", &with_port(from, 4000), &with_port(to, 53)]);
    assert!(told.contains("remote network of tunnel site_lan"), "{told}");
    scene.quietly("activate", |s| drop(s.left.ctl_ok(&["activate", "site"])));
    scene.passes();
    scene.quietly("rekey of the Child SA", |s| drop(s.left.ctl_ok(&["rekey", "site_lan"])));
    scene.quietly("rekey of the IKE SA", |s| drop(s.left.ctl_ok(&["rekey", "site"])));
    let sample = setting.policy(0);
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
            let [_, last] = setting.family.ranges[0];
            let larger = if setting.family.word == "ip6" { "fd01::1:ffff" } else { "10.1.1.255" };
            changed(&sample, &format!("\"{last}\""), &format!("\"{larger}\""))
        }),
        ("the sample", sample.clone()),
        ("a tunnel of a host before it", with_host(setting, &sample, true)),
        ("a tunnel of a host behind it", with_host(setting, &sample, false)),
        ("the sample without it", sample.clone()),
        ("another name", sample.replace("site_lan", "other_lan")),
        ("the sample again", sample.clone()),
        ("without some of the other tunnels", setting.policy_without_some()),
        ("with all of them", sample.clone()),
    ];
    for (what, policy) in changes {
        scene.quietly(what, |s| {
            s.left.write_policy(&policy);
            s.left.ctl_ok(&["reload"]);
        });
        scene.quietly(what, |s| drop(s.left.ctl(&["activate", "site"])));
    }
    scene.quietly("reloads in a row", |s| {
        for name in ["other_lan", "site_lan"].repeat(5) {
            s.left.write_policy(&sample.replace("site_lan", name));
            s.left.ctl_ok(&["reload"]);
        }
    });
    scene.left.ctl_ok(&["activate", "site"]);
    scene.passes();
    scene.held();
    scene.quietly("deactivate", |s| drop(s.left.ctl_ok(&["deactivate", "site"])));
    scene.quietly("a broken policy", |s| {
        s.left.write_policy("<AIX_VPN");
        s.left.ctl_fails(&["reload"], 1);
    });
}

/// A policy with a tunnel between two hosts, before the tunnel between their networks or behind it.
fn with_host(setting: Setting, policy: &str, before: bool) -> String {
    let from = policy.find("<IPSecTunnel ").expect("the sample has one");
    let end = "</IPSecTunnel>";
    let to = policy.find(end).expect("it has an end") + end.len();
    let mut host = policy[from..to].replace("site_lan", "host_lan");
    for (range, inner) in setting.family.ranges.iter().zip(setting.family.inner) {
        for address in range {
            host = changed(&host, &format!("\"{address}\""), &format!("\"{inner}\""));
        }
    }
    let (head, rest) = policy.split_at(if before { from } else { to });
    format!("{head}{host}\n{rest}")
}

/// A policy with traffic that takes about 900 policies of the kernel.
fn wide(setting: Setting, policy: &str) -> String {
    let mut text = policy.to_owned();
    for [first, last] in setting.family.ranges {
        let (from, to) = match setting.family.word {
            "ip6" => (format!("{first}1"), last.replace("ffff", "fffe")),
            _ => (first.replace("0.0", "0.1"), last.replace("0.255", "255.254")),
        };
        text = changed(&text, &format!("\"{first}\""), &format!("\"{from}\""));
        text = changed(&text, &format!("\"{last}\""), &format!("\"{to}\""));
    }
    text
}

fn places(setting: Setting) {
    let mut scene = Scene::new(setting);
    let configuration = |s: &Scene| std::fs::read_to_string(s.left.path("vpnd.toml"));
    scene.left.use_store();
    if setting.plane == Plane::Xfrm {
        scene.left.configure("[tunnel.site_lan]\ndataplane = \"auto\"\n");
    }
    let configured = configuration(&scene).expect("readable");
    scene.right.start();
    scene.left.start();
    let sample = setting.policy(0);
    let put = |s: &mut Scene, policy: &str| {
        s.left.write_policy(policy);
        let path = s.left.path("policy.xml").display().to_string();
        s.left.ctl_ok(&["policy", "put", "--force", &path]);
    };
    let activate = |s: &mut Scene| drop(s.left.ctl_ok(&["activate", "site_lan"]));
    put(&mut scene, &sample);
    scene.quietly("activate", activate);
    scene.passes();
    scene.quietly("it is put again", |s| put(s, &sample));
    scene.quietly("another tunnel is put", |s| put(s, &with_host(setting, &sample, true)));
    scene.quietly("and deleted", |s| {
        s.left.ctl_ok(&["policy", "delete", "--type", "IPSecTunnel", "--name", "host_lan"]);
    });
    scene.quietly("a crash", |s| s.left.crash());
    scene.quietly("a start from the store", |s| s.left.start());
    scene.quietly("activate", activate);

    // The kernel does not take the larger ones.
    for (what, policy) in [("larger ranges", wide(setting, &sample)), ("the former ones", sample)] {
        scene.quietly(what, |s| put(s, &policy));
        scene.quietly(what, activate);
        scene.passes();
    }

    let with = |s: &mut Scene, rule: &str| {
        let text = format!("{configured}[[filter.rule]]\naction = \"bypass\"\n{rule}\n");
        std::fs::write(s.left.path("vpnd.toml"), text).expect("writable");
        s.left.ctl_ok(&["reload"]);
    };
    scene.quietly("a bypass of other traffic", |s| with(s, "protocol = \"tcp\"\nlocal_port = 22"));
    scene.leaks("a bypass of this traffic", |s| with(s, "protocol = \"udp\"\nremote_port = 4567"));
    with(&mut scene, "protocol = \"tcp\"\nlocal_port = 22");
    scene.quietly("no such bypass any more", |_| {});
    scene.passes_again("after all");
}

fn restarts(setting: Setting) {
    let mut scene = Scene::new(setting);
    scene.start();
    scene.left.ctl_ok(&["activate", "site"]);
    scene.quietly("a crash", |s| s.left.crash());
    scene.quietly("the start after it", |s| s.left.start());
    scene.quietly("activate", |s| drop(s.left.ctl_ok(&["activate", "site"])));
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
        s.left.write_policy(&s.setting.policy(0));
    });
    drop(taken);
    scene.quietly("the start that succeeds", |s| s.left.start());
    for _ in 0..3 {
        scene.quietly("a crash and a start", |s| {
            s.left.crash();
            s.left.start();
        });
    }
    scene.left.ctl_ok(&["activate", "site"]);
    scene.passes();
}

fn with_port(address: &str, port: u16) -> String {
    SocketAddr::new(address.parse().expect("an address"), port).to_string()
}

/// NAT rules of the host change the source of the tunnel's traffic.
fn translations(setting: Setting) {
    let mut scene = Scene::new(setting);
    scene.start();
    scene.left.ctl_ok(&["activate", "site"]);
    scene.passes();
    let family = setting.family.word;
    let ports = "meta l4proto { tcp, udp }";
    for rule in [
        "oifname wire masquerade".to_owned(),
        "masquerade".to_owned(),
        format!("{ports} snat {family} to {}", setting.family.outer[0]),
    ] {
        for line in [
            "add table inet nat".to_owned(),
            "add chain inet nat post { type nat hook postrouting priority 100 ; }".to_owned(),
            format!("add rule inet nat post {rule}"),
        ] {
            scene.quietly(&rule, |s| drop(s.left.space.sh(&format!("nft {line}"))));
        }
        scene.quietly("deactivate", |s| drop(s.left.ctl_ok(&["deactivate", "site"])));
        scene.quietly("activate", |s| drop(s.left.ctl_ok(&["activate", "site"])));
        scene.quietly("a crash", |s| s.left.crash());
        scene.quietly("a start", |s| s.left.start());
        scene.quietly("activate", |s| drop(s.left.ctl_ok(&["activate", "site"])));
        scene.quietly("without the rule", |s| drop(s.left.space.sh("nft delete table inet nat")));
    }
}

/// The ports of IKE and DHCP, which a user may have where the host allows it: source and destination.
fn ports(setting: Setting) -> Vec<[u16; 2]> {
    let dhcp = match setting.family.word {
        "ip6" => [[546, 547], [547, 547], [547, 546]],
        _ => [[68, 67], [67, 67], [67, 68]],
    };
    let natt = match setting.plane {
        Plane::Userspace => Some([4500, 4567]),
        // The kernel's own ESP in UDP cannot be told from it.
        Plane::Xfrm => None,
    };
    [[500, 4567]].into_iter().chain(dhcp).chain(natt).collect()
}

/// A user sends datagrams from one port of the left gateway to another one behind the right gateway.
fn by_user(scene: &Scene, user: u32, [from_port, to_port]: [u16; 2]) {
    let [from, to] = scene.setting.family.inner;
    let (from, to) = (with_port(from, from_port), with_port(to, to_port));
    scene.left.space.run(move || {
        let before = setfsuid(Uid::from_raw(user));
        let socket = UdpSocket::bind(from).expect("nobody has the port");
        for _ in 0..9 {
            let _ = socket.send_to(b"secret", &to);
        }
        drop(socket);
        setfsuid(before);
    });
}

/// Reports of multicast groups go to one host, from the gateway itself and through it.
fn reports_to_one_host(scene: &Scene) {
    let Family { inner: [own, to], lan: [host, _], word, .. } = scene.setting.family;
    let (protocol, kinds): (_, &[u8]) = match word {
        "ip6" => (58, &[130, 131, 132, 143]),
        _ => (2, &[0x11, 0x16, 0x17, 0x22]),
    };
    for (space, from, hops) in [(&scene.left.space, own, 1), (&scene.lan, host, 2)] {
        let [from, to] = [from, to].map(|a| a.parse::<IpAddr>().expect("an address"));
        space.run(move || {
            let to = SockAddr::from(SocketAddr::new(to, 0));
            let socket = Socket::new(to.domain(), Type::RAW, Some(Protocol::from(protocol)));
            let socket = socket.expect("as root");
            socket.bind(&SocketAddr::new(from, 0).into()).expect("its address");
            match to.is_ipv6() {
                true => socket.set_unicast_hops_v6(hops),
                false => socket.set_ttl_v4(hops),
            }
            .expect("a socket takes it");
            for kind in kinds.iter().flat_map(|kind| [kind; 3]) {
                // The kernel calculates the checksum of ICMPv6.
                let _ = socket.send_to(&[&[*kind][..], b"_secret"].concat(), &to);
            }
        });
    }
}

/// Packets that pass the guard for what they look like.
fn exceptions(setting: Setting) {
    let mut scene = Scene::new(setting);
    // As in a container.
    scene.left.space.set("ipv4/ip_unprivileged_port_start", "0");
    let policy = scene.left.path("policy.xml").display().to_string();
    scene.vpnd_ok(&["guard", "--policy", &policy]);
    for ports in ports(setting) {
        let what = format!("another user, from port {} to {}", ports[0], ports[1]);
        scene.quietly(&what, |s| by_user(s, 65_534, ports));
    }
    scene.quietly("reports of groups to one host", |s| reports_to_one_host(s));
    // Beside the held table, while the guard is away.
    let watch = GuardWatch::start(&scene.left);
    scene.guarded();
    watch.signal(Signal::SIGSTOP);
    scene.left.space.sh("nft delete table inet vpn_guard_vpn0");
    for ports in ports(setting) {
        let what = format!("beside the held table, another user, {ports:?}");
        scene.quietly(&what, |s| by_user(s, 65_534, ports));
    }
    scene.quietly("beside the held table, reports to one host", |s| reports_to_one_host(s));
    watch.signal(Signal::SIGCONT);
    scene.guarded();
    for ports in ports(setting) {
        scene.leaks(&format!("root, {ports:?}"), |s| by_user(s, 0, ports));
        scene.pause();
    }
    scene.vpnd_ok(&["release"]);
}

/// `vpnd guard` outlives every daemon.
fn held(setting: Setting) {
    let mut scene = Scene::new(setting);
    assert_eq!(scene.guard_state()["in_force"], false);
    let policy = scene.left.path("policy.xml").display().to_string();
    let said = scene.vpnd_ok(&["guard", "--policy", &policy]);
    assert!(said.contains("to release it: vpnd release"), "{said}");
    scene.quietly("guarded before the first start", |_| {});
    let state = scene.guard_state();
    assert_eq!((&state["in_force"], &state["vpnd_runs"]), (&true.into(), &false.into()));
    assert!(state["unprotected_leaving"].as_u64().is_some_and(|n| n > 0), "{state}");
    scene.right.start();
    scene.quietly("the first start", |s| s.left.start());
    scene.quietly("activate", |s| drop(s.left.ctl_ok(&["activate", "site"])));
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

fn blocked(setting: Setting) {
    let mut scene = Scene::new(setting);
    scene.start();
    scene.left.ctl_ok(&["activate", "site"]);
    scene.quietly("a stop that keeps the guard", |s| {
        let said = s.left.ctl_ok(&["stop", "--keep-guard"]);
        assert!(said.contains("stays blocked; to release it: vpnd release"), "{said}");
        s.left.wait();
    });
    let said = scene.vpnd_ok(&["guard", "--show"]);
    assert!(said.contains("a vpnd that has ended left its guard"), "{said}");
    scene.quietly("the start after it", |s| s.left.start());
    scene.left.ctl_ok(&["activate", "site"]);
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

fn disturbances(setting: Setting) {
    match setting.plane {
        Plane::Userspace => disturbances_of_userspace(setting),
        Plane::Xfrm => disturbances_of_the_kernel(setting),
    }
}

fn disturbances_of_the_kernel(setting: Setting) {
    let mut scene = Scene::new(setting);
    scene.start();
    scene.left.ctl_ok(&["activate", "site"]);
    scene.passes();
    let address = format!("{}/{} dev lo", setting.family.inner[0], setting.family.lengths[0]);
    let run = |line: String| move |s: &mut Scene| drop(s.left.space.try_sh(&line));
    for line in ["ip xfrm policy flush", "ip xfrm state flush"] {
        scene.comes_back(line, run(line.to_owned()));
    }
    scene.quietly("the address goes", run(format!("ip address del {address}")));
    scene.comes_back("the address comes", run(format!("ip address add {address}")));
    scene.quietly("policies go while the daemon is stopped", |s| {
        s.left.signal(Signal::SIGSTOP);
        s.left.space.ip("xfrm policy flush");
        s.pause();
        s.left.signal(Signal::SIGCONT);
    });
    scene.passes_again("after that");
    for line in ["nft delete table inet vpn_guard_vpn0", "nft flush ruleset"] {
        scene.comes_back(line, run(line.to_owned()));
    }
}

/// Another program flushes nftables and the rest at once: nothing that it can remove holds the traffic until it is put
/// back.
fn everything(setting: Setting) {
    let mut scene = Scene::new(setting);
    scene.start();
    scene.left.ctl_ok(&["activate", "site"]);
    scene.passes();
    let flush_rest = |s: &Scene| match setting.plane {
        Plane::Userspace => {
            let option = s.option();
            s.left.space.try_sh(&format!("ip {option} rule flush"));
            s.left.space.try_sh(&format!("ip {option} rule add lookup main priority 32766"));
            s.left.space.try_sh(&format!("ip {option} route flush table 4500"));
        }
        Plane::Xfrm => {
            s.left.space.ip("xfrm policy flush");
            s.left.space.ip("xfrm state flush");
        }
    };
    let flush = |s: &Scene| {
        s.left.space.sh("nft flush ruleset");
        flush_rest(s);
    };
    for _ in 0..3 {
        scene.comes_back("all of it is flushed", |s| flush(s));
    }
    scene.comes_back("all of it is flushed again and again", |s| {
        for turn in 0..40 {
            s.left.space.sh("nft flush ruleset");
            s.left.space.try_sh("nft delete table inet vpn_guard_vpn0");
            if turn % 8 == 0 {
                flush_rest(s);
            }
        }
    });
    scene.settled();
    scene.held();
    scene.quietly("the process with the held table is killed", |s| s.end_owner());
    scene.held();
    scene.quietly("all of it is flushed while the daemon is stopped", |s| {
        s.left.signal(Signal::SIGSTOP);
        // A script that the helper had begun may still put the table back, once.
        let flushed = || {
            flush(s);
            (s.guard_state()["in_force"] == false).then_some(())
        };
        until("the guard stays away", flushed, || s.left.log());
        let dropped = |s: &Scene| {
            let state = s.guard_state();
            assert_eq!(state["in_force"], false);
            state["unprotected_leaving"].as_u64().expect("a number")
        };
        let before = dropped(s);
        s.pause();
        assert!(dropped(s) > before, "the held table counts on");
        s.left.signal(Signal::SIGCONT);
    });
    scene.settled();
    scene.passes_again("all of it was flushed while the daemon was stopped");

    // While no daemon runs, vpnd guard --watch holds the traffic.
    let mut watch = GuardWatch::start(&scene.left);
    scene.quietly("a stop", |s| s.left.stop());
    scene.guarded();
    scene.quietly("nftables is flushed while no daemon runs", |s| {
        for _ in 0..40 {
            s.left.space.sh("nft flush ruleset");
        }
    });
    scene.guarded();
    scene.quietly("nftables is flushed while the watch is stopped", |s| {
        watch.signal(Signal::SIGSTOP);
        s.left.space.sh("nft flush ruleset");
        s.pause();
        watch.signal(Signal::SIGCONT);
    });
    scene.guarded();
    scene.quietly("the process with the table of the watch is killed", |s| s.end_owner());
    scene.guarded();
    scene.quietly("a start", |s| s.left.start());
    scene.left.ctl_ok(&["activate", "site"]);
    scene.passes();
    scene.comes_back("all of it is flushed beside the watch", |s| flush(s));
    scene.quietly("a crash", |s| s.left.crash());
    scene.guarded();
    scene.quietly("nftables is flushed after a crash", |s| {
        drop(s.left.space.sh("nft flush ruleset"))
    });
    let said = scene.vpnd_ok(&["release"]);
    assert!(said.starts_with("released: "), "{said}");
    scene.passes_in_the_clear();
    assert!(watch.wait().success());
}

/// The scenes can see a leak: each protection is removed while the daemon cannot put it back.
fn planted(setting: Setting) {
    let mut scene = Scene::new(setting);
    scene.start();
    scene.left.ctl_ok(&["activate", "site"]);
    scene.passes();
    scene.left.signal(Signal::SIGSTOP);
    let option = scene.option();
    let steps = match setting.plane {
        Plane::Userspace => vec![
            "ip OPTION rule flush",
            "ip OPTION rule add from all lookup main priority 32766",
            "ip OPTION route flush table 4500",
        ],
        Plane::Xfrm => vec!["ip xfrm policy flush", "ip xfrm state flush"],
    };
    for step in steps {
        let line = step.replace("OPTION", option);
        scene.quietly("the guard holds without the rest", |s| drop(s.left.space.sh(&line)));
    }
    scene.quietly("the held table holds without the guard", |s| {
        drop(s.left.space.sh("nft delete table inet vpn_guard_vpn0"));
    });
    scene.leaks("without the process that has the held table", |s| s.end_owner());
    scene.left.signal(Signal::SIGCONT);
    scene.settled();
    scene.held();
    scene.quietly("all of it is put back", |_| {});
    scene.passes_again("all of it is put back");
}

fn disturbances_of_userspace(setting: Setting) {
    let mut scene = Scene::new(setting);
    scene.start();
    scene.left.ctl_ok(&["activate", "site"]);
    let option = scene.option();
    let address = format!("{}/{} dev lo", setting.family.inner[0], setting.family.lengths[0]);
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
    // A device that fails twice in a second stays away for a moment, and takes no rules.
    scene.quietly("the device is deleted twice, and the policy is reloaded", |s| {
        for name in ["other_lan", "site_lan"] {
            s.left.space.try_sh("ip link del vpn0");
            let back = || s.left.space.try_sh("ip link show vpn0").0.then_some(());
            until("the device is back", back, || s.left.log());
            s.left.space.try_sh("ip link del vpn0");
            s.left.write_policy(&s.setting.policy(0).replace("site_lan", name));
            s.left.ctl_ok(&["reload"]);
        }
    });
    scene.settled();
    scene.left.ctl_ok(&["activate", "site"]);
    scene.passes_again("after the reload");
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
        // The daemon would be faster and have the name again.
        s.left.signal(Signal::SIGSTOP);
        s.left.space.ip("link del vpn0");
        s.left.space.ip("link add vpn0 type bridge");
        s.left.signal(Signal::SIGCONT);
        let state = |s: &Scene| s.left.json(&["list", "--json"])[0]["children"][0].clone();
        let blocked = || Some(state(s)).filter(|child| child["state"] == "blocked");
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
