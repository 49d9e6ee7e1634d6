//! What protection costs in octets, so that nothing needs to be fragmented.

#![forbid(unsafe_code)]

use crate::cipher::Suite;
use crate::plane::Encapsulation;
use policy::Mode;

const ESP_HEADER: usize = 8;
const ESP_TRAILER: usize = 2;
const UDP_HEADER: usize = 8;

/// Octets of the outer IP header.
pub fn outer_header_len(ipv6: bool) -> usize {
    if ipv6 { 40 } else { 20 }
}

/// Octets to which payload, padding, pad length and next header are aligned together (RFC 4303 §2.4).
pub fn alignment(suite: Suite) -> usize {
    suite.block_len().max(4)
}

/// Octets by which a packet grows at most. In transport mode its own IP header remains the outer one.
pub fn overhead(suite: Suite, mode: Mode, encapsulation: Encapsulation, outer_ipv6: bool) -> usize {
    fixed(suite, mode, encapsulation, outer_ipv6) + ESP_TRAILER + alignment(suite) - 1
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
    if sealed <= ESP_TRAILER { 0 } else { sealed - ESP_TRAILER + own_header }
}

/// Octets that every packet grows by, apart from trailer and padding.
fn fixed(suite: Suite, mode: Mode, encapsulation: Encapsulation, outer_ipv6: bool) -> usize {
    let ip = match mode {
        Mode::Tunnel => outer_header_len(outer_ipv6),
        Mode::Transport => 0,
    };
    let udp = match encapsulation {
        Encapsulation::Native => 0,
        Encapsulation::Udp => UDP_HEADER,
    };
    ip + udp + ESP_HEADER + suite.iv_len() + suite.icv_len()
}
