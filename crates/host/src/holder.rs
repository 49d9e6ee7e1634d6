//! The process that has a UDP port: whom an operator has to stop before another daemon can start.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
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
    udp_holder_at(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port))
}

/// The same of the processes that keep others from the port at this address.
pub fn udp_holder_at(local: SocketAddr) -> Option<Process> {
    let mut inodes = BTreeSet::new();
    for table in ["udp", "udp6"] {
        // A host may lack IPv6.
        let text = fs::read_to_string(Path::new("/proc/thread-self/net").join(table));
        inodes.extend(text.unwrap_or_default().lines().filter_map(|line| inode(line, local)));
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

/// The inode in a line of `/proc/net/udp`, if the socket stands in the way of this address and port.
fn inode(line: &str, local: SocketAddr) -> Option<u64> {
    let mut words = line.split_whitespace();
    let (address, port) = words.nth(1)?.rsplit_once(':')?;
    let inode = words.nth(7)?.parse().ok()?;
    let has = address_of(address)?;
    let meets = has == local.ip() || has.is_unspecified() || local.ip().is_unspecified();
    (meets && u16::from_str_radix(port, 16) == Ok(local.port())).then_some(inode)
}

/// An address as the kernel prints it: words of four octets, each a number in the order of this machine.
fn address_of(hex: &str) -> Option<IpAddr> {
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(hex, 0)?.to_ne_bytes()).into()),
        32 => {
            let mut octets = [0; 16];
            for (at, part) in octets.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(hex, at)?.to_ne_bytes());
            }
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

fn word(hex: &str, at: usize) -> Option<u32> {
    u32::from_str_radix(hex.get(at * 8..at * 8 + 8)?, 16).ok()
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
        let at = |address: &str| address.parse().expect("an address");
        assert_eq!(inode(line, at("192.0.2.1:500")), Some(48213));
        assert_eq!(inode(line, at("192.0.2.1:4500")), None);
        let line = line
            .replace("00000000:01F4", &format!("{:08X}:01F4", u32::from_ne_bytes([127, 0, 0, 2])));
        assert_eq!(inode(&line, at("127.0.0.2:500")), Some(48213));
        assert_eq!(inode(&line, at("0.0.0.0:500")), Some(48213));
        assert_eq!(inode(&line, at("127.0.0.3:500")), None);
        let head = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref";
        assert_eq!(inode(head, at("0.0.0.0:500")), None);
    }
}
