//! How a side proves who it is.

pub mod certificate;
pub mod crl;
mod key;
mod listing;
pub(crate) mod psk;
pub mod trust;
