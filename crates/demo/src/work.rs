//! `vpnd demo`: a tunnel at work between two namespaces of this machine, watched and counted.
//!
//! The demo runs an operator's programs: two `vpnd start` with the sample policy, commanded through their control
//! sockets. Only the namespaces, the wire between them, the traffic and the watch are the demo's own.

use crate::interrupt::Interrupt;
use crate::network;
use crate::node::{Node, Setup};
use crate::requirements;
use control::protocol::{Command as Ask, Reply, Tunnel};
use control::quantity::{bytes, count};
use indicatif::ProgressBar;
use namespaces::capture::Capture;
use namespaces::isolation::Namespace;
use namespaces::traffic::{Echoes, Pings, Stream};
use nix::net::if_::if_nametoindex;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The sample policy of the AIX document, a blog post of IBM's community, as each end has it.
const POLICIES: [&str; 2] = [
    include_str!("../../../config/aix-sample-left.xml"),
    include_str!("../../../config/aix-sample-right.xml"),
];
/// Its tunnels.
const TUNNEL: &str = "LP1";
const CHILD: &str = "LP2";
/// The key in the sample policy, which the demo replaces by a random one.
const SAMPLE_KEY: &str = "\"12345\"";
const LEFT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
const RIGHT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 20);

/// Octets per second of the TCP stream while losses are counted: traffic to rekey under, but no congestion, whose
/// losses would be nobody's fault.
const GENTLE: u64 = 2_500_000;

/// The findings of the demo. The names of the fields are those of `--json` and stable.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// The tunnel worked: no packet was lost or in the clear, and every rekey was done.
    pub ok: bool,
    /// Algorithms of the IKE SA.
    pub ike_suite: String,
    /// Algorithms of the Child SA.
    pub esp_suite: String,
    /// `tunnel` or `transport`.
    pub mode: String,
    /// `native` or `udp`.
    pub encapsulation: String,
    /// The last SPIs of the Child SA, in and out, as the left end sees them.
    pub esp_spis: [String; 2],
    /// Numbered small packets sent, one per millisecond.
    pub packets_sent: u64,
    /// Those whose echo never came.
    pub packets_lost: u64,
    /// Echoes that came twice.
    pub packets_duplicated: u64,
    /// Median round trip of the small packets.
    pub round_trip_median_us: u64,
    /// Round trip that 99 of 100 did not exceed.
    pub round_trip_p99_us: u64,
    /// Octets the TCP stream carried, each compared with what was sent.
    pub tcp_bytes: u64,
    /// Rate of the TCP stream while it was not held back.
    pub throughput_bps: u64,
    /// Times the Child SA was rekeyed under traffic.
    pub child_rekeys: u64,
    /// Times the IKE SA was rekeyed under traffic.
    pub ike_rekeys: u64,
    /// Packets the left end's SAs sent and received.
    pub esp_packets: u64,
    /// Packets the SAs of both ends refused.
    pub esp_refused: u64,
    /// Frames on the wire; a segmented super-packet counts once.
    pub wire_frames: u64,
    /// IKE messages among them.
    pub ike_messages: u64,
    /// ARP and the like among them.
    pub neighbour_frames: u64,
    /// Packets that were neither ESP nor IKE nor ARP and the like, at either end of the wire.
    pub cleartext_packets: u64,
    /// Seconds the whole demo took.
    pub seconds: f64,
    /// The deviations from that.
    pub problems: Vec<String>,
}

/// The reason why a demo has no findings.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A signal came; everything is cleaned up.
    #[error("interrupted; everything is cleaned up")]
    Interrupted,
    /// Something could not be made, or did not do its work.
    #[error("{0}")]
    Failed(String),
}

/// Runs the demo, with traffic for `length`, and shows on `progress` where it is. Must be called while the process has
/// a single thread.
///
/// # Errors
/// As [`DemoError`].
pub fn run(length: Duration, progress: &ProgressBar) -> Result<Findings, DemoError> {
    let began = Instant::now();
    requirements::enter().map_err(DemoError::Failed)?;
    let interrupt = Interrupt::listen()
        .map_err(|error| DemoError::Failed(format!("cannot listen for signals: {error}")))?;
    let outcome = play(length, progress, &interrupt);
    progress.finish_and_clear();
    match outcome {
        Ok(findings) => Ok(Findings { seconds: began.elapsed().as_secs_f64(), ..findings }),
        Err(_) if interrupt.is_set() => Err(DemoError::Interrupted),
        Err(error) => Err(DemoError::Failed(error)),
    }
}

/// Builds everything up, lets the traffic run, and takes everything down again, in whatever order it ends.
fn play(
    length: Duration,
    progress: &ProgressBar,
    interrupt: &Interrupt,
) -> Result<Findings, String> {
    progress.set_message("making two namespaces");
    let left_space = Namespace::new("left").map_err(|error| error.to_string())?;
    let right_space = Namespace::new("right").map_err(|error| error.to_string())?;
    network::connect((&left_space, LEFT), (&right_space, RIGHT))?;
    // The watch begins before the daemons, so that it sees their first packet.
    let captures = [&left_space, &right_space]
        .map(|space| space.run(|| Capture::start(if_nametoindex(network::WIRE)?)));
    let [left_capture, right_capture] =
        captures.map(|capture| capture.map_err(|error| format!("cannot watch the wire: {error}")));
    let (left_capture, right_capture) = (left_capture?, right_capture?);

    progress.set_message("starting two vpnd");
    let policies = private_policies().map_err(|error| format!("cannot make a key: {error}"))?;
    let base = Path::new("/run/vpnd-demo");
    let [left_setup, right_setup] = policies.each_ref().map(|policy| Setup {
        program: Path::new("/proc/self/exe"),
        policy,
        config: "",
        environment: &[],
    });
    let mut left =
        Node::start("left", &left_space, &base.join("left"), left_setup, &|| interrupt.is_set())?;
    interrupt.breaks(left.connection());
    let mut right = Node::start("right", &right_space, &base.join("right"), right_setup, &|| {
        interrupt.is_set()
    })?;
    interrupt.breaks(right.connection());

    progress.set_message("negotiating");
    match left.ask(Ask::Activate { names: vec![TUNNEL.to_owned()] })? {
        Reply::Activations(activations) => {
            let failed = activations.iter().find_map(|a| a.failure.as_ref());
            if let Some(failure) = failed {
                return Err(format!("the tunnel did not come up: {}", failure.message));
            }
        }
        reply => return Err(format!("left: an unexpected reply: {reply:?}")),
    }
    // Rekeys count from here.
    let before = left.tunnel(TUNNEL)?;

    let run = Run { length, progress, interrupt };
    let spaces = (&left_space, &right_space);
    let (echoes, stream_bytes, throughput_bps, asked) =
        run.traffic(spaces, &mut left, &mut right)?;
    let after = (left.tunnel(TUNNEL)?, right.tunnel(TUNNEL)?);

    progress.set_message("stopping");
    left.stop()?;
    right.stop()?;
    // Both daemons have stopped: the Deletes of their SAs are among the frames.
    let wire_frames =
        left_space.run(network::frames).map_err(|error| format!("cannot count frames: {error}"))?;
    let [left_seen, right_seen] = [left_capture, right_capture]
        .map(|capture| capture.finish().map_err(|error| format!("the watch failed: {error}")));
    let (left_seen, right_seen) = (left_seen?, right_seen?);

    let mut findings = Findings {
        packets_sent: echoes.sent,
        packets_lost: echoes.lost(),
        packets_duplicated: echoes.duplicates,
        round_trip_median_us: microseconds(echoes.median),
        round_trip_p99_us: microseconds(echoes.p99),
        tcp_bytes: stream_bytes,
        throughput_bps,
        wire_frames,
        ike_messages: left_seen.ike,
        neighbour_frames: left_seen.neighbour,
        cleartext_packets: left_seen.cleartext + right_seen.cleartext,
        ..Findings::of_tunnel(&before, &after.0, &after.1)?
    };
    findings.judge(asked);
    Ok(findings)
}

/// The sample policy with a key of its own, seen from both ends.
fn private_policies() -> io::Result<[String; 2]> {
    let mut key = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    let key: String = key.iter().map(|octet| format!("{octet:02x}")).collect();
    Ok(POLICIES.map(|policy| policy.replace(SAMPLE_KEY, &format!("{key:?}"))))
}

/// Something done while traffic runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    RekeyChild,
    RekeyIke,
    /// Losses are counted up to here; from here on the stream runs as fast as it goes.
    OpenUp,
    /// The stream has found its rate.
    Measure,
}

/// The steps with their times, in thousandths of the length, and `true` for those of the right end.
const SCRIPT: [(u32, Step, bool); 9] = [
    (80, Step::RekeyChild, false),
    (200, Step::RekeyIke, false),
    (320, Step::RekeyChild, true),
    (440, Step::RekeyIke, true),
    (560, Step::RekeyChild, false),
    (660, Step::OpenUp, false),
    (700, Step::Measure, false),
    (800, Step::RekeyChild, true),
    (900, Step::RekeyIke, false),
];

/// The number of rekeys of each kind that were requested.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    child: u64,
    ike: u64,
}

struct Run<'a> {
    length: Duration,
    progress: &'a ProgressBar,
    interrupt: &'a Interrupt,
}

impl Run<'_> {
    /// Lets the script happen under traffic. Returns what became of the small packets, the octets and the rate of the
    /// stream, and the rekeys asked for.
    fn traffic(
        &self,
        (left_space, right_space): (&Namespace, &Namespace),
        left: &mut Node,
        right: &mut Node,
    ) -> Result<(Echoes, u64, u64, Asked), String> {
        let ends = ((left_space, LEFT.into()), (right_space, RIGHT.into()));
        let stream = Stream::start(ends.0, ends.1, GENTLE).map_err(traffic_failed)?;
        let mut pings = Some(Pings::start(ends.0, ends.1).map_err(traffic_failed)?);
        let mut echoes = Echoes::default();
        let mut measured_from = None;
        let mut asked = Asked::default();
        let start = Instant::now();
        self.progress.set_message("traffic while keys are renewed");
        for (at, step, by_right) in SCRIPT {
            self.wait_until(start + self.length * at / 1000, &stream)?;
            let node = if by_right { &mut *right } else { &mut *left };
            match step {
                Step::RekeyChild => {
                    node.ask(Ask::Rekey { name: CHILD.to_owned() })?;
                    asked.child += 1;
                }
                Step::RekeyIke => {
                    node.ask(Ask::Rekey { name: TUNNEL.to_owned() })?;
                    asked.ike += 1;
                }
                Step::OpenUp => {
                    if let Some(pings) = pings.take() {
                        echoes = pings.finish().map_err(traffic_failed)?;
                    }
                    stream.set_rate(0);
                    self.progress.set_message("TCP at full speed");
                }
                Step::Measure => measured_from = Some((Instant::now(), stream.received())),
            }
        }
        self.wait_until(start + self.length, &stream)?;
        let throughput = measured_from.map_or(0, |(since, octets)| {
            let nanoseconds = since.elapsed().as_nanos().max(1);
            let bits = u128::from(stream.received() - octets) * 8;
            u64::try_from(bits * 1_000_000_000 / nanoseconds).unwrap_or(u64::MAX)
        });
        let octets = stream.finish().map_err(traffic_failed)?;
        Ok((echoes, octets, throughput, asked))
    }

    fn wait_until(&self, when: Instant, stream: &Stream) -> Result<(), String> {
        loop {
            if self.interrupt.is_set() {
                return Err("interrupted".to_owned());
            }
            let left = when.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let step = left.min(Duration::from_millis(50));
            thread::sleep(step);
            self.progress.inc(u64::try_from(step.as_millis()).unwrap_or(0));
            if self.progress.is_hidden() {
                continue;
            }
            let message = self.progress.message();
            let phase = message.split(", ").next().unwrap_or_default();
            self.progress.set_message(format!("{phase}, {}", bytes(stream.received())));
        }
    }
}

fn traffic_failed(error: io::Error) -> String {
    format!("traffic through the tunnel failed: {error}")
}

impl Findings {
    /// The findings of a good run, for tests of reports.
    pub fn example() -> Self {
        Self {
            ok: true,
            ike_suite: "AES-CBC-256/HMAC-SHA2-256-128/PRF-HMAC-SHA2-256/ECP-256".to_owned(),
            esp_suite: "AES-GCM-16-256".to_owned(),
            mode: "tunnel".to_owned(),
            encapsulation: "udp".to_owned(),
            esp_spis: ["10000001".to_owned(), "20000002".to_owned()],
            packets_sent: 8_000,
            packets_lost: 0,
            packets_duplicated: 0,
            round_trip_median_us: 240,
            round_trip_p99_us: 1_930,
            tcp_bytes: 1 << 30,
            throughput_bps: 2_400_000_000,
            child_rekeys: 4,
            ike_rekeys: 3,
            esp_packets: 1_000_000,
            esp_refused: 0,
            wire_frames: 900_000,
            ike_messages: 26,
            neighbour_frames: 4,
            cleartext_packets: 0,
            seconds: 14.2,
            problems: Vec::new(),
        }
    }

    /// The figures that the daemons report of their tunnel.
    fn of_tunnel(before: &Tunnel, left: &Tunnel, right: &Tunnel) -> Result<Self, String> {
        const DOWN: &str = "the tunnel is down at the end of the demo";
        let ike = left.ike_sa.as_ref().ok_or(DOWN)?;
        let child = left.children.iter().find(|c| c.name == CHILD).ok_or(DOWN)?;
        let sa = child.child_sa.as_ref().ok_or(DOWN)?;
        let peer = right.children.iter().find(|c| c.name == CHILD).ok_or(DOWN)?;
        let peer = peer.child_sa.as_ref().ok_or(DOWN)?;
        let ike_rekeys_before = before.ike_sa.as_ref().map_or(0, |sa| sa.rekeys);
        let child_rekeys_before = before
            .children
            .iter()
            .find_map(|c| (c.name == CHILD).then(|| c.child_sa.as_ref().map_or(0, |sa| sa.rekeys)))
            .unwrap_or(0);
        Ok(Self {
            ok: false,
            ike_suite: ike.suite.clone(),
            esp_suite: sa.suite.clone(),
            mode: child.mode.clone(),
            encapsulation: sa.encapsulation.clone(),
            esp_spis: [sa.inbound_spi.clone(), sa.outbound_spi.clone()],
            packets_sent: 0,
            packets_lost: 0,
            packets_duplicated: 0,
            round_trip_median_us: 0,
            round_trip_p99_us: 0,
            tcp_bytes: 0,
            throughput_bps: 0,
            child_rekeys: sa.rekeys - child_rekeys_before.min(sa.rekeys),
            ike_rekeys: ike.rekeys - ike_rekeys_before.min(ike.rekeys),
            esp_packets: sa.packets_in + sa.packets_out,
            esp_refused: sa.refused + peer.refused,
            wire_frames: 0,
            ike_messages: 0,
            neighbour_frames: 0,
            cleartext_packets: 0,
            seconds: 0.0,
            problems: Vec::new(),
        })
    }

    /// Compares what was found with what a good tunnel does.
    fn judge(&mut self, asked: Asked) {
        let unwanted = [
            (self.packets_lost, "small packets were lost"),
            (self.packets_duplicated, "echoes came twice"),
            (self.cleartext_packets, "packets went in the clear"),
        ];
        let unwanted = unwanted.into_iter().filter(|(n, _)| *n > 0);
        self.problems.extend(unwanted.map(|(n, packets)| format!("{} {packets}", count(n))));
        let missing = [
            (self.child_rekeys < asked.child, "the Child SA was not rekeyed as asked"),
            (self.ike_rekeys < asked.ike, "the IKE SA was not rekeyed as asked"),
            // Each small packet and its echo is an ESP packet: fewer would mean that they went another way.
            (
                self.esp_packets < 2 * (self.packets_sent - self.packets_lost),
                "the SAs counted fewer packets than went through",
            ),
            (self.packets_sent == 0 || self.tcp_bytes == 0, "no traffic went through"),
        ];
        let missing = missing.into_iter().filter(|(is_missing, _)| *is_missing);
        self.problems.extend(missing.map(|(_, problem)| problem.to_owned()));
        self.ok = self.problems.is_empty();
    }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
