//! SAs without IKE: keys by hand, sequence numbers that go on over restarts and crashes.

use crate::harness::gateway::Gateway;
use crate::harness::{GATEWAYS, PATIENCE, test};
use crate::site::two;
use libtest_mimic::Trial;
use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;

pub fn trials() -> Vec<Trial> {
    vec![test("SAs keyed by hand carry traffic, over restarts and crashes", GATEWAYS, by_hand)]
}

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];

/// What one gateway has in its configuration; the key of what leaves the left one is in a file of its own.
fn configure(gateway: &Gateway, left: bool) {
    let file = gateway.path("sa.key");
    write_private(&file, &format!("0x{}\n", "1f".repeat(20)));
    let ledger = gateway.path("lib/sequences");
    let mut text = fs::read_to_string(gateway.path("vpnd.toml")).expect("ours");
    text.push_str(&format!("sequences = {ledger:?}\n"));
    for rightwards in [true, false] {
        let (from, to) = if rightwards { (0, 1) } else { (1, 0) };
        let way = if rightwards == left { "out" } else { "in" };
        let key = match rightwards {
            true => format!("{{ file = {file:?} }}"),
            false => format!("\"0x{}\"", "2e".repeat(20)),
        };
        text.push_str(&format!(
            "[[sa]]\nname = \"by hand\"\ndirection = \"{way}\"\nsource = \"{}\"\ndestination = \"{}\"\nspi = 0x07\n\
             aead = \"rfc4106(gcm(aes))\"\nkey = {key}\nreplay_window = 32\nselector = {{ protocol = \"udp\" }}\n",
            ADDRESSES[from], ADDRESSES[to]
        ));
    }
    write_private(&gateway.path("vpnd.toml"), &text);
}

fn write_private(path: &std::path::Path, text: &str) {
    fs::write(path, text).expect("writable");
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("ours");
}

/// A datagram goes there and back.
fn echoes(left: &Gateway, right: &Gateway) {
    let [near, far] = [(left, 0), (right, 1)].map(|(gateway, end)| {
        let to = SocketAddr::from((ADDRESSES[end], 7007));
        let socket = gateway.space.run(move || UdpSocket::bind(to)).expect("an address");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket takes it");
        socket
    });
    let mut octets = [0; 8];
    near.send_to(b"there", (ADDRESSES[1], 7007)).expect("a route");
    assert_eq!(far.recv_from(&mut octets).expect("it arrives").0, 5);
    far.send_to(b"back", (ADDRESSES[0], 7007)).expect("a route");
    assert_eq!(near.recv_from(&mut octets).expect("it arrives").0, 4);
}

fn sequence(gateway: &Gateway) -> u64 {
    let status = gateway.json(&["status", "--json"]);
    let sas = status["manual_sas"].as_array().expect("a list");
    let out = sas.iter().find(|sa| sa["direction"] == "out").expect("it sends");
    assert_eq!((&out["spi"], &out["mode"]), (&"00000007".into(), &"transport".into()));
    out["sequence"].as_u64().expect("a number")
}

fn by_hand() {
    let [mut left, mut right] = two();
    let untouched = left.space.state();
    configure(&left, true);
    configure(&right, false);
    let watch = right.space.watch("wire");
    left.start();
    right.start();
    left.await_log(&["\"level\":\"WARN\"", "their keys never change"]);
    echoes(&left, &right);
    assert_eq!([&left, &right].map(sequence), [1, 1]);
    let list = left.ctl_ok(&["list"]);
    assert!(list.contains("BY HAND") && list.contains("192.0.2.1[udp]"), "{list}");
    assert!(!list.contains("1f1f") && !left.log().contains("1f1f"), "no key");

    // The peer would refuse what it has seen, and the cipher would be broken by it.
    left.stop();
    left.start();
    echoes(&left, &right);
    assert_eq!(sequence(&left), 2);
    left.crash();
    left.start();
    echoes(&left, &right);
    assert_eq!(sequence(&left), 1 + (1 << 24) + 1, "behind what the ledger had at the last start");
    left.stop();
    right.stop();
    left.space.is_as_before(&untouched);
    watch.nothing_in_the_clear();
}
