//! The daemon `vpnd` and the command `vpnctl`: everything but their arguments.
#![forbid(unsafe_code)]

pub mod aix;
pub mod certificates;
pub mod check;
pub mod config;
pub mod convert;
pub mod counters;
pub mod course;
pub mod crypto;
pub mod daemon;
pub mod demo;
pub mod experiment;
pub mod filter;
mod offload_advice;
pub mod policy_file;
pub mod report;
pub mod shell;
pub mod store;
pub mod top;
pub mod view;
pub mod why;
pub mod wireshark;
