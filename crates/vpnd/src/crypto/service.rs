//! The daemon's answers about its providers of cryptography.

use super::of_ike;
use super::tunables::{TunableError, Tunables};
use ::crypto::{Backend, CryptoProviders, Function, Provider};
use control::protocol::{
    Amount, CryptoState, CryptoStats, FunctionWork, Refusal, RefusalCode, Served,
};
use ike::crypto::prf;
use ike::crypto::tally::{self, Operation};
use std::collections::BTreeMap;
use userspace::CryptoEngineWork;

/// The tunables, and who does what with them. `changed` SAs have another cipher now.
pub fn state(tunables: &Tunables, changed: usize) -> CryptoState {
    CryptoState {
        tunables: tunables.list(),
        file: tunables.file().display().to_string(),
        functions: served(tunables.facility()),
        changed_sas: changed,
    }
}

/// Sets a tunable, or with no value brings it back to its default.
///
/// # Errors
/// Where it cannot be so.
pub fn set(
    tunables: &Tunables,
    name: &str,
    value: Option<u64>,
    persist: bool,
) -> Result<CryptoState, Refusal> {
    let changed = tunables.set(name, value, persist).map_err(|error| refusal(&error))?;
    Ok(state(tunables, changed))
}

/// The refusal for a tunable that stays as it is.
pub fn refusal(error: &TunableError) -> Refusal {
    let code = match error {
        TunableError::Unknown(_) | TunableError::Value { .. } => RefusalCode::BadRequest,
        TunableError::Absent { .. } | TunableError::System { .. } | TunableError::File { .. } => {
            RefusalCode::NotPossible
        }
    };
    Refusal::new(code, error.to_string())
}

/// The provider that serves each function now.
pub fn served(facility: &CryptoProviders) -> Vec<Served> {
    let served = Function::all().map(|function| {
        let suite = function.suite();
        let (wanted, provider) = (facility.choice().wanted(suite), facility.provider(suite));
        let note = (!wanted.supports(suite)).then(|| format!("{wanted} has no {function}"));
        Served {
            function: function.to_string(),
            provider: provider.to_string(),
            place: facility.backend(provider, function).name().to_owned(),
            instructions: texts(facility.cpu().instructions(provider, function)),
            note,
        }
    });
    served.collect()
}

/// The work done since the daemon's start: by the data plane, then by IKE.
pub fn stats(tunables: &Tunables) -> CryptoStats {
    let facility = tunables.facility();
    let mut rows: BTreeMap<_, FunctionWork> = BTreeMap::new();
    for ((function, direction, place), done) in facility.work() {
        let row = rows
            .entry((function, direction))
            .or_insert_with(|| row("esp", function.to_string(), direction.name(), Some(0)));
        *column(row, place) = Amount { operations: done.operations, octets: Some(done.octets) };
    }
    let mut rows: Vec<_> = rows.into_values().collect();
    let mut of_ike: BTreeMap<_, FunctionWork> = BTreeMap::new();
    for (order, (operation, operations)) in tally::done().into_iter().enumerate() {
        let (function, verb, place) = by_ike(facility, operation);
        // The work of several providers is one row, in the place of the first.
        let known = of_ike.values().position(|r| r.function == function && r.operation == verb);
        let key = known.and_then(|at| of_ike.keys().nth(at).copied()).unwrap_or(order);
        let row = of_ike.entry(key).or_insert_with(|| row("ike", function, verb, None));
        column(row, place).operations += operations;
    }
    rows.extend(of_ike.into_values());
    rows.extend(by_engine(tunables.engine_work()));
    let milliseconds = u64::try_from(tunables.age().as_millis()).unwrap_or(u64::MAX);
    CryptoStats { milliseconds, rows }
}

/// The requests that the engine was given, if there were any.
fn by_engine(work: CryptoEngineWork) -> impl Iterator<Item = FunctionWork> {
    let ways = [("encrypt", work.sealed), ("decrypt", work.opened)].into_iter();
    ways.filter(|(_, given)| given.requests > 0).map(|(operation, given)| {
        let mut row = row("engine", "requests".to_owned(), operation, Some(0));
        row.software = Amount { operations: given.requests, octets: Some(given.octets) };
        row
    })
}

/// The name of an operation of IKE, its verb, and what has executed it.
fn by_ike(facility: &CryptoProviders, operation: Operation) -> (String, &'static str, Backend) {
    match operation {
        Operation::Prf(prf, by) => {
            (prf.to_string(), "derive", facility.backend(by, Function::Mac(prf::mac(prf))))
        }
        Operation::Encrypt(function, by) => {
            (function.to_string(), "encrypt", facility.backend(by, function))
        }
        Operation::Decrypt(function, by) => {
            (function.to_string(), "decrypt", facility.backend(by, function))
        }
        Operation::Hash(hash) => {
            (hash.to_string(), "hash", facility.backend(Provider::AwsLc, of_ike::hmac(hash)))
        }
        Operation::Random => ("random, nonces and SPIs".to_owned(), "generate", Backend::Software),
        // There are instructions for ciphers and hashes, but none for these.
        Operation::Generate(group) => (group.to_string(), "generate", Backend::Software),
        Operation::Agree(group) => (group.to_string(), "agree", Backend::Software),
        Operation::Sign(kind) => (kind.to_string(), "sign", Backend::Software),
        Operation::Verify(kind) => (kind.to_string(), "verify", Backend::Software),
    }
}

fn row(user: &str, function: String, operation: &str, octets: Option<u64>) -> FunctionWork {
    let nothing = Amount { operations: 0, octets };
    FunctionWork {
        user: user.to_owned(),
        function,
        operation: operation.to_owned(),
        hardware: nothing,
        software: nothing,
        kernel: nothing,
        nic: nothing,
    }
}

fn column(row: &mut FunctionWork, place: Backend) -> &mut Amount {
    match place {
        Backend::Hardware => &mut row.hardware,
        Backend::Software => &mut row.software,
        Backend::Kernel => &mut row.kernel,
        Backend::Nic => &mut row.nic,
    }
}

fn texts(names: Vec<&'static str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}
