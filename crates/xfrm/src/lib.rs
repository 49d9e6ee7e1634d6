//! The kernel plane: SAs and policies in Linux's XFRM, told over netlink.
//!
//! [`Xfrm`] is a [`DataPlane`](esp::plane::DataPlane): rules become policies, SAs become states, and the kernel or a
//! network card protects the packets. The kernel's reports (`monitor`) become [`Notice`](esp::plane::Notice)s; what
//! other programs remove becomes a [`Disturbance`]. No packet passes this process; no device and no route is needed.
//!
//! ```text
//!  Rule ──► flow::Flow (prefixes, ports) ──► policies ──► spd::Spd ──► Change ──┐
//!                                        what there is to be   what differs     │    ┌─ policies ─┐
//!                                                                               ├──► │   kernel   │
//!  SA ──► placement::steps ──► place ──► state::Form ──► message ───────────────┘    └─  states  ─┘
//!          card or software?   tries, reads back                                           │
//!                                                                                          ▼
//!  Notice: Acquire, Expiring, PeerMoved; Disturbance ◄────────────────────────────────── monitor
//! ```
//!
//! # State in the kernel
//!
//! All of this is gone after a clean stop:
//!
//! - states with a reqid in [`REQIDS`]. A rule has one reqid for as long as it lives, which all its SAs share. An
//!   operator may have given SAs without IKE another reqid: they are known by the policies of this plane that name
//!   them;
//! - policies with a priority in [`PRIORITIES`]. Their order is that of the rules, and an administrator's own policies
//!   come before them. The traffic of a rule always has a policy in each direction: `block`, or a template that only
//!   its SAs fit. So nothing leaves or enters in the clear, whether an SA is up or not, and also after this process has
//!   crashed;
//! - with IPv6, policies that let neighbour discovery pass.
//!
//! There is one such plane in a network namespace. States and policies that lie in the two ranges when it starts were
//! left by one that crashed. SAs are removed at once; policies are removed by [`KernelPlane::remove_stale_policies`], when the new
//! ones are there.
//!
//! # Example
//!
//! Two decisions that ask no kernel: the policies that a rule's traffic needs, and whether a card is tried for an SA:
//!
//! ```
//! use crypto::Suite;
//! use esp::plane::{Encapsulation, TrafficSelectors};
//! use policy::{AddressRange, KeyBits, Selector};
//! use xfrm::Flow;
//! use xfrm::placement::{Card, Need, OffloadMode, Wanted, steps};
//!
//! let range = |first, last| AddressRange::new([10, 2, 0, first].into(), [10, 2, 0, last].into()).expect("in order");
//! let local = vec![Selector::all_of(range(0, 127))];
//! let remote = vec![Selector::all_of(range(130, 132))];
//! // The kernel knows prefixes only: 10.2.0.130/31 and 10.2.0.132/32 make two policies in each direction.
//! let flows = Flow::leaving(&TrafficSelectors { local, remote })?;
//! assert_eq!(flows.len(), 2);
//!
//! let card = Card { index: 2, name: "eth0".to_owned(), esp: Some(true), driver: None, checksum: true, addresses: None };
//! let suite = Suite::AesGcm16(KeyBits::B128);
//! let native = Need { suite, encapsulation: Encapsulation::Native };
//! let tries = steps(Wanted::Auto, Ok(card.clone()), &native).tries;
//! assert_eq!(tries.iter().map(|step| step.place).collect::<Vec<_>>(), [OffloadMode::Packet, OffloadMode::Crypto]);
//!
//! // The kernel offloads no ESP in UDP: no card is tried, and the reason is kept for the operator.
//! let in_udp = Need { encapsulation: Encapsulation::Udp, ..native };
//! let steps = steps(Wanted::Auto, Ok(card), &in_udp);
//! assert!(steps.tries.is_empty());
//! assert!(steps.passed.is_some());
//! # Ok::<(), esp::plane::PlaneError>(())
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Where are the attributes of a state written? | `state.rs`, `algorithm.rs`, `offload.rs` |
//! | Which policies has a rule, in which order? | `plane/policies.rs`, `spd.rs`, `policies.rs` |
//! | How do selectors become prefixes and port masks? | `crates/floor/src/flow.rs`; in messages `flow.rs` |
//! | Where is a card's offload decided, tried and read back? | `placement.rs`, `placement/`, `plane/place.rs` |
//! | Which devices have features for ESP; who waits for room in a card? | `nic.rs`; `waiting.rs`, `plane/room.rs` |
//! | Which reports of the kernel become notices? | `monitor.rs`, `reports.rs`, `larval.rs`, `known.rs`, `config.rs` |
//! | What is put back, left by a crash, or goes on in another process? | `plane/restore.rs`; `leftovers.rs`; `plane/frozen.rs`; `ownership.rs` |
//! | How do rules and SAs reach the kernel? | `plane.rs`, `plane/data_plane.rs`, `kernel_sa.rs` |
//! | Where are packets, octets and sequence numbers read? | `plane/work.rs`; for the whole namespace `statistics.rs` |
//! | How is an SA or a policy refused, and with which advice? | `netlink.rs` |
//! | What does this kernel support, and what does it do to a packet? | `probe.rs`; `plane/trace.rs`, `command.rs` |
//! | How is the plane tested without a kernel? | `netlink.rs`, `tests/twin.rs` |
//!
//! [`Xfrm::install_inbound`] and [`Xfrm::install_outbound`] take a choice of [`Offload`] with the SA;
//! [`Xfrm::read_back`] tells what the kernel has made of it. A [`Disturbance`] tells what others have removed, and
//! [`Xfrm::restore_missing`] puts it back.

#![deny(unsafe_code)]

mod algorithm;
mod command;
mod config;
mod flow;
mod kernel_sa;
mod known;
mod larval;
mod leftovers;
mod monitor;
mod netlink;
pub mod nic;
mod offload;
mod ownership;
pub mod placement;
mod plane;
mod policies;
mod probe;
mod reports;
mod spd;
mod state;
mod statistics;
#[cfg(test)]
mod tests;
mod waiting;

pub use command::commands;
pub use config::{Config, Disturbance, Hooks};
pub use flow::{End, Flow, Port};
pub use monitor::Place;
pub use netlink::{Kernel, Netlink, Refused};
pub use offload::Offload;
pub use ownership::{PRIORITIES, REQIDS};
pub use plane::{
    FrozenRule, FrozenSa, FrozenUsage, FrozenXfrm, KernelPlane, Listening, Way, Xfrm,
    remove_leftovers,
};
pub use policy::Binding;
pub use probe::{Ability, probe};
pub use statistics::{Statistic, statistics};
