//! Where the files that `tests/interleaving.rs` takes every way through get what threads share: there it is loom's.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
