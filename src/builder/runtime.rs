//! A check that the tokio runtime has all that a gateway needs.

use super::StartError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use tokio::net::UnixStream;

/// Fails where there is no runtime, or one without its I/O or time driver.
///
/// Tokio has no way to ask: a socket or timer of a runtime that lacks the driver panics. Both are tried here with a
/// pair of sockets that lead nowhere, before anything is changed on the host.
pub(super) fn check() -> Result<(), StartError> {
    if tokio::runtime::Handle::try_current().is_err() {
        let missing = "its context (call start() inside of block_on or a task)";
        return Err(StartError::Runtime { missing });
    }
    let sockets = catch_unwind(|| UnixStream::pair().map(drop));
    match sockets {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(StartError::Reactor(error)),
        Err(_) => return Err(StartError::Runtime { missing: "its I/O driver" }),
    }
    catch_unwind(AssertUnwindSafe(|| drop(tokio::time::sleep(Duration::ZERO))))
        .map_err(|_| StartError::Runtime { missing: "its time driver" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::Builder;

    fn missing(builder: &mut Builder) -> Option<&'static str> {
        let runtime = builder.build().expect("a runtime");
        match runtime.block_on(async { check() }) {
            Ok(()) => None,
            Err(StartError::Runtime { missing }) => Some(missing),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_runtime_that_lacks_a_driver_is_refused() {
        let current_thread = Builder::new_current_thread;
        assert_eq!(missing(&mut current_thread()), Some("its I/O driver"));
        assert_eq!(missing(current_thread().enable_time()), Some("its I/O driver"));
        assert_eq!(missing(current_thread().enable_io()), Some("its time driver"));
        assert_eq!(missing(current_thread().enable_all()), None);
        assert!(matches!(check(), Err(StartError::Runtime { .. })), "outside of any runtime");
    }
}
