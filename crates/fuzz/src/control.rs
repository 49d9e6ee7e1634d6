//! Requests of the control protocol.

use control::protocol::{Request, VERSION, parse};

/// Reads a request as the daemon does. A request that it understands is read again from what it would write; any other
/// is refused with words.
pub fn control(data: &[u8]) {
    match parse(data) {
        Ok(command) => {
            let request = Request { version: VERSION, command: command.clone() };
            let written = serde_json::to_vec(&request).expect("a command is strings and numbers");
            assert_eq!(parse(&written), Ok(command));
        }
        Err(refusal) => assert!(!refusal.message.is_empty()),
    }
}
