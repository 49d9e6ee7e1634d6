//! The host's addresses, and waiting for them to change.

use host::{Announced, Host};
use std::io;
use std::os::fd::AsFd;
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// The host, with what tokio waits on.
pub(super) struct WatchedHost {
    pub host: Host,
    /// A duplicate of its descriptor. Without `unsafe`, tokio waits on sockets of its own types only; nothing but
    /// readiness is asked of this one.
    readiness: UdpSocket,
}

impl WatchedHost {
    pub fn open(mark: u32) -> io::Result<Self> {
        let host = Host::open(mark)?;
        let duplicate = std::net::UdpSocket::from(host.as_fd().try_clone_to_owned()?);
        Ok(Self { host, readiness: UdpSocket::from_std(duplicate)? })
    }
}

/// Waits until addresses, routes or rules have changed; for ever where that cannot be noticed.
pub(super) async fn changed(host: Option<&WatchedHost>) -> Announced {
    let Some(WatchedHost { host, readiness }) = host else { return std::future::pending().await };
    let heard = readiness.async_io(Interest::READABLE, || host.take_announcements()).await;
    match heard {
        Ok(announced) => announced,
        Err(error) => {
            tracing::warn!(%error, "changes of this host's addresses are no longer noticed");
            std::future::pending().await
        }
    }
}
