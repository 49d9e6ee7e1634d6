//! The settings and the properties of tunnels from which the guard follows.

#![forbid(unsafe_code)]

/// The properties of a tunnel, beside its selectors, that decide how the table recognises its packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardedTraffic {
    /// Value and mask of their mark.
    pub mark: Option<(u32, u32)>,
    /// A card may protect the packets (packet offload).
    pub by_card: bool,
}

/// The parts of the configuration that decide which packets pass.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The userspace plane's TUN device: packets that leave by it are protected there.
    pub device: String,
    /// The mark of this daemon's own packets.
    pub mark: u32,
    /// The port of ESP in UDP.
    pub natt_port: u16,
    /// Cleartext that arrives is dropped, too.
    pub inbound: bool,
    /// The kernel may protect packets.
    pub kernel: bool,
}
