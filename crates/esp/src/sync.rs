//! The synchronisation types of the files that `interleaving.rs` checks in every interleaving: loom's there,
//! otherwise those of `std`.

pub(crate) use std::sync::Mutex;
pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
