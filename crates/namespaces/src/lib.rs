//! Hosts in network namespaces of this machine: traffic between them, and a watch on the wire.
//!
//! The laboratory and the tests build on it. It needs no daemon, and no other crate of this workspace.
//!
//! ```text
//!  Namespace "left"               Namespace "right"
//!  ┌───────────────┐   Capture    ┌───────────────┐
//!  │ Pings, Stream │◀──── wire ──▶│ echo, sink    │
//!  └───────────────┘              └───────────────┘
//! ```
//!
//! # Example
//!
//! A listener in a namespace is not in this process's own network:
//!
//! ```no_run
//! use namespaces::isolation::Namespace;
//! use std::net::TcpListener;
//!
//! let left = Namespace::new("left")?;
//! let listener = left.run(|| TcpListener::bind("127.0.0.1:80"))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | How is a namespace made, and what does it isolate? | `isolation.rs` |
//! | Which packets count as sent in the clear? | `capture.rs` |
//! | Which traffic checks that nothing is lost or altered? | `traffic.rs` |
#![forbid(unsafe_code)]

pub mod capture;
pub mod isolation;
pub mod traffic;
