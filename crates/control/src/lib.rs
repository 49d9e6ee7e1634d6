//! The control protocol of `vpnd` and its client: watch and command a running daemon.
//!
//! A daemon listens on a Unix socket. A client sends one JSON object per line and gets one back; after
//! [`Command::Events`](protocol::Command::Events) the daemon sends a line for every event. `docs/reference/control.md`
//! describes the fields for clients in other languages. This crate depends on serde and little else: a monitor links
//! neither the gateway nor a terminal.
//!
//! ```text
//! your program                                   vpnd
//!   Client::ask(Command) ──{"command":"list"}──▶ server ──▶ gateway
//!   Reply                ◀──{"result":{…}}────── server
//!   Client::next_event() ◀──{"event":{…}}─────── server      (after Command::Events)
//! ```
//!
//! # Example
//!
//! Print the tunnels that are down:
//!
//! ```no_run
//! use control::client::Client;
//! use control::protocol::{Command, DEFAULT_SOCKET, Reply};
//!
//! let mut client = Client::connect(DEFAULT_SOCKET.as_ref())?;
//! match client.ask(Command::List { all: true })? {
//!     Reply::Tunnels(tunnels) => {
//!         for tunnel in tunnels.iter().filter(|tunnel| !tunnel.is_active()) {
//!             println!("{} is down", tunnel.name);
//!         }
//!     }
//!     reply => return Err(client.unexpected(&reply)),
//! }
//! # Ok::<(), control::client::ClientError>(())
//! ```
//!
//! `examples/monitor.rs` follows a daemon's tunnels and events:
//! `cargo run -p vpn-control --example monitor -- /run/vpnd/control.sock`.
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Where is a command added? | `protocol/command.rs` |
//! | Where is a kind of reply added? | `protocol/response.rs` |
//! | Where are the fields of one answer, or of an event? | `protocol/`, one file per subject |
//! | How is a bad request or another version refused? | `protocol/request.rs`, `protocol/refusal.rs` |
//! | Where does the daemon fill the fields in? | `crates/vpnd/src/view/` |
//! | Where is a command carried out? | `crates/vpnd/src/daemon/service.rs`, `crates/vpnd/src/daemon/server.rs` |
//! | How does a client wait, and what do its errors say? | `client.rs` |
//! | Which path and which sizes hold? | `protocol.rs`, `client.rs` |
//! | How are durations, octets and rates written for people? | `quantity.rs` |
#![forbid(unsafe_code)]

pub mod client;
pub mod protocol;
pub mod quantity;
