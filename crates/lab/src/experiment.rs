//! `vpnctl experiment`: the measurements that were published of other systems, on this product and this machine.
//!
//! Each experiment builds two hosts in namespaces of its own, starts a `vpnd` on either, sends traffic, and writes a
//! report with pictures and the raw figures. The states that are compared take turns, round after round, so that a
//! machine that grows slower or faster meanwhile does not decide.
//!
//! A new experiment is a file in `experiment/`, a line in the table below, and a link in the index of `figures.rs`,
//! which a test wants.

use crate::foreign;
use demo::interrupt::Interrupt;

use std::path::{Path, PathBuf};
use std::time::Instant;

mod alone;
mod confinement;
mod figures;
mod generations;
mod handshakes;
mod in_core;
pub mod lab;
mod multicore;
mod null_vs_gcm;
mod offload;
mod readiness;
mod software;
mod sources;
mod workloads;

use crate::report::Report;
use demo::requirements;
pub use lab::Effort;
use lab::Lab;
use terminal::delegated::ALL;

/// One of the experiments.
struct Experiment {
    /// Its name on the command line, and the directory of its report.
    name: &'static str,
    /// The document whose measurement it repeats.
    document: &'static str,
    run: fn(&Lab) -> Result<Report, String>,
}

const IN_CORE: &str = "in-core";

/// All of them, in the order they run.
const EXPERIMENTS: &[Experiment] = &[
    Experiment { name: IN_CORE, document: sources::aix::TITLE, run: in_core::run },
    Experiment { name: "offload", document: sources::intel::TITLE, run: offload::run },
    Experiment { name: "workloads", document: sources::system_z::TITLE, run: workloads::run },
    Experiment { name: "handshakes", document: sources::system_z::TITLE, run: handshakes::run },
    Experiment { name: "null-vs-gcm", document: sources::ipfire::TITLE, run: null_vs_gcm::run },
    Experiment { name: "multicore", document: sources::octeon::TITLE, run: multicore::run },
];

/// The experiments to run, and where their reports go.
#[derive(Clone, Debug)]
pub struct Request {
    /// One of [`terminal::delegated::EXPERIMENTS`], or [`ALL`].
    pub name: String,
    /// The extent of the measurement.
    pub effort: Effort,
    /// Directory for the reports; `None`: `measurements` in the present directory.
    pub output: Option<PathBuf>,
    /// Prints figures and writes no report: those of `offload` on this kernel, as its guest does, or those of AWS-LC in
    /// this process, as `in-core` does without instructions.
    pub raw: bool,
}

impl Request {
    /// Never docs/understand/measurements of a checkout by itself: the reports there are the project's own.
    fn directory(&self) -> PathBuf {
        self.output.clone().unwrap_or_else(|| PathBuf::from("measurements"))
    }
}

/// Runs experiments and writes their reports. Must be called while the process has a single thread.
///
/// # Errors
/// Where no namespace can be made, an experiment fails or a signal has come; a text for people.
pub fn run(request: &Request) -> Result<(), String> {
    let effort = request.effort;
    if request.raw && request.name == IN_CORE {
        return in_core::print(effort);
    }
    let vpnd = program()?;
    let directory = request.directory();
    if !request.raw {
        readiness::place(&directory)?;
    }
    requirements::enter()?;
    let interrupt = Interrupt::listen().map_err(|e| format!("cannot listen for signals: {e}"))?;
    confinement::remove_leftovers();
    let lab = || Lab::new(effort, vpnd.clone(), interrupt.clone());
    if request.raw {
        return offload::print(&lab());
    }
    let chosen = EXPERIMENTS.iter().filter(|e| [e.name, ALL].contains(&request.name.as_str()));
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
        let watch = foreign::Watch::start();
        let outcome = run(&lab).map(|mut report| {
            report.disturbed(watch.share());
            report
        });
        lab.finish();
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
        let written = outcome.and_then(|report| {
            let path = report.write(&directory.join(name), &lab.machine, &how)?;
            Ok((path, report.summary()))
        });
        match written {
            Ok((path, summary)) => {
                print!("{summary}");
                println!("{} ({:.0} s)", path.display(), begun.elapsed().as_secs_f64());
            }
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

/// `vpnd` beside this program, or in the search path.
fn program() -> Result<PathBuf, String> {
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(|directory| directory.join("vpnd"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = beside.into_iter().chain(std::env::split_paths(&path).map(|d| d.join("vpnd")));
    found.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        "there is no vpnd beside this program nor in the search path; build both: cargo build --release"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use terminal::delegated;

    #[test]
    fn the_program_offers_the_experiments_that_there_are() {
        let there = EXPERIMENTS.iter().map(|experiment| (experiment.name, experiment.document));
        assert_eq!(there.collect::<Vec<_>>(), delegated::EXPERIMENTS);
    }

    #[test]
    fn reports_of_the_project_are_only_replaced_on_request() {
        let request = |output: Option<&str>| Request {
            name: ALL.to_owned(),
            effort: Effort::Quick,
            output: output.map(PathBuf::from),
            raw: false,
        };
        assert_eq!(request(None).directory(), Path::new("measurements"));
        let named = request(Some("docs/understand/measurements")).directory();
        assert_eq!(named, Path::new("docs/understand/measurements"));
    }
}
