//! The scenarios, by subject.

mod certificates;
mod establish;
mod fragmentation;
mod mobility;
mod nat;
mod newest;
mod ppk;
mod proxy;
mod refusal;
mod rekey;
pub mod responder;
mod suites;
mod teardown;
mod tokens;

use crate::Scenario;

/// Every scenario.
pub fn all() -> Vec<Scenario> {
    [
        establish::all(),
        suites::all(),
        rekey::all(),
        teardown::all(),
        refusal::all(),
        nat::all(),
        mobility::all(),
        fragmentation::all(),
        certificates::all(),
        newest::all(),
        ppk::all(),
        proxy::all(),
        responder::all(),
        tokens::all(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
