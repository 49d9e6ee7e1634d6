//! Keys: their lengths, and the processor's instructions for them.

use std::fmt;

/// Length of an AES key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyBits {
    /// 128 bits.
    B128,
    /// 192 bits.
    B192,
    /// 256 bits.
    B256,
}

impl KeyBits {
    /// Every length, the shortest first.
    pub const ALL: [Self; 3] = [Self::B128, Self::B192, Self::B256];

    /// The length in bits.
    pub const fn bits(self) -> u16 {
        match self {
            Self::B128 => 128,
            Self::B192 => 192,
            Self::B256 => 256,
        }
    }

    /// The length in octets.
    pub const fn octets(self) -> usize {
        self.bits() as usize / 8
    }
}

/// The number of keys that DES works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DesKeys {
    /// DES (RFC 2405).
    One,
    /// Triple DES (RFC 2451).
    Three,
}

impl DesKeys {
    /// Octets of key, parity bits among them.
    pub const fn octets(self) -> usize {
        match self {
            Self::One => 8,
            Self::Three => 24,
        }
    }
}

/// The kind of a processor's instructions that an algorithm can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Instructions {
    /// Those of AES, and multiplication without carry for GHASH.
    AesGcm,
    /// Those of AES.
    Aes,
    /// Those of SHA-1 and SHA-256, which processors have together.
    Sha,
    /// Those of SHA-384 and SHA-512.
    Sha512,
    /// None but general vector instructions.
    None,
}

impl fmt::Display for KeyBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bits().fmt(f)
    }
}

impl fmt::Display for DesKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "DES",
            Self::Three => "3DES",
        })
    }
}
