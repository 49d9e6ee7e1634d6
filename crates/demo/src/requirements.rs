//! The things without which no two daemons can run in namespaces of this machine, looked for before anything begins.

use host::tun_file;
use namespaces::isolation::{self, Namespace};

/// Enters namespaces, as [`isolation::enter`] does. Must be called while the process has a single thread.
///
/// # Errors
/// All that is absent, with a cure for each: the user may be unable to make namespaces, to use the TUN driver, or both.
pub fn enter() -> Result<(), String> {
    // As the user who is there now: root of a user namespace may open no more.
    let device = tun_file::check().err().map(|error| error.to_string());
    let isolated = isolation::enter().and_then(|()| Namespace::new("probe").map(drop));
    let absent: Vec<String> =
        isolated.err().map(|error| error.to_string()).into_iter().chain(device).collect();
    match absent.is_empty() {
        true => Ok(()),
        false => Err(absent.join("\n")),
    }
}
