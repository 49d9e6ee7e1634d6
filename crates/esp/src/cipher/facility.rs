//! The crypto facility of a plane: who makes the ciphers of its SAs, whether the CPU's instructions are used, and what
//! was done with and without them.
//!
//! Nothing is counted for it while packets pass. Every SA counts its packets anyway; what it has counted is attributed
//! when somebody asks, when it changes its provider and when it goes. The same holds for SAs of the kernel and of network
//! cards, where the kernel counts.

use super::keyed::Keyed;
use super::{Choice, Cpu, Function, Provider, Suite};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What an SA does to packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// It protects them.
    Encrypt,
    /// It checks and opens them.
    Decrypt,
}

/// Where a function is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// In this process, by instructions of the CPU that are made for it.
    Hardware,
    /// In this process, without.
    Software,
    /// In the kernel.
    Kernel,
    /// In the network card.
    Nic,
}

/// How much was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Packets.
    pub operations: u64,
    /// Octets of inner packets.
    pub octets: u64,
}

/// Who did what to how much.
pub type Work = BTreeMap<(Function, Direction, Place), Amount>;

/// An SA, as the facility sees it.
pub(crate) trait Operated: Send + Sync {
    fn keyed(&self) -> &Keyed;
    fn direction(&self) -> Direction;
    /// Packets and octets since it began.
    fn amount(&self) -> Amount;
}

/// Who has SAs.
pub(crate) trait Roster: Send + Sync {
    /// Shows every SA; none comes or goes meanwhile.
    fn each(&self, visit: &mut dyn FnMut(&dyn Operated));
}

/// The crypto facility of one plane. It is shared with whoever commands it.
pub struct Facility {
    choice: Choice,
    cpu: Cpu,
    rosters: Mutex<Vec<Weak<dyn Roster>>>,
    /// Taken for moments, also by who has a roster locked: nobody visits SAs with it.
    ledger: Mutex<Ledger>,
}

struct Ledger {
    in_core: bool,
    work: Work,
}

/// The CPU has none of the instructions that are to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this CPU has no instructions for cryptography")]
pub struct NoInstructions;

impl Facility {
    /// Uses the instructions of this CPU.
    pub fn new(choice: Choice) -> Self {
        Self::on(Cpu::detect(), choice)
    }

    /// The same for a CPU that is told.
    pub fn on(cpu: Cpu, choice: Choice) -> Self {
        let ledger = Ledger { in_core: cpu.accelerates(), work: Work::new() };
        Self { choice, cpu, rosters: Mutex::default(), ledger: Mutex::new(ledger) }
    }

    /// What is chosen.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The CPU it reckons with.
    pub fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// Whether instructions of the CPU are used.
    pub fn in_core(&self) -> bool {
        self.ledger().in_core
    }

    /// Who makes the cipher of a suite now.
    pub fn provider(&self, suite: Suite) -> Provider {
        self.provider_if(self.in_core(), suite)
    }

    /// Where a function is done that a provider does.
    pub fn place(&self, provider: Provider, function: Function) -> Place {
        match self.cpu.instructions(provider, function).is_empty() {
            true => Place::Software,
            false => Place::Hardware,
        }
    }

    /// Uses the instructions of the CPU or does without, for every SA from its next packet on. Returns how many SAs have
    /// changed.
    ///
    /// # Errors
    /// Where there are no such instructions to be used.
    pub fn set_in_core(&self, in_core: bool) -> Result<usize, NoInstructions> {
        if in_core && !self.cpu.accelerates() {
            return Err(NoInstructions);
        }
        // First for SAs to come: one that is being made now is visited.
        self.ledger().in_core = in_core;
        let mut changed = 0;
        self.each(&mut |sa| {
            // What it has done so far, the provider before has done.
            self.attribute(sa);
            changed += usize::from(self.assign(sa.keyed()));
        });
        Ok(changed)
    }

    /// What was done so far, also for SAs that are gone.
    pub fn work(&self) -> Work {
        self.each(&mut |sa| self.attribute(sa));
        self.ledger().work.clone()
    }

    /// Takes on whoever has SAs. It is to ask for their [`provider`](Self::provider) under the lock that it takes to show
    /// them, and to have each [attributed](Self::attribute) that goes.
    pub(crate) fn enlist(&self, roster: Weak<dyn Roster>) {
        self.rosters().push(roster);
    }

    fn each(&self, visit: &mut dyn FnMut(&dyn Operated)) {
        let rosters: Vec<Arc<dyn Roster>> = {
            let mut rosters = self.rosters();
            rosters.retain(|roster| roster.strong_count() > 0);
            rosters.iter().filter_map(Weak::upgrade).collect()
        };
        rosters.iter().for_each(|roster| roster.each(visit));
    }

    fn provider_if(&self, in_core: bool, suite: Suite) -> Provider {
        let chosen = self.choice.provider(suite);
        let accelerated = suite.functions().any(|f| self.place(chosen, f) == Place::Hardware);
        match accelerated && !in_core {
            true if Provider::Portable.supports(suite) => Provider::Portable,
            _ => chosen,
        }
    }

    /// Has the right provider serve an SA, and tells whether that changes anything.
    fn assign(&self, keyed: &Keyed) -> bool {
        let provider = self.provider(keyed.suite());
        if provider == keyed.provider() {
            return false;
        }
        keyed
            .serve_by(provider)
            .inspect_err(|error| tracing::error!(%error, "an SA keeps the cipher that it has"))
            .is_ok()
    }

    /// Adds to the work what an SA has done since the last time.
    pub(crate) fn attribute(&self, sa: &dyn Operated) {
        let more = sa.keyed().attribute(sa.amount());
        let (suite, provider) = (sa.keyed().suite(), sa.keyed().provider());
        self.add(suite, sa.direction(), more, |function| self.place(provider, function));
    }

    /// Adds to the work what was done for an SA outside of this process.
    pub(crate) fn add_elsewhere(
        &self,
        suite: Suite,
        direction: Direction,
        place: Place,
        more: Amount,
    ) {
        self.add(suite, direction, more, |_| place);
    }

    fn add(
        &self,
        suite: Suite,
        direction: Direction,
        more: Amount,
        place: impl Fn(Function) -> Place,
    ) {
        if more == Amount::default() {
            return;
        }
        let mut ledger = self.ledger();
        for function in suite.functions() {
            let done = ledger.work.entry((function, direction, place(function))).or_default();
            done.operations += more.operations;
            done.octets += more.octets;
        }
    }

    fn rosters(&self) -> MutexGuard<'_, Vec<Weak<dyn Roster>>> {
        self.rosters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread that panicked left sums behind that lack at most what it was about to add.
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Facility {
    fn default() -> Self {
        Self::new(Choice::default())
    }
}

impl fmt::Debug for Facility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Facility").field("choice", &self.choice).finish_non_exhaustive()
    }
}

impl Direction {
    /// `encrypt` or `decrypt`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Encrypt => "encrypt",
            Self::Decrypt => "decrypt",
        }
    }
}

impl Place {
    /// `hardware`, `software`, `kernel` or `nic`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hardware => "hardware",
            Self::Software => "software",
            Self::Kernel => "kernel",
            Self::Nic => "nic",
        }
    }
}
