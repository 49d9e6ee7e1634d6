//! Tests by name, which say that they were left out, and why.

use crate::needs::{Need, missing, unavailable};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::process::ExitCode;
use std::time::Instant;

/// A test. Where one of its needs is missing it is reported as ignored, with the reason; with
/// `VPN_TEST_REQUIRE=all` in the environment it fails.
pub fn test(name: &str, needs: &'static [Need], work: impl FnOnce() + Send + 'static) -> Trial {
    let title = name.to_owned();
    Trial::ignorable_test(name, move || {
        if let Some(why) = unavailable(needs) {
            return Ok(leave_out(&why));
        }
        if let Some(reason) = missing(needs) {
            return without(&reason);
        }
        let began = Instant::now();
        work();
        if std::env::var_os("VPN_TEST_SHOW").is_some() {
            eprintln!("{:.1} s: {title}", began.elapsed().as_secs_f64());
        }
        Ok(Completion::Completed)
    })
}

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
