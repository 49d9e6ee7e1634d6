//! In the kernel of a guest that has ESP and AH, which the machines of these tests need not have: each group of
//! scenarios boots a guest (`guest/boot`) and plays one after the other there.
//!
//! The guest is a User-mode Linux over this machine's own files: it runs this very executable, `vpnd` and `vpnctl` as
//! cargo built them, and strongSwan as it is installed. It needs no root here. Where its kernel or a program is
//! missing, scenarios are reported as ignored with what installs it; with `VPN_TEST_REQUIRE=all` in the environment
//! they fail.
//!
//! `cargo test --test kernel NAME` plays what has this in its name. `VPN_TEST_SHOW=1` tells how long each took.
//! Scenarios that are not played for each change (`by_day.rs`) are ignored without `--include-ignored`.
//! `tests/kernel/guest/boot COMMAND` runs anything else in a guest.
#![forbid(unsafe_code)]

mod bound;
mod by_day;
mod card;
mod carded;
mod cleartext;
mod crowd;
mod example;
mod flow;
mod flush;
mod guest;
mod libreswan;
mod manual;
mod neighbours;
mod offers;
mod offload;
mod offloaded;
mod openiked;
mod peer;
mod planes;
mod root;
mod routes;
mod strongswan;
mod why;

use guest::Group;
use libtest_mimic::Arguments;
use scenes::documented;
use std::process::ExitCode;

/// Daemons of others, with which the names of groups begin.
const PEERS: [&str; 3] = ["strongSwan", "libreswan", "OpenIKED"];

fn groups() -> Vec<Group> {
    // The longest first.
    let single = [
        openiked::group(),
        crowd::group(),
        planes::group(),
        planes::packaged(),
        bound::group(),
        offers::group(),
        offload::group(),
        example::group(),
        routes::group(),
        why::group(),
    ];
    let longest = [offloaded::group()].into_iter().chain(cleartext::groups());
    longest
        .chain(strongswan::groups())
        .chain(libreswan::groups())
        .chain(single)
        .chain(manual::groups())
        .collect()
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    if let Some(group) = guest::entered() {
        return guest::play(groups(), &group, &arguments);
    }
    let groups = groups();
    let with_peer = |title: &String| PEERS.iter().any(|peer| title.starts_with(peer));
    let titles = groups.iter().flat_map(Group::titled).map(|(title, _)| title).filter(with_peer);
    // A name with "=" is a variable of the environment.
    let tables =
        documented::tables(titles.collect(), |name| !name.contains("::") && !name.contains("="));
    let mut trials = guest::trials(groups, &arguments);
    trials.push(tables);
    // They wait for their guests, of which there are no more than processors.
    arguments.test_threads = Some(trials.len().max(1));
    libtest_mimic::run(&arguments, trials).exit_code()
}
