//! Ciphers and MACs from the outside, against published values.
#![forbid(unsafe_code)]

mod cipher;
mod mac;
mod wycheproof;
