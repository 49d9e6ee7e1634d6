//! The crypto facility of a plane: the providers of its SAs' ciphers, the use of the CPU's instructions, and the work
//! that was done with and without them.
//!
//! Nothing is counted for it while packets pass. Every SA counts its packets anyway; its counts are attributed
//! when somebody asks, when it changes its provider and when it goes. The same holds for SAs of the kernel and of
//! network cards, where the kernel counts.

use crate::choice::Choice;
use crate::cpu::Cpu;
use crate::function::Function;
use crate::keyed::Keyed;
use crate::mac;
use crate::provider::Provider;
use crate::suite::Suite;
use crate::work::{Amount, Backend, Direction, Work};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// An SA, as the facility sees it.
pub trait KeyedSa: Send + Sync {
    /// Its key, with the cipher that serves it.
    fn keyed(&self) -> &Keyed;
    /// The direction: it seals or opens packets.
    fn direction(&self) -> Direction;
    /// Packets and octets since it began.
    fn amount(&self) -> Amount;
}

/// An owner of SAs.
pub trait KeyedSas: Send + Sync {
    /// Shows every SA; none comes or goes meanwhile.
    fn each(&self, visit: &mut dyn FnMut(&dyn KeyedSa));
}

/// The crypto facility of one plane. It is shared with those who command it.
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
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this CPU has no instructions for cryptography")]
pub struct NoInstructions;

policy::readable_debug!(NoInstructions);

impl CryptoProviders {
    /// Uses the instructions of this CPU.
    pub fn new(choice: Choice) -> Self {
        Self::on(Cpu::detect(), choice)
    }

    /// Uses the instructions of a given CPU.
    pub fn on(cpu: Cpu, choice: Choice) -> Self {
        let ledger = Ledger { in_core: cpu.accelerates(), work: Work::new() };
        Self { choice, cpu, tables: Mutex::default(), ledger: Mutex::new(ledger) }
    }

    /// The choice of providers.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The CPU it reckons with.
    pub fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// Returns `true` if instructions of the CPU are used.
    pub fn in_core(&self) -> bool {
        self.ledger().in_core
    }

    /// The provider that makes the cipher of a suite now.
    pub fn provider(&self, suite: Suite) -> Provider {
        self.provider_if(self.in_core(), suite)
    }

    /// The provider that makes a MAC now, for a user of the MAC alone such as a PRF.
    pub fn mac_provider(&self, algorithm: mac::Algorithm) -> Provider {
        self.provider(Function::Mac(algorithm).suite())
    }

    /// The executor of a function that a provider implements.
    pub fn backend(&self, provider: Provider, function: Function) -> Backend {
        match self.cpu.instructions(provider, function).is_empty() {
            true => Backend::Software,
            false => Backend::Hardware,
        }
    }

    /// Uses the instructions of the CPU or does without, for every SA from its next packet on. Returns how many SAs
    /// have changed.
    ///
    /// # Errors
    /// Returns an error if the CPU has no such instructions.
    pub fn set_in_core(&self, in_core: bool) -> Result<usize, NoInstructions> {
        if in_core && !self.cpu.accelerates() {
            return Err(NoInstructions);
        }
        // First for SAs to come: one that is being made now is visited.
        self.ledger().in_core = in_core;
        let mut changed = 0;
        self.each(&mut |sa| {
            // The work so far belongs to the previous provider.
            self.attribute(sa);
            changed += usize::from(self.assign(sa.keyed()));
        });
        Ok(changed)
    }

    /// The work so far, including that of SAs that are gone.
    pub fn work(&self) -> Work {
        self.each(&mut |sa| self.attribute(sa));
        self.ledger().work.clone()
    }

    /// Registers an owner of SAs. The owner asks for their [`provider`](Self::provider) under the lock that it takes to
    /// show them, and has each SA [attributed](Self::attribute) before it goes.
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

    /// The chosen provider. While the CPU's instructions are switched off, the portable one serves the suites that they
    /// accelerate.
    fn provider_if(&self, in_core: bool, suite: Suite) -> Provider {
        let chosen = self.choice.provider(suite);
        let accelerated = suite.functions().any(|f| self.backend(chosen, f) == Backend::Hardware);
        match accelerated && !in_core {
            true if Provider::Portable.supports(suite) => Provider::Portable,
            _ => chosen,
        }
    }

    /// Assigns the right provider to an SA. Returns `true` if that changes its provider.
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

    /// Adds the work of an SA since the last time.
    pub fn attribute(&self, sa: &dyn KeyedSa) {
        let more = sa.keyed().attribute(sa.amount());
        let (suite, provider) = (sa.keyed().suite(), sa.keyed().provider());
        self.add(suite, sa.direction(), more, |function| self.backend(provider, function));
    }

    /// Adds the work for an SA that was done outside of this process.
    pub fn add_elsewhere(
        &self,
        suite: Suite,
        direction: Direction,
        backend: Backend,
        more: Amount,
    ) {
        self.add(suite, direction, more, |_| backend);
    }

    fn add(
        &self,
        suite: Suite,
        direction: Direction,
        more: Amount,
        backend: impl Fn(Function) -> Backend,
    ) {
        if more == Amount::default() {
            return;
        }
        let mut ledger = self.ledger();
        for function in suite.functions() {
            let done = ledger.work.entry((function, direction, backend(function))).or_default();
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
