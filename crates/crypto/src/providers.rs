//! The crypto facility of a plane: who makes the ciphers of its SAs, whether the CPU's instructions are used, and what
//! was done with and without them.
//!
//! Nothing is counted for it while packets pass. Every SA counts its packets anyway; what it has counted is attributed
//! when somebody asks, when it changes its provider and when it goes. The same holds for SAs of the kernel and of network
//! cards, where the kernel counts.

use crate::choice::Choice;
use crate::cpu::Cpu;
use crate::function::Function;
use crate::keyed::Keyed;
use crate::provider::Provider;
use crate::suite::Suite;
use crate::work::{Amount, Direction, Place, Work};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// An SA, as the facility sees it.
pub trait KeyedSa: Send + Sync {
    /// Its key, with the cipher that serves it.
    fn keyed(&self) -> &Keyed;
    /// Whether it seals or opens packets.
    fn direction(&self) -> Direction;
    /// Packets and octets since it began.
    fn amount(&self) -> Amount;
}

/// Who has SAs.
pub trait KeyedSas: Send + Sync {
    /// Shows every SA; none comes or goes meanwhile.
    fn each(&self, visit: &mut dyn FnMut(&dyn KeyedSa));
}

/// The crypto facility of one plane. It is shared with whoever commands it.
pub struct CryptoProviders {
    choice: Choice,
    cpu: Cpu,
    tables: Mutex<Vec<Weak<dyn KeyedSas>>>,
    /// Taken for moments, also by who has a table locked: nobody visits SAs with it.
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

impl CryptoProviders {
    /// Uses the instructions of this CPU.
    pub fn new(choice: Choice) -> Self {
        Self::on(Cpu::detect(), choice)
    }

    /// The same for a CPU that is told.
    pub fn on(cpu: Cpu, choice: Choice) -> Self {
        let ledger = Ledger { in_core: cpu.accelerates(), work: Work::new() };
        Self { choice, cpu, tables: Mutex::default(), ledger: Mutex::new(ledger) }
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
    pub fn enlist(&self, table: Weak<dyn KeyedSas>) {
        self.tables().push(table);
    }

    fn each(&self, visit: &mut dyn FnMut(&dyn KeyedSa)) {
        let tables: Vec<Arc<dyn KeyedSas>> = {
            let mut tables = self.tables();
            tables.retain(|table| table.strong_count() > 0);
            tables.iter().filter_map(Weak::upgrade).collect()
        };
        tables.iter().for_each(|table| table.each(visit));
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
    pub fn attribute(&self, sa: &dyn KeyedSa) {
        let more = sa.keyed().attribute(sa.amount());
        let (suite, provider) = (sa.keyed().suite(), sa.keyed().provider());
        self.add(suite, sa.direction(), more, |function| self.place(provider, function));
    }

    /// Adds to the work what was done for an SA outside of this process.
    pub fn add_elsewhere(&self, suite: Suite, direction: Direction, place: Place, more: Amount) {
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

    fn tables(&self) -> MutexGuard<'_, Vec<Weak<dyn KeyedSas>>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread that panicked left sums behind that lack at most what it was about to add.
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for CryptoProviders {
    fn default() -> Self {
        Self::new(Choice::default())
    }
}

impl fmt::Debug for CryptoProviders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CryptoProviders").field("choice", &self.choice).finish_non_exhaustive()
    }
}
