//! IKEv2 (RFC 7296) without I/O: an engine that negotiates IKE SAs and Child SAs.
//!
//! The engine has no socket, clock or thread. It takes datagrams, notices of the data plane, the time and commands, and
//! it gives datagrams, jobs, events and the next moment at which it wants to be woken. Whatever runs it (the tokio driver
//! of the package `vpn`, the simulation, a fuzz target) calls [`Engine::poll`] after each input.
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
//! | Where does a datagram enter? | `engine.rs`, `handle_datagram`; then `dispatch.rs` |
//! | Where is a notify type named, where read? | named in `wire/registry.rs`; read in the file of its exchange, or in `engine.rs` (COOKIE), `session/renewal.rs` (AUTH_LIFETIME), `sa/path.rs` (NAT_DETECTION) |
//! | Where is a message of one exchange made, answered, concluded? | `exchange/`, one file per exchange |
//! | Where is a cookie demanded of strangers? | `admission.rs` |
//! | Which states has a responder before the peer's proof? | `exchange/half_open.rs` |
//! | May a request be answered that meets an exchange of ours? | `collision.rs`, `admit` |
//! | Both sides rekey at once: which SA stays? | `exchange/create_child.rs` and `exchange/rekey_ike.rs`; `sa/lowest_nonce.rs` compares |
//! | When does an outbound SA in standby begin to send? | `exchange/delete.rs`, `give_up_child` and `revive`; after reauthentication `session/renewal.rs`, `relieve` |
//! | What can a session ask of the engine, and where is it done? | `effect.rs`; `engine.rs`, `put_back` |
//! | When is a Child SA rekeyed? | `sa/child.rs`, `install`; the jitter is in `context.rs`, the share of the lifetime in `crates/policy/src/lifetime.rs`, `soft` |
//! | What happens if an address changes? | `session/roaming.rs`: `follow_update` after the peer's update, `move_to` if a NAT moved the peer; the messages are in `exchange/address_update.rs` |
//! | What comes back after a failure, and when? | `engine/reconnect.rs` |
//! | How is a peer authenticated again? | `session/renewal.rs`, `engine/renewal.rs` |
//! | Which tunnel does a request mean? | `policy_index.rs` for IKE SAs, `exchange/child_sa/matching.rs` for Child SAs |
//! | Which SAs stay when the policy is replaced? | `engine/replacement.rs` |
//! | Which of several sessions of a tunnel stays? | `engine/succession.rs` |
//! | What is a peer told about an error? | `rejection.rs` |
//! | Why is a datagram ignored, and where is it counted? | `discard.rs`; `outputs.rs`, `discard` |
//! | How is a Diffie-Hellman group added? | its value in `crates/policy/src/proposal.rs`; its words in `crates/policy/src/xml/lower/algorithm.rs`; its number in `wire/registry.rs` and `negotiation/transforms.rs` (`group_id`, `GROUPS`); its arithmetic in `crypto/key_exchange.rs`; `crates/convert/src/proposal.rs` and `write.rs` |
//! | When does an SA end? | by time: `session/aging.rs`; when volume or sequence numbers run out: `crates/esp/src/outbound.rs`, `claim`, then `session.rs`, `replace_exhausted` |
//! | Where is a repeated request answered as before? | `dispatch.rs`, `repeat_answer`, and `sa/window.rs`; before the peer's proof: `engine/strangers.rs` |
//! | How is a certificate checked? | `proof/job.rs`; what is trusted is in `proof/trust.rs` |
//! | How is a certificate's revocation checked? | `proof/job.rs`, `check`, then `proof/path.rs`, `unrevoked`; `proof/crl.rs` and `proof/ocsp.rs` read the formats. The package `vpn` downloads lists: `src/revocation.rs` |
//! | Which message waits before which? | `priority_queue.rs` |
//!
//! # How a tunnel comes up
//!
//! A stranger's IKE_SA_INIT makes a half-open IKE SA. If there are many, the stranger must first return a cookie. A valid
//! proof turns it into a session: one authenticated peer, with the IKE SA that serves now, those it replaces, and the Child
//! SAs of all of them. Child SAs belong to the session, not to an IKE SA. So the rekeying of an IKE SA has nothing to move,
//! and a request about a Child SA finds it whichever IKE SA carries the request.
//!
//! The data plane is passed in and is synchronous. A responder must be able to receive on an SA before it sends the answer
//! that creates it, and a failed installation must become a Notify in that same answer.
//!
//! Work with certificates takes milliseconds and may need a revocation list. It leaves the engine as a [`proof::Job`]; the
//! IKE_AUTH message that it belongs to waits. If its session has gone by the time the job is done, nothing happens. A job
//! that lacks a revocation list says so after path, name and signature have been checked, so that nobody without a valid
//! certificate makes the gateway fetch anything.
//!
//! Reasons to start an exchange queue as tasks. One exchange of ours is in flight per IKE SA.
//!
//! # Choices worth knowing
//!
//! - **Which proposal.** A responder takes the first proposal of its own policy that the peer offers. Among acceptable
//!   groups it takes the one whose public value came with the request.
//! - **Key overlap.** `KeyOverlap` is the share of the lifetime in which old and new keys exist together: rekeying starts at
//!   (100 − overlap) % of the lifetime, less jitter. Values above 50 count as 50.
//! - **A rekey loses no packet.** The responder of a rekey keeps its new outbound SA in standby until the peer deletes the
//!   old Child SA, which proves that the peer has the new one. A replaced inbound SA receives for some seconds more. A
//!   session that another one has succeeded is deleted only [`Config::drain`] later: packets that were admitted on its SAs
//!   must leave first. For the same reason the answer to a peer's Delete of the last IKE SA waits as long.
//! - **Refusals in IKE_SA_INIT** are not authenticated. They are believed only if nothing better comes for two seconds.
//! - **Whose traffic.** A packet goes by the first rule that covers it, whether that tunnel is up or not. A request for
//!   traffic that an earlier rule of another peer covers completely is refused (`rules.rs`, `shadowing_rule`).
//! - **Strangers.** A request for which this side has computed a key exchange counts as half-open for 30 s, even if it is refused.
//! - **Succession.** If a peer begins a session while it still has an older one, the new one succeeds the older one. The
//!   Child SAs of the new session stand by until the side that began the new session deletes the old one. At most eight sessions of a tunnel wait for
//!   the peer's Delete, and eight for the answer to ours; the oldest go first.
//! - **Key exchanges stay in the engine's thread.** An urgent message waits for the key exchange of one other message at most
//!   (1.5 ms with MODP-2048), because urgent messages go first ([`priority_queue`]). Signatures are jobs.
//! - **Duplicates.** If both sides set up a Child SA or a session for one tunnel at once, the one made with the lowest nonce
//!   goes, deleted by the side that made it, as RFC 7296 §2.8 says of rekeys.
//! - **Fragments.** A message longer than [`Config::fragment_size`] goes in fragments (RFC 7383) if the peer takes them. A
//!   request without an answer is cut smaller after two repetitions (1280, then 576 octets per IP datagram); so is an answer
//!   whose request keeps coming. Only authentic fragments are kept, up to 64 KiB in 256 fragments, and up to 16 KiB from a
//!   peer without proof.
//! - **Signatures.** An initiator's RSA key signs with PSS (RFC 8247), a responder's as the peer has signed. SHA-1 is never
//!   made. It is accepted only in the classic RSA method, if the policy names it.
//! - **Revocation.** A list counts only if the issuer in the validated chain has signed it. OCSP responses count only if
//!   every certificate of the path has one.
//! - **Failures are values**: a kind and typed facts ([`failure::facts`]). The last four of each tunnel are kept. Reports of
//!   somebody who has not proved to be the peer are kept apart (`past_failures.rs`).
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
mod effect;
mod engine;
pub mod event;
mod exchange;
pub mod failure;
mod impossible;
pub mod key_log;
pub mod negotiation;
mod outputs;
mod past_failures;
mod policy_index;
pub mod priority_queue;
pub mod proof;
mod rejection;
mod rules;
mod sa;
mod session;
mod session_id;
pub mod status;
mod task;
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
