//! Handshakes as the System z document has them: how many per second with 1 to 32 in parallel, and how much of the
//! machine they take, with a preshared key and with certificates.

mod certificates;
mod key;
mod sessions;
mod token;
mod wave;

pub(super) use token::is_available as has_token;

use super::lab::{Effort, Lab};
use super::software::Sites;
use super::sources::system_z;
use crate::load::processor::{self, Split, Ticks};
use crate::plot::{Axis, Panel, Plot, Series, Style};
use crate::report::Report;
use crate::site::{Authentication, Site, Tunnels};
use crate::statistics::{Spread, percentile};
use crate::table::Table;
use control::client::Client;
use control::protocol::{Command as Ask, Reply};
use serde::Serialize;
use std::time::{Duration, Instant};
use wave::Asking;

const PARALLEL: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// One measurement.
#[derive(Clone, Debug, Serialize)]
struct Row {
    round: usize,
    authentication: &'static str,
    parallel: usize,
    handshakes: usize,
    seconds: f64,
    /// Processor time of the initiator and of the responder.
    cpu_seconds: [f64; 2],
    /// Shares of the whole machine's time in programs, in the kernel, and idle.
    split: Split,
    p50_ms: f64,
    p99_ms: f64,
}

impl Row {
    fn rate(&self) -> f64 {
        self.handshakes as f64 / self.seconds
    }

    /// Milliseconds of processor time of both for one.
    fn cost(&self) -> f64 {
        (self.cpu_seconds[0] + self.cpu_seconds[1]) * 1e3 / self.handshakes as f64
    }
}

/// Measures, and writes what came out.
pub(super) fn run(lab: &Lab) -> Result<Report, String> {
    let rounds = lab.effort.pick(1, 2, 5);
    let lasting = Duration::from_millis(lab.effort.pick(50, 500, 1_000));
    let parallel = match lab.effort {
        Effort::Rehearsal => &PARALLEL[2..3],
        _ => &PARALLEL[..],
    };
    let most = parallel.last().copied().unwrap_or(1);
    // The tunnels of a wave.
    let number = lab.effort.pick(6, 60, 240);
    let has_token = has_token();
    let can = |kind: &Authentication| *kind != Authentication::RsaToken || has_token;
    let kinds: Vec<Authentication> = Authentication::ALL.into_iter().filter(can).collect();
    let all: Vec<Tunnels> =
        kinds.iter().map(|&authentication| Tunnels { authentication, number }).collect();
    let directory = certificates::write(&all)?;
    // Both daemons are shown all of it; each finds what is its own.
    let mut config = format!("[certificates]\ndirectory = {:?}\n", directory.display().to_string());
    if has_token {
        config += &token::config();
    }
    let policies = Tunnels::policies(&all);
    let by_rsa = &all[Authentication::Rsa2048 as usize];
    let mut sites = Sites::new(|site| {
        let mut site = site.with_environment(token::ENVIRONMENT);
        site.start(&lab.vpnd, &policies, &config)?;
        // So that no measured handshake is the first of a daemon.
        let mut ask: Asking<'_> = Box::new(|ask| site.ask(0, ask));
        up(&mut ask, &all[0].name(0))?;
        let first = Tunnels { number: 1, ..all[0] };
        wave::delete(&mut ask, &first)?;
        drop(ask);
        for end in [0, 1] {
            site.give(end, (0..number).map(|n| by_rsa.behind(n, end)).collect())?;
        }
        Ok(site)
    })?;
    let site = &mut sites.usual;
    // Kept for the whole time: a daemon takes no more than 32 clients, and closed ones go in its own time.
    let mut clients: Vec<Client> =
        (1..most).map(|_| site.node(0).and_then(|node| node.client())).collect::<Result<_, _>>()?;
    lab.expect(rounds * all.len() * parallel.len() + sessions::steps(rounds));
    let mut rows = Vec::new();
    for round in 0..rounds {
        for tunnels in &all {
            for &number in parallel {
                lab.step(format!("{}, {number} in parallel", tunnels.authentication.name()))?;
                let row = measure(site, &mut clients, tunnels, number, lasting)?;
                rows.push(Row { round, ..row });
            }
        }
    }
    let sessions = sessions::run(lab, &mut sites, &mut clients, by_rsa, rounds, lasting * 2)?;
    let figures = Figures { rows: &rows, parallel, kinds: &kinds, wave: number };
    let mut report = Report::new("IKE handshakes");
    write(&mut report, lab, &figures, &lab.rounds(rounds, lasting));
    sessions::write(&mut report, &sessions, lab.machine.cores);
    report.data(&rows);
    report.data(&sessions);
    Ok(report)
}

/// Sets a tunnel up.
fn up(ask: &mut Asking<'_>, name: &str) -> Result<(), String> {
    match ask(Ask::Activate { names: vec![name.to_owned()] })? {
        Reply::Activations(activations) if activations.iter().all(|a| a.up) => Ok(()),
        Reply::Activations(activations) => {
            let why = activations.into_iter().find_map(|a| a.failure);
            let why = why.map_or_else(|| "no reason is told".to_owned(), |failure| failure.message);
            Err(format!("the tunnel {name} did not come up: {why}"))
        }
        reply => Err(format!("an unexpected reply: {reply:?}")),
    }
}

/// Commands over a client's connection.
fn over(client: &mut Client) -> Asking<'_> {
    Box::new(|ask| client.ask(ask).map_err(|error| error.to_string()))
}

/// Measures waves until they have taken so long.
fn measure(
    site: &mut Site,
    clients: &mut [Client],
    tunnels: &Tunnels,
    parallel: usize,
    lasting: Duration,
) -> Result<Row, String> {
    let processes = [site.node(0)?.process(), site.node(1)?.process()];
    let used = || {
        let [initiator, responder] = processes.map(processor::used);
        Ok::<_, String>([initiator?, responder?])
    };
    let node = site.node(0)?;
    let mut connections: Vec<Asking<'_>> = vec![Box::new(|ask| node.ask(ask))];
    connections.extend(clients.iter_mut().take(parallel - 1).map(over));
    let timed = |ask: &mut Asking<'_>, n| {
        let begun = Instant::now();
        up(ask, &tunnels.name(n))?;
        Ok(begun.elapsed())
    };
    let (mut times, mut lasted) = (Vec::new(), Duration::ZERO);
    let (mut spent, mut passed) = ([Duration::ZERO; 2], Ticks::default());
    while lasted < lasting {
        let (before, machine, begun) = (used()?, processor::machine()?, Instant::now());
        times.extend(wave::run(&mut connections, tunnels, timed)?);
        lasted += begun.elapsed();
        passed = passed + processor::machine()?.since(machine);
        let after = used()?;
        for end in [0, 1] {
            spent[end] += after[end].saturating_sub(before[end]);
        }
        wave::delete(&mut connections[0], tunnels)?;
    }
    times.sort_unstable();
    let ms: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    let at = |share| percentile(&ms, share).ok_or("a wave without tunnels");
    Ok(Row {
        round: 0,
        authentication: tunnels.authentication.name(),
        parallel,
        handshakes: times.len(),
        seconds: lasted.as_secs_f64(),
        cpu_seconds: spent.map(|time| time.as_secs_f64()),
        split: Split::of(passed),
        p50_ms: at(0.5)?,
        p99_ms: at(0.99)?,
    })
}

/// The measurements, and statistics over them.
struct Figures<'a> {
    rows: &'a [Row],
    parallel: &'a [usize],
    kinds: &'a [Authentication],
    /// The number of tunnels that are set up in a row.
    wave: u8,
}

impl Figures<'_> {
    fn spread(
        &self,
        of: Authentication,
        parallel: usize,
        figure: impl Fn(&Row) -> f64,
    ) -> Option<Spread> {
        let fits = |row: &&Row| row.authentication == of.name() && row.parallel == parallel;
        Spread::of(self.rows.iter().filter(fits).map(figure))
    }

    /// A figure by that of other conditions, round by round.
    fn ratio(
        &self,
        of: (Authentication, usize),
        by: (Authentication, usize),
        figure: fn(&Row) -> f64,
    ) -> Option<Spread> {
        let rows = |(of, parallel): (Authentication, usize)| {
            let fits =
                move |row: &&Row| row.authentication == of.name() && row.parallel == parallel;
            self.rows.iter().filter(fits)
        };
        let pairs = rows(of).filter_map(|row| {
            let other = rows(by).find(|other| other.round == row.round)?;
            Some(figure(row) / figure(other))
        });
        Spread::of(pairs)
    }

    fn median(&self, of: Authentication, parallel: usize, figure: impl Fn(&Row) -> f64) -> f64 {
        self.spread(of, parallel, figure).map_or(0.0, |spread| spread.median)
    }

    fn panel(&self, label: &str, figure: impl Fn(&Row) -> f64 + Copy) -> Panel {
        Panel {
            caption: String::new(),
            x: Axis::steps("handshakes in parallel", self.parallel),
            y: Axis::linear(label),
            series: [0, 2, 1, 3]
                .into_iter()
                .zip(self.kinds.iter().copied())
                .map(|(colour, authentication)| {
                    let at =
                        |n: &usize| Some((*n as f64, self.spread(authentication, *n, figure)?));
                    let points = self.parallel.iter().filter_map(at).collect();
                    Series {
                        name: authentication.name().to_owned(),
                        style: Style::solid(colour),
                        points,
                    }
                })
                .collect(),
            mark: None,
        }
    }
}

fn write(report: &mut Report, lab: &Lab, figures: &Figures<'_>, rounds: &str) {
    let cores = lab.machine.cores as f64;
    report.say(format!(
        "The document measured SSL handshakes with 1 to 32 connections in parallel, with the public-key work in software and \
         in an accelerator (Crypto Express2). Here two `vpnd` on one machine with {cores} cores set up {} tunnels in a row, so \
         many at a time: IKE_SA_INIT with X25519, and IKE_AUTH with the Child SA, installed in the data plane of both. The \
         tunnels are deleted together, outside the measured time: a gateway waits for packets that are still on their way \
         before it answers a Delete. Both daemons share the cores; rates are of both together. Certificates have one \
         authority above them. {rounds}",
        figures.wave,
    ));
    report.section("Rate");
    report.plot(
        "rate",
        &Plot {
            title: "Handshakes per second".to_owned(),
            quote: system_z::HANDSHAKES.to_string(),
            panels: vec![figures.panel("handshakes/s", Row::rate)],
            columns: 1,
        },
    );
    let most = figures.parallel.last().copied().unwrap_or(1);
    let first = figures.parallel.first().copied().unwrap_or(1);
    let gains: Vec<String> = figures
        .kinds
        .iter()
        .map(|a| {
            let gain = figures.ratio((*a, most), (*a, first), Row::rate);
            format!(
                "{}: {} times",
                a.name(),
                gain.map_or("–".to_owned(), |gain| gain.show_ratio(1))
            )
        })
        .collect();
    report.headline(format!(
        "Handshakes per second with {most} in parallel, relative to one by one: {}. One by one, the ends wait for each \
         other; in parallel, signatures and their verification run on as many threads as there are cores.",
        gains.join(", "),
    ));
    report.section("CPU");
    report.plot(
        "cpu",
        &Plot {
            title: "CPU of handshakes".to_owned(),
            quote: system_z::HANDSHAKES_CPU.to_string(),
            panels: vec![
                figures.panel("share of the machine (%)", move |row: &Row| {
                    (row.cpu_seconds[0] + row.cpu_seconds[1]) * 100.0 / row.seconds / cores
                }),
                figures.panel("CPU per handshake, both ends (ms)", Row::cost),
            ],
            columns: 2,
        },
    );
    report.plot(
        "split",
        &Plot {
            title: "CPU of the whole machine during handshakes: user, system, idle".to_owned(),
            quote: system_z::HANDSHAKES_CPU.to_string(),
            panels: vec![
                figures.panel("user (% of the machine)", |row: &Row| row.split.user * 100.0),
                figures.panel("system (% of the machine)", |row: &Row| row.split.system * 100.0),
                figures.panel("idle (% of the machine)", |row: &Row| row.split.idle * 100.0),
            ],
            columns: 3,
        },
    );
    report.say(
        "User, system and idle are those of `/proc/stat`, with everything that runs on the machine: both daemons and the clients \
         that command them. System has the interrupts, too.",
    );
    let [ecdsa, rsa] = [Authentication::EcdsaP256, Authentication::Rsa2048].map(|with| {
        let without = (Authentication::PresharedKey, most);
        let rest = figures.ratio(without, (with, most), Row::cost);
        rest.map_or("–".to_owned(), |rest| rest.complement().times(100.0).show(0))
    });
    report.say(format!(
        "There is no accelerator for public-key operations here, nor a driver for one: it could save at most the \
         difference in cost between certificates and a preshared key. At {most} in parallel that is {ecdsa} % of a \
         handshake with ECDSA and {rsa} % with RSA.",
    ));
    report.say(match figures.kinds.contains(&Authentication::RsaToken) {
        true => {
            "\"In a token\" is SoftHSM's: software behind the interface that hardware has (PKCS#11), in the same process. The \
             difference to RSA with keys in files is the cost of that interface and of its library, not that of hardware."
        }
        false => "Keys in a token were not measured: SoftHSM is not installed.",
    });
    report.section("Time until a tunnel is up");
    report.plot("time", &Plot {
        title: "Time until a tunnel is up".to_owned(),
        quote: "From the command to the answer that the tunnel is up; the document has no such figure.".to_owned(),
        panels: vec![
            figures.panel("median (ms)", |row: &Row| row.p50_ms),
            figures.panel("99th percentile (ms)", |row: &Row| row.p99_ms),
        ],
        columns: 2,
    });
    report.section("All figures");
    let mut table = Table::new([
        "authentication",
        "in parallel",
        "handshakes/s",
        "initiator CPU ms",
        "responder CPU ms",
        "CPU share %",
        "user / system / idle %",
        "p50 ms",
        "p99 ms",
    ]);
    for &authentication in figures.kinds {
        for &n in figures.parallel {
            let middle = |digits: usize, of: &dyn Fn(&Row) -> f64| {
                format!("{:.digits$}", figures.median(authentication, n, of))
            };
            let rate = figures.spread(authentication, n, Row::rate);
            table.row([
                authentication.name().to_owned(),
                n.to_string(),
                rate.map_or_else(|| "–".to_owned(), |rate| rate.show(0)),
                middle(2, &|row| row.cpu_seconds[0] * 1e3 / row.handshakes as f64),
                middle(2, &|row| row.cpu_seconds[1] * 1e3 / row.handshakes as f64),
                middle(0, &|row| {
                    (row.cpu_seconds[0] + row.cpu_seconds[1]) * 100.0 / row.seconds / cores
                }),
                format!(
                    "{} / {} / {}",
                    middle(0, &|row| row.split.user * 100.0),
                    middle(0, &|row| row.split.system * 100.0),
                    middle(0, &|row| row.split.idle * 100.0),
                ),
                middle(2, &|row| row.p50_ms),
                middle(2, &|row| row.p99_ms),
            ]);
        }
    }
    report.table(&table);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_are_compared_round_by_round() {
        let row = |round, authentication: Authentication, parallel, cpu| Row {
            round,
            authentication: authentication.name(),
            parallel,
            handshakes: 100 * parallel,
            seconds: 1.0,
            cpu_seconds: [cpu, 0.0],
            split: Split { user: 0.5, system: 0.3, idle: 0.2 },
            p50_ms: 1.0,
            p99_ms: 2.0,
        };
        let [key, rsa] = [Authentication::PresharedKey, Authentication::Rsa2048];
        let rows = [
            row(0, key, 1, 1.0),
            row(0, key, 2, 1.0),
            row(0, rsa, 2, 2.0),
            row(1, key, 2, 3.0),
            row(1, rsa, 2, 4.0),
        ];
        let figures = Figures { rows: &rows, parallel: &[1, 2], kinds: &[key, rsa], wave: 240 };
        let gain = figures.ratio((key, 2), (key, 1), Row::rate).expect("measured");
        assert_eq!([gain.low, gain.high], [2.0, 2.0]);
        let cost = figures.ratio((key, 2), (rsa, 2), Row::cost).expect("measured");
        assert_eq!([cost.low, cost.high], [0.5, 0.75]);
        let saved = cost.complement();
        assert_eq!([saved.low, saved.high], [0.25, 0.5]);
        assert_eq!(figures.ratio((rsa, 1), (rsa, 2), Row::rate), None);
    }
}
