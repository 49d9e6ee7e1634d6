//! What the system refuses, with what to do about it.

use crate::plane::PlaneError;
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
    let advice = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "; are CAP_NET_ADMIN and CAP_NET_RAW granted?",
        Some(libc::EBUSY) => "; another process uses it: stop that one or choose another name",
        Some(libc::EADDRINUSE) => "; another IPsec daemon may be running: stop it first",
        Some(libc::ENOENT | libc::ENODEV) if what.contains("TUN") => "; is the tun module loaded?",
        _ => "",
    };
    PlaneError::System { what, why: format!("{error}{advice}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let error = refused(
            "binding UDP port 4500".into(),
            &io::Error::from_raw_os_error(libc::EADDRINUSE),
        );
        let shown = error.to_string();
        assert!(shown.starts_with("binding UDP port 4500: "), "{shown}");
        assert!(shown.ends_with("stop it first"), "{shown}");
    }
}
