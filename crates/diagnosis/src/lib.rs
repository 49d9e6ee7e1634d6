//! Why a tunnel is down and what helps, in the words of the policy and with the commands of `vpnctl`. Nothing in this crate
//! reads a file, a socket or the clock.
//!
//! ```text
//! ike: Failure, IkeStatus ──┐                       ┌─ cause: a sentence
//!      (values)             ├─► Explanation ────────┼─ evidence: the facts in one line
//! policy: Definitions ──────┘   of each failure,    ├─ comparison: rows of both sides
//!         (file and line)       end and silence     └─ cures: Cure { text, step: Set | Run | Ask }
//!
//! ike: Failure, Event, CommandError ──► line ──► log, answers of the daemon, spans
//!
//! ike: IkeStatus ──► subjects ──► questions ──► HostFacts ──► judge ──► Finding, of tunnels that are up
//! ```
//!
//! `ike` keeps facts as values and knows no program and no format of policies. Here are the sentences and the cures. Each
//! cure has a text for people, and the step in it for programs.
//!
//! # Example
//!
//! ```
//! use diagnosis::{Background, Step};
//! use ike::failure::{Failure, facts::Unsendable};
//! use ike::unreachable::Lack;
//!
//! let [local, remote] = ["192.0.2.1", "192.0.2.2"].map(|a| a.parse().expect("an address"));
//! let failure = Failure::from(Unsendable { lack: Lack::Route, local, remote });
//! let explanation = diagnosis::explain(&failure, Background::default());
//! assert_eq!(explanation.cause, "no route to the peer: this host has no route to 192.0.2.2");
//! let cure = &explanation.cures[0];
//! assert!(cure.text.ends_with(": ip route get 192.0.2.2"));
//! assert_eq!(cure.step, Step::Run(["ip", "route", "get", "192.0.2.2"].map(String::from).to_vec()));
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Which sentence tells the cause of a failure? | `failure/cause.rs` |
//! | Which values stand side by side? | `failure/comparison.rs` |
//! | Which cures has a failure? | `failure/advice.rs`; settings of other daemons: `failure/peer_settings.rs` |
//! | What does a tunnel that is down wait for, and why did it end? | `tunnel.rs` |
//! | What does the log say of a failure beside its facts? | `line.rs`; the facts: `crates/ike/src/failure/facts.rs` |
//! | Why do no packets pass through a tunnel that is up? | `findings.rs`, `findings/`, one file per subject |
//! | What is a cure to a program? | `cure.rs` |
#![forbid(unsafe_code)]

mod cure;
mod explanation;
mod failure;
pub mod findings;
pub mod line;
pub mod tunnel;
pub mod words;

pub use cure::{Cure, Step};
pub use explanation::{Element, Explained, Explanation, Row};
pub use failure::{Background, explain};
pub use tunnel::Tunnel;
