//! The settings of workers.

use super::super::waiting::Wait;
use esp::plane::PlaneError;
use rustix::thread::sched_getaffinity;
use std::fmt;
use std::str::FromStr;

/// Most threads of one plane.
const MOST: usize = 64;

/// Most that `auto` starts: beyond it the kernel's part of the work, not ours, is what there is too little of.
const MOST_BY_ITSELF: usize = 8;

/// After which schedule packets are worked on; both are those of the OCTEON document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// A packet stays on one worker from being read to being written.
    #[default]
    RunToCompletion,
    /// One worker reads, all do the cryptography, and what they have done leaves in order.
    Pipeline,
}

/// The number of workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Count {
    /// As the CPUs suggest: run-to-completion takes one where there are up to two, and otherwise half of them; the
    /// pipeline takes all, but at least two. Never more than eight.
    #[default]
    Auto,
    /// So many.
    Exactly(usize),
}

/// The CPUs on which workers run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affinity(Vec<usize>);

/// The settings of workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The number of workers.
    pub workers: Count,
    /// After which schedule.
    pub schedule: Schedule,
    /// Their behaviour without packets.
    pub wait: Wait,
    /// The CPUs on which they run.
    pub affinity: Affinity,
}

/// A change of settings; `None` leaves a setting as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// [`Settings::workers`]
    pub workers: Option<Count>,
    /// [`Settings::schedule`]
    pub schedule: Option<Schedule>,
    /// [`Settings::wait`]
    pub wait: Option<Wait>,
    /// [`Settings::affinity`]
    pub affinity: Option<Affinity>,
}

/// Workers cannot be as they are to be.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A CPU is not available.
    #[error("CPU {cpu} is not one that this process may run on; it may use {}", list(.allowed))]
    NoSuchCpu {
        /// The one asked for.
        cpu: usize,
        /// Those there are.
        allowed: Vec<usize>,
    },
    /// The system refused; everything is as before.
    #[error(transparent)]
    System(PlaneError),
}

policy::readable_debug!(SettingsError);

impl Settings {
    /// The number of threads that this is on this machine.
    pub fn number(&self) -> usize {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        self.number_of(cpus)
    }

    fn number_of(&self, cpus: usize) -> usize {
        match (self.workers, self.schedule) {
            (Count::Exactly(number), _) => number.clamp(1, MOST),
            // With few cores, one thread for both directions is faster than two that wake each other.
            (Count::Auto, Schedule::RunToCompletion) => (cpus / 2).clamp(1, MOST_BY_ITSELF),
            (Count::Auto, Schedule::Pipeline) => cpus.clamp(2, MOST_BY_ITSELF),
        }
    }

    pub(super) fn check(&self) -> Result<(), SettingsError> {
        let Ok(allowed) = sched_getaffinity(None) else { return Ok(()) };
        let allowed: Vec<usize> =
            (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
        match self.affinity.0.iter().find(|cpu| !allowed.contains(cpu)) {
            Some(&cpu) => Err(SettingsError::NoSuchCpu { cpu, allowed }),
            None => Ok(()),
        }
    }
}

impl Change {
    pub(super) fn applied_to(&self, settings: &Settings) -> Settings {
        Settings {
            workers: self.workers.unwrap_or(settings.workers),
            schedule: self.schedule.unwrap_or(settings.schedule),
            wait: self.wait.unwrap_or(settings.wait),
            affinity: self.affinity.as_ref().unwrap_or(&settings.affinity).clone(),
        }
    }
}

impl Affinity {
    /// The first worker on the first of these, and so on, from the beginning again where there are more workers; no CPU
    /// leaves it to the scheduler.
    pub fn new(cpus: Vec<usize>) -> Self {
        Self(cpus)
    }

    pub(super) fn cpu(&self, worker: usize) -> Option<usize> {
        self.0.get(worker % self.0.len().max(1)).copied()
    }
}

impl Schedule {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::RunToCompletion => "run-to-completion",
            Self::Pipeline => "pipeline",
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::RunToCompletion, Self::Pipeline].into_iter().find(|s| s.name() == text);
        known.ok_or_else(|| format!("{text:?} is no schedule; use run-to-completion or pipeline"))
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Exactly(number) => number.fmt(f),
        }
    }
}

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "auto" => Ok(Self::Auto),
            Ok(number @ 1..=MOST) => Ok(Self::Exactly(number)),
            _ => Err(format!("{text:?} is no number of workers; use auto, or 1 to {MOST}")),
        }
    }
}

impl fmt::Display for Affinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("none") } else { f.write_str(&list(&self.0)) }
    }
}

impl FromStr for Affinity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::default());
        }
        let cpus = text.split(',').map(|cpu| cpu.trim().parse());
        cpus.collect::<Result<_, _>>().map(Self).map_err(|_| {
            format!("{text:?} is no list of CPUs; use none, or numbers with commas as in 0,2")
        })
    }
}

fn list(numbers: &[usize]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    numbers.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_read_back_as_it_is_shown() {
        for schedule in [Schedule::RunToCompletion, Schedule::Pipeline] {
            assert_eq!(schedule.to_string().parse(), Ok(schedule));
        }
        for count in [Count::Auto, Count::Exactly(1), Count::Exactly(MOST)] {
            assert_eq!(count.to_string().parse(), Ok(count));
        }
        for affinity in [Affinity::default(), Affinity(vec![0, 2])] {
            assert_eq!(affinity.to_string().parse(), Ok(affinity));
        }
        for bad in ["0", "65", "-1", "many", ""] {
            assert!(bad.parse::<Count>().unwrap_err().contains("1 to 64"), "{bad}");
        }
        assert!("0-1".parse::<Affinity>().is_err());
    }

    #[test]
    fn the_number_of_workers_follows_the_cpus() {
        let completion = Settings::default();
        let pipeline = Settings { schedule: Schedule::Pipeline, ..Settings::default() };
        for (cpus, expected) in [(1, (1, 2)), (2, (1, 2)), (4, (2, 4)), (64, (8, 8))] {
            assert_eq!((completion.number_of(cpus), pipeline.number_of(cpus)), expected);
        }
    }

    #[test]
    fn workers_take_their_cpus_in_turn() {
        let affinity = Affinity(vec![3, 1]);
        assert_eq!([0, 1, 2].map(|w| affinity.cpu(w)), [Some(3), Some(1), Some(3)]);
        assert_eq!(Affinity::default().cpu(0), None);
    }

    #[test]
    fn a_cpu_that_is_missing_is_named() {
        let affinity = Affinity(vec![usize::from(u16::MAX)]);
        let error = Settings { affinity, ..Settings::default() }.check().unwrap_err().to_string();
        assert!(error.contains("CPU 65535 is not one") && error.contains("may use 0"), "{error}");
    }
}
