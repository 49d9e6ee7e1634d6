//! The example's data plane, which counts what it is asked to do.

#[path = "../../examples/custom_plane/counting.rs"]
mod example;

pub use example::{Counting, Counts};
