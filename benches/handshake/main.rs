//! What tunnels cost a gateway that has very many: handshakes per second and core, memory, rekeys, deadlines, and how long a
//! peer waits for a sign of life while others knock.
//!
//! `cargo bench --bench handshake [-- --quick] [-- --write]`; `--write` puts it all in `docs/measurements/handshakes.md`.

mod clock;
mod delay;
mod engines;
mod heap;
mod machine;
mod table;

use table::Table;

/// How much is done.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Tunnels of the large fleet.
    tunnels: u32,
    /// Handshakes by which groups are compared.
    handshakes: u32,
}

const FULL: Scale = Scale { tunnels: 20_000, handshakes: 2_000 };
const QUICK: Scale = Scale { tunnels: 2_000, handshakes: 200 };

const INTRODUCTION: &str = "# Handshakes

What tunnels cost the control plane of a gateway that has very many. Made by `cargo bench --bench handshake -- --write`;
`--quick` does a tenth of it.
";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given = |name: &str| arguments.iter().any(|a| a == name);
    // `cargo test --benches` runs it with this argument, to see that it works at all.
    let scale = if given("--quick") || given("--test") { QUICK } else { FULL };
    let mut report = vec![INTRODUCTION.to_owned(), machine::description()];
    let mut say = |title: &str, table: Table| {
        let text = format!("## {title}\n\n{table}");
        println!("{text}");
        report.push(text);
    };
    say("Two engines in memory", engines::compare_groups(scale));
    say("Many tunnels", engines::many(scale));
    say("A sign of life while others knock", delay::measure());
    if given("--write") {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/measurements/handshakes.md");
        std::fs::write(path, report.join("\n")).expect("the documentation can be written");
        println!("written to {path}");
    }
}
