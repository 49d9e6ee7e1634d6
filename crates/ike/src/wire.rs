//! Octets ↔ values, no state (RFC 7296 §3).

pub mod fragment;
pub mod header;
pub mod message;
pub mod payload;
pub mod protected;
pub mod reader;
pub mod registry;
