//! The binaries as an operator runs them, between network namespaces of this machine.
#![forbid(unsafe_code)]

#[path = "../harness/harness.rs"]
mod harness;

#[path = "../leaks/leaks.rs"]
mod leaks;

mod acceptance;
mod authentication_header;
mod begin;
mod causes;
mod certificates;
mod cleanup;
mod cleartext;
mod commands;
mod confinement;
mod crypto;
mod daemon;
mod demo;
mod experiments;
mod failures;
mod filter;
mod flood;
mod install;
mod kills;
mod manual;
mod nat;
mod networks;
mod no_traffic;
mod output;
mod path_mtu;
mod reload;
mod restart;
mod roaming;
mod site;
mod store;
mod stress;
mod wireshark;

fn main() -> std::process::ExitCode {
    if let Some(outcome) = confinement::child() {
        return outcome;
    }
    let trials = [
        // The longest first.
        acceptance::trials(),
        demo::trials(),
        experiments::trials(),
        flood::trials(),
        networks::trials(),
        output::trials(),
        path_mtu::trials(),
        no_traffic::trials(),
        authentication_header::trials(),
        begin::trials(),
        install::trials(),
        certificates::trials(),
        failures::trials(),
        causes::trials(),
        cleartext::trials(),
        cleanup::trials(),
        filter::trials(),
        restart::trials(),
        store::trials(),
        stress::trials(),
        kills::trials(),
        roaming::trials(),
        manual::trials(),
        nat::trials(),
        reload::trials(),
        commands::trials(),
        confinement::trials(),
        crypto::trials(),
        daemon::trials(),
        wireshark::trials(),
    ];
    harness::run(trials.into_iter().flatten().collect())
}
