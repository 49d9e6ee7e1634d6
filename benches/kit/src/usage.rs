//! Processor time of processes.

use std::fs;
use std::time::Duration;

/// The unit of times in `/proc` (USER_HZ is 100 on all that this runs on).
const TICK_MS: u64 = 10;

/// The time of so many ticks of `/proc`.
pub fn time(ticks: u64) -> Duration {
    Duration::from_millis(ticks * TICK_MS)
}

/// Processor time that a process has used so far, of user and kernel.
///
/// # Errors
/// Where there is no such process.
pub fn used(process: u32) -> Result<Duration, String> {
    Ok(times::<2>(&format!("/proc/{process}/stat"))?.into_iter().sum())
}

/// Processor time in a file `stat` of `/proc`: as user and as system, then of its children that were waited for.
///
/// # Errors
/// Where there is no such file, or no such number.
pub fn times<const N: usize>(path: &str) -> Result<[Duration; N], String> {
    let stat = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    // proc_pid_stat(5): behind the name in parentheses comes the third field; the 14th and the next are wanted.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let times = fields.skip(11).take(N).filter_map(|field| field.parse().ok());
    let times: Vec<Duration> = times.map(time).collect();
    times.try_into().map_err(|_| format!("{path}: not as expected"))
}
