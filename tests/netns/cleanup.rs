//! A daemon that ends, in order or not, leaves nothing in the system, and nothing in the clear on the wire.

use libtest_mimic::Trial;
use std::net::UdpSocket;
use testkit::gateway::{Gateway, PATIENT};
use testkit::{FILTERED, policies, test};

pub fn trials() -> Vec<Trial> {
    vec![
        test("SIGTERM leaves nothing behind", FILTERED, || ends(Gateway::stop)),
        test("SIGKILL leaks nothing, and the next start cleans up", FILTERED, || {
            ends(Gateway::crash)
        }),
        test("nothing leaks while a tunnel is down", FILTERED, nothing_leaks_while_down),
    ]
}

fn two() -> [Gateway; 2] {
    let gateways = Gateway::pair(
        &policies::vendor(),
        [10, 20],
        &format!("{PATIENT}liveness_interval = \"off\"\n"),
    );
    for gateway in &gateways {
        // Strict: the daemon has to loosen it, and to restore it.
        gateway.space.set("ipv4/conf/wire/rp_filter", "1");
        gateway.space.set("ipv4/conf/all/rp_filter", "0");
    }
    gateways
}

/// All kinds of packets towards the peer, each of which must be protected or dropped.
fn try_everything(gateway: &Gateway, peer: &str) {
    let (answered, text) = gateway.space.try_sh(&format!("ping -q -c 3 -i 0.05 -W 0.2 {peer}"));
    assert!(!answered, "{text}");
    let target = format!("{peer}:53");
    gateway.space.run(move || {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        // Refused or swallowed, but not sent.
        let _ = socket.send_to(b"a question", &target);
        let target = target.parse().expect("an address");
        let patience = std::time::Duration::from_millis(200);
        assert!(std::net::TcpStream::connect_timeout(&target, patience).is_err());
    });
}

fn ends(end: fn(&mut Gateway)) {
    let [mut left, mut right] = two();
    let untouched = left.space.state();
    let watch = right.space.watch("wire");
    left.start();
    right.start();
    assert_eq!(left.ctl_ok(&["activate"]), "LP1: up\n");
    left.space.pings("", 5, "192.0.2.20").expect("echoes");
    assert_ne!(left.space.state(), untouched, "otherwise this test would see nothing");

    end(&mut left);
    let crashed = left.path("control.sock").exists();
    if crashed {
        // The peer still takes the tunnel to be up and sends; any answer of the kernel here is stopped, too.
        let (answered, _) = right.space.try_sh("ping -q -c 3 -i 0.05 -W 0.2 192.0.2.10");
        assert!(!answered);
        try_everything(&left, "192.0.2.20");
        watch.nothing_in_the_clear();
        left.start();
        left.stop();
    }
    left.space.is_as_before(&untouched);
    assert!(!left.path("control.sock").exists());
    let names = std::fs::read_dir(left.path("state")).expect("it is there").flatten();
    let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["guard.vpn0"], "no record of changes is left, but for the last good guard");
}

fn nothing_leaks_while_down() {
    let [mut left, mut right] = two();
    let watch = right.space.watch("wire");
    left.start();
    right.start();
    try_everything(&left, "192.0.2.20");
    left.ctl_ok(&["activate"]);
    assert_eq!(left.ctl_ok(&["deactivate", "LP1"]), "LP1: down\n");
    right.await_list(&[]);
    try_everything(&left, "192.0.2.20");
    try_everything(&right, "192.0.2.10");
    let discards = left.discards();
    assert!(discards.iter().any(|(reason, _)| reason == "esp.no_sa"), "{discards:?}");
    watch.nothing_in_the_clear();
}
