//! Which of the kernel's reports a socket takes: it reports every change, and to whom it does not matter, each would be a
//! reason to wake up.

#![forbid(unsafe_code)]

use netlink_sys::Socket;
use socket2::{SockFilter, SockRef};
use std::io;

/// Who has asked for what is reported, by the port of its socket.
#[derive(Clone, Copy, Debug)]
pub(super) enum By {
    Anyone,
    /// Not this one.
    Others(u32),
    /// This one alone.
    Only(u32),
}

/// Has a socket take reports of these kinds, and nothing else.
pub(super) fn only(socket: &Socket, kinds: &[(u16, By)]) -> io::Result<()> {
    SockRef::from(socket).attach_filter(&program(kinds))
}

fn program(kinds: &[(u16, By)]) -> Vec<SockFilter> {
    // Load a half and a word from a fixed place, compare, and return (linux/bpf_common.h).
    const LD_H: u16 = 0x28;
    const LD_W: u16 = 0x20;
    const JEQ: u16 = 0x15;
    const RET: u16 = 0x06;
    // Where a message has its kind, and the port of who has asked (struct nlmsghdr).
    const KIND: u32 = 4;
    const PORT: u32 = 12;
    // In the host's order there, which a load takes for the network's.
    let is_kind = |kind: u16, skip| SockFilter::new(JEQ, 0, skip, kind.to_be().into());
    let is_port = |port: u32, skip: [u8; 2]| SockFilter::new(JEQ, skip[0], skip[1], port.to_be());
    let load = |code, from| SockFilter::new(code, 0, 0, from);
    let take = || SockFilter::new(RET, 0, 0, u32::MAX);
    let mut program = Vec::new();
    for (kind, by) in kinds {
        program.push(load(LD_H, KIND));
        match by {
            By::Anyone => program.extend([is_kind(*kind, 1), take()]),
            By::Others(port) => {
                let asked = [is_kind(*kind, 3), load(LD_W, PORT), is_port(*port, [1, 0]), take()];
                program.extend(asked);
            }
            By::Only(port) => {
                let asked = [is_kind(*kind, 3), load(LD_W, PORT), is_port(*port, [0, 1]), take()];
                program.extend(asked);
            }
        }
    }
    program.push(SockFilter::new(RET, 0, 0, 0));
    program
}
