//! The settings of a network.

use crate::device::PacketDevice;
use crypto::CryptoProviders;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// The settings of a [`Network`](crate::Network).
#[derive(Clone, Debug)]
pub struct Settings {
    /// The addresses of this end in the tunnels. Empty, which is the default: of each tunnel's local selector the only
    /// address, or the first of a network (10.1.0.1 of 10.1.0.0/24).
    pub addresses: Vec<IpAddr>,
    /// Servers of DNS behind the tunnels. Default: none.
    pub name_servers: Vec<SocketAddr>,
    /// Octets of the longest packet between the peers. It decides the length of TCP's segments. Default: 1500.
    pub outer_mtu: u16,
    /// Octets of a TCP connection's receive buffer, which limit the throughput of one stream to this amount per round
    /// trip. They take memory only as far as they are used. Default: 1 MiB.
    pub receive_buffer: usize,
    /// Octets of a TCP connection's send buffer. Default: 1 MiB.
    pub send_buffer: usize,
    /// Octets of the buffers of all connections together. Each buffer of the n-th connection has at most the n-th part
    /// of a twelfth of them, so that thousands of connections have room. Default: 1 GiB.
    pub memory: usize,
    /// Connections that may wait for `accept` at one listener. Default: 128.
    pub backlog: usize,
    /// The time that a peer has to answer a SYN. Default: 30 s.
    pub connect_timeout: Duration,
    /// The time for which a TCP peer may leave what is sent unacknowledged. It covers the time in which a tunnel is
    /// negotiated again. Default: 300 s.
    pub dead_after: Duration,
    /// The time that a server of DNS has to answer. Default: 2 s; three attempts.
    pub name_timeout: Duration,
    /// A device whose packets take the tunnels in place of those of sockets, which then get none. The first packet of a
    /// tunnel starts it. Default: none.
    pub device: Option<Arc<dyn PacketDevice>>,
    /// The providers of ciphers.
    pub crypto: Arc<CryptoProviders>,
    /// A random number that nobody can guess: of sequence numbers, ports and identifiers.
    pub seed: u64,
}

impl Settings {
    /// The defaults.
    pub fn new(seed: u64) -> Self {
        Self {
            addresses: Vec::new(),
            name_servers: Vec::new(),
            outer_mtu: 1500,
            receive_buffer: 1 << 20,
            send_buffer: 1 << 20,
            memory: 1 << 30,
            backlog: 128,
            connect_timeout: Duration::from_secs(30),
            dead_after: Duration::from_secs(300),
            name_timeout: Duration::from_secs(2),
            device: None,
            crypto: Arc::default(),
            seed,
        }
    }
}
