//! The binaries as an operator runs them, between two network namespaces of this machine.
//!
//! Needs what the binaries need: root, or user namespaces, and `/dev/net/tun`. Where that is missing, each test says
//! so and passes; with `VPN_TEST_REQUIRE=all` in the environment it fails.
#![forbid(unsafe_code)]

mod daemon;
mod demo;
mod site;

/// Whether what is missing may be missing.
fn skip(why: &str) {
    let required = std::env::var("VPN_TEST_REQUIRE").is_ok_and(|value| value == "all");
    assert!(!required, "required, but {why}");
    eprintln!("skipped: {why}");
}
