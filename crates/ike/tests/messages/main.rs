//! Messages on the wire, their fragments, and the keys that protect them.
#![forbid(unsafe_code)]

mod fragment;
mod kdf;
mod ticket;
mod wire;
mod wire_properties;
