//! Everything at once: as much traffic as goes, keys renewed by IKE, workers that come and go, and the schedule
//! switched. A fixed number of changes, or more of them for a given time:
//! `STRESS_SECONDS=600 cargo test --release -p vpn-daemon --test netns stress -- --nocapture`.

use crate::site::{LEFT_INNER, RIGHT_INNER, two_with};
use libtest_mimic::Trial;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use testkit::gateway::Gateway;
use testkit::traffic::{Pings, Stream};
use testkit::{BUFFERS, GATEWAYS, TOGETHER, backlog_drops, test, until};

pub fn trials() -> Vec<Trial> {
    vec![test("stress: traffic, rekeys, workers and schedules", GATEWAYS, stress)]
}

/// Changes of the workers, after each of which both streams go on.
const CHANGES: usize = 24;
/// After so many changes keys are renewed.
const CHANGES_A_REKEY: usize = 4;
/// Octets that each stream carries between two changes.
const GOES_ON: u64 = 1 << 20;

/// A replaced SA is gone soon, so that all are counted at the end; not so soon that a busy host still has packets of
/// it.
const IKE: &str = "linger = \"10s\"\n";

fn stress() {
    let seconds = std::env::var("STRESS_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(0.0);
    let length = Duration::from_secs_f64(seconds);
    let mut gateways = two_with(IKE);
    gateways.iter_mut().for_each(Gateway::start);
    let [left, right] = &gateways;
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    let ends: [(_, IpAddr); 2] =
        [(&left.space.0, LEFT_INNER.into()), (&right.space.0, RIGHT_INNER.into())];
    let (idle, host) = (discards(&gateways), backlog_drops());

    let (streams, pings) = (
        [Stream::start(ends[0], ends[1], 0), Stream::start(ends[1], ends[0], 0)],
        Pings::start(ends[0], ends[1]).expect("a flow"),
    );
    let streams = streams.map(|stream| stream.expect("a connection"));
    let began = Instant::now();
    let (mut changes, mut rekeys) = (0, 0);
    while changes < CHANGES || began.elapsed() < length {
        for gateway in &gateways {
            gateway.ctl_ok(&[&["workers", "set"], &setting(changes)[..]].concat());
        }
        changes += 1;
        if changes % CHANGES_A_REKEY == 0 {
            // From either side in turn; the IKE SA, too.
            gateways[rekeys % 2].ctl_ok(&["rekey", "site_lan"]);
            gateways[(rekeys + 1) % 2].ctl_ok(&["rekey", "site"]);
            rekeys += 1;
        }
        let (enough, echoed) = (streams.each_ref().map(|s| s.received() + GOES_ON), pings.echoed());
        let goes_on = || {
            let mut streams = streams.iter().zip(enough);
            (streams.all(|(s, enough)| s.received() >= enough) && pings.echoed() > echoed)
                .then_some(())
        };
        until("both streams and the echoes to go on", goes_on, || {
            format!("{:?}", discards(&gateways))
        });
    }
    let octets = streams.map(|stream| stream.finish().expect("every octet is right"));
    let echoes = pings.finish().expect("the flow ends");
    let rate = octets.map(|octets| octets as f64 * 8.0 / began.elapsed().as_secs_f64() / 1e9);
    println!(
        "{:.1} s: TCP {:.2} and {:.2} Gbit/s, {} of {} datagrams without an echo; {changes} changes of the workers, \
         {rekeys} rekeys of either kind",
        began.elapsed().as_secs_f64(),
        rate[0],
        rate[1],
        echoes.lost(),
        echoes.sent
    );
    let dropped = since(&idle, discards(&gateways));
    let host = backlog_drops() - host;
    println!("dropped: {dropped:?}, and {host} between the hosts");
    for counts in &dropped {
        for reason in counts.keys() {
            assert!(BUFFERS.contains(&reason.as_str()), "{reason}: {dropped:?}");
        }
    }
    // Every packet that was protected was accepted, or is counted with its reason. The packets that a replaced SA
    // received in the end are counted when it goes.
    let count = |gateway: &Gateway, field: &str| {
        gateway.child_sa("site_lan")[field].as_u64().expect("a number")
    };
    let counts = || {
        [(left, right), (right, left)]
            .map(|(from, to)| (count(from, "packets_out"), count(to, "packets_in")))
    };
    let lost = |counts: &BTreeMap<_, _>, reason| counts.get(reason).copied().unwrap_or(0);
    // The kernel drops several packets as one super-packet, and nobody knows how many.
    let bounds = [(0, 1), (1, 0)].map(|(from, to)| {
        let unsent = lost(&dropped[from], "esp.unsent");
        let unreceived = lost(&dropped[to], "esp.unreceived");
        (unsent + unreceived)..=(unsent + (unreceived + host) * TOGETHER)
    });
    let settled = || {
        let mut pairs = counts().into_iter().zip(&bounds);
        pairs
            .all(|((out, taken), bounds)| out >= taken && bounds.contains(&(out - taken)))
            .then_some(())
    };
    until("every packet to be accounted for", settled, || format!("{:?}, {dropped:?}", counts()));
    println!("protected and accepted: {:?}", counts());
    let buffers = host + dropped.iter().flat_map(BTreeMap::values).sum::<u64>();
    assert!(echoes.lost() == 0 || buffers > 0, "{} lost and not counted", echoes.lost());
    assert_eq!(echoes.duplicates, 0);
    gateways.iter_mut().for_each(Gateway::stop);
}

fn setting(number: usize) -> [&'static str; 3] {
    [
        ["workers=1", "workers=2", "workers=3", "workers=4"][number % 4],
        ["schedule=run-to-completion", "schedule=pipeline"][number / 2 % 2],
        ["wait=adaptive", "wait=event"][number / 3 % 2],
    ]
}

/// The drop counters of each gateway's data plane.
fn discards(gateways: &[Gateway; 2]) -> [BTreeMap<String, u64>; 2] {
    gateways.each_ref().map(|gateway| {
        gateway.discards().into_iter().filter(|(reason, _)| reason.starts_with("esp.")).collect()
    })
}

/// The increase of the counters since then.
fn since(
    before: &[BTreeMap<String, u64>; 2],
    mut now: [BTreeMap<String, u64>; 2],
) -> [BTreeMap<String, u64>; 2] {
    for (counts, before) in now.iter_mut().zip(before) {
        counts.iter_mut().for_each(|(reason, count)| *count -= before.get(reason).unwrap_or(&0));
        counts.retain(|_, count| *count > 0);
    }
    now
}
