//! The way out of a packet in AH (RFC 4302 §3.3): the whole IP packet is made here, because the ICV covers its header.
//!
//! 1. transport mode: the packet's own headers, up to the upper layer; tunnel mode: a fresh one;
//! 2. AH and what it covers; the high half of an extended sequence number behind that, for the ICV alone;
//! 3. the ICV with everything zeroed that may change on the way, which is then put back.

#![forbid(unsafe_code)]

use super::{MAX_IV, Outbound, OuterFields, fill_iv};
use crate::ah;
use crate::ip::{self, put_word, word_at};
use crate::plane::{Encapsulation, Path};
use crate::queue::SendQueue;
use crate::sequence::{high, low};
use crypto::{Aad, Cipher};
use policy::Mode;

/// Octets of the longest ICV field: HMAC-SHA2-512-256.
const MAX_FIELD: usize = 32;

const DONT_FRAGMENT: u8 = 0x40;

/// Returns `true` if AH can go behind these headers of a packet.
pub(super) fn can_follow(headers: &[u8]) -> bool {
    let mut scratch = [0; ah::MAX_HEADERS];
    let Some(scratch) = scratch.get_mut(..headers.len()) else { return false };
    scratch.copy_from_slice(headers);
    ah::names_next(scratch).is_some() && ah::zero_mutable(scratch).is_some()
}

impl Outbound {
    /// Octets that [`seal_ah`](Self::seal_ah) needs for a packet.
    pub(super) fn ah_room(&self, packet: usize) -> usize {
        let ipv6 = self.path_limits.load().path.remote.is_ipv6();
        let outer = match self.mode {
            Mode::Tunnel => {
                if ipv6 {
                    ip::IPV6_LEN
                } else {
                    ip::IPV4_LEN
                }
            }
            Mode::Transport => 0,
        };
        outer + ah::header_len(self.suite, ipv6) + packet + ah::IMPLICIT
    }

    /// Writes a whole IP packet with AH to `queue`.
    pub(super) fn seal_ah(
        &self,
        sequence: u64,
        packet: &[u8],
        outer: &OuterFields<'_>,
        queue: &mut SendQueue,
    ) {
        let (source, destination) = (outer.path.local.ip(), outer.path.remote.ip());
        let (own_headers, payload) = packet.split_at(outer.skip);
        let at = match self.mode {
            Mode::Tunnel => ip::header_len(source),
            Mode::Transport => own_headers.len(),
        };
        let ah_len = ah::header_len(self.suite, destination.is_ipv6());
        let len = at + ah_len + payload.len();
        let out = queue.space(len + ah::IMPLICIT);
        let (headers, rest) = out.split_at_mut(at);

        match self.mode {
            Mode::Tunnel => {
                ip::write_header(headers, source, destination, ah::AH, len - at, outer.tos, None);
                if source.is_ipv4() && outer.may_fragment {
                    // The ICV does not outer it (RFC 4302 §3.3.3.1.1).
                    headers[6] &= !DONT_FRAGMENT;
                }
            }
            Mode::Transport => {
                headers.copy_from_slice(own_headers);
                let names_next = ah::names_next(headers).expect("checked before");
                headers[names_next] = ah::AH;
                ah::set_len(headers, len);
            }
        }
        if headers[0] >> 4 == 4 && word_at(headers, 4) == 0 {
            // The kernel puts a number of its own in the place of 0, and the ICV covers it. Routers may fragment.
            put_word(headers, 4, (sequence % u64::from(u16::MAX)) as u16 + 1);
        }
        ah::set_checksum(headers);

        let [next_header, words, reserved @ ..] = &mut rest[..4] else { unreachable!("4 octets") };
        (*next_header, *words) = (outer.next_header, (ah_len / 4 - 2) as u8);
        reserved.fill(0);
        rest[4..8].copy_from_slice(&self.spi.0.to_be_bytes());
        rest[8..ah::FIXED].copy_from_slice(&low(sequence).to_be_bytes());
        rest[ah::FIXED..ah_len].fill(0);
        rest[ah_len..len - at].copy_from_slice(payload);
        rest[len - at..].copy_from_slice(&high(sequence).to_be_bytes());

        let mut as_sent = [0; ah::MAX_HEADERS];
        as_sent[..at].copy_from_slice(headers);
        ah::zero_mutable(headers).expect("checked before");
        let mut iv = [0; MAX_IV];
        let iv = &mut iv[..self.suite.iv_len()];
        fill_iv(self.suite, sequence, iv);
        let mut field = [0; MAX_FIELD];
        let field = &mut field[..ah::field_len(self.suite)];
        let covered = &out[..if self.esn { len + ah::IMPLICIT } else { len }];
        self.cipher.seal(iv, Aad::Octets(covered), &[], &[], field);
        out[..at].copy_from_slice(&as_sent[..at]);
        out[at + ah::FIXED..][..field.len()].copy_from_slice(field);

        let path = Path { encapsulation: Encapsulation::Ah, ..*outer.path };
        queue.push(len, &path, outer.tos, outer.may_fragment);
    }
}
