//! A thread that hears when other programs change tables of this one in nftables.
//!
//! The kernel tells every change to the members of a multicast group, with the netlink port of the program that has
//! made it. The program `nft` binds to a port that has the number of its process, so that the changes of this program's
//! own `nft` processes are recognised.

use super::is_own;
use super::listener::Listener;
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use std::io;

/// The multicast group of changes of nftables (`NFNLGRP_NFTABLES`).
const GROUP: u32 = 7;
/// The subsystem of their messages, in the upper octet of the type (`NFNL_SUBSYS_NFTABLES`).
const NFTABLES: u8 = 10;
/// The message at the end of a transaction, which names no table (`NFT_MSG_NEWGEN`).
const END_OF_TRANSACTION: u8 = 15;
/// Octets of a netlink header, and of the header of netfilter's messages.
const HEADERS: [usize; 2] = [16, 4];
/// The attribute with the name of the table, in messages about tables and their contents alike (`NFTA_TABLE_NAME`).
const TABLE: u16 = 1;
/// Octets that wait to be read.
const BUFFER: usize = 1 << 20;

/// The thread. Dropping this ends it.
pub struct Watch(Listener);

impl Watch {
    /// Calls `changed` with the name of a table out of `tables` whenever another program has changed or removed it, or
    /// may have. The function is called in a thread of its own.
    ///
    /// # Errors
    /// If the kernel has no nftables, or refuses.
    pub fn start(tables: Vec<String>, changed: impl Fn(&str) + Send + 'static) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        socket.add_membership(GROUP)?;
        socket.set_non_blocking(true)?;
        // The system's limit may be lower. Losses are noticed.
        let _ = socket.set_rx_buf_sz(BUFFER as u32);
        let lost = "changes of nftables by other programs are no longer noticed";
        Listener::start("nft-watch", socket, lost, move |datagram| match datagram {
            Some(datagram) => changes_by_others(datagram)
                .filter(|table| tables.iter().any(|name| name == table))
                .for_each(&changed),
            // Any of them may have been about these tables.
            None => tables.iter().for_each(|name| changed(name)),
        })
        .map(Self)
    }

    /// Returns `true` if the thread has ended, because the kernel has refused to tell more. The log has the reason.
    pub fn has_ended(&self) -> bool {
        self.0.has_ended()
    }
}

/// The names of the tables that the messages of a datagram are about, without those that this program has sent.
fn changes_by_others(datagram: &[u8]) -> impl Iterator<Item = &str> {
    let mut rest = datagram;
    let messages = std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*rest.first_chunk()?) as usize;
        let message = rest.get(..length).filter(|m| m.len() >= HEADERS.iter().sum())?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    });
    messages.filter_map(|message| {
        let [kind, subsystem] = *message.get(4..)?.first_chunk()?;
        let port = u32::from_ne_bytes(*message.get(12..)?.first_chunk()?);
        let foreign = !is_own(port);
        let of_a_table = subsystem == NFTABLES && kind != END_OF_TRANSACTION;
        if foreign && of_a_table { table_of(&message[HEADERS.iter().sum()..]) } else { None }
    })
}

/// The name of the table among the attributes of a message.
fn table_of(mut attributes: &[u8]) -> Option<&str> {
    loop {
        let length = usize::from(u16::from_ne_bytes(*attributes.first_chunk()?));
        let kind = u16::from_ne_bytes(*attributes.get(2..)?.first_chunk()?);
        let value = attributes.get(4..length)?;
        if kind == TABLE {
            return std::str::from_utf8(value).ok().map(|name| name.trim_end_matches('\0'));
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message about a table, as the kernel lays it out.
    fn message(subsystem: u8, kind: u8, port: u32, table: &str) -> Vec<u8> {
        let mut attribute = ((table.len() + 5) as u16).to_ne_bytes().to_vec();
        attribute.extend(TABLE.to_ne_bytes());
        attribute.extend(table.as_bytes());
        attribute.push(0);
        attribute.resize(attribute.len().next_multiple_of(4), 0);
        let mut octets = ((20 + attribute.len()) as u32).to_ne_bytes().to_vec();
        octets.extend([kind, subsystem, 0, 0]);
        octets.extend(7_u32.to_ne_bytes());
        octets.extend(port.to_ne_bytes());
        octets.extend([1, 0, 0, 0]);
        octets.extend(attribute);
        octets
    }

    #[test]
    fn the_tables_that_others_change_are_named() {
        let mut datagram = message(NFTABLES, 2, u32::MAX, "vpn_guard_vpn0");
        datagram.extend(message(NFTABLES, 8, u32::MAX, "other"));
        datagram.extend(message(NFTABLES, END_OF_TRANSACTION, u32::MAX, "generation"));
        datagram.extend(message(1, 2, u32::MAX, "conntrack"));
        assert_eq!(changes_by_others(&datagram).collect::<Vec<_>>(), ["vpn_guard_vpn0", "other"]);
    }

    #[test]
    fn own_changes_are_not_told() {
        super::super::own_processes().push((4_000_000_001, None));
        assert_eq!(changes_by_others(&message(NFTABLES, 2, 4_000_000_001, "t")).count(), 0);
        assert_eq!(changes_by_others(&message(NFTABLES, 2, 4_000_000_002, "t")).count(), 1);
    }

    #[test]
    fn no_octets_make_it_panic() {
        let whole = message(NFTABLES, 2, 9, "table");
        for length in 0..whole.len() {
            changes_by_others(&whole[..length]).for_each(drop);
        }
        for at in 0..whole.len() {
            for octet in [0, 1, 3, 255] {
                let mut broken = whole.clone();
                broken[at] = octet;
                changes_by_others(&broken).for_each(drop);
            }
        }
    }
}
