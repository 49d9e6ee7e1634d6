//! The kit of the tests: hosts in network namespaces, gateways on them, other daemons, and what a test needs of its
//! machine.
//!
//! ```text
//!  Trial ─▶ needs.rs: can it run here?           no ─▶ left out, with the reason
//!     │
//!     ▼                          wire
//!  Space "left" ── Gateway: vpnd ═════ vpnd or charon ── Space "right"
//!                     ▲             ▲
//!               ctl, json        Watch: nothing in the clear
//! ```
//!
//! It depends on no crate of the product but `host` and `namespaces`, so that tests of small crates need not wait for the
//! library.
//! The certificates of simulated scenarios are in the crate `sim`, which knows the engine.
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Which programs, files and rights can a test ask for, and what happens where they are missing? | `needs.rs`; how a program runs without rights: `nobody.rs` |
//! | How are tests named, run and reported? | `trials.rs` |
//! | How long does a test wait for something? | `waiting.rs` |
//! | How are hosts made, connected, configured and watched? | `space.rs` |
//! | How is `vpnd` started, commanded and stopped? | `daemon.rs`, on a host of its own: `gateway.rs`; where the programs are: `programs.rs` |
//! | How is any program started in a namespace and ended? | `process.rs`; `vpnd guard --watch`: `guard_watch.rs`; one thread of a program is stopped: `stopped.rs` |
//! | How is a namespace made, and which traffic checks that nothing is lost? | the crate `namespaces`, which `vpnd exec` uses, too |
//! | Which policies do the tests use? | `policies.rs` |
//! | How is strongSwan started and commanded? | `strongswan.rs` |
//! | How is Chromium started and commanded? | `browser.rs` |
//! | Which losses does a busy host cause? | `losses.rs` |
//! | Does a text show a secret? | `secrets.rs` |
#![forbid(unsafe_code)]

pub mod browser;
pub mod daemon;
pub mod gateway;
mod guard_watch;
mod losses;
mod needs;
pub mod nobody;
pub mod policies;
pub mod process;
mod programs;
mod secrets;
pub mod space;
mod stopped;
pub mod strongswan;
mod trials;
mod waiting;

pub use guard_watch::GuardWatch;
pub use left_out::skip;
pub use losses::{BUFFERS, TOGETHER, backlog_drops};
pub use namespaces::isolation::Namespace;
pub use namespaces::{capture, traffic};
pub use needs::{FILTERED, GATEWAYS, NOBODY, Need, PEERS, PINGED, WITH_NFT, missing, unavailable};
pub use programs::{output, vpn_lab, vpnctl};
pub use secrets::shows;
pub use stopped::Stopped;
pub use trials::{ONLY_NEEDS, leave_out, named_programs, run, test, trial, with_needs, without};
pub use waiting::{PATIENCE, datagram, eventually, until};
