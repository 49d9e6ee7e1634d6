//! The userspace plane: a TUN device, sockets, and the threads that carry packets between them through a
//! [`Datapath`](esp::datapath::Datapath).
//!
//! [`Userspace`] is a [`DataPlane`](esp::plane::DataPlane): key management gives it rules and SAs. The crate `esp`
//! decides about packets and protects them; this crate has the system calls, the threads and everything that is changed
//! on the host. IKE shares UDP port 4500 with ESP; the port and the receivers of IKE are those of `floor`
//! (`crates/floor/src/port.rs`).
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
//! All of these are undone at shutdown. If the kernel protects packets too ([`floor::Config::beside_kernel`]), they
//! exist only while there is a rule. The nftables table that drops cleartext, the filter and the port of ESP in UDP are
//! not this crate's, but those of `floor` (`crates/floor/src/guard.rs`, `crates/floor/src/floor.rs`):
//!
//! - a TUN device ([`floor::Settings::device`]) without addresses;
//! - a routing table ([`floor::Settings::table`]) with a route to the device for the remote side of every rule, and a
//!   blackhole behind each;
//! - one rule per family that sends everything without the mark ([`floor::Settings::mark`]) through that table. Packets
//!   of the plane itself carry the mark, and so must IKE's sockets;
//! - loose reverse path filtering on an interface where strict would drop a peer's packets.
//!
//! When the process is killed, the kernel removes the TUN device at once, and with it the routes that lead to the
//! device. All else remains: the blackholes, the rule of each family, the changed reverse path filters, and the tables
//! and routing rules of guard and filter. So the traffic stops rather than leaks. Nobody removes these before the
//! next start with the same device and state directory, which undoes what the journal lists
//! (`crates/host/src/journal.rs`) and replaces the tables.
//!
//! # Examples
//!
//! A plane with three workers, one of them the reader of the pipeline. It needs CAP_NET_ADMIN and CAP_NET_RAW:
//!
//! ```no_run
//! use floor::Floor;
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
//! let floor = Floor::start(floor::Config::default(), &Arc::default())?;
//! let mut plane = Userspace::start(&floor, config, hooks)?;
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
//! use userspace::Wait;
//! use userspace::workers::{Schedule, Settings};
//!
//! let schedule: Schedule = "pipeline".parse()?;
//! let settings = Settings { schedule, wait: "poll".parse()?, ..Settings::default() };
//! assert_eq!((settings.schedule, settings.wait), (Schedule::Pipeline, Wait::Poll));
//! assert!(settings.number() >= 2);
//! # Ok::<(), String>(())
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Which thread takes which step of a packet? | `worker.rs` (run to completion); `pipeline/`, `order.rs` |
//! | How does the plane stop without a loss, and go on here or in another process? | `plane/frozen.rs`, `workers/frozen.rs` |
//! | How many workers are there, where do they run, and how do they wait? | `workers/`, `sched_policy.rs`, `watched.rs` |
//! | Who makes the device, and which routes lead to it? | `device.rs`, `tun.rs`, `tun_routes.rs` |
//! | Which sockets are there, and what do they take? | `receivers.rs`, `raw_sockets.rs`, `socket.rs`, `queue_pair.rs`, `socket_filter.rs` |
//! | How are received ESP and AH read? | `arriving.rs`, `ah.rs`, `strays.rs` |
//! | Where are packets sent, and where are MTUs asked? | `socket.rs`, `outer.rs` |
//! | How do rules and SAs reach the plane, and whom does it call? | `plane.rs`, `plane/`, `hooks.rs` |
//! | What are the settings and their defaults? | `config.rs`, `workers/settings.rs` |
//! | How are batches reused, and threads woken? | `pool.rs`; `event_fd.rs`, `requests.rs`; `stage.rs` counts |

#![deny(unsafe_code)]

mod ah;
mod arriving;
mod config;
mod crypto_engine;
mod device;
mod event_fd;
mod hooks;
mod order;
mod outer;
mod pipeline;
mod plane;
mod pool;
mod queue_pair;
mod raw_sockets;
mod receivers;
mod requests;
mod sched_policy;
mod socket;
mod socket_filter;
mod stage;
mod strays;
mod sync;
mod tun;
pub mod tun_of_another;
mod tun_routes;
mod under_way;
mod waiting;
mod watched;
mod worker;
pub mod workers;

pub use config::{Config, Settings};
pub use crypto_engine::{CryptoEngineWork, Requests};
pub use device::{FrozenDevice, Lost};
pub use floor::port::{IkeDatagram, IkeReceiver, IkeSender};
pub use hooks::Hooks;
pub use plane::{FrozenUserspace, Userspace, explanation};
pub use stage::{Flow, Stage};
pub use tun::Framing;
pub use waiting::Wait;
