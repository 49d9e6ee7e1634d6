//! The daemon's answers about its providers of cryptography.

use super::tunables::{TunableError, Tunables};
use ::crypto::{Backend, CryptoProviders, Function, Provider};
use control::protocol::{
    Amount, CryptoState, CryptoStats, FunctionWork, Refusal, RefusalCode, Served,
};
use ike::crypto::{prf, tally};
use std::collections::BTreeMap;

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
    let changed = tunables.set(name, value, persist).map_err(|error| {
        let code = match error {
            TunableError::Unknown(_) | TunableError::Value { .. } => RefusalCode::BadRequest,
            TunableError::Absent { .. } | TunableError::File { .. } => RefusalCode::NotPossible,
        };
        Refusal::new(code, error.to_string())
    })?;
    Ok(state(tunables, changed))
}

/// The provider that serves each function now.
pub fn served(facility: &CryptoProviders) -> Vec<Served> {
    let served = |function: Function| {
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
    };
    Function::all().map(served).collect()
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
    for (operation, operations) in tally::done() {
        let (function, verb, place) = match operation {
            tally::Operation::Prf(prf) => {
                let mac = Function::Mac(prf::mac(prf));
                (prf.to_string(), "derive", facility.backend(Provider::AwsLc, mac))
            }
            // There are instructions for ciphers and hashes, but none for these.
            tally::Operation::Generate(group) => (group.to_string(), "generate", Backend::Software),
            tally::Operation::Agree(group) => (group.to_string(), "agree", Backend::Software),
            tally::Operation::Sign(kind) => (kind.to_string(), "sign", Backend::Software),
            tally::Operation::Verify(kind) => (kind.to_string(), "verify", Backend::Software),
        };
        let mut row = row("ike", function, verb, None);
        column(&mut row, place).operations = operations;
        rows.push(row);
    }
    let milliseconds = u64::try_from(tunables.age().as_millis()).unwrap_or(u64::MAX);
    CryptoStats { milliseconds, rows }
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
