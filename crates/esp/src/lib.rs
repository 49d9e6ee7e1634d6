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
//! | What can key management ask of every data plane, what does the plane report? | `plane.rs`, `DataPlane` and `Notice` |
//! | What can only some planes do: filter, trace, manual keys, path MTU? | `plane/capabilities.rs` |
//! | Where is a packet without an SA dropped, held or asked for? | `datapath.rs`, `miss`. `spd/held.rs` holds packets: for each rule 32 packets and 64 KiB, for 10 s; an SA is asked for once a second (`ACQUIRE_EVERY`) |
//! | Where is an unknown SPI counted? | `datapath.rs`: `find` refuses it, its callers count it; every reason is in `discard.rs` |
//! | Which rule and SA does a packet get? | `spd.rs`; `spd/finder.rs` searches the rules, `spd/flows.rs` remembers flows |
//! | Where does an outbound packet get its sequence number, and when do numbers run out? | `outbound.rs`, `claim`, of `sequence.rs`. 2^29 numbers before the end it reports `Notice::Expiring`; at the end packets are dropped (`outbound_exhausted`) |
//! | Where is the anti-replay window? | `replay.rs`, at most 65,536 packets (`vpnd`: 4096); `inbound.rs` checks it in `number` and commits it in `take_note` |
//! | What is sealed and opened ahead of its turn, and how is that settled? | `datapath/stages.rs`; `inbound/ahead.rs`, `settle` |
//! | Where are super-packets split, where are segments joined? | `segment.rs` (how much of a super-packet goes into one ESP packet: `outbound/cut.rs`); `coalesce.rs`. The header of the device is `gso.rs` |
//! | Where is the DF bit decided? | `outbound/fit_to_mtu.rs`, `tells_dont_fragment` |
//! | How long may a packet be, and is it fragmented or refused? | `outbound/fit_to_mtu.rs` decides; `path_mtu.rs` knows the paths, `encap.rs` the overhead; `fragment.rs` cuts IPv4 packets before ESP; `icmp.rs` writes the answer to a refused packet's sender |
//! | Where is AH? | `ah.rs`, `outbound/ah.rs`, `inbound/ah.rs` |
//! | Where is a path address changed because a peer moved? | `inbound.rs`, `take_note`, reports it; `datapath/data_plane.rs`, `relocate`, changes it |
//! | Where is IPsec of one address family switched off? | `families.rs`; `spd.rs`, `lookup`, and `inbound.rs`, `vet`, drop its packets |
//! | What happens to traffic of no tunnel? | `filter.rs` |
//! | What would become of a packet that is only asked about? | `datapath/trace.rs`, `trace.rs` |
//! | How is an SA without IKE installed? | `manual.rs` |
//! | Which DSCP and ECN do outer and inner header get? | out: `outbound.rs` (`OuterFields.tos`) copies both; in: `ip.rs`, `leave_tunnel` (RFC 6040), passes an outer CE on, or drops the packet (`congestion`) if its transport does not know ECN; the inner DSCP stays |
//! | Where are padding, IV and ICV made? | `outbound.rs`, `seal_one`, `pad_len`, `fill_iv` |
//! | Where are padding, next header and inner selectors checked? | `inbound/unwrap.rs`, `trailer` and `leave_tunnel`; the selectors in `inbound.rs`, `vet` |
//! | Where is an SA found by its SPI, and what happens with two equal SPIs? | `sad.rs`; `datapath/data_plane.rs`, `add_inbound`, refuses a second inbound SA of one local address with `SpiInUse`, and SPIs below 256 |
//! | Which routers' messages about an MTU are believed? | `path_mtu.rs`, `learn`: not below 576 octets (IPv6: 1280), four changes and then one in 10 s, forgotten after 10 minutes. `datapath/paths.rs` takes the message, `icmp.rs` reads it |
//! | How often is a sender told that its packet is too long? | `datapath/paths.rs`: 128 at once, then one each millisecond (`rate.rs`) |
//! | Where is the MSS of TCP lowered? | `encap.rs`, `clamp_mss` |
//! | Where are fragments put together? | `reassembly.rs`, for transport mode and this host's own packets only: 15 s, 64 packets, 1 MiB. The kernel reassembles outer packets |
//! | Where are headers of IP packets read, written and summed? | `header.rs` reads (at most 16 extension headers); `ip.rs` writes and sums; `ip/words.rs` sums with AVX2 |
//! | How are packets laid out for one system call? | `queue.rs`: runs of at most 64 packets and 65,000 octets |
//! | Where are rules, SAs and arrivals described? | `rule.rs`, `sa.rs`, `traffic.rs` (selectors), `arrival.rs` (path, TOS and TTL of a received packet) |
//! | Which settings has the datapath, and with which defaults? | `datapath/settings.rs` |
//! | Where does a packet's description become a packet, as `tcp A:P > B:Q`? | `trace/description.rs` |
//! | Where do the published vectors come from? | `tests/vectors/`: draft-mcgrew-gcm, RFC 7634, and Scapy's (made by `tests/scapy/vectors.py`); `datapath/tests/` replays them |
//! | How are allocations, instructions and thread interleavings tested? | `tests/allocation.rs`, `tests/instructions.rs` (against `tests/instructions.json`), `tests/interleaving.rs` (loom, by way of `sync.rs`) |
//! | Which steps does `cargo bench --bench esp` measure? | `steps.rs` |
//!
//! # Choices worth knowing
//!
//! - **Commit last.** A forged packet changes no SA: the window is checked before the cryptography and committed after
//!   it.
//! - **Opened ahead.** In the pipeline, packets are opened before it is known whether their sequence numbers are new.
//!   `settle` then commits all packets of an SA in a batch together. If one of them is a replay or the SA has used up
//!   its volume, it opens them again one by one, as if they had just come.
//! - **An SA is closed before it is removed.** Packets that already have a sequence number are sealed and counted for
//!   the old SA. The others look up their SA again and use the new one.
//! - **An inbound SA's lock is taken per run of packets**, not per packet; outbound SAs claim sequence numbers without
//!   a lock. Changes to rules and SAs are made under a lock that packets never take.
//! - **Remembered flows.** Each thread remembers which SA served a flow. Each change of rules, SAs in use or the filter
//!   calls `Spd::changed`, after which every flow is looked up again. A remembered flow keeps no SA alive.
//! - **Path MTU.** A router's message is believed only if it quotes the SPI of a packet that this side sent. It can
//!   only lower the MTU, within limits, and is forgotten after a while. A forged message can at worst cause
//!   fragmentation. IPv4 without Don't Fragment is fragmented before ESP, so that the peer need not reassemble ESP
//!   packets. How many fragments a packet becomes is decided together with its sequence numbers.
//! - **AH** has its own files for both directions and its own table of inbound SAs, behind the same SPD, queues and
//!   notices. Its packets are whole IP packets, because the ICV covers the IP header. They never travel in UDP.
//! - **`unsafe`** is only in `ip/words.rs`, which calls code compiled for AVX2, and in `prefetch.rs`, which gives hints
//!   to the cache.

#![deny(unsafe_code)]

pub mod ah;
mod arrival;
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
mod rule;
mod sa;
mod sad;
#[cfg(test)]
mod sample;
mod segment;
mod sequence;
mod spd;
mod sync;
