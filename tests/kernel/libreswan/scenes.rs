//! Changes and failures of a tunnel with libreswan, beside the matrix.

use super::pluto::{NAME, Pluto};
use super::setup::{GCM_256, Setup};
use super::{NEEDS, children, endurance, fragments};
use crate::guest::{Scenario, scenario};
use crate::peer::{Peer, World, XFRM};
use std::time::{Duration, Instant};
use testkit::space::Space;
use testkit::until;

pub fn all() -> Vec<Scenario> {
    let mut all = vec![
        scenario("a policy wider than the request, begun by vpnd", NEEDS, || wider(true)),
        scenario("a policy wider than the request, begun by libreswan", NEEDS, || wider(false)),
        scenario("no key exchange for Child SAs", NEEDS, without_pfs),
        scenario("very many proposals", NEEDS, many_proposals),
        scenario("rekeys by libreswan beside the kernel plane", NEEDS, kernel_plane),
        scenario("rekeys by vpnd beside the kernel plane", NEEDS, rekeys_by_vpnd),
        scenario("refusals in the words of libreswan", NEEDS, refusals),
        scenario("lifetimes of ten seconds", NEEDS, endurance::lifetimes_of_ten_seconds),
    ];
    for (name, by_vpnd) in [("begun by vpnd", true), ("begun by libreswan", false)] {
        let title = |what: &str| format!("{what}, {name}");
        let two_children = move || children::two(by_vpnd);
        all.push(scenario(title("two Child SAs under one IKE SA"), NEEDS, two_children));
        let in_fragments = move || fragments::of_large_certificates(by_vpnd);
        all.push(scenario(title("messages in fragments"), NEEDS, in_fragments));
        for (what, setup) in OTHER_PFS {
            all.push(scenario(title(what), NEEDS, move || other_pfs(&setup, by_vpnd)));
        }
        all.push(scenario(title("vpnd is killed"), NEEDS, move || vpnd_killed(by_vpnd)));
        all.push(scenario(title("libreswan is killed"), NEEDS, move || libreswan_killed(by_vpnd)));
        all.push(scenario(title("the initiator moves"), NEEDS, move || initiator_moves(by_vpnd)));
        all.push(scenario(title("the responder moves"), NEEDS, move || responder_moves(by_vpnd)));
    }
    all
}

/// Waits until an echo passes. Returns the seconds that it took.
fn passes(world: &World<Pluto>) -> f64 {
    let began = Instant::now();
    let look = || {
        let (ok, _) = world.vpnd.space.try_sh("ping -q -c 1 -W 1 -I 10.1.0.1 10.2.0.1");
        ok.then_some(())
    };
    until("an echo", look, || world.state());
    began.elapsed().as_secs_f64()
}

fn begin(world: &World<Pluto>, by_vpnd: bool) {
    match by_vpnd {
        true => assert!(world.vpnd.ctl(&["activate", "site"]).status.success()),
        false => world.peer.initiate(),
    }
}

/// libreswan refuses to rekey with the traffic that it has agreed to, if its own policy is wider.
fn wider(by_vpnd: bool) {
    let setup = Setup {
        networks: ["10.2.0.0/16", "10.1.0.0/16"],
        lines: &["narrowing=yes", "send-vendorid=yes"],
        ..GCM_256
    };
    let mut world = setup.world();
    world.up(by_vpnd);
    world.under_traffic(|| {
        for _ in 0..2 {
            world.vpnd.ctl_ok(&["rekey", "site_lan"]);
            world.peer.await_one();
        }
        world.rekey_by_both();
        world.vpnd.ctl_ok(&["rekey", "site"]);
        world.peer.rekey_ike();
        world.vpnd.ctl_ok(&["rekey", "site_lan"]);
    });
    world.nothing_refused();
    let told = world.vpnd.ctl_ok(&["why", "site", "--all"]);
    assert_eq!(told.matches("does not renew the Child SA").count(), 1, "once is enough: {told}");
    assert!(world.vpnd.ctl_ok(&["status", "site"]).contains("libreswan 5."), "{told}");
    world.vpnd.await_log(&["it is asked again, for any traffic"]);
    world.vpnd.stop();
}

fn without_pfs() {
    for by_vpnd in [true, false] {
        let world = Setup { pfs: false, ..GCM_256 }.world();
        world.up(by_vpnd);
        world.under_traffic(|| world.rekey_by_both());
        world.nothing_refused();
    }
}

const OTHER_PFS: [(&str, Setup); 2] = [
    (
        "a key exchange that libreswan does not want",
        Setup { lines: &["pfs=no", "esp=aes_gcm256"], ..GCM_256 },
    ),
    (
        "a key exchange that only libreswan wants",
        Setup { pfs: false, lines: &["pfs=yes", "esp=aes_gcm256;dh19"], ..GCM_256 },
    ),
];

/// The first Child SA needs no key exchange, so that the two sides disagree about the rekey only: each refuses the
/// other one's. `vpnd` begins a new IKE SA then, whichever side began the last one. Both disagreements are told when
/// that is up.
fn other_pfs(setup: &Setup, by_vpnd: bool) {
    let world = setup.world();
    world.up(by_vpnd);
    let before = ike_spi(&world);
    let told = || {
        let told = world.vpnd.ctl_ok(&["why", "site"]);
        told.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    world.under_traffic(|| {
        world.peer.rekey_child();
        let refused = || told().contains("the two sides offer different algorithms").then_some(());
        until("vpnd to refuse a rekey", refused, told);
        assert_eq!(ike_spi(&world), before, "the IKE SA stays");
        let output = world.vpnd.ctl(&["rekey", "site_lan"]);
        assert!(!output.status.success(), "{output:?}");
        let replaced = || (ike_spi(&world) != before).then_some(());
        until("a new IKE SA", replaced, || world.state());
        world.peer.await_one();
    });
    let cause = "the peer accepts none of the offers for the renewal of the Child SA";
    let cure = match setup.pfs {
        true => "the peer may refuse a key exchange of the Child SA's own",
        false => "the peer may want a key exchange of the Child SA's own (PFS)",
    };
    for words in [cause, cure, "set IPSec_InitiatorDHGroup and IPSec_ResponderDHGroup"] {
        assert!(told().contains(words), "{words:?}: {}", told());
    }
}

pub fn ike_spi(world: &World<Pluto>) -> String {
    let status = world.vpnd.json(&["status", "site", "--json"]);
    status["ike_sa"]["initiator_spi"].to_string()
}

/// Those that `vpnd` can take come last.
fn many_proposals() {
    let setup = Setup {
        lines: &[
            "ike=camellia256-sha1;dh14,aes256-sha1;dh14,aes192-sha1;dh14,aes128-sha1;dh14,\
             aes256-sha2_512;dh14,aes192-sha2_512;dh14,aes128-sha2_512;dh14,aes256-sha2_384;dh14,\
             aes256-sha2_512;dh15,aes192-sha2_512;dh15,aes128-sha2_512;dh15,aes256-sha2_384;dh15,\
             aes256-sha2_512;dh16,aes192-sha2_512;dh16,aes128-sha2_512;dh16,aes256-sha2_384;dh16,\
             aes256-sha2_512;dh18,aes192-sha2_512;dh18,aes128-sha2_512;dh18,aes256-sha2_384;dh18,\
             aes256-sha2_512;dh20,aes192-sha2_512;dh20,aes128-sha2_512;dh20,aes256-sha2_384;dh20,\
             aes256-sha2_512;dh21,aes192-sha2_512;dh21,aes128-sha2_512;dh21,aes256-sha2_384;dh21,\
             aes_gcm256-sha2_512;dh31,aes_gcm128-sha2_512;dh31,aes256-sha2_256;dh19",
            "esp=aes256-sha1,aes192-sha1,aes128-sha1,aes256-sha2_512,aes192-sha2_512,\
             aes128-sha2_512,aes256-sha2_384,camellia256-sha1,camellia128-sha1,aes_ctr256-sha1,\
             aes_ccm256,aes_ccm128,aes_gcm128,aes_gcm192,chacha20_poly1305,aes256-sha2_256,\
             aes_gcm256",
        ],
        pfs: false,
        ..GCM_256
    };
    for by_vpnd in [true, false] {
        let world = setup.world();
        world.up(by_vpnd);
        world.under_traffic(|| world.rekey_by_both());
    }
}

/// libreswan sends on a new Child SA as soon as it has answered, so that only its own rekeys lose nothing there.
fn kernel_plane() {
    let mut world = Setup { plane: XFRM, ..GCM_256 }.world();
    world.up(true);
    world.under_traffic(|| {
        for _ in 0..3 {
            world.peer.rekey_child();
            world.peer.await_one();
        }
        world.peer.rekey_ike();
        world.vpnd.ctl_ok(&["rekey", "site"]);
    });
    world.streams();
    world.nothing_refused();
    world.vpnd.stop();
}

/// The packets that libreswan sends before `vpnd` has its answer are lost, and no others.
fn rekeys_by_vpnd() {
    const REKEYS: u32 = 10;
    let mut world = Setup { plane: XFRM, ..GCM_256 }.world();
    world.up(true);
    let mut lost = 0;
    for _ in 0..REKEYS {
        let counts = world.count_within(Duration::from_secs(5), || {
            world.vpnd.ctl_ok(&["rekey", "site_lan"]);
            world.peer.await_one();
        });
        // An echo that is late is both.
        lost += counts.lost.saturating_sub(counts.unexpected);
    }
    let unknown = world.unknown_to_vpnd();
    println!("{REKEYS} rekeys by vpnd: {lost} packets lost, {unknown} without SA");
    assert!(lost <= unknown, "{lost} packets lost, {unknown} without SA: {}", world.state());
    assert_eq!(world.refused_by_peer(), 0, "{}", world.state());
    world.vpnd.stop();
}

fn refusals() {
    let named = |setup: &Setup| Setup { lines: &["send-vendorid=yes"], ..*setup };
    let cases = [
        (
            Setup { networks: ["10.2.9.0/24", "10.1.9.0/24"], ..GCM_256 },
            "settings for this are leftsubnet and rightsubnet in ipsec.conf",
        ),
        (Setup { esp: "aes_gcm128", ..GCM_256 }, "settings for this are esp, pfs, esn and type in"),
        (Setup { key: "another-key-that-is-long-enough", ..GCM_256 }, "leftid and rightid"),
    ];
    for (setup, words) in cases {
        let world = named(&setup).world();
        let output = world.vpnd.ctl(&["activate", "site"]);
        assert!(!output.status.success(), "{output:?}");
        let told = world.vpnd.ctl_ok(&["why", "site"]);
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains("the peer runs libreswan 5."), "{told}");
        assert!(told.contains(words), "{told}");
    }
}

/// `vpnd` forgets everything, and says so when it begins again.
fn vpnd_killed(by_vpnd: bool) {
    for again in [true, false] {
        let mut world = GCM_256.world();
        world.up(by_vpnd);
        passes(&world);
        world.vpnd.crash();
        world.vpnd.start();
        let began = Instant::now();
        if !again {
            // It still believes in its IKE SA, and would ask on that one. This takes until it has given that up: a
            // minute.
            world.peer.whack(&["--name", NAME, "--terminate"]);
        }
        begin(&world, again);
        passes(&world);
        println!("begun by vpnd: {again}: {:.2} s", began.elapsed().as_secs_f64());
        world.vpnd.await_list(&["site_lan"]);
        world.peer.await_one();
    }
}

/// `vpnd` notices it itself, or when libreswan begins.
fn libreswan_killed(by_vpnd: bool) {
    for again in [true, false] {
        let mut world = Setup { ike: NOTICES_SOON, ..GCM_256 }.world();
        world.up(by_vpnd);
        passes(&world);
        world.peer.crash();
        world.peer.restart();
        let began = Instant::now();
        if again {
            world.vpnd.await_log(&["\"event\":\"closed\"", "the peer does not answer"]);
        }
        begin(&world, again);
        passes(&world);
        println!("begun by vpnd: {again}: {:.2} s", began.elapsed().as_secs_f64());
        world.vpnd.await_list(&["site_lan"]);
        world.peer.await_one();
    }
}

const NOTICES_SOON: &str =
    "retransmit_after = \"1s\"\nretransmissions = 2\nliveness_interval = \"1s\"\n";

/// libreswan as responder takes part in MOBIKE only if it does not name the address of the peer. As initiator it moves
/// only if it has a default route.
fn initiator_moves(by_vpnd: bool) {
    let setup = Setup { lines: &["mobike=yes"], any: by_vpnd, ..GCM_256 };
    let world = setup.world();
    if !by_vpnd {
        second_wire(&world);
    }
    world.up(by_vpnd);
    passes(&world);
    let before = ike_spi(&world);
    let (vpnd, peer) = (&world.vpnd.space, world.peer.space());
    if by_vpnd {
        // The other way round, the new one would be a secondary address, and go with the old one.
        vpnd.ip("address del 192.0.2.1/24 dev wire");
        vpnd.ip("address add 192.0.2.11/24 dev wire");
    } else {
        peer.ip("address del 192.0.2.2/24 dev wire");
    }
    println!("{:.2} s", passes(&world));
    assert_eq!(ike_spi(&world), before, "the IKE SA stays");
    world.under_traffic(|| world.rekey_by_both());
}

/// Neither side follows, as libreswan takes no part in that: the tunnel ends by a liveness check of `vpnd`. When the
/// responder has returned, `vpnd` begins again.
fn responder_moves(by_vpnd: bool) {
    let setup = Setup { lines: &["mobike=yes"], any: by_vpnd, ike: NOTICES_SOON, ..GCM_256 };
    let world = setup.world();
    world.up(by_vpnd);
    passes(&world);
    let before = ike_spi(&world);
    let (space, [old, new]) = match by_vpnd {
        true => (world.peer.space(), ["192.0.2.2/24", "192.0.2.12/24"]),
        false => (&world.vpnd.space, ["192.0.2.1/24", "192.0.2.11/24"]),
    };
    let moves = |from: &str, to: &str| {
        space.ip(&format!("address del {from} dev wire"));
        space.ip(&format!("address add {to} dev wire"));
        world.peer.whack(&["--listen"]);
    };
    moves(old, new);
    world.vpnd.await_log(&["\"event\":\"closed\"", "the peer does not answer"]);
    moves(new, old);
    if by_vpnd {
        // It went with the last address.
        space.ip("route replace 10.1.0.0/16 dev wire src 10.2.0.1");
    }
    begin(&world, true);
    passes(&world);
    assert_ne!(ike_spi(&world), before, "another IKE SA");
    world.under_traffic(|| world.rekey_by_both());
}

/// Another way from libreswan to `vpnd`.
fn second_wire(world: &World<Pluto>) {
    let (vpnd, peer) = (&world.vpnd.space, world.peer.space());
    let [here, there] = ["198.51.100.1/24", "198.51.100.2/24"];
    Space::connect((vpnd, "wire2", &[here]), (peer, "wire2", &[there]));
    peer.ip("route add default via 198.51.100.1 dev wire2");
    world.peer.whack(&["--listen"]);
}
