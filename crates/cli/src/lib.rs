//! The programs `vpnd` and `vpnctl`: their commands, the daemon around a gateway, and what they print.
//!
//! ```text
//! vpnctl ── commands/NAME.rs ── control::Client ══ socket ══ daemon/server.rs ── daemon/service.rs ── vpn::Gateway
//!               │                                                                    │
//!           report/ (text)                                                       view/ (gateway's values → protocol)
//! vpnd ──── vpnd/NAME.rs ── check.rs, demo.rs, daemon.rs ── config.rs, policy_file.rs, certificates.rs
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
//! | Where does a new command go? | a file in `commands/` (`vpnctl`) or `vpnd/`, a line in the table of `commands.rs` or `vpnd.rs` |
//! | Where does the daemon carry a command out? | a line in the table of `daemon/service.rs`, a method in the file of its topic beside it |
//! | Where do values of the gateway become fields of the protocol? | `view.rs`, `view/` |
//! | How is an answer printed? | `report/`, one file per subject |
//! | Where does a failure become the sentence and the advice of `vpnctl why`? | `why.rs`, `message` and `Advice`; the peer's Notify becomes a failure in `crates/ike/src/rejection.rs`, `failure_of` |
//! | Where is a setting of `vpnd.toml` added? | `config.rs`, `config/` |
//! | What happens at start and at the end? | `daemon.rs` |
//! | What does a reload do (SIGHUP or `vpnctl reload`)? | `daemon/reload.rs`; `crates/policy/src/change.rs` and `crates/ike/src/engine/replacement.rs` decide which tunnels stay |
//! | Who may connect to the socket, and how much may they send? | `daemon/server.rs`; `daemon/server/socket.rs` makes the socket and sets its mode |
//! | Where are AIX's commands (`ike`, `ikedb`, …)? | `aix/` |
//! | What does `vpnctl top` show? | `top/` |
#![forbid(unsafe_code)]

pub mod aix;
pub mod certificates;
pub mod check;
pub mod commands;
pub mod config;
pub mod convert;
pub mod counters;
pub mod course;
pub mod crypto;
pub mod daemon;
pub mod demo;
pub mod filter;
mod offload_advice;
pub mod policy_file;
pub mod report;
pub mod shell;
pub mod store;
pub mod top;
pub mod view;
pub mod vpnd;
pub mod why;
pub mod wireshark;
