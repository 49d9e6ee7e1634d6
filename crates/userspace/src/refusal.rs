//! Refusals of the system, with a remedy for each.

use esp::plane::PlaneError;
use host::SystemError;
use rustix::thread::CapabilitySet;
use std::io;

/// Makes sure that this process may do what the plane must.
pub(super) fn check_capabilities() -> Result<(), PlaneError> {
    let held = rustix::thread::capabilities(None)
        .map_err(|e| refused("reading this process's capabilities".into(), &e.into()))?
        .effective;
    let needed =
        [(CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"), (CapabilitySet::NET_RAW, "CAP_NET_RAW")];
    let missing: Vec<&str> =
        needed.iter().filter(|(c, _)| !held.contains(*c)).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(PlaneError::System {
        what: "starting the userspace plane".to_owned(),
        why: format!(
            "this process lacks {}; run it as root, or grant them (AmbientCapabilities= in a systemd unit)",
            missing.join(" and ")
        ),
    })
}

/// An error of the system, with advice where the cause is a common one.
pub(super) fn refused(what: String, error: &io::Error) -> PlaneError {
    plane_error(host::refused(what, error))
}

/// A refusal of the system, as key management is told of it.
pub fn plane_error(SystemError { what, why }: SystemError) -> PlaneError {
    PlaneError::System { what, why }
}
