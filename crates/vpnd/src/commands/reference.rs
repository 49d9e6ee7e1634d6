//! The facts for the manual pages of `vpnd` that its arguments do not contain.

use super::configuration_page;
use crate::config::Config;
use std::io;
use terminal::manual::{Reference, named};

/// Returns the facts for the manual pages of `vpnd` that its arguments do not contain, and the page of vpnd.toml.
///
/// # Errors
/// Where that page cannot be rendered.
pub fn reference() -> io::Result<Reference> {
    let config = Config::default();
    let certificates = config.certificates.directory.display().to_string();
    let state = config.esp.state_dir.display().to_string();
    let mut reference = Reference::of_command();
    reference.section = 8;
    reference.files.splice(
        ..0,
        named(&[
            (
                "/etc/vpnd/policy.xml",
                "The policy that the systemd service names: an AIX_VPN XML file. It holds preshared keys: its mode is 0600.",
            ),
            (
                "/etc/vpnd/vpnd.toml",
                "The configuration, if it exists and --config names no other one; vpnd.toml(5) describes it.",
            ),
            (&certificates, "The directory of certificates, private keys and revocation lists."),
        ]),
    );
    // The book comes last.
    let book = reference.files.len() - 1;
    reference.files.splice(
        book..book,
        named(&[(
            &state,
            "The changes of vpnd to the system, which the next start undoes after a crash.",
        )]),
    );
    reference.environment.extend(named(&[
        (
            "NOTIFY_SOCKET",
            "systemd sets it: vpnd then reports on that socket that it is ready, reloading or stopping.",
        ),
        ("VPND_CONTROL", "The control socket, unless --control names one."),
    ]));
    reference.more.push(configuration_page::page()?);
    Ok(reference)
}
