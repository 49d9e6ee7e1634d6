//! The measures of a VPN that is up.

use crate::load::{datagrams, echoes};
use crate::vpn::Running;
use benchkit::{Host, Placement, Wire};
use lab::load::End;
use lab::load::streams::Streams;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// A measure of a VPN.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// One stream of TCP: Mbit/s, the VPN's CPU seconds per gigabyte, and its memory
    Tcp1,
    /// Four streams
    Tcp4,
    /// One stream in either direction at once, their sum
    Both,
    /// UDP of 64 octets: packets/s at less than 1 % loss
    Udp64,
    /// UDP of 512 octets
    Udp512,
    /// UDP of 1400 octets
    Udp1400,
    /// UDP of 1300 octets to very many addresses in turn
    Spread,
    /// Round trips of an idle tunnel, µs
    Ping,
    /// Round trips beside one stream of TCP, µs
    PingLoaded,
}

/// One figure, of one VPN in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub vpn: String,
    pub wire: Wire,
    pub placement: Placement,
    pub round: u32,
    /// The measure, and which of its figures.
    pub figure: String,
    pub value: f64,
}

/// A VPN that is up, and how it is measured.
pub struct Subject<'a> {
    pub hosts: &'a [Host; 2],
    pub running: &'a Running,
    /// Addresses behind the right end that datagrams go to in turn.
    pub targets: &'a [Ipv4Addr],
    pub lasting: Duration,
    /// A figure of it in an earlier round.
    pub earlier: &'a dyn Fn(&str) -> Option<f64>,
}

/// Streams take this long to find their speed.
const SETTLE: Duration = Duration::from_millis(400);
/// Between two echoes.
const INTERVAL: Duration = Duration::from_millis(2);
/// Steps of the search for a rate.
const STEPS: usize = 8;
/// How long each takes.
const STEP: Duration = Duration::from_millis(400);
/// Searches of a round where two VPNs differ by less than one search from the next.
const SEARCHES: usize = 3;
/// The search ends when the rate is known so well.
const CLOSE: f64 = 1.04;
/// The most that may be lost.
const LOSS: f64 = 0.01;

/// Name of a figure and its value.
type Figures = Vec<(&'static str, f64)>;

/// The end of traffic behind a host's end of the tunnel.
fn end(host: &Host) -> End<'_> {
    End { space: &host.space, address: host.inner }
}

impl Subject<'_> {
    /// Takes one measurement.
    pub fn measure(&self, what: Measure) -> Result<Figures, String> {
        let [left, right] = self.hosts;
        match what {
            Measure::Tcp1 => {
                let streams = [Streams::start(end(left), end(right), 1)?];
                let [speed, cpu] = self.speed(&streams)?;
                let memory = self.running.memory_kb() as f64;
                Ok(vec![("tcp1", speed), ("cpu", cpu), ("memory", memory)])
            }
            Measure::Tcp4 => {
                let streams = [Streams::start(end(left), end(right), 4)?];
                let [speed, cpu] = self.speed(&streams)?;
                Ok(vec![("tcp4", speed), ("cpu4", cpu)])
            }
            Measure::Both => {
                let streams = [
                    Streams::start(end(left), end(right), 1)?,
                    Streams::start(end(right), end(left), 1)?,
                ];
                let [speed, cpu] = self.speed(&streams)?;
                Ok(vec![("both", speed), ("cpu-both", cpu)])
            }
            Measure::Udp64 => self.search("udp64", 64),
            Measure::Udp512 => self.search("udp512", 512),
            Measure::Udp1400 => self.search("udp1400", 1400),
            // Longer ones exceed the device's MTU with their headers, and leave in fragments.
            Measure::Spread => {
                let found = (0..SEARCHES).map(|_| self.search("spread", 1300));
                let mut found: Vec<f64> = found.flatten().flatten().map(|(_, rate)| rate).collect();
                found.sort_by(f64::total_cmp);
                let median = found.get(found.len() / 2).copied();
                Ok(vec![("spread", median.ok_or("too much is lost at any rate")?)])
            }
            Measure::Ping => {
                let [p50, p99] = self.round_trips()?;
                Ok(vec![("ping-p50", p50), ("ping-p99", p99)])
            }
            Measure::PingLoaded => {
                let _streams = Streams::start(end(left), end(right), 1)?;
                std::thread::sleep(SETTLE);
                let [p50, p99] = self.round_trips()?;
                Ok(vec![("loaded-p50", p50), ("loaded-p99", p99)])
            }
        }
    }

    /// Mbit/s of all streams together, and the VPN's CPU seconds per gigabyte.
    fn speed(&self, streams: &[Streams]) -> Result<[f64; 2], String> {
        std::thread::sleep(SETTLE);
        let look = || {
            let received = streams.iter().map(Streams::received).sum::<u64>();
            Ok::<_, String>((received, self.running.used()?, Instant::now()))
        };
        let before = look()?;
        std::thread::sleep(self.lasting);
        let after = look()?;
        let octets = (after.0 - before.0) as f64;
        let seconds = (after.2 - before.2).as_secs_f64();
        let cpu = after.1.saturating_sub(before.1).as_secs_f64();
        if octets == 0.0 {
            return Err("no octet arrived".into());
        }
        Ok([octets * 8.0 / seconds / 1e6, cpu / (octets / 1e9)])
    }

    /// The highest rate of datagrams of which less than one in a hundred is lost, per second.
    fn search(&self, figure: &'static str, octets: usize) -> Result<Figures, String> {
        let [left, right] = self.hosts;
        let at = |rate| datagrams(left, right, self.targets, octets, rate, STEP);
        let flood = at(None)?;
        if flood.loss() < LOSS {
            return Ok(vec![(figure, flood.delivered())]);
        }
        let (mut low, mut high) = (None, flood.offered() * 1.05);
        // The rate of an earlier round, or else the flood's rate of delivery, is near to the result.
        let mut rate = (self.earlier)(figure).unwrap_or(flood.delivered()).max(1_000.0);
        let mut best = 0.0_f64;
        for _ in 0..STEPS {
            let found = at(Some(rate))?;
            if found.loss() < LOSS {
                best = best.max(found.delivered());
                low = Some(rate);
                if found.offered() < rate * 0.9 {
                    break;
                }
            } else {
                high = rate;
            }
            rate = match low {
                None => high / 1.5,
                Some(low) if high / low < CLOSE => break,
                Some(low) => f64::min(low * 1.3, (low + high) / 2.0),
            };
        }
        if best == 0.0 {
            return Err(format!("{figure}: more than one in a hundred is lost at any rate"));
        }
        Ok(vec![(figure, best)])
    }

    /// Median and the 99th percentile, µs.
    fn round_trips(&self) -> Result<[f64; 2], String> {
        let number = (self.lasting.as_millis() / INTERVAL.as_millis()).min(1_000) as u16;
        let trips = echoes(&self.hosts[0], &self.hosts[1], number, INTERVAL)?;
        let at = |percent: usize| {
            let trip = trips.get((trips.len() * percent / 100).min(trips.len().saturating_sub(1)));
            trip.map(|trip| trip.as_secs_f64() * 1e6).ok_or("no echo came back")
        };
        Ok([at(50)?, at(99)?])
    }
}
