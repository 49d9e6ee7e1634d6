//! The binaries as an operator runs them, between network namespaces of this machine.
#![deny(unsafe_code)]

mod acceptance;
mod as_printed;
mod authentication_header;
mod begin;
mod causes;
mod certificate_faults;
mod certificates;
mod cleanup;
mod cleartext;
mod commands;
mod confinement;
mod constraints;
mod crypto;
mod daemon;
mod demo;
mod exec;
mod experiments;
mod failures;
mod families;
mod filter;
mod flood;
mod foreign;
mod held;
mod install;
mod kills;
mod listen_ike;
mod manual;
mod metrics;
mod nat;
mod needs;
mod networks;
mod newcomer;
mod no_traffic;
mod output;
mod page;
mod path_mtu;
mod planted;
mod preflight;
mod proxy;
mod reload;
mod restart;
mod roaming;
mod shells;
mod shut_out;
mod site;
mod startsrc;
mod store;
mod stress;
mod support;
mod terminal;
mod tokens;
mod traces;
mod wireshark;

fn main() -> std::process::ExitCode {
    if let Some(outcome) = confinement::child() {
        return outcome;
    }
    let trials = [
        // The longest first.
        acceptance::trials(),
        newcomer::trials(),
        demo::trials(),
        experiments::trials(),
        flood::trials(),
        foreign::trials(),
        networks::trials(),
        output::trials(),
        page::trials(),
        path_mtu::trials(),
        proxy::trials(),
        listen_ike::trials(),
        exec::trials(),
        no_traffic::trials(),
        authentication_header::trials(),
        begin::trials(),
        install::trials(),
        certificate_faults::trials(),
        certificates::trials(),
        failures::trials(),
        families::trials(),
        causes::trials(),
        cleartext::trials(),
        cleanup::trials(),
        held::trials(),
        filter::trials(),
        shut_out::trials(),
        restart::trials(),
        store::trials(),
        preflight::trials(),
        startsrc::trials(),
        as_printed::trials(),
        stress::trials(),
        support::trials(),
        tokens::trials(),
        terminal::trials(),
        traces::trials(),
        kills::trials(),
        roaming::trials(),
        manual::trials(),
        metrics::trials(),
        nat::trials(),
        needs::trials(),
        reload::trials(),
        commands::trials(),
        confinement::trials(),
        constraints::trials(),
        crypto::trials(),
        daemon::trials(),
        shells::trials(),
        wireshark::trials(),
    ];
    let mut trials: Vec<_> = trials.into_iter().flatten().collect();
    trials.push(planted::table(&trials));
    trials.extend(needs::of_programs());
    testkit::run(trials)
}
