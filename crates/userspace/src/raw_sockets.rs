//! The sockets of ESP and AH without UDP, which all queue pairs share.

use super::socket_filter::{self, SpiAt};
use esp::plane::PlaneError;
use floor::datagrams::set_option;
use floor::port::{SocketKind, for_families, give, let_fragment, marked, take};
use floor::refused;
use host::handover::Descriptors;
use host::netlink::Family;
use libc::{IPPROTO_IP, IPPROTO_IPV6};
use socket2::{Protocol, Socket, Type};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::OnceLock;

/// The sockets by family; those of a family that the host lacks are absent.
pub(super) struct RawSockets {
    mark: u32,
    esp: [Option<Socket>; 2],
    /// They send whole IP packets.
    ah: [Option<Socket>; 2],
    /// ESP of IPv4 that routers may fragment. It only sends, and is opened when it is needed first.
    fragmenting: OnceLock<Option<Socket>>,
}

impl RawSockets {
    /// Opens the sockets. They take nothing until a queue pair is opened.
    pub(super) fn open(mark: u32) -> Result<Self, PlaneError> {
        let esp = for_families("the socket of ESP", |family| {
            let socket = marked(family, Type::RAW, Protocol::from(libc::IPPROTO_ESP), mark)?;
            if family == Family::V4 {
                let_fragment(&socket, false)?;
            }
            Ok(socket)
        })?;
        let ah = for_families("the socket of AH", |family| ah(family, mark))?;
        let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        for (socket, loopback) in esp.iter().zip(loopback).chain(ah.iter().zip(loopback)) {
            let secluded = socket.as_ref().map_or(Ok(()), |s| socket_filter::seclude(s, loopback));
            if let Err(error) = secluded {
                tracing::debug!(%error, "what comes while no SA is up waits in the socket");
            }
        }
        Ok(Self { mark, esp, ah, fragmenting: OnceLock::new() })
    }

    /// Gives copies of the sockets away.
    ///
    /// # Errors
    /// If the system has no more descriptors.
    pub(super) fn give(&self, to: &mut Descriptors) -> io::Result<()> {
        give(to, "raw.esp", &self.esp)?;
        give(to, "raw.ah", &self.ah)
    }

    /// The sockets of another process. Nothing is changed about them.
    ///
    /// # Errors
    /// If a socket is missing, or is another one.
    pub(super) fn adopt(mark: u32, from: &mut Descriptors) -> Result<Self, PlaneError> {
        let [esp, ah] = [libc::IPPROTO_ESP, libc::IPPROTO_AH].map(|protocol| SocketKind {
            kind: Type::RAW,
            protocol: Protocol::from(protocol),
            port: None,
            mark,
        });
        let (esp, ah) = (take(from, "raw.esp", esp)?, take(from, "raw.ah", ah)?);
        // That for fragments only sends, and is opened again.
        Ok(Self { mark, esp, ah, fragmenting: OnceLock::new() })
    }

    /// The sockets of ESP, by family.
    pub(super) fn esp(&self) -> &[Option<Socket>; 2] {
        &self.esp
    }

    /// The sockets of AH, by family.
    pub(super) fn ah(&self) -> &[Option<Socket>; 2] {
        &self.ah
    }

    /// The socket of ESP of IPv4 that routers may fragment.
    pub(super) fn fragmenting(&self) -> Option<&Socket> {
        let opened = self.fragmenting.get_or_init(|| {
            let opened = self.open_fragmenting();
            opened.inspect_err(|error| tracing::warn!(%error, "no fragmenting")).ok()
        });
        opened.as_ref()
    }

    fn open_fragmenting(&self) -> io::Result<Socket> {
        let socket = marked(Family::V4, Type::RAW, Protocol::from(libc::IPPROTO_ESP), self.mark)?;
        let_fragment(&socket, true)?;
        // Nothing comes there, and every packet says where it is from.
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        Ok(socket)
    }

    /// Takes packets with these SPIs, and leaves all others to the kernel.
    pub(super) fn sift(&self, own: &BTreeSet<u32>) -> Result<(), PlaneError> {
        // Behind the header of IPv4; in AH behind four octets of its own (RFC 4302 §2).
        for (sockets, offset) in [(&self.esp, 0), (&self.ah, 4)] {
            for (socket, behind_header) in sockets.iter().zip([true, false]) {
                let Some(socket) = socket else { continue };
                socket_filter::sift(socket, SpiAt { behind_header, offset }, own)
                    .map_err(|e| refused("leaving the kernel's packets to it".to_owned(), &e))?;
            }
        }
        Ok(())
    }
}

/// Sends whole packets, so that their headers are those that AH covers, and tells of the extension headers that the
/// kernel takes off a packet of IPv6.
fn ah(family: Family, mark: u32) -> io::Result<Socket> {
    let socket = marked(family, Type::RAW, Protocol::from(libc::IPPROTO_AH), mark)?;
    let fd = socket.as_fd();
    match family {
        Family::V4 => {
            set_option(fd, IPPROTO_IP, libc::IP_HDRINCL, 1)?;
            let_fragment(&socket, false)?;
        }
        Family::V6 => {
            set_option(fd, IPPROTO_IPV6, libc::IPV6_HDRINCL, 1)?;
            for told in [libc::IPV6_RECVHOPOPTS, libc::IPV6_RECVDSTOPTS, libc::IPV6_RECVRTHDR] {
                set_option(fd, IPPROTO_IPV6, told, 1)?;
            }
        }
    }
    Ok(socket)
}
