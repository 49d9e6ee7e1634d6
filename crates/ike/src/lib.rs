//! IKEv2 (RFC 7296) without I/O: an engine that negotiates IKE SAs and Child SAs.
//!
//! The engine has no socket, clock or thread. It takes datagrams, notices of the data plane, the time and commands, and
//! it gives datagrams, jobs, events and the next moment at which it wants to be woken. Its caller (the tokio driver of
//! the package `vpn`, the simulation, a fuzz target) calls [`Engine::poll`] after each input.
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
//! | Where do datagrams, notices, commands and the time enter, and what waits? | `engine.rs`, `engine/`; `priority_queue.rs`, `deadlines.rs` |
//! | How are strangers answered, and how many are let in? | `engine/strangers.rs`, `admission.rs`, `exchange/half_open.rs` |
//! | Where is a message of one exchange made, answered, concluded? | `exchange/`, one file per exchange; `dispatch.rs` calls them |
//! | Which of two exchanges or SAs that cross goes on? | `collision.rs`, the file of the exchange, `sa/lowest_nonce.rs` |
//! | How is a session timed, moved, renewed and ended? | `session.rs`, `session/`; its wishes are `task.rs` and `effect.rs` |
//! | What is true of one IKE SA or Child SA: states, window, path, keys, fragments? | `sa.rs`, `sa/` |
//! | Which tunnel does a request mean, and which rules has the plane? | `policy_index.rs`, `exchange/child_sa/`, `rules.rs` |
//! | Where are algorithms offered and chosen, and selectors narrowed? | `negotiation/` |
//! | How are certificates, keys and revocation proved and checked? | `proof/` |
//! | Where are messages read and written, and IANA's numbers named? | `wire/` |
//! | Where are key exchange, PRFs and randomness? | `crypto/` |
//! | What is the peer told, what the operator, and what is counted? | `rejection.rs`; `failure.rs`, `event.rs`, `status.rs`; `discard.rs` |
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
//! The data plane is passed in and is synchronous. A responder must be able to receive on an SA before it sends the
//! answer that creates it, and a failed installation must become a Notify in that same answer.
//!
//! Work with certificates takes milliseconds and may need a revocation list. It leaves the engine as a [`proof::Job`];
//! the IKE_AUTH message that it belongs to waits. If its session has gone by the time the job is done, nothing happens.
//! A job that lacks a revocation list says so after path, name and signature have been checked, so that nobody without
//! a valid certificate makes the gateway fetch anything.
//!
//! Reasons to start an exchange queue as tasks. One exchange of ours is in flight per IKE SA.
//!
//! # Choices worth knowing
//!
//! - **Which proposal.** A responder takes the first proposal of its own policy that the peer offers, and within it the
//!   first algorithm of its own.
//! - **Which group.** That holds for the group of an IKE SA, too. If IKE_SA_INIT brings the public value of another
//!   group, the responder asks for its own choice with INVALID_KE_PAYLOAD, which costs a round trip. So an attacker who
//!   forges INVALID_KE_PAYLOAD does not decide on the group: the initiator offers all of its groups again, the
//!   responder chooses from them by its own order, and both proofs cover that offer (RFC 7296 §1.2, §2.15). The
//!   attacker can still keep the IKE SA from coming up. A responder of another implementation may take the group that
//!   it is sent: then only the initiator's policy bounds the choice. A request of CREATE_CHILD_SA cannot be forged:
//!   there, the responder takes the group whose public value came along, if its policy has it.
//! - **Key overlap.** `KeyOverlap` is the share of the lifetime in which old and new keys exist together: rekeying
//!   starts at (100 − overlap) % of the lifetime, less jitter. Values above 50 count as 50.
//! - **A rekey loses no packet.** The side that asked sends on the new SA at once, but to OpenIKED after the next
//!   exchange: it answers before it can receive. The responder keeps its new outbound SA in standby until the peer
//!   deletes the old Child SA, which proves that the peer has the new one. Many peers stop receiving on an SA with its
//!   Delete, and the network may deliver that before packets that were sent earlier. So the Delete of a Child SA that
//!   this side has replaced, and that of a session that another one has succeeded, waits for 1 s ([`Config::drain`]);
//!   it is a delayed task of the session. Until the peer has answered that Delete, this side neither rekeys the
//!   successor nor lets the peer do so: strongSwan (5.9) begins to send on the successor with the Delete. The answer to
//!   a Delete of SAs on which this side was sending until then waits for 250 ms ([`Config::drain_before_answer`]). A
//!   replaced inbound SA receives for 5 s more ([`Config::linger`]). Where the operator takes a tunnel down, nothing
//!   waits.
//! - **Refusals in IKE_SA_INIT** are not authenticated. They are believed only if nothing better comes for two seconds.
//! - **Whose traffic.** A packet goes by the first rule that covers it, whether that tunnel is up or not. A request for
//!   traffic that an earlier rule of another peer covers completely is refused (`rules.rs`, `shadowing_rule`).
//! - **Strangers.** A request for which this side has computed a key exchange counts as half-open for 30 s, even if it
//!   is refused.
//! - **Succession.** If a peer begins a session while it still has an older one, the new one succeeds the older one.
//!   The Child SAs of the new session stand by until the side that began the new session deletes the old one. At most
//!   eight sessions of a tunnel wait for the peer's Delete, and eight for the answer to ours; the oldest go first.
//! - **Key exchanges stay in the engine's thread.** An urgent message waits for the key exchange of one other message
//!   at most (1.5 ms with MODP-2048), because urgent messages go first ([`priority_queue`]). Signatures are jobs.
//! - **Duplicates.** If both sides set up a Child SA or a session for one tunnel at once, the one made with the lowest
//!   nonce goes, deleted by the side that made it, as RFC 7296 §2.8 says of rekeys.
//! - **Fragments.** A message longer than [`Config::fragment_size`] goes in fragments (RFC 7383) if the peer takes
//!   them. A request without an answer is cut smaller after two repetitions (1280, then 576 octets per IP datagram); so
//!   is an answer whose request keeps coming. Only authentic fragments are kept, up to 64 KiB in 256 fragments, and up
//!   to 16 KiB from a peer without proof.
//! - **Signatures.** An initiator's RSA key signs with PSS (RFC 8247), a responder's as the peer has signed. SHA-1 is
//!   never made. It is accepted only in the classic RSA method, if the policy names it.
//! - **Revocation.** A list counts only if the issuer in the validated chain has signed it. OCSP responses count only
//!   if every certificate of the path has one.
//! - **Failures are values**: a kind and typed facts ([`failure::facts`]). The last four of each tunnel are kept.
//!   Reports of somebody who has not proved to be the peer are kept apart (`past_failures.rs`).
//! - **NO_ADDITIONAL_SAS** as the answer to a rekey makes a new IKE SA (RFC 7296 §4).
//! - **Impossible branches** are counted as `bug` and logged with their place; a debug build stops (`impossible.rs`).
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
mod dropped;
pub mod durations;
mod effect;
mod engine;
pub mod event;
mod exchange;
pub mod failure;
mod families;
mod impossible;
pub mod key_log;
pub mod negotiation;
mod outputs;
mod past_failures;
mod policy_index;
pub mod priority_queue;
pub mod product;
pub mod proof;
pub mod quantum;
mod rejection;
mod rules;
mod sa;
mod session;
mod session_id;
pub mod status;
mod task;
pub mod unreachable;
pub mod validate;
pub mod wire;

pub use close_reason::CloseReason;
pub use config::{Config, Encap, RestartAction};
pub use datagram::{Datagram, Transmit};
pub use deadlines::Deadline;
pub use engine::{CommandError, Engine, Inventory, Output, Startable, Target};
pub use event::{Event, EventKind};
pub use failure::{Failure, FailureKind};
pub use sa::path::{IKE_PORT, NAT_T_PORT, SMALLEST_FRAGMENT};
pub use validate::{InvalidConfig, InvalidSettings, InvalidValue};
