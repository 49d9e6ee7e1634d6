//! How `vpnctl` and other programs talk to a running `vpnd`: one JSON object per line over a Unix socket.
//!
//! `docs/control.md` describes the protocol for those who write a client in another language.
#![forbid(unsafe_code)]

pub mod client;
pub mod protocol;
pub mod quantity;
