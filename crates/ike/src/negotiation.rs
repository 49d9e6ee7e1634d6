//! Agreement of both sides on algorithms and traffic.

pub mod description;
pub mod proposal;
pub mod selectors;
pub mod suite;
pub mod transforms;
