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
//! | Where does a datagram enter? | `engine.rs`, `handle_datagram`; a session's then goes to `dispatch.rs`, a stranger's to `engine/strangers.rs` |
//! | Where is a notify type named, where read? | named in `wire/registry.rs`; read in the file of its exchange, or in `engine/strangers.rs` (COOKIE of a request), `session/renewal.rs` (AUTH_LIFETIME), `sa/path.rs` (NAT_DETECTION) |
//! | Where is a message of one exchange made, answered, concluded? | `exchange/`, one file per exchange |
//! | Where is a cookie demanded of strangers, and how many are let in? | `admission.rs`: from 32 half-open IKE SAs on a cookie is demanded, from 1024 on requests are dropped. Once cookies are demanded, one IPv4 address or IPv6 /64 has at most 96 (the threshold and a sixteenth of the limit). A half-open IKE SA lives 30 s |
//! | Which states has a responder before the peer's proof? | `exchange/half_open.rs` |
//! | May a request be answered that meets an exchange of ours? | `collision.rs`, `admit` |
//! | Both sides rekey at once: which SA stays? | `exchange/create_child.rs` and `exchange/rekey_ike.rs`; `sa/lowest_nonce.rs` compares |
//! | When does an outbound SA in standby begin to send? | `exchange/create_child/handover.rs`: as the peer's Delete comes, and of a rekey by this side with OpenIKED; `exchange/delete.rs`, `give_up_child` and `revive`; beside another session of the peer `session/renewal.rs`: `age_authentication` asks the peer, and its answer (`dispatch.rs`, `Active::Liveness`) or the end of the other session (`relieve`) has it send |
//! | What can a session ask of the engine, and where is it done? | `effect.rs`; `engine.rs`, `put_back` |
//! | When is a Child SA rekeyed? | `sa/child.rs`, `install`; the jitter is in `context.rs`, the share of the lifetime in `crates/policy/src/lifetime.rs`, `soft` |
//! | What happens if an address or a route changes, or no route is left? | `session/roaming.rs`: `handle_addresses` for this host's (without a route the path stays, and an unanswered request ends the session), `follow_update` after the peer's update, `move_to` if a NAT moved the peer; the messages are in `exchange/address_update.rs`, the agreement in `sa/mobility.rs` |
//! | What comes back after a failure, and when? | `engine/reconnect.rs`, `pause`: after 1 s, doubled up to 60 s, less jitter (down to half), without end; the count begins again for a tunnel that was up for 60 s. A tunnel that only packets start waits up to 10 s |
//! | How is a peer authenticated again, and does a certificate that expires end a tunnel? | `session/renewal.rs`, `engine/renewal.rs`. SAs stay up when a certificate expires; only the next authentication fails (`reauthenticate` sets when). `vpnd` warns daily: `remind` in `crates/cli/src/daemon.rs` |
//! | Which tunnel does a request mean? | `policy_index.rs` for IKE SAs: by both addresses, then by the peer's identity, in the order of the policy; `exchange/child_sa/matching.rs` for Child SAs, by traffic selectors; for traffic that only the peer names `exchange/child_sa/generic.rs` |
//! | Which SAs stay when the policy is replaced? | `engine/replacement.rs` |
//! | Which of several sessions of a tunnel stays, and what does INITIAL_CONTACT end? | `engine/succession.rs`, `settle_sessions` and `adopt` (a restarted peer's older sessions end); `contacts.rs` decides whether this side sends INITIAL_CONTACT; `engine/sessions.rs` finds sessions |
//! | What is a peer told about an error? | `rejection.rs`. A payload that cannot be read is found in `wire/payload.rs`, `read`: an unknown one is skipped, with the critical bit it is answered with UNSUPPORTED_CRITICAL_PAYLOAD. Versions above IKEv2: `engine/strangers.rs`, `refuse_version` |
//! | Why is a datagram ignored, and where is it counted? | `discard.rs` has every reason; `outputs.rs`, `discard`, counts. Strangers get at most 100 refusals a second, and one warning a minute each |
//! | How is a Diffie-Hellman group added? | its value in `crates/policy/src/proposal.rs`; its words in `crates/policy/src/xml/lower/algorithm.rs`; its number in `wire/registry.rs` and `negotiation/transforms.rs` (`group_id`, `GROUPS`); its arithmetic in `crypto/key_exchange.rs`; `crates/convert/src/proposal.rs` and `write.rs` |
//! | When does an SA end? | by time: `session/aging.rs`; when volume or sequence numbers run out: `crates/esp/src/outbound.rs`, `claim`, then `session.rs`, `replace_exhausted` |
//! | Where is a repeated request answered as before? | `dispatch.rs`, `repeat_answer`, and `sa/window.rs`; before the peer's proof: `engine/strangers.rs`; after the end of an IKE SA, for 30 s: `outputs.rs` |
//! | How is a certificate or a key proved and checked? | `proof/job.rs` runs it, `exchange/auth/proving.rs` sends and takes the payloads (8 certificates, 32 KiB), `proof/signature.rs` signs, `proof/path.rs` checks the chain (RSA from 2048 bits on), `proof/trust.rs` says what is trusted; preshared keys: `proof/psk.rs` |
//! | How is a certificate's revocation checked? | `proof/job.rs`, `check_revocation`, then `proof/revocation.rs`; `proof/crl.rs` and `proof/ocsp.rs` read the formats. The package `vpn` downloads lists: `src/revocation.rs` |
//! | Which message waits before which, and how many? | `priority_queue.rs`: three levels of 1024 messages |
//! | Which values do the settings have, and within which limits? | `config.rs`, `Config` with its defaults; `validate.rs` has the ranges. In `vpnd.toml` they are `[ike]`: `crates/cli/src/config/ike.rs` |
//! | Where do AutoStart and OnDemand take effect? | `engine/reconnect.rs`: `auto_start` chooses the tunnels that start by themselves, `acquire` starts one for a packet; a tunnel that the operator has taken down stays down until a command or the peer starts it (`deactivate`). `engine/replacement.rs` starts the tunnels of a new policy and sets the traps |
//! | When is an unanswered request sent again, and when given up? | `sa/window.rs`, `retransmit`: after 1 s, each pause 1.8 times as long, five repetitions, 41 s in all; then `dispatch.rs`, `retransmit`, ends the session |
//! | What happens if the peer sends nothing any more, or was killed? | `session/aging.rs`, `keep_alive`: after 30 s without a packet it asks (`exchange/informational.rs`); without an answer the session ends, and `liveness_action` says what comes back (`engine/reconnect.rs`) |
//! | Where is a NAT seen, and where are keepalives sent? | `sa/path.rs`, `detect`; every 20 s, if nothing else was sent: `session/aging.rs`, `keep_alive`. Selectors of transport mode behind a NAT: `exchange/child_sa/matching.rs`, `as_seen` |
//! | Where are the keys of IKE and Child SAs derived? | `sa/keys.rs`: `initial` and `successor` (SKEYSEED), `child` (KEYMAT by prf+ of SK_d and the nonces); `crypto/prf.rs`. Nonces: `crypto/rng.rs`, 32 octets |
//! | Where are messages read, written, encrypted? | `wire/header.rs`, `wire/message.rs` (chains of at most 64 payloads), `wire/payload.rs` and `wire/payload/` (each payload), `wire/protected.rs` (Encrypted payload) |
//! | Which size may a message have, and what happens above it? | `sa/reassembly.rs`: 64 KiB in 256 fragments, 16 KiB before the peer's proof; above, it is answered with INVALID_SYNTAX. IKE_SA_INIT: 10,000 octets (`engine/strangers.rs`). Fragments of ours are cut in `sa/message.rs` and `wire/fragment.rs` |
//! | Where are algorithms offered and chosen, and selectors narrowed? | `negotiation/proposal.rs` and `negotiation/transforms.rs`; `negotiation/selectors.rs`; the result is a suite of `negotiation/suite.rs`, offers in words are `negotiation/description.rs` |
//! | What happens if a rekey fails? | `fail` in `exchange/create_child.rs` and `exchange/rekey_ike.rs`: the old SA stays, and half of its rest later (5 s at least) it is tried again; TEMPORARY_FAILURE: `session.rs`, `delay`, 20 times, then a new session. At the end of the lifetime: `session/aging.rs` |
//! | Can two SAs get the same SPI? | `context.rs`, `Spis::allocate`, gives no inbound SPI twice; a plane refuses a used one (`crates/esp/src/datapath/data_plane.rs`). Outbound SPIs are the peers' choice and may be equal |
//! | How many SAs may one peer have? | `session/children.rs`: eight Child SAs for each child tunnel, and eight tunnels that only it names; `collision.rs`: eight IKE SAs |
//! | Why does an exchange begin, and in which order? | `task.rs` (the reasons), `session/tasks.rs` (the queue), `dispatch.rs`, `pump` (the start); `sa/active.rs` has the exchange in flight, `sa.rs` the states of an IKE SA |
//! | Where do activate, deactivate, rekey and stop enter? | `engine/lifecycle.rs`; `engine/target.rs` finds the tunnel of a name |
//! | Which times are measured? | `durations.rs`: from a request until its answer (`dispatch.rs`, `handle_response`), by the kind of exchange (`sa/active.rs`, `measured_as`) |
//! | Which events, failures and reasons of an end are there? | `event.rs`; `failure.rs` with `failure/facts.rs`; `close_reason.rs`. `past_failures.rs` keeps the last four of a tunnel, and 32 of strangers |
//! | Where does the status of a tunnel come from? | `engine/overview.rs` fills in the types of `status.rs` |
//! | When is the engine woken next? | `deadlines.rs`; for a session `session/aging.rs`, `deadline`. `datagram.rs` is the form of what it takes and sends |
//! | How long does the Delete of a replaced SA wait, or the answer to one? | `session.rs`, `delete_when_drained`, and `session/ending.rs`, `take_down`; `dispatch.rs`, `respond` and `pause_before_farewell` |
//! | What waits until the data plane is prepared for traffic that a peer names? | a request: `exchange/auth/preparing.rs` (IKE_AUTH), `dispatch.rs` and `sa/postponed.rs` (CREATE_CHILD_SA); `engine/preparation.rs` goes on with it |
//! | How do rules in the plane correspond to child tunnels? | `rules.rs`; `traffic_index.rs` of the crate `policy` finds those that meet given addresses |
//! | Who gets copies of keys? | nobody, unless `key_log.rs` has a `Sink` (`vpnd start --insecure-export-keys DIR`: `crates/cli/src/wireshark.rs`) |
//! | How are keys and messages of an engine seen by the simulation? | `engine/simulation.rs`; vectors are in `tests/vectors/`, tests of whole sessions in `tests/simulated/` of the repository |
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
