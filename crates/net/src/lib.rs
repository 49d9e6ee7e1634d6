//! Sockets over tunnels: TCP, UDP, ICMP echo and names, in a process without a device, a route or a privilege.
//!
//! [`Network`] has the sockets. [`InProcess`] is the [`DataPlane`](esp::plane::DataPlane) behind them, to which key
//! management gives rules and SAs. Between the peers, IKE and ESP in UDP travel by [`datagrams::Datagrams`]: UDP
//! sockets of this host, memory, or a transport of the embedder's. This crate knows no IKE; the crate `vpn` connects
//! it to the engine (`Builder::in_process`).
//!
//! ```text
//!  TcpStream, TcpListener ─► Connection: buffers, state of TCP ◄─┐
//!  UdpSocket, ping ────────► Mailbox: packets, jobs ─────────────┤
//!                                                                ▼
//!                           Driver: one task   Stack ─► Outlet ─► encapsulate ─► SendQueue ─┐
//!                                              ▲  smoltcp                                   ▼
//!                                              └── ReceiveQueue ◄── decapsulate_run ◄─── Datagrams ◄─► peers
//!                                                                               IKE ◄──────┘
//! ```
//!
//! # Example
//!
//! Two networks in one process, and a stream between them. The SAs are made by hand:
//!
//! ```
//! use crypto::Suite;
//! use esp::plane::*;
//! use net::datagrams::{Fate, Memory};
//! use net::{Hooks, InProcess, Network, Parts, Settings};
//! use policy::{AddressRange, KeyBits, Mode, Secret, Selector};
//! use std::sync::Arc;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let outer = ["192.0.2.1:4500".parse()?, "192.0.2.2:4500".parse()?];
//! let [one, two] = Memory::pair(outer, Arc::new(|_| Fate::Arrives));
//! let hooks = Hooks { notice: Arc::new(|_| {}), ike: Arc::new(|_| {}) };
//! let mut left = Network::start(Settings::new(1), Arc::new(one), hooks.clone());
//! let mut right = Network::start(Settings::new(2), Arc::new(two), hooks);
//!
//! let suite = Suite::AesGcm16(KeyBits::B128);
//! let net = |n: u8| {
//!     let range = AddressRange::new([10, n, 0, 0].into(), [10, n, 0, 255].into());
//!     vec![Selector::all_of(range.expect("in order"))]
//! };
//! let add = |plane: &mut InProcess, here: usize| -> Result<(), PlaneError> {
//!     let there = 1 - here;
//!     let selectors = TrafficSelectors { local: net(here as u8 + 1), remote: net(there as u8 + 1) };
//!     let path = Path { local: outer[here], remote: outer[there], encapsulation: Encapsulation::Udp };
//!     let (rule, key) = (RuleId(1), || Secret::new(vec![7; suite.key_material_len()]));
//!     plane.add_rule(Rule { id: rule, tunnel: "lan".into(), selectors: selectors.clone(), trap: false })?;
//!     let selectors = Arc::new(selectors);
//!     plane.add_inbound(InboundSa {
//!         id: SaId(1), rule, spi: Spi(0x1000 + here as u32), suite, key: key(), esn: true, replay_window: 64,
//!         mode: Mode::Tunnel, path, selectors: selectors.clone(), limits: Limits::default(),
//!     })?;
//!     plane.add_outbound(OutboundSa {
//!         id: SaId(2), rule, spi: Spi(0x1000 + there as u32), suite, key: key(), esn: true,
//!         mode: Mode::Tunnel, path, selectors, limits: Limits::default(), standby: false,
//!     })
//! };
//! add(&mut left.plane, 0)?;
//! add(&mut right.plane, 1)?;
//!
//! let listener = right.network.listen("0.0.0.0:80".parse()?)?;
//! let (stream, accepted) = tokio::join!(left.network.connect("10.2.0.1:80"), listener.accept());
//! let (mut stream, (mut accepted, peer)) = (stream?, accepted?);
//! assert_eq!(peer.ip().to_string(), "10.1.0.1");
//! stream.write_all(b"through the tunnel").await?;
//! let mut octets = [0; 18];
//! accepted.read_exact(&mut octets).await?;
//! assert_eq!(&octets, b"through the tunnel");
//! # Ok(())
//! # }
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Which tunnel does a connection take, and which address has this end? | `routes.rs` |
//! | How does `connect` resolve a name and wait for a tunnel, and which errors has it? | `names.rs`, `network.rs`, `error.rs` |
//! | Where does a packet of a tunnel find its socket, and who has a turn to send? | `stack.rs`, `stack/`, `packet.rs` |
//! | What of smoltcp's TCP is corrected, and how long is a segment? | `corrections.rs`, `corrections/`, `outlet.rs` |
//! | When does the task wake up? | `driver.rs` |
//! | How much memory can connections and sockets take, and how much is under way? | `budget.rs`, `sending.rs`, `received.rs` |
//! | Which settings are there? | `settings.rs` |
//! | When does a connection end whose other end is a socket of this host? | `relay.rs`, `relay/` |
//! | What does dropping a future or a handle do? | `tcp.rs`, `listener.rs`, `udp.rs`, `network.rs`, `connection.rs` |
//! | How does an embedder carry datagrams? | `datagrams.rs`, `datagrams/` |
//! | How do packets of a TUN device, or of an embedder's own stack, take the tunnels? | `device.rs` |
//! | Which SAs are refused? | `plane.rs` |
//!
//! # Guarantees and limits
//!
//! - **Nothing can leave in the clear.** The only way out of the stack is `Sender::encapsulate` of the datapath. It
//!   seals a packet or drops it. There is no route and no filter that could be missing.
//! - **Outer packets may be fragmented by routers.** ICMP about ESP is not heard by an ordinary user, so the Don't
//!   Fragment bit of outer IPv4 packets is clear. Packets are made to fit `Settings::outer_mtu` before that: TCP by its
//!   segment length, UDP by fragments inside the tunnel.
//! - **A lock per connection.** A read or write copies under the lock of its connection. The task takes it for a few
//!   packets, so that applications on other threads hardly wait.
#![forbid(unsafe_code)]

mod budget;
mod clock;
mod connection;
mod corrections;
pub mod datagrams;
pub mod device;
mod driver;
mod end;
mod error;
mod incoming;
mod listener;
mod mailbox;
mod names;
mod network;
mod outlet;
mod packet;
mod plane;
mod received;
pub mod relay;
mod routes;
mod sending;
mod settings;
mod shared;
mod stack;
mod tcp;
mod udp;

pub use driver::{IkeDatagram, IkeSink};
pub use error::ConnectError;
pub use listener::TcpListener;
pub use network::{Hooks, IkeSender, Network, Parts, StartTunnel, Starting};
pub use plane::InProcess;
pub use routes::own_address;
pub use settings::Settings;
pub use tcp::{ReadHalf, TcpStream, WriteHalf};
pub use udp::UdpSocket;
