//! A way in and out of the kernel: a queue of the device, and sockets. One worker serves a queue pair at a time, and
//! the queue pair outlives it: the next worker takes the packets that wait in it when a worker goes.

use super::raw_sockets::RawSockets;
use super::socket::Sockets;
use super::socket_filter;
use super::tun::{Framing, Tun};
use esp::plane::PlaneError;
use floor::port::{Port, give, take};
use host::handover::Descriptors;
use socket2::Socket;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::sync::Arc;

/// A queue of the device and the sockets whose packets belong with it: the kernel sends the flow's other direction
/// through the queue that a worker writes to.
pub(super) struct QueuePair {
    pub tun: Tun,
    pub sockets: Sockets,
    /// This queue pair reads the raw sockets of ESP and AH. Each further socket would receive every packet again, so
    /// there is only one of a kind.
    pub reads_raw: bool,
}

impl QueuePair {
    pub(super) fn first(
        tun: Tun,
        port: &Arc<Port>,
        raw: &Arc<RawSockets>,
    ) -> Result<Self, PlaneError> {
        Ok(Self { tun, sockets: Sockets::join(port, raw)?, reads_raw: true })
    }

    /// The queue pair of another process with that number. Nothing is changed about it.
    ///
    /// # Errors
    /// If a descriptor is missing, or is another one.
    pub(super) fn adopt(
        number: usize,
        (device, framing): (&str, Framing),
        fragmenting: bool,
        port: &Arc<Port>,
        raw: &Arc<RawSockets>,
        from: &mut Descriptors,
    ) -> Result<Self, PlaneError> {
        let name = format!("tun.{number}");
        let queue = from.take(&name).ok_or_else(|| PlaneError::System {
            what: format!("taking over {name}"),
            why: "the other process has not sent it".to_owned(),
        })?;
        let tun = Tun::adopt(device, queue, framing)?;
        let udp = take(from, &format!("port.joined.{number}"), port.socket_kind())?;
        let sockets = Sockets::adopt(udp, fragmenting, port, raw);
        Ok(Self { tun, sockets, reads_raw: number == 0 })
    }

    /// Gives copies of the queue and of the sockets that have joined the port away.
    ///
    /// # Errors
    /// If the system has no more descriptors.
    pub(super) fn give(&self, number: usize, to: &mut Descriptors) -> io::Result<()> {
        to.add(&format!("tun.{number}"), self.tun.as_fd().try_clone_to_owned()?)?;
        give(to, &format!("port.joined.{number}"), self.sockets.udp())
    }

    /// One more beside `self`.
    pub(super) fn another(&self) -> Result<Self, PlaneError> {
        let sockets = Sockets::join(self.sockets.port(), self.sockets.raw())?;
        Ok(Self { tun: self.tun.another()?, sockets, reads_raw: false })
    }

    /// The sockets that are read.
    pub(super) fn readable(&self) -> impl Iterator<Item = (Wire, &Socket)> {
        let raw = self.sockets.raw();
        let udp = self.sockets.udp().iter().zip([Wire::Udp, Wire::Udp]);
        let native = raw.esp().iter().zip([Wire::Native4, Wire::Native6]);
        let raw = native.chain(raw.ah().iter().zip([Wire::Ah4, Wire::Ah6]));
        udp.chain(raw.filter(|_| self.reads_raw))
            .filter_map(|(socket, wire)| Some((wire, socket.as_ref()?)))
    }

    /// Takes nothing from the network while nobody reads.
    pub(super) fn close(&self) {
        for (wire, socket) in self.readable() {
            let closed = match wire {
                Wire::Udp => socket_filter::close(socket),
                Wire::Native4 | Wire::Ah4 => {
                    socket_filter::seclude(socket, Ipv4Addr::LOCALHOST.into())
                }
                Wire::Native6 | Wire::Ah6 => {
                    socket_filter::seclude(socket, Ipv6Addr::LOCALHOST.into())
                }
            };
            if let Err(error) = closed {
                tracing::debug!(%error, "what comes while no SA is up waits in the socket");
            }
        }
    }

    /// Takes what comes again.
    pub(super) fn reopen(&self) -> io::Result<()> {
        self.readable().try_for_each(|(wire, socket)| match wire {
            Wire::Udp => socket_filter::reopen(socket),
            Wire::Native4 | Wire::Ah4 => socket_filter::admit(socket, Ipv4Addr::UNSPECIFIED.into()),
            Wire::Native6 | Wire::Ah6 => socket_filter::admit(socket, Ipv6Addr::UNSPECIFIED.into()),
        })
    }
}

/// The protocol of the messages of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Udp,
    Native4,
    Native6,
    Ah4,
    Ah6,
}

impl Wire {
    /// Returns `true` if one message may be many packets.
    pub(super) fn coalesces(self) -> bool {
        self == Self::Udp
    }
}
