//! SAs without IKE: keys by hand, sequence numbers that go on over restarts and crashes.

use crate::site::two;
use libtest_mimic::Trial;
use serde_json::json;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use testkit::gateway::Gateway;
use testkit::{GATEWAYS, PATIENCE, WITH_NFT, datagram, test, until};

pub fn trials() -> Vec<Trial> {
    vec![
        test("SAs keyed by hand carry traffic, over restarts and crashes", WITH_NFT, by_hand),
        test("SAs keyed by hand come and go while vpnd runs", WITH_NFT, at_run_time),
        test("mirrored SAs keyed by hand carry traffic", GATEWAYS, mirrored),
        test("one SPI stands for two local addresses", GATEWAYS, two_addresses),
        test("lines of ip xfrm, as documents print them, carry TCP", GATEWAYS, lines_of_ip),
    ]
}

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];

/// The manual SAs in one gateway's configuration; the key of the SA that leaves the left one is in a file of its own.
fn configure(gateway: &Gateway, left: bool) {
    let file = gateway.path("sa.key");
    write_private(&file, &format!("0x{}\n", "1f".repeat(20)));
    let ledger = gateway.path("lib/sequences");
    let mut text = fs::read_to_string(gateway.path("vpnd.toml")).expect("ours");
    text.push_str(&format!("sequences = {ledger:?}\n"));
    text.push_str(&tables(&file, left));
    write_private(&gateway.path("vpnd.toml"), &text);
}

/// The tables of one end; the key of the SA from left to right is in a file.
fn tables(file: &std::path::Path, left: bool) -> String {
    let mut text = String::new();
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
    text
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
    assert_eq!(datagram(&far, &mut octets), 5);
    far.send_to(b"back", (ADDRESSES[0], 7007)).expect("a route");
    assert_eq!(datagram(&near, &mut octets), 4);
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

/// A datagram to the other end is dropped and counted.
fn is_blocked(left: &Gateway) {
    let from = SocketAddr::from((ADDRESSES[0], 0));
    let socket = left.space.run(move || UdpSocket::bind(from)).expect("an address");
    let dropped = || {
        let counters = left.json(&["counters", "--all", "--json"]);
        let of = |name: &str| counters[name].as_u64().unwrap_or(0);
        of("esp.no_sa") + of("esp.unprotected_leaving")
    };
    let before = dropped();
    // The guard may refuse it at once.
    let _ = socket.send_to(b"blocked", (ADDRESSES[1], 7007));
    until("a drop", || (dropped() > before).then_some(()), || left.ctl_ok(&["counters", "--all"]));
}

/// The guards end a moment after the answer.
fn passes_in_the_clear(left: &Gateway, right: &Gateway) {
    let [near, far] = [(left, 0), (right, 1)].map(|(gateway, end)| {
        let to = SocketAddr::from((ADDRESSES[end], 7007));
        gateway.space.run(move || UdpSocket::bind(to)).expect("an address")
    });
    far.set_nonblocking(true).expect("a socket takes it");
    let arrived = || {
        // Until the guard has gone, it refuses it.
        let _ = near.send_to(b"clear", (ADDRESSES[1], 7007));
        far.recv_from(&mut [0; 8]).ok()
    };
    until("a datagram in the clear", arrived, || right.ctl_ok(&["counters", "--all"]));
}

fn at_run_time() {
    let mut gateways = two();
    let untouched = gateways[0].space.state();
    for (gateway, is_left) in gateways.iter_mut().zip([true, false]) {
        gateway.configure(&format!("sequences = {:?}\n", gateway.path("lib/sequences")));
        write_private(&gateway.path("sa.key"), &format!("0x{}\n", "1f".repeat(20)));
        let text = tables(&gateway.path("sa.key"), is_left);
        write_private(&gateway.path("sas.toml"), &text);
        gateway.start();
    }
    let [mut left, mut right] = gateways;
    let watch = right.space.watch("wire");
    let file = |gateway: &Gateway| gateway.path("sas.toml").to_str().expect("UTF-8").to_owned();
    let add = |gateway: &Gateway| gateway.ctl_ok(&["sa", "add", &file(gateway)]);
    let said = add(&left);
    assert!(said.contains("by hand: out 00000007 added\n"), "{said}");
    assert!(said.contains("gone when vpnd stops; to keep them, put"), "{said}");
    left.await_log(&["\"level\":\"WARN\"", "their keys never change"]);
    add(&right);
    echoes(&left, &right);
    assert_eq!([&left, &right].map(sequence), [1, 1]);
    assert!(left.ctl_ok(&["sa", "list"]).contains("BY HAND"));
    let said = left.ctl_fails(&["sa", "add", &file(&left)], 1);
    assert!(said.contains("\"by hand\" (out) is there already"), "{said}");

    // The peer's window is as it was: a number that is used again would be refused there.
    let said = left.ctl_ok(&["sa", "remove", "by hand", "--keep-blocked"]);
    assert!(said.contains("2 SAs removed; its traffic stays blocked"), "{said}");
    is_blocked(&left);
    let list = left.json(&["sa", "list", "--json"]);
    assert_eq!((&list["sas"], &list["blocked"]), (&json!([]), &json!(["by hand"])));
    add(&left);
    echoes(&left, &right);
    assert_eq!([&left, &right].map(sequence), [2, 2]);

    left.crash();
    left.start();
    assert_eq!(left.json(&["sa", "list", "--json"])["sas"], json!([]), "a restart forgets them");
    let key = format!("\"0x{}\"", "1f".repeat(20));
    let mut inlined = fs::read_to_string(file(&left)).expect("ours");
    inlined = inlined.replace(&format!("{{ file = {:?} }}", left.path("sa.key")), &key);
    left.space.run({
        let path = left.path("inline.toml");
        move || fs::write(path, inlined).expect("writable")
    });
    let open = left.path("inline.toml").to_str().expect("UTF-8").to_owned();
    fs::set_permissions(&open, Permissions::from_mode(0o644)).expect("ours");
    let said = left.ctl_fails(&["sa", "add", &open], 1);
    assert!(said.contains("holds keys of SAs, and others may use it"), "{said}");
    fs::set_permissions(&open, Permissions::from_mode(0o600)).expect("ours");
    left.ctl_ok(&["sa", "add", &open]);
    echoes(&left, &right);
    assert_eq!(sequence(&left), 1 + (1 << 24) + 1, "behind what was on record at the crash");
    for word in ["1f1f1f", "2e2e2e"] {
        assert!(!left.log().contains(word) && !left.ctl_ok(&["sa", "list"]).contains(word));
    }
    watch.nothing_in_the_clear();

    // From here on the operator wants no protection.
    for gateway in [&left, &right] {
        let said = gateway.ctl_ok(&["sa", "remove", "by hand"]);
        assert!(said.contains("takes the host's other routes, in the clear"), "{said}");
    }
    passes_in_the_clear(&left, &right);
    let said = left.ctl_fails(&["sa", "remove", "by hand"], 1);
    assert!(said.contains("no manual SA has the name \"by hand\"; there is none"), "{said}");
    left.stop();
    right.stop();
    left.space.is_as_before(&untouched);
}

/// One end's file is all that is written; the other end gets it from the command.
fn mirrored() {
    let [mut left, mut right] = two();
    configure(&left, true);
    right.configure(&format!("sequences = {:?}\n", right.path("lib/sequences")));
    let [whole, mirror, again] = ["vpnd.toml", "peer.toml", "again.toml"]
        .map(|name| left.path(name).to_str().expect("UTF-8").to_owned());
    let output = left.ctl(&["sa", "mirror", &whole, "--output", &mirror]);
    assert!(output.status.success());
    let remarks = String::from_utf8_lossy(&output.stderr).into_owned();
    let key_file = format!("copy the key file {} to the other end", left.path("sa.key").display());
    assert!(remarks.contains(&key_file), "{remarks}");
    let mode = fs::metadata(&mirror).expect("written").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let said = left.ctl_fails(&["sa", "mirror", &whole, "--output", &mirror], 1);
    assert!(said.contains("cannot write") && said.contains("exists"), "{said}");
    left.ctl_ok(&["sa", "mirror", &mirror, "--output", &again]);
    let [first, second] = [&whole, &again].map(|file| fs::read_to_string(file).expect("ours"));
    assert!(first.ends_with(&second) && second.starts_with("[[sa]]"), "{second}");

    // As a pipe would, without a file at the other end.
    let tables = left.ctl_ok(&["sa", "mirror", &whole, "--with-keys"]);
    write_private(&right.path("sas.toml"), &tables);
    let watch = right.space.watch("wire");
    left.start();
    right.start();
    right.ctl_ok(&["sa", "add", right.path("sas.toml").to_str().expect("UTF-8")]);
    echoes(&left, &right);
    assert_eq!([&left, &right].map(sequence), [1, 1]);
    left.stop();
    right.stop();
    watch.nothing_in_the_clear();
}

/// The right end receives by two SAs with one SPI, each at an address of its own.
fn two_addresses() {
    const SECOND: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 12);
    let [mut left, mut right] = two();
    right.space.ip(&format!("address add {SECOND}/24 dev wire"));
    let table = |name: &str, way: &str, ends: [Ipv4Addr; 2], spi: u32, key: u8| {
        format!(
            "[[sa]]\nname = \"{name}\"\ndirection = \"{way}\"\nsource = \"{}\"\ndestination = \"{}\"\nspi = {spi}\n\
             aead = \"rfc4106(gcm(aes))\"\nkey = \"0x{}\"\n",
            ends[0],
            ends[1],
            format!("{key:02x}").repeat(20)
        )
    };
    let ends = [("first", ADDRESSES[1], 8, [1, 2]), ("second", SECOND, 9, [3, 4])];
    for (gateway, ways) in [(&mut left, ["out", "in"]), (&mut right, ["in", "out"])] {
        gateway.configure(&format!("sequences = {:?}\n", gateway.path("lib/sequences")));
        let mut text = fs::read_to_string(gateway.path("vpnd.toml")).expect("ours");
        for (name, there, spi, keys) in ends {
            text += &table(name, ways[0], [ADDRESSES[0], there], 7, keys[0]);
            text += &table(name, ways[1], [there, ADDRESSES[0]], spi, keys[1]);
        }
        write_private(&gateway.path("vpnd.toml"), &text);
        gateway.start();
    }
    let watch = right.space.watch("wire");
    let near = left.space.run(|| UdpSocket::bind((ADDRESSES[0], 7007))).expect("an address");
    near.set_read_timeout(Some(PATIENCE)).expect("a socket takes it");
    let mut octets = [0; 8];
    for _ in 0..3 {
        for (_, there, ..) in ends {
            let far = right.space.run(move || UdpSocket::bind((there, 7007))).expect("an address");
            far.set_read_timeout(Some(PATIENCE)).expect("a socket takes it");
            near.send_to(b"there", (there, 7007)).expect("a route");
            assert_eq!(datagram(&far, &mut octets), 5);
            far.send_to(b"back", (ADDRESSES[0], 7007)).expect("a route");
            assert_eq!(datagram(&near, &mut octets), 4);
        }
    }
    let lines = right.json(&["sa", "list", "--json"]);
    for sa in lines["sas"].as_array().expect("a list") {
        assert_eq!((&sa["packets"], &sa["refused"]), (&json!(3), &json!(0)), "{sa}");
    }
    // A packet of no SA is a look-up in vain.
    let stray = UdpStray::from(&left);
    let found = || {
        stray.send();
        let workers = right.json(&["workers", "--json"]);
        let lookups = &workers["inbound_lookups"];
        let stages = workers["stages"].as_array().expect("a list").clone();
        let stage = stages.into_iter().find(|stage| stage["stage"] == "lookup-in").expect("one");
        let (found, unknown) = (lookups["found"].as_u64()?, lookups["unknown"].as_u64()?);
        (found >= 6 && unknown > 0 && stage["packets"].as_u64() > Some(6)).then_some(())
    };
    until("a look-up in vain", found, || right.ctl_ok(&["workers"]));
    assert!(right.ctl_ok(&["workers"]).contains("SA found by the SPI for "));
    left.stop();
    right.stop();
    watch.nothing_in_the_clear();
}

/// Sends ESP in UDP with an SPI that nobody has.
struct UdpStray(UdpSocket);

impl UdpStray {
    fn from(left: &Gateway) -> Self {
        // Not the port of vpnd, whose traffic passes.
        Self(left.space.run(|| UdpSocket::bind((ADDRESSES[0], 0))).expect("an address"))
    }

    fn send(&self) {
        let _ = self.0.send_to(&[&[0xee; 4][..], &[0; 60]].concat(), (ADDRESSES[1], 4500));
    }
}

/// The commands of "Tips and Tricks for IPsec on Intel 10 Gbe NICs", with other addresses.
const LINES: &str = "\
ip xfrm policy add dir out src 192.0.2.1/24 dst 192.0.2.2/24 proto tcp tmpl proto esp src 192.0.2.1 dst 192.0.2.2 \\
   spi 0x07 mode transport reqid 0x07
ip xfrm policy add dir in src 192.0.2.2/24 dst 192.0.2.1/24 proto tcp tmpl proto esp dst 192.0.2.1 src 192.0.2.2 \\
   spi 0x07 mode transport reqid 0x07
ip xfrm state add proto esp src 192.0.2.1 dst 192.0.2.2 spi 0x07 mode transport reqid 0x07 replay-window 32 \\
   aead 'rfc4106(gcm(aes))' 0x44434241343332312423222114131211f4f3f2f1 128 \\
   sel src 192.0.2.1/24 dst 192.0.2.2/24 proto tcp offload dev eth4 dir out
ip xfrm state add proto esp dst 192.0.2.1 src 192.0.2.2 spi 0x07 mode transport reqid 0x07 replay-window 32 \\
   aead 'rfc4106(gcm(aes))' 0x44434241343332312423222114131211f4f3f2f1 128 \\
   sel src 192.0.2.2/24 dst 192.0.2.1/24 proto tcp offload dev eth4 dir in
";

fn lines_of_ip() {
    let [mut left, mut right] = two();
    for gateway in [&mut left, &mut right] {
        gateway.configure(&format!("sequences = {:?}\n", gateway.path("lib/sequences")));
        gateway.start();
    }
    let file = left.path("lines");
    write_private(&file, LINES);
    let file = file.display().to_string();
    let error = left.ctl_fails(&["sa", "add", &file], 1);
    assert!(error.contains("insecure_shared_key"), "one key for both directions: {error}");
    left.ctl_ok(&["sa", "add", &file, "--insecure-shared-key"]);
    let tables = left.ctl_ok(&["sa", "convert", &file, "--insecure-shared-key"]);
    assert!(
        tables.contains("source = \"192.0.2.1/24\"") && tables.contains("reqid = 7"),
        "{tables}"
    );
    let other = left.ctl_ok(&["sa", "mirror", &file, "--insecure-shared-key"]);
    let file = right.path("mirrored.toml");
    write_private(&file, &other);
    right.ctl_ok(&["sa", "add", &file.display().to_string()]);

    let watch = right.space.watch("wire");
    let place = SocketAddr::from((ADDRESSES[1], 7007));
    let listener = right.space.run(move || TcpListener::bind(place)).expect("an address");
    let mut near = left.space.run(move || TcpStream::connect(place)).expect("a connection");
    let (mut far, _) = listener.accept().expect("a connection");
    near.write_all(b"there").expect("connected");
    let mut octets = [0; 5];
    far.read_exact(&mut octets).expect("five octets");
    assert_eq!(&octets, b"there");
    watch.nothing_in_the_clear();
}
