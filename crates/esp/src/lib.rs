//! ESP (RFC 4301, 4303, 4106, 3948) and AH (RFC 4302) without I/O: keys and packets in, protected packets out.
//!
//! [`plane::DataPlane`] is the seam between key management and whatever protects packets: rules and SAs come in,
//! notices come out. [`datapath::Datapath`] implements it in this process, for the crate `userspace`, which has the
//! sockets and the threads; the crate `xfrm` implements it with the Linux kernel. This crate knows no IKE, and opens no
//! socket.
//!
//! ```text
//!            Sender::encapsulate, or in two steps:  admit ················► seal
//!  TUN ──► Header ──► Spd: rule ──► SA ──► cut or fit to path ──► sequence ──► AEAD ──► SendQueue ──► sockets
//!                      │        └ no SA: dropped, or held            number
//!                      │          while IKE is asked (Acquire)
//!                      └ no rule: dropped and counted
//!
//!            Datapath::decapsulate_run, or in two steps:  open_ahead ·············► settle
//!  sockets ──► SPI ──► Sad: SA ──► window: check ──► integrity ──► window: commit ──► padding, next header,
//!                       └ no SA: dropped and counted                                  selectors ──► ReceiveQueue ──► TUN
//! ```
//!
//! The first form of each direction does everything on one thread. The second form is for several threads: the steps
//! that have to happen in the order of the packets (`admit`, `settle`) are apart from the cryptography (`seal`,
//! `open_ahead`), which any thread may do ([`datapath::stages`]). With `open_ahead` the window is committed in
//! `settle`.
//!
//! # Example
//!
//! Two gateways with one rule each and one SA between them. The left one seals a packet, the right one opens it:
//!
//! ```
//! use crypto::Suite;
//! use esp::datapath::{Arrival, Datapath, Settings};
//! use esp::discard::Discard;
//! use esp::gso::Gso;
//! use esp::plane::*;
//! use esp::queue::{Coalesce, ReceiveQueue, SendQueue};
//! use policy::{AddressRange, KeyBits, Mode, Secret, Selector};
//! use std::sync::Arc;
//! use std::time::Instant;
//!
//! let now = Instant::now();
//! let (suite, rule, spi) = (Suite::AesGcm16(KeyBits::B128), RuleId(1), Spi(0x1000));
//! let key = || Secret::new(vec![7; suite.key_material_len()]);
//! let net = |n: u8| {
//!     let range = AddressRange::new([10, n, 0, 0].into(), [10, n, 0, 255].into());
//!     vec![Selector::all_of(range.expect("in order"))]
//! };
//! let path = |local: u8, remote: u8| Path {
//!     local: ([192, 0, 2, local], 4500).into(),
//!     remote: ([192, 0, 2, remote], 4500).into(),
//!     encapsulation: Encapsulation::Udp,
//! };
//!
//! let mut left = Datapath::new(Settings::default(), now);
//! let selectors = TrafficSelectors { local: net(1), remote: net(2) };
//! left.add_rule(Rule { id: rule, tunnel: "site".into(), selectors: selectors.clone(), trap: false })?;
//! left.add_outbound(OutboundSa {
//!     id: SaId(1), rule, spi, suite, key: key(), esn: true, mode: Mode::Tunnel, path: path(1, 2),
//!     selectors: Arc::new(selectors), limits: Limits::default(), standby: false,
//! })?;
//!
//! let mut right = Datapath::new(Settings::default(), now);
//! let selectors = TrafficSelectors { local: net(2), remote: net(1) };
//! right.add_rule(Rule { id: rule, tunnel: "site".into(), selectors: selectors.clone(), trap: false })?;
//! right.add_inbound(InboundSa {
//!     id: SaId(1), rule, spi, suite, key: key(), esn: true, replay_window: 64, mode: Mode::Tunnel,
//!     path: path(2, 1), selectors: Arc::new(selectors), limits: Limits::default(),
//! })?;
//!
//! // An empty UDP datagram from 10.1.0.1 to 10.2.0.1, as an application sends it.
//! let packet = [
//!     0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0x66, 0xcd, 10, 1, 0, 1, 10, 2, 0, 1, // IPv4
//!     0, 7, 0, 7, 0, 8, 0, 0, // UDP
//! ];
//! let mut sending = SendQueue::new(4096);
//! left.encapsulate(now, &mut packet.clone(), Gso::NONE, &mut sending)?;
//! let sealed = sending.octets(&sending.runs()[0]);
//! assert_eq!(sealed[..8], [0, 0, 0x10, 0, 0, 0, 0, 1]); // SPI and sequence number
//!
//! let arrival = Arrival { path: path(2, 1), tos: None, ttl: None };
//! let mut receiving = ReceiveQueue::new(4096, Coalesce { tcp: true, udp: true });
//! right.decapsulate(now, sealed, arrival, &mut receiving)?;
//! let opened: Vec<Vec<u8>> = receiving.packets().map(|(octets, _)| octets.to_vec()).collect();
//! assert_eq!(opened, [packet.to_vec()]);
//!
//! // The same packet once more is a replay, dropped and counted.
//! let again = right.decapsulate(now, sealed, arrival, &mut receiving);
//! assert_eq!(again, Err(Discard::Replayed));
//! assert_eq!(right.counters()["replayed"], 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | What is the seam to key management? | `plane/`; SAs are in `sa.rs`, rules and traffic in `traffic.rs` |
//! | Where do both directions start, and which settings and stages are there? | `datapath.rs`, `datapath/` |
//! | Which rule and SA does an outbound packet get, and which packets wait for an SA? | `spd.rs`, `spd/` |
//! | What happens to traffic of no tunnel, or of a family that is off? | `filter.rs`, `families.rs` |
//! | Where is a packet numbered and sealed? | `outbound.rs`, `outbound/`, `sequence.rs` |
//! | Where is a packet found by its SPI, opened and checked? | `sad.rs`, `inbound.rs`, `inbound/`, `replay.rs` |
//! | Where is AH? | `ah.rs`, `outbound/ah.rs`, `inbound/ah.rs` |
//! | Where are packets split, joined and laid out? | `gso.rs`, `segment.rs`, `coalesce.rs`, `queue.rs` |
//! | How long may a packet be? | `path_mtu.rs`, `encap.rs`, `outbound/fit_to_mtu.rs`, `fragment.rs`, `icmp.rs` |
//! | Where are headers of IP packets read, written and summed? | `header.rs`, `ip.rs`, `ip/` |
//! | Why is a packet dropped, and what would become of one? | `discard.rs`; `trace.rs`, `datapath/trace.rs` |
//! | How does an SA come without IKE, and from another process? | `manual.rs`; `datapath/frozen.rs`, `inbound/frozen.rs`, `outbound/frozen.rs` |

#![deny(unsafe_code)]

pub mod ah;
pub mod datapath;
pub mod discard;
pub mod encap;
pub mod families;
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
mod traffic;

mod coalesce;
mod fragment;
mod header;
mod icmp;
mod inbound;
mod ip;
mod outbound;
mod rate;
#[doc(hidden)]
pub mod reassembly;
mod replay;
mod sa;
mod sad;
#[cfg(test)]
mod sample;
mod segment;
mod sequence;
mod spd;
mod sync;
