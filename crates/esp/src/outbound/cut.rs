//! The form in which an SA sends a packet: whole, in segments of a super-packet, or in fragments that fit the path.

#![forbid(unsafe_code)]

use super::fit_to_mtu::{MtuFit, tells_dont_fragment};
use super::{Outbound, ah};
use crate::discard::Discard;
use crate::encap::PathLimits;
use crate::gso::{Gso, Segmentation};
use crate::header::{Fragment, Header};
use crate::plane::Path;
use crate::segment::{Segments, has_checksum};
use crypto::Amount;
use policy::Mode;

/// A packet, and the form in which it is sent.
pub(super) struct Cut<'p> {
    pub(super) header: &'p Header,
    pub(super) form: Form<'p>,
    pub(super) fit_to_mtu: MtuFit,
    pub(super) may_fragment: bool,
}

/// Lives on the stack for the time of one packet.
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation per packet")]
pub(super) enum Form<'p> {
    Whole(&'p mut [u8], Gso),
    Segments(Segments<'p>),
}

impl Cut<'_> {
    #[inline]
    pub(super) fn count(&self) -> u64 {
        match &self.form {
            Form::Whole(packet, _) => self.pieces(packet.len()),
            Form::Segments(segments) => {
                (segments.count() as u64 - 1) * self.pieces(segments.longest())
                    + self.pieces(segments.shortest())
            }
        }
    }

    /// The number of packets into which a packet of this length is cut.
    #[inline]
    fn pieces(&self, len: usize) -> u64 {
        self.fit_to_mtu.pieces(len, self.header) as u64
    }

    /// The packets that it becomes, and its octets.
    #[inline]
    pub(super) fn amount(&self) -> Amount {
        let octets = match &self.form {
            Form::Whole(packet, _) => packet.len(),
            Form::Segments(segments) => segments.octets(),
        };
        Amount { operations: self.count(), octets: octets as u64 }
    }
}

impl Form<'_> {
    /// Octets that begin with the headers.
    #[inline]
    fn first_octets(&self) -> &[u8] {
        match self {
            Self::Whole(packet, _) => packet,
            Self::Segments(segments) => segments.headers(),
        }
    }
}

impl Outbound {
    /// Finds the form in which a packet is sent, or refuses it. `admitted` is the decision from when its sequence
    /// numbers were claimed: there must not be more packets than numbers, even if the path MTU has changed since.
    // Inlined: the result is large, and would be moved in memory for every packet.
    #[inline(always)]
    pub(super) fn cut<'p>(
        &self,
        packet: &'p mut [u8],
        header: &'p Header,
        gso: Gso,
        path_limits: &PathLimits,
        admitted: Option<MtuFit>,
    ) -> Result<Cut<'p>, Discard> {
        if self.mode == Mode::Transport {
            self.may_be_transported(header, &packet[..header.transport], &path_limits.path)?;
        }
        let may_fragment = !tells_dont_fragment(path_limits, self.mode, header, packet);
        let (form, longest) = if gso.segmentation == Segmentation::None {
            let packet = &mut packet[..header.len];
            if !has_checksum(packet, header, gso) {
                return Err(Discard::OutboundMalformed);
            }
            let len = packet.len();
            (Form::Whole(packet, gso), len)
        } else {
            let segments = Segments::new(packet, header, gso).ok_or(Discard::OutboundMalformed)?;
            let longest = segments.longest();
            (Form::Segments(segments), longest)
        };
        let fit_to_mtu = match admitted {
            Some(fit_to_mtu) => fit_to_mtu,
            None if longest > path_limits.unasked => {
                self.fit_to_mtu(path_limits, header, form.first_octets(), longest)?
            }
            None => MtuFit::Fits,
        };
        let may_fragment = may_fragment || fit_to_mtu == MtuFit::Outside;
        Ok(Cut { header, form, fit_to_mtu, may_fragment })
    }

    /// Refuses a packet that transport mode cannot carry. The packet must go between the SA's own addresses and be no
    /// fragment (RFC 4301 §4.1, §7). In ESP, the socket makes the IP header, so the packet must have nothing beyond
    /// the fixed header.
    #[inline]
    fn may_be_transported(
        &self,
        header: &Header,
        octets: &[u8],
        path: &Path,
    ) -> Result<(), Discard> {
        if header.fragment != Fragment::Whole {
            return Err(Discard::TransportFragment);
        }
        let local = path.local.ip();
        let between_the_ends = header.destination() == path.remote.ip()
            && (header.source() == local || local.is_unspecified());
        let keeps = if self.suite.is_ah() { ah::can_follow(octets) } else { header.is_plain() };
        if between_the_ends && keeps { Ok(()) } else { Err(Discard::TransportHeader) }
    }
}
