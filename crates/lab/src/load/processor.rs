//! Processor time of programs.

use std::fs;
use std::time::Duration;

/// The unit of times in `/proc` (USER_HZ is 100 on all that this runs on).
const TICK: Duration = Duration::from_millis(10);

/// Processor time of all threads that a process has now; what ended threads took counts where the kernel keeps no times of
/// single threads.
///
/// # Errors
/// Where there is no such process.
pub fn used(process: u32) -> Result<Duration, String> {
    let tasks = format!("/proc/{process}/task");
    let threads = fs::read_dir(&tasks).map_err(|error| format!("{tasks}: {error}"))?;
    let mut sum = Duration::ZERO;
    for thread in threads.flatten() {
        let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
        // Nanoseconds on a processor come first.
        let nanoseconds = text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        sum += Duration::from_nanos(nanoseconds);
    }
    if sum.is_zero() { in_ticks(process) } else { Ok(sum) }
}

fn in_ticks(process: u32) -> Result<Duration, String> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    // proc_pid_stat(5): behind the name in parentheses comes the third field; the 14th and 15th are wanted.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    Ok(TICK * fields.skip(11).take(2).filter_map(|field| field.parse::<u32>().ok()).sum::<u32>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_processor_time() {
        let me = std::process::id();
        let before = (used(me).expect("this process"), in_ticks(me).expect("this process"));
        let mut sum = 0_u64;
        let enough = before.0 + Duration::from_millis(30);
        while used(me).expect("this process") < enough {
            sum = (0..100_000).fold(sum, |sum, n| std::hint::black_box(sum ^ n));
        }
        assert!(in_ticks(me).expect("this process") >= before.1);
        assert!(used(u32::MAX).expect_err("no such process").contains("/proc/4294967295/task"));
    }
}
