//! The userspace plane: a TUN device, sockets, and the threads that carry packets between them through a
//! [`Datapath`](esp::datapath::Datapath).
//!
//! [`Userspace`] is a [`DataPlane`](esp::plane::DataPlane): key management gives it rules and SAs. The crate `esp`
//! decides about packets and protects them; this crate has the system calls, the threads and everything that is changed
//! on the host. IKE shares UDP port 4500 with ESP and is received by sockets of its own ([`Userspace::ike_receivers`]).
//!
//! ```text
//!  run to completion: every worker does all steps, for its own queue pairs
//!
//!    TUN queue ──► worker: Sender::encapsulate ──► send batch ──► UDP 4500, protocol 50 or 51
//!    sockets   ──► worker: decapsulate_run ──► joined segments ──► TUN queue
//!
//!  pipeline: one reader, any worker for the cryptography, results in order
//!
//!    TUN     ──► reader: admit ─┐             ┌─ seal ───────┐             ┌─ sockets
//!                               ├─► jobs ──► worker          ├─► InOrder ──┤
//!    sockets ──► reader ────────┘             └─ open_ahead ─┘             └─ settle ──► TUN
//! ```
//!
//! # Changes on the host
//!
//! All of these are undone at shutdown. If the kernel protects packets too ([`Config::beside_kernel`]), all but the
//! last exist only while there is a rule. The nftables table that drops cleartext is not here, but in the package `vpn`
//! (`src/planes/guard.rs`):
//!
//! - a TUN device ([`Config::device`]) without addresses;
//! - a routing table ([`Config::table`]) with a route to the device for the remote side of every rule, and a blackhole
//!   behind each;
//! - one rule per family that sends everything without the mark ([`Config::mark`]) through that table. Packets of the
//!   plane itself carry the mark, and so must IKE's sockets;
//! - loose reverse path filtering on an interface where strict would drop a peer's packets;
//! - with a filter ([`Config::filter`]) an nftables table, and routing rules before that of the tunnels for bypassed
//!   traffic.
//!
//! When the process is killed, the kernel removes the TUN device at once, and with it the routes that lead to the
//! device. All else remains: the blackholes, the rule of each family, the filter's table and routing rules, the changed
//! reverse path filters, and the guard's table. So the traffic stops rather than leaks. Nobody removes these before the
//! next start with the same device and state directory, which undoes what the journal lists
//! (`crates/host/src/journal.rs`) and replaces the tables.
//!
//! # Examples
//!
//! A plane with three workers, one of them the reader of the pipeline. It needs CAP_NET_ADMIN and CAP_NET_RAW:
//!
//! ```no_run
//! use std::sync::Arc;
//! use userspace::workers::{Count, Schedule, Settings, Workers};
//! use userspace::{Config, Hooks, Userspace};
//!
//! let workers = Workers::new(Settings {
//!     workers: Count::Exactly(3),
//!     schedule: Schedule::Pipeline,
//!     ..Settings::default()
//! });
//! let hooks = Hooks {
//!     notice: Arc::new(|notice| println!("for key management: {notice:?}")),
//!     ike: Arc::new(|_datagram| println!("an IKE message")),
//! };
//! let config = Config { workers: workers.clone(), ..Config::default() };
//! let mut plane = Userspace::start(config, hooks)?;
//! // Rules and SAs are added through `esp::plane::DataPlane`; the first SA starts the workers.
//! for (reason, packets) in plane.counters() {
//!     println!("{reason}: {packets}");
//! }
//! plane.shutdown();
//! # Ok::<(), esp::plane::PlaneError>(())
//! ```
//!
//! Settings have the names that configurations use:
//!
//! ```
//! use userspace::workers::{Schedule, Settings};
//! use userspace::{KernelOffload, Wait};
//!
//! let schedule: Schedule = "pipeline".parse()?;
//! let settings = Settings { schedule, wait: "poll".parse()?, ..Settings::default() };
//! assert_eq!((settings.schedule, settings.wait), (Schedule::Pipeline, Wait::Poll));
//! assert!(settings.number() >= 2);
//! assert_eq!(KernelOffload::UdpGro.name(), "udp-gro");
//! # Ok::<(), String>(())
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Which thread seals and opens in run-to-completion? | `worker.rs`: the worker that has read the packet |
//! | Which thread seals and opens in the pipeline? | `pipeline.rs`, `does`: any worker; the reader too if it finds no free batch, the packet is alone, or there is no other worker |
//! | Which thread claims sequence numbers and commits the anti-replay window in the pipeline? | `pipeline.rs`: the reader claims; the worker that finishes the batch whose turn it is commits (`order.rs`) |
//! | How many workers are there, and on which CPUs? | `workers/settings.rs`: up to 64; `auto` takes one with two CPUs and otherwise half of them, at most eight. They are started and stopped in `workers.rs` |
//! | How does a worker wait, and with which scheduling policy? | `waiting.rs` (`adaptive` polls for 60 µs under load if there are more than two CPUs); `sched_policy.rs` |
//! | Which routes and rules lead to the TUN device? | `tun_routes.rs`; they are in the journal of the crate `host`, which undoes them after a crash |
//! | Who creates the device, and when does it go? | `device.rs` (at most 1000 packets wait in a queue), `tun.rs`; `plane/data_plane.rs`, `appear` |
//! | Where does GSO come in? | `tun.rs` (super-packets of the device), `datagrams.rs` (UDP segmentation and GRO: `datagrams/sending.rs`, `datagrams/receiving.rs`); packets are split and joined in `crates/esp/src/segment.rs` and `crates/esp/src/coalesce.rs` |
//! | Which kernel offload can be switched off? | `kernel_offload.rs` |
//! | Where are ESP, IKE and keepalives on one port told apart? | `arriving.rs`; `steering.rs` does it in the kernel, by a BPF program |
//! | Which socket and queue gets the packets of an SA? | `steering.rs`, `port.rs` |
//! | Where is the DF bit set? | decided in `crates/esp/src/outbound/fit_to_mtu.rs`; set by `dont_fragment.rs`, `let_fragment`, which `socket.rs` calls |
//! | Where are routers heard and the host's own MTUs asked? | `outer.rs` |
//! | Where is the MTU of the device computed? | `plane.rs`, `device_mtu`; `plane/data_plane.rs`, `lower_device_mtu`, lowers it for an SA with more overhead. A router's report goes from `outer.rs` to `crates/esp/src/path_mtu.rs`, `learn` |
//! | Where is cleartext dropped, in both directions? | not here: `src/planes/guard.rs` of the package `vpn`, for all planes |
//! | What happens to traffic of no tunnel? | `filter.rs`, an nftables table and routing rules; without nft a filter is refused. Other threads wait for nft, one after the other: `turns.rs` |
//! | Where are packets counted that the datapath never saw? | `plane.rs`, `counters` |
//! | What are the settings and their defaults? | `config.rs`: `vpn0`, table, rule priority and UDP port 4500, mark `0x76706e`, `/run/vpnd` |
//! | What happens without /dev/net/tun or a capability? | `refusal.rs`, `check_capabilities`, and `tun.rs`, `create`, refuse the start with advice; `vpnd` looks before that: `crates/cli/src/daemon/privilege.rs` |
//! | What becomes of the routes when the process is killed? | `tun_routes.rs`: the kernel removes the device with its routes (metric 10); the blackholes behind them (metric 20) and the rule stay until the next start: `crates/host/src/journal.rs`, `Journal::open` |
//! | How large are queues and buffers? | sockets 8 MiB (`port/open.rs`); a worker's queue 1 MiB, 32 super-packets in turn (`worker.rs`); the pipeline 16 batches in each direction (`pipeline.rs`); 64 datagrams in a call (`datagrams.rs`) |
//! | What happens if a socket is full? | `socket.rs`: it waits at most 20 ms (`SEND_PATIENCE`), then drops the packets and counts them as `unsent` |
//! | Which sockets are opened, and with which options? | `port.rs` and `port/open.rs` (shared: native ESP, AH, first UDP sockets), `socket.rs` (those of one queue pair), `queue_pair.rs` (a device queue with its sockets) |
//! | Who receives and sends IKE on UDP 4500? | `ike.rs`: `IkeReceiver` and `IkeSender`, outside of the workers |
//! | How does a received AH packet get its headers back? | `ah.rs` |
//! | Whom does the plane call with notices and IKE messages? | `hooks.rs` |
//! | Which stages does `vpnctl workers` count? | `stage.rs` (the stages), `workers/report.rs` (the report) |
//! | How is a worker found that is stuck? | `workers.rs`, `roll_call`: each thread answers in its next round (`requests.rs`, `Orders`) |
//! | How are batches used again, and threads woken? | `pool.rs`; `event_fd.rs`, `requests.rs` |
//!
//! # Choices worth knowing
//!
//! - **No thread runs without work.** While no SA is up and no rule waits for a packet, there are no workers, and the
//!   sockets take no packets. Those that come are counted as packets with an unknown SPI.
//! - **Workers do not preempt.** They run under SCHED_BATCH: the thread that sends a packet finishes first, and a lone
//!   packet tends to stay on one core. A run-to-completion worker that waited too long for a core switches to normal
//!   scheduling for a second, and for longer (64 s at most) if that happens again and again.
//! - **ESP in UDP is faster than native ESP here**, because UDP has segmentation offload and raw sockets have none.
//!   Which of them an SA uses is agreed by IKE (`crates/ike/src/config.rs`, `Encap`).
//! - **AH leaves as whole IP packets** through raw sockets, because its ICV covers the IP header.
//! - **Don't Fragment.** IPv4 packets that must not be fragmented leave with IP_PMTUDISC_PROBE: the kernel sets the bit
//!   and does not use the path MTU that it has learned itself. The kernel is asked only for the MTU of the interface
//!   and of the route.
//! - **Traffic of no tunnel.** The order is: traffic that always passes, the filter's rules, the tunnels, the default
//!   of the address family. Bypassed traffic is led past the device by routing rules, not by marks, so that its source
//!   address is chosen for the route it takes. The filter's nftables table stays in force after a crash and after a
//!   failed start.

#![deny(unsafe_code)]

mod ah;
mod arriving;
mod config;
mod datagrams;
mod device;
mod dont_fragment;
mod engine;
mod event_fd;
mod filter;
mod hooks;
mod ike;
mod kernel_offload;
mod order;
mod outer;
mod pipeline;
mod plane;
mod pool;
mod port;
mod queue_pair;
mod refusal;
mod requests;
mod sched_policy;
mod socket;
mod stage;
mod steering;
mod sync;
mod tun;
pub mod tun_of_another;
mod tun_routes;
mod turns;
mod under_way;
mod waiting;
mod worker;
pub mod workers;

pub use config::Config;
pub use engine::{EngineWork, Requests};
pub use hooks::{Hooks, IkeDatagram};
pub use ike::{IkeReceiver, IkeSender};
pub use kernel_offload::KernelOffload;
pub use plane::{Userspace, explanation};
pub use refusal::plane_error;
pub use stage::{Flow, Stage};
pub use waiting::Wait;
