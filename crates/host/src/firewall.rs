//! The host's packet filter: how its rules are read. What they do to a packet is in `host_facts`.

#![forbid(unsafe_code)]

pub use host_facts::firewall::{Fate, Firewall, Hook, Packet, Place};

use crate::nft;
use std::fs;

/// Reads the rules of the network namespace of the calling thread, which takes the time that `nft` needs.
pub fn read() -> Firewall {
    if !nft::available() {
        return Firewall::not_read("the program nft is not installed".into());
    }
    let mut firewall = match nft::ruleset() {
        Ok(text) => Firewall::parse(&text),
        Err(error) => Firewall::not_read(error.to_string()),
    };
    firewall.unread = firewall.unread.take().or_else(legacy);
    firewall
}

/// A remark, if the kernel has rules of the old `iptables`, which `nft` does not list.
fn legacy() -> Option<String> {
    has_legacy_tables()
        .then(|| "this host has tables of iptables-legacy, which nft does not list".to_owned())
}

/// Returns `true` if the kernel has tables of the old `iptables`, which `nft` does not list.
pub fn has_legacy_tables() -> bool {
    ["ip_tables_names", "ip6_tables_names"].into_iter().any(|file| {
        fs::read_to_string(format!("/proc/thread-self/net/{file}"))
            .is_ok_and(|tables| !tables.trim().is_empty())
    })
}
