//! The results of one kernel.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The protection of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Protection {
    None,
    /// The kernel, with keys by hand.
    Kernel,
    /// The kernel, with keys that `vpnd` negotiates.
    VpndKernel,
    /// ESP in UDP, as between two of this product.
    Vpnd,
    /// ESP as a protocol of its own.
    VpndNative,
}

impl Protection {
    pub(super) const ALL: [Self; 5] =
        [Self::None, Self::Kernel, Self::VpndKernel, Self::Vpnd, Self::VpndNative];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "no IPsec",
            Self::Kernel => "the kernel",
            Self::VpndKernel => "vpnd, in the kernel",
            Self::Vpnd => "vpnd, ESP in UDP",
            Self::VpndNative => "vpnd, native ESP",
        }
    }

    /// Returns `true` if `vpnd` itself protects the packets.
    pub(super) fn in_userspace(self) -> bool {
        matches!(self, Self::Vpnd | Self::VpndNative)
    }
}

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub round: usize,
    pub protection: Protection,
    /// The wire takes super-packets, as a card with segmentation offload does.
    pub segmentation: bool,
    pub mbits: f64,
    /// Of both `vpnd`, for a gigabyte.
    pub cpu_per_gigabyte: f64,
}

/// The results of one kernel.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Found {
    /// The kernel's release.
    pub kernel: String,
    pub rows: Vec<Row>,
    /// The states that could not be measured, with the reason.
    pub without: BTreeMap<Protection, String>,
    /// The reason why segmentation could not be switched off on the wire; `None`: it was.
    pub without_single: Option<String>,
    /// The capacity of a card that offloads.
    pub capacity: Option<Capacity>,
}

/// The capacity of a card that offloads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Capacity {
    pub device: String,
    /// The number of SAs that it accepted.
    pub taken: usize,
    /// The kernel's error for the next SA; `None`: the limit was not reached.
    pub refusal: Option<String>,
    /// The kernel accepted that SA in software.
    pub software: bool,
}
