//! Three hosts: a gateway in the middle opens packets of one tunnel, looks them up, and seals them for another.

use super::figures::{Case, Figures, SCHEDULES};
use super::measurement::{FLOWS, Row, THREE};
use super::{HEADERS, UNDER_WAY};
use crate::experiment::lab::Lab;
use crate::experiment::sources::octeon;
use crate::load::PATIENCE;
use crate::load::datagrams::{Flow, Pace};
use crate::plot::{Axis, Panel, Plot, Series, Style};
use crate::report::Report;
use crate::site::{Cipher, Mode, Net, Relay, Work};
use crate::statistics::Spread;
use crate::table::Table;
use serde::Serialize;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Relayed {
    round: usize,
    schedule: &'static str,
    workers: usize,
    cipher: &'static str,
    length: usize,
    /// Delivered in both directions together, in a second.
    relayed_per_second: f64,
    /// Of the gateway in the middle, for one packet delivered, nanoseconds.
    gateway_ns: f64,
}

impl Relayed {
    fn gbits(&self) -> f64 {
        self.relayed_per_second * self.length as f64 * 8.0 / 1e9
    }
}

/// Measures each schedule with the most workers, at three lengths, or at those of them that the lab measures at all.
pub(super) fn run(
    lab: &Lab,
    cipher: Cipher,
    lengths: &[usize],
    workers: usize,
    rounds: usize,
    times: [Duration; 2],
) -> Result<Vec<Relayed>, String> {
    let net = Net { number: 1, cipher, mode: Mode::Tunnel, pairs: FLOWS };
    let mut relay = Relay::new(&lab.vpnd, net)?;
    let mut rows = Vec::new();
    for round in 0..rounds {
        for length in THREE.into_iter().filter(|length| lengths.contains(length)) {
            lab.step(format!("{}, {length} octets, three hosts", cipher.name))?;
            for (schedule, _) in SCHEDULES {
                let work = Work { schedule, workers: &workers.to_string(), ..Work::default() };
                relay.set_work(work)?;
                let (relayed_per_second, gateway_ns) = measure(&relay, &net, length, times)?;
                let cipher = cipher.name;
                let row = Relayed {
                    round,
                    schedule,
                    workers,
                    cipher,
                    length,
                    relayed_per_second,
                    gateway_ns,
                };
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

/// The number of steps of [`run`].
pub(super) fn steps(lengths: &[usize], rounds: usize) -> usize {
    rounds * THREE.iter().filter(|length| lengths.contains(length)).count()
}

/// Packets a second, and the cost of each at the gateway.
fn measure(
    relay: &Relay,
    net: &Net,
    length: usize,
    [settle, lasting]: [Duration; 2],
) -> Result<(f64, f64), String> {
    let flow = |from: usize, to: usize| {
        let ends = [from, to].map(|end| relay.end(end));
        let pace = Pace::UnderWay(UNDER_WAY);
        Flow::start(ends[0], ends[1], &net.addresses(to), length - HEADERS, pace)
    };
    let flows = [flow(0, 1)?, flow(1, 0)?];
    let delivered = || flows.iter().map(|flow| flow.count().received).sum::<u64>();
    sleep(settle);
    let (used, before, begun) = (relay.used()?, delivered(), Instant::now());
    sleep(lasting);
    // On a busy host, nothing may have arrived yet.
    while delivered() == before && begun.elapsed() < PATIENCE {
        sleep(Duration::from_millis(5));
    }
    let packets = (delivered() - before) as f64;
    let (seconds, used) = (begun.elapsed().as_secs_f64(), relay.used()?.saturating_sub(used));
    flows.iter().for_each(Flow::stop);
    for flow in flows {
        flow.finish()?;
    }
    if packets == 0.0 {
        return Err(format!("no packet of {} passed the gateway in the middle", net.cipher.name));
    }
    Ok((packets / seconds, used.as_nanos() as f64 / packets))
}

pub(super) fn write(report: &mut Report, figures: &Figures<'_>, rows: &[Relayed]) {
    let Some(first) = rows.first() else { return };
    let (cipher, workers) = (first.cipher, first.workers);
    let spread = |schedule: &str, length, of: &dyn Fn(&Relayed) -> f64| {
        let fits = |row: &&Relayed| row.schedule == schedule && row.length == length;
        Spread::of(rows.iter().filter(fits).map(of))
    };
    let mut lengths: Vec<usize> = rows.iter().map(|row| row.length).collect();
    lengths.sort_unstable();
    lengths.dedup();
    report.section("A gateway between two tunnels");
    let panel = |label: &str, of: fn(&Relayed) -> f64| Panel {
        caption: String::new(),
        x: Axis::steps("packet length (octets)", &lengths),
        y: Axis::linear(label),
        series: SCHEDULES
            .into_iter()
            .map(|(schedule, dashed)| Series {
                name: schedule.to_owned(),
                style: Style { colour: usize::from(dashed), dashed },
                points: lengths
                    .iter()
                    .filter_map(|length| Some((*length as f64, spread(schedule, *length, &of)?)))
                    .collect(),
            })
            .collect(),
        mark: None,
    };
    report.plot(
        "relay",
        &Plot {
            title: format!("{cipher}, a gateway between two tunnels"),
            quote: octeon::RELAY.to_string(),
            panels: vec![
                panel("throughput (Gbit/s)", Relayed::gbits),
                panel("CPU of the gateway (ns per packet)", |row| row.gateway_ns),
            ],
            columns: 2,
        },
    );
    let show = |spread: Option<Spread>, digits| {
        spread.map_or_else(|| "–".to_owned(), |spread| spread.show(digits))
    };
    let mut table = Table::new([
        "octets",
        "schedule",
        "packets/s",
        "Gbit/s",
        "gateway CPU, ns per packet",
        "two hosts, packets/s",
    ]);
    for length in &lengths {
        for (schedule, _) in SCHEDULES {
            let case = Case { cipher, schedule, workers, length: *length };
            table.row([
                length.to_string(),
                schedule.to_owned(),
                show(spread(schedule, *length, &|row| row.relayed_per_second), 0),
                show(spread(schedule, *length, &Relayed::gbits), 2),
                show(spread(schedule, *length, &|row| row.gateway_ns), 0),
                show(figures.spread(case, |row: &Row| row.packets_per_second), 0),
            ]);
        }
    }
    report.table(&table);
    report.say(format!(
        "Three hosts on this machine, in tunnel mode: the one in the middle opens each packet, its kernel looks up the route, and \
         it seals the packet for the other tunnel. {} This measurement is not the document's. The three daemons, the generator and the sink share the cores; the CPU of \
         the gateway by itself says how much one that has them alone would carry. Beside it are the packets that pass between \
         two hosts under the same conditions, in transport mode: each of those is sealed once and opened once.",
        octeon::RELAY
    ));
}
