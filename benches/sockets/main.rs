//! Connections through a tunnel by a TCP in the process, beside other programs that have one: `onetun`, and wireguard-go with gVisor.
//!
//! `cargo bench --bench sockets -- --help`. Needs root, `/dev/net/tun` and `ip`; the other programs are installed by
//! `benches/tunnel/peers.sh`, and left out where they are not there. Figures compare within a run only: all take turns
//! in it.

mod ends;
mod inside;
mod kernel;
mod report;
mod subject;

use benchkit::{Host, Placement, Wire};
use clap::Parser;
use ends::{Counts, Traffic, serve};
use lab::foreign::Watch;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};
use subject::{Kind, Open, PORT, Subject};
use testkit::GATEWAYS;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Measures sockets over tunnels
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Inside>,
    /// How often each is measured
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// The number of connections that are compared with one
    #[arg(long, default_value_t = 1_000)]
    connections: usize,
    /// Only ways whose names contain one of these
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Directory for the report; without it, the report is only printed
    #[arg(long)]
    output: Option<PathBuf>,
    /// Passed by cargo
    #[arg(long, hide = true)]
    bench: bool,
    /// Passed by cargo
    #[arg(long, hide = true)]
    test: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Inside {
    /// A gateway in this process, as the bench starts it
    #[command(hide = true)]
    Inside(inside::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // `cargo test --benches` runs it with this argument; it has nothing to check without root and a quiet machine.
    if arguments.test {
        return ExitCode::SUCCESS;
    }
    let outcome = match &arguments.command {
        Some(Inside::Inside(arguments)) => inside::run(arguments),
        None => match testkit::missing(GATEWAYS) {
            Some(why) => Err(format!("sockets cannot be measured: {why}")),
            None => run(&arguments),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The figures of one way in one round; none where a measurement failed.
#[derive(Clone, Debug, serde::Serialize)]
struct Row {
    way: &'static str,
    placement: Placement,
    round: u32,
    /// Mbit/s of one connection, from the client and to it.
    out: Option<f64>,
    back: Option<f64>,
    /// CPU seconds of both ends' programs for each gigabyte from the client.
    cpu: Option<f64>,
    /// The median of the round trips of an octet, µs.
    trip: Option<f64>,
    /// The number of connections that came about, of as many as were wanted.
    open: Option<usize>,
    /// Mbit/s of all of them together.
    many: Option<f64>,
    /// The octets of the slowest of them by those of the one in the middle.
    fair: Option<f64>,
    /// Octets of memory for each further connection before its first traffic, and while all send as much as they can;
    /// none where the kernel has them.
    idle: Option<f64>,
    memory: Option<f64>,
}

/// A stream takes this long to find its speed.
const SETTLE: Duration = Duration::from_millis(400);
/// Very many take longer.
const SETTLE_MANY: Duration = Duration::from_secs(2);
/// They are measured for so many times as long as one: after a loss, a connection may stand still for a second.
const MANY: u32 = 4;

fn run(arguments: &Arguments) -> Result<(), String> {
    let lasting = Duration::try_from_secs_f64(arguments.seconds).map_err(|e| e.to_string())?;
    // A forwarded connection has two descriptors at its program.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|errno| errno.to_string())?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).map_err(|errno| errno.to_string())?;
    let mut absent = Vec::new();
    let mut ways = Vec::new();
    for kind in Kind::ALL {
        let is_wanted = arguments.only.is_empty()
            || arguments.only.iter().any(|part| kind.name().contains(part.as_str()));
        match kind.lacking() {
            _ if !is_wanted => {}
            Some(why) => absent.push(format!("{}: {why}", kind.name())),
            None => ways.push(kind),
        }
    }
    let watch = Watch::start();
    let mut rows = Vec::new();
    for round in 0..arguments.rounds {
        for placement in [Placement::Scheduler, Placement::CoreEach] {
            for kind in &ways {
                eprintln!("round {}: {}, {placement}", round + 1, kind.name());
                let (row, failures) = take(*kind, placement, lasting, arguments.connections);
                rows.push(Row { round, ..row });
                for why in failures {
                    let what = format!("{}, {placement}, round {}: {why}", kind.name(), round + 1);
                    eprintln!("{what}");
                    absent.push(what);
                }
            }
        }
    }
    let mut report = report::report(&rows, &ways, &absent, arguments.connections);
    report.disturbed(watch.share());
    match &arguments.output {
        Some(directory) => report::write(&report, directory),
        None => {
            println!("{}", report.summary());
            Ok(())
        }
    }
}

/// The server of a right host. It ends when this is dropped.
struct Server {
    counts: Counts,
    runtime: Option<Runtime>,
}

impl Server {
    fn start(host: &Host) -> Result<Self, String> {
        let counts = Counts::default();
        let runtime = host.space.run(Runtime::new).map_err(|error| error.to_string())?;
        let serving = counts.clone();
        // The address comes with the gateway.
        let listener = async { TcpListener::bind(("0.0.0.0", PORT)).await };
        let listener = host.space.run({
            let handle = runtime.handle().clone();
            move || handle.block_on(listener)
        });
        let listener = listener.map_err(|error| format!("the server: {error}"))?;
        runtime.spawn(serve(listener, serving));
        Ok(Self { counts, runtime: Some(runtime) })
    }

    /// Mbit/s of all connections together in a time, the octets of each, and the processor time of the programs.
    fn measure(
        &self,
        open: &mut Open<'_>,
        [settle, lasting]: [Duration; 2],
    ) -> Result<Rates, String> {
        open.start()?;
        sleep(settle);
        let look = || Ok::<_, String>((self.counts.now(), open.used()?, Instant::now()));
        let before = look()?;
        sleep(lasting);
        let after = look()?;
        let earlier = before.0.iter().chain(std::iter::repeat(&0));
        let mut octets: Vec<u64> = after.0.iter().zip(earlier).map(|(a, b)| a - b).collect();
        // Some whose traffic the server has not even begun may be missing.
        octets.resize(open.number, 0);
        octets.sort_unstable();
        let all = octets.iter().sum::<u64>() as f64;
        if all == 0.0 {
            return Err("no octet arrived".to_owned());
        }
        let seconds = (after.2 - before.2).as_secs_f64();
        let cpu = after.1.saturating_sub(before.1).as_secs_f64() / (all / 1e9);
        Ok(Rates { mbits: all * 8.0 / seconds / 1e6, cpu, octets })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

struct Rates {
    mbits: f64,
    cpu: f64,
    /// Of each connection, the fewest first.
    octets: Vec<u64>,
}

/// Takes a measurement, and puts its figures into the row.
type Attempt = fn(&Setting<'_>, &mut Row) -> Result<(), String>;

/// Takes all measurements of a way once. Those that fail have their reasons.
fn take(
    kind: Kind,
    placement: Placement,
    lasting: Duration,
    connections: usize,
) -> (Row, Vec<String>) {
    let mut row = Row {
        way: kind.name(),
        placement,
        round: 0,
        out: None,
        back: None,
        cpu: None,
        trip: None,
        open: None,
        many: None,
        fair: None,
        idle: None,
        memory: None,
    };
    let attempts: [(&str, Attempt); 4] = [
        ("out", |setting, row| setting.out(row)),
        ("in", |setting, row| setting.back(row)),
        ("round trips", |setting, row| setting.trips(row)),
        ("many connections", |setting, row| setting.many(row)),
    ];
    let mut failures = Vec::new();
    for (what, attempt) in attempts {
        let mut up = || {
            kernel::rest()?;
            // A program that has taken more than it can forward is busy for minutes: each measurement starts its own.
            let hosts = benchkit::lay(Wire::SuperPackets, placement)?;
            let server = Server::start(&hosts[1])?;
            let subject = Subject::up(kind, &hosts)?;
            attempt(
                &Setting { server, subject: &subject, hosts: &hosts, lasting, connections },
                &mut row,
            )
        };
        failures.extend(up().err().map(|why| format!("{what}: {why}")));
    }
    (row, failures)
}

/// A way that is up, with the server behind it.
struct Setting<'a> {
    server: Server,
    subject: &'a Subject<'a>,
    hosts: &'a [Host; 2],
    lasting: Duration,
    connections: usize,
}

impl Setting<'_> {
    fn open(&self, traffic: Traffic, number: usize) -> Result<Open<'_>, String> {
        self.server.counts.clear();
        self.subject.open(traffic, number)
    }

    fn out(&self, row: &mut Row) -> Result<(), String> {
        let mut one = self.open(Traffic::Out, 1)?;
        let rates = self.server.measure(&mut one, [SETTLE, self.lasting])?;
        (row.out, row.cpu) = (Some(rates.mbits), Some(rates.cpu));
        one.close().map(drop)
    }

    fn back(&self, row: &mut Row) -> Result<(), String> {
        let mut one = self.open(Traffic::In, 1)?;
        let rates = self.server.measure(&mut one, [SETTLE, self.lasting])?;
        row.back = Some(rates.mbits);
        one.close().map(drop)
    }

    fn trips(&self, row: &mut Row) -> Result<(), String> {
        let mut one = self.open(Traffic::Echo, 1)?;
        one.start()?;
        sleep(self.lasting);
        let trip = one.close()?;
        if trip.is_zero() {
            return Err("no octet came back".to_owned());
        }
        row.trip = Some(trip.as_secs_f64() * 1e6);
        Ok(())
    }

    fn many(&self, row: &mut Row) -> Result<(), String> {
        self.hosts.iter().try_for_each(kernel::spare)?;
        let one = self.open(Traffic::Out, 1)?;
        let memory_of_one = one.memory();
        drop(one);
        let mut all = self.open(Traffic::Out, self.connections)?;
        row.open = Some(all.number);
        let further = all.number.saturating_sub(1).max(1) as f64;
        let each = |memory: Option<u64>| {
            let (all, one) = memory.zip(memory_of_one)?;
            Some(all.saturating_sub(one) as f64 / further)
        };
        row.idle = each(all.memory());
        let rates = self.server.measure(&mut all, [SETTLE_MANY, self.lasting * MANY])?;
        row.memory = each(all.memory());
        row.many = Some(rates.mbits);
        let [slowest, middle] = [0, rates.octets.len() / 2].map(|at| rates.octets[at] as f64);
        row.fair = Some(slowest / middle.max(1.0));
        all.close().map(drop)
    }
}

/// The one in the middle of sorted times; zero of none.
fn median(sorted: &[Duration]) -> Duration {
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
