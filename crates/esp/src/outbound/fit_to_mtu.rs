//! Packets that are longer than the path carries (RFC 4301 §8.2.1): IPv4 without Don't Fragment goes in fragments,
//! made before ESP so that the peer need not put ESP packets together; all else is refused, and its sender told.

#![forbid(unsafe_code)]

use super::Outbound;
use crate::discard::Discard;
use crate::encap::PathLimits;
use crate::fragment::{self, dont_fragment};
use crate::gso::{Gso, Segmentation};
use crate::header::Header;
use crate::icmp;
use crate::path_mtu::{Df, Fit};
use crate::queue::RUN_OCTETS;
use crate::segment::{Segments, complete_checksum};
use policy::Mode;

/// The MTU of every link of IPv6: a sender may be told of no smaller one (RFC 8200 §5).
const IPV6_MTU: usize = 1280;

/// The way in which packets are made to fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MtuFit {
    /// They do.
    Fits,
    /// The outer packets are fragmented, by this host or by routers.
    Outside,
    /// In fragments of so many octets at most.
    Fragments { mtu: usize },
}

impl MtuFit {
    /// Octets of the longest piece of a packet of that length.
    pub(super) fn longest(self, len: usize) -> usize {
        match self {
            Self::Fits | Self::Outside => len,
            Self::Fragments { mtu } => len.min(mtu),
        }
    }

    /// The number of packets that a packet of `len` octets becomes.
    pub(super) fn pieces(self, len: usize, header: &Header) -> usize {
        match self {
            Self::Fits | Self::Outside => 1,
            Self::Fragments { mtu } => fragment::count(len, header.transport, mtu).unwrap_or(1),
        }
    }
}

/// Returns `true` if the outer packet is to have Don't Fragment set, as far as the network layer of the host allows it.
/// In transport mode the packet itself decides.
pub(super) fn tells_dont_fragment(
    path_limits: &PathLimits,
    mode: Mode,
    header: &Header,
    packet: &[u8],
) -> bool {
    match (mode, path_limits.df) {
        (Mode::Tunnel, Df::Set) => true,
        (Mode::Tunnel, Df::Clear) => false,
        _ => header.ipv6 || dont_fragment(packet),
    }
}

impl Outbound {
    /// Decides about a packet with a piece of `longest` octets, which is not known to fit.
    pub(super) fn fit_to_mtu(
        &self,
        path_limits: &PathLimits,
        header: &Header,
        octets: &[u8],
        longest: usize,
    ) -> Result<MtuFit, Discard> {
        if self.sealed_len(longest) > RUN_OCTETS {
            return Err(Discard::TooLong);
        }
        if longest <= path_limits.fits {
            return Ok(MtuFit::Fits);
        }
        let clear = path_limits.df == Df::Clear && !self.suite.is_ah();
        if clear || header.ipv6 && longest <= IPV6_MTU {
            return Ok(MtuFit::Outside);
        }
        // Of fragments that this host made, and that were put together for it here.
        if self.mode == Mode::Transport && longest > path_limits.device_mtu {
            return Ok(MtuFit::Outside);
        }
        if header.ipv6 || dont_fragment(octets) {
            return Err(Discard::TooBig);
        }
        // In transport mode no fragment may go through ESP (RFC 4301 §7); where the outer packet takes over that it
        // may be fragmented, the network does it.
        if self.mode == Mode::Transport || path_limits.df == Df::Copy {
            return Ok(MtuFit::Outside);
        }
        let mtu = path_limits.fits;
        fragment::count(longest, header.transport, mtu).ok_or(Discard::TooBig)?;
        Ok(MtuFit::Fragments { mtu })
    }

    /// The message to the sender of a packet that was refused as too big; `None` if it must not be told.
    pub(crate) fn told_too_big(
        &self,
        packet: &mut [u8],
        header: &Header,
        gso: Gso,
    ) -> Option<Vec<u8>> {
        let fits = self.path_limits.load().fits;
        let mtu = if header.ipv6 { fits.max(IPV6_MTU) } else { fits };
        if gso.segmentation == Segmentation::None {
            complete_checksum(&mut packet[..header.len], header, gso);
            return icmp::too_big(packet, header, mtu);
        }
        // The first segment is what the sender would have sent without offloads.
        let mut segments = Segments::new(packet, header, gso)?;
        let segment = segments.next()?;
        icmp::too_big(segment, &Header { len: segment.len(), ..*header }, mtu)
    }

    /// The length that its packets may have.
    pub(crate) fn fit(&self) -> Fit {
        let path_limits = self.path_limits.load();
        Fit {
            path_mtu: path_limits.path_mtu,
            inner_mtu: path_limits.fits,
            learned: path_limits.learned,
        }
    }
}
