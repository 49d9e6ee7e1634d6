//! The laboratory: namespaces, traffic, a watch on the wire, the demo and the experiments.
#![forbid(unsafe_code)]

pub mod capture;
pub mod demo;
pub mod experiment;
mod interrupt;
pub mod isolation;
pub mod load;
pub mod machine;
pub mod network;
pub mod nic;
pub mod node;
pub mod plot;
pub mod report;
pub mod site;
pub mod statistics;
pub mod table;
pub mod traffic;
