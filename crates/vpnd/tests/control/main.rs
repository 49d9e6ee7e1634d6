//! The daemon around a gateway in memory: its control protocol, and the commands that use it.
#![forbid(unsafe_code)]

mod aix;
mod aix_kept;
mod completions;
mod health;
mod metrics;
mod offline;
mod one_tunnel;
mod pages;
mod policy_store;
mod protocol;
mod running;
mod waiting;
