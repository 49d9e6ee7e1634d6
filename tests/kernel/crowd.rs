//! Two thousand tunnels that daemons negotiate, and a card that has room for half of them.

use crate::card;
use crate::carded::{World, says};
use crate::guest::{Group, Kernel, scenario};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::policies::{self, changed};
use testkit::space::Space;
use testkit::{Need, PATIENCE};

pub fn group() -> Group {
    let play = |offload: &'static str| {
        let name = format!("2,000 tunnels, room for 1,024, {offload}");
        scenario(name, NEEDS, move || more_than_room(offload))
    };
    Group { name: "crowd", kernel: Kernel::Built, scenarios: vec![play("crypto"), play("auto")] }
}

const NEEDS: &[Need] = &[Need::Program("ip"), Need::Program("insmod")];
const TUNNELS: usize = 2000;

/// Of each tunnel one SA receives and one sends, and the card has room for so many of either.
fn more_than_room(offload: &str) {
    let began = Instant::now();
    let step = |what: &str| println!("{:.1} s: {what}", began.elapsed().as_secs_f64());
    let world = World::new(&policies::site().map(|policy| multiplied(&policy)), offload);
    step("both daemons are ready");
    let watch = world.watch();
    // A command waits three minutes at most, which are not enough for all of them on a slow machine.
    let _ = (0..3).any(|_| world.left.ctl(&["activate"]).status.success());
    world.up();
    step("the tunnels are up");

    let best = if offload == "crypto" { "crypto" } else { "packet" };
    let mut inside = [0, 0, 2 * (TUNNELS - card::ROOM)];
    inside[usize::from(best == "crypto")] = 2 * card::ROOM;
    assert_eq!(world.places(), inside);
    let counters = card::counters();
    let kind = format!(" type={best} ");
    assert_eq!(counters.lines().filter(|l| l.contains(&kind)).count(), 2 * card::ROOM);
    told(
        &world.left.ctl_ok(&["status"]),
        &[
            "tunnels phase 1: 1 of 1 up; phase 2: 2000 of 2000 up",
            &format!(
                "offload SAs in the kernel: {best} 1 024 in, 1 024 out; software 976 in, 976 out"
            ),
            "1 952 SAs not in wire: the device has no room for another SA (net1024 and 975 more tunnels)",
        ],
    );
    let full = format!("{best} wire 1 952 the device has no room for another SA");
    told(&world.left.ctl_ok(&["offload"]), &["wire on - 1 024 of 1 024 1 024 of 1 024 1", &full]);
    let commands = world.left.ctl_ok(&["xfrm"]);
    let states = commands.lines().filter(|line| line.starts_with("ip xfrm state add "));
    let (inside, beyond): (Vec<&str>, Vec<&str>) =
        states.partition(|state| state.contains(" dev wire dir "));
    assert_eq!((inside.len(), beyond.len()), (2 * card::ROOM, 2 * (TUNNELS - card::ROOM)));
    step("told of them");
    every_one_passes([&world.left.space, &world.right.space]);
    step("a packet of each either way");

    // Until it is noticed, and while it is made good, packets of all tunnels are on their way.
    let traffic = Traffic::start(&world.left.space);
    card::pull();
    world.left.await_log(&["a network card has lost its SAs"]);
    step("the card is out, and that is made good");
    let [sent, refused] = traffic.finish();
    println!("{sent} packets were sent meanwhile, of which this host has refused {refused}");
    assert_eq!(world.places(), [0, 0, 2 * TUNNELS]);
    told(
        &world.left.ctl_ok(&["status"]),
        &[
            "offload SAs in the kernel: software 2 000 in, 2 000 out",
            "4 000 SAs not in wire: the device has gone (net0000 and 1 999 more tunnels)",
        ],
    );
    let gone = format!("{best} wire 4 000 the device has gone");
    says(&world.left.ctl_ok(&["offload"]), &[&gone]);
    every_one_passes([&world.left.space, &world.right.space]);
    step("a packet of each either way");
    watch.into_iter().for_each(|watch| _ = watch.nothing_in_the_clear());
    world.stop();
    step("nothing is left");
}

/// A command's output has these lines, and is for people: it does not name each of thousands of tunnels.
fn told(text: &str, lines: &[&str]) {
    says(text, lines);
    assert!(text.lines().count() < 20, "{text}");
}

/// The address at the right end of a tunnel, behind which it has sixteen; at the left end all have the same.
fn right_end(tunnel: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 2, 0, 1).to_bits() + 16 * tunnel as u32)
}
const LEFT_END: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);

/// The sample's policy with very many tunnels like its only one, each for sixteen addresses of the right end.
fn multiplied(policy: &str) -> String {
    let from = policy.find("<IPSecTunnel").expect("the sample has one");
    let to = policy.find("</AIX_VPN>").expect("it ends");
    let one = |tunnel: usize| {
        let first = Ipv4Addr::from_bits(right_end(tunnel).to_bits() - 1);
        let last = Ipv4Addr::from_bits(first.to_bits() + 15);
        let named = changed(&policy[from..to], "site_lan", &format!("net{tunnel:04}"));
        let range = format!("From_IPAddr=\"{first}\" To_IPAddr=\"{last}\"");
        changed(&named, "From_IPAddr=\"10.2.0.0\" To_IPAddr=\"10.2.0.255\"", &range)
    };
    let all: String = (0..TUNNELS).map(one).collect();
    let policy = format!("{}{all}</AIX_VPN>", &policy[..from]);
    let without_group = changed(&policy, "DHGroup=\"19\" IPSec", "DHGroup=\"0\" IPSec");
    changed(&without_group, "\"GROUP_19\"", "\"NO_PFS\"")
}

const PORT: u16 = 4000;

/// One packet of each tunnel either way, one after the other.
fn every_one_passes(ends: [&Space; 2]) {
    for (from, to) in [(0, 1), (1, 0)] {
        let taker = ends[to].run(|| UdpSocket::bind(("0.0.0.0", PORT))).expect("a free port");
        taker.set_read_timeout(Some(PATIENCE)).expect("a socket");
        ends[from].run(move || {
            for tunnel in 0..TUNNELS {
                let addresses = [LEFT_END, right_end(tunnel)];
                let failed =
                    |e: io::Error| format!("tunnel {tunnel} from {}: {e}", addresses[from]);
                let sender = UdpSocket::bind((addresses[from], 0)).expect("its address");
                let number = tunnel.to_be_bytes();
                sender.send_to(&number, (addresses[to], PORT)).map_err(failed).expect("it leaves");
                let mut octets = [0; 16];
                let (length, source) =
                    taker.recv_from(&mut octets).map_err(failed).expect("it comes");
                assert_eq!(octets[..length], number);
                assert_eq!(source.ip(), addresses[from]);
            }
        });
    }
}

/// Packets that leave by all tunnels in turn.
struct Traffic {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<[usize; 2]>,
}

impl Traffic {
    fn start(left: &Space) -> Self {
        let sender = left.run(|| UdpSocket::bind((LEFT_END, 0))).expect("its address");
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut sent, mut refused) = (0, 0);
            for tunnel in (0..TUNNELS).cycle() {
                if stopping.load(Ordering::Relaxed) {
                    break;
                }
                sent += 1;
                refused += usize::from(sender.send_to(b"x", (right_end(tunnel), PORT)).is_err());
                // The guest's only processor has more to do.
                if tunnel % 16 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            [sent, refused]
        });
        Self { stop, thread }
    }

    /// How many were sent, and how many this host itself refused.
    fn finish(self) -> [usize; 2] {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic")
    }
}
