//! How much was encrypted and decrypted, by function and by what did it.

use crate::function::Function;
use std::collections::BTreeMap;

/// The two things that an SA does to packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// It protects them.
    Encrypt,
    /// It checks and opens them.
    Decrypt,
}

/// Where a function is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// In this process, by instructions of the CPU that are made for it.
    Hardware,
    /// In this process, without.
    Software,
    /// In the kernel.
    Kernel,
    /// In the network card.
    Nic,
}

/// How much was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Packets.
    pub operations: u64,
    /// Octets of inner packets.
    pub octets: u64,
}

/// The amount of work done, by function, direction and the place that did it.
pub type Work = BTreeMap<(Function, Direction, Place), Amount>;

impl Direction {
    /// `encrypt` or `decrypt`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Encrypt => "encrypt",
            Self::Decrypt => "decrypt",
        }
    }
}

impl Place {
    /// `hardware`, `software`, `kernel` or `nic`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hardware => "hardware",
            Self::Software => "software",
            Self::Kernel => "kernel",
            Self::Nic => "nic",
        }
    }
}
