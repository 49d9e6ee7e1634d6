//! Traffic through a tunnel between two namespaces of this machine, beside the other VPNs in userspace.
//!
//! `cargo bench --bench tunnel -- --help`. Needs root, `/dev/net/tun`, `ip`, `ethtool` and `ping`; the other VPNs are
//! installed by `benches/tunnel/peers.sh`, and left out where they are not there. Figures compare within a run only:
//! all take turns in it.

mod goals;
mod load;
mod measure;
mod packet;
mod pictures;
mod plan;
mod record;
mod report;
mod vpn;

use benchkit::{Placement, Wire};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use lab::machine::Machine;
use measure::{Measure, Subject};
use plan::Part;
use record::{Clock, Record};
use report::Figures;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use testkit::{Need, PINGED};
use vpn::{Build, Vpn};

/// Measures tunnels
#[derive(Debug, Parser)]
struct Arguments {
    /// How often each is measured; idle round trips five times as often, for half as long
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Seconds of each stream of TCP and each row of echoes
    #[arg(long, default_value_t = 1.2)]
    seconds: f64,
    /// Only VPNs of these names, or whose names contain one of these
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these, of all VPNs, wires and placements that are measured; without it, a choice of them that says most
    #[arg(long, value_enum, value_delimiter = ',')]
    measure: Vec<Measure>,
    /// Only the wire that passes super-packets (super), or that passes single packets (single)
    #[arg(long, value_parser = wires)]
    wire: Option<Wire>,
    /// Only where the scheduler decides (scheduler), or where each end has a core (core)
    #[arg(long, value_parser = placements)]
    placement: Option<Placement>,
    /// Numbers of SAs that are compared with one, over the same addresses
    #[arg(long, value_delimiter = ',', default_value = "1000,20000")]
    tunnels: Vec<u16>,
    /// Another build of vpnd, to be measured in the same run under its file's name:
    /// `--only vpnd --only vpnd-old --beside /tmp/vpnd-old` compares two builds alone. Can be given more than once
    #[arg(long)]
    beside: Vec<PathBuf>,
    /// One short round, to see that everything works
    #[arg(long)]
    quick: bool,
    /// Puts the figures and their pictures in docs/understand/measurements
    #[arg(long)]
    write: bool,
    /// Measures nothing: makes the report anew from docs/understand/measurements/tunnel.json
    #[arg(long)]
    again: bool,
    /// Passed by cargo
    #[arg(long, hide = true)]
    bench: bool,
    /// Passed by cargo
    #[arg(long, hide = true)]
    test: bool,
}

fn wires(text: &str) -> Result<Wire, String> {
    match text {
        "super" => Ok(Wire::SuperPackets),
        "single" => Ok(Wire::Packets),
        _ => Err("super or single".into()),
    }
}

fn placements(text: &str) -> Result<Placement, String> {
    match text {
        "scheduler" => Ok(Placement::Scheduler),
        "core" => Ok(Placement::CoreEach),
        _ => Err("scheduler or core".into()),
    }
}

/// An echo asks so little of the machine that any other work shows: idle round trips are measured this many times as
/// often as the rest, and for half as long, so that those that are compared are seconds apart.
const SLICES: u32 = 5;

/// Without these, nothing is measured; the other VPNs are left out one by one.
const NEEDS: &[Need] = &[Need::All(PINGED), Need::Program("ethtool")];

/// Where reports are.
const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/understand/measurements");

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // `cargo test --benches` runs it with this argument; it has nothing to check without root and a quiet machine.
    if arguments.test {
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let directory = Path::new(DIRECTORY);
    let record = match arguments.again {
        true => Record::read(&directory.join("tunnel.json"))?,
        false => match testkit::missing(NEEDS) {
            Some(why) => return Err(format!("tunnels cannot be measured: {why}")),
            None => measure_all(arguments)?,
        },
    };
    let all = vpn::all(&arguments.tunnels, &arguments.beside);
    println!("{}", report::text(&record, &all));
    if arguments.write || arguments.again {
        report::write(directory, &record, &all)?;
    }
    Ok(())
}

fn measure_all(arguments: &Arguments) -> Result<Record, String> {
    let rounds = if arguments.quick { 1 } else { arguments.rounds };
    let seconds = if arguments.quick { 0.5 } else { arguments.seconds };
    let lasting = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    let (vpns, mut absent) = chosen(arguments);
    if vpns.iter().any(|vpn| vpn.name == vpn::VPND_NULL) {
        eprintln!("making vpnd with the NULL cipher, if need be");
        vpn::build(&Build::NullCipher)?;
    }
    let packets = match arguments.only.is_empty() && arguments.measure.is_empty() {
        true => {
            eprintln!("measuring single packets in memory");
            packet::measure(rounds).unwrap_or_else(|why| {
                absent.push(format!("single packets in memory: {why}"));
                Vec::new()
            })
        }
        false => Vec::new(),
    };
    let steps = steps(arguments, &vpns);
    let [most, idle] = [(rounds, lasting, false), (rounds * SLICES, lasting / 2, true)]
        .map(|(rounds, lasting, idle)| Turns { rounds, lasting, idle });
    let number = most.number(&steps) + idle.number(&steps);
    let bar = ProgressBar::new(number);
    bar.set_style(
        ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}, {eta} left").expect("a template"),
    );
    let (machine, begun, clock) =
        (Machine::look().to_string() + "\n", Instant::now(), Clock::now()?);
    let mut rows: Vec<measure::Row> = Vec::new();
    for turns in [most, idle] {
        for (round, step) in turns.of(&steps) {
            bar.set_message(format!("{}, {}, {}", step.vpn.name, step.wire, step.placement));
            match step.take(round, turns.lasting, &turns.measures(step), &rows) {
                Ok(more) => rows.extend(more),
                Err(error) => {
                    let what =
                        format!("{}, {}, {}: {error}", step.vpn.name, step.wire, step.placement);
                    bar.suspend(|| eprintln!("{what}"));
                }
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let others = Clock::now()?.others_since(clock);
    Ok(Record { machine, seconds: begun.elapsed().as_secs_f64(), others, absent, packets, rows })
}

/// The VPNs that are wanted and there, and why others are not.
fn chosen(arguments: &Arguments) -> (Vec<Vpn>, Vec<String>) {
    let mut vpns = vpn::all(&arguments.tunnels, &arguments.beside);
    let names: Vec<String> = vpns.iter().map(|vpn| vpn.name.clone()).collect();
    let means = |part: &String, name: &str| {
        name == part || (!names.contains(part) && name.contains(part.as_str()))
    };
    let mut absent = Vec::new();
    vpns.retain(|vpn| {
        let is_wanted =
            arguments.only.is_empty() || arguments.only.iter().any(|part| means(part, &vpn.name));
        let lacking = if is_wanted { vpn.lacking() } else { None };
        absent.extend(lacking.iter().map(|why| format!("{}: {why}", vpn.name)));
        is_wanted && lacking.is_none()
    });
    (vpns, absent)
}

/// Measures that are taken in turn, the number of rounds, and the duration of each.
struct Turns {
    rounds: u32,
    lasting: Duration,
    /// The idle round trips, or all the rest.
    idle: bool,
}

impl Turns {
    /// The measures of a step that belong here.
    fn measures(&self, step: &Step<'_>) -> Vec<Measure> {
        let all = step.measures.iter().copied();
        all.filter(|what| (*what == Measure::Ping) == self.idle).collect()
    }

    /// The steps that have such measures, of all rounds.
    fn of<'a, 'b>(&'a self, steps: &'a [Step<'b>]) -> impl Iterator<Item = (u32, &'a Step<'b>)> {
        let here = |step: &&Step<'_>| !self.measures(step).is_empty();
        (0..self.rounds)
            .flat_map(move |round| steps.iter().filter(here).map(move |step| (round, step)))
    }

    fn number(&self, steps: &[Step<'_>]) -> u64 {
        self.of(steps).count() as u64
    }
}

/// One VPN over one wire, and its measures.
struct Step<'a> {
    vpn: &'a Vpn,
    wire: Wire,
    placement: Placement,
    measures: Vec<Measure>,
}

/// The steps of a round.
fn steps<'a>(arguments: &Arguments, vpns: &'a [Vpn]) -> Vec<Step<'a>> {
    let mut steps = Vec::new();
    for wire in [Wire::SuperPackets, Wire::Packets] {
        for placement in [Placement::Scheduler, Placement::CoreEach] {
            let wanted = arguments.wire.is_none_or(|only| only == wire)
                && arguments.placement.is_none_or(|only| only == placement);
            for vpn in vpns.iter().filter(|_| wanted) {
                let fits = |what: &Measure| *what != Measure::Spread || vpn.part == Part::Addresses;
                let measures: Vec<Measure> = match &arguments.measure[..] {
                    [] => plan::measures(vpn.part, wire, placement).to_vec(),
                    some => some.iter().copied().filter(fits).collect(),
                };
                if !measures.is_empty() {
                    steps.push(Step { vpn, wire, placement, measures });
                }
            }
        }
    }
    steps
}

impl Step<'_> {
    /// Takes it once.
    fn take(
        &self,
        round: u32,
        lasting: Duration,
        measures: &[Measure],
        earlier: &[measure::Row],
    ) -> Result<Vec<measure::Row>, String> {
        let Self { vpn, wire, placement, .. } = *self;
        let hosts = benchkit::lay(wire, placement)?;
        let running = vpn.up(&hosts)?;
        let figures = Figures(earlier);
        let subject = Subject {
            hosts: &hosts,
            running: &running,
            targets: &vpn.targets(&hosts),
            lasting,
            earlier: &|figure| {
                figures.spread(&vpn.name, wire, placement, figure).map(|[_, m, _]| m)
            },
        };
        let mut rows = Vec::new();
        for what in measures {
            for (figure, value) in subject.measure(*what)? {
                let (vpn, figure) = (vpn.name.clone(), figure.to_owned());
                rows.push(measure::Row { vpn, wire, placement, round, figure, value });
            }
        }
        Ok(rows)
    }
}
