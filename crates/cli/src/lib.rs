//! The commands of `vpnctl`, and of AIX: they ask a running `vpnd`, and print its answers.
//!
//! ```text
//! vpnctl ── commands/NAME.rs ── control::Client ══ socket ══ vpnd
//!               │         │
//!               │     by_vpnd.rs, programs.rs ──► `vpnd vpnctl`, `vpnd offline`: what needs the engine or its files
//!           terminal::report (text)
//! ```
//!
//! `vpnctl` speaks only the control protocol of the crate `control`; the engine is not linked into it. Where no daemon
//! runs, the program `vpnd` beside it answers in its place.
//!
//! # Example
//!
//! Links with the names of AIX's commands lead to `vpnctl`, which then behaves as they do:
//!
//! ```
//! let directory = tempfile::tempdir()?;
//! let links = cli::aix::links::make(directory.path(), "/usr/bin/vpnctl".as_ref())?;
//! assert!(links.iter().any(|link| link.ends_with("ikedb")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Where is a command, and where does a new one go? | the table in `commands.rs`; `commands/` |
//! | Where does the daemon answer it? | `crates/vpnd/src/daemon/service.rs` |
//! | Which commands does `vpnd` carry out? | `commands/by_vpnd.rs`, `programs.rs` |
//! | Where does an answer get its text? | `crates/terminal/src/report/` |
//! | Where are policies written, stored and converted? | `policy_new/`, `policy_store.rs`, `convert.rs` |
//! | Where are keys and certificates made? | `pki/` |
//! | Where are the live table, probes and verdicts for monitoring? | `top/`, `probe/`, `health/` |
//! | Who keeps a change of the filter from locking its operator out? | `lockout.rs` |
//! | Where are AIX's commands? | `aix.rs`, `aix/` |
//! | What do shells complete? | `completions.rs` |
#![forbid(unsafe_code)]

pub mod aix;
pub mod commands;
pub mod completions;
pub mod convert;
pub mod crypto;
mod health;
mod lockout;
pub mod pki;
pub mod policy_new;
pub mod policy_store;
pub mod probe;
mod programs;
pub mod top;
