//! The control protocol of `vpnd` and its client: watch and command a running daemon.
//!
//! A daemon listens on a Unix socket. A client sends one JSON object per line and gets one back; after
//! [`Command::Events`](protocol::Command::Events) the daemon sends a line for every event. `docs/control.md` describes
//! the fields for clients in other languages. This crate depends on serde and little else: a monitor links neither the
//! gateway nor a terminal.
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
//! | Where is a command added? | `protocol/command.rs` (`Request`, `Command`) |
//! | Where is a kind of reply added? | `protocol/response.rs` (`Reply`) |
//! | Where are the fields of one answer? | `protocol/`, one file per subject |
//! | How is a bad request or another version refused? | `protocol/request.rs` refuses; the codes are in `protocol/refusal.rs`; the version is 1: `VERSION` in `protocol/command.rs` |
//! | Where does the daemon fill the fields in? | crate `cli`, `view/` |
//! | Where does the daemon carry a command out? | crate `cli`, `daemon/service.rs` |
//! | How does a client wait, and what do its errors say? | `client.rs`: `ask` waits for as long as the negotiation takes, unless `set_timeout` was called |
//! | Which path and which sizes hold? | `protocol.rs`: `/run/vpnd/control.sock`, requests up to 16 MiB and 64 KiB; `client.rs`: answers up to 64 MiB. Numbers of clients and times are in `crates/cli/src/daemon/server.rs` |
//! | Where is the JSON of an event? | `protocol/happening.rs` |
//! | How are durations, octets and rates written for people? | `quantity.rs` |
#![forbid(unsafe_code)]

pub mod client;
pub mod protocol;
pub mod quantity;
