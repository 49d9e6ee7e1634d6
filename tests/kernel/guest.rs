//! Guests: which kernel they have, how this executable gets into them, and how it learns what came of the scenarios.

use crate::by_day;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Arc, Condvar, LazyLock, Mutex, OnceLock};
use std::time::Instant;
use testkit::{Need, leave_out, missing, unavailable, with_needs, without};

/// Where the scripts are, and where `build-kernel` puts its kernel.
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/kernel/guest");
const BUILT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/kernel");
const PACKAGED: &str = "/usr/bin/linux";
/// The programs with which a guest starts.
const BUSYBOX: &str = "/usr/bin/busybox";

/// The kernel that a group needs in its guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Linux 6.1 as Debian packs it is enough: no nftables of family inet, no device with offload.
    Any,
    /// That one, also where there is another.
    Packaged,
    /// Linux 6.12 as `build-kernel` makes it.
    Built,
}

impl Kernel {
    /// The program that is the kernel, or how to come by it.
    fn find(self) -> Result<PathBuf, String> {
        let built = std::env::var_os("VPN_TEST_KERNEL")
            .map_or_else(|| Path::new(BUILT).join("linux"), PathBuf::from);
        let packaged = PathBuf::from(PACKAGED);
        if !Path::new(BUSYBOX).exists() {
            return Err(format!("no {BUSYBOX}; `apt-get install busybox-static` installs it"));
        }
        match self {
            Self::Any | Self::Built if built.exists() => Ok(built),
            Self::Any | Self::Packaged if packaged.exists() => Ok(packaged),
            Self::Any | Self::Packaged => Err(
                "no guest kernel; `apt-get install user-mode-linux busybox-static` installs one"
                    .into(),
            ),
            Self::Built => {
                Err("no guest kernel 6.12; `tests/kernel/guest/build-kernel` makes one \
                                in four minutes"
                    .into())
            }
        }
    }
}

/// A named test that runs in a guest; it panics if it fails.
pub struct Scenario {
    name: String,
    needs: &'static [Need],
    play: Box<dyn Fn() + Send + Sync>,
}

/// Makes a scenario. Its needs may omit root, namespaces and the TUN driver, which a guest always has.
pub fn scenario(
    name: impl Into<String>,
    needs: &'static [Need],
    play: impl Fn() + Send + Sync + 'static,
) -> Scenario {
    Scenario { name: name.into(), needs, play: Box::new(play) }
}

/// Scenarios that one guest plays.
pub struct Group {
    pub name: &'static str,
    pub kernel: Kernel,
    pub scenarios: Vec<Scenario>,
}

impl Group {
    /// Whether a scenario is not played for each change: only with `--include-ignored` or `--ignored`.
    fn at_night(&self, scenario: &Scenario) -> bool {
        let chosen = by_day::chosen(self.name);
        chosen.is_some_and(|words| !words.iter().any(|word| scenario.name.contains(word)))
    }

    /// Fails if a scenario was renamed and its name by day was not.
    fn check(&self) {
        for word in by_day::chosen(self.name).into_iter().flatten() {
            let found = self.scenarios.iter().any(|s| s.name.contains(word));
            assert!(
                found,
                "tests/kernel/by_day.rs: no scenario of {} is called {word:?}",
                self.name
            );
        }
    }

    /// Each scenario with its full name.
    pub fn titled(&self) -> impl Iterator<Item = (String, &Scenario)> {
        self.scenarios
            .iter()
            .map(|scenario| (format!("{}: {}", self.name, scenario.name), scenario))
    }

    /// Those that the command line asks for.
    fn asked<'a>(
        &'a self,
        arguments: &'a Arguments,
    ) -> impl Iterator<Item = (String, &'a Scenario)> {
        self.titled().filter(|(title, _)| {
            let fits = |pattern: &String| match arguments.exact {
                true => title == pattern,
                false => title.contains(pattern),
            };
            arguments.filter.as_ref().is_none_or(fits) && !arguments.skip.iter().any(fits)
        })
    }

    /// Those of them that are played, by day or at night.
    fn played<'a>(
        &'a self,
        arguments: &'a Arguments,
    ) -> impl Iterator<Item = (String, &'a Scenario)> {
        self.asked(arguments).filter(|(_, scenario)| match self.at_night(scenario) {
            true => arguments.ignored || arguments.include_ignored,
            false => !arguments.ignored,
        })
    }
}

/// The result of a scenario in the guest: whether it passed, and its output.
type Outcome = (bool, String);

/// The message of a User-mode Linux on a processor whose registers are more than it has room for (HOST_FP_SIZE).
const UNKNOWN_STATE: &str = "ptrace set fp regs failed";

/// A guest that boots when the first scenario is asked for.
struct Guest {
    group: &'static str,
    kernel: Kernel,
    arguments: Vec<String>,
    /// Scenarios that it plays.
    scenarios: u64,
    outcomes: OnceLock<Result<BTreeMap<String, Outcome>, String>>,
}

/// The scenarios of all groups as tests of this machine.
pub fn trials(groups: Vec<Group>, arguments: &Arguments) -> Vec<Trial> {
    let words = std::env::args().skip(1).collect::<Vec<_>>();
    let trials = groups.into_iter().flat_map(|group| {
        group.check();
        let guest = Arc::new(Guest {
            group: group.name,
            kernel: group.kernel,
            arguments: words.clone(),
            scenarios: group.played(arguments).count() as u64,
            outcomes: OnceLock::new(),
        });
        let trial = |(title, scenario): (String, &Scenario)| {
            let (guest, needs, name) = (Arc::clone(&guest), scenario.needs, title.clone());
            let trial = Trial::ignorable_test(title, move || guest.report(&name, needs));
            trial.with_ignored_flag(group.at_night(scenario))
        };
        group.asked(arguments).map(trial).collect::<Vec<_>>()
    });
    trials.collect()
}

impl Guest {
    fn report(&self, name: &str, needs: &[Need]) -> Result<Completion, Failed> {
        if let Some(why) = unavailable(needs) {
            return Ok(leave_out(&why));
        }
        match self.kernel.find() {
            Ok(_) => with_needs(needs, || self.outcome(name)),
            Err(why) => without(&why),
        }
    }

    fn outcome(&self, name: &str) -> Result<Completion, Failed> {
        let outcomes = match self.outcomes.get_or_init(|| self.boot()) {
            Ok(outcomes) => outcomes,
            Err(why) if why.contains(UNKNOWN_STATE) => {
                let why = "the guest kernel cannot run on a processor with AMX";
                // Nothing can be installed against it. `build-kernel` mends the kernel that it makes.
                return match self.kernel {
                    Kernel::Packaged => Ok(leave_out(why)),
                    Kernel::Any | Kernel::Built => without(why),
                };
            }
            Err(why) => return Err(why.into()),
        };
        match outcomes.get(name) {
            Some((true, said)) => {
                if std::env::var_os("VPN_TEST_SHOW").is_some() {
                    eprintln!("{name}:\n{said}");
                }
                Ok(Completion::Completed)
            }
            Some((false, said)) => Err(said.into()),
            None => Err("the guest ended before it; see the scenarios before".into()),
        }
    }

    /// Boots, and has the scenarios of the command line played there.
    fn boot(&self) -> Result<BTreeMap<String, Outcome>, String> {
        let kernel = self.kernel.find()?;
        let processor = Processor::take();
        let began = Instant::now();
        let own = std::env::current_exe().map_err(|e| format!("no path of this test: {e}"))?;
        let mut line = String::new();
        for (name, value) in
            std::env::vars().filter(|(name, _)| HANDED_ON.iter().any(|h| name.starts_with(h)))
        {
            let _ = write!(line, "{name}={} ", quoted(&value));
        }
        let (group, own) = (quoted(self.group), quoted(&own.to_string_lossy()));
        let _ = write!(line, "{ENTERED}={group} exec {own}");
        for word in &self.arguments {
            let _ = write!(line, " {}", quoted(word));
        }
        let limit = LONGEST + self.scenarios * LONGEST_OF_EACH + crate::peer::endurance().as_secs();
        let output = Command::new(Path::new(SCRIPTS).join("boot"))
            .args(["-t", &limit.to_string(), "-c", &processor.0.to_string(), "-k"])
            .arg(kernel)
            .arg(line)
            .output()
            .map_err(|e| format!("cannot boot a guest: {e}"))?;
        drop(processor);
        if std::env::var_os("VPN_TEST_SHOW").is_some() {
            eprintln!("{:.1} s: the guest of {:?}", began.elapsed().as_secs_f64(), self.group);
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let outcomes = told(&said);
        if outcomes.is_empty() {
            let console = String::from_utf8_lossy(&output.stderr);
            return Err(format!("the guest played nothing: {}\n{said}{console}", output.status));
        }
        Ok(outcomes)
    }
}

/// Seconds after which a guest is ended, beside those of its scenarios and those that a scenario is told to last.
const LONGEST: u64 = 600;
/// Seconds that a guest has for each of its scenarios. One takes up to two minutes on a processor of its own.
const LONGEST_OF_EACH: u64 = 400;

/// A word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A processor for a guest, which has one only.
struct Processor(usize);

/// Guests of this process that share a processor: they wait as long as they compute.
const GUESTS: usize = 2;

static FREE: LazyLock<(Mutex<Vec<usize>>, Condvar)> = LazyLock::new(|| {
    let ours = sched_getaffinity(Pid::from_raw(0)).expect("this process runs somewhere");
    let ours = (0..CpuSet::count()).filter(|cpu| ours.is_set(*cpu).unwrap_or(false));
    let ours: Vec<usize> = ours.collect();
    (Mutex::new(ours.repeat(GUESTS)), Condvar::new())
});

impl Processor {
    fn take() -> Self {
        let (free, freed) = &*FREE;
        let mut free = free.lock().expect("no panic while it is held");
        loop {
            match free.pop() {
                Some(cpu) => return Self(cpu),
                None => free = freed.wait(free).expect("no panic while it is held"),
            }
        }
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        let (free, freed) = &*FREE;
        free.lock().expect("no panic while it is held").push(self.0);
        freed.notify_one();
    }
}

/// Variables whose names begin like this are those of the guest, too.
const HANDED_ON: [&str; 2] = ["LEAK_", "PEER_"];
/// Names the group to play, inside a guest.
const ENTERED: &str = "VPN_TEST_IN_GUEST";
/// Lines around what a scenario prints.
const BEGIN: &str = "\u{1}begin ";
const PASSED: &str = "\u{1}passed ";
const FAILED: &str = "\u{1}failed ";

/// The group this process is to play, where it runs inside a guest.
pub fn entered() -> Option<String> {
    std::env::var(ENTERED).ok()
}

/// Plays the scenarios that the command line asks for, inside the guest.
pub fn play(groups: Vec<Group>, name: &str, arguments: &Arguments) -> ExitCode {
    let group = groups.into_iter().find(|group| group.name == name).expect("it was booted for it");
    for (title, scenario) in group.played(arguments) {
        if missing(scenario.needs).is_some() {
            continue;
        }
        println!("{BEGIN}{title}");
        let began = Instant::now();
        let passed = catch_unwind(AssertUnwindSafe(|| (scenario.play)())).is_ok();
        println!("{:.1} s in the guest", began.elapsed().as_secs_f64());
        println!("{}{title}", if passed { PASSED } else { FAILED });
    }
    ExitCode::SUCCESS
}

/// The result of each scenario, from the lines of a guest. A scenario that has begun and not ended has failed.
fn told(said: &str) -> BTreeMap<String, Outcome> {
    let mut outcomes = BTreeMap::new();
    for part in said.split(BEGIN).skip(1) {
        let (title, printed) = part.split_once('\n').unwrap_or((part, ""));
        let passed = printed.contains(&format!("{PASSED}{title}\n"));
        let printed = printed.split(['\u{1}']).next().unwrap_or_default();
        outcomes.insert(title.to_owned(), (passed, printed.to_owned()));
    }
    outcomes
}
