//! The device that protects the packets of an SA.

#![forbid(unsafe_code)]

use netlink_packet_xfrm::state::ModifyMessage;
use netlink_packet_xfrm::{UserOffloadDev, XfrmAttrs};

/// That a device protects the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offload {
    /// Index of the device.
    pub device: u32,
    /// Packet offload: the device does everything, not the cryptography alone.
    pub packet: bool,
}

impl Offload {
    /// As it is asked for; `inbound` for what arrives.
    pub(super) fn attribute(self, inbound: bool) -> XfrmAttrs {
        // linux/xfrm.h: XFRM_OFFLOAD_INBOUND and XFRM_OFFLOAD_PACKET.
        let flags = if inbound { 2 } else { 0 } | if self.packet { 4 } else { 0 };
        let ifindex = i32::try_from(self.device).unwrap_or(i32::MAX);
        XfrmAttrs::OffloadDevice(UserOffloadDev { ifindex, flags })
    }
}

/// The offload of an SA, as the kernel reports it.
pub(super) fn offload_of(state: &ModifyMessage) -> Option<Offload> {
    state.nlas.iter().find_map(|attribute| match attribute {
        XfrmAttrs::OffloadDevice(offload) => {
            Some(Offload { device: offload.ifindex.unsigned_abs(), packet: offload.flags & 4 != 0 })
        }
        _ => None,
    })
}
