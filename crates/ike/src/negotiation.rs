//! Agreement of both sides on algorithms and traffic.

pub mod proposal;
pub mod selectors;
