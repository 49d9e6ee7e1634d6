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
//! left by one that crashed. SAs are removed at once; policies are removed by [`KernelPlane::settle`], when the new
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
//! let card = Card { index: 2, name: "eth0".to_owned(), esp: Some(true), driver: None, checksum: true };
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
//! | Where are the attributes of a state written? | `state.rs`, `Form::message`; algorithm and key in `algorithm.rs` |
//! | Where are the attributes of a policy written? | `spd.rs`, `message` |
//! | Which policies does a rule have, with and without an SA? | `plane/policies.rs`, `guard` (inbound), `hold` and `serve` (outbound) |
//! | How do selectors become prefixes and port masks? | `flow.rs`: at most 256 flows for a tunnel, otherwise the kernel plane refuses it |
//! | Where is a card's offload decided? | `placement/steps.rs` (what to try), `plane/place.rs` (tries it and reads back), `placement/cards.rs` (which card) |
//! | Who waits for room in a card? | `waiting.rs`; `plane/room.rs` gives the places out, 64 at once |
//! | Which reports of the kernel become notices? | `monitor.rs`; `reports.rs` filters them in the kernel, `larval.rs` lets a packet that waits for an SA ask again after 1 s; `known.rs` has the SAs that both threads know |
//! | What is put back if another program removes it (`ip xfrm state flush`)? | `plane/restore.rs`: policies first, then SAs, with sequence numbers behind those last seen (2^24 further on if they are unknown: `plane/work.rs`, `GAP`). SAs that the kernel has ended stay away. `monitor.rs` notices it, `plane/place.rs`, `resync_all`, serves `vpnctl resync` too |
//! | What did a crashed plane leave, and whose is a state? | `leftovers.rs` takes it away; `ownership.rs` says whose it is, by the numbers in `ranges.rs` (reqids from `0x76000001` on, priorities from `0x76000000` on) |
//! | What happens if the peer's address changes? | `plane/data_plane.rs`, `relocate`; the kernel's report of a NAT's new mapping: `monitor.rs` |
//! | Where are packets, octets and sequence numbers of an SA read? | `plane/work.rs`, `state.rs` |
//! | Where is a packet without an SA or with an unknown SPI counted? | by the kernel, for the whole namespace: `statistics.rs` explains its counters |
//! | What does this kernel support? | `probe.rs` |
//! | How are states and policies shown as `ip xfrm` commands? | `command.rs` |
//! | How is the plane tested without a kernel? | `netlink.rs`, `Kernel`; `tests/twin.rs` is a kernel in memory |
//! | What happens if two kernel planes run in one network namespace? | `monitor.rs`, `Monitor::start`, refuses the second one |
//! | What happens if the kernel has an SA with the same SPI already? | `kernel_sa.rs`, `give`: a larval one is replaced, any other is an error |
//! | How is an SA or a policy refused, and with which advice? | `refusal.rs`; a full card becomes `PlaneError::Full` |
//! | Which sizes has the anti-replay window, and when is a rekey asked for? | `state.rs`: at most 4096 packets; 2^29 sequence numbers before the end |
//! | How do a mark and an `if_id` get into states and policies? | `binding.rs`; they come from `[tunnel]` in `vpnd.toml`, by way of `config.rs` |
//! | Which priority and which order have policies? | `policies.rs`; `spd.rs` says which of several policies for one flow is in force |
//! | How is an offload asked for and read back? | `offload.rs` (the attribute), `placement/features.rs` (a card's abilities, by ethtool), `placement/report.rs` (the report for `vpnctl offload`) |
//! | What would become of a packet in the kernel? | `plane/trace.rs` |
//! | Whom does the plane call, and with what? | `hooks.rs`: `Notice` and `Disturbance` |
//! | Which optional capabilities has the kernel plane? | `plane/capabilities.rs`: SAs keyed by hand, resync, crypto accounting |
//!
//! # Choices worth knowing
//!
//! - **Promotion is atomic.** An outbound policy names the SPI of the SA that it uses. An SA in standby is not used
//!   before it is promoted, and a promotion is one exchange of a policy.
//! - **An SA that moves is installed again** with its sequence numbers. `XFRM_MSG_MIGRATE` needs a kernel built for it,
//!   finds SAs by reqid and addresses rather than by SPI, and cannot put an SA into UDP.
//! - **Rules of other planes are bypass policies** in the place of the rule ([`KernelPlane::leave_alone`]), so that the
//!   order of the rules holds across planes.
//! - **A card that goes takes its policies along.** So a policy that a card keeps has a block policy behind it, with
//!   the next priority.
//! - **Counters are the kernel's.** What an SA has done counts for the card if the SA is offloaded, and for the kernel
//!   otherwise.
//! - **Policies and SAs may be removed by other programs.** Both are put back, without a negotiation. Until the
//!   policies are there again, nftables drops the traffic that they protected (`src/planes/guard.rs` of the package
//!   `vpn`).
//!
//! [`Xfrm::install_inbound`] and [`Xfrm::install_outbound`] take a choice of [`Offload`] with the SA;
//! [`Xfrm::read_back`] tells what the kernel has made of it. A [`Disturbance`] tells what others have removed, and
//! [`Xfrm::restore`] puts it back.

#![deny(unsafe_code)]

mod algorithm;
mod binding;
mod command;
mod config;
mod flow;
mod hooks;
mod kernel_sa;
mod known;
mod larval;
mod leftovers;
mod monitor;
mod netlink;
mod offload;
mod ownership;
pub mod placement;
mod plane;
mod policies;
mod probe;
mod ranges;
mod refusal;
mod reports;
mod spd;
mod state;
mod statistics;
#[cfg(test)]
mod tests;
mod waiting;

pub use command::commands;
pub use config::Config;
pub use esp::trace::Binding;
pub use flow::{End, Flow, Port};
pub use hooks::{Disturbance, Hooks};
pub use netlink::{Kernel, Netlink, Refused};
pub use offload::Offload;
pub use plane::{KernelPlane, Xfrm, remove_leftovers};
pub use probe::{Ability, probe};
pub use ranges::{PRIORITIES, REQIDS};
pub use statistics::{Statistic, statistics};
