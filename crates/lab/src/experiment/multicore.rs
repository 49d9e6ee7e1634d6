//! The measurement of the OCTEON document: duplex traffic of packets of one length, by cipher, by number of cores, and
//! in a pipeline against run to completion; and the cost of each stage for a packet.

mod figures;
mod findings;
mod measurement;
mod mixed;
mod model;
mod prediction;
mod relay;
mod schedules;

use super::lab::{Effort, Lab};
use crate::load::datagrams::{Count, Flow, Pace};
use crate::misses::{self, Misses};
use crate::report::Report;
use crate::site::{Cipher, Mode, Net, Site, WIRE, Work};
use control::protocol::workers::Workers;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::thread::sleep;
use std::time::{Duration, Instant};
use userspace::Stage;

use measurement::{CBC, CIPHERS, COMPLETION, FLOWS, GCM, LENGTHS, MIDDLE, PIPELINE, Row, Step};
use mixed::Mixed;

/// Of IPv4 and UDP.
const HEADERS: usize = 28;
/// Packets under way in each direction: enough to keep every stage busy, and fewer than the shortest queue holds.
const UNDER_WAY: u64 = 256;

/// Measures, and writes what came out.
pub(super) fn run(lab: &Lab) -> Result<Report, String> {
    let rounds = lab.effort.pick(1, 2, 5);
    let settle = Duration::from_millis(lab.effort.pick(5, 50, 100));
    let lasting = Duration::from_millis(lab.effort.pick(30, 150, 500));
    let lengths = match lab.effort {
        Effort::Rehearsal => &[64, MIDDLE],
        _ => &LENGTHS[..],
    };
    let ciphers = match lab.effort {
        Effort::Rehearsal => &[GCM, CBC],
        _ => CIPHERS,
    };
    let mut workers = numbers(lab.machine.cores);
    if lab.effort != Effort::Full {
        // The numbers in between take more time on machines with many cores than there is.
        workers = workers.first().into_iter().chain(workers[1..].last()).copied().collect();
    }
    let nets = nets(ciphers);
    let mut site = Site::with_nets(&lab.vpnd, &nets, "")?;
    let counted = misses::are_told();
    lab.expect(
        rounds * (workers.len() * nets.len() * lengths.len() + 1) + relay::steps(lengths, rounds),
    );
    let (mut rows, mut mixed) = (Vec::new(), Vec::new());
    let most = workers.last().copied().unwrap_or(1);
    for round in 0..rounds {
        // Neither is always the first of the two.
        let mut schedules = [COMPLETION, PIPELINE];
        schedules.rotate_left(round % 2);
        for &number in &workers {
            for net in &nets {
                for &length in lengths {
                    lab.step(format!(
                        "{}, {length} octets, {number} per gateway",
                        net.cipher.name
                    ))?;
                    for schedule in schedules {
                        let workers = &number.to_string();
                        site.set_work(Work { schedule, workers, ..Work::default() })?;
                        let row = measure(&mut site, net, length, [settle, lasting], counted)?;
                        rows.push(Row { round, schedule, workers: number, ..row });
                    }
                }
            }
        }
        lab.step(format!("all ciphers at once, {MIDDLE} octets"))?;
        for schedule in schedules {
            site.set_work(Work { schedule, workers: &most.to_string(), ..Work::default() })?;
            let rates = mixed::measure(&site, &nets, MIDDLE, [settle, lasting])?;
            mixed.extend(rates.into_iter().map(|(cipher, beside_others_per_second)| Mixed {
                round,
                schedule,
                workers: most,
                cipher,
                length: MIDDLE,
                beside_others_per_second,
            }));
        }
    }
    drop(site);
    let relayed = relay::run(lab, GCM, lengths, most, rounds, [settle, lasting])?;
    let figures = figures::Figures { rows: &rows, lengths, ciphers, workers: &workers };
    let mut report = Report::new("Cores, packet lengths, ciphers and schedules");
    findings::write(&mut report, lab, &figures, (&mixed, &relayed), &lab.rounds(rounds, lasting));
    report.data(&rows);
    report.data(&mixed);
    report.data(&relayed);
    Ok(report)
}

/// Tunnels for each of these ciphers, as the document has them.
fn nets(ciphers: &[Cipher]) -> Vec<Net> {
    let net = |(number, cipher): (u8, &Cipher)| Net {
        number,
        cipher: *cipher,
        mode: Mode::Transport,
        pairs: FLOWS,
    };
    (1..).zip(ciphers).map(net).collect()
}

/// Numbers of workers: 1, 2, 4 and so on, and one for each core.
fn numbers(cores: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = std::iter::successors(Some(1), |n| Some(n * 2))
        .take_while(|n| *n < cores.min(64))
        .collect();
    numbers.push(cores.min(64));
    numbers
}

fn measure(
    site: &mut Site,
    net: &Net,
    length: usize,
    [settle, lasting]: [Duration; 2],
    counted: bool,
) -> Result<Row, String> {
    let flow = |from: usize, to: usize| {
        // The route of each target prefers the address that its tunnel is for.
        let ends = [from, to].map(|end| site.end(end, Ipv4Addr::UNSPECIFIED));
        let pace = Pace::UnderWay(UNDER_WAY);
        Flow::start(ends[0], ends[1], &net.addresses(to), length - HEADERS, pace)
    };
    let flows = [flow(0, 1)?, flow(1, 0)?];
    sleep(settle);
    let processes = [site.node(0)?.process(), site.node(1)?.process()];
    let misses = counted.then(|| Misses::start(&processes));
    let before = look(site, &flows)?;
    sleep(lasting);
    let mut after = look(site, &flows)?;
    // A machine that is busy with other things may take longer for the first.
    while after.delivered == before.delivered && before.at.elapsed() < Duration::from_secs(60) {
        sleep(Duration::from_millis(5));
        after = look(site, &flows)?;
    }
    let misses = misses.and_then(Misses::finish);
    flows.iter().for_each(Flow::stop);
    for flow in flows {
        flow.finish()?;
    }
    let delivered = (after.delivered - before.delivered) as f64;
    if delivered == 0.0 {
        return Err(format!(
            "no packet of {} arrived between {} and {}",
            net.cipher.name, WIRE[0], WIRE[1]
        ));
    }
    let sent = (after.sent - before.sent) as f64;
    let spent = after.used.since(before.used);
    let each = |time: Duration| time.as_nanos() as f64 / delivered;
    let readers = after.reader.saturating_sub(before.reader);
    let stage = |stage: Stage| {
        let [before, after] =
            [&before, &after].map(|l| l.stages.get(stage.name()).copied().unwrap_or_default());
        let batches = (after.batches - before.batches).max(1) as f64;
        let batch = (after.packets - before.packets) as f64 / batches;
        (stage.name(), Step { ns: (after.seconds - before.seconds) * 1e9 / delivered, batch })
    };
    Ok(Row {
        cipher: net.cipher.name,
        length,
        packets_per_second: delivered / (after.at - before.at).as_secs_f64(),
        // Packets that are under way at both moments make it a little uncertain.
        loss: (1.0 - delivered / sent.max(1.0)).max(0.0),
        cpu_ns: each(spent.daemons[0] + spent.daemons[1]),
        reader_ns: each(readers),
        traffic_ns: each(spent.traffic),
        cache_misses: misses.map(|misses| misses as f64 / delivered),
        wakeups: after.wakeups.saturating_sub(before.wakeups) as f64 * 1e3 / delivered,
        stages: Stage::ALL.into_iter().map(stage).collect(),
        ..Row::default()
    })
}

/// Everything at one moment, of both daemons together.
struct Look {
    at: Instant,
    sent: u64,
    delivered: u64,
    used: crate::site::Used,
    reader: Duration,
    wakeups: u64,
    stages: BTreeMap<String, Passed>,
}

#[derive(Clone, Copy, Default)]
struct Passed {
    batches: u64,
    packets: u64,
    seconds: f64,
}

fn look(site: &mut Site, flows: &[Flow; 2]) -> Result<Look, String> {
    let workers: [Workers; 2] = [site.workers(0)?, site.workers(1)?];
    let used = site.used()?;
    let counts = flows.each_ref().map(Flow::count);
    let sum = |of: fn(&Count) -> u64| counts.iter().map(of).sum();
    let mut look = Look {
        at: Instant::now(),
        sent: sum(|c| c.sent),
        delivered: sum(|c| c.received),
        used,
        reader: Duration::ZERO,
        wakeups: 0,
        stages: BTreeMap::new(),
    };
    for thread in workers.iter().flat_map(|w| &w.threads) {
        look.wakeups += thread.wakeups.unwrap_or(0);
        if thread.role == "reader" {
            look.reader += Duration::from_secs_f64(thread.cpu_seconds.unwrap_or(0.0).max(0.0));
        }
    }
    for stage in workers.iter().flat_map(|w| &w.stages) {
        let passed = look.stages.entry(stage.passed.stage.clone()).or_default();
        passed.batches += stage.passed.batches;
        passed.packets += stage.passed.packets;
        passed.seconds += stage.passed.busy_seconds;
    }
    Ok(look)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::policies;

    #[test]
    fn every_cipher_makes_a_policy() {
        let nets = nets(CIPHERS);
        for text in policies(&nets) {
            let policy = ::policy::xml::read("policy.xml", &text).expect("no errors").policy;
            assert_eq!(policy.tunnels.len(), CIPHERS.len() * usize::from(FLOWS));
        }
        let mut addresses: Vec<Ipv4Addr> =
            nets.iter().flat_map(|net| [0, 1].map(|end| net.addresses(end))).flatten().collect();
        addresses.extend(WIRE);
        let all = addresses.len();
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), all, "no two are alike");
    }

    #[test]
    fn workers_go_up_to_the_cores() {
        assert_eq!(numbers(1), [1]);
        assert_eq!(numbers(2), [1, 2]);
        assert_eq!(numbers(6), [1, 2, 4, 6]);
        assert_eq!(numbers(16), [1, 2, 4, 8, 16]);
        assert_eq!(numbers(200).last(), Some(&64));
    }
}
