//! Binding sockets to ports that were free a moment ago.

use std::io;
use std::time::{Duration, Instant};

/// The time for which a port that is in use is tried again.
const PATIENCE: Duration = Duration::from_millis(250);
const PAUSE: Duration = Duration::from_millis(2);

/// Binds a socket, and tries again for a quarter of a second if the address is in use.
///
/// When this process starts a child, the child has copies of all descriptors until it executes its program. So a socket
/// that another thread has closed may stay bound for some milliseconds.
///
/// # Errors
/// Those of `bind`.
pub fn bind_patiently<T>(mut bind: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let begun = Instant::now();
    loop {
        match bind() {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse && begun.elapsed() < PATIENCE =>
            {
                std::thread::sleep(PAUSE);
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_becomes_free_is_taken() {
        let mut tries = 0;
        let bound = bind_patiently(|| {
            tries += 1;
            if tries < 3 { Err(io::ErrorKind::AddrInUse.into()) } else { Ok(tries) }
        });
        assert_eq!(bound.expect("free at the third try"), 3);
    }

    #[test]
    fn other_errors_and_lasting_ones_are_told() {
        let mut tries = 0;
        let refused = bind_patiently(|| -> io::Result<()> {
            tries += 1;
            Err(io::ErrorKind::PermissionDenied.into())
        });
        assert_eq!(refused.expect_err("it is refused").kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(tries, 1);
        let taken = bind_patiently(|| -> io::Result<()> { Err(io::ErrorKind::AddrInUse.into()) });
        assert_eq!(taken.expect_err("it stays taken").kind(), io::ErrorKind::AddrInUse);
    }
}
