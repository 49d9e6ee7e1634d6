//! Message authentication codes: the integrity of ESP and of IKE's Encrypted payload, and what IKE's PRFs are made of.
//!
//! They are AWS-LC's, with these exceptions: AES-XCBC is implemented here, because none of the libraries has it;
//! HMAC-MD5 is RustCrypto's; and the portable provider takes RustCrypto's HMACs, and CMAC and the GCM mode that are
//! implemented here. Without the feature `aws-lc` all are the portable provider's.

mod chain;
#[cfg(feature = "portable")]
mod software;

#[cfg(feature = "aws-lc")]
use aws_lc_rs::{cipher::EncryptingKey, cmac, hmac};
use chain::Chain;
use hmac_md5::{HmacMd5, KeyInit as _, Mac as _};
use std::fmt;
use zeroize::Zeroizing;

/// RustCrypto's HMAC-MD5, which AWS-LC does not give.
mod hmac_md5 {
    pub(super) use ::hmac::{KeyInit, Mac};
    pub(super) type HmacMd5 = ::hmac::Hmac<md5::Md5>;
}

/// A MAC, uncut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// HMAC-MD5 (RFC 2104).
    HmacMd5,
    /// HMAC-SHA-1 (RFC 2104).
    HmacSha1,
    /// HMAC-SHA-256 (RFC 4868).
    HmacSha2_256,
    /// HMAC-SHA-384 (RFC 4868).
    HmacSha2_384,
    /// HMAC-SHA-512 (RFC 4868).
    HmacSha2_512,
    /// AES-XCBC-MAC with a key of 128 bits (RFC 3566).
    AesXcbc,
    /// AES-CMAC with a key of 128 bits (RFC 4493).
    AesCmac,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::HmacMd5,
        Self::HmacSha1,
        Self::HmacSha2_256,
        Self::HmacSha2_384,
        Self::HmacSha2_512,
        Self::AesXcbc,
        Self::AesCmac,
    ];

    /// Octets of a tag. It is also the length of the key: preferred by an HMAC, the only one of the others.
    pub fn output_len(self) -> usize {
        match self {
            Self::HmacMd5 | Self::AesXcbc | Self::AesCmac => 16,
            Self::HmacSha1 => 20,
            Self::HmacSha2_256 => 32,
            Self::HmacSha2_384 => 48,
            Self::HmacSha2_512 => 64,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HmacMd5 => "HMAC-MD5",
            Self::HmacSha1 => "HMAC-SHA1",
            Self::HmacSha2_256 => "HMAC-SHA2-256",
            Self::HmacSha2_384 => "HMAC-SHA2-384",
            Self::HmacSha2_512 => "HMAC-SHA2-512",
            Self::AesXcbc => "AES-XCBC",
            Self::AesCmac => "AES-CMAC",
        })
    }
}

/// A MAC's key, ready for use; it is wiped when it is dropped.
pub struct Key(Keyed);

#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the usual one, and there is one per SA"
)]
enum Keyed {
    /// Already scheduled: a message starts from a copy of this state, here and below.
    #[cfg(feature = "aws-lc")]
    Hmac(hmac::Key),
    Md5(HmacMd5),
    #[cfg(feature = "aws-lc")]
    Cmac(cmac::Key),
    #[cfg(feature = "aws-lc")]
    Xcbc(Chain<EncryptingKey>),
    #[cfg(feature = "portable")]
    Software(software::Hmac),
    #[cfg(feature = "portable")]
    SoftwareChain(Chain<software::Aes>),
}

/// The MAC of a message, which may be a secret where it serves as PRF.
pub struct Tag(Octets);

enum Octets {
    /// The tag that AWS-LC computed, which is not copied.
    #[cfg(feature = "aws-lc")]
    Hmac(hmac::Tag),
    Block(Zeroizing<[u8; 16]>),
    #[cfg(feature = "portable")]
    Software(software::Tag),
}

impl Key {
    /// Takes a key: of any length for an HMAC, of 16 octets for the others.
    ///
    /// # Panics
    /// If XCBC or CMAC get another length: a bug of the caller.
    pub fn new(algorithm: Algorithm, key: &[u8]) -> Self {
        #[cfg(feature = "aws-lc")]
        return Self::aws_lc(algorithm, key);
        #[cfg(not(feature = "aws-lc"))]
        return Self::portable(algorithm, key);
    }

    #[cfg(feature = "aws-lc")]
    fn aws_lc(algorithm: Algorithm, key: &[u8]) -> Self {
        let hmac = |algorithm| Keyed::Hmac(hmac::Key::new(algorithm, key));
        Self(match algorithm {
            Algorithm::HmacMd5 => return Self::md5(key),
            Algorithm::HmacSha1 => hmac(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
            Algorithm::HmacSha2_256 => hmac(hmac::HMAC_SHA256),
            Algorithm::HmacSha2_384 => hmac(hmac::HMAC_SHA384),
            Algorithm::HmacSha2_512 => hmac(hmac::HMAC_SHA512),
            Algorithm::AesXcbc => Keyed::Xcbc(Chain::xcbc(aes_key(key))),
            Algorithm::AesCmac => {
                let key = cmac::Key::new(cmac::AES_128, aes_key(key));
                Keyed::Cmac(key.expect("the length is right"))
            }
        })
    }

    // No instruction accelerates MD5.
    fn md5(key: &[u8]) -> Self {
        Self(Keyed::Md5(HmacMd5::new_from_slice(key).expect("an HMAC takes any key")))
    }

    /// Takes a key for a MAC that uses no instruction made for cryptography.
    ///
    /// # Panics
    /// On the same conditions as [`Key::new`].
    #[cfg(feature = "portable")]
    pub(super) fn portable(algorithm: Algorithm, key: &[u8]) -> Self {
        Self(match algorithm {
            Algorithm::HmacMd5 => return Self::md5(key),
            Algorithm::HmacSha1 => Keyed::Software(software::Hmac::sha1(key)),
            Algorithm::HmacSha2_256 => Keyed::Software(software::Hmac::sha2_256(key)),
            Algorithm::HmacSha2_384 => Keyed::Software(software::Hmac::sha2_384(key)),
            Algorithm::HmacSha2_512 => Keyed::Software(software::Hmac::sha2_512(key)),
            Algorithm::AesXcbc => Keyed::SoftwareChain(Chain::xcbc(aes_key(key))),
            Algorithm::AesCmac => Keyed::SoftwareChain(Chain::cmac(aes_key(key))),
        })
    }

    /// The MAC of `parts[0] | parts[1] | …`.
    pub fn tag(&self, parts: &[&[u8]]) -> Tag {
        match &self.0 {
            #[cfg(feature = "aws-lc")]
            Keyed::Hmac(key) => {
                let mut mac = hmac::Context::with_key(key);
                parts.iter().for_each(|part| mac.update(part));
                Tag(Octets::Hmac(mac.sign()))
            }
            Keyed::Md5(key) => {
                let mut mac = key.clone();
                parts.iter().for_each(|part| mac.update(part));
                Tag::block(mac.finalize().into_bytes().into())
            }
            #[cfg(feature = "aws-lc")]
            Keyed::Cmac(key) => {
                let mut mac = cmac::Context::with_key(key);
                for part in parts {
                    mac.update(part).expect("AWS-LC takes octets after octets");
                }
                let tag = mac.sign().expect("AWS-LC ends what it began");
                Tag::block(tag.as_ref().try_into().expect("AES has blocks of 16 octets"))
            }
            #[cfg(feature = "aws-lc")]
            Keyed::Xcbc(key) => Tag::block(key.tag(parts)),
            #[cfg(feature = "portable")]
            Keyed::SoftwareChain(key) => Tag::block(key.tag(parts)),
            #[cfg(feature = "portable")]
            Keyed::Software(key) => Tag(Octets::Software(key.tag(parts))),
        }
    }
}

impl Tag {
    fn block(octets: [u8; 16]) -> Self {
        Self(Octets::Block(Zeroizing::new(octets)))
    }
}

impl AsRef<[u8]> for Tag {
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            #[cfg(feature = "aws-lc")]
            Octets::Hmac(tag) => tag.as_ref(),
            Octets::Block(octets) => &**octets,
            #[cfg(feature = "portable")]
            Octets::Software(tag) => tag.as_ref(),
        }
    }
}

fn aes_key(key: &[u8]) -> &[u8; 16] {
    key.try_into().expect("AES-XCBC and AES-CMAC take 16 octets")
}
