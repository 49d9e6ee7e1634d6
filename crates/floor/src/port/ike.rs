//! IKE on the port that ESP uses (RFC 3948 §2.2): it has sockets of its own there, which work while no worker does.

use super::Port;
use super::arriving::{NON_ESP_MARKER, sort};
use super::routers::Routers;
use super::strays::Strays;
use crate::datagrams::Ring;
use socket2::Socket;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

/// Sends from the port that ESP in UDP uses. Clones share the sockets, which close with the last of them.
#[derive(Clone)]
pub struct IkeSender {
    port: Arc<Port>,
}

impl IkeSender {
    /// Sends from the sockets of this port that ESP does not use.
    pub fn of(port: &Arc<Port>) -> Self {
        Self { port: Arc::clone(port) }
    }

    /// Sends an IKE message behind the non-ESP marker (RFC 3948 §2.2), from the address of `local`; its port is not
    /// used.
    pub fn send_ike(&self, local: SocketAddr, remote: SocketAddr, octets: &[u8]) -> io::Result<()> {
        let marked = [&NON_ESP_MARKER, octets].concat();
        self.port.send_datagram(local.ip(), remote, &marked)
    }

    /// Keeps the mappings of NATs on the way alive (RFC 3948 §2.3).
    pub fn send_keepalive(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<()> {
        self.port.send_datagram(local.ip(), remote, &[0xff])
    }
}

/// Most messages of one receiving call.
const MESSAGES: usize = 8;

/// The messages that no worker receives: IKE on the port of ESP, and ICMP messages about paths. The owner waits until
/// its descriptor is readable and then calls [`receive`](Self::receive). The port stays taken as long as it lives.
pub struct IkeReceiver {
    strays: Arc<dyn Strays>,
    source: Source,
}

enum Source {
    Port(Box<Receiving>),
    Routers(Routers),
}

/// The port, for one family.
struct Receiving {
    port: Arc<Port>,
    family: usize,
    ring: Ring,
}

impl IkeReceiver {
    /// One for each family that the host has.
    pub fn of_port(port: &Arc<Port>, strays: &Arc<dyn Strays>) -> Vec<Self> {
        let families = (0..2).filter(|family| port.first(*family).is_some());
        let receiving = families.map(|family| Receiving {
            port: Arc::clone(port),
            family,
            ring: Ring::new(MESSAGES),
        });
        let sources = receiving.map(|receiving| Source::Port(Box::new(receiving)));
        sources.map(|source| Self { strays: Arc::clone(strays), source }).collect()
    }

    /// One for the messages of routers about packets that were too long for them, for each family that the host has;
    /// none if the system refuses it.
    pub fn of_routers(strays: &Arc<dyn Strays>) -> Vec<Self> {
        let routers = Routers::listen().unwrap_or_else(|error| {
            tracing::warn!(%error, "what networks say of their MTUs is not heard");
            Vec::new()
        });
        let sources = routers.into_iter().map(Source::Routers);
        sources.map(|source| Self { strays: Arc::clone(strays), source }).collect()
    }

    /// Hands on what has come, at most a few messages at a time. Returns whether there may be more.
    pub fn receive(&mut self) -> bool {
        match &mut self.source {
            Source::Port(receiving) => receiving.receive(&*self.strays),
            Source::Routers(routers) => routers.receive(&*self.strays),
        }
    }

    /// Another handle to the socket, for the task that watches it.
    ///
    /// # Errors
    /// Where the process has too many descriptors.
    pub fn socket(&self) -> io::Result<UdpSocket> {
        Ok(self.source.socket().try_clone()?.into())
    }
}

impl Receiving {
    fn receive(&mut self, strays: &dyn Strays) -> bool {
        let received = match self.ring.receive(socket(&self.port, self.family).as_fd(), MESSAGES) {
            Ok(received) => received,
            // An ICMP answer to something sent before; there may be more behind it.
            Err(error) => {
                tracing::debug!(%error, "receiving IKE");
                return true;
            }
        };
        let now = Instant::now();
        for message in (0..received).filter_map(|index| self.ring.datagram(index)) {
            sort(&message, self.port.number(), &|ike| strays.ike(ike), &mut |esp| {
                strays.esp(now, &esp);
            });
        }
        // Fewer than asked for may also mean that an error waits behind them.
        received > 0
    }
}

impl Source {
    fn socket(&self) -> &Socket {
        match self {
            Self::Port(receiving) => socket(&receiving.port, receiving.family),
            Self::Routers(routers) => routers.socket(),
        }
    }
}

fn socket(port: &Port, family: usize) -> &Socket {
    port.first(family).expect("made for the families there are")
}

impl AsFd for IkeReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.socket().as_fd()
    }
}
