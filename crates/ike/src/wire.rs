//! Octets ↔ values, no state (RFC 7296 §3).

pub mod fragment;
pub mod header;
pub mod message;
pub(crate) mod parts;
pub mod payload;
pub mod protected;
pub mod reader;
pub mod registry;
