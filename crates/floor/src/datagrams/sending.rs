//! Sending: a batch of datagrams per call.

#![allow(unsafe_code)]

use super::{BATCH, Control};
use libc::c_int;
use socket2::SockAddr;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// A datagram to be sent, or several of equal length to be cut by the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The datagrams, one behind the other.
    pub octets: &'a [u8],
    /// The address and port to send to.
    pub destination: SocketAddr,
    /// The address to send from.
    pub source: IpAddr,
    /// The length at which the kernel cuts; `None` sends the octets as one datagram.
    pub segment_len: Option<u16>,
    /// DSCP and ECN.
    pub tos: u8,
}

/// Memory for the kernel's descriptions of messages, used again and again.
pub struct Arena {
    slots: Vec<Slot>,
    headers: Vec<libc::mmsghdr>,
}

struct Slot {
    address: SockAddr,
    content: libc::iovec,
    control: Control,
    control_len: usize,
}

// SAFETY: its pointers lead into its own vectors and to octets that a `Batch` borrows; each batch writes them again
// before the kernel follows any.
unsafe impl Send for Arena {}

impl Default for Arena {
    fn default() -> Self {
        Self::new()
    }
}

impl Arena {
    /// Makes room for a batch.
    pub fn new() -> Self {
        Self { slots: Vec::with_capacity(BATCH), headers: Vec::with_capacity(BATCH) }
    }

    /// Begins a batch of messages, whose octets it borrows.
    pub fn batch<'a>(&'a mut self) -> Batch<'a> {
        self.slots.clear();
        Batch { arena: self, octets: PhantomData }
    }
}

/// Messages for one call.
pub struct Batch<'a> {
    arena: &'a mut Arena,
    octets: PhantomData<&'a [u8]>,
}

impl<'a> Batch<'a> {
    /// Adds a message.
    #[inline]
    pub fn push(&mut self, message: Outgoing<'a>) {
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

    /// The number of messages.
    pub fn len(&self) -> usize {
        self.arena.slots.len()
    }

    /// Returns `true` if there is no message.
    pub fn is_empty(&self) -> bool {
        self.arena.slots.is_empty()
    }

    /// Sends the messages from number `from` on and returns how many of them the kernel took; an error is that of
    /// the first one.
    ///
    /// # Errors
    /// Those of `sendmmsg`.
    pub fn send(&mut self, socket: BorrowedFd<'_>, from: usize) -> io::Result<usize> {
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
            // The flags have another type in musl.
            let flags = libc::MSG_DONTWAIT as _;
            libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count, flags)
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
