//! The output of the programs for whole files, compared to the letter.
#![forbid(unsafe_code)]

mod convert;
mod migrations;
// Of the simulation's tests: other users of the crate `sim` need not build the maker of certificates.
#[allow(dead_code, reason = "the simulated tests need more of it")]
#[path = "../../../../tests/simulated/pki.rs"]
mod pki;
mod policies;
mod samples;
mod troubleshooting;
mod vpnctl;
