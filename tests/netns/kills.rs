//! Both daemons under full load, and one after the other is killed: each time the tunnel comes back by itself, with the
//! same TCP connections. Nothing passes in the clear, and the daemon that lives on does not grow.
//!
//! A few kills, or one every 20 seconds for a given time:
//! `KILL_SECONDS=3600 cargo test --release --test netns "killed under load" -- --nocapture`.

use crate::site::{LEFT_INNER, RIGHT_INNER, two_with};
use libtest_mimic::Trial;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use testkit::gateway::{GIVES_UP, Gateway};
use testkit::traffic::Stream;
use testkit::{FILTERED, policies, test, until};

pub fn trials() -> Vec<Trial> {
    vec![test("stress: either daemon is killed under load", FILTERED, kills)]
}

/// The number of kills, if no time is given.
const KILLS: usize = 4;
/// The time between two kills, if a time is given.
const BETWEEN: Duration = Duration::from_secs(20);
/// Octets that each stream carries after each start.
const GOES_ON: u64 = 16 << 20;
/// Octets of memory by which a daemon may grow after the first kill of its peer.
const GROWTH: u64 = 16 << 20;

fn kills() {
    let length = std::env::var("KILL_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let length = length.map(Duration::from_secs);
    let mut gateways = gateways();
    gateways.iter_mut().for_each(Gateway::start);
    gateways[0].await_list(&["site_lan"]);
    let ends: [IpAddr; 2] = [LEFT_INNER.into(), RIGHT_INNER.into()];
    let [left, right] = gateways.each_ref().map(|gateway| &gateway.space.0);
    let streams = [
        Stream::start((left, ends[0]), (right, ends[1]), 0).expect("a connection"),
        Stream::start((right, ends[1]), (left, ends[0]), 0).expect("a connection"),
    ];
    let mut baseline = [None; 2];
    let (began, mut killed, mut slowest) = (Instant::now(), 0, Duration::ZERO);
    loop {
        go_on(&streams, &gateways);
        let due = began + BETWEEN * u32::try_from(killed + 1).expect("few");
        match length {
            Some(length) if began.elapsed() >= length => break,
            Some(_) => std::thread::sleep(due.saturating_duration_since(Instant::now())),
            None if killed == KILLS => break,
            None => {}
        }
        let (victim, survivor) = (killed % 2, (killed + 1) % 2);
        let at = Instant::now();
        gateways[victim].crash();
        gateways[victim].start();
        go_on(&streams, &gateways);
        slowest = slowest.max(at.elapsed());
        killed += 1;
        assert_eq!(gateways.each_ref().map(in_the_clear), [0, 0], "after {killed} kills");
        let [memory, _] = gateways[survivor].memory();
        // A daemon that lives on is killed next, so that it is compared with its former self at the same age.
        let first = *baseline[survivor].get_or_insert(memory);
        assert!(memory <= first + GROWTH, "{memory} octets after {killed} kills, {first} at first");
    }
    let octets = streams.map(|stream| stream.finish().expect("every octet is right"));
    println!(
        "{killed} kills in {:.0} s: {:.1} and {:.1} GB of two connections arrived, 0 packets in the clear; at most {:.1} s until \
         both went on; memory {baseline:?} octets at first, {:?} at the end",
        began.elapsed().as_secs_f64(),
        octets[0] as f64 / 1e9,
        octets[1] as f64 / 1e9,
        slowest.as_secs_f64(),
        gateways.each_ref().map(|gateway| gateway.memory()[0]),
    );
    gateways.iter_mut().for_each(Gateway::stop);
}

/// Both gateways start the tunnel by themselves. Past the tunnel is a way to the other network, and each counts the
/// packets that arrive by it in the clear.
fn gateways() -> [Gateway; 2] {
    let gateways = two_with(&format!("{GIVES_UP}liveness_interval = \"1s\"\n"));
    let others = [("10.1.0.0/24", "192.0.2.2"), ("10.2.0.0/24", "192.0.2.1")];
    for ((gateway, policy), (own, other)) in gateways.iter().zip(policies::site()).zip(others) {
        let no = "IPSec_Flags_AutoStart=\"No\"";
        let yes = "IPSec_Flags_AutoStart=\"Yes\"";
        gateway.write_policy(&policies::changed(&policy, no, yes));
        gateway.space.ip(&format!("route add default via {other}"));
        for line in [
            "add table inet clear".to_owned(),
            "add counter inet clear seen".to_owned(),
            "add chain inet clear c { type filter hook prerouting priority -400 ; }".to_owned(),
            format!("add rule inet clear c iifname wire ip daddr {own} counter name seen"),
        ] {
            gateway.space.sh(&format!("nft {line}"));
        }
    }
    gateways
}

/// Waits until both streams have carried some more.
fn go_on(streams: &[Stream; 2], gateways: &[Gateway; 2]) {
    let enough = streams.each_ref().map(|stream| stream.received() + GOES_ON);
    let gone_on = || {
        let mut streams = streams.iter().zip(enough);
        streams.all(|(stream, enough)| stream.received() >= enough).then_some(())
    };
    until("both streams to go on", gone_on, || {
        let lists = gateways.each_ref().map(|gateway| gateway.ctl_ok(&["list", "--all"]));
        format!("{}{}{}", lists.concat(), gateways[0].log(), gateways[1].log())
    });
}

/// Packets of the tunnel that have arrived in the clear.
fn in_the_clear(gateway: &Gateway) -> u64 {
    let text = gateway.space.sh("nft list counter inet clear seen");
    let packets = text.split_whitespace().skip_while(|word| *word != "packets").nth(1);
    packets.and_then(|number| number.parse().ok()).expect("nft shows the counter")
}
