//! Counters of encryption and decryption, by function and by executor.

use crate::function::Function;
use std::collections::BTreeMap;

/// The direction of the work of an SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// It protects them.
    Encrypt,
    /// It checks and opens them.
    Decrypt,
}

/// The executor of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Backend {
    /// In this process, by instructions of the CPU that are made for it.
    Hardware,
    /// In this process, without.
    Software,
    /// In the kernel.
    Kernel,
    /// In the network card.
    Nic,
}

/// An amount of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Packets.
    pub operations: u64,
    /// Octets of inner packets.
    pub octets: u64,
}

/// The amount of work done, by function, direction and backend.
pub type Work = BTreeMap<(Function, Direction, Backend), Amount>;

impl Direction {
    /// `encrypt` or `decrypt`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Encrypt => "encrypt",
            Self::Decrypt => "decrypt",
        }
    }
}

impl Backend {
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
