//! The synchronisation types of the files that `interleaving.rs` checks in every interleaving:
//! loom's there, otherwise those of `std`.

pub(crate) use std::sync::{Condvar, Mutex};
