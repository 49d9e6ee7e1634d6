//! Connections that peers open.

use crate::connection::Connection;
use crate::end::End;
use crate::incoming::Incoming;
use crate::shared::Shared;
use crate::tcp::TcpStream;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// A TCP socket that takes the connections of peers behind the tunnels.
///
/// When it is dropped, its port is free at once, and the connections that nobody has accepted end as dropped streams do
/// ([`TcpStream`]). Accepted connections stay.
pub struct TcpListener {
    local: SocketAddr,
    incoming: Arc<Incoming>,
    shared: Arc<Shared>,
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener").field("local", &self.local).finish_non_exhaustive()
    }
}

impl TcpListener {
    pub(crate) fn bind(shared: Arc<Shared>, mut local: SocketAddr) -> io::Result<Self> {
        let incoming = Arc::new(Incoming::new(shared.settings.backlog));
        let bound = match local.port() {
            0 => shared.ports(policy::PortRange::ANY).any(|port| {
                local.set_port(port);
                shared.sockets().listen(local, &incoming)
            }),
            _ => shared.sockets().listen(local, &incoming),
        };
        match bound {
            true => Ok(Self { local, incoming, shared }),
            false => Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("another listener of this network has TCP port {}", local.port()),
            )),
        }
    }

    /// The address and port that it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Waits for a connection, and returns it with the peer's address.
    ///
    /// # Errors
    /// If the gateway has stopped.
    ///
    /// # Cancellation
    /// No connection is lost if the future is dropped: the next call returns it. Several tasks may wait.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let news = self.incoming.news();
            if let Some(connection) = self.incoming.take() {
                let remote = connection.flow.remote;
                return Ok((TcpStream::new(connection), remote));
            }
            tokio::select! {
                () = news => {}
                () = self.shared.mailbox.closed() => {
                    return Err(End::Stopped.into());
                }
            }
        }
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        self.incoming.close().iter().for_each(Connection::abandon);
    }
}
