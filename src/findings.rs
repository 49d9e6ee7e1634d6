//! Findings: reasons why the packets of a phase 2 tunnel do not pass, or may not pass, although it is up.
//!
//! [`Gateway::findings`](crate::Gateway::findings) collects the facts when it is asked (`host::facts`, the state of the
//! SAs, the policy), and the crate `diagnosis` makes findings of them, without I/O. Nothing is changed on the host, and no
//! packet is sent.
//!
//! A gateway needs no more privileges for this than it has: netlink, `/proc/sys/net`, and the program `nft`, which the
//! guard needs too. So every program that embeds a gateway can ask.

pub use diagnosis::findings::{Finding, FindingKind};
pub(crate) use diagnosis::findings::{judge, questions, subjects};
