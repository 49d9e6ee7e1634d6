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
//! let loaded = policy::xml::read("policy.xml", &text).map_err(|errors| errors.to_string())?;
//!
//! let builder = vpn::Gateway::builder(loaded.policy).device("vpn1").table(4501);
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
//! [`DataPlane`](esp::plane::DataPlane), and an empty `impl Capabilities`. `examples/connect.rs` opens a TCP connection through
//! a tunnel as an ordinary user ([`Builder::in_process`], `docs/embedding.md`).
//!
//! # Start and stop
//!
//! A start goes in this order, and undoes what it has done if a step fails ([`Builder::start`]):
//!
//! 1. The runtime and the settings are checked; nothing has changed yet.
//! 2. UDP 500 is opened: another IKE daemon shows here.
//! 3. The data plane starts. What a crashed run has left is replaced, the kernel's plane comes first if there is one,
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
//! | `pkcs11` | private keys in PKCS#11 tokens; off by default, on in `vpnd` |
//! | `ring`, `portable` | crypto providers next to AWS-LC; both are on by default |
//! | `serde` | `serde::Serialize` for the states of tunnels and SAs ([`ike::status`]), suites, events, failures, close reasons, the status of the filter, [`Activation`] and [`Closed`]; off by default |
//!
//! In serialized form enum variants are in snake case and have the same names as `State::name` and `FailureKind::name`.
//! Algorithms, selectors, modes, and SPIs in hexadecimal are the strings that `Display` gives. A `Duration` has the
//! fields `secs` and `nanos`. Counters ([`Gateway::counters`]) are a plain map, which needs no feature.
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Where is a setting of the builder, and in which order does a start go? | `src/builder/host.rs`, `start`; `src/builder.rs` has the settings that every data plane shares |
//! | How does a start with a data plane of the caller's go? | `src/builder/custom.rs` |
//! | How does a start without a device and without privileges go? | `src/builder/in_process.rs`; the sockets are in `crates/net` |
//! | Why is a start refused? | `src/builder/start_error.rs`; nothing is left behind. A runtime without drivers is found by `src/builder/runtime.rs` |
//! | What are the default device, table, mark and ports? | `crates/userspace/src/config.rs`, `Config::default`: device `vpn0`, table and rule priority 4500, mark `0x76706e`, UDP 4500. UDP 500 is fixed: `crates/ike/src/sa/path.rs`, `IKE_PORT` |
//! | What happens if two daemons run on one host? | The second start fails and names the cause: UDP 500 is taken (`src/driver/socket.rs`, `SocketError`), or the control socket (`crates/host/src/socket_file.rs`), or the device (`crates/host/src/journal.rs`, `Journal::open`) |
//! | Where is a method of the running gateway? | `src/gateway.rs`; `src/gateway/views.rs` for tunnels, filter, offload, crypto and SAs keyed by hand |
//! | What keeps traffic from leaving in the clear, and how does a reload or a crash not open a gap? | `src/planes/guard.rs`, an nftables table (its sets: `src/planes/guard/sets.rs`; the thread that changes it: `src/planes/guard/writer.rs`); the rules stay in the plane during a reload: `crates/ike/src/engine/replacement.rs` |
//! | What happens if another program removes the device, rules, routes or nftables tables? | `src/planes/capabilities.rs`, `restore` (nftables: `src/planes/table_watch.rs` and `src/planes/restoration.rs`), and `put_back` in `crates/userspace/src/plane/capabilities.rs`; `crates/ike/src/engine/restoration.rs` calls it when the host announces a change, and again after growing pauses if a part cannot be put back |
//! | How does the guard outlive the gateway (`vpnd guard`, `vpnd release`)? | `src/guard.rs`; the mark of a held guard: `src/planes/guard/hold.rs`; what puts it back while no gateway runs: `src/guard/watch.rs` |
//! | What is guarded if the policy cannot be read? | `src/planes/definition.rs`: the last good guard, in a file without keys |
//! | How is the policy or the filter replaced while the engine goes on? | `src/driver/replacement.rs`; `src/driver/filter_change.rs` |
//! | What happens if the program nft is missing? | `src/planes/guard/writer.rs`, `replace`: the start goes on with a warning, and routes and policies alone keep traffic from leaving in the clear. If a filter is configured, `crates/userspace/src/filter.rs`, `fill_table`, refuses the start |
//! | Which plane serves a tunnel, and what happens if the kernel refuses it? | `src/planes.rs`, `add_to_kernel` and `fall_back`; the operator's wish is in `src/planes/choice.rs` |
//! | How do rules, SAs and optional capabilities reach one of the two planes? | `src/planes/data_plane.rs` (rules and SAs), `src/planes/capabilities.rs` (filter, trace, resync, SAs keyed by hand) |
//! | Who notices that no route leads to the network of a tunnel in the kernel? | `src/planes/route_check.rs` |
//! | Is a network card tried? | `crates/xfrm/src/placement/steps.rs` |
//! | How does a command get from the gateway to the engine? | `src/driver/handle.rs`, then `Driver::command` in `src/driver.rs` |
//! | How long does a command wait, and for which events? | `src/driver/waiting.rs`: at most 180 s (`PATIENCE`) |
//! | What is the order of a stop, and how long does it wait for a dead peer? | the end of `Driver::run` in `src/driver.rs`; `FAREWELL` is 3 s |
//! | Why did a gateway end, and what becomes of the traffic then? | `src/closed.rs`, `Closed`; `src/driver/plane_guard.rs` tells the plane; `OnDrop` in `src/builder/host.rs`. After a panic of the engine the traffic stays blocked |
//! | Where are the sockets of IKE? | `src/driver/socket.rs` (UDP 500); beside a custom plane `src/driver/nat_t.rs` (UDP 4500); in a process without privileges `crates/net/src/datagrams/udp.rs`; ICMP about either: `src/driver/reachability.rs` |
//! | How many IKE messages wait for the engine? | 1024 from UDP 4500 (`src/driver.rs`, `DATAGRAMS`), and 1024 of each urgency (`crates/ike/src/priority_queue.rs`); further ones are dropped and counted as `ike.too_many_waiting` |
//! | What does a slow reader of events lose? | `src/events.rs`: the oldest. The latest 1024 are kept, the gateway never waits, and `Events::missed` counts the lost ones |
//! | Who tells the engine that an address or a route of the host has changed? | `src/driver/addresses.rs` waits, `look_at_addresses` in `src/driver.rs` tells; the engine follows in `crates/ike/src/session/roaming.rs` |
//! | Where does work with certificates run? | `src/driver/jobs.rs`: on as many threads as there are cores |
//! | What does a change of the system's clock do? | It counts only for certificates and revocation lists: `src/driver/jobs.rs`, `unix_time`, and `src/revocation.rs`. IKE's timers and lifetimes use the monotonic clock |
//! | How are certificates and keys read from files? | `src/certificates.rs` (directories, at most 10,000 files each), `src/certificates/file.rs` (one file: its mode, PEM or DER, at most 32 MiB), `src/certificates/pem.rs` (sections) |
//! | How are private keys in tokens found and used? | `src/certificates/tokens.rs` (URIs), `crates/token`; the wait for a signature: `src/driver/jobs.rs` |
//! | How are revocation lists downloaded and kept? | `src/revocation.rs`: again after 24 h, after a failure 60 s; `src/revocation/fetch.rs`: one download by HTTP, 5 s, with two redirections; `src/revocation/store.rs`: the directory `crl_cache` |
//! | Where is the stored policy, and what does a full disk or a crash do to it? | `src/store.rs` (`/var/lib/vpnd/policy.xml`, mode 0600, one writer); `src/store/replace.rs` writes `policy.new` and renames it, so that the old policy stays if a step fails |
//! | How do SAs keyed by hand come and go at run time? | `src/manual/change.rs`: the order of ledger, guard, rule and SAs |
//! | Where are sequence numbers of SAs keyed by hand kept? | `src/manual.rs` decides, `src/manual/ledger.rs` is the file (`/var/lib/vpnd/sequences`) |
//! | Why do no packets pass through a tunnel that is up? | `src/findings.rs`: one file per subject behind it judges the facts of `crates/host/src/facts.rs` |
//! | How is one test run? | `cargo test -p vpn-sim NAME`: the simulation. `cargo test --test netns NAME`; likewise `facade`, `interop` and `kernel`. Each is a directory in `tests/` (helpers: `crates/testkit/`). Beside the code: `cargo test -p vpn-ike --lib NAME`. `tests/kernel/guest/` boots the kernel (`docs/kernel-tests.md`) |
//! | What must pass before a change lands, and which tests look after the repository? | `.ci/run`; `tests/workspace/` (circles between files; RFCs, `docs/rfc-coverage.toml`; tests that were left out), `tests/docs.rs` (documents name what exists) |
//! | How is a benchmark run? | `cargo bench -p vpn-esp --bench esp` (single steps of packets); `cargo bench --bench NAME` for `control_plane` (steps of IKE), `handshake`, `tunnel` (beside other VPNs) and `experiments`, each below `benches/` |
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

pub use builder::{
    Builder, CustomPlane, HostPlane, InProcess, OffloadSettings, OnDrop, PlaneInlet, PlaneSettings,
    StartError,
};
pub use closed::Closed;
pub use driver::{Activation, Begun, GatewayError, Selection, SocketError};
pub use events::Events;
pub use gateway::{CryptoView, FilterView, Gateway, ManualView, OffloadView, Tunnel, Tunnels};
pub use host::Process;

pub use crypto;
pub use esp;
pub use ike;
pub use net;
pub use policy;
pub use userspace;
pub use xfrm;
