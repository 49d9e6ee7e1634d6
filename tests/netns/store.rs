//! The policy store of a running daemon: files and their mirrors are put, and SAs that are up stay up.

use crate::site::{LEFT_INNER, RIGHT_INNER, passes};
use libtest_mimic::Trial;
use std::fs::{self, Permissions};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use testkit::gateway::{Gateway, PATIENT};
use testkit::policies::{SITE, changed};
use testkit::space::Space;
use testkit::{GATEWAYS, PATIENCE, test};

pub fn trials() -> Vec<Trial> {
    vec![
        test("hosts and their mirror come up", GATEWAYS, || hosts(HOST, [10, 20], &["hh_d"])),
        test("a file with quirks and its mirror come up", GATEWAYS, || {
            hosts(QUIRKS, [101, 102], &["Q2"]);
        }),
        test("gateways and their mirror come up", GATEWAYS, gateways),
        test("a put leaves what is up alone, and outlives a crash", GATEWAYS, puts_and_crashes),
    ]
}

const HOST: &str = include_str!("../../crates/policy/fixtures/01_ikev2_psk_gcm_transport_v4.xml");
const GATEWAY: &str =
    include_str!("../../crates/policy/fixtures/02_ikev2_tunnel_multi_child_pfs.xml");
const QUIRKS: &str =
    include_str!("../../crates/policy/fixtures/07_whitespace_and_order_quirks.xml");

/// A file of a gateway, which only its owner may read.
fn file(gateway: &Gateway, name: &str, text: &str) -> String {
    let path = gateway.path(name);
    fs::write(&path, text).expect("writable");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("ours");
    path.display().to_string()
}

/// Puts a file into one store and its mirror into the other.
fn put_both(left: &Gateway, right: &Gateway, text: &str) {
    let here = file(left, "here.xml", text);
    let told = left.ctl_ok(&["policy", "put", &here]);
    assert!(told.contains("tunnels have changed"), "{told}");
    let there = file(right, "there.xml", &left.ctl_ok(&["policy", "mirror", &here]));
    right.ctl_ok(&["policy", "put", &there]);
    // The one who was sent the file as it is comes to the same.
    let before = right.ctl_ok(&["policy", "get"]);
    right.ctl_ok(&["policy", "put", "--swap", "--force", &here]);
    assert_eq!(right.ctl_ok(&["policy", "get"]), before);
}

fn sockets(left: (&Gateway, Ipv4Addr), right: (&Gateway, Ipv4Addr)) -> (UdpSocket, UdpSocket) {
    let bind = |(gateway, address): (&Gateway, Ipv4Addr)| {
        gateway.space.run(move || UdpSocket::bind((address, 0))).expect("an address")
    };
    let (from, to) = (bind(left), bind(right));
    to.set_read_timeout(Some(PATIENCE)).expect("a socket takes it");
    from.connect(to.local_addr().expect("bound")).expect("a route");
    (from, to)
}

fn hosts(text: &str, numbers: [u8; 2], children: &[&str]) {
    let empty = [String::new(), String::new()];
    let [mut left, mut right] = Gateway::pair(&empty, numbers, PATIENT);
    left.use_store();
    left.start();
    right.use_store();
    right.start();
    put_both(&left, &right, text);
    left.ctl_ok(&["activate"]);
    left.await_list(children);
    right.await_list(children);
    let [a, b] = numbers.map(|number| Ipv4Addr::new(192, 0, 2, number));
    passes(&sockets((&left, a), (&right, b)), b"from here");
    passes(&sockets((&right, b), (&left, a)), b"from there");
}

fn gateways() {
    let [mut left, mut right] = ["left", "right"].map(|name| Gateway::new(name, "", PATIENT, ""));
    let ends: [(Ipv4Addr, Ipv4Addr); 2] = [
        (Ipv4Addr::new(198, 51, 100, 1), LEFT_INNER),
        (Ipv4Addr::new(203, 0, 113, 1), RIGHT_INNER),
    ];
    let addresses = ends.map(|(outer, _)| format!("{outer}/24"));
    Space::connect(
        (&left.space, "wire", &[&addresses[0]]),
        (&right.space, "wire", &[&addresses[1]]),
    );
    for (gateway, own, other) in [(&left, ends[0], ends[1]), (&right, ends[1], ends[0])] {
        gateway.space.ip(&format!("route add {}/32 dev wire src {}", IpAddr::from(other.0), own.0));
        gateway.space.ip(&format!("address add {}/32 dev lo", own.1));
    }
    left.use_store();
    left.start();
    right.use_store();
    right.start();
    put_both(&left, &right, GATEWAY);
    // One starts by itself, the other on demand; a command starts both.
    left.ctl_ok(&["activate"]);
    left.await_list(&["gw_https", "gw_lan"]);
    right.await_list(&["gw_https", "gw_lan"]);
    passes(&sockets((&left, LEFT_INNER), (&right, RIGHT_INNER)), b"from here");
    passes(&sockets((&right, RIGHT_INNER), (&left, LEFT_INNER)), b"from there");
}

/// Both SPIs of a phase 2 tunnel.
fn spis(gateway: &Gateway, name: &str) -> [String; 2] {
    let sa = gateway.child_sa(name);
    ["inbound_spi", "outbound_spi"].map(|f| sa[f].as_str().expect("it is up").to_owned())
}

fn puts_and_crashes() {
    let empty = [String::new(), String::new()];
    let [mut left, mut right] = Gateway::pair(&empty, [1, 2], PATIENT);
    left.space.ip("address add 10.1.0.1/32 dev lo");
    right.space.ip("address add 10.2.0.1/32 dev lo");
    left.use_store();
    left.start();
    right.use_store();
    right.start();
    put_both(&left, &right, SITE[0]);
    left.ctl_ok(&["activate"]);
    let before = spis(&left, "site_lan");

    // A file may refer to objects of the store.
    let from = SITE[0].find("<IPSecTunnel ").expect("the sample has one");
    let second = format!("<AIX_VPN Version=\"2.1\">{}", &SITE[0][from..]);
    let second = changed(&second, "site_lan", "second_lan");
    let second = second.replace("10.1.0.", "10.3.0.").replace("10.2.0.", "10.4.0.");
    let path = file(&left, "second.xml", &second);
    let told = left.ctl_ok(&["policy", "diff", &path]);
    assert!(told.contains("would change") && told.contains("site/second_lan  new"), "{told}");
    left.ctl_ok(&["policy", "put", &path]);
    right.ctl_ok(&["policy", "put", "--swap", &path]);
    left.ctl_ok(&["activate", "second_lan"]);
    left.await_list(&["second_lan", "site_lan"]);
    assert_eq!(spis(&left, "site_lan"), before, "untouched");
    let again_told = left.ctl_fails(&["policy", "put", &path], 1);
    assert!(again_told.contains("second_lan") && again_told.contains("--force"), "{again_told}");
    let of_site = ["--type", "IKETunnel", "--name", "site"];
    let in_use = left.ctl_fails(&[&["policy", "delete"], &of_site[..]].concat(), 1);
    assert!(in_use.contains("IPSecTunnel site_lan, IPSecTunnel second_lan"), "{in_use}");

    left.crash();
    left.start();
    let list = left.ctl_ok(&["list", "--all"]);
    assert!(list.contains("site_lan") && list.contains("second_lan"), "{list}");
    left.ctl_ok(&["policy", "delete", "--type", "IPSecTunnel", "--name", "second_lan"]);
    assert!(!left.ctl_ok(&["list", "--all"]).contains("second_lan"));
    assert!(left.ctl_ok(&["policy", "purge", "--yes"]).contains("6 deleted"));
    assert_eq!(left.ctl_ok(&["list", "--all", "--json"]), "[]\n");
}
