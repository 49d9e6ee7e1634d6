//! Where the files that `crates/esp/tests/interleaving.rs` takes every way through get what threads share: there it is loom's.

pub(crate) use std::sync::Mutex;
