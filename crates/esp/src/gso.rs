//! Segmentation and checksums that a network device leaves to others, as the header of a virtio device describes them.

#![forbid(unsafe_code)]

/// Octets of a virtio network header without the count of merged buffers.
pub const VIRTIO_LEN: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const CHECKSUM_VERIFIED: u8 = 2;
const KIND_NONE: u8 = 0;
const KIND_TCP4: u8 = 1;
const KIND_TCP6: u8 = 4;
const KIND_UDP: u8 = 5;
/// A flag beside the kind: CWR stands in the first segment only. Splitting always does it that way.
const KIND_ECN: u8 = 0x80;

/// The kind of a packet: a single one, or several of one flow under one header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Segmentation {
    /// One packet.
    #[default]
    None,
    /// Segments of a TCP stream.
    Tcp,
    /// UDP datagrams of equal length, the last of which may be shorter.
    Udp,
}

/// A transport checksum that is still to be filled in: the field holds the sum of the pseudo-header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// The offset at which the sum begins, in octets from the start of the packet.
    pub start: u16,
    /// The offset of the checksum field, in octets from `start`.
    pub offset: u16,
}

/// The work that is left in a packet that a device hands over, or may be left to the device that takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gso {
    /// The kind of segments that the packet is to be split into.
    pub segmentation: Segmentation,
    /// Octets of payload per segment; 0 without segmentation.
    pub segment_len: u16,
    /// Octets of all headers; 0 without segmentation. Only written, never relied on.
    pub header_len: u16,
    /// The checksum to be filled in.
    pub checksum: Option<PartialChecksum>,
    /// The transport checksum is known to be right.
    pub checksum_verified: bool,
}

impl Gso {
    /// A packet that is complete as it is.
    pub const NONE: Self = Self {
        segmentation: Segmentation::None,
        segment_len: 0,
        header_len: 0,
        checksum: None,
        checksum_verified: false,
    };

    /// Reads a virtio network header (in the byte order of this machine, as Linux's TUN has it by default); `None` for
    /// a kind of segmentation that was never asked for.
    pub fn from_virtio(header: &[u8; VIRTIO_LEN]) -> Option<Self> {
        let [flags, kind, h0, h1, g0, g1, s0, s1, o0, o1] = *header;
        let segmentation = match kind & !KIND_ECN {
            KIND_NONE => Segmentation::None,
            KIND_TCP4 | KIND_TCP6 => Segmentation::Tcp,
            KIND_UDP => Segmentation::Udp,
            _ => return None,
        };
        Some(Self {
            segmentation,
            segment_len: u16::from_ne_bytes([g0, g1]),
            header_len: u16::from_ne_bytes([h0, h1]),
            checksum: (flags & NEEDS_CHECKSUM != 0).then(|| PartialChecksum {
                start: u16::from_ne_bytes([s0, s1]),
                offset: u16::from_ne_bytes([o0, o1]),
            }),
            checksum_verified: flags & CHECKSUM_VERIFIED != 0,
        })
    }

    /// Writes the virtio network header for a packet, whose IP version decides the kind of TCP segmentation.
    pub fn to_virtio(self, ipv6: bool) -> [u8; VIRTIO_LEN] {
        let kind = match self.segmentation {
            Segmentation::None => KIND_NONE,
            Segmentation::Tcp if ipv6 => KIND_TCP6,
            Segmentation::Tcp => KIND_TCP4,
            Segmentation::Udp => KIND_UDP,
        };
        let (flags, start, offset) = match self.checksum {
            Some(c) => (NEEDS_CHECKSUM, c.start, c.offset),
            None => (u8::from(self.checksum_verified) * CHECKSUM_VERIFIED, 0, 0),
        };
        let mut header = [flags, kind, 0, 0, 0, 0, 0, 0, 0, 0];
        header[2..4].copy_from_slice(&self.header_len.to_ne_bytes());
        header[4..6].copy_from_slice(&self.segment_len.to_ne_bytes());
        header[6..8].copy_from_slice(&start.to_ne_bytes());
        header[8..10].copy_from_slice(&offset.to_ne_bytes());
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtio_header_round_trip() {
        for ipv6 in [false, true] {
            for segmentation in [Segmentation::None, Segmentation::Tcp, Segmentation::Udp] {
                let gso = Gso {
                    segmentation,
                    segment_len: 1400,
                    header_len: 52,
                    checksum: Some(PartialChecksum { start: 20, offset: 16 }),
                    checksum_verified: false,
                };
                assert_eq!(Gso::from_virtio(&gso.to_virtio(ipv6)), Some(gso));
            }
        }
    }

    #[test]
    fn udp_fragmentation_is_not_taken_for_segmentation() {
        assert_eq!(Gso::from_virtio(&[0, 3, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
