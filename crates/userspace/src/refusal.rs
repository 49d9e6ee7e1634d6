//! Refusals of the system, with a remedy for each.

pub use floor::plane_error;
pub(super) use floor::refused;

use esp::plane::PlaneError;
use rustix::thread::CapabilitySet;

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
