//! Tests by name, which say that they were left out, and why.

use crate::needs::{Need, missing, unavailable};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A test. Where one of its needs is missing it is reported as ignored, with the reason; with
/// `VPN_TEST_REQUIRE=all` in the environment it fails.
pub fn test(name: &str, needs: &'static [Need], work: impl FnOnce() + Send + 'static) -> Trial {
    trial(name, needs, || {
        work();
        Ok(Completion::Completed)
    })
}

/// The same, where the test may find out later that it cannot run here.
pub fn trial(
    name: &str,
    needs: &'static [Need],
    work: impl FnOnce() -> Result<Completion, Failed> + Send + 'static,
) -> Trial {
    let title = name.to_owned();
    needs.iter().for_each(|need| need.name_programs(&mut named()));
    Trial::ignorable_test(name, move || {
        with_needs(needs, || {
            let began = Instant::now();
            let outcome = work();
            if std::env::var_os("VPN_TEST_SHOW").is_some() {
                eprintln!("{:.1} s: {title}", began.elapsed().as_secs_f64());
            }
            outcome
        })
    })
}

/// The programs that the needs of all tests name so far.
pub fn named_programs() -> BTreeSet<&'static str> {
    named().clone()
}

fn named() -> MutexGuard<'static, BTreeSet<&'static str>> {
    static NAMED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    NAMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does the work of a test, or says why it cannot be done here. With [`ONLY_NEEDS`] in the environment, no work is done:
/// a test passes if it could run.
///
/// # Errors
/// Those of the work; or where it is required, and cannot be done.
pub fn with_needs(
    needs: &[Need],
    work: impl FnOnce() -> Result<Completion, Failed>,
) -> Result<Completion, Failed> {
    if let Some(why) = unavailable(needs) {
        return Ok(leave_out(&why));
    }
    if let Some(reason) = missing(needs) {
        return without(&reason);
    }
    match std::env::var_os(ONLY_NEEDS) {
        Some(_) => Ok(Completion::Completed),
        None => work(),
    }
}

/// A variable of the environment, with which tests only look whether they could run.
pub const ONLY_NEEDS: &str = "VPN_TEST_ONLY_NEEDS";

/// The outcome of a test whose peer is [`unavailable`]: it is left out even where no test may be.
pub fn leave_out(reason: &str) -> Completion {
    left_out::note(reason, 1);
    Completion::ignored_with(reason)
}

/// The outcome of a test that cannot run.
pub fn without(reason: &str) -> Result<Completion, Failed> {
    if left_out::is_forbidden() {
        return Err(format!("required, but {reason}").into());
    }
    left_out::note(reason, 1);
    Ok(Completion::ignored_with(reason))
}

/// Runs the tests that the command line asks for. They wait more than they compute, so that four of them run at the
/// same time on each processor, unless the command line says otherwise.
pub fn run(trials: Vec<Trial>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads = arguments.test_threads.or(Some(processors * 4));
    libtest_mimic::run(&arguments, trials).exit_code()
}
