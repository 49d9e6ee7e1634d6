//! The crypto facility as operators meet it: what the machine can do, what is used of it, what was done, and how fast.

pub mod bench;
pub mod kernel;
pub mod machine;
mod of_ike;
pub mod plot;
pub mod report;
pub mod service;
pub mod tunables;
