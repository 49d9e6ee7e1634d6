//! Processor time that other programs take while something is measured.
//!
//! A process that ends leaves its time to the one that waits for it, so that the sum over all processes only grows.
//! Threads of the kernel are left out: they work for the traffic that is measured.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

/// The unit of times in `/proc` (USER_HZ is 100 on all that this runs on).
const TICK: Duration = Duration::from_millis(10);
/// The flag of a kernel thread in `/proc/PID/stat`.
const KERNEL_THREAD: u64 = 0x0020_0000;
/// The share of the machine above which a report is marked.
pub const LIMIT: f64 = 0.05;

/// A look at all other programs, from which on their time counts.
#[derive(Debug)]
pub struct Watch {
    begun: Instant,
    ticks: u64,
}

impl Watch {
    /// Begins.
    pub fn start() -> Self {
        Self { begun: Instant::now(), ticks: ticks() }
    }

    /// The share of the machine's processors, 0 to 1, that other programs and the hypervisor's other guests have had
    /// since.
    pub fn share(&self) -> f64 {
        let taken = TICK.as_secs_f64() * ticks().saturating_sub(self.ticks) as f64;
        let processors = processors().max(1) as f64;
        (taken / self.begun.elapsed().as_secs_f64().max(1e-9) / processors).min(1.0)
    }
}

/// The processors of the machine, of which this process may have fewer.
fn processors() -> usize {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let single = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    stat.lines().filter(single).count()
}

/// The time of all others so far.
fn ticks() -> u64 {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let read = |path: std::path::PathBuf| fs::read_to_string(path.join("stat")).ok();
    let processes = entries
        .filter(|entry| {
            entry.file_name().to_string_lossy().starts_with(|c: char| c.is_ascii_digit())
        })
        .filter_map(|entry| Process::parse(&read(entry.path())?));
    others(processes.collect(), std::process::id()) + stolen()
}

/// Time in which the hypervisor ran something else.
fn stolen() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let mut fields = stat.lines().next().unwrap_or_default().split_whitespace();
    fields.nth(8).and_then(|steal| steal.parse().ok()).unwrap_or(0)
}

/// A process, with the time of itself and of those it has waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    number: u32,
    parent: u32,
    is_kernel: bool,
    ticks: u64,
}

impl Process {
    /// From proc_pid_stat(5): behind the name in parentheses comes the third field.
    fn parse(stat: &str) -> Option<Self> {
        let (head, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            number: head.split(' ').next()?.parse().ok()?,
            parent: u32::try_from(field(4)?).ok()?,
            is_kernel: field(9)? & KERNEL_THREAD != 0,
            ticks: [14, 15, 16, 17].into_iter().filter_map(field).sum(),
        })
    }
}

/// The time of those that are neither `own`, nor below it, nor the kernel's.
fn others(processes: Vec<Process>, own: u32) -> u64 {
    let parents: BTreeMap<u32, u32> = processes.iter().map(|p| (p.number, p.parent)).collect();
    let is_own = |mut number: u32| {
        let mut seen = BTreeSet::new();
        while number != own && seen.insert(number) {
            match parents.get(&number) {
                Some(parent) => number = *parent,
                None => return false,
            }
        }
        number == own
    };
    let counts = |p: &&Process| !p.is_kernel && !is_own(p.number);
    processes.iter().filter(counts).map(|p| p.ticks).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_with_its_children_s_time() {
        let line = "42 (a ) b) S 7 42 42 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 900 1 1";
        let process = Process::parse(line).expect("a process");
        assert_eq!(process, Process { number: 42, parent: 7, is_kernel: false, ticks: 100 });
        let kernel = line.replace("4194560", "2129984");
        assert!(Process::parse(&kernel).expect("a process").is_kernel);
        assert_eq!(Process::parse("42 (a"), None);
    }

    #[test]
    fn own_processes_and_the_kernel_s_do_not_count() {
        let process =
            |number, parent, is_kernel, ticks| Process { number, parent, is_kernel, ticks };
        let all = vec![
            process(1, 0, false, 1),
            process(2, 0, true, 10),
            process(5, 1, false, 100),
            process(6, 5, false, 1_000),
            process(7, 6, false, 10_000),
            process(8, 1, false, 100_000),
        ];
        assert_eq!(others(all.clone(), 5), 100_001);
        assert_eq!(others(all, 99), 111_101);
    }

    #[test]
    fn a_share_is_part_of_the_machine() {
        let watch = Watch::start();
        let share = watch.share();
        assert!((0.0..=1.0).contains(&share), "{share}");
        assert!(processors() > 0);
    }
}
