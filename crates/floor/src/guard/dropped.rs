//! The packets that a guard has dropped, read from nftables.

#![forbid(unsafe_code)]

use super::holder::Holder;
use super::sets::{PacketClass, TRANSLATED};
use host::nft;

/// The packets that a guard, and the tables that are held beside it, have dropped.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// The guard is there. If not, the tables beside it count on.
    pub in_force: bool,
    /// Packets that were about to leave.
    pub leaving: u64,
    /// Packets that arrived.
    pub arriving: u64,
    /// Packets whose address was changed.
    pub translated: u64,
}

impl Dropped {
    /// Asks nftables about the guard of this name.
    pub fn of(table: &str) -> Self {
        nft::all_counters().map_or_else(|_| Self::default(), |text| Self::read(&text, table))
    }

    pub(super) fn read(text: &str, table: &str) -> Self {
        let guard = section(text, table);
        let held =
            Holder::purposes().map(|purpose| section(text, &table.replacen("guard", purpose, 1)));
        let sections = [guard].into_iter().chain(held);
        let leaving = sections.map(|s| count(s, PacketClass::Leaving.unprotected()));
        Self {
            in_force: guard.is_some(),
            leaving: leaving.sum(),
            arriving: count(guard, PacketClass::Arriving.unprotected()),
            translated: count(guard, TRANSLATED),
        }
    }
}

fn count(section: Option<&str>, counter: &str) -> u64 {
    section.and_then(|section| packets(section, counter)).unwrap_or(0)
}

/// A table's part of nft's listing of all counters.
pub(super) fn section<'a>(text: &'a str, table: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("table inet {table} {{"))?;
    rest.split("\n}").next()
}

/// The packets of a named counter in nft's words.
pub(super) fn packets(text: &str, counter: &str) -> Option<u64> {
    let (_, rest) = text.split_once(&format!("counter {counter} {{"))?;
    rest.split_whitespace().skip_while(|word| *word != "packets").nth(1)?.parse().ok()
}
