//! The programs `vpnd` and `vpnctl`: their commands, the daemon around a gateway, and what they print.
//!
//! ```text
//! vpnctl ── commands/NAME.rs ── control::Client ══ socket ══ daemon/server.rs ── daemon/service.rs ── vpn::Gateway
//!               │                                                                    │
//!           report/ (text)                                                       view/ (gateway's values → protocol)
//! vpnd ──── vpnd/NAME.rs ── check.rs, demo.rs, daemon.rs ── config.rs, daemon/source.rs, certificates.rs
//! ```
//!
//! The protocol is the crate `control`, conversion the crate `convert`, the demo and the experiments the crate `lab`.
//!
//! # Example
//!
//! A policy is checked as `vpnd check` checks it:
//!
//! ```
//! let config = cli::config::Config::default();
//! let outcome = cli::check::check(&cli::check::Request {
//!     file: "../../config/aix-sample-left.xml".as_ref(),
//!     config: &config,
//!     lenient: false,
//!     format: cli::check::Format::default(),
//!     colour: cli::report::Colour(false),
//! });
//! assert!(outcome.is_good, "{}", outcome.errors);
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Where is a command, and where does a new one go? | `commands/` (`vpnctl`), `vpnd/` |
//! | Where does the daemon answer a command? | the table in `daemon/service.rs`; `daemon/`, one file per subject |
//! | Where does the daemon start, reload and stop? | `daemon.rs`, `daemon/reload.rs` |
//! | Who may connect, and what may the daemon do? | `daemon/server.rs`, `daemon/privilege.rs`, `daemon/confinement.rs` |
//! | Where are the settings of `vpnd.toml`, and the rule for the control socket? | `config/`, `control_socket.rs` |
//! | Where are policy and certificates read? | `daemon/source.rs`, `store.rs`, `certificates.rs`; the policy file: `host::policy_file` |
//! | Where does an answer get its fields, and its text? | `view.rs`, `view/`; `report.rs`, `report/` |
//! | Where is a state explained, or judged? | `why/`, `health/`, `support/`; `src/findings/` of crate `vpn` |
//! | Who warns of settings that do nothing or lock out? | the table in `preflight.rs`; `*_advice.rs`, `kernel_traffic.rs`, `lockout.rs` |
//! | Where do events, numbers and keys leave it? | `daemon/`, files of their names; `wireshark.rs` |
//! | Where are AIX's commands? | `aix.rs`, `aix/` |
//! | Where are help, manual pages and completions made? | `help.rs`, `manual.rs`, `shell.rs`, `completions.rs` |
#![forbid(unsafe_code)]

pub mod aix;
pub mod certificates;
mod channel;
pub mod check;
pub mod commands;
mod completions;
pub mod config;
pub mod control_socket;
pub mod convert;
pub mod counters;
pub mod crypto;
pub mod daemon;
pub mod delegated;
pub mod demo;
pub mod exec;
pub mod families;
pub mod filter;
mod filter_advice;
mod guard_advice;
mod health;
pub mod help;
pub mod in_process;
pub mod install;
mod kept;
mod kernel_traffic;
mod lockout;
pub mod manual;
mod offload_advice;
pub mod pki;
pub mod policy_new;
mod preflight;
pub mod probe;
mod programs;
pub mod proxy;
pub mod report;
pub mod sa_file;
pub mod shell;
pub mod store;
mod support;
pub mod top;
pub mod trace;
pub mod view;
pub mod vpnd;
pub mod why;
pub mod wireshark;
