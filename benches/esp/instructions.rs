//! How many instructions a packet takes, beside those that are recorded in `crates/esp/tests/instructions.json`: a regression
//! shows without a quiet machine.
//!
//! Counted by callgrind, whose CPU has AES-NI and AVX2 and nothing newer, wherever it runs. Only a release build says
//! anything: `cargo test --release -p vpn-esp --test instructions`; with `-- --write` the counts are recorded. With a
//! compiler or a crypto library of another version they change by themselves.

#[allow(dead_code, reason = "the benches need more")]
mod ends;
#[allow(dead_code, reason = "the benches need more")]
mod library;

use crypto::{Provider, Suite};
use ends::Ends;
use library::Library;
use policy::KeyBits;
use std::collections::BTreeMap;
use std::process::{Command, ExitCode, Stdio};
use std::{env, fs};

/// Of what is recorded, in percent; compilers of one version differ by less among machines.
const TOLERANCE: f64 = 3.0;

const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/instructions.json");

/// The measured work, by name: so many packets of so many octets at once, sealed, or sealed and opened.
const WORKS: [(&str, Work); 11] = [
    ("library: seal 64", Work::Library { len: 64, open: false }),
    ("library: seal 1400", Work::Library { len: 1400, open: false }),
    ("library: open 1400", Work::Library { len: 1400, open: true }),
    ("seal packet 64", Work::Path { len: 64, segments: 1, open: false }),
    ("seal packet 1400", Work::Path { len: 1400, segments: 1, open: false }),
    ("seal super-packet 1400", Work::Path { len: 1400, segments: 44, open: false }),
    ("seal super-packet 512", Work::Path { len: 512, segments: 64, open: false }),
    ("open packet 64", Work::Path { len: 64, segments: 1, open: true }),
    ("open packet 1400", Work::Path { len: 1400, segments: 1, open: true }),
    ("open super-packet 1400", Work::Path { len: 1400, segments: 44, open: true }),
    ("open super-packet 512", Work::Path { len: 512, segments: 64, open: true }),
];

#[derive(Clone, Copy)]
enum Work {
    Library { len: usize, open: bool },
    Path { len: usize, segments: usize, open: bool },
}

impl Work {
    /// Does it so many times; returns how many packets each time has.
    fn run(self, rounds: usize) -> usize {
        match self {
            Self::Library { len, open } => {
                let mut library = Library::new(len);
                for _ in 0..rounds {
                    if open { library.open() } else { library.seal() }
                }
                1
            }
            Self::Path { len, segments, open } => {
                let mut ends =
                    Ends::new(Suite::AesGcm16(KeyBits::B128), Provider::AwsLc).carry(len, segments);
                let packets = ends.packets();
                for _ in 0..rounds {
                    ends.seal();
                    if open {
                        ends.open();
                    }
                }
                packets
            }
        }
    }
}

/// Rounds of the two runs whose difference is counted: the work before and after the packets is in both.
const ROUNDS: [usize; 2] = [10, 60];

type Counts = BTreeMap<String, u64>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [flag, name, rounds] = &arguments[..]
        && flag == "--work"
    {
        let (_, work) = WORKS.iter().find(|(known, _)| known == name).expect("a work");
        println!("{}", work.run(rounds.parse().expect("a number")));
        return ExitCode::SUCCESS;
    }
    let required = left_out::is_forbidden();
    let outcome = match obstacle() {
        // A debug build is for everyday runs, and counts nothing.
        Some(why) if cfg!(debug_assertions) || !required => {
            println!("no instructions are counted: {why}");
            Ok(())
        }
        Some(why) => Err(format!("no instructions can be counted: {why}")),
        None => count_all().and_then(|counts| match arguments.iter().any(|a| a == "--write") {
            true => write(&counts),
            false => compare(&counts),
        }),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn obstacle() -> Option<&'static str> {
    if cfg!(debug_assertions) {
        return Some(
            "those of a debug build say nothing; cargo test --release -p vpn-esp --test instructions",
        );
    }
    if !cfg!(target_arch = "x86_64") {
        return Some("those recorded are of x86-64");
    }
    let valgrind = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    valgrind.is_err().then_some("valgrind is missing")
}

/// Instructions per packet of every work.
fn count_all() -> Result<Counts, String> {
    let all = std::thread::scope(|scope| {
        // A thread waits for two processes, one after the other.
        let counting: Vec<_> =
            WORKS.iter().map(|(name, _)| (*name, scope.spawn(|| per_packet(name)))).collect();
        let finished = counting.into_iter().map(|(name, thread)| {
            Ok((name, thread.join().map_err(|_| format!("{name}: counting panicked"))??))
        });
        finished.collect::<Result<BTreeMap<&str, f64>, String>>()
    })?;
    let alone = WORKS.iter().map(|(name, work)| {
        let before = match work {
            // A packet is sealed before it is opened.
            Work::Path { open: true, .. } => all[name.replace("open", "seal").as_str()],
            _ => 0.0,
        };
        ((*name).to_owned(), (all[name] - before).round() as u64)
    });
    Ok(alone.collect())
}

fn per_packet(name: &str) -> Result<f64, String> {
    let [few, many] = ROUNDS;
    let (less, packets) = instructions(name, few)?;
    let (more, _) = instructions(name, many)?;
    Ok((more - less) as f64 / ((many - few) as f64 * packets))
}

/// Instructions of a process that does a work so many times, and the packets of one time.
fn instructions(name: &str, rounds: usize) -> Result<(u64, f64), String> {
    let this = env::current_exe().map_err(|e| format!("finding this program: {e}"))?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(this)
        .args(["--work", name, &rounds.to_string()])
        .output()
        .map_err(|e| format!("running valgrind: {e}"))?;
    let (told, packets) =
        (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    let collected = told.lines().find_map(|line| line.split_once("Collected :"));
    let collected = collected.and_then(|(_, count)| count.trim().parse().ok());
    collected
        .zip(packets.trim().parse().ok())
        .ok_or_else(|| format!("{name}: valgrind ended with {}:\n{told}", output.status))
}

fn write(counts: &Counts) -> Result<(), String> {
    let text = serde_json::to_string_pretty(counts).map_err(|e| e.to_string())?;
    fs::write(RECORD, text + "\n").map_err(|e| format!("writing {RECORD}: {e}"))?;
    println!("{} counts are recorded in {RECORD}", counts.len());
    Ok(())
}

fn compare(counts: &Counts) -> Result<(), String> {
    let text = fs::read_to_string(RECORD).map_err(|e| format!("reading {RECORD}: {e}"))?;
    let recorded: Counts =
        serde_json::from_str(&text).map_err(|e| format!("reading {RECORD}: {e}"))?;
    println!("{:<26} {:>9} {:>9}", "instructions per packet", "recorded", "now");
    let mut more = Vec::new();
    for (name, now) in counts {
        let before = *recorded.get(name).ok_or_else(|| format!("{name} is not recorded"))?;
        let percent = (*now as f64 / before as f64 - 1.0) * 100.0;
        println!("{name:<26} {before:>9} {now:>9} {percent:+.1} %");
        if percent > TOLERANCE {
            more.push(format!("{name}: {now} instructions per packet, {before} are recorded"));
        } else if percent < -TOLERANCE {
            println!("    fewer than recorded: record them, so that they stay so few");
        }
    }
    if more.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}\nIf that is how it has to be: cargo test --release -p vpn-esp --test instructions -- --write",
        more.join("\n")
    ))
}
