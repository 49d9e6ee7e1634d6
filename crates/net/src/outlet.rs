//! The way of the stack's packets into the datapath: a device of smoltcp's that holds one packet of each direction.
//!
//! The datapath splits the stack's super-packets by the segment length of their connection, and joins segments that
//! have come. It limits the MSS options of both SYNs to what fits.

use crate::corrections::Corrections;
use crate::packet::parse;
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

/// Takes the packets of the stack.
pub(crate) struct Outlet {
    sender: Sender,
    pub queue: SendQueue,
    scratch: Vec<u8>,
    pub now: Instant,
}

impl Outlet {
    pub fn new(datapath: &Datapath, now: Instant) -> Self {
        Self {
            sender: datapath.sender(),
            queue: SendQueue::new(QUEUE),
            scratch: vec![0; LONGEST],
            now,
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

    /// `corrections`: those of the connection whose packet it is.
    fn send_scratch(&mut self, len: usize, corrections: Option<&mut Corrections>) {
        let packet = &mut self.scratch[..len];
        let mut gso = Gso::NONE;
        if let Some(parsed) = parse(packet).filter(|parsed| parsed.protocol == TCP) {
            let (source, destination) = (parsed.source, parsed.destination);
            let upper = &mut packet[parsed.transport..parsed.end];
            let payload = upper.len() - usize::from(upper[12] >> 4) * 4;
            let segment_len = match corrections {
                Some(corrections) => corrections.leaving(upper, self.now),
                None => u16::MAX,
            };
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

/// The device for one call of the stack: a packet that has come, if there is one, and the way out.
pub(crate) struct Port<'p> {
    pub incoming: Option<&'p [u8]>,
    pub outlet: &'p mut Outlet,
    /// Those of the connection whose packets these are.
    pub corrections: Option<&'p mut Corrections>,
}

pub(crate) struct Taken<'p>(&'p [u8]);

pub(crate) struct Given<'p> {
    outlet: &'p mut Outlet,
    corrections: Option<&'p mut Corrections>,
}

impl Port<'_> {
    fn given(&mut self) -> Given<'_> {
        Given { outlet: self.outlet, corrections: self.corrections.as_deref_mut() }
    }
}

impl RxToken for Taken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl TxToken for Given<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let Self { outlet, corrections } = self;
        if outlet.scratch.len() < len {
            outlet.scratch.resize(len, 0);
        }
        let result = f(&mut outlet.scratch[..len]);
        outlet.send_scratch(len, corrections);
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
        Some((Taken(incoming), self.given()))
    }

    fn transmit(&mut self, _: StackInstant) -> Option<Given<'_>> {
        (!self.outlet.queue.is_full()).then(|| self.given())
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
