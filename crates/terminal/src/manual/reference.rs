//! The facts about a program that its arguments do not say: its files, its environment and its exit status.

use super::Page;
use crate::help::Heading;
use clap::Command;
use control::protocol::{DEFAULT_SOCKET, DEFAULT_STORE};
use std::io;

/// A name and its meaning.
pub type Entry = (String, String);

/// A program with commands, manual pages and completions.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its arguments.
    pub arguments: fn() -> Command,
    /// The headings of its commands.
    pub headings: &'static [Heading],
    /// Returns the facts for its pages that the arguments do not contain.
    pub reference: fn() -> io::Result<Reference>,
}

/// The facts for the manual pages of a program that its arguments do not contain.
#[derive(Clone, Debug)]
pub struct Reference {
    /// The section of the manual: daemons are in 8, commands in 1.
    pub section: u8,
    /// Each exit status and its meaning.
    pub exit_status: Vec<Entry>,
    /// Files.
    pub files: Vec<Entry>,
    /// Environment variables.
    pub environment: Vec<Entry>,
    /// Pages that are not about a command.
    pub more: Vec<Page>,
}

impl Reference {
    /// The entries that `vpnd` and `vpnctl` share, for a program in section 1.
    pub fn of_command() -> Self {
        Self {
            section: 1,
            exit_status: named(&[
                ("0", "The command was carried out."),
                ("1", "It was refused or failed; the reason is on standard error."),
                ("2", "The arguments are wrong."),
            ]),
            files: named(&[
                (
                    DEFAULT_SOCKET,
                    "The socket on which vpnd answers vpnctl. The option --control and the setting socket name another one.",
                ),
                (
                    DEFAULT_STORE,
                    "The policy store, which vpnd reads if it is started without --policy.",
                ),
                (
                    "/usr/share/doc/vpnd",
                    "The book (docs) and samples of policies (config), where a package has installed vpnd. \
                     docs/start/first-tunnel.md leads to the first tunnel, docs/operate/troubleshooting.md to the \
                     cause of a fault.",
                ),
            ]),
            environment: named(&[
                ("NO_COLOR", "If it is set and not empty, the output has no colours."),
                ("TERM", "With the value dumb, the output has no colours."),
                (
                    "VPN_COMPLETE",
                    "The completion scripts set it to ask for completions; its value is the shell.",
                ),
            ]),
            more: Vec::new(),
        }
    }
}

/// Names with their meanings.
pub fn named(entries: &[(&str, &str)]) -> Vec<Entry> {
    entries.iter().map(|(name, meaning)| ((*name).to_owned(), (*meaning).to_owned())).collect()
}
