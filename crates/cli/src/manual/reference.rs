//! The facts about a program that its arguments do not say: its files, its environment and its exit status.

use crate::config::Config;

/// A program with manual pages.
pub(super) enum Program {
    Vpnd,
    Vpnctl,
}

impl Program {
    /// The program of that name.
    pub fn of(name: &str) -> Self {
        if name == "vpnd" { Self::Vpnd } else { Self::Vpnctl }
    }

    /// Its section of the manual: daemons are in 8, commands in 1.
    pub fn section(&self) -> u8 {
        match self {
            Self::Vpnd => 8,
            Self::Vpnctl => 1,
        }
    }

    /// Returns `true` if it reads vpnd.toml.
    pub fn has_configuration(&self) -> bool {
        matches!(self, Self::Vpnd)
    }

    pub fn exit_status(&self) -> Vec<(String, String)> {
        let done = ("0", "The command was carried out.");
        let failed = ("1", "It was refused or failed; the reason is on standard error.");
        let wrong = ("2", "The arguments are wrong.");
        let nobody = ("3", "No vpnd answers on the socket.");
        match self {
            Self::Vpnd => owned(&[done, failed, wrong]),
            Self::Vpnctl => owned(&[done, failed, wrong, nobody]),
        }
    }

    pub fn files(&self) -> Vec<(String, String)> {
        let config = Config::default();
        let path = |path: &std::path::Path| path.display().to_string();
        let entry = |path: String, meaning: &str| (path, meaning.to_owned());
        let socket = entry(
            path(&config.control.socket),
            "The socket on which vpnd answers vpnctl. The option --control and the setting socket name another one.",
        );
        let store = entry(
            path(&config.policy.directory),
            "The policy store, which vpnd reads if it is started without --policy.",
        );
        let book = entry(
            "/usr/share/doc/vpnd".to_owned(),
            "The book (docs) and samples of policies (config), where a package has installed vpnd. docs/first-tunnel.md leads \
             to the first tunnel, docs/troubleshooting.md to the cause of a fault.",
        );
        match self {
            Self::Vpnctl => vec![socket, store, book],
            Self::Vpnd => vec![
                entry(
                    "/etc/vpnd/policy.xml".to_owned(),
                    "The policy that the systemd service names: an AIX_VPN XML file. It holds preshared keys: its mode is 0600.",
                ),
                entry(
                    "/etc/vpnd/vpnd.toml".to_owned(),
                    "The configuration, if it exists and --config names no other one; vpnd.toml(5) describes it.",
                ),
                entry(
                    path(&config.certificates.directory),
                    "The directory of certificates, private keys and revocation lists.",
                ),
                socket,
                store,
                entry(
                    path(&config.esp.state_dir),
                    "The changes of vpnd to the system, which the next start undoes after a crash.",
                ),
                book,
            ],
        }
    }

    pub fn environment(&self) -> Vec<(String, String)> {
        let colour = [
            ("NO_COLOR", "If it is set and not empty, the output has no colours."),
            ("TERM", "With the value dumb, the output has no colours."),
            (
                "VPN_COMPLETE",
                "The completion scripts set it to ask for completions; its value is the shell.",
            ),
        ];
        let mut all = owned(&colour);
        match self {
            Self::Vpnd => all.extend(owned(&[
                (
                    "NOTIFY_SOCKET",
                    "systemd sets it: vpnd then reports on that socket that it is ready, reloading or stopping.",
                ),
                ("VPND_CONTROL", "The control socket, unless --control names one."),
            ])),
            Self::Vpnctl => all.extend(owned(&[
                (
                    "VPND_CONTROL",
                    "The control socket of the daemon, unless --control names one. The AIX commands of vpnctl \
                     aix-links have no such option.",
                ),
                (
                    "VPND_CONFIG",
                    "The file whose log level the AIX command ike cmd=log puts in force. Without it, that is the \
                     configuration file of the running vpnd.",
                ),
            ])),
        }
        all
    }
}

fn owned(entries: &[(&str, &str)]) -> Vec<(String, String)> {
    entries.iter().map(|(name, meaning)| ((*name).to_owned(), (*meaning).to_owned())).collect()
}
