//! The sockets of ESP and AH without UDP, which all queue pairs share.

use super::open::{ah, for_families, let_fragment, marked};
use crate::refusal::refused;
use crate::steering::{self, SpiAt};
use esp::plane::PlaneError;
use host::netlink::Family;
use socket2::{Protocol, Socket, Type};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::OnceLock;

/// The sockets by family; those of a family that the host lacks are absent.
pub(crate) struct RawSockets {
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
            let secluded = socket.as_ref().map_or(Ok(()), |s| steering::seclude(s, loopback));
            if let Err(error) = secluded {
                tracing::debug!(%error, "what comes while no SA is up waits in the socket");
            }
        }
        Ok(Self { mark, esp, ah, fragmenting: OnceLock::new() })
    }

    /// The sockets of ESP, by family.
    pub(crate) fn esp(&self) -> &[Option<Socket>; 2] {
        &self.esp
    }

    /// The sockets of AH, by family.
    pub(crate) fn ah(&self) -> &[Option<Socket>; 2] {
        &self.ah
    }

    /// The socket of ESP of IPv4 that routers may fragment.
    pub(crate) fn fragmenting(&self) -> Option<&Socket> {
        let open = || {
            let socket =
                marked(Family::V4, Type::RAW, Protocol::from(libc::IPPROTO_ESP), self.mark)?;
            let_fragment(&socket, true)?;
            // Nothing comes there, and every packet says where it is from.
            socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
            Ok(socket)
        };
        let opened = self.fragmenting.get_or_init(|| {
            open().inspect_err(|error: &io::Error| tracing::warn!(%error, "no fragmenting")).ok()
        });
        opened.as_ref()
    }

    /// Takes packets with these SPIs, and leaves all others to the kernel.
    pub(super) fn sift(&self, own: &BTreeSet<u32>) -> Result<(), PlaneError> {
        // Behind the header of IPv4; in AH behind four octets of its own (RFC 4302 §2).
        for (sockets, offset) in [(&self.esp, 0), (&self.ah, 4)] {
            for (socket, behind_header) in sockets.iter().zip([true, false]) {
                let Some(socket) = socket else { continue };
                steering::sift(socket, SpiAt { behind_header, offset }, own)
                    .map_err(|e| refused("leaving the kernel's packets to it".to_owned(), &e))?;
            }
        }
        Ok(())
    }
}
