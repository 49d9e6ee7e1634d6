//! The program `vpnd`: its commands, and the daemon around a gateway.
//!
//! ```text
//! vpnctl ══ socket ══ daemon/server.rs ── daemon/service.rs ── vpn::Gateway
//!                                              │
//!                                            view/ (gateway's values → protocol)
//! vpnd ──── commands/NAME.rs ── check.rs, demo.rs, daemon.rs ── config.rs, daemon/source.rs, certificates.rs
//! ```
//!
//! The protocol is the crate `control`, what `vpnctl` does the crate `cli`, the demo the crate `demo`.
//!
//! # Example
//!
//! A policy is checked as `vpnd check` checks it:
//!
//! ```
//! let config = vpnd::config::Config::default();
//! let outcome = vpnd::check::check(&vpnd::check::Request {
//!     file: "../../config/aix-sample-left.xml".as_ref(),
//!     config: &config,
//!     lenient: false,
//!     format: terminal::delegated::Format::default(),
//!     colour: terminal::report::Colour(false),
//! });
//! assert!(outcome.is_good, "{}", outcome.errors);
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Where is a command, and where does a new one go? | `commands/` |
//! | Where does the daemon answer a command? | the table in `daemon/service.rs`; `daemon/`, one file per subject |
//! | Where does the daemon start, reload and stop? | `daemon.rs`, `daemon/startup.rs`, `daemon/reload.rs` |
//! | Who may connect, and what may the daemon do? | `daemon/server.rs`, `daemon/privilege.rs`, `daemon/confinement.rs` |
//! | Where are the settings of `vpnd.toml`, and where does a new one go? | `config/`, one file per section; what is declared there: crate `settings` |
//! | Where are policy and certificates read? | `daemon/source.rs`, `store.rs`, `certificates.rs`; the policy file: `host::policy_file` |
//! | Where does an answer get its fields? | `view.rs`, `view/` |
//! | Where is a state explained? | `crates/diagnosis/src/`; its fields in an answer: `why.rs`; `support/` |
//! | Where are the remarks about a policy, at every entrance? | the table in `preflight.rs`, whose picture has the entrances; `preflight/`, one file per subject; their fields: `remark.rs` |
//! | Where do events, numbers and keys leave it? | `daemon/`, files of their names; `wireshark.rs` |
//! | What does `vpnctl` leave to this program? | `commands/vpnctl.rs`, `commands/offline.rs` |
//! | Where is the gateway without a device of the host? | `in_process.rs`, `proxy.rs`, `exec.rs` |
#![forbid(unsafe_code)]

pub mod certificates;
mod channel;
pub mod check;
pub mod commands;
pub mod config;
pub mod counters;
pub mod crypto;
pub mod daemon;
pub mod demo;
pub mod exec;
pub mod families;
pub mod filter;
mod in_force;
pub mod in_process;
pub mod install;
mod kept;
mod preflight;
pub mod proxy;
mod remark;
pub mod sa_file;
pub mod store;
mod support;
pub mod trace;
pub mod view;
pub mod why;
pub mod wireshark;
