//! The filter for the kernel's reports on a socket. The kernel reports every change; a report that does not matter
//! would only wake the thread up.

#![forbid(unsafe_code)]

use netlink_sys::Socket;
use socket2::{SockFilter, SockRef};
use std::io;

/// The requester of a reported change, by the port of its socket.
#[derive(Clone, Copy, Debug)]
pub(super) enum By {
    Anyone,
    /// None of these two.
    Others([u32; 2]),
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
    fn is_kind(kind: u16, skip: u8) -> SockFilter {
        SockFilter::new(JEQ, 0, skip, kind.to_be().into())
    }
    fn is_port(port: u32, skip: [u8; 2]) -> SockFilter {
        SockFilter::new(JEQ, skip[0], skip[1], port.to_be())
    }
    fn load(code: u16, from: u32) -> SockFilter {
        SockFilter::new(code, 0, 0, from)
    }
    fn take() -> SockFilter {
        SockFilter::new(RET, 0, 0, u32::MAX)
    }
    let mut program = Vec::new();
    for (kind, by) in kinds {
        program.push(load(LD_H, KIND));
        match by {
            By::Anyone => program.extend([is_kind(*kind, 1), take()]),
            By::Others([one, two]) => {
                let of_ours = [is_port(*one, [2, 0]), is_port(*two, [1, 0])];
                program.extend([is_kind(*kind, 4), load(LD_W, PORT)]);
                program.extend(of_ours.into_iter().chain([take()]));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn the_filter_passes_only_reports_that_matter() {
        let kinds =
            [(1, By::Anyone), (2, By::Others([70_000, 8])), (3, By::Only(9)), (4, By::Anyone)];
        let (kernel, socket) = UnixDatagram::pair().expect("sockets");
        SockRef::from(&socket).attach_filter(&program(&kinds)).expect("the kernel takes it");
        socket.set_nonblocking(true).expect("a socket");
        let passes = |kind: u16, port: u32| {
            let mut message = [0; 16];
            message[4..6].copy_from_slice(&kind.to_ne_bytes());
            message[12..].copy_from_slice(&port.to_ne_bytes());
            // The sender gets an error for a message that the filter does not take.
            let _ = kernel.send(&message);
            socket.recv(&mut message).is_ok()
        };
        for (kind, port, expected) in [
            (1, 0, true),
            (2, 70_000, false),
            (2, 8, false),
            (2, 0, true),
            (2, 9, true),
            (3, 9, true),
            (3, 8, false),
            (4, 9, true),
            (5, 9, false),
            (0x100, 0, false),
        ] {
            assert_eq!(passes(kind, port), expected, "{kind} by {port}");
        }
    }
}
