//! A change to the host: how it stands on record, and how it is undone.

use crate::netlink::{Family, MarkRule, Netlink};
use crate::nft;
use std::path::PathBuf;
use std::{fmt, fs, io};

/// The directory of the settings that the plane changes.
const SETTINGS: &str = "/proc/sys/net/";

/// Something that was changed on the host. A new kind needs its line in the file (`Display`, `parse`) and its `undo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Routes in a table.
    Table(u32),
    /// The rules of both families that lead to it.
    Rules {
        /// Packets with this mark skip the rules.
        mark: u32,
        /// The table they lead to.
        table: u32,
        /// Their place among the rules.
        priority: u32,
    },
    /// A kernel setting.
    Sysctl {
        /// Its file below `/proc/sys/net`.
        path: PathBuf,
        /// The value it had.
        previous: String,
        /// The value it was given.
        set: String,
    },
    /// The table of nftables that filters; it stays after a crash until another takes its place.
    Filter(String),
    /// Routing rules of this priority, which lead some traffic past the tunnels.
    Exceptions(u32),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(table) => write!(f, "table {table}"),
            Self::Rules { mark, table, priority } => write!(f, "rules {mark} {table} {priority}"),
            Self::Sysctl { path, previous, set } => {
                write!(f, "sysctl {previous} {set} {}", path.display())
            }
            Self::Filter(name) => write!(f, "filter {name}"),
            Self::Exceptions(priority) => write!(f, "exceptions {priority}"),
        }
    }
}

impl Change {
    /// Reads a line of the record; `None` if it is none.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (kind, rest) = line.split_once(' ')?;
        match kind {
            "table" => Some(Self::Table(rest.parse().ok()?)),
            "filter" => Some(Self::Filter(rest.to_owned())),
            "exceptions" => Some(Self::Exceptions(rest.parse().ok()?)),
            "rules" => {
                let mut numbers = rest.split(' ').map(|number| number.parse().ok());
                let (mark, table) = (numbers.next()??, numbers.next()??);
                Some(Self::Rules { mark, table, priority: numbers.next()?? })
            }
            "sysctl" => {
                let mut parts = rest.splitn(3, ' ');
                let (previous, set, path) = (parts.next()?, parts.next()?, parts.next()?);
                // Root undoes the changes: a record can name settings of the network and no other file.
                let setting = path.starts_with(SETTINGS) && !path.split('/').any(|p| p == "..");
                setting.then(|| Self::Sysctl {
                    previous: previous.to_owned(),
                    set: set.to_owned(),
                    path: path.into(),
                })
            }
            _ => None,
        }
    }

    /// Undoes the change on the host.
    pub(super) fn undo(&self, netlink: &mut Netlink) -> io::Result<()> {
        match self {
            Self::Rules { mark, table, priority } => Family::BOTH.iter().try_for_each(|&family| {
                let (mark, table, priority) = (*mark, *table, *priority);
                netlink.delete_rule(&MarkRule { family, mark, table, priority })
            }),
            Self::Table(table) => {
                Family::BOTH.iter().try_for_each(|&family| netlink.flush(family, *table))
            }
            Self::Sysctl { path, previous, set } => match fs::read_to_string(path) {
                // A value that was changed since then stays.
                Ok(now) if now.trim() == set => fs::write(path, previous),
                Ok(_) => Ok(()),
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(e) => Err(e),
            },
            Self::Filter(name) => nft::remove(name),
            Self::Exceptions(priority) => Family::BOTH
                .iter()
                .try_for_each(|&family| netlink.remove_exceptions(family, *priority)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_survive_the_file() {
        for change in [
            Change::Table(4500),
            Change::Rules { mark: 7, table: 4500, priority: 100 },
            Change::Sysctl {
                path: "/proc/sys/net/ipv4/conf/a b/rp_filter".into(),
                previous: "1".to_owned(),
                set: "2".to_owned(),
            },
            Change::Filter("vpn_filter".to_owned()),
            Change::Exceptions(4499),
        ] {
            assert_eq!(Change::parse(&change.to_string()), Some(change));
        }
    }

    #[test]
    fn unknown_lines_are_ignored() {
        for line in [
            "",
            "table",
            "table x",
            "rules 1 2",
            "rules 1 2 x",
            "sysctl 1 2",
            "sysctl 1 2 /etc/passwd",
            "sysctl 1 2 /proc/sys/net/../kernel/core_pattern",
            "else 1",
        ] {
            assert_eq!(Change::parse(line), None, "{line:?}");
        }
    }
}
