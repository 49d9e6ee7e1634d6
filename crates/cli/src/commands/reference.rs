//! The facts for the manual pages of `vpnctl` that its arguments do not contain.

use terminal::manual::{Reference, named};

/// Returns the facts for the manual pages of `vpnctl` that its arguments do not contain.
pub fn reference() -> Reference {
    let mut reference = Reference::of_command();
    reference.exit_status.extend(named(&[("3", "No vpnd answers on the socket.")]));
    reference.environment.extend(named(&[
        (
            "VPND_CONTROL",
            "The control socket of the daemon, unless --control names one. The AIX commands of vpnctl aix-links have no such \
             option.",
        ),
        (
            "VPND_CONFIG",
            "The file whose log level the AIX command ike cmd=log puts in force. Without it, that is the configuration file \
             of the running vpnd.",
        ),
    ]));
    reference
}
