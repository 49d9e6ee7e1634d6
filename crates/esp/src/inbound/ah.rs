//! The way in of an AH packet (RFC 4302 §3.4), once the SAD has found the SA:
//!
//! 1. lengths; the whole sequence number, and a first look at the anti-replay window;
//! 2. the packet as the ICV covers it, made where the inner packet is to stand; the window takes note only if it fits;
//! 3. tunnel mode: what AH covered; transport mode: the packet as it came, without AH;
//! 4. from there on as ESP.

#![forbid(unsafe_code)]

use super::unwrap::leave_tunnel;
use super::{Inbound, Receiving};
use crate::ah;
use crate::datapath::Arrival;
use crate::discard::Discard;
use crate::header::Header;
use crate::queue::ReceiveQueue;
use crate::sequence::high;
use crypto::{Aad, Cipher};
use policy::Mode;
use std::time::Duration;

/// Octets by which padding may exceed what is needed: RFC 4302 §3.3.3.2.1 allows none, but some peers align IPv4 to 64
/// bits.
const EXCESS: usize = 7;

impl Receiving<'_> {
    /// Checks a packet that is cut before its Authentication Header, and appends what that covers to `queue`. `now` is
    /// since the epoch.
    pub(crate) fn open_ah(
        &mut self,
        now: Duration,
        (headers, rest): (&[u8], &[u8]),
        arrival: &Arrival,
        queue: &mut ReceiveQueue,
    ) -> Result<(), Discard> {
        let space = queue.begin(headers.len() + rest.len() + ah::IMPLICIT, false);
        let outcome = self.open_ah_into(space, now, (headers, rest), arrival);
        self.put(outcome, queue)
    }

    fn open_ah_into(
        &mut self,
        space: &mut [u8],
        now: Duration,
        (headers, rest): (&[u8], &[u8]),
        arrival: &Arrival,
    ) -> Result<Header, Discard> {
        let fixed: &[u8; ah::FIXED] = rest.first_chunk().ok_or(Discard::AhHeader)?;
        let [next_header, words, _, _, _, _, _, _, s0, s1, s2, s3] = *fixed;
        let ah_len = (usize::from(words) + 2) * 4;
        let needed = ah::FIXED + ah::field_len(self.sa.suite);
        let names_next = ah::names_next(headers).filter(|at| headers[*at] == ah::AH);
        let Some(names_next) = names_next else { return Err(Discard::AhHeader) };
        if !(needed..=needed + EXCESS).contains(&ah_len) || ah_len > rest.len() {
            return Err(Discard::AhHeader);
        }
        let sequence = self.sa.number(&self.state, u32::from_be_bytes([s0, s1, s2, s3]))?;

        let (icv, payload) = (&rest[ah::FIXED..needed], &rest[ah_len..]);
        let covered = self.sa.cover(space, headers, rest, sequence).ok_or(Discard::AhHeader)?;
        self.sa.cipher.open(Aad::Octets(covered), icv, &mut []).map_err(|_| Discard::Forged)?;
        // RFC 4302 §3.4.3: the window moves only once the ICV is verified.
        self.take_note(now, sequence, arrival);

        let kept = match self.sa.mode {
            Mode::Tunnel => 0,
            Mode::Transport => headers.len(),
        };
        let packet = &mut space[..kept + payload.len()];
        packet[kept..].copy_from_slice(payload);
        let header = match self.sa.mode {
            Mode::Tunnel => leave_tunnel(packet, next_header, arrival)?,
            Mode::Transport => {
                let len = packet.len();
                packet[..kept].copy_from_slice(headers);
                packet[names_next] = next_header;
                ah::set_len(packet, len);
                ah::set_checksum(&mut packet[..kept]);
                Header::parse(packet).ok_or(Discard::InboundMalformed)?
            }
        };
        self.sa.vet(packet, &header, arrival, &mut self.vetted)?;
        self.account(now, header.len as u64)?;
        Ok(header)
    }
}

impl Inbound {
    /// Writes a packet to `space` as the ICV covers it (RFC 4302 §3.3.3).
    fn cover<'s>(
        &self,
        space: &'s mut [u8],
        headers: &[u8],
        rest: &[u8],
        sequence: u64,
    ) -> Option<&'s [u8]> {
        let (at, end) = (headers.len(), headers.len() + rest.len());
        space[..at].copy_from_slice(headers);
        ah::zero_mutable(&mut space[..at])?;
        space[at..end].copy_from_slice(rest);
        space[at + ah::FIXED..][..ah::field_len(self.suite)].fill(0);
        space[end..].copy_from_slice(&high(sequence).to_be_bytes());
        Some(if self.esn { space } else { &space[..end] })
    }
}
