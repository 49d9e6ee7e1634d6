//! Traffic through a tunnel between two namespaces of this machine, beside the other VPNs in userspace.
//!
//! `cargo bench --bench tunnel -- --help`. Needs root, `/dev/net/tun`, `ip`, `ethtool` and `ping`; the other VPNs are
//! installed by `benches/tunnel/peers.sh`, and left out where they are not there. Figures compare within a run only: all
//! take turns in it.

#[path = "../handshake/batch.rs"]
mod batch;
#[path = "../../tests/interop/launch.rs"]
#[allow(dead_code, reason = "settings of tests")]
mod launch;
mod load;
#[path = "../handshake/machine.rs"]
mod machine;
mod measure;
#[path = "../../tests/interop/needs.rs"]
#[allow(dead_code, reason = "outcomes of tests")]
mod needs;
mod report;
#[path = "../handshake/table.rs"]
mod table;
mod vpn;
mod wire;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use measure::{Measure, Row};
use report::Figures;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use table::Table;
use vpn::{Build, Tunnels, Vpn};
use wire::{Host, Placement, Wire};

/// Measures tunnels
#[derive(Debug, Parser)]
struct Arguments {
    /// How often each is measured
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Only VPNs of these names, or whose names contain one of these
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these
    #[arg(long, value_enum, value_delimiter = ',')]
    measure: Vec<Measure>,
    /// Only the wire that passes super-packets (super), or that passes single packets (single)
    #[arg(long, value_parser = wires)]
    wire: Option<Wire>,
    /// Only where the scheduler decides (scheduler), or where each end has a core (core)
    #[arg(long, value_parser = placements)]
    placement: Option<Placement>,
    /// Also throughput with so many SAs, by that with one
    #[arg(long, value_delimiter = ',')]
    tunnels: Vec<u16>,
    /// One short round, to see that everything works
    #[arg(long)]
    quick: bool,
    /// Puts the figures in docs/measurements/tunnel.md and tunnel.json
    #[arg(long)]
    write: bool,
    /// What cargo says
    #[arg(long, hide = true)]
    bench: bool,
    /// What cargo says
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

const INTRODUCTION: &str = "# Tunnels

Traffic through a tunnel between two network namespaces of one machine, both ends and the programs that send and receive on
it; the other VPNs in userspace beside it. Made by `cargo bench --bench tunnel -- --write`; the figures of all rounds are in
[tunnel.json](tunnel.json).
";

const EXPLANATION: &str = "Median (lowest–highest) of the rounds, in which the VPNs take turns. AES-128-GCM in tunnel mode and UDP \
where nothing else is said; WireGuard is ChaCha20-Poly1305, OpenVPN AES-256-GCM. CPU: seconds of both ends' VPN processes for \
each gigabyte of one stream. UDP: datagrams of that payload at the highest rate with less than 1 % loss, thousands per second. \
Ping: ICMP echoes every 2 ms through the idle tunnel, and beside one stream of TCP. Memory: both ends' resident anonymous \
memory after one stream.\n";

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
    let rounds = if arguments.quick { 1 } else { arguments.rounds };
    let lasting = Duration::from_secs_f64(if arguments.quick { 1.0 } else { arguments.seconds });
    let machine = machine::description();
    let all = vpn::all();
    let is_name = |part: &str| all.iter().any(|vpn| vpn.name == part);
    let means =
        |part: &str, vpn: &Vpn| vpn.name == part || (!is_name(part) && vpn.name.contains(part));
    let wanted =
        |vpn: &Vpn| arguments.only.is_empty() || arguments.only.iter().any(|part| means(part, vpn));
    let mut absent = String::new();
    let mut vpns: Vec<Vpn> = all.iter().filter(|vpn| wanted(vpn)).cloned().collect();
    vpns.retain(|vpn| match vpn.lacking() {
        None => true,
        Some(why) => {
            absent += &format!("{} was left out: {why}.\n\n", vpn.name);
            false
        }
    });
    if vpns.iter().any(|vpn| vpn.name == vpn::VPND_NULL) {
        vpn::build(Build::NullCipher)?;
    }
    let wires = [Wire::SuperPackets, Wire::Packets].into_iter();
    let wires: Vec<_> = wires.filter(|w| arguments.wire.is_none_or(|only| only == *w)).collect();
    let placements = [Placement::Scheduler, Placement::CoreEach].into_iter();
    let placements: Vec<_> =
        placements.filter(|p| arguments.placement.is_none_or(|only| only == *p)).collect();
    let bar =
        ProgressBar::new(u64::from(rounds) * (wires.len() * placements.len() * vpns.len()) as u64);
    bar.set_style(
        ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}, {eta} left").expect("a template"),
    );
    let mut rows = Vec::new();
    for round in 0..rounds {
        for (wire, placement) in wires.iter().flat_map(|w| placements.iter().map(|p| (*w, *p))) {
            for vpn in &vpns {
                bar.set_message(vpn.name);
                if let Err(error) = one(vpn, wire, placement, round, lasting, arguments, &mut rows)
                {
                    let what = format!("{}, {wire:?}, {placement:?}: {error}", vpn.name);
                    bar.suspend(|| eprintln!("{what}"));
                }
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    let figures = Figures(&rows);
    let mut report = figures.tables(&vpns);
    report +=
        &format!("{EXPLANATION}\n{absent}## Where it is to be\n\n{}\n", figures.ratios(&vpns));
    if !arguments.tunnels.is_empty() {
        report += &format!("## Many SAs\n\n{}\n", many(&arguments.tunnels, rounds, lasting)?);
    }
    println!("{machine}\n{report}");
    if arguments.write {
        let directory =
            PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/measurements"));
        let text = format!("{INTRODUCTION}\n{machine}\n{}\n", report.trim_end());
        let rows = rows.iter().map(|row| serde_json::to_string(row).expect("plain values"));
        let json = format!("[\n{}\n]\n", rows.collect::<Vec<_>>().join(",\n"));
        for (name, text) in [("tunnel.md", text), ("tunnel.json", json)] {
            let path = directory.join(name);
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

/// Measures one VPN once.
fn one(
    vpn: &Vpn,
    wire: Wire,
    placement: Placement,
    round: u32,
    lasting: Duration,
    arguments: &Arguments,
    rows: &mut Vec<Row>,
) -> Result<(), String> {
    let hosts = wire::lay(wire, placement)?;
    let running = vpn.up(&hosts)?;
    let all = <Measure as clap::ValueEnum>::value_variants();
    let chosen = if arguments.measure.is_empty() { all } else { &arguments.measure };
    let is_first = (wire, placement) == (Wire::SuperPackets, Placement::Scheduler);
    // The rest says little that is new elsewhere, and takes an hour.
    let short = [Measure::Tcp1, Measure::Tcp4, Measure::Udp64];
    let measures = chosen.iter().filter(|measure| is_first || short.contains(measure));
    for what in measures {
        for (figure, value) in measure::measure(*what, &hosts, &running, lasting)? {
            rows.push(Row {
                vpn: vpn.name.to_owned(),
                wire,
                placement,
                round,
                figure: figure.to_owned(),
                value,
            });
        }
    }
    Ok(())
}

/// Throughput through very many SAs in turn, by that through one.
fn many(numbers: &[u16], rounds: u32, lasting: Duration) -> Result<Table, String> {
    let mut table = Table::new(&["SAs", "kpps of 1400 octets", "by one SA"]);
    let flood = |tunnels: u16| {
        let others = Tunnels { others: tunnels.saturating_sub(1) };
        let hosts: [Host; 2] = wire::lay(Wire::SuperPackets, Placement::Scheduler)?;
        let _running = Vpn::with_tunnels("vpnd with many SAs", others).up(&hosts)?;
        let targets: Vec<_> = (0..others.others).map(vpn::spread).chain([hosts[1].inner]).collect();
        measure::spread(&hosts, &targets, lasting)
    };
    let mut rates = vec![Vec::new(); numbers.len() + 1];
    for _ in 0..rounds {
        for (at, number) in [1].iter().chain(numbers).enumerate() {
            rates[at].push(flood(*number)?);
        }
    }
    let median = |rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let medians: Vec<f64> = rates.iter_mut().map(median).collect();
    for (number, rate) in [1].iter().chain(numbers).zip(&medians) {
        let ratio = rate / medians[0];
        table.row(vec![number.to_string(), format!("{:.0}", rate / 1e3), format!("{ratio:.2}")]);
    }
    table.note(
        "A flood of datagrams to as many addresses in turn, each with a Child SA of its own.",
    );
    Ok(table)
}
