//! The policy that the AIX document prints, on both ends: up with two commands, everything protected, and
//! nothing lost however often the keys change.

use libtest_mimic::Trial;
use std::net::IpAddr;
use testkit::gateway::Gateway;
use testkit::traffic::{Echoes, Pings, Stream};
use testkit::{PINGED, TOGETHER, backlog_drops, policies, test, until};

/// Octets per second of the TCP stream: traffic to rekey under, but no congestion, whose losses would be nobody's
/// fault.
const GENTLE: u64 = 1_000_000;
const CHILD_REKEYS: u64 = 20;
const IKE_REKEYS: u64 = 5;
/// Rounds in which both sides ask at the same time.
const CROSSINGS: usize = 5;

pub fn trials() -> Vec<Trial> {
    vec![
        test("the vendor's sample policy, rekeyed under traffic", PINGED, rekeyed_under_traffic),
        test("rekeys of both sides cross under traffic", PINGED, crossing_rekeys),
    ]
}

fn two() -> ([Gateway; 2], [IpAddr; 2]) {
    // Lossless as the wire is, a delay of an overloaded machine must not be taken for a loss.
    let gateways = Gateway::pair(&policies::vendor(), [10, 20], "retransmit_after = \"2s\"\n");
    (gateways, policies::VENDOR_ADDRESSES.map(|a| a.parse().expect("an address")))
}

/// Traffic in both directions while something happens; nothing of it may be lost, doubled or altered.
fn under_traffic(
    [left, right]: &[Gateway; 2],
    [from, to]: [IpAddr; 2],
    happens: impl FnOnce(&dyn Fn()),
) -> Echoes {
    let ends = ((&left.space.0, from), (&right.space.0, to));
    let stream = Stream::start(ends.0, ends.1, GENTLE).expect("a connection");
    let pings = Pings::start(ends.0, ends.1).expect("sockets");
    // A sign that both directions carry traffic again: some milliseconds of it.
    let some_more = || {
        let enough = stream.received() + GENTLE / 20;
        let arrived = || (stream.received() >= enough).then_some(());
        until("traffic", arrived, || format!("{:?} {:?}", left.discards(), right.discards()));
    };
    let drops = backlog_drops();
    happens(&some_more);
    until("a hundred echoes", || (pings.echoed() > 100).then_some(()), String::new);
    let echoes = pings.finish().expect("the flow ends");
    let octets = stream.finish().expect("every octet is right");
    let discards = || {
        let of =
            |g: &Gateway| format!("{}: {:?} {}", g.name, g.discards(), g.space.kernel_losses());
        of(left) + &of(right)
    };
    // Between the hosts only this machine's own queues may lose packets, which it counts.
    let drops = (backlog_drops() - drops) * TOGETHER;
    assert!(echoes.lost() <= drops, "{} of {} lost; {}", echoes.lost(), echoes.sent, discards());
    assert_eq!(echoes.duplicates, 0, "{}", discards());
    assert!(octets > 0, "{echoes:?}, {octets} octets of TCP");
    for gateway in [left, right] {
        let discards = gateway.discards();
        let lost = discards.iter().filter(|(reason, _)| reason.starts_with("esp."));
        assert_eq!(lost.collect::<Vec<_>>(), Vec::<&(String, u64)>::new(), "{}", gateway.name);
    }
    echoes
}

fn rekeyed_under_traffic() {
    let (mut gateways, addresses) = two();
    let watches = [0, 1].map(|end: usize| gateways[end].space.watch("wire"));
    gateways.iter_mut().for_each(Gateway::start);
    let [left, right] = &gateways;
    assert_eq!(left.ctl_ok(&["activate", "LP1"]), "LP1: up\n");
    assert_eq!(left.ctl_ok(&["activate", "LP2"]), "LP2: up\n");
    assert_eq!(right.ctl_ok(&["activate", "LP1", "LP2"]), "LP1: up\nLP2: up\n");

    let status = left.json(&["status", "LP1", "--json"]);
    let suite = status["ike_sa"]["suite"].as_str().expect("a suite");
    for part in ["AES-CBC-256", "HMAC-SHA1-96", "PRF-HMAC-SHA1", "ECP-384"] {
        assert!(suite.contains(part), "{suite}");
    }
    let child = &status["children"][0];
    assert_eq!(child["mode"], "transport");
    assert_eq!(child["child_sa"]["suite"], "AES-GCM-16-256");
    assert_eq!(
        (&child["local"][0], &child["remote"][0]),
        (&"192.0.2.10".into(), &"192.0.2.20".into())
    );

    left.space.pings("", 50, "192.0.2.20").expect("echoes");

    let both = [left, right];
    let echoes = under_traffic(&gateways, addresses, |some_more| {
        for round in 0..CHILD_REKEYS {
            let turn = usize::from(round % 2 == 1);
            assert_eq!(both[turn].ctl_ok(&["rekey", "LP2"]), "LP2: rekeyed\n");
            if round % (CHILD_REKEYS / IKE_REKEYS) == 3 {
                let turn = usize::from(round % 8 == 3);
                assert_eq!(both[turn].ctl_ok(&["rekey", "LP1"]), "LP1: rekeyed\n");
            }
            some_more();
        }
    });

    for gateway in both {
        let status = gateway.json(&["status", "LP1", "--json"]);
        assert_eq!(status["ike_sa"]["rekeys"], IKE_REKEYS, "{status}");
        let child = &status["children"][0]["child_sa"];
        assert_eq!(child["rekeys"], CHILD_REKEYS, "{status}");
        assert_eq!(child["refused"], 0, "{status}");
        let packets = |field: &str| child[field].as_u64().expect("a number");
        let least = echoes.sent - echoes.lost();
        assert!(packets("packets_in") > least && packets("packets_out") > least, "{status}");
    }
    gateways.iter_mut().for_each(Gateway::stop);
    for watch in watches {
        let seen = watch.nothing_in_the_clear();
        assert!(seen.ike >= 2 * 2 * (CHILD_REKEYS + IKE_REKEYS), "{seen:?}");
    }
}

fn crossing_rekeys() {
    let (mut gateways, addresses) = two();
    let watch = gateways[0].space.watch("wire");
    gateways.iter_mut().for_each(Gateway::start);
    gateways[0].ctl_ok(&["activate"]);
    for gateway in &gateways {
        // Only these lines of the log tell which messages crossed.
        gateway.ctl_ok(&["log", "debug"]);
    }
    let [left, right] = &gateways;
    under_traffic(&gateways, addresses, |some_more| {
        for round in 0..CROSSINGS {
            let name = if round % 2 == 0 { "LP2" } else { "LP1" };
            std::thread::scope(|scope| {
                for gateway in [left, right] {
                    scope.spawn(move || gateway.ctl_ok(&["rekey", name]));
                }
            });
            some_more();
        }
    });
    // The redundant SAs that the crossings left go, and both sides agree on the one that stays.
    let spis = |gateway: &Gateway, fields: [&str; 2]| {
        let sa = gateway.child_sa("LP2");
        fields.map(|field| sa[field].as_str().expect("an SPI").to_owned())
    };
    until(
        "the same Child SA on both sides",
        || {
            let left = spis(left, ["inbound_spi", "outbound_spi"]);
            (left == spis(right, ["outbound_spi", "inbound_spi"])).then_some(())
        },
        || left.ctl_ok(&["status", "LP1"]) + &right.ctl_ok(&["status", "LP1"]),
    );
    left.space.pings("", 20, "192.0.2.20").expect("echoes");
    gateways.iter_mut().for_each(Gateway::stop);
    watch.nothing_in_the_clear();
}
