//! `vpnctl crypto info` and `bench`: what needs the providers of cryptography.

use crate::commands::{Failure, Run, Session};
use crate::crypto::bench::{ALGORITHMS, Plan, SIZES};
use crate::crypto::machine::{self, Machine};
use crate::crypto::{plot, report};
use clap::Subcommand;
use control::protocol::{Command as Ask, Reply};
use crypto::Algorithm;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::process::ExitCode;
use std::time::Duration;
use terminal::delegated::{self, CryptoBench, CryptoInfo};

/// The subcommands of `vpnctl crypto` that come here.
#[derive(Debug, Subcommand)]
pub enum Crypto {
    Info(CryptoInfo),
    Bench(CryptoBench),
}

impl Run for Crypto {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        match self {
            Self::Info(info) => show(info, session)?,
            Self::Bench(bench) => measure(bench, session)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn show(info: &CryptoInfo, session: &mut Session) -> Result<(), Failure> {
    // The machine can be looked at, even if the daemon does not answer.
    let daemon = match session.ask(Ask::Crypto) {
        Ok(Reply::Crypto(state)) => Some(state),
        _ => None,
    };
    let machine = Machine::look(daemon);
    let control = session.control.display().to_string();
    session
        .show(info.json, &machine, |machine, colour| report::machine(machine, &control, colour))?;
    Ok(())
}

fn measure(bench: &CryptoBench, session: &mut Session) -> Result<(), Failure> {
    let names: Vec<String> = match bench.algorithm.as_slice() {
        [] => ALGORITHMS.map(str::to_owned).to_vec(),
        names if names.iter().any(|name| name == delegated::ALL) => {
            Algorithm::names().into_iter().map(str::to_owned).collect()
        }
        names => names.to_vec(),
    };
    let mut sizes: Vec<_> = bench.size.iter().map(|octets| *octets as usize).collect();
    if sizes.is_empty() {
        sizes = SIZES.to_vec();
    }
    sizes.sort_unstable();
    sizes.dedup();
    let plan = Plan::new(&names, &sizes);
    let bar = progress(plan.len());
    let duration = Duration::from_secs(bench.seconds);
    let measured = plan.run(duration, |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    session.show(bench.json, &measured, |measured, colour| report::measured(measured, colour))?;
    if let Some(path) = &bench.svg {
        plot::draw(path, &machine::title(), &measured).map_err(Failure::other)?;
    }
    Ok(())
}

/// A progress bar on standard error, if that is a terminal.
fn progress(len: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("measuring {wide_bar} {pos}/{len}");
    let bar = ProgressBar::with_draw_target(Some(len as u64), ProgressDrawTarget::stderr());
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
