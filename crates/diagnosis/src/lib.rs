//! What a program tells its operator about a tunnel: in the words of the policy, and with the commands of `vpnctl`.
//!
//! ```text
//! ike: Failure, Event, CommandError ──► line ──► log, answers of the daemon, spans
//!      values and one neutral line
//! ```
//!
//! `ike` keeps facts as values and knows no program and no format of policies. Here are the cures. Nothing in this crate
//! reads a file, a socket or the clock.
//!
//! # Example
//!
//! ```
//! use ike::failure::{Failure, facts::Unsendable};
//! use ike::unreachable::Lack;
//!
//! let [local, remote] = ["192.0.2.1", "192.0.2.2"].map(|a| a.parse().expect("an address"));
//! let failure = Failure::from(Unsendable { lack: Lack::Address, local, remote });
//! assert!(failure.to_string().ends_with("the address of this side in the policy"));
//! let line = diagnosis::line::failure(&failure);
//! assert!(line.ends_with("; add it to an interface, or correct IKELocalIdentity"));
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | What does the log say of a failure beside its facts? | `line.rs`; the facts: `crates/ike/src/failure/facts.rs` |
#![forbid(unsafe_code)]

pub mod line;
