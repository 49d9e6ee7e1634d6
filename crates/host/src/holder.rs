//! The process that has a UDP port: whom an operator has to stop before another daemon can start.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A process of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub id: u32,
    /// Its name, as `ps` shows it.
    pub name: String,
}

/// Finds a process that has a UDP port in the network namespace of the calling thread. `None`: there is none, or this
/// process may not look at it.
pub fn udp_holder(port: u16) -> Option<Process> {
    let mut inodes = BTreeSet::new();
    for table in ["udp", "udp6"] {
        // A host may lack IPv6.
        let text = fs::read_to_string(Path::new("/proc/thread-self/net").join(table));
        inodes.extend(text.unwrap_or_default().lines().filter_map(|line| inode(line, port)));
    }
    let sockets: BTreeSet<String> =
        inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let processes = fs::read_dir("/proc").ok().filter(|_| !sockets.is_empty())?;
    processes.flatten().find_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let files = fs::read_dir(entry.path().join("fd")).ok()?;
        let mut links = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
        links.find(|link| link.to_str().is_some_and(|link| sockets.contains(link)))?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        Some(Process { id, name: name.trim_end().to_owned() })
    })
}

/// The inode in a line of `/proc/net/udp`, if the socket has this port.
fn inode(line: &str, port: u16) -> Option<u64> {
    let mut words = line.split_whitespace();
    let local = words.nth(1)?.rsplit_once(':')?.1;
    let inode = words.nth(7)?.parse().ok()?;
    (u16::from_str_radix(local, 16) == Ok(port)).then_some(inode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn a_port_of_this_process_is_found() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let port = socket.local_addr().expect("bound").port();
        let found = udp_holder(port).expect("this process has it");
        assert_eq!(found.id, std::process::id());
        assert!(!found.name.is_empty());
        drop(socket);
        assert!(udp_holder(port).is_none_or(|other| other.id != std::process::id()));
    }

    #[test]
    fn lines_of_the_table_are_read() {
        let line = "  464: 00000000:01F4 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 48213 2 0000 0";
        assert_eq!(inode(line, 500), Some(48213));
        assert_eq!(inode(line, 4500), None);
        let head = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref";
        assert_eq!(inode(head, 500), None);
    }
}
