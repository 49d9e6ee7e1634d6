//! Ciphers of ESP packets and of IKE's Encrypted payload behind one trait, and the providers they come from.

mod aws_lc;
mod choice;
mod cpu;
#[cfg(feature = "legacy")]
mod des;
mod facility;
mod function;
mod gmac;
mod in_place;
mod keyed;
pub mod mac;
mod name;
#[cfg(feature = "insecure-null-cipher")]
mod null;
mod portable;
mod ring;
mod speed;
mod with_mac;

pub use choice::{Algorithm, Choice, NoSuchAlgorithm, NoSuchProvider};
pub use cpu::{Cpu, HIDING};
pub use facility::{Amount, Direction, Facility, NoInstructions, Place, Work};
pub use function::Function;
pub use name::NoSuchSuite;
pub use speed::Speed;

pub(crate) use facility::{Operated, Roster};
pub(crate) use keyed::Keyed;

use gmac::Gmac;
use policy::{AhIntegrity, DesKeys, EspEncryption, Integrity, KeyBits, Protection, Secret};
use std::fmt;
use with_mac::{CbcMac, NullMac};

/// What protects a packet: an AEAD, a cipher with a MAC, or integrity alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Suite {
    /// AES-GCM with an 8-octet IV and a 16-octet ICV (RFC 4106, RFC 5282).
    AesGcm16(KeyBits),
    /// AES-CBC (RFC 3602) with a MAC over everything, encrypt-then-MAC.
    AesCbcMac(KeyBits, Integrity),
    /// ChaCha20-Poly1305 with an 8-octet IV and a 16-octet ICV (RFC 7634).
    ChaCha20Poly1305,
    /// AES-GMAC with an 8-octet IV and a 16-octet ICV (RFC 4543): everything travels in the clear.
    AesGmac(KeyBits),
    /// No cipher (RFC 2410), and a MAC over everything: everything travels in the clear.
    NullMac(Integrity),
    /// DES or triple DES in CBC mode (RFC 2405, RFC 2451) with a MAC over everything; only with the feature `legacy`.
    DesCbcMac(DesKeys, Integrity),
    /// Not ESP but AH (RFC 4302). With AES-GMAC, an 8-octet IV precedes the 16-octet ICV (RFC 4543 §4).
    Ah(AhIntegrity),
}

impl Suite {
    /// The suite of a Child SA's proposal; `None` where cipher and integrity do not go together.
    pub fn of(protection: Protection) -> Option<Self> {
        let (encryption, integrity) = match protection {
            Protection::Ah(integrity) => return Some(Self::Ah(integrity)),
            Protection::Esp { encryption, integrity } => (encryption, integrity),
        };
        match (encryption, integrity) {
            (EspEncryption::AesGcm16(k), None) => Some(Self::AesGcm16(k)),
            (EspEncryption::AesCbc(k), Some(i)) => Some(Self::AesCbcMac(k, i)),
            (EspEncryption::ChaCha20Poly1305, None) => Some(Self::ChaCha20Poly1305),
            (EspEncryption::AesGmac(k), None) => Some(Self::AesGmac(k)),
            (EspEncryption::Null, Some(i)) => Some(Self::NullMac(i)),
            (EspEncryption::DesCbc(k), Some(i)) => Some(Self::DesCbcMac(k, i)),
            _ => None,
        }
    }

    /// Whether it protects packets with AH, which vouches for the IP header as well, and not with ESP.
    pub fn is_ah(self) -> bool {
        matches!(self, Self::Ah(_))
    }

    /// The suite whose cipher makes the ICV of AH, when it is given no text.
    pub(crate) fn cipher(self) -> Self {
        match self {
            Self::Ah(AhIntegrity::AesGmac(bits)) => Self::AesGcm16(bits),
            Self::Ah(AhIntegrity::Mac(integrity)) => Self::NullMac(integrity),
            suite => suite,
        }
    }

    /// Octets of key material one direction takes from KEYMAT: key and salt (RFC 4106 §8.1, RFC 4543 §5.4, RFC 7634
    /// §2), or cipher key and then integrity key (RFC 7296 §2.17).
    pub fn key_material_len(self) -> usize {
        match self {
            Self::AesGcm16(k) | Self::AesGmac(k) => k.octets() + 4,
            Self::ChaCha20Poly1305 => 32 + 4,
            Self::NullMac(i) => integrity_key_len(i),
            Self::AesCbcMac(k, i) => k.octets() + integrity_key_len(i),
            Self::DesCbcMac(k, i) => k.octets() + integrity_key_len(i),
            Self::Ah(_) => self.cipher().key_material_len(),
        }
    }

    /// Octets of the IV that travels in the packet.
    pub fn iv_len(self) -> usize {
        match self {
            Self::AesGcm16(_) | Self::ChaCha20Poly1305 | Self::AesGmac(_) | Self::DesCbcMac(..) => {
                8
            }
            Self::AesCbcMac(..) => 16,
            Self::NullMac(_) => 0,
            Self::Ah(_) => self.cipher().iv_len(),
        }
    }

    /// Octets of the integrity check value.
    pub fn icv_len(self) -> usize {
        match self {
            Self::Ah(_) => self.cipher().icv_len(),
            Self::AesGcm16(_) | Self::ChaCha20Poly1305 | Self::AesGmac(_) => 16,
            Self::AesCbcMac(_, i) | Self::DesCbcMac(_, i) | Self::NullMac(i) => match i {
                Integrity::HmacMd5_96
                | Integrity::HmacSha1_96
                | Integrity::AesXcbc96
                | Integrity::AesCmac96 => 12,
                Integrity::HmacSha2_256_128 => 16,
                Integrity::HmacSha2_384_192 => 24,
                Integrity::HmacSha2_512_256 => 32,
                _ => unreachable!("every Integrity has its length here"),
            },
        }
    }

    /// Octets to which the plaintext with padding must be aligned by the cipher itself (ESP aligns to 4 besides).
    pub fn block_len(self) -> usize {
        match self {
            Self::AesCbcMac(..) => 16,
            Self::DesCbcMac(..) => 8,
            Self::AesGcm16(_)
            | Self::ChaCha20Poly1305
            | Self::AesGmac(_)
            | Self::NullMac(_)
            | Self::Ah(_) => 1,
        }
    }
}

/// Octets of an integrity key: as many as the uncut MAC has (RFC 2403, RFC 2404, RFC 3566, RFC 4494, RFC 4868 §2.1.1).
pub fn integrity_key_len(integrity: Integrity) -> usize {
    mac_of(integrity).output_len()
}

/// The MAC whose first octets are the ICV.
fn mac_of(integrity: Integrity) -> mac::Algorithm {
    match integrity {
        Integrity::HmacMd5_96 => mac::Algorithm::HmacMd5,
        Integrity::HmacSha1_96 => mac::Algorithm::HmacSha1,
        Integrity::HmacSha2_256_128 => mac::Algorithm::HmacSha2_256,
        Integrity::HmacSha2_384_192 => mac::Algorithm::HmacSha2_384,
        Integrity::HmacSha2_512_256 => mac::Algorithm::HmacSha2_512,
        Integrity::AesXcbc96 => mac::Algorithm::AesXcbc,
        Integrity::AesCmac96 => mac::Algorithm::AesCmac,
        _ => unreachable!("every Integrity has its MAC here"),
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AesGcm16(k) => write!(f, "AES-GCM-16-{k}"),
            Self::AesCbcMac(k, i) => write!(f, "AES-CBC-{k}/{i}"),
            Self::DesCbcMac(k, i) => write!(f, "{k}-CBC/{i}"),
            Self::ChaCha20Poly1305 => f.write_str("CHACHA20-POLY1305"),
            Self::AesGmac(k) => write!(f, "NULL-AUTH-AES-GMAC-{k}"),
            Self::NullMac(i) => write!(f, "NULL/{i}"),
            Self::Ah(integrity) => write!(f, "AH/{integrity}"),
        }
    }
}

/// What is authenticated besides the ciphertext.
#[derive(Clone, Copy, Debug)]
pub enum Aad<'a> {
    /// An ESP header; with `esn` the high half of the sequence number is authenticated, too (RFC 4303 §2.2.1,
    /// RFC 4106 §5).
    Esp {
        /// SPI.
        spi: u32,
        /// Whole sequence number.
        sequence: u64,
        /// Whether the SA uses extended sequence numbers.
        esn: bool,
    },
    /// Octets as they are (IKE header up to and with the generic header of SK, RFC 5282 §5.1).
    Octets(&'a [u8]),
}

impl<'a> Aad<'a> {
    /// The octets an AEAD authenticates (RFC 4106 §5, RFC 7634 §2.1), and those GMAC begins with (RFC 4543 §3.3).
    fn of_aead(self, buffer: &'a mut [u8; 12]) -> &'a [u8] {
        match self {
            Self::Esp { spi, sequence, esn: false } => {
                buffer[..4].copy_from_slice(&spi.to_be_bytes());
                buffer[4..8].copy_from_slice(&low(sequence).to_be_bytes());
                &buffer[..8]
            }
            Self::Esp { spi, sequence, esn: true } => {
                buffer[..4].copy_from_slice(&spi.to_be_bytes());
                buffer[4..].copy_from_slice(&sequence.to_be_bytes());
                &buffer[..]
            }
            Self::Octets(octets) => octets,
        }
    }

    /// The octets a MAC takes before the IV and those it takes after the ciphertext (RFC 4303 §2.2.1).
    fn of_mac(self, buffer: &'a mut [u8; 12]) -> (&'a [u8], &'a [u8]) {
        match self {
            Self::Esp { spi, sequence, esn } => {
                buffer[..4].copy_from_slice(&spi.to_be_bytes());
                buffer[4..8].copy_from_slice(&low(sequence).to_be_bytes());
                buffer[8..].copy_from_slice(&high(sequence).to_be_bytes());
                let (before, after) = buffer.split_at(8);
                (before, if esn { after } else { &[] })
            }
            Self::Octets(octets) => (octets, &[]),
        }
    }
}

/// The half of a sequence number that travels.
pub(crate) fn low(sequence: u64) -> u32 {
    (sequence & u64::from(u32::MAX)) as u32
}

/// The half of a sequence number that both ends only count.
pub(crate) fn high(sequence: u64) -> u32 {
    (sequence >> 32) as u32
}

/// A packet failed authentication, or its lengths cannot be those of a sealed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("integrity check failed")]
pub struct Forged;

/// The keys of one direction of one SA, ready for use.
pub trait Cipher: Send + Sync {
    /// Writes IV ‖ ciphertext ‖ ICV of `plaintext ‖ trailer` to `out`, whose length must be exactly theirs.
    /// Where the suite has no secrecy, what stands for the ciphertext is `plaintext ‖ trailer` as it is.
    /// `iv` has [`Suite::iv_len`] octets: unique per key for AEADs and GMAC, unpredictable for CBC. The caller pads: `plaintext
    /// ‖ trailer` is a multiple of [`Suite::block_len`].
    ///
    /// # Panics
    /// Where a length is not as above: a bug of the caller.
    fn seal(&self, iv: &[u8], aad: Aad<'_>, plaintext: &[u8], trailer: &[u8], out: &mut [u8]);

    /// Opens IV ‖ ciphertext ‖ ICV into `out` and returns how many octets of plaintext (with its padding) were
    /// written. `out` must hold at least `sealed.len() − iv_len − icv_len` octets: what does not fit is refused, too.
    /// On error `out` holds nothing secret.
    fn open(&self, aad: Aad<'_>, sealed: &[u8], out: &mut [u8]) -> Result<usize, Forged>;
}

/// Where ciphers come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Provider {
    /// AWS-LC: everything.
    #[default]
    AwsLc,
    /// ring: no AES-192, and no suite with a MAC of its own.
    Ring,
    /// RustCrypto's software: everything, without any instruction made for cryptography, and in constant time.
    Portable,
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A provider cannot make a cipher.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CipherError {
    /// The provider lacks the suite.
    #[error("{provider} has no {suite}")]
    Unsupported {
        /// The provider asked.
        provider: Provider,
        /// The suite asked for.
        suite: Suite,
    },
    /// Key material of the wrong length.
    #[error("{suite} takes {} octets of key material, not {got}", suite.key_material_len())]
    KeyLength {
        /// The suite asked for.
        suite: Suite,
        /// Octets handed over.
        got: usize,
    },
}

impl Provider {
    /// All of them, the default first.
    pub const ALL: [Self; 3] = [Self::AwsLc, Self::Ring, Self::Portable];

    /// The name in configurations and reports: `aws-lc`, `ring` or `portable`.
    pub fn name(self) -> &'static str {
        match self {
            Self::AwsLc => "aws-lc",
            Self::Ring => "ring",
            Self::Portable => "portable",
        }
    }

    /// Whether the provider has the suite.
    pub fn supports(self, suite: Suite) -> bool {
        let built_in = cfg!(feature = "legacy") || !matches!(suite, Suite::DesCbcMac(..));
        built_in
            && !matches!(
                (self, suite.cipher()),
                (
                    Self::Ring,
                    Suite::AesGcm16(KeyBits::B192)
                        | Suite::AesGmac(KeyBits::B192)
                        | Suite::AesCbcMac(..)
                        | Suite::DesCbcMac(..)
                        | Suite::NullMac(_)
                )
            )
    }

    /// Makes one direction's cipher from [`Suite::key_material_len`] octets. What AH covers is given to it as
    /// [`Aad::Octets`] with no text; IV ‖ ICV, which is all it writes then, is what AH's ICV field holds.
    pub fn cipher(
        self,
        suite: Suite,
        key_material: &Secret,
    ) -> Result<Box<dyn Cipher>, CipherError> {
        if !self.supports(suite) {
            return Err(CipherError::Unsupported { provider: self, suite });
        }
        if key_material.len() != suite.key_material_len() {
            return Err(CipherError::KeyLength { suite, got: key_material.len() });
        }
        #[cfg(feature = "insecure-null-cipher")]
        if matches!(suite, Suite::AesGcm16(_)) {
            return Ok(Box::new(null::Copying(suite)));
        }
        let key = key_material.expose();
        Ok(match (self, suite.cipher()) {
            (Self::AwsLc, Suite::AesGcm16(bits)) => {
                Box::new(aws_lc::Aead::new(aws_lc::gcm(bits), key))
            }
            (Self::AwsLc, Suite::ChaCha20Poly1305) => {
                Box::new(aws_lc::Aead::new(aws_lc::CHACHA20_POLY1305, key))
            }
            (Self::AwsLc, Suite::AesGmac(bits)) => {
                Box::new(Gmac::new(aws_lc::Aead::new(aws_lc::gcm(bits), key)))
            }
            (Self::AwsLc, Suite::AesCbcMac(bits, integrity)) => {
                let (key, mac_key) = key.split_at(bits.octets());
                let mac = mac::Key::new(mac_of(integrity), mac_key);
                Box::new(CbcMac::new(aws_lc::Cbc::new(bits, key), integrity, mac))
            }
            #[cfg(feature = "legacy")]
            (Self::AwsLc, Suite::DesCbcMac(keys, integrity)) => {
                let (key, mac_key) = key.split_at(keys.octets());
                des::cipher(keys, key, integrity, mac::Key::new(mac_of(integrity), mac_key))
            }
            (Self::AwsLc, Suite::NullMac(integrity)) => {
                Box::new(NullMac::new(integrity, mac::Key::new(mac_of(integrity), key)))
            }
            (Self::Ring, Suite::ChaCha20Poly1305) => {
                Box::new(ring::aead(ring::CHACHA20_POLY1305, key))
            }
            (Self::Ring, Suite::AesGmac(bits)) => {
                Box::new(Gmac::new(ring::aead(ring::gcm(bits), key)))
            }
            (Self::Ring, Suite::AesGcm16(bits)) => Box::new(ring::aead(ring::gcm(bits), key)),
            (Self::Portable, suite) => portable::cipher(suite, key),
            (Self::Ring, Suite::AesCbcMac(..) | Suite::NullMac(_))
            | (_, Suite::DesCbcMac(..) | Suite::Ah(_)) => {
                unreachable!("refused above")
            }
        })
    }
}
