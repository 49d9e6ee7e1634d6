//! IKEv2 (RFC 7296) without I/O: an engine that negotiates IKE SAs and Child SAs.
//!
//! The engine has no socket, clock or thread. It takes datagrams, notices of the data plane, the time and commands, and
//! it gives datagrams, jobs, events and the next moment at which it wants to be woken. Its caller (the tokio driver of
//! the crate `vpn`, the simulation, a fuzz target) calls [`Engine::poll`] after each input.
//!
//! ```text
//!  handle_datagram ┐                                              ┌ Transmit
//!  handle_notice   │   ┌────────────────────────────────────┐     │ Job  (certificates)
//!  handle_timeout  ├──▶│ engine    all sessions, the policy │────▶│ Event
//!  handle_done     │   └──────┬──────────────────▲──────────┘poll │ Wait (deadline)
//!  connect, rekey… ┘   input  │                  │ Effects        └
//!                      ┌──────▼──────────────────┴──────────┐
//!                      │ dispatch  message, job, task, time │
//!                      └──────┬─────────────────────────────┘
//!                      ┌──────▼─────────┐   ┌───────────────┐
//!                      │ exchange/*     │──▶│ session       │  one authenticated peer
//!                      │ ask, answer,   │   │ sa            │  its IKE SAs and Child SAs
//!                      │ conclude       │   └───────┬───────┘
//!                      └────────────────┘           ▼
//!                                            DataPlane (keys of ESP, rules)
//! ```
//!
//! A method of a session returns its `Effects` (`effect.rs`): everything that it asks of the engine. The engine
//! applies them in one place, and the compiler warns of effects that are dropped.
//!
//! # Example
//!
//! An engine with a policy without tunnels has nothing to do and waits for nothing:
//!
//! ```
//! use esp::datapath::{Datapath, Settings};
//! use ike::{Config, Engine, Output};
//! use std::sync::Arc;
//! use std::time::Instant;
//!
//! let now = Instant::now();
//! let policy = Arc::new(policy::Policy::default());
//! let plane = Datapath::new(Settings::default(), now);
//! // The seed feeds every random choice: a gateway takes it from the system.
//! let mut engine = Engine::new(policy, Config::default(), plane, [7; 32], now)?;
//! loop {
//!     match engine.poll() {
//!         Output::Transmit(datagram) => println!("send {} octets", datagram.octets.len()),
//!         Output::Job(job) => println!("run {job:?} and give the result to handle_done"),
//!         Output::Event(event) => println!("{event}"),
//!         Output::Wait(deadline) => break assert_eq!(deadline, None),
//!     }
//! }
//! # Ok::<(), ike::InvalidSettings>(())
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Where do inputs and commands enter, and wait? | `engine/`; `priority_queue.rs`, `deadlines.rs` |
//! | How are strangers answered? Which tunnels come back? | `engine/strangers.rs`, `strangers.rs`, `admission.rs`, `exchange/half_open.rs`; `engine/reconnect.rs`, `reconnection.rs` |
//! | Where is an exchange asked, answered, concluded? | `exchange/`, one file each; `dispatch.rs` calls them |
//! | Which of two crossing exchanges goes on? | `collision.rs`, whose head names the functions; `sa/lowest_nonce.rs` |
//! | How is a session timed, moved, renewed and ended? | `session/`; its wishes are `task.rs` and `effect.rs` |
//! | What is true of one IKE SA or Child SA: states, window, path, keys, fragments? How does a successor in another process take all over? | `sa.rs`, `sa/`; `engine/frozen.rs` |
//! | Which tunnel does a request mean? | `policy_index.rs`, `exchange/child_sa/`, `rules.rs` |
//! | Where are algorithms offered and chosen, and selectors narrowed? | `negotiation/` |
//! | How are certificates, keys and revocation proved and checked? | `proof/` |
//! | Where are messages read and written, and IANA's numbers named? | `wire/` |
//! | Where are key exchange, PRFs and randomness? Where are tickets of resumption sealed? | `crypto/`; `ticket.rs` |
//! | What do peer, operator and counters learn? | `rejection.rs`; `failure.rs`, `event.rs`, `status.rs`; `discard.rs` |
//!
//! Tests of whole sessions are in `tests/simulated/` of the repository.
//!
//! # How a tunnel comes up
//!
//! A stranger's IKE_SA_INIT makes a half-open IKE SA. If there are many, the stranger must first return a cookie. A
//! valid proof turns it into a session: one authenticated peer, with the IKE SA that serves now, those it replaces, and
//! the Child SAs of all of them. Child SAs belong to the session, not to an IKE SA. So the rekeying of an IKE SA has
//! nothing to move, and a request about a Child SA finds it whichever IKE SA carries the request.
//!
//! A session that this side begins has an attempt (`sa/attempt.rs`) until both sides have proved who they are. Then the
//! attempt becomes the first IKE SA in use. An exchange on an IKE SA in use gets it as a `Carrier`
//! (`session/carrier.rs`), which leads to the session, too.
//!
//! The data plane is passed in and is synchronous. A responder must be able to receive on an SA before it sends the
//! answer that creates it, and a failed installation must become a Notify in that same answer.
//!
//! Work with certificates takes milliseconds and may need a revocation list. It leaves the engine as a [`proof::Job`];
//! the IKE_AUTH message that it belongs to waits. If its session has gone by the time the job is done, nothing happens.
//! A job that lacks a revocation list says so after path, name and signature have been checked, so that nobody without
//! a valid certificate makes the gateway fetch anything.
//!
//! Reasons to start an exchange queue as tasks. One exchange of ours is in flight per IKE SA.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests take the present as their start")
)]

mod admission;
mod close_reason;
mod collision;
mod config;
mod contacts;
mod context;
pub mod crypto;
mod datagram;
mod deadlines;
pub mod discard;
mod dispatch;
pub mod durations;
mod effect;
mod engine;
pub mod event;
mod exchange;
pub mod failure;
pub mod families;
mod frozen;
mod impossible;
pub mod key_log;
pub mod negotiation;
mod originator;
mod outputs;
mod past_failures;
mod policy_index;
pub mod priority_queue;
pub mod product;
pub mod proof;
pub mod quantum;
mod reconnection;
mod rejection;
mod resumption;
mod rules;
mod sa;
mod session;
mod session_id;
pub mod status;
mod strangers;
mod task;
mod thawing;
pub mod ticket;
pub mod unreachable;
mod upkeep;
pub mod wire;

pub use close_reason::CloseReason;
pub use config::{Config, Encap, InvalidConfig, InvalidSettings, InvalidValue, RestartAction};
pub use datagram::{Datagram, Transmit};
pub use deadlines::Deadline;
pub use engine::{
    CommandError, Engine, Inventory, NotDrained, Output, Startable, Target, ThawError,
};
pub use event::{Event, EventKind};
pub use failure::{Failure, FailureKind};
pub use sa::path::{IKE_PORT, NAT_T_PORT, SMALLEST_FRAGMENT};
