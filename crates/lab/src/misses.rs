//! Misses of the processors' caches, as `perf stat` counts them. Most virtual machines have no such counters.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::{Child, Command, Stdio};

const EVENT: &str = "cache-misses";

/// A count that goes on.
pub struct Misses(Option<Child>);

/// Returns `true` if `perf` is there, and the machine's counters tell it misses.
pub fn are_told() -> bool {
    let output = perf().args(["--", "true"]).output();
    output.is_ok_and(|output| count(&String::from_utf8_lossy(&output.stderr)).is_some())
}

impl Misses {
    /// Begins to count those of processes.
    pub fn start(processes: &[u32]) -> Self {
        let list: Vec<String> = processes.iter().map(ToString::to_string).collect();
        let mut command = perf();
        command.args(["-p", &list.join(",")]).stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.stderr(Stdio::piped()).spawn().ok())
    }

    /// The number since the start; `None`: it was not told.
    pub fn finish(mut self) -> Option<u64> {
        let perf = self.0.take()?;
        // It writes what it has counted when it is interrupted.
        let _ = kill(Pid::from_raw(i32::try_from(perf.id()).ok()?), Signal::SIGINT);
        let output = perf.wait_with_output().ok()?;
        count(&String::from_utf8_lossy(&output.stderr))
    }
}

impl Drop for Misses {
    fn drop(&mut self) {
        if let Some(perf) = &mut self.0 {
            let _ = perf.kill();
            let _ = perf.wait();
        }
    }
}

fn perf() -> Command {
    let mut command = Command::new("perf");
    command.args(["stat", "-x", ",", "-e", EVENT]).env("LC_ALL", "C");
    command
}

/// The number in the output of `perf stat -x ,`.
fn count(output: &str) -> Option<u64> {
    let line = output.lines().find(|line| line.contains(EVENT))?;
    line.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_is_not_there_tells_nothing() {
        assert_eq!(count("4711,,cache-misses,1000,100.00,,\n"), Some(4711));
        assert_eq!(count("<not supported>,,cache-misses,0,100.00,,\n"), None);
        assert_eq!(count("<not counted>,,cache-misses:u,0,100.00,,\n"), None);
        assert_eq!(count("no permission\n"), None);
    }
}
