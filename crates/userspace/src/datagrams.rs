//! The system calls of the sockets: many datagrams per call, with addresses, DSCP, ECN and segmentation beside them.
//!
//! quinn-udp was weighed and left: it sends the two ECN bits of the traffic class and clears the DSCP that
//! RFC 4301 §5.1.2 wants copied, it does one message per `sendmsg`, and it knows no raw sockets. One thin layer that
//! serves both kinds of sockets is smaller than two that differ.

#![allow(unsafe_code)]

use libc::{c_int, c_void};
use socket2::{SockAddr, SockAddrStorage};
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Most messages of one call.
pub(super) const BATCH: usize = 64;

/// Longest datagram, and what keeps consecutive buffers from falling into the same cache sets.
const BUFFER: usize = 65_536 + 320;

/// Room for packet information, traffic class and segment length: 40 + 24 + 24 octets, rounded up.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; 128]);

/// A datagram to be sent, or several of equal length to be cut by the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing<'a> {
    pub octets: &'a [u8],
    pub destination: SocketAddr,
    /// The address to send from.
    pub source: IpAddr,
    /// Where to cut; `None` sends the octets as one datagram.
    pub segment_len: Option<u16>,
    /// DSCP and ECN.
    pub tos: u8,
}

/// Memory for the kernel's descriptions of messages, used again and again.
pub(super) struct Arena {
    slots: Vec<Slot>,
    headers: Vec<libc::mmsghdr>,
}

struct Slot {
    address: SockAddr,
    content: libc::iovec,
    control: Control,
    control_len: usize,
}

// SAFETY: its pointers lead into its own vectors and to octets that a `Batch` borrows; each batch writes them anew
// before the kernel follows any.
unsafe impl Send for Arena {}

impl Arena {
    pub(super) fn new() -> Self {
        Self { slots: Vec::with_capacity(BATCH), headers: Vec::with_capacity(BATCH) }
    }

    /// Begins a batch of messages, whose octets it borrows.
    pub(super) fn batch<'a>(&'a mut self) -> Batch<'a> {
        self.slots.clear();
        Batch { arena: self, octets: PhantomData }
    }
}

/// Messages for one call.
pub(super) struct Batch<'a> {
    arena: &'a mut Arena,
    octets: PhantomData<&'a [u8]>,
}

impl<'a> Batch<'a> {
    pub(super) fn push(&mut self, message: Outgoing<'a>) {
        let mut control = Control([0; 128]);
        let control_len = write_control(&mut control, &message);
        self.arena.slots.push(Slot {
            address: message.destination.into(),
            content: libc::iovec {
                iov_base: message.octets.as_ptr().cast_mut().cast(),
                iov_len: message.octets.len(),
            },
            control,
            control_len,
        });
    }

    pub(super) fn len(&self) -> usize {
        self.arena.slots.len()
    }

    /// Sends the messages from number `from` on and returns how many of them the kernel took; an error is that of
    /// the first one.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, from: usize) -> io::Result<usize> {
        let Arena { slots, headers } = &mut *self.arena;
        headers.clear();
        headers.extend(slots.iter_mut().skip(from).map(|slot| {
            // SAFETY: all-zero octets are a valid mmsghdr (integers and null pointers).
            let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
            header.msg_hdr.msg_name = slot.address.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = slot.address.len();
            header.msg_hdr.msg_iov = &raw mut slot.content;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = slot.control.0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = slot.control_len as _;
            header
        }));
        let count = headers.len().min(BATCH) as u32;
        // SAFETY: `headers` holds `count` headers, whose pointers lead into `slots`, which is not touched before the
        // call returns, and to octets that outlive `self` ('a). The kernel only reads through them, but for `msg_len`.
        let sent = unsafe {
            libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count, libc::MSG_DONTWAIT)
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }
}

/// Writes the control messages of a datagram and returns their length.
fn write_control(control: &mut Control, message: &Outgoing<'_>) -> usize {
    let mut writer = ControlWriter { control, used: 0 };
    match (message.source, message.destination) {
        (IpAddr::V4(source), _) => {
            writer.put(
                libc::IPPROTO_IP,
                libc::IP_PKTINFO,
                libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(source.octets()) },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                },
            );
            writer.put(libc::IPPROTO_IP, libc::IP_TOS, c_int::from(message.tos));
        }
        (IpAddr::V6(source), destination) => {
            // A link-local address means something on one link only.
            let scope = match destination {
                SocketAddr::V6(d) => d.scope_id(),
                SocketAddr::V4(_) => 0,
            };
            writer.put(
                libc::IPPROTO_IPV6,
                libc::IPV6_PKTINFO,
                libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr { s6_addr: source.octets() },
                    ipi6_ifindex: scope,
                },
            );
            writer.put(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, c_int::from(message.tos));
        }
    }
    if let Some(segment_len) = message.segment_len {
        writer.put(libc::SOL_UDP, libc::UDP_SEGMENT, segment_len);
    }
    writer.used
}

struct ControlWriter<'a> {
    control: &'a mut Control,
    used: usize,
}

impl ControlWriter<'_> {
    fn put<T: Copy>(&mut self, level: c_int, kind: c_int, value: T) {
        let size = mem::size_of::<T>() as u32;
        // SAFETY: both only compute lengths.
        let (length, space) =
            unsafe { (libc::CMSG_LEN(size) as usize, libc::CMSG_SPACE(size) as usize) };
        assert!(self.used + space <= self.control.0.len(), "Control has room for all messages");
        // SAFETY: there are `space` octets behind `at`, checked above, and `at` is aligned for a cmsghdr: `Control`
        // is, and every `space` is a multiple of that alignment. The value may lie unaligned and is written so.
        unsafe {
            let at = self.control.0.as_mut_ptr().add(self.used).cast::<libc::cmsghdr>();
            (*at).cmsg_len = length as _;
            (*at).cmsg_level = level;
            (*at).cmsg_type = kind;
            ptr::write_unaligned(libc::CMSG_DATA(at).cast::<T>(), value);
        }
        self.used += space;
    }
}

/// A datagram that was received, or several of one flow that the kernel put together (UDP GRO).
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming<'a> {
    pub octets: &'a [u8],
    pub remote: SocketAddr,
    /// The address it was sent to; `None` if the kernel does not say.
    pub local: Option<IpAddr>,
    /// Octets of each datagram but the last.
    pub segment_len: usize,
    /// DSCP and ECN, where the kernel says.
    pub tos: Option<u8>,
    /// What the kernel says besides; `None` if there was not room for all.
    control: Option<&'a [u8]>,
}

impl<'a> Incoming<'a> {
    /// One datagram of which nothing else is known.
    pub(super) fn of(octets: &'a [u8], remote: SocketAddr) -> Self {
        let segment_len = octets.len();
        Self { octets, remote, local: None, segment_len, tos: None, control: None }
    }

    /// How many datagrams it is.
    pub(super) fn packets(&self) -> usize {
        self.octets.len().div_ceil(self.segment_len.max(1))
    }

    /// The extension headers of IPv6 before the octets, in order, each with its number; `None` if not all are known.
    pub(super) fn extension_headers(
        &self,
    ) -> Option<impl Iterator<Item = (u8, &'a [u8])> + use<'a>> {
        let number = |kind| match kind {
            libc::IPV6_HOPOPTS => Some(libc::IPPROTO_HOPOPTS as u8),
            libc::IPV6_RTHDR => Some(libc::IPPROTO_ROUTING as u8),
            libc::IPV6_DSTOPTS => Some(libc::IPPROTO_DSTOPTS as u8),
            _ => None,
        };
        let of_ipv6 = |message: &ControlMessage<'a>| message.level == libc::IPPROTO_IPV6;
        let extension =
            move |message: ControlMessage<'a>| Some((number(message.kind)?, message.value));
        Some(ControlMessages(self.control?).filter(of_ipv6).filter_map(extension))
    }
}

/// Buffers for received datagrams, used again and again.
pub(super) struct Ring {
    buffers: Vec<u8>,
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<Control>,
    contents: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: its pointers lead into its own vectors, whose memory stays where it is when the ring moves, and every call
// that hands them to the kernel writes them anew.
unsafe impl Send for Ring {}

impl Ring {
    /// Makes room for so many messages.
    pub(super) fn new(messages: usize) -> Self {
        let messages = messages.min(BATCH);
        Self {
            // Pages that no datagram reaches are never touched and cost nothing.
            buffers: vec![0; messages * BUFFER],
            // SAFETY: all-zero octets are a valid sockaddr_storage, of no family.
            names: vec![unsafe { mem::zeroed() }; messages],
            controls: vec![Control([0; 128]); messages],
            contents: Vec::with_capacity(messages),
            headers: Vec::with_capacity(messages),
        }
    }

    /// Receives what is there, at most `limit` messages, and returns how many came; none is 0.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>, limit: usize) -> io::Result<usize> {
        let limit = limit.min(self.names.len());
        self.contents.clear();
        self.contents.extend(self.buffers.chunks_exact_mut(BUFFER).take(limit).map(|buffer| {
            libc::iovec { iov_base: buffer.as_mut_ptr().cast::<c_void>(), iov_len: buffer.len() }
        }));
        self.headers.clear();
        let parts = self.names.iter_mut().zip(&mut self.controls).zip(&mut self.contents);
        self.headers.extend(parts.map(|((name, control), content)| {
            // SAFETY: all-zero octets are a valid mmsghdr (integers and null pointers).
            let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
            header.msg_hdr.msg_name = ptr::from_mut(name).cast();
            header.msg_hdr.msg_namelen = mem::size_of_val(name) as libc::socklen_t;
            header.msg_hdr.msg_iov = content;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = control.0.len() as _;
            header
        }));
        // SAFETY: `headers` holds `limit` headers, whose pointers and lengths describe elements of the vectors of
        // `self`, distinct for each header and borrowed mutably for the whole call.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                limit as u32,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        match received {
            0.. => Ok(received as usize),
            _ => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
                e => Err(e),
            },
        }
    }

    /// How many datagrams and octets the first so many messages are.
    pub(super) fn amount(&self, messages: usize) -> (usize, usize) {
        (0..messages)
            .filter_map(|index| self.datagram(index))
            .fold((0, 0), |(packets, octets), m| (packets + m.packets(), octets + m.octets.len()))
    }

    /// One of the messages that the last call of [`Ring::receive`] counted; `None` for what is not of IP, or was cut
    /// short.
    pub(super) fn datagram(&self, index: usize) -> Option<Incoming<'_>> {
        let header = self.headers.get(index)?;
        if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            return None;
        }
        let mut name = SockAddrStorage::zeroed();
        // SAFETY: the two are views of the same storage, and the kernel has written an address of this length to it, or
        // left the zeros of the start, which are of no family.
        let remote = unsafe {
            *name.view_as::<libc::sockaddr_storage>() = self.names[index];
            SockAddr::new(name, header.msg_hdr.msg_namelen)
        }
        .as_socket()?;
        let start = index * BUFFER;
        let octets = self.buffers.get(start..start + header.msg_len as usize)?;
        let mut incoming = Incoming::of(octets, remote);
        let control = &self.controls[index].0;
        // The type of the length differs among C libraries.
        #[allow(clippy::unnecessary_cast)]
        let valid = header.msg_hdr.msg_controllen as usize;
        let control = control.get(..valid).unwrap_or_default();
        incoming.control = (header.msg_hdr.msg_flags & libc::MSG_CTRUNC == 0).then_some(control);
        read_control(control, &mut incoming);
        Some(incoming)
    }
}

/// One of the control messages the kernel wrote.
struct ControlMessage<'a> {
    level: c_int,
    kind: c_int,
    value: &'a [u8],
}

/// What is left of the control messages, read by offset: no pointer is followed.
struct ControlMessages<'a>(&'a [u8]);

impl<'a> Iterator for ControlMessages<'a> {
    type Item = ControlMessage<'a>;

    fn next(&mut self) -> Option<ControlMessage<'a>> {
        const HEADER: usize = mem::size_of::<libc::cmsghdr>();
        const LENGTH: usize = mem::size_of::<usize>();
        let control = self.0;
        if control.len() < HEADER {
            return None;
        }
        let length = usize::from_ne_bytes(field(control, 0));
        let value = control.get(HEADER..length)?;
        self.0 = control.get(length.next_multiple_of(LENGTH)..).unwrap_or_default();
        let level = c_int::from_ne_bytes(field(control, LENGTH));
        let kind = c_int::from_ne_bytes(field(control, LENGTH + 4));
        Some(ControlMessage { level, kind, value })
    }
}

fn read_control(control: &[u8], incoming: &mut Incoming<'_>) {
    for ControlMessage { level, kind, value } in ControlMessages(control) {
        match (level, kind) {
            // in_pktinfo: interface, local address for answers, destination in the header.
            (libc::IPPROTO_IP, libc::IP_PKTINFO) if value.len() >= 12 => {
                incoming.local = Some(IpAddr::from(field::<4>(value, 8)));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if value.len() >= 16 => {
                incoming.local = Some(IpAddr::from(field::<16>(value, 0)));
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => incoming.tos = value.first().copied(),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) if value.len() >= 4 => {
                incoming.tos = Some(c_int::from_ne_bytes(field(value, 0)) as u8);
            }
            (libc::SOL_UDP, libc::UDP_GRO) if value.len() >= 4 => {
                if let Ok(length @ 1..) = usize::try_from(c_int::from_ne_bytes(field(value, 0))) {
                    incoming.segment_len = length;
                }
            }
            _ => {}
        }
    }
}

/// `N` octets at an offset the caller has checked.
fn field<const N: usize>(octets: &[u8], at: usize) -> [u8; N] {
    octets[at..at + N].try_into().expect("the slice has N octets")
}

/// Sets a socket option whose value is an integer.
pub(super) fn set_option(
    socket: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which outlives the call.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            mem::size_of::<c_int>() as libc::socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    fn pair(address: &str) -> (UdpSocket, UdpSocket) {
        let bind = || UdpSocket::bind((address, 0)).expect("loopback");
        (bind(), bind())
    }

    fn receive_all(ring: &mut Ring, socket: &UdpSocket, octets: usize) -> Vec<Vec<u8>> {
        let mut got = Vec::new();
        while got.iter().map(Vec::len).sum::<usize>() < octets {
            let mut fds = [rustix::event::PollFd::new(socket, rustix::event::PollFlags::IN)];
            let limit = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
            assert_eq!(rustix::event::poll(&mut fds, Some(&limit)), Ok(1), "nothing came");
            for i in 0..ring.receive(socket.as_fd(), BATCH).expect("receive") {
                let incoming = ring.datagram(i).expect("datagram");
                got.extend(incoming.octets.chunks(incoming.segment_len).map(<[u8]>::to_vec));
            }
        }
        got
    }

    #[test]
    fn batches_keep_addresses_traffic_class_and_octets() {
        for (address, level, pktinfo, tos) in [
            ("127.0.0.1", libc::IPPROTO_IP, libc::IP_PKTINFO, libc::IP_RECVTOS),
            ("::1", libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, libc::IPV6_RECVTCLASS),
        ] {
            let (from, to) = pair(address);
            set_option(to.as_fd(), level, pktinfo, 1).expect("pktinfo");
            set_option(to.as_fd(), level, tos, 1).expect("traffic class");
            let (mut arena, mut ring) = (Arena::new(), Ring::new(BATCH));
            let source = from.local_addr().expect("bound");
            let payloads: Vec<Vec<u8>> = (1..=20u8).map(|n| vec![n; n.into()]).collect();
            let mut batch = arena.batch();
            for octets in &payloads {
                batch.push(Outgoing {
                    octets,
                    destination: to.local_addr().expect("bound"),
                    source: source.ip(),
                    segment_len: None,
                    tos: 0xb9,
                });
            }
            assert_eq!(batch.send(from.as_fd(), 0).expect("send"), 20);
            assert_eq!(ring.receive(to.as_fd(), BATCH).expect("receive"), 20);
            for (i, octets) in payloads.iter().enumerate() {
                let incoming = ring.datagram(i).expect("datagram");
                assert_eq!(incoming.octets, octets);
                assert_eq!(incoming.remote, source);
                assert_eq!(incoming.local, Some(source.ip()));
                assert_eq!(incoming.tos, Some(0xb9));
            }
            assert_eq!(ring.receive(to.as_fd(), BATCH).expect("receive"), 0);
        }
    }

    #[test]
    fn segmented_datagrams_arrive_as_they_were_cut() {
        for gro in [0, 1] {
            let (from, to) = pair("127.0.0.1");
            if set_option(to.as_fd(), libc::SOL_UDP, libc::UDP_GRO, gro).is_err() {
                println!("skipped: the kernel has no UDP GRO");
                return;
            }
            let octets: Vec<u8> = (0..5_500u32).map(|n| n as u8).collect();
            let (mut arena, mut ring) = (Arena::new(), Ring::new(BATCH));
            let mut batch = arena.batch();
            batch.push(Outgoing {
                octets: &octets,
                destination: to.local_addr().expect("bound"),
                source: from.local_addr().expect("bound").ip(),
                segment_len: Some(1_000),
                tos: 0,
            });
            assert_eq!(batch.send(from.as_fd(), 0).expect("send"), 1);
            let got = receive_all(&mut ring, &to, octets.len());
            assert_eq!(got, octets.chunks(1_000).map(<[u8]>::to_vec).collect::<Vec<_>>());
        }
    }

    #[test]
    fn malformed_control_messages_are_ignored() {
        for octets in [
            &[0xff; 40][..],
            &[0; 40],
            &[1; 15],
            &[17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        ] {
            let remote = SocketAddr::from(([127, 0, 0, 1], 1));
            let mut incoming = Incoming {
                octets: &[],
                remote,
                local: None,
                segment_len: 7,
                tos: None,
                control: None,
            };
            read_control(octets, &mut incoming);
            assert_eq!((incoming.local, incoming.segment_len), (None, 7));
        }
    }
}
