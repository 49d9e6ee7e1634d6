//! What both sides agree on: algorithms and traffic.

pub mod proposal;
pub mod selectors;
