//! An IPsec gateway for Rust programs: IKEv2 (RFC 7296) negotiates keys, ESP or AH (RFC 4303, 4302) protects packets.
//!
//! A program gives a [`policy::Policy`] and settings to a [`Builder`] and receives a running [`Gateway`]. The daemon
//! `vpnd` is built on this crate: it has no other way to start or command a gateway.
//!
//! ```text
//!                    Gateway ── tunnels() workers() filter() offload() crypto() manual() events() stop() closed()
//!                       │ commands          ▲ events
//!                       ▼                   │
//!   UDP 500 ◄──► driver: a tokio task with sockets and clock, around ike::Engine (no I/O)
//!                       │ rules, SAs        ▲ notices, IKE that came to UDP 4500
//!                       ▼                   │
//!                data plane ── userspace: TUN device, sockets, worker threads ◄──► UDP 4500, IP protocols 50 and 51
//!                           ├─ the kernel's XFRM, network cards
//!                           ├─ in this process, with sockets over the tunnels: net::Network
//!                           └─ one of the caller's: any esp::plane::DataPlane
//! ```
//!
//! # Example
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let text = std::fs::read_to_string("policy.xml")?;
//! let loaded = policy::xml::read("policy.xml", &text)?;
//!
//! let mut host = vpn::HostSettings::default();
//! (host.floor.device, host.floor.table) = ("vpn1".to_owned(), 4501);
//! let builder = vpn::Gateway::builder(loaded.policy).host(host);
//! let mut events = builder.subscribe();
//! let gateway = builder.start().await?;
//! tokio::spawn(async move {
//!     while let Some(event) = events.recv().await {
//!         println!("{event}");
//!     }
//! });
//!
//! for tunnel in gateway.tunnels().activate(vpn::Selection::All).await? {
//!     println!("{}: {:?}", tunnel.name, tunnel.outcome);
//! }
//! gateway.tunnel("site").rekey().await?;
//! gateway.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! `examples/gateway.rs` is a whole gateway. `examples/custom_plane/` has its own data plane: the ten methods of
//! [`DataPlane`](esp::plane::DataPlane), and an empty `impl Capabilities`. `examples/connect.rs` opens a TCP connection
//! through a tunnel as an ordinary user ([`Builder::in_process`]); `docs/understand/embedding.md` lists the others.
//!
//! # Start and stop
//!
//! A start goes in this order, and undoes what it has done if a step fails ([`Builder::start`]):
//!
//! 1. The runtime and the settings are checked; nothing has changed yet.
//! 2. UDP 500 is opened: another IKE daemon shows here.
//! 3. The data plane starts. It replaces the remains of a crashed run. The kernel's plane comes first if there is one,
//!    then the filter, then device and routes, which wait for the first rule that needs them.
//! 4. SAs keyed by hand are installed, and IKE listens on UDP 4500.
//! 5. The engine installs the policy's rules: from here on their traffic is protected or blocked. Events begin.
//!
//! [`Gateway::stop`] goes backwards: Deletes are sent, the peers have three seconds to answer, UDP 500 is closed, the
//! plane undoes its changes to the host, UDP 4500 is closed, events end, and [`Gateway::closed`] resolves. If a gateway
//! is dropped instead, [`OnDrop`] decides what becomes of the traffic; if its engine panics, the traffic stays blocked.
//!
//! # Cargo features
//!
//! | feature | |
//! |---|---|
//! | `aws-lc` | the library of cryptography; on by default |
//! | `pure-rust` | RustCrypto, which needs no C compiler, if `aws-lc` is off; off by default |
//! | `metrics` | `Gateway::record_metrics`, the gateway's numbers for the façade `metrics`, by the names that `vpnd` has; off by default |
//! | `pkcs11` | private keys in PKCS#11 tokens; off by default, on in `vpnd` |
//! | `ring`, `portable` | crypto providers beside it; both are on by default |
//! | `serde` | `Serialize` for [`ike::status`], events, failures, [`Activation`], [`Closed`] and their parts; off by default |
//!
//! In serialized form enum variants are in snake case and have the same names as `State::name` and `FailureKind::name`.
//! Algorithms, selectors, modes, and SPIs in hexadecimal are the strings that `Display` gives. A `Duration` has the
//! fields `secs` and `nanos`. Counters ([`Gateway::counters`]) are a plain map, which needs no feature.
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | How does a gateway start, and which settings has it? | `src/builder.rs`, `src/builder/` |
//! | How does a program look at a running gateway and change it? | `src/gateway.rs`, `src/gateway/`, `src/events.rs`; in tests `src/memory.rs` |
//! | How do commands, messages, signatures and changed addresses reach the engine? | `src/driver.rs`, `src/driver/` |
//! | Where can peers begin with a gateway in this process? | `src/listening.rs`; its sockets are `crates/net/src/datagrams/udp.rs` |
//! | How does a gateway end, and its traffic? | the end of `Driver::run` in `src/driver.rs`, `src/closed.rs` |
//! | Which plane serves a tunnel, and how do rules and SAs get there? | `src/planes.rs`, `src/planes/` |
//! | What keeps traffic from leaving in the clear, also without a gateway? | `crates/floor/src/guard.rs`; `src/guard/` |
//! | Who repairs what others remove? | `crates/ike/src/engine/restoration.rs`, `src/planes/capabilities.rs` |
//! | How are certificates, keys, tokens and revocation lists read? | `src/certificates/`, `crates/token`, `src/revocation/` |
//! | Where is the stored policy? | `src/store.rs`; its objects are `crates/policy/src/database.rs` |
//! | How do SAs keyed by hand come and go, and keep their sequence numbers? | `src/manual.rs`, `src/manual/` |
//! | Why is a tunnel down? Why do no packets pass through one that is up? | [`Gateway::why`] and [`Gateway::findings`] in `src/gateway.rs`; causes and cures: `crates/diagnosis/` |
//!
//! `CONTRIBUTING.md` tells how one test or benchmark is run. `tests/workspace/` and `tests/docs/` look after the
//! repository itself.
#![forbid(unsafe_code)]

pub mod certificates;
pub mod findings;
pub mod guard;
pub mod manual;
pub mod planes;
pub mod revocation;
pub mod store;

mod builder;
mod closed;
mod driver;
mod events;
mod gateway;
mod listening;
mod memory;

pub use builder::{Builder, CustomPlane, HostSettings, InProcess, OnDrop, PlaneInlet, StartError};
pub use closed::Closed;
pub use driver::{Activation, Begun, GatewayError, Selection, SocketError};
pub use events::Events;
pub use gateway::{CryptoView, FilterView, Gateway, ManualView, OffloadView, Tunnel, Tunnels};
pub use host::Process;
pub use listening::{ListenError, Listening};
pub use memory::MemoryGateway;
pub use planes::{GuardSettings, OffloadSettings, PlaneSettings};

pub use crypto;
pub use diagnosis;
pub use esp;
pub use floor;
pub use ike;
pub use net;
pub use policy;
pub use userspace;
pub use xfrm;
