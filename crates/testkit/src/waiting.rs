//! Waiting for something that must happen.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// After this long, something that is waited for is taken never to happen. No test depends on it: it only ends one that
/// hangs.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Asks again and again until there is an answer.
///
/// # Panics
/// Where there is none in time; `what` and what `otherwise` tells go into the message.
pub fn until<T>(
    what: &str,
    mut look: impl FnMut() -> Option<T>,
    otherwise: impl FnOnce() -> String,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}\n{}", otherwise());
        // Between two looks others may have the processor; nothing depends on how long.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// As [`until`], with nothing more to tell.
///
/// # Panics
/// Where there is no answer in time.
pub fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until(what, look, String::new)
}

/// Receives a datagram, of which it returns the length. A process that was stopped and goes on again is interrupted in
/// its waits: it waits on.
///
/// # Panics
/// Where none comes before the socket's time limit.
pub fn datagram(socket: &UdpSocket, octets: &mut [u8]) -> usize {
    loop {
        match socket.recv(octets) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            length => return length.expect("it arrives"),
        }
    }
}
