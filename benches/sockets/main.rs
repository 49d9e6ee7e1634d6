//! Connections through a tunnel by a TCP in the process, beside other programs that have one: `onetun`, and wireguard-go with gVisor.
//!
//! `cargo bench --bench sockets -- --help`. Needs root, `/dev/net/tun` and `ip`; the other programs are installed by
//! `benches/tunnel/peers.sh`, and left out where they are not there. Figures compare within a run only: all take turns
//! in it.

#[path = "../handshake/batch.rs"]
mod batch;
mod ends;
mod inside;
mod report;
mod subject;
#[path = "../tunnel/wire.rs"]
mod wire;

use clap::Parser;
use ends::{Counts, Traffic, serve};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};
use subject::{Kind, Open, PORT, Subject};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use wire::{Host, Placement, Wire};

/// Measures sockets over tunnels
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Inside>,
    /// How often each is measured
    #[arg(long, default_value_t = 5)]
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
        None => run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The figures of one way in one round.
#[derive(Clone, Debug, serde::Serialize)]
struct Row {
    way: &'static str,
    placement: Placement,
    round: u32,
    /// Mbit/s of one connection, from the client and to it.
    out: f64,
    back: f64,
    /// CPU seconds of both ends' programs for each gigabyte from the client.
    cpu: f64,
    /// Mbit/s of all the connections together.
    many: f64,
    /// The octets of the slowest of them by those of the one in the middle.
    fair: f64,
    /// Octets of memory for each further connection; none where the kernel has them.
    memory: Option<f64>,
    /// The median of the round trips of an octet, µs.
    trip: f64,
}

/// Streams take this long to find their speed.
const SETTLE: Duration = Duration::from_millis(400);

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
    let mut rows = Vec::new();
    for round in 0..arguments.rounds {
        for placement in [Placement::Scheduler, Placement::CoreEach] {
            for kind in &ways {
                eprintln!("round {}: {}, {placement}", round + 1, kind.name());
                match take(*kind, placement, lasting, arguments.connections) {
                    Ok(row) => rows.push(Row { round, ..row }),
                    Err(error) => absent.push(format!("{}, {placement}: {error}", kind.name())),
                }
            }
        }
    }
    let report = report::report(&rows, &ways, &absent, arguments.connections);
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
    fn measure(&self, open: &Open<'_>, lasting: Duration) -> Result<Rates, String> {
        sleep(SETTLE);
        let look = || Ok::<_, String>((self.counts.now(), open.used()?, Instant::now()));
        let before = look()?;
        sleep(lasting);
        let after = look()?;
        let mut octets: Vec<u64> = after.0.iter().zip(&before.0).map(|(a, b)| a - b).collect();
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

fn take(
    kind: Kind,
    placement: Placement,
    lasting: Duration,
    connections: usize,
) -> Result<Row, String> {
    let hosts = wire::lay(Wire::SuperPackets, placement)?;
    let server = Server::start(&hosts[1])?;
    let subject = Subject::up(kind, &hosts)?;
    let open = |traffic, number| {
        server.counts.clear();
        subject.open(traffic, number)
    };

    let one = open(Traffic::Out, 1)?;
    let out = server.measure(&one, lasting)?;
    let memory_of_one = one.memory();
    one.close()?;

    let one = open(Traffic::In, 1)?;
    let back = server.measure(&one, lasting)?;
    one.close()?;

    let one = open(Traffic::Echo, 1)?;
    sleep(lasting);
    let trip = one.close()?;
    if trip.is_zero() {
        return Err("no round trip ended".to_owned());
    }

    let all = open(Traffic::Out, connections)?;
    let many = server.measure(&all, lasting * 2)?;
    let memory = all.memory().zip(memory_of_one);
    all.close()?;
    if many.octets.len() != connections {
        return Err(format!("only {} of {connections} connections came", many.octets.len()));
    }
    let middle = many.octets[many.octets.len() / 2];
    Ok(Row {
        way: kind.name(),
        placement,
        round: 0,
        out: out.mbits,
        back: back.mbits,
        cpu: out.cpu,
        many: many.mbits,
        fair: many.octets[0] as f64 / middle.max(1) as f64,
        memory: memory.map(|(all, one)| all.saturating_sub(one) as f64 / (connections - 1) as f64),
        trip: trip.as_secs_f64() * 1e6,
    })
}

/// The one in the middle of sorted times; zero of none.
fn median(sorted: &[Duration]) -> Duration {
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
