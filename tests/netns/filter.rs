//! Traffic that is no tunnel's: rules before the tunnels, a default behind them, and questions about both.

use libtest_mimic::Trial;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;
use testkit::gateway::{Gateway, PATIENT};
use testkit::{FILTERED, PATIENCE, policies, test, until};

pub fn trials() -> Vec<Trial> {
    vec![
        test("deny lets in tunnels and what has a rule", FILTERED, deny),
        test("deny outlives a crash", FILTERED, deny_outlives_a_crash),
        test("a bypass leads past the tunnel", FILTERED, bypass),
        test("a reload puts another filter in force", FILTERED, reload),
    ]
}

const DENY: &str = "[filter]\nipv4 = \"deny\"\nipv6 = \"deny\"\n\
                    [[filter.rule]]\nname = \"control\"\naction = \"bypass\"\nprotocol = \"tcp\"\nlocal_port = 2222\n";

/// The two gateways, the right one with this filter.
fn two(left: &str, right: &str) -> [Gateway; 2] {
    let policies = policies::site();
    let gateways = [("left", 0, left), ("right", 1, right)]
        .map(|(name, end, filter)| Gateway::new(name, &policies[end], PATIENT, filter));
    let [here, there] = &gateways;
    let ends = [["192.0.2.1/24", "2001:db8::1/64"], ["192.0.2.2/24", "2001:db8::2/64"]];
    testkit::space::Space::connect(
        (&here.space, "wire", &ends[0]),
        (&there.space, "wire", &ends[1]),
    );
    here.space.ip("address add 10.1.0.1/32 dev lo");
    there.space.ip("address add 10.2.0.1/32 dev lo");
    there.space.ip("address add 10.2.0.9/32 dev lo");
    gateways
}

/// A test's expectation of packets. Packets that pass may take their time; for packets that do not, a moment is waited.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Passes,
    Dropped,
}

impl Expect {
    fn wait(self) -> Duration {
        match self {
            Self::Passes => PATIENCE,
            Self::Dropped => Duration::from_millis(300),
        }
    }
}

fn is_reachable(from: &Gateway, address: &str) -> bool {
    pinged(from, address, Expect::Passes)
}

fn is_closed(from: &Gateway, address: &str) -> bool {
    !pinged(from, address, Expect::Dropped)
}

fn pinged(from: &Gateway, address: &str, expect: Expect) -> bool {
    let wait = expect.wait().as_secs_f64();
    from.space.try_sh(&format!("ping -q -c 1 -W {wait} {address}")).0
}

/// Whether a TCP connection is made to a listener at the right gateway, and its end comes through.
fn connects(left: &Gateway, right: &Gateway, port: u16, expect: Expect) -> bool {
    let to = SocketAddr::from(([192, 0, 2, 2], port));
    let listener = right.space.run(move || TcpListener::bind(to)).expect("a free port");
    let stream = left.space.run(move || TcpStream::connect_timeout(&to, expect.wait()));
    let Ok(mut stream) = stream else { return false };
    drop(listener.accept().expect("it has connected"));
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes it");
    stream.read(&mut [0]).expect("the end comes through") == 0
}

fn echoes(left: &Gateway, right: &Gateway, to: Ipv4Addr, expect: Expect) -> bool {
    let near = left.space.run(|| UdpSocket::bind((Ipv4Addr::new(10, 1, 0, 1), 0)));
    let far = right.space.run(move || UdpSocket::bind((to, 0))).expect("an address");
    let near = near.expect("an address");
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(expect.wait())).expect("a socket takes it");
    }
    let mut octet = [0];
    near.send_to(&[1], far.local_addr().expect("bound")).expect("a route");
    let Ok((_, from)) = far.recv_from(&mut octet) else { return false };
    far.send_to(&[2], from).expect("a route");
    near.recv_from(&mut octet).is_ok()
}

fn deny() {
    let [mut left, mut right] = two("", DENY);
    let untouched = right.space.state();
    assert!(is_reachable(&left, "192.0.2.2") && is_reachable(&left, "2001:db8::2"));
    left.start();
    right.start();
    right.await_log(&["\"level\":\"WARN\"", "ssh", "vpnctl filter --ipv4 permit --ipv6 permit"]);
    assert!(is_closed(&left, "192.0.2.2") && is_closed(&left, "2001:db8::2"));
    assert!(is_closed(&right, "192.0.2.1"), "nor does it send");
    assert!(is_reachable(&right, "127.0.0.1"));
    assert!(
        connects(&left, &right, 2222, Expect::Passes)
            && !connects(&left, &right, 2223, Expect::Dropped)
    );
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    assert!(echoes(&left, &right, Ipv4Addr::new(10, 2, 0, 1), Expect::Passes), "the tunnel passes");
    left.ctl_ok(&["rekey", "site_lan"]);

    let status = right.json(&["status", "--json"]);
    let filter = &status["filter"];
    assert_eq!((&filter["ipv4"], &filter["inbound_guard"]), (&"deny".into(), &true.into()));
    let count = |value: &serde_json::Value| value["packets"].as_u64().expect("a number");
    assert!(count(&filter["denied_ipv4"]) >= 3 && count(&filter["denied_ipv6"]) >= 1, "{filter}");
    assert!(count(&filter["rules"][0]["decided"]) >= 4, "{filter}");
    assert_eq!((&status["tunnels"]["up"], &status["children"]["up"]), (&1.into(), &1.into()));

    let told = |text: &str| right.ctl_ok(&["trace", text]);
    let ping = told("icmp 192.0.2.1 192.0.2.2 echo-request");
    assert!(
        ping.contains("arriving  dropped: no rule and no tunnel covers it, and IPv4 is denied")
    );
    let control = told("tcp 192.0.2.1:5 192.0.2.2:2222");
    assert!(control.contains("arriving  passes in the clear by rule 1 (control)"), "{control}");
    let sa = right.child_sa("site_lan");
    // The responder of a rekey sends on the old SA until the initiator deletes it.
    let inner = || {
        let inner = right.json(&["trace", "tcp", "10.2.0.1:5", "10.1.0.1:6", "--json"]);
        assert_eq!(inner["leaving"]["verdict"], "protected");
        (inner["leaving"]["sas"][0]["spi"] == sa["outbound_spi"]).then_some(())
    };
    until("the new SA in use", inner, || right.log());
    let back = right.json(&["trace", "tcp", "10.1.0.1:6", "10.2.0.1:5", "--json"]);
    let accepted = back["arriving"]["sas"].as_array().expect("a list");
    assert!(accepted.iter().any(|found| found["spi"] == sa["inbound_spi"]), "{back}");

    // At run time, and back.
    let open = right.ctl_ok(&["filter", "--ipv4", "permit"]);
    assert!(open.contains("other IPv4  permit"), "{open}");
    assert!(is_reachable(&left, "192.0.2.2") && is_closed(&left, "2001:db8::2"));
    right.ctl_ok(&["filter", "--ipv4", "deny"]);
    assert!(is_closed(&left, "192.0.2.2"));
    let counted = right.json(&["filter", "--json"]);
    assert!(count(&counted["rules"][0]["decided"]) >= 4, "what was counted stays: {counted}");
    left.stop();
    right.stop();
    right.space.is_as_before(&untouched);
    assert!(is_reachable(&left, "192.0.2.2"));
}

fn deny_outlives_a_crash() {
    let [left, mut right] = two("", DENY);
    let untouched = right.space.state();
    right.start();
    right.crash();
    assert!(is_closed(&left, "192.0.2.2"), "closed while nobody runs");

    // A start that fails opens nothing, either.
    let port = right.space.run(|| UdpSocket::bind("0.0.0.0:4500")).expect("a free port");
    let mut command = right.command();
    let failed = right.space.run(move || command.output()).expect("vpnd is built");
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    drop(port);
    assert!(is_closed(&left, "192.0.2.2"), "closed after a failed start");

    right.start();
    assert!(is_closed(&left, "192.0.2.2"));
    right.crash();
    // An operator who starts it without the filter wants it open.
    let text = std::fs::read_to_string(right.path("vpnd.toml")).expect("it is there");
    let (rest, _) = text.split_once("[filter]").expect("it has one");
    std::fs::write(right.path("vpnd.toml"), rest).expect("writable");
    right.start();
    assert!(is_reachable(&left, "192.0.2.2"));
    right.stop();
    right.space.is_as_before(&untouched);
}

fn bypass() {
    let left_rule =
        "[[filter.rule]]\naction = \"bypass\"\nremote = \"10.2.0.9\"\nprotocol = \"udp\"\n";
    let right_rule =
        "[[filter.rule]]\naction = \"bypass\"\nlocal = \"10.2.0.9\"\nprotocol = \"udp\"\n";
    let [mut left, mut right] = two(left_rule, right_rule);
    left.space.ip("route add 10.2.0.0/24 via 192.0.2.2");
    right.space.ip("route add 10.1.0.0/24 via 192.0.2.1");
    let untouched = left.space.state();
    left.start();
    right.start();
    let (bypassed, protected) = (Ipv4Addr::new(10, 2, 0, 9), Ipv4Addr::new(10, 2, 0, 1));
    assert!(echoes(&left, &right, bypassed, Expect::Passes), "no tunnel is needed");
    assert!(!echoes(&left, &right, protected, Expect::Dropped));
    left.ctl_ok(&["activate"]);
    assert!(
        echoes(&left, &right, bypassed, Expect::Passes)
            && echoes(&left, &right, protected, Expect::Passes)
    );
    let sa = left.child_sa("site_lan");
    assert_eq!((&sa["packets_out"], &sa["packets_in"]), (&1.into(), &1.into()), "{sa}");
    // Both ways at both ends.
    for gateway in [&left, &right] {
        let filter = gateway.json(&["filter", "--json"]);
        assert_eq!(filter["rules"][0]["decided"]["packets"], 4, "{filter}");
    }
    // The rule names a protocol: others take the tunnel.
    left.space.echoes("-I 10.1.0.1", 1, "10.2.0.9").expect("an echo");
    assert_eq!(left.child_sa("site_lan")["packets_out"], 2);
    let told = left.ctl_ok(&["trace", "udp", "10.1.0.1:1", "10.2.0.9:2"]);
    assert!(told.contains("leaving   passes in the clear by rule 1 of the filter"), "{told}");
    assert!(told.contains("covered as well, and not asked: tunnel site_lan"), "{told}");
    left.stop();
    left.space.is_as_before(&untouched);
}

fn reload() {
    let [left, mut right] = two("", DENY);
    right.start();
    let text = std::fs::read_to_string(right.path("vpnd.toml")).expect("it is there");
    let write = |text: &str| std::fs::write(right.path("vpnd.toml"), text).expect("writable");
    let same = right.ctl_ok(&["reload", "--dry-run"]);
    assert!(same.contains("would change nothing"), "{same}");

    write(&text.replace("local_port = 2222", "local_port = 99999"));
    let refused = right.ctl_fails(&["reload"], 1);
    assert!(refused.contains("vpnd.toml: TOML parse error at line"), "{refused}");
    assert!(is_closed(&left, "192.0.2.2"));

    let ping = "[[filter.rule]]\naction = \"bypass\"\nprotocol = \"icmp\"\n";
    write(&text.replace("ipv6 = \"deny\"\n", &format!("ipv6 = \"permit\"\n{ping}")));
    let told = right.ctl_ok(&["reload", "--dry-run"]);
    for part in [
        "a reload would change this",
        "filter: changed IPv6 that nothing covers: deny, now permit",
        "filter: added rule 1: bypass 0.0.0.0/0[icmp] <> 0.0.0.0/0[icmp]",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(is_closed(&left, "192.0.2.2") && is_closed(&left, "2001:db8::2"));
    right.ctl_ok(&["reload"]);
    assert!(is_reachable(&left, "192.0.2.2") && is_reachable(&left, "2001:db8::2"));
    assert!(
        connects(&left, &right, 2222, Expect::Passes)
            && !connects(&left, &right, 2223, Expect::Dropped)
    );

    write(&format!(
        "{}\n[log]\nlevel = \"debug\"\n",
        text.replace("[esp]", "[esp]\nreplay_window = 64")
    ));
    let warned = String::from_utf8(right.ctl(&["reload"]).stderr).expect("text");
    let settings = "restart vpnd for the other changes there: esp.replay_window";
    assert!(warned.contains(settings), "{warned}");
    right.stop();
}
