//! How a side proves who it is.

pub mod psk;
