//! The crypto facility of a plane: who makes the ciphers of its SAs, whether the CPU's instructions are used, and what
//! was done with and without them.
//!
//! Nothing is counted for it while packets pass. Every SA counts its packets anyway; what it has counted is attributed
//! when somebody asks, when it changes its provider and when it goes.

use super::keyed::Keyed;
use super::{Choice, Cpu, Function, Provider, Suite};
use crate::plane::SaId;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// The crypto facility of one plane. It is shared with whoever commands it.
pub struct Facility {
    choice: Choice,
    cpu: Cpu,
    ledger: Mutex<Ledger>,
}

struct Ledger {
    in_core: bool,
    accounts: BTreeMap<SaId, Account>,
    work: Work,
}

/// An SA with what of its work is attributed.
struct Account {
    sa: Arc<dyn Operated>,
    attributed: Amount,
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
        let in_core = cpu.accelerates();
        let ledger = Ledger { in_core, accounts: BTreeMap::new(), work: Work::new() };
        Self { choice, cpu, ledger: Mutex::new(ledger) }
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
        let mut ledger = self.ledger();
        let Ledger { accounts, work, .. } = &mut *ledger;
        let mut changed = 0;
        for account in accounts.values_mut() {
            // What it has done so far, the provider before has done.
            self.attribute(account, work);
            changed += usize::from(self.assign(in_core, account.sa.keyed()));
        }
        ledger.in_core = in_core;
        Ok(changed)
    }

    /// What was done so far, also for SAs that are gone.
    pub fn work(&self) -> Work {
        let mut ledger = self.ledger();
        let Ledger { accounts, work, .. } = &mut *ledger;
        accounts.values_mut().for_each(|account| self.attribute(account, work));
        work.clone()
    }

    /// Takes an SA on.
    pub(crate) fn enlist(&self, id: SaId, sa: Arc<dyn Operated>) {
        let mut ledger = self.ledger();
        // It may have been made just before a change.
        self.assign(ledger.in_core, sa.keyed());
        ledger.accounts.insert(id, Account { sa, attributed: Amount::default() });
    }

    /// Attributes what an SA has done, and forgets it.
    pub(crate) fn dismiss(&self, id: SaId) {
        let mut ledger = self.ledger();
        if let Some(mut account) = ledger.accounts.remove(&id) {
            self.attribute(&mut account, &mut ledger.work);
        }
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
    fn assign(&self, in_core: bool, keyed: &Keyed) -> bool {
        let provider = self.provider_if(in_core, keyed.suite());
        if provider == keyed.provider() {
            return false;
        }
        keyed
            .serve_by(provider)
            .inspect_err(|error| tracing::error!(%error, "an SA keeps the cipher that it has"))
            .is_ok()
    }

    fn attribute(&self, account: &mut Account, work: &mut Work) {
        let now = account.sa.amount();
        let before = std::mem::replace(&mut account.attributed, now);
        if now == before {
            return;
        }
        for function in account.sa.keyed().suite().functions() {
            let place = self.place(account.sa.keyed().provider(), function);
            let done = work.entry((function, account.sa.direction(), place)).or_default();
            done.operations += now.operations.saturating_sub(before.operations);
            done.octets += now.octets.saturating_sub(before.octets);
        }
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
