//! Processor time of programs.

use serde::Serialize;
use std::fs;
use std::ops::Add;
use std::time::Duration;

/// The unit of times in `/proc` (USER_HZ is 100 on all that this runs on).
const TICK: Duration = Duration::from_millis(10);

/// Processor time of all threads that a process has now; the time of ended threads counts where the kernel keeps no
/// times of single threads.
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

/// Shares of the time of all processors of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Split {
    /// In programs.
    pub user: f64,
    /// In the kernel, with interrupts.
    pub system: f64,
    /// Without work.
    pub idle: f64,
}

/// Ticks of all processors since the machine started: in programs, in the kernel, idle, and for other guests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks([u64; 4]);

/// The present ticks of the machine.
///
/// # Errors
/// Where the kernel does not tell.
pub fn machine() -> Result<Ticks, String> {
    let text = fs::read_to_string("/proc/stat").map_err(|e| format!("/proc/stat: {e}"))?;
    Ticks::parse(&text)
        .ok_or_else(|| "/proc/stat does not begin with a line of all CPUs".to_owned())
}

impl Ticks {
    /// proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal.
    fn parse(stat: &str) -> Option<Self> {
        let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
        let [user, nice, system, idle, wait, irq, soft, steal, ..] = ticks[..] else { return None };
        Some(Self([user + nice, system + irq + soft, idle + wait, steal]))
    }
}

impl Ticks {
    /// Those that have passed since an earlier moment.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self(std::array::from_fn(|kind| self.0[kind].saturating_sub(before.0[kind])))
    }
}

impl Add for Ticks {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|kind| self.0[kind] + other.0[kind]))
    }
}

impl Split {
    /// Of the ticks that have passed; nothing but idle where there is none.
    pub fn of(passed: Ticks) -> Self {
        let passed = passed.0.map(|ticks| ticks as f64);
        let all: f64 = passed.iter().sum();
        match all > 0.0 {
            true => Self { user: passed[0] / all, system: passed[1] / all, idle: passed[2] / all },
            false => Self { user: 0.0, system: 0.0, idle: 1.0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_split_into_user_system_and_idle() {
        let of = |text: &str| Ticks::parse(text).expect("a line of all CPUs");
        let before = of("cpu  10 0 5 100 0 0 0 0 0 0\ncpu0 1 2");
        let after = of("cpu  30 10 10 140 10 5 5 5 0 0\n");
        let passed = after.since(before);
        assert_eq!(Split::of(passed), Split { user: 0.3, system: 0.15, idle: 0.5 });
        assert_eq!(Split::of(passed + passed), Split::of(passed));
        assert_eq!(Split::of(after.since(after)).idle, 1.0);
        assert_eq!(Ticks::parse("cpu0 1 2 3"), None);
        let now = machine().expect("there is /proc/stat");
        assert!(now.0.iter().sum::<u64>() > 0);
    }

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
