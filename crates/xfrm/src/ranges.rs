//! The numbers in the kernel that are this plane's.

#![forbid(unsafe_code)]

use std::ops::RangeInclusive;

/// The reqids of this plane. strongSwan counts from 1, libreswan and the kernel itself from 0x4000.
pub const REQIDS: RangeInclusive<u32> = 0x7600_0001..=0x76ff_ffff;

/// The priorities of this plane's policies; 0, the first, is what `ip xfrm policy` gives by default.
pub const PRIORITIES: RangeInclusive<u32> = 0x7600_0000..=0x76ff_ffff;
