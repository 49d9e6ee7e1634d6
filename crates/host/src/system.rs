//! Refusals of the system, with what to do about them.

use std::io;

/// The system refused.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct SystemError {
    /// The action that was refused.
    pub what: String,
    /// The reason, and a remedy.
    pub why: String,
}

policy::readable_debug!(SystemError);

/// An error of the system, with advice where the cause is a common one.
pub fn refused(what: String, error: &io::Error) -> SystemError {
    let advice = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "; are CAP_NET_ADMIN and CAP_NET_RAW granted?",
        Some(libc::EBUSY) => "; another process uses it: stop that one or choose another name",
        Some(libc::EADDRINUSE) => "; another IPsec daemon may be running: stop it first",
        _ => "",
    };
    SystemError { what, why: format!("{error}{advice}") }
}

/// Returns `true` if the kernel has no such family of addresses, or it is switched off: its sockets and routes are left
/// out then.
pub fn lacks_family(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::EADDRNOTAVAIL)
    )
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
