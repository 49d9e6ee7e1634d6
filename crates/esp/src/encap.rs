//! The overhead of ESP and AH in octets, and clamping of the TCP MSS to the rest, so that nothing needs to be
//! fragmented.

#![forbid(unsafe_code)]

use crate::ah;
use crate::header::{Fragment, Header};
use crate::ip::{TCP, adjust, put_word, word_at};
use crate::path_mtu::Df;
use crate::plane::{Encapsulation, Path};
use crate::queue::RUN_OCTETS;
use crypto::Suite;
use policy::Mode;

const ESP_HEADER: usize = 8;
const ESP_TRAILER: usize = 2;
const UDP_HEADER: usize = 8;

/// Octets of the outer IP header.
pub fn outer_header_len(ipv6: bool) -> usize {
    if ipv6 { 40 } else { 20 }
}

/// Octets to which payload, padding, pad length and next header are aligned together (RFC 4303 §2.4). AH pads nothing.
pub fn alignment(suite: Suite) -> usize {
    if suite.is_ah() { 1 } else { suite.block_len().max(4) }
}

/// Octets behind the padding.
fn trailer(suite: Suite) -> usize {
    if suite.is_ah() { 0 } else { ESP_TRAILER }
}

/// Octets by which a packet grows at most. In transport mode its own IP header remains the outer one.
pub fn overhead(suite: Suite, mode: Mode, encapsulation: Encapsulation, outer_ipv6: bool) -> usize {
    fixed(suite, mode, encapsulation, outer_ipv6) + trailer(suite) + alignment(suite) - 1
}

/// Octets of the longest inner packet whose ESP packet fits `outer_mtu`; 0 if none does.
pub fn inner_mtu(
    outer_mtu: usize,
    suite: Suite,
    mode: Mode,
    encapsulation: Encapsulation,
    outer_ipv6: bool,
) -> usize {
    // In transport mode the IP header is not encrypted and takes no part in the alignment.
    let own_header = match mode {
        Mode::Tunnel => 0,
        Mode::Transport => outer_header_len(outer_ipv6),
    };
    let room = outer_mtu.saturating_sub(fixed(suite, mode, encapsulation, outer_ipv6) + own_header);
    let sealed = room - room % alignment(suite);
    if sealed <= trailer(suite) { 0 } else { sealed - trailer(suite) + own_header }
}

/// Octets that every packet grows by, apart from trailer and padding.
fn fixed(suite: Suite, mode: Mode, encapsulation: Encapsulation, outer_ipv6: bool) -> usize {
    let ip = match mode {
        Mode::Tunnel => outer_header_len(outer_ipv6),
        Mode::Transport => 0,
    };
    let udp = match encapsulation {
        Encapsulation::Native | Encapsulation::Ah => 0,
        Encapsulation::Udp => UDP_HEADER,
    };
    if suite.is_ah() {
        return ip + ah::header_len(suite, outer_ipv6);
    }
    ip + udp + ESP_HEADER + suite.iv_len() + suite.icv_len()
}

/// The limits that the path and the device set for inner packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Octets of the longest outer packet that TCP is told of; 0: it is told nothing.
    pub(crate) outer_mtu: usize,
    /// Octets of the longest outer packet that the path is known to carry; `usize::MAX`: nothing is known.
    pub(crate) path_mtu: usize,
    /// `path_mtu` comes from an ICMP message.
    pub(crate) learned: bool,
    /// Octets of the longest packet that the device takes.
    pub(crate) device_mtu: usize,
    pub(crate) df: Df,
}

/// The path of an SA's packets, and the lengths that inner packets may have on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathLimits {
    pub(crate) path: Path,
    /// The length to which the TCP MSS is clamped; 0: it is not clamped.
    pub(crate) inner_mtu: usize,
    /// Octets of the longest inner packet whose ESP packet the path carries in one piece.
    pub(crate) fits: usize,
    /// Octets of the longest inner packet about which nothing needs to be asked.
    pub(crate) unasked: usize,
    /// Octets of the longest outer packet that the path is known to carry.
    pub(crate) path_mtu: usize,
    pub(crate) learned: bool,
    /// Octets of the longest packet that comes from the device in one piece.
    pub(crate) device_mtu: usize,
    pub(crate) df: Df,
}

impl PathLimits {
    pub(crate) fn new(path: Path, suite: Suite, mode: Mode, room: Room) -> Self {
        let ipv6 = path.remote.is_ipv6();
        let fits = match room.path_mtu {
            usize::MAX => usize::MAX,
            path_mtu => inner_mtu(path_mtu, suite, mode, path.encapsulation, ipv6),
        };
        // AH makes a whole IP packet, which the kernel does not fragment.
        let bound = match room.df {
            Df::Clear if !suite.is_ah() => usize::MAX,
            _ => fits,
        };
        let longest = RUN_OCTETS - overhead(suite, mode, path.encapsulation, ipv6);
        let outer_mtu = room.outer_mtu.min(room.path_mtu);
        let inner_mtu = inner_mtu(outer_mtu, suite, mode, path.encapsulation, ipv6);
        Self {
            path,
            inner_mtu: inner_mtu.min(room.device_mtu),
            fits,
            unasked: bound.min(longest),
            path_mtu: room.path_mtu,
            learned: room.learned,
            device_mtu: room.device_mtu,
            df: room.df,
        }
    }
}

const SYN: u8 = 0x02;
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
const MAXIMUM_SEGMENT_SIZE: u8 = 2;
const TCP_LEN: usize = 20;

/// Lowers the MSS option of a SYN to what `inner_mtu` has room for, and keeps the checksum right.
pub(crate) fn clamp_mss(packet: &mut [u8], header: &Header, inner_mtu: usize) {
    let room = inner_mtu.saturating_sub(header.transport + TCP_LEN);
    if header.protocol != TCP || header.fragment != Fragment::Whole || room == 0 {
        return;
    }
    let tcp = &mut packet[header.transport..header.len];
    if tcp.len() < TCP_LEN || tcp[13] & SYN == 0 {
        return;
    }
    let end = (usize::from(tcp[12] >> 4) * 4).min(tcp.len());
    let mut at = TCP_LEN;
    while at + 1 < end {
        match tcp[at] {
            END_OF_OPTIONS => return,
            NO_OPERATION => at += 1,
            kind => {
                let len = usize::from(tcp[at + 1]);
                if len < 2 || at + len > end {
                    return;
                }
                if kind == MAXIMUM_SEGMENT_SIZE && len == 4 {
                    return lower_mss(tcp, at + 2, room.min(usize::from(u16::MAX)) as u16);
                }
                at += len;
            }
        }
    }
}

fn lower_mss(tcp: &mut [u8], at: usize, mss: u16) {
    let old = word_at(tcp, at);
    if old <= mss {
        return;
    }
    put_word(tcp, at, mss);
    // At an odd offset the two octets belong to different words of the sum.
    let (old, new) =
        if at.is_multiple_of(2) { (old, mss) } else { (old.swap_bytes(), mss.swap_bytes()) };
    put_word(tcp, 16, adjust(word_at(tcp, 16), old, new));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::{IPV4_LEN, Sum, rebuild_checksum, write_header};
    use policy::{AhIntegrity, Integrity, KeyBits};
    use std::net::IpAddr;

    const SUITES: [Suite; 9] = [
        Suite::AesGcm16(KeyBits::B128),
        Suite::AesCbcMac(KeyBits::B256, Integrity::HmacSha2_256_128),
        Suite::AesCbcMac(KeyBits::B128, Integrity::HmacSha1_96),
        Suite::ChaCha20Poly1305,
        Suite::AesGmac(KeyBits::B192),
        Suite::NullMac(Integrity::HmacSha1_96),
        Suite::NullMac(Integrity::HmacSha2_384_192),
        Suite::Ah(AhIntegrity::AesGmac(KeyBits::B256)),
        Suite::Ah(AhIntegrity::Mac(Integrity::HmacSha2_256_128)),
    ];

    /// Octets of the outer packet, counted as RFC 4303 §2 lays it out.
    fn outer(
        inner: usize,
        suite: Suite,
        mode: Mode,
        encapsulation: Encapsulation,
        v6: bool,
    ) -> usize {
        let ip = if v6 { 40 } else { 20 };
        let own = if mode == Mode::Tunnel { ip } else { 0 };
        match suite {
            Suite::Ah(AhIntegrity::AesGmac(_)) => return inner + own + if v6 { 40 } else { 36 },
            Suite::Ah(AhIntegrity::Mac(_)) => return inner + own + if v6 { 32 } else { 28 },
            _ => {}
        }
        let payload = if mode == Mode::Tunnel { inner } else { inner - ip };
        let align = if suite.block_len() == 16 { 16 } else { 4 };
        let mut sealed = payload + 2;
        while sealed % align != 0 {
            sealed += 1;
        }
        let udp = if encapsulation == Encapsulation::Udp { 8 } else { 0 };
        ip + udp + 8 + suite.iv_len() + sealed + suite.icv_len()
    }

    #[test]
    fn inner_mtu_is_the_longest_that_fits() {
        for suite in SUITES {
            for mode in [Mode::Tunnel, Mode::Transport] {
                for encapsulation in [Encapsulation::Native, Encapsulation::Udp] {
                    for v6 in [false, true] {
                        for mtu in 1280..1320 {
                            let inner = inner_mtu(mtu, suite, mode, encapsulation, v6);
                            assert!(outer(inner, suite, mode, encapsulation, v6) <= mtu);
                            assert!(outer(inner + 1, suite, mode, encapsulation, v6) > mtu);
                            assert!(mtu - inner <= overhead(suite, mode, encapsulation, v6));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn no_mtu_is_too_small() {
        for mtu in 0..120 {
            for suite in SUITES {
                let inner = inner_mtu(mtu, suite, Mode::Tunnel, Encapsulation::Udp, true);
                assert!(
                    inner == 0
                        || outer(inner, suite, Mode::Tunnel, Encapsulation::Udp, true) <= mtu
                );
            }
        }
    }

    fn syn(options: &[u8], flags: u8) -> Vec<u8> {
        let (a, b): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let mut tcp = vec![0, 80, 1, 2, 0, 0, 0, 9, 0, 0, 0, 0, 0, flags, 9, 9, 0, 0, 0, 0];
        tcp.extend(options);
        tcp[12] = (tcp.len() << 2) as u8;
        rebuild_checksum(a, b, TCP, &mut tcp);
        let mut packet = vec![0; IPV4_LEN];
        write_header(&mut packet, a, b, TCP, tcp.len(), 0, None);
        packet.extend(tcp);
        packet
    }

    #[test]
    fn mss_is_lowered_wherever_it_stands() {
        for options in [
            &[2, 4, 0x05, 0xb4][..],
            &[1, 2, 4, 0x05, 0xb4, 1, 1, 0],
            &[3, 3, 7, 1, 2, 4, 0x05, 0xb4],
        ] {
            let mut packet = syn(options, SYN);
            let header = Header::parse(&packet).expect("whole");
            clamp_mss(&mut packet, &header, 1400);
            let at = packet.windows(2).skip(40).position(|w| w == [2, 4]).expect("the option") + 42;
            assert_eq!(word_at(&packet, at), 1360);
            let sum = Sum::default().pseudo(
                header.source(),
                header.destination(),
                TCP,
                packet.len() - 20,
            );
            assert_eq!(sum.octets(&packet[20..]).finish(), 0);
        }
    }

    #[test]
    fn other_packets_keep_their_mss() {
        for (options, flags, mtu) in [
            (&[2, 4, 0x05, 0xb4][..], 0x10, 1400),
            (&[2, 4, 0x05, 0xb4], SYN, 1500),
            (&[2, 4, 0x05, 0xb4], SYN, 0),
            (&[0, 0, 2, 4, 0x05, 0xb4, 0, 0], SYN, 1400),
            (&[3, 0, 2, 4], SYN, 1400),
            (&[3, 200, 2, 4], SYN, 1400),
        ] {
            let before = syn(options, flags);
            let mut packet = before.clone();
            let header = Header::parse(&packet).expect("whole");
            clamp_mss(&mut packet, &header, mtu);
            assert_eq!(packet, before);
        }
    }
}
