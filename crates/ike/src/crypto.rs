//! Pseudorandom functions, key exchange and randomness; all primitives come from libraries.

pub mod key_exchange;
pub mod prf;
pub mod rng;
pub mod tally;
