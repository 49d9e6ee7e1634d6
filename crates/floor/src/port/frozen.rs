//! Sockets that pass from one process to another, and the numbers that belong to those of the port.

#![forbid(unsafe_code)]

use crate::refusal::refused;
use esp::plane::PlaneError;
use host::handover::Descriptors;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;

/// The families, as the names of descriptors have them.
const FAMILIES: [(&str, Domain); 2] = [("4", Domain::IPV4), ("6", Domain::IPV6)];

/// The state of a port beside its sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrozenPort {
    /// ESP is steered to so many of the sockets that have joined.
    pub joined: usize,
    /// The SPIs that a plane has claimed from the kernel.
    pub claimed: BTreeSet<u32>,
    /// The kernel segments UDP.
    pub segments: bool,
    /// The sockets take datagrams together (UDP GRO).
    pub receives_runs: bool,
    /// ESP packets that no socket took.
    pub unsent: u64,
}

/// A kind of socket, as a process finds it that has not opened it.
#[derive(Clone, Copy, Debug)]
pub struct SocketKind {
    /// Datagrams, or whole packets.
    pub kind: Type,
    /// The protocol of its packets.
    pub protocol: Protocol,
    /// The port; `None` for a protocol that has none.
    pub port: Option<u16>,
    /// The mark of its packets.
    pub mark: u32,
}

/// Gives copies of the sockets of both families away.
///
/// # Errors
/// If the system has no more descriptors.
pub fn give(to: &mut Descriptors, name: &str, sockets: &[Option<Socket>; 2]) -> io::Result<()> {
    for (socket, (family, _)) in sockets.iter().zip(FAMILIES) {
        if let Some(socket) = socket {
            to.add(&format!("{name}.{family}"), socket.as_fd().try_clone_to_owned()?)?;
        }
    }
    Ok(())
}

/// Takes the sockets of both families that another process has opened; that of IPv6 is absent where the host lacks it.
///
/// # Errors
/// If there is none of IPv4, or one is of another kind.
pub fn take(
    from: &mut Descriptors,
    name: &str,
    kind: SocketKind,
) -> Result<[Option<Socket>; 2], PlaneError> {
    let mut sockets = [None, None];
    for (socket, (family, domain)) in sockets.iter_mut().zip(FAMILIES) {
        let name = format!("{name}.{family}");
        if let Some(descriptor) = from.take(&name) {
            let taken = Socket::from(descriptor);
            kind.check(&taken, domain).map_err(|e| refused(format!("taking over {name}"), &e))?;
            *socket = Some(taken);
        }
    }
    match sockets {
        [None, _] => Err(refused(format!("taking over {name}.4"), &missing())),
        sockets => Ok(sockets),
    }
}

impl SocketKind {
    /// # Errors
    /// If the socket is of another kind.
    fn check(&self, socket: &Socket, domain: Domain) -> io::Result<()> {
        let address = socket.local_addr()?.as_socket();
        let is_bound = self.port.is_none_or(|port| address.is_some_and(|a| a.port() == port));
        let fits = socket.domain()? == domain
            && socket.r#type()? == self.kind
            && socket.protocol()? == Some(self.protocol)
            && socket.mark()? == self.mark
            && is_bound;
        match fits {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "it is another socket")),
        }
    }
}

fn missing() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the other process has not sent it")
}
