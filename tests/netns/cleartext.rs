//! The scenes of `scenes::leaks` on the userspace plane, and cleartext that arrives.

use host::bind_patiently;
use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use nix::unistd::{Uid, setfsuid};
use scenes::leaks::{MANY, PLAYS, Plane, Setting, V4, V6};
use std::net::UdpSocket;
use testkit::gateway::{Gateway, PATIENT};
use testkit::policies::{changed, site};
use testkit::space::Space;
use testkit::{FILTERED, Need, eventually, test};

pub fn trials() -> Vec<Trial> {
    let userspace = |family, others| Setting { family, plane: Plane::Userspace, others };
    let mut trials = vec![
        test("cleartext that should be protected is not taken", FILTERED, inbound),
        test("a packet that the guard drops is told with its tunnel", FILTERED, named),
        test("groups, DHCP and IKE pass beside a tunnel for all addresses", FILTERED, passing),
        test("a socket whose address is removed sends nothing", FILTERED, removed),
    ];
    for (name, play) in PLAYS {
        let mut settings = vec![("IPv4", userspace(V4, 0)), ("IPv6", userspace(V6, 0))];
        if MANY.contains(&name) {
            settings.push(("500 tunnels", userspace(V4, 499)));
        }
        trials.extend(settings.into_iter().map(|(which, setting)| {
            let title = format!("{name}, {which}");
            let is_at_night = AT_NIGHT.contains(&title.as_str());
            test(&title, SCENES, move || play(setting)).with_ignored_flag(is_at_night)
        }));
    }
    trials
}

/// The scenes need these; one of the scenes compiles a library.
const SCENES: &[Need] = &[Need::All(FILTERED), Need::Program("cc")];

/// The longest of them. `.ci/nightly` plays them.
const AT_NIGHT: [&str; 2] = [
    "nothing leaks while calls to the host fail, IPv6",
    "nothing leaks in random sequences, 500 tunnels",
];

/// A program sends past the tunnel's route.
fn named() {
    let [mut left, mut right] = Gateway::pair(&site(), [1, 2], PATIENT);
    left.space.ip("address add 10.1.0.1/32 dev lo");
    left.space.ip("route add default via 192.0.2.2");
    right.space.ip("address add 10.2.0.1/32 dev lo");
    left.start();
    right.start();
    left.ctl_ok(&["activate", "site"]);
    let sender = left.space.run(|| {
        let socket = UdpSocket::bind(("10.1.0.1", 0)).expect("its address");
        socket2::SockRef::from(&socket).bind_device(Some(b"wire")).expect("as root");
        socket
    });
    assert!(sender.send_to(b"secret", "10.2.0.1:4567").is_err(), "the guard drops it");
    let packet = format!("udp {} 10.2.0.1:4567", sender.local_addr().expect("it is bound"));
    let told = left.await_log(&["about to leave in the clear", &packet]);
    assert!(told.contains("site_lan"), "{told}");
    let why = left.ctl(&["why", "site_lan"]).stdout;
    let why = String::from_utf8_lossy(&why);
    assert!(why.contains("about to leave in the clear") && why.contains(&packet), "{why}");
    let trace = left.ctl_ok(&[&["trace"], &packet.split(' ').collect::<Vec<_>>()[..]].concat());
    assert!(trace.contains("site_lan"), "{trace}");
}

/// With a tunnel for all addresses, the guard claims all that this host sends.
fn passing() {
    for family in [V4, V6] {
        let setting = Setting { family, plane: Plane::Userspace, others: 0 };
        let [from, to] = family.ranges[1].map(|address| format!("\"{address}\""));
        let all = match family.word {
            "ip6" => ["\"::\"", "\"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff\""],
            _ => ["\"0.0.0.0\"", "\"255.255.255.255\""],
        };
        let policy = changed(&changed(&setting.policy(0), &from, all[0]), &to, all[1]);
        let left = Gateway::new("left", &policy, PATIENT, "");
        let peer = Space::new("peer");
        Space::connect(
            (&left.space, "wire", &["192.0.2.1/24"]),
            (&peer, "wire", &["192.0.2.2/24"]),
        );
        left.space.set("ipv4/ip_unprivileged_port_start", "0");
        left.space.ip("address add 2001:db8::1/64 dev wire nodad");
        peer.ip("address add 2001:db8::2/64 dev wire nodad");
        left.space.ip("address add fe80::1/64 dev wire nodad");
        left.space.ip("route add default via 192.0.2.2");
        let of_v4 = [
            ("reports", "ip daddr 224.0.0.22 meta l4proto 2"),
            ("asking", "ip daddr 255.255.255.255 udp dport 67"),
            ("renewing", "ip daddr 192.0.2.2 udp dport 67"),
            ("ike", "ip daddr 192.0.2.2 udp sport 500"),
        ];
        let of_v6 = [
            ("reports", "ip6 daddr ff02::16 icmpv6 type 143"),
            ("asking", "ip6 daddr ff02::1:2 udp dport 547"),
            ("renewing", "ip6 daddr 2001:db8::2 udp dport 547"),
            ("ike", "ip6 daddr 2001:db8::2 udp sport 500"),
        ];
        let is_ipv6 = family.word == "ip6";
        let kinds = if is_ipv6 { of_v6 } else { of_v4 };
        peer.sh("nft add table inet seen");
        peer.sh("nft add chain inet seen c { type filter hook prerouting priority -400 ; }");
        for (name, packets) in kinds {
            peer.sh(&format!("nft add counter inet seen {name}"));
            peer.sh(&format!("nft add rule inet seen c {packets} counter name {name}"));
        }
        let state = left.path("policy.xml").display().to_string();
        let output = left.vpnd(&["guard", "--policy", &state]);
        assert!(output.status.success(), "{output:?}");
        let [all_servers, server, client] = match is_ipv6 {
            true => ["[ff02::1:2]:547", "[2001:db8::2]:547", "[2001:db8::1]:546"],
            false => ["255.255.255.255:67", "192.0.2.2:67", "192.0.2.1:68"],
        };
        left.space.run(move || {
            let before = setfsuid(Uid::from_raw(65_534));
            let any = if is_ipv6 { "[::]:546" } else { "0.0.0.0:68" };
            let socket = UdpSocket::bind(any).expect("the port is free");
            socket.set_broadcast(true).expect("a socket takes it");
            socket2::SockRef::from(&socket).bind_device(Some(b"wire")).expect("as root");
            socket.send_to(b"which", all_servers).expect("it may");
            match is_ipv6 {
                true => socket.join_multicast_v6(&"ff05::4567".parse().expect("one"), 0),
                false => {
                    let (group, own) = ("239.1.2.3", "192.0.2.1");
                    let [group, own] = [group, own].map(|a| a.parse().expect("an address"));
                    socket.join_multicast_v4(&group, &own)
                }
            }
            .expect("a group");
            assert!(socket.send_to(b"mine", server).is_err(), "the guard drops it");
            drop(socket);
            setfsuid(before);
            // A program that another test starts may have a copy of the former socket for a moment.
            let socket = bind_patiently(|| UdpSocket::bind(client)).expect("the port is free");
            socket.send_to(b"mine", server).expect("root may");
            let socket = UdpSocket::bind(if is_ipv6 { "[::]:500" } else { "0.0.0.0:500" });
            let to = server.replace(":547", ":500").replace(":67", ":500");
            socket.expect("the port is free").send_to(b"ike", to).expect("root may");
        });
        for (name, _) in kinds {
            let count = || {
                let text = peer.sh(&format!("nft list counter inet seen {name}"));
                (!text.contains("packets 0 ")).then_some(text)
            };
            let text = eventually(&format!("{}: {name}", family.word), count);
            assert!(name != "renewing" || text.contains("packets 1 "), "{text}");
        }
    }
}

/// An IPv6 socket keeps sending from its address after the host has lost it.
fn removed() {
    let setting = Setting { family: V6, plane: Plane::Userspace, others: 0 };
    let mut left = Gateway::new("left", &setting.policy(0), PATIENT, "");
    let peer = Space::new("peer");
    Space::connect((&left.space, "wire", &["192.0.2.1/24"]), (&peer, "wire", &["192.0.2.2/24"]));
    left.space.ip("address add 2001:db8::3/64 dev wire nodad");
    peer.ip("address add 2001:db8::2/64 dev wire nodad");
    peer.ip("address add fd02::1/128 dev lo nodad");
    left.space.ip("-6 route add default via 2001:db8::2");
    let [sender, device] = [false, true].map(|to_device| {
        left.space.run(move || {
            let socket = UdpSocket::bind("[2001:db8::3]:0").expect("its address");
            if to_device {
                socket2::SockRef::from(&socket).bind_device(Some(b"wire")).expect("as root");
            }
            socket
        })
    });
    let receiver = peer.run(|| UdpSocket::bind("[fd02::1]:4567").expect("its address"));
    let sends = |socket: &UdpSocket| socket.send_to(b"secret", "[fd02::1]:4567").is_ok();
    left.space.ip("address del 2001:db8::3/64 dev wire");
    receiver.set_nonblocking(true).expect("a socket takes it");
    eventually("a datagram without the address", || {
        sends(&sender);
        receiver.recv(&mut [0; 6]).ok()
    });
    left.start();
    assert!(!sends(&device), "the guard drops it");
    // Without the guard and its routes, the held table does.
    left.signal(Signal::SIGSTOP);
    left.space.sh("nft delete table inet vpn_guard_vpn0");
    left.space.sh("ip -6 rule flush");
    left.space.sh("ip -6 rule add from all lookup main priority 32766");
    for socket in [&sender, &device] {
        assert!(!sends(socket), "the held table drops it");
    }
    left.signal(Signal::SIGCONT);
}

fn inbound() {
    let [_left, mut right] = Gateway::pair(&site(), [1, 2], PATIENT);
    right.space.ip("address add 10.2.0.1/32 dev lo");
    right.start();
    let wire = right
        .space
        .run(|| UdpSocket::bind(("10.2.0.1", 4567)).expect("an address of the namespace"));
    // Strict filtering of reverse paths would drop it, too.
    right.space.set("ipv4/conf/all/rp_filter", "0");
    right.space.set("ipv4/conf/wire/rp_filter", "0");
    // Past the left gateway's own guard: a namespace that has no daemon.
    let outsider = Space::new("outsider");
    Space::connect(
        (&right.space, "other", &["198.51.100.1/24"]),
        (&outsider, "wire", &["198.51.100.2/24", "10.1.0.77/32"]),
    );
    right.space.set("ipv4/conf/other/rp_filter", "0");
    outsider.ip("route add 10.2.0.0/24 via 198.51.100.1");
    let open = right.space.run(|| UdpSocket::bind(("198.51.100.1", 4567))).expect("free");
    let sender = outsider.run(|| UdpSocket::bind(("10.1.0.77", 0))).expect("its address");
    sender.send_to(b"forged", "10.2.0.1:4567").expect("a route");
    // A later packet on the same link has arrived: the first one has been dropped or taken.
    let plain = outsider.run(|| UdpSocket::bind(("198.51.100.2", 0))).expect("its address");
    plain.send_to(b"plain", "198.51.100.1:4567").expect("a route");
    let mut packet = [0; 16];
    assert_eq!(open.recv(&mut packet).expect("no tunnel has it"), 5);
    wire.set_nonblocking(true).expect("a socket takes it");
    assert!(wire.recv(&mut packet).is_err(), "a packet that should have been protected was taken");
    let status = right.json(&["status", "--json"]);
    assert_eq!(status["filter"]["inbound_guard"], true, "{status}");
}
