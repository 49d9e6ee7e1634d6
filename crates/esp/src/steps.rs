//! Single steps of the packet path, for who measures them (`benches/esp`). No part of the interface.

#![forbid(unsafe_code)]

use crate::datapath::{Datapath, Sender};
use crate::discard::Discard;
use crate::gso::Gso;
use crate::header::Header;
use crate::ip::Sum;
use crate::plane::Spi;
use crate::queue::ReceiveQueue;
use crate::replay::Window;
use crate::segment::Segments;

/// An anti-replay window.
pub struct Replay(Window);

impl Replay {
    /// Makes one of so many packets.
    pub fn new(packets: u32) -> Self {
        Self(Window::new(packets))
    }

    /// Looks whether a number may be new, and takes note of it.
    pub fn take(&mut self, sequence: u64) -> Result<bool, Discard> {
        self.0.check(sequence)?;
        self.0.commit(sequence)
    }
}

/// Returns `true` if the rules give an SA for the packet.
pub fn search(datapath: &Datapath, packet: &[u8]) -> bool {
    Header::parse(packet).is_some_and(|header| datapath.is_protected(&header))
}

/// The same, by the flow if it is known.
pub fn look_up(sender: &mut Sender, packet: &[u8]) -> bool {
    Header::parse(packet).is_some_and(|header| sender.is_protected(&header))
}

/// Returns `true` if there is an inbound SA of that SPI.
pub fn find(datapath: &Datapath, spi: Spi) -> bool {
    datapath.receives(spi)
}

/// Cuts a super-packet and hands over each segment; returns how many there were.
pub fn segment(packet: &mut [u8], gso: Gso, mut each: impl FnMut(&[u8])) -> usize {
    let Some(mut header) = Header::parse(packet) else { return 0 };
    header.len = packet.len();
    let Some(mut segments) = Segments::new(packet, &header, gso) else { return 0 };
    while let Some(segment) = segments.next() {
        each(segment);
    }
    segments.count()
}

/// Puts a packet into the queue as if it had been opened there.
pub fn join(queue: &mut ReceiveQueue, packet: &[u8]) {
    let Some(header) = Header::parse(packet) else { return };
    queue.begin(packet.len(), true)[..packet.len()].copy_from_slice(packet);
    queue.accept(&header);
}

/// The Internet checksum.
pub fn checksum(octets: &[u8]) -> u16 {
    Sum::default().octets(octets).finish()
}
