//! Keys and packets in, protected packets out: ESP (RFC 4301, 4303, 4106, 3948) and AH (RFC 4302). Knows no IKE.

#![deny(unsafe_code)]

pub mod ah;
pub mod datapath;
pub mod discard;
pub mod encap;
pub mod filter;
pub mod gso;
pub mod manual;
pub mod path_mtu;
pub mod plane;
mod prefetch;
pub mod queue;
#[doc(hidden)]
pub mod steps;
pub mod trace;

mod coalesce;
mod fragment;
mod header;
mod icmp;
mod inbound;
mod ip;
mod outbound;
mod rate;
mod reassembly;
mod replay;
mod sad;
#[cfg(test)]
mod sample;
mod segment;
mod sequence;
mod spd;
mod sync;
