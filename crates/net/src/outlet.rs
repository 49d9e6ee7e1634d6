//! The way of the stack's packets into the datapath: a device of smoltcp's that holds one packet of each direction.
//!
//! The datapath splits the stack's super-packets by the segment length of their connection, and joins segments that
//! have come. It limits the MSS options of both SYNs to what fits.

use crate::packet::{is_later, long, parse, word};
use crate::routes::TCP;
use esp::datapath::{Datapath, Sender};
use esp::gso::{Gso, Segmentation};
use esp::queue::{RUN_OCTETS, SendQueue};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant as StackInstant;
use smoltcp::wire::{IpAddress, TcpPacket};
use std::num::NonZeroUsize;
use std::time::Instant;

/// Octets of sealed packets that wait to be sent.
const QUEUE: usize = 1 << 20;
/// Octets of the longest packet: the length of IPv4 says no more, and a run of ESP packets has to take it.
const LONGEST: usize = 63_000;
const TCP_LEN: usize = 20;
const ACK: u8 = 0x10;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
/// smoltcp's limit, too.
const SMALLEST_SEGMENT: u16 = 48;

/// Takes the packets of the stack.
pub(crate) struct Outlet {
    sender: Sender,
    pub queue: SendQueue,
    scratch: Vec<u8>,
    pub now: Instant,
    /// The connection that has its turn.
    pub turn: Option<Turn>,
}

/// The stack knows this of the connection whose packets leave.
pub(crate) struct Turn {
    /// Octets of payload of its longest segment.
    pub segment_len: u16,
    /// The sequence number behind all that it has sent (RFC 9293 §3.3.1, SND.NXT).
    pub sent_up_to: Option<u32>,
    /// smoltcp sends octets that it had sent before, and has not come to the last of them.
    pub rewound: bool,
    /// It has sent octets that it had sent before.
    pub sent_again: bool,
}

impl Outlet {
    pub fn new(datapath: &Datapath, now: Instant) -> Self {
        Self {
            sender: datapath.sender(),
            queue: SendQueue::new(QUEUE),
            scratch: vec![0; LONGEST],
            now,
            turn: None,
        }
    }

    /// Gives a packet to the datapath, which counts it if it is dropped.
    pub fn send(&mut self, packet: &mut [u8], gso: Gso) {
        let _ = self.sender.encapsulate(self.now, packet, gso, &mut self.queue);
    }

    /// The last packet of the stack, once.
    #[cfg(test)]
    pub fn take_last(&mut self) -> Option<Vec<u8>> {
        let last = parse(&self.scratch).map(|parsed| self.scratch[..parsed.end].to_vec());
        self.scratch[0] = 0;
        last
    }

    fn send_scratch(&mut self, len: usize) {
        let packet = &mut self.scratch[..len];
        let mut gso = Gso::NONE;
        if let Some(parsed) = parse(packet).filter(|parsed| parsed.protocol == TCP) {
            let (source, destination) = (parsed.source, parsed.destination);
            let upper = &mut packet[parsed.transport..parsed.end];
            let payload = upper.len() - usize::from(upper[12] >> 4) * 4;
            let turn = self.turn.as_mut();
            let segment_len = turn.map_or(u16::MAX, |turn| turn.number(upper, payload));
            if payload > usize::from(segment_len) {
                gso.segmentation = Segmentation::Tcp;
                gso.segment_len = segment_len;
                gso.header_len = (len - payload) as u16;
            } else {
                let [source, destination] = [source, destination].map(IpAddress::from);
                TcpPacket::new_unchecked(upper).fill_checksum(&source, &destination);
            }
        }
        let _ = self.sender.encapsulate(self.now, &mut self.scratch[..len], gso, &mut self.queue);
    }
}

impl Turn {
    /// Notes how far a segment goes, and returns how many octets of payload may leave in one piece.
    ///
    /// One that only acknowledges or resets gets the number of the octet that is sent next. smoltcp would give it the
    /// number of the octet that is sent *again* next, which a peer that has received it takes for an old segment: it
    /// would not look at the acknowledgment (RFC 9293 §3.10.7.4). If both ends sent again, neither would ever learn of
    /// what has arrived. Else smoltcp's number is the right one: that of the octet with which it asks whether a closed
    /// window has opened, as long as the peer has not taken that octet.
    fn number(&mut self, upper: &mut [u8], payload: usize) -> u16 {
        let flags = [SYN, FIN].into_iter().filter(|flag| upper[13] & flag != 0).count();
        let len = payload + flags;
        let end = long(upper, 4).wrapping_add(len as u32);
        match self.sent_up_to {
            // It may reset what has never begun, with the number that a stranger has acknowledged.
            Some(before) if len == 0 => {
                if self.rewound && upper[13] & ACK != 0 && is_later(before, end) {
                    upper[4..8].copy_from_slice(&before.to_be_bytes());
                }
            }
            None if len == 0 => {}
            Some(before) if !is_later(end, before) => {
                self.sent_again = true;
                self.rewound = end != before;
            }
            _ => {
                self.sent_up_to = Some(end);
                self.rewound = false;
            }
        }
        self.segment_len
    }
}

/// The device for one call of the stack: a packet that has come, if there is one, and the way out.
pub(crate) struct Port<'p> {
    pub incoming: Option<&'p [u8]>,
    pub outlet: &'p mut Outlet,
}

pub(crate) struct Taken<'p>(&'p [u8]);

pub(crate) struct Given<'p>(&'p mut Outlet);

impl RxToken for Taken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl TxToken for Given<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let Self(outlet) = self;
        if outlet.scratch.len() < len {
            outlet.scratch.resize(len, 0);
        }
        let result = f(&mut outlet.scratch[..len]);
        outlet.send_scratch(len);
        result
    }
}

impl Device for Port<'_> {
    type RxToken<'a>
        = Taken<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Given<'a>
    where
        Self: 'a;

    fn receive(&mut self, _: StackInstant) -> Option<(Taken<'_>, Given<'_>)> {
        let incoming = self.incoming.take()?;
        Some((Taken(incoming), Given(self.outlet)))
    }

    fn transmit(&mut self, _: StackInstant) -> Option<Given<'_>> {
        (!self.outlet.queue.is_full()).then_some(Given(self.outlet))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        // How long a segment may be is decided between the ends: the datapath limits the MSS options of both SYNs.
        capabilities.max_transmission_unit = LONGEST;
        // Arriving packets are verified before the stack gets them, and leaving ones are summed here or by the
        // datapath.
        capabilities.checksum.tcp = Checksum::None;
        capabilities.segmentation.tcpv4 = NonZeroUsize::new(LONGEST);
        capabilities.segmentation.tcpv6 = NonZeroUsize::new(LONGEST);
        capabilities
    }
}

const _: () = assert!(LONGEST < RUN_OCTETS);

/// The acknowledgment number of a segment without payload, SYN, FIN or RST; `None` for any other.
pub(crate) fn pure_ack(upper: &[u8]) -> Option<u32> {
    let header = upper.get(..TCP_LEN)?;
    let plain = header[13] & 0x17 == ACK && usize::from(header[12] >> 4) * 4 == upper.len();
    plain.then(|| long(header, 8))
}

/// The maximum segment size of a SYN (RFC 9293 §3.7.1: 536 where it names none), which is not taken at its word below
/// 48 octets: such segments would cost more than they carry.
pub(crate) fn maximum_segment_size(upper: &[u8]) -> u16 {
    const DEFAULT: u16 = 536;
    let Some(header) = upper.get(..usize::from(upper[12] >> 4) * 4) else { return DEFAULT };
    let mut options = header.get(TCP_LEN..).unwrap_or_default();
    loop {
        match options {
            [1, rest @ ..] => options = rest,
            [2, 4, 0, 0, ..] => return DEFAULT,
            [2, 4, _, _, ..] => return word(options, 2).max(SMALLEST_SEGMENT),
            [0, ..] | [] => return DEFAULT,
            [_, len, ..] if *len >= 2 && usize::from(*len) <= options.len() => {
                options = &options[usize::from(*len)..];
            }
            _ => return DEFAULT,
        }
    }
}
