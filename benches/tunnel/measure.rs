//! What is measured of a VPN that is up.

use crate::load::{Datagrams, Streams, datagrams, echoes};
use crate::vpn::Running;
use crate::wire::{Host, Placement, Wire};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// What can be measured.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// One stream of TCP: Mbit/s, and the VPN's CPU seconds per gigabyte
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
    /// What it is: the measure, and which of its figures.
    pub figure: String,
    pub value: f64,
}

/// Streams take this long to find their speed.
const SETTLE: Duration = Duration::from_millis(700);
/// Between two echoes.
const INTERVAL: Duration = Duration::from_millis(2);
/// Steps of the search for a rate.
const STEPS: usize = 8;
/// How long each takes.
const STEP: Duration = Duration::from_millis(600);
/// The search ends when the rate is known so well.
const CLOSE: f64 = 1.04;
/// The most that may be lost.
const LOSS: f64 = 0.01;

/// Name of a figure and its value.
type Figures = Vec<(&'static str, f64)>;

pub fn measure(
    what: Measure,
    hosts: &[Host; 2],
    running: &Running,
    lasting: Duration,
) -> Result<Figures, String> {
    let [left, right] = hosts;
    match what {
        Measure::Tcp1 => {
            let streams = [Streams::start(left, right, 1)?];
            let [speed, cpu] = speed(&streams, running, lasting)?;
            Ok(vec![("tcp1", speed), ("cpu", cpu), ("memory", running.memory_kb() as f64)])
        }
        Measure::Tcp4 => {
            let streams = [Streams::start(left, right, 4)?];
            let [speed, cpu] = speed(&streams, running, lasting)?;
            Ok(vec![("tcp4", speed), ("cpu4", cpu)])
        }
        Measure::Both => {
            let streams = [Streams::start(left, right, 1)?, Streams::start(right, left, 1)?];
            let [speed, _] = speed(&streams, running, lasting)?;
            Ok(vec![("both", speed)])
        }
        Measure::Udp64 => Ok(vec![("udp64", search(hosts, 64)?)]),
        Measure::Udp512 => Ok(vec![("udp512", search(hosts, 512)?)]),
        Measure::Udp1400 => Ok(vec![("udp1400", search(hosts, 1400)?)]),
        Measure::Ping => {
            let [p50, p99] = round_trips(hosts, lasting)?;
            Ok(vec![("ping-p50", p50), ("ping-p99", p99)])
        }
        Measure::PingLoaded => {
            let _streams = Streams::start(left, right, 1)?;
            std::thread::sleep(SETTLE);
            let [p50, p99] = round_trips(hosts, lasting)?;
            Ok(vec![("loaded-p50", p50), ("loaded-p99", p99)])
        }
    }
}

/// Mbit/s of all streams together, and the VPN's CPU seconds per gigabyte.
fn speed(streams: &[Streams], running: &Running, lasting: Duration) -> Result<[f64; 2], String> {
    std::thread::sleep(SETTLE);
    let look = || {
        Ok::<_, String>((
            streams.iter().map(Streams::received).sum::<u64>(),
            running.used()?,
            Instant::now(),
        ))
    };
    let before = look()?;
    std::thread::sleep(lasting);
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
fn search(hosts: &[Host; 2], octets: usize) -> Result<f64, String> {
    let [left, right] = hosts;
    let at = |rate, lasting| datagrams(left, right, &[right.inner], octets, rate, lasting);
    let flood = at(None, 2 * STEP)?;
    if flood.loss() < LOSS {
        return Ok(flood.delivered());
    }
    let (mut low, mut high) = (1_000.0, flood.offered().max(20_000.0) * 1.05);
    let mut best = 0.0_f64;
    for _ in 0..STEPS {
        let rate = if high / low > 4.0 { f64::sqrt(low * high) } else { (low + high) / 2.0 };
        let found: Datagrams = at(Some(rate), STEP)?;
        if found.loss() < LOSS {
            best = best.max(found.delivered());
            low = rate;
            if found.offered() < rate * 0.9 {
                break;
            }
        } else {
            high = rate;
        }
        if high / low < CLOSE {
            break;
        }
    }
    Ok(best)
}

/// Median and the 99th percentile, µs.
fn round_trips(hosts: &[Host; 2], lasting: Duration) -> Result<[f64; 2], String> {
    let number = (lasting.as_millis() / INTERVAL.as_millis()).min(1_000) as u16;
    let trips = echoes(&hosts[0], &hosts[1], number, INTERVAL)?;
    let at = |percent: usize| {
        let trip = trips.get((trips.len() * percent / 100).min(trips.len().saturating_sub(1)));
        trip.map(|trip| trip.as_secs_f64() * 1e6).ok_or("no echo came back")
    };
    Ok([at(50)?, at(99)?])
}

/// Datagrams per second that arrive of a flood to all these addresses in turn.
pub fn spread(hosts: &[Host; 2], targets: &[Ipv4Addr], lasting: Duration) -> Result<f64, String> {
    Ok(datagrams(&hosts[0], &hosts[1], targets, 1400, None, lasting)?.delivered())
}
