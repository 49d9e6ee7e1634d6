//! Receiving: a ring of buffers per call, and the control messages of each datagram.

#![allow(unsafe_code)]

use super::{BATCH, Control};
use libc::{c_int, c_void};
use socket2::{SockAddr, SockAddrStorage};
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Longest datagram, and what keeps consecutive buffers from falling into the same cache sets.
const BUFFER: usize = 65_536 + 320;

/// A datagram that was received, or several of one flow that the kernel put together (UDP GRO).
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// The datagrams, one behind the other.
    pub octets: &'a [u8],
    /// The address and port that it came from.
    pub remote: SocketAddr,
    /// The address it was sent to; `None` if the kernel does not say.
    pub local: Option<IpAddr>,
    /// Octets of each datagram but the last.
    pub segment_len: usize,
    /// DSCP and ECN, where the kernel says.
    pub tos: Option<u8>,
    /// The other control messages; `None` if there was not room for all.
    pub(super) control: Option<&'a [u8]>,
}

impl<'a> Incoming<'a> {
    /// One datagram of which nothing else is known.
    pub fn of(octets: &'a [u8], remote: SocketAddr) -> Self {
        let segment_len = octets.len();
        Self { octets, remote, local: None, segment_len, tos: None, control: None }
    }

    /// The number of datagrams.
    #[inline]
    pub fn packets(&self) -> usize {
        self.octets.len().div_ceil(self.segment_len.max(1))
    }

    /// The extension headers of IPv6 before the octets, in order, each with its number; `None` if not all are known.
    pub fn extension_headers(&self) -> Option<impl Iterator<Item = (u8, &'a [u8])> + use<'a>> {
        let messages = ControlMessages(self.control?);
        let of_ipv6 = messages.filter(|message| message.level == libc::IPPROTO_IPV6);
        Some(of_ipv6.filter_map(|message| {
            let number = match message.kind {
                libc::IPV6_HOPOPTS => libc::IPPROTO_HOPOPTS,
                libc::IPV6_RTHDR => libc::IPPROTO_ROUTING,
                libc::IPV6_DSTOPTS => libc::IPPROTO_DSTOPTS,
                _ => return None,
            };
            Some((number as u8, message.value))
        }))
    }
}

/// Buffers for received datagrams, used again and again.
pub struct Ring {
    buffers: Vec<u8>,
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<Control>,
    contents: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: its pointers lead into its own vectors, whose memory stays where it is when the ring moves, and every call
// that hands them to the kernel writes them again.
unsafe impl Send for Ring {}

impl Ring {
    /// Makes room for so many messages.
    pub fn new(messages: usize) -> Self {
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
    ///
    /// # Errors
    /// Those of `recvmmsg`, but that nothing is there.
    pub fn receive(&mut self, socket: BorrowedFd<'_>, limit: usize) -> io::Result<usize> {
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
                // It has another type in musl.
                libc::MSG_DONTWAIT as _,
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

    /// The number of datagrams and octets in the first so many messages.
    pub fn amount(&self, messages: usize) -> (usize, usize) {
        (0..messages)
            .filter_map(|index| self.datagram(index))
            .fold((0, 0), |(packets, octets), m| (packets + m.packets(), octets + m.octets.len()))
    }

    /// Returns one of the messages that the last call of [`Ring::receive`] counted; `None` for what is not of IP, or was cut
    /// short.
    #[inline]
    pub fn datagram(&self, index: usize) -> Option<Incoming<'_>> {
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

/// The rest of the control messages, read by offset: no pointer is followed.
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

pub(super) fn read_control(control: &[u8], incoming: &mut Incoming<'_>) {
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
