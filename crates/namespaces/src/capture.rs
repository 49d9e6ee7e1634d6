//! A watch on the wire for packets that are not encrypted.
//!
//! A filter in the kernel lets through all that is not ESP, which is little as long as nothing is wrong, so that
//! nothing is overlooked for want of buffers however fast the tunnel is.

use nix::sys::socket::{LinkAddr, recvfrom};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// IP protocol 50, or UDP port 4500 without the non-ESP marker (RFC 3948 §2).
    Esp,
    /// UDP port 500, or 4500 with the non-ESP marker.
    Ike,
    /// ARP, neighbour discovery and group membership: how hosts on a wire find each other.
    Neighbour,
    /// Everything else.
    Cleartext,
}

/// Frames seen, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// IKE messages.
    pub ike: u64,
    /// ARP and the like.
    pub neighbour: u64,
    /// Packets that should not be there.
    pub cleartext: u64,
    /// The beginning of the first of them, from the link header on.
    pub first_cleartext: Option<Vec<u8>>,
}

/// A running watch.
pub struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Seen>>,
}

impl Capture {
    /// Starts to watch a device in the calling thread's network namespace, in both directions.
    pub fn start(device: u32) -> io::Result<Self> {
        Self::filtered(device, &filter(device))
    }

    /// The same for packets that leave by the device alone: an arriving packet is seen there once more when the
    /// kernel's own ESP has opened it.
    pub fn of_leaving(device: u32) -> io::Result<Self> {
        // The pseudo address of the packet's type (SKF_AD_OFF + SKF_AD_PKTTYPE), and what leaves (PACKET_OUTGOING).
        let leaving = [
            SockFilter::new(0x30, 0, 0, 0xffff_f004),
            SockFilter::new(0x15, 1, 0, 4),
            SockFilter::new(0x06, 0, 0, 0),
        ];
        let program: Vec<SockFilter> = leaving.into_iter().chain(filter(device)).collect();
        Self::filtered(device, &program)
    }

    fn filtered(device: u32, program: &[SockFilter]) -> io::Result<Self> {
        let every_protocol = i32::from((nix::libc::ETH_P_ALL as u16).to_be());
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(every_protocol)))?;
        socket.attach_filter(program)?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let stop = Arc::new(AtomicBool::new(false));
        let watch = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("capture".to_owned())
            .spawn(move || observe(&socket, device as usize, &watch))?;
        Ok(Self { stop, thread })
    }

    /// Ends the watch when all that has passed so far is counted.
    pub fn finish(self) -> io::Result<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the capture panicked")))
    }
}

fn observe(socket: &Socket, device: usize, stop: &AtomicBool) -> io::Result<Seen> {
    let mut seen = Seen::default();
    let mut frame = [0; SNAP as usize];
    loop {
        // Read before receiving: packets from before the order to stop are then in the queue or counted.
        let stopping = stop.load(Ordering::Relaxed);
        match recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut frame) {
            // The filter is attached after the socket exists; until then anything may have come in.
            Ok((_, Some(from))) if from.ifindex() != device => {}
            Ok((length, _)) => match classify(&frame[..length.min(frame.len())]) {
                Kind::Esp => {}
                Kind::Ike => seen.ike += 1,
                Kind::Neighbour => seen.neighbour += 1,
                Kind::Cleartext => {
                    seen.cleartext += 1;
                    seen.first_cleartext.get_or_insert_with(|| frame[..length.min(96)].to_vec());
                }
            },
            Err(nix::Error::EAGAIN) if stopping => return Ok(seen),
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Classifies an Ethernet frame; one that is not recognised is [`Kind::Cleartext`].
pub fn classify(frame: &[u8]) -> Kind {
    match u16_at(frame, 12) {
        Some(0x0806) => Kind::Neighbour,
        Some(0x0800) => {
            let Some(&first) = frame.get(14) else { return Kind::Cleartext };
            let later_fragment = u16_at(frame, 20).is_none_or(|fragment| fragment & 0x1fff != 0);
            transport(
                frame,
                frame.get(23).copied(),
                14 + usize::from(first & 15) * 4,
                later_fragment,
            )
        }
        Some(0x86dd) => transport(frame, frame.get(20).copied(), 54, false),
        _ => Kind::Cleartext,
    }
}

fn u16_at(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]))
}

fn transport(frame: &[u8], protocol: Option<u8>, at: usize, later_fragment: bool) -> Kind {
    let payload = frame.get(at..).unwrap_or_default();
    match protocol {
        Some(50) => Kind::Esp,
        Some(2) => Kind::Neighbour,
        // Router and neighbour discovery (RFC 4861), and multicast listeners (RFC 3810).
        Some(58) if matches!(payload.first(), Some(130..=137 | 143)) => Kind::Neighbour,
        // Multicast listener reports come behind a hop-by-hop header with a router alert.
        Some(0)
            if payload.first() == Some(&58) && matches!(payload.get(8), Some(130..=132 | 143)) =>
        {
            Kind::Neighbour
        }
        Some(17) if !later_fragment => udp(payload),
        _ => Kind::Cleartext,
    }
}

fn udp(datagram: &[u8]) -> Kind {
    let Some((header, payload)) = datagram.split_at_checked(8) else { return Kind::Cleartext };
    let ports = [[header[0], header[1]], [header[2], header[3]]].map(u16::from_be_bytes);
    if ports.contains(&4500) {
        // RFC 3948 §2.3: a NAT keepalive is one octet 0xff.
        if payload == [0xff] || payload.starts_with(&[0; 4]) { Kind::Ike } else { Kind::Esp }
    } else if ports.contains(&500) {
        Kind::Ike
    } else {
        Kind::Cleartext
    }
}

/// Octets of a frame that are looked at.
const SNAP: u32 = 256;

/// Accepts all frames of a device but ESP over IPv4, which is what the demo's tunnel makes; IPv6 is left to
/// [`classify`].
fn filter(device: u32) -> [SockFilter; 18] {
    // Opcodes of the classic BPF: load word, half, octet from a fixed place, and relative to X; X = header length.
    const LD_W: u16 = 0x20;
    const LD_H: u16 = 0x28;
    const LD_B: u16 = 0x30;
    const LD_W_X: u16 = 0x40;
    const LD_H_X: u16 = 0x48;
    const LDX_HEADER: u16 = 0xb1;
    const JEQ: u16 = 0x15;
    const JSET: u16 = 0x45;
    const RET: u16 = 0x06;
    /// The pseudo address of the interface's index (SKF_AD_OFF + SKF_AD_IFINDEX).
    const IFINDEX: u32 = 0xffff_f008;
    const ACCEPT: u8 = 16;
    const DROP: u8 = 17;
    [
        op(LD_W, IFINDEX),
        jump(1, JEQ, device, 2, DROP),
        op(LD_H, 12),
        jump(3, JEQ, 0x0800, 4, ACCEPT),
        op(LD_B, 23),
        jump(5, JEQ, 50, DROP, 6),
        jump(6, JEQ, 17, 7, ACCEPT),
        op(LD_H, 20),
        jump(8, JSET, 0x1fff, ACCEPT, 9),
        op(LDX_HEADER, 14),
        op(LD_H_X, 14),
        jump(11, JEQ, 4500, 14, 12),
        op(LD_H_X, 16),
        jump(13, JEQ, 4500, 14, ACCEPT),
        op(LD_W_X, 22),
        jump(15, JEQ, 0, ACCEPT, DROP),
        op(RET, SNAP),
        op(RET, 0),
    ]
}

fn op(code: u16, k: u32) -> SockFilter {
    SockFilter::new(code, 0, 0, k)
}

/// A jump from the instruction `at` to the instruction `yes` or `no`: BPF counts from the one after it.
fn jump(at: u8, code: u16, k: u32, yes: u8, no: u8) -> SockFilter {
    SockFilter::new(code, yes - at - 1, no - at - 1, k)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 0]);
        frame.extend(fragment.to_be_bytes());
        frame.extend([64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        frame.extend(payload);
        frame
    }

    fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
        let mut datagram =
            [source.to_be_bytes(), destination.to_be_bytes(), [0; 2], [0; 2]].concat();
        datagram.extend(payload);
        datagram
    }

    #[test]
    fn frames_are_told_apart() {
        let spi = [1, 2, 3, 4, 0, 0, 0, 1];
        for (frame, kind) in [
            (ipv4(50, 0, &spi), Kind::Esp),
            (ipv4(50, 0x00b9, &spi), Kind::Esp),
            (ipv4(17, 0, &udp(4500, 4500, &spi)), Kind::Esp),
            (ipv4(17, 0, &udp(40_000, 4500, &spi)), Kind::Esp),
            (ipv4(17, 0, &udp(4500, 4500, &[0; 32])), Kind::Ike),
            (ipv4(17, 0, &udp(4500, 4500, &[0xff])), Kind::Ike),
            (ipv4(17, 0, &udp(500, 500, &spi)), Kind::Ike),
            (ipv4(17, 0, &udp(4501, 53, &spi)), Kind::Cleartext),
            (ipv4(17, 0x00b9, &udp(4500, 4500, &spi)), Kind::Cleartext),
            (ipv4(6, 0, &udp(4500, 500, &spi)), Kind::Cleartext),
            (ipv4(1, 0, &[8, 0, 0, 0]), Kind::Cleartext),
            (ipv4(17, 0, &[17, 148]), Kind::Cleartext),
            ([vec![0; 12], vec![0x08, 0x06]].concat(), Kind::Neighbour),
            (vec![0; 14], Kind::Cleartext),
            (vec![], Kind::Cleartext),
        ] {
            assert_eq!(classify(&frame), kind, "{frame:02x?}");
        }
    }

    #[test]
    fn the_filter_ends_in_its_two_verdicts() {
        // Every jump was computed without overflow, or this would panic.
        assert_eq!(filter(3).len(), 18);
    }
}
