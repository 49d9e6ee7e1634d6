//! `vpnctl experiment`: the measurements that were published of other systems, on this product and this machine.
//!
//! Each experiment builds two hosts in namespaces of its own, starts a `vpnd` on either, sends traffic, and writes a report
//! with pictures and the raw figures. What is compared takes turns, round after round, so that a machine that grows slower
//! or faster meanwhile does not decide.

use crate::demo::interrupt::Interrupt;
use crate::demo::isolation;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

mod confinement;
mod figures;
mod handshakes;
mod in_core;
pub mod machine;
mod multicore;
mod null_vs_gcm;
mod offload;
pub mod plot;
mod readiness;
pub mod report;
pub mod site;
pub mod statistics;
pub mod table;
pub mod traffic;
mod workloads;

use machine::Machine;
use report::Report;

/// One of the experiments.
struct Experiment {
    /// Its name on the command line, and the directory of its report.
    name: &'static str,
    /// The document whose measurement it repeats.
    document: &'static str,
    run: fn(&Lab) -> Result<Report, String>,
}

/// All of them, in the order they run.
const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "in-core",
        document: "Accelerate AIX IPsec with the help of Power in-core capability",
        run: in_core::run,
    },
    Experiment {
        name: "offload",
        document: "Tips and Tricks for IPsec on Intel 10 Gbe NICs",
        run: offload::run,
    },
    Experiment {
        name: "workloads",
        document: "Linux on System z cryptographic support",
        run: workloads::run,
    },
    Experiment {
        name: "handshakes",
        document: "Linux on System z cryptographic support",
        run: handshakes::run,
    },
    Experiment {
        name: "null-vs-gcm",
        document: "Galois Counter Mode & IPsec with 10G",
        run: null_vs_gcm::run,
    },
    Experiment {
        name: "multicore",
        document: "Towards High-performance IPsec on Cavium OCTEON Platform",
        run: multicore::run,
    },
];

/// Every experiment.
const ALL: &str = "all";

fn names() -> PossibleValuesParser {
    let one = |e: &Experiment| PossibleValue::new(e.name).help(format!("After \"{}\"", e.document));
    let all = PossibleValue::new(ALL).help("All of them, one after the other");
    PossibleValuesParser::new(EXPERIMENTS.iter().map(one).chain([all]))
}

/// What is to be measured, and how thoroughly.
#[derive(Debug, Args)]
pub struct Options {
    /// Which experiment
    #[arg(value_parser = names())]
    name: String,
    /// Fewer and shorter repetitions: all experiments in less than ten minutes
    #[arg(long)]
    quick: bool,
    /// One shortest measurement of each kind, to see that everything works; its figures say nothing
    #[arg(long, conflicts_with = "quick")]
    rehearsal: bool,
    /// Directory for the reports; unless it is named docs/measurements where there is one, and measurements elsewhere
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
    /// Prints what the experiment offload measures on this kernel, and writes no report: what it does in a guest
    #[arg(long, hide = true)]
    raw: bool,
}

/// How much is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// As little as shows that it works.
    Rehearsal,
    /// As much as shows the tendency.
    Quick,
    /// As much as a published figure takes.
    Full,
}

impl Effort {
    /// The value for this effort.
    pub fn pick<T>(self, rehearsal: T, quick: T, full: T) -> T {
        match self {
            Self::Rehearsal => rehearsal,
            Self::Quick => quick,
            Self::Full => full,
        }
    }

    fn option(self) -> &'static str {
        self.pick(" --rehearsal", " --quick", "")
    }
}

/// What an experiment is given.
pub struct Lab {
    /// How much it is to do.
    pub effort: Effort,
    /// Where it runs.
    pub machine: Machine,
    /// The program `vpnd`.
    pub vpnd: PathBuf,
    bar: ProgressBar,
    interrupt: Interrupt,
}

impl Lab {
    /// Says how many steps there will be.
    pub fn expect(&self, steps: usize) {
        self.bar.set_length(steps as u64);
        self.bar.set_position(0);
    }

    /// Says what is measured next, and that what was named before is done.
    ///
    /// # Errors
    /// Where a signal has come: what was made is to be taken down.
    pub fn step(&self, what: impl Into<String>) -> Result<(), String> {
        if !self.bar.message().is_empty() {
            self.bar.inc(1);
        }
        self.bar.set_message(what.into());
        match self.is_interrupted() {
            true => Err("interrupted".to_owned()),
            false => Ok(()),
        }
    }

    /// Whether a signal has come.
    pub fn is_interrupted(&self) -> bool {
        self.interrupt.is_set()
    }

    /// Median and spread where there were several rounds, for the text of a report.
    pub fn rounds(&self, rounds: usize, lasting: Duration) -> String {
        let seconds = lasting.as_secs_f64();
        match rounds {
            1 => format!("One round, {seconds} s for each figure."),
            _ => format!(
                "Medians of {rounds} rounds (lowest to highest where they are shown), {seconds} s for each figure in each; \
                 the compared variants take turns."
            ),
        }
    }
}

/// Runs experiments and writes their reports. Must be called while the process has a single thread.
pub fn run(options: &Options) -> ExitCode {
    match measure(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vpnctl experiment: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<(), String> {
    let vpnd = program()?;
    let directory = options.output.clone().unwrap_or_else(|| {
        let documents = PathBuf::from("docs/measurements");
        if documents.is_dir() { documents } else { PathBuf::from("measurements") }
    });
    let effort = match (options.rehearsal, options.quick) {
        (true, _) => Effort::Rehearsal,
        (_, true) => Effort::Quick,
        _ => Effort::Full,
    };
    if !options.raw {
        readiness::place(&directory)?;
    }
    isolation::enter().map_err(|error| error.to_string())?;
    let interrupt = Interrupt::listen().map_err(|e| format!("cannot listen for signals: {e}"))?;
    let lab = || Lab {
        effort,
        machine: Machine::look(),
        vpnd: vpnd.clone(),
        bar: bar(),
        interrupt: interrupt.clone(),
    };
    if options.raw {
        return offload::print(&lab());
    }
    let chosen = EXPERIMENTS.iter().filter(|e| [e.name, ALL].contains(&options.name.as_str()));
    let chosen: Vec<&Experiment> = chosen.collect();
    let names: Vec<&str> = chosen.iter().map(|experiment| experiment.name).collect();
    for note in readiness::notes(&lab(), &names) {
        eprintln!("note: {note}");
    }
    let mut failures = Vec::new();
    for (number, experiment) in (1..).zip(&chosen) {
        let Experiment { name, document, run } = experiment;
        let begun = Instant::now();
        let of =
            if chosen.len() > 1 { format!("[{number}/{}] ", chosen.len()) } else { String::new() };
        eprintln!("{of}{name}, after \"{document}\"");
        let lab = lab();
        let outcome = run(&lab);
        lab.bar.finish_and_clear();
        if interrupt.is_set() {
            return Err(format!(
                "interrupted; everything is taken down. {}",
                match number {
                    1 => "Nothing was written".to_owned(),
                    _ => format!("What was finished before {name} is in {}", directory.display()),
                }
            ));
        }
        let how = format!("vpnctl experiment {name}{}", effort.option());
        let written = outcome.and_then(|r| r.write(&directory.join(name), &lab.machine, &how));
        match written {
            Ok(path) => println!("{} ({:.0} s)", path.display(), begun.elapsed().as_secs_f64()),
            // One that fails does not keep the others from what they can tell.
            Err(error) => {
                eprintln!("{name}: {error}");
                failures.push(*name);
            }
        }
        // After each, so that what there is can be found.
        figures::write(&directory)?;
    }
    println!("{}", directory.join(figures::FILE).display());
    match failures.as_slice() {
        [] => Ok(()),
        failures => Err(format!("failed: {}", failures.join(", "))),
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("  {bar:30.green} {pos}/{len}, {eta} left  {msg}");
    ProgressBar::new(1).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// `vpnd` beside this program, or in the search path.
fn program() -> Result<PathBuf, String> {
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(|directory| directory.join("vpnd"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = beside.into_iter().chain(std::env::split_paths(&path).map(|d| d.join("vpnd")));
    found.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        "there is no vpnd beside this program nor in the search path; install it with vpnctl"
            .to_owned()
    })
}
