//! The output of the programs for whole files, compared to the letter.
#![forbid(unsafe_code)]

mod convert;
mod migrations;
mod policies;
mod samples;
mod troubleshooting;
mod vpnctl;
