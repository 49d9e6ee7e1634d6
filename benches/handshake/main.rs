//! The cost of each tunnel for a gateway that has very many: handshakes per second and core, memory, rekeys, deadlines,
//! and how long a peer's liveness check waits for its answer while others begin handshakes.
//!
//! `cargo bench --bench handshake [-- --quick] [-- --write] [-- --no-peers]`; `--write` puts it all in
//! `docs/understand/measurements/handshakes.md`. The part with strongSwan needs what `tests/interop` needs;
//! `--no-peers` leaves it out, `--peers` leaves out everything else.

mod clock;
mod delay;
mod engines;
mod heap;
mod machine;
mod versus;

use lab::table::Table;
use std::process::ExitCode;

/// How much is done.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Tunnels of the large fleet.
    tunnels: u32,
    /// Handshakes by which groups are compared.
    handshakes: u32,
    /// Tunnels between real daemons.
    peers: usize,
    /// How often those are set up.
    rounds: usize,
}

const FULL: Scale = Scale { tunnels: 20_000, handshakes: 2_000, peers: 1_000, rounds: 3 };
const QUICK: Scale = Scale { tunnels: 2_000, handshakes: 200, peers: 100, rounds: 1 };

const INTRODUCTION: &str = "# Handshakes

This page measures the cost of very many tunnels for the control plane of a gateway. Made by
`cargo bench --bench handshake -- --write`;
`--quick` does a tenth of it.
";

/// The last section, which alone is replaced where nothing else was measured.
const BESIDE: &str = "## Beside strongSwan";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given = |name: &str| arguments.iter().any(|a| a == name);
    // `cargo test --benches` runs it with this argument, to see that it works at all.
    let scale = if given("--quick") || given("--test") { QUICK } else { FULL };
    let machine = machine::description();
    let mut report = String::new();
    let mut say = |text: String| {
        println!("{text}");
        report.push_str(&text);
        report.push('\n');
    };
    let section = |title: &str, table: Table| format!("## {title}\n\n{table}");
    if !given("--peers") {
        say(section("Two engines in memory", engines::compare_groups(scale)));
        say(section("Many tunnels", engines::many(scale)));
        say(section("A sign of life while others knock", delay::measure()));
    }
    // Its figures need quiet, and `cargo test --benches` is not to need root.
    if !given("--no-peers") && !given("--test") {
        match testkit::strongswan::lacking() {
            Some(why) => say(format!("{BESIDE}\n\nLeft out: {why}.\n")),
            None => match versus::measure(scale.peers, scale.rounds) {
                Ok(table) => say(format!("{BESIDE}\n\n{}\n{table}", machine::description())),
                Err(error) => {
                    eprintln!("{BESIDE}: {error}");
                    return ExitCode::FAILURE;
                }
            },
        }
    }
    if given("--write") {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/understand/measurements/handshakes.md"
        );
        let head = match given("--peers") {
            true => std::fs::read_to_string(path).unwrap_or_default(),
            false => format!("{INTRODUCTION}\n{machine}\n"),
        };
        let head = head.split(BESIDE).next().unwrap_or_default().trim_end();
        let text = format!("{head}\n\n{}\n", report.trim_end());
        std::fs::write(path, text).expect("the documentation can be written");
        println!("written to {path}");
    }
    ExitCode::SUCCESS
}
