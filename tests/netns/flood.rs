//! Strangers in great numbers knock at a gateway's port 500, each only once and from an address that is not its own,
//! while a tunnel carries traffic and others come up.

use crate::site::{LEFT_INNER, RIGHT_INNER, two_with};
use libtest_mimic::Trial;
use serde_json::Value;
use sim::fleet::Fleet;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use testkit::gateway::Gateway;
use testkit::space::Space;
use testkit::traffic::{Echoes, Pings};
use testkit::{Need, backlog_drops, policies, test, until};

pub fn trials() -> Vec<Trial> {
    vec![test("a flood of strangers costs nobody a tunnel", NEEDS, strangers)]
}

const NEEDS: &[Need] =
    &[Need::Root, Need::Namespaces, Need::Tun, Need::Program("ip"), Need::Program("nft")];

/// Requests, each from an address of its own; more if the gateway has not answered enough of them.
const STRANGERS: u32 = 100_000;
/// At most so many of them in a millisecond.
const PER_MILLISECOND: u32 = 15;
/// Half-open IKE SAs above which a cookie is asked for, as it is without a configuration.
const COOKIE_THRESHOLD: u64 = 32;
/// Seconds until a half-open IKE SA is forgotten and its place is free again.
const HALF_OPEN_FOR: u64 = 30;
/// How much memory the daemon may take in the meantime: its queues and buffers may fill on a busy host, but a kilobyte
/// for each stranger would be three times as much.
const MEMORY: u64 = 32 << 20;
/// Of these, so many are to be told to come with a cookie before the flood ends: on a busy host most find no room in
/// the gateway's socket.
const TOLD: u64 = 1_000;

/// The gateway's address towards the strangers, and that of a peer among them.
const DOOR: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const GUEST: &str = "203.0.113.7";

/// The two sites answer at once.
const IKE: &str =
    "retransmit_after = \"200ms\"\nretransmissions = 10\nliveness_interval = \"1s\"\n";
/// A guest's request may be lost among the strangers': it repeats it often, and soon begins again.
const GUEST_IKE: &str = "retransmit_after = \"200ms\"\nretransmissions = 4\n";

/// The request with which a guest begins.
fn request(policy: &str) -> Vec<u8> {
    let now = Instant::now();
    let policy = policy::xml::read("guest.xml", policy).expect("it is right").policy;
    let mut guest = Fleet::start(policy.into(), &ike::Config::default(), now, [7; 32]);
    guest.connect(now, "guest").expect("it is in the policy");
    match guest.poll() {
        ike::Output::Transmit(request) => request.octets,
        other => panic!("a request was expected: {other:?}"),
    }
}

/// An IPv4 packet with a UDP datagram without a checksum (RFC 768), of a request with an SPI of its own.
fn spoofed(number: u32, request: &[u8]) -> Vec<u8> {
    let source = Ipv4Addr::from_bits(u32::from_be_bytes([11, 0, 0, 0]) + number);
    let length = |octets: usize| u16::try_from(octets).expect("a short request").to_be_bytes();
    // The kernel fills in the identification and the checksum (raw(7)).
    let [ip, udp] = [length(28 + request.len()), length(8 + request.len())];
    let header = [0x45, 0, ip[0], ip[1], 0, 0, 0, 0, 64, 17, 0, 0];
    let port = 500_u16.to_be_bytes();
    let mut packet = [&header[..], &source.octets(), &DOOR.octets()].concat();
    packet.extend([port, port, udp, [0; 2]].concat());
    packet.extend(u64::from(number + 1).to_be_bytes());
    packet.extend(&request[8..]);
    packet
}

/// Begins to send all of them. The thread returns how many were sent.
fn flood(from: &Space, request: Vec<u8>, enough: Arc<AtomicBool>) -> JoinHandle<io::Result<u64>> {
    let raw = from.run(|| Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255))));
    let socket = raw.expect("root may");
    let door = SocketAddr::from((DOOR, 0)).into();
    std::thread::spawn(move || {
        let mut sent = 0;
        for number in 0.. {
            if number >= STRANGERS && enough.load(Ordering::Relaxed) {
                break;
            }
            if number % PER_MILLISECOND == 0 {
                // The rate of the flood; a sender that is late does not make up for it.
                std::thread::sleep(Duration::from_millis(1));
            }
            match socket.send_to(&spoofed(number, &request), &door) {
                Ok(_) => sent += 1,
                Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    })
}

/// Datagrams that a gateway's socket on port 500 had no room for.
fn overflowed(space: &Space) -> u64 {
    let sockets = space.run(|| std::fs::read_to_string("/proc/thread-self/net/udp"));
    let sockets = sockets.expect("there");
    let ours = sockets.lines().filter(|line| line.contains("00000000:01F4 "));
    ours.filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok()).sum()
}

/// Counts the answers to strangers that are longer than one with a cookie can be: those with a public value, which a
/// half-open IKE SA stands behind.
fn count_key_exchanges(space: &Space) {
    let rules = "add table inet strangers
        add counter inet strangers half_open
        add chain inet strangers out { type filter hook output priority 0; }
        add rule inet strangers out ip daddr 11.0.0.0/8 udp length > 160 counter name half_open";
    let status = space.run(move || Command::new("nft").arg(rules).status());
    assert!(status.expect("nft is there").success());
}

fn key_exchanges(space: &Space) -> u64 {
    let listed = space.sh("nft --json list counter inet strangers half_open");
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let mut counters = listed["nftables"].as_array().into_iter().flatten();
    let packets = counters.find_map(|item| item["counter"]["packets"].as_u64());
    packets.expect("a counter")
}

fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

/// The durations and echoes that operators see, in calm and in the flood.
#[derive(Debug)]
struct Seen {
    rekeys: Vec<Duration>,
    set_ups: Vec<Duration>,
    echoes: Echoes,
}

/// Has the established tunnel rekeyed and the guest come and go, as long as `more` and once at least.
fn observe([left, right, guest]: [&Gateway; 3], more: impl Fn(usize) -> bool) -> Seen {
    let ends = ((&left.space.0, LEFT_INNER.into()), (&right.space.0, RIGHT_INNER.into()));
    let pings = Pings::start(ends.0, ends.1).expect("sockets");
    let (mut rekeys, mut set_ups) = (Vec::new(), Vec::new());
    loop {
        rekeys.push(timed(|| drop(right.ctl_ok(&["rekey", "site"]))));
        // On a busy host all requests of one attempt may find no room in the gateway's socket.
        let up = || guest.ctl(&["activate", "guest"]).status.success().then_some(());
        set_ups.push(timed(|| until("the guest's tunnel", up, || guest.log())));
        guest.ctl_ok(&["deactivate", "guest"]);
        if !more(rekeys.len()) {
            break;
        }
    }
    Seen { rekeys, set_ups, echoes: pings.finish().expect("the flow ends") }
}

fn strangers() {
    let [mut left, mut right] = two_with(IKE);
    let door = [DOOR.to_string(), DOOR.to_string()];
    let [hub, guest] =
        policies::guest("guest", "10.3.0.", GUEST, door.each_ref().map(String::as_str));
    left.write_policy(&policies::together(&[policies::SITE[0], &hub]));
    let request = request(&guest);
    let mut guest = Gateway::new("guest", &guest, GUEST_IKE, "");
    Space::connect(
        (&left.space, "wild", &["203.0.113.1/24"]),
        (&guest.space, "wild", &[&format!("{GUEST}/24")]),
    );
    // Answers to strangers go where the strangers seem to be, and end there.
    left.space.ip(&format!("route add default via {GUEST}"));
    guest.space.ip("address add 10.3.0.1/32 dev lo");
    [&mut left, &mut right, &mut guest].into_iter().for_each(Gateway::start);
    left.ctl_ok(&["activate", "site"]);
    let all = [&left, &right, &guest];

    let calm = observe(all, |rounds| rounds < 10);
    let [before, _] = left.memory();
    left.forget_peak();
    let (overflow, queues) = (overflowed(&left.space), backlog_drops());

    count_key_exchanges(&left.space);
    let began = Instant::now();
    let enough = Arc::new(AtomicBool::new(false));
    let flood = flood(&guest.space, request, Arc::clone(&enough));
    let counted = |reason: &str| {
        let counters = left.json(&["counters", "--json"]);
        counters[reason].as_u64().expect("a counter of that name")
    };
    let begun = || (counted("ike.without_cookie") > 0).then_some(());
    until("cookies for strangers", begun, || format!("{:?}", left.discards()));
    let flooded = observe(all, |_| {
        enough.store(counted("ike.without_cookie") > TOLD, Ordering::Relaxed);
        !flood.is_finished()
    });
    let sent = flood.join().expect("it does not panic").expect("a raw socket sends");
    let [after, peak] = left.memory();

    let queues = backlog_drops() - queues;
    let overflow = overflowed(&left.space) - overflow;
    let half_open = key_exchanges(&left.space);
    let explain = || format!("{sent} sent; {:?}, {}", left.discards(), left.space.kernel_losses());
    // Every stranger is accounted for: lost on the way, told to come again with a cookie, or begun with.
    let read = || {
        let [without, waiting] =
            ["without_cookie", "too_many_waiting"].map(|r| counted(&format!("ike.{r}")));
        let known = queues + overflow + waiting + without + half_open;
        (known >= sent).then_some((without, waiting))
    };
    let (without, waiting) = until("every stranger to be accounted for", read, explain);
    let duration = began.elapsed();
    println!(
        "{sent} strangers in {:.1} s: {overflow} found no room in the socket, {waiting} none in the queue, {without} were \
         told to come with a cookie, {half_open} were begun with; memory {before} before, {after} after, {peak} at most; \
         {} rounds",
        duration.as_secs_f64(),
        flooded.rekeys.len()
    );
    for (when, seen) in [("calm", &calm), ("flooded", &flooded)] {
        let worst = |times: &[Duration]| times.iter().max().copied().unwrap_or_default();
        println!(
            "{when}: set-up {:?} at worst, rekey {:?} at worst, round trip {:?} (median), {:?} (p99), {} of {} lost",
            worst(&seen.set_ups),
            worst(&seen.rekeys),
            seen.echoes.median,
            seen.echoes.p99,
            seen.echoes.lost(),
            seen.echoes.sent
        );
        assert_eq!(seen.echoes.duplicates, 0);
    }
    let terms = 1 + duration.as_secs() / HALF_OPEN_FOR;
    assert!((1..=COOKIE_THRESHOLD * terms).contains(&half_open), "{half_open}; {}", explain());
    assert!(without > TOLD, "hardly any stranger got through: {}", explain());
    let lost = flooded.echoes.lost();
    assert!(lost <= queues, "{lost} of {} lost; {}", flooded.echoes.sent, explain());
    assert!(peak.saturating_sub(before) < MEMORY, "{before} octets, then {peak}");
    for gateway in [&left, &right] {
        let sa = gateway.json(&["status", "site", "--json"])["ike_sa"].clone();
        let rekeys = calm.rekeys.len() + flooded.rekeys.len();
        assert_eq!(sa["rekeys"], rekeys, "the tunnel is what it was: {sa}");
    }
}
