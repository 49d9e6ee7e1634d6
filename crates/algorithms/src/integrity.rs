//! Integrity algorithms of ESP, AH and the IKE SA (IANA, IKEv2 transform type 3).
//!
//! The lists of a row have the word first that is written; the others are read.

use crate::key::Instructions;
use crate::prf::Prf;

/// Integrity (transform type 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Integrity {
    /// AUTH_HMAC_MD5_96 (RFC 2403); weak, only where the policy names it.
    HmacMd5_96,
    /// AUTH_HMAC_SHA1_96 (RFC 2404).
    HmacSha1_96,
    /// AUTH_HMAC_SHA2_256_128 (RFC 4868).
    HmacSha2_256_128,
    /// AUTH_HMAC_SHA2_384_192 (RFC 4868).
    HmacSha2_384_192,
    /// AUTH_HMAC_SHA2_512_256 (RFC 4868).
    HmacSha2_512_256,
    /// AUTH_AES_XCBC_96 (RFC 3566).
    AesXcbc96,
    /// AUTH_AES_CMAC_96 (RFC 4494).
    AesCmac96,
}

impl Integrity {
    /// Returns `true` if RFC 8221 and RFC 8247 forbid it: only peers without anything better need it.
    pub const fn is_weak(self) -> bool {
        self.row().weak
    }
}

/// An integrity algorithm.
#[derive(Clone, Copy, Debug)]
pub struct IntegrityRow {
    /// Its name in logs, reports and JSON.
    pub name: &'static str,
    /// IANA's name of the transform.
    pub iana: &'static str,
    /// IANA's number of the transform.
    pub number: u16,
    /// The PRF of the same hash function or cipher.
    pub prf: Prf,
    /// Words of AIX_VPN in `IKE_Hash`.
    pub xml_ike: &'static [&'static str],
    /// Words of AIX_VPN in `ESP_Authentication`.
    pub xml_esp: &'static [&'static str],
    /// Words of AIX_VPN in `AH_Authentication`.
    pub xml_ah: &'static [&'static str],
    /// Words in proposals of swanctl.conf and ipsec.conf.
    pub strongswan: &'static [&'static str],
    /// Further words in libreswan's ipsec.conf, each also behind `hmac_`.
    pub libreswan: &'static [&'static str],
    /// The word behind `auth` in iked.conf of OpenIKED.
    pub openiked: Option<&'static str>,
    /// The kernel's name.
    pub kernel: &'static str,
    /// The name in Wireshark's table for ESP; `None`: the ICV is not checked.
    pub wireshark_esp: Option<&'static str>,
    /// The name in Wireshark's table for IKE; `None`: the ICV is not checked.
    pub wireshark_ike: Option<&'static str>,
    /// Octets of the key: as many as the uncut MAC has (RFC 2403, RFC 2404, RFC 3566, RFC 4494, RFC 4868 §2.1.1).
    pub key_len: usize,
    /// Octets of the ICV: the MAC is cut to that.
    pub icv_len: usize,
    /// True if RFC 8221 and RFC 8247 forbid it.
    pub weak: bool,
    /// The processor's instructions for it.
    pub instructions: Instructions,
}

const HMAC_MD5_96: IntegrityRow = IntegrityRow {
    name: "HMAC-MD5-96",
    iana: "AUTH_HMAC_MD5_96",
    number: 1,
    prf: Prf::HmacMd5,
    xml_ike: &["MD5"],
    xml_esp: &["HMAC-MD5"],
    xml_ah: &["AH_MD5", "HMAC-MD5"],
    strongswan: &["md5"],
    libreswan: &["md5", "md5_96"],
    openiked: Some("hmac-md5"),
    kernel: "hmac(md5)",
    wireshark_esp: Some("HMAC-MD5-96 [RFC2403]"),
    wireshark_ike: Some("HMAC_MD5_96 [RFC2403]"),
    key_len: 16,
    icv_len: 12,
    weak: true,
    instructions: Instructions::None,
};

const HMAC_SHA1_96: IntegrityRow = IntegrityRow {
    name: "HMAC-SHA1-96",
    iana: "AUTH_HMAC_SHA1_96",
    number: 2,
    prf: Prf::HmacSha1,
    xml_ike: &["SHA"],
    xml_esp: &["HMAC-SHA", "HMAC-SHA1"],
    xml_ah: &["AH_SHA", "AH_SHA1", "HMAC-SHA"],
    strongswan: &["sha1", "sha"],
    libreswan: &["sha1", "sha1_96"],
    openiked: Some("hmac-sha1"),
    kernel: "hmac(sha1)",
    wireshark_esp: Some("HMAC-SHA-1-96 [RFC2404]"),
    wireshark_ike: Some("HMAC_SHA1_96 [RFC2404]"),
    key_len: 20,
    icv_len: 12,
    weak: false,
    instructions: Instructions::Sha,
};

const HMAC_SHA2_256_128: IntegrityRow = IntegrityRow {
    name: "HMAC-SHA2-256-128",
    iana: "AUTH_HMAC_SHA2_256_128",
    number: 12,
    prf: Prf::HmacSha2_256,
    xml_ike: &["HMAC_SHA2_256", "SHA2_256", "SHA2-256"],
    xml_esp: &["HMAC-SHA2-256", "HMAC_SHA2_256"],
    xml_ah: &["AH_SHA2_256", "HMAC-SHA2-256"],
    strongswan: &["sha256", "sha2", "sha2_256"],
    libreswan: &["sha2_256", "sha2_256_128"],
    openiked: Some("hmac-sha2-256"),
    kernel: "hmac(sha256)",
    wireshark_esp: Some("HMAC-SHA-256-128 [RFC4868]"),
    wireshark_ike: Some("HMAC_SHA2_256_128 [RFC4868]"),
    key_len: 32,
    icv_len: 16,
    weak: false,
    instructions: Instructions::Sha,
};

const HMAC_SHA2_384_192: IntegrityRow = IntegrityRow {
    name: "HMAC-SHA2-384-192",
    iana: "AUTH_HMAC_SHA2_384_192",
    number: 13,
    prf: Prf::HmacSha2_384,
    xml_ike: &["HMAC_SHA2_384", "SHA2_384", "SHA2-384"],
    xml_esp: &["HMAC-SHA2-384", "HMAC_SHA2_384"],
    xml_ah: &["AH_SHA2_384", "HMAC-SHA2-384"],
    strongswan: &["sha384", "sha2_384"],
    libreswan: &["sha2_384", "sha2_384_192"],
    openiked: Some("hmac-sha2-384"),
    kernel: "hmac(sha384)",
    wireshark_esp: Some("HMAC-SHA-384-192 [RFC4868]"),
    wireshark_ike: Some("HMAC_SHA2_384_192 [RFC4868]"),
    key_len: 48,
    icv_len: 24,
    weak: false,
    instructions: Instructions::Sha512,
};

const HMAC_SHA2_512_256: IntegrityRow = IntegrityRow {
    name: "HMAC-SHA2-512-256",
    iana: "AUTH_HMAC_SHA2_512_256",
    number: 14,
    prf: Prf::HmacSha2_512,
    xml_ike: &["HMAC_SHA2_512", "SHA2_512", "SHA2-512"],
    xml_esp: &["HMAC-SHA2-512", "HMAC_SHA2_512"],
    xml_ah: &["AH_SHA2_512", "HMAC-SHA2-512"],
    strongswan: &["sha512", "sha2_512"],
    libreswan: &["sha2_512", "sha2_512_256"],
    openiked: Some("hmac-sha2-512"),
    kernel: "hmac(sha512)",
    wireshark_esp: Some("HMAC-SHA-512-256 [RFC4868]"),
    wireshark_ike: Some("HMAC_SHA2_512_256 [RFC4868]"),
    key_len: 64,
    icv_len: 32,
    weak: false,
    instructions: Instructions::Sha512,
};

const AES_XCBC_96: IntegrityRow = IntegrityRow {
    name: "AES-XCBC-96",
    iana: "AUTH_AES_XCBC_96",
    number: 5,
    prf: Prf::Aes128Xcbc,
    xml_ike: &["CMAC_AES_XCBC", "AES-XCBC", "AES_XCBC", "AES-XCBC-MAC-96", "AES_XCBC_MAC_96"],
    xml_esp: &["AES-XCBC-MAC-96", "AES_XCBC_MAC_96", "AES-XCBC"],
    xml_ah: &["AH_AES_XCBC_MAC", "AH_AES_XCBC", "AES-XCBC-MAC-96"],
    strongswan: &["aesxcbc"],
    libreswan: &["aes_xcbc", "aes_xcbc_96"],
    openiked: None,
    kernel: "xcbc(aes)",
    wireshark_esp: None,
    wireshark_ike: None,
    key_len: 16,
    icv_len: 12,
    weak: false,
    instructions: Instructions::Aes,
};

const AES_CMAC_96: IntegrityRow = IntegrityRow {
    name: "AES-CMAC-96",
    iana: "AUTH_AES_CMAC_96",
    number: 8,
    prf: Prf::Aes128Cmac,
    xml_ike: &["AES-CMAC", "AES_CMAC", "AES-CMAC-96", "AES_CMAC_96"],
    xml_esp: &["AES-CMAC-96", "AES_CMAC_96", "AES-CMAC"],
    xml_ah: &["AH_AES_CMAC"],
    strongswan: &["aescmac"],
    libreswan: &["aes_cmac", "aes_cmac_96"],
    openiked: None,
    kernel: "cmac(aes)",
    wireshark_esp: None,
    wireshark_ike: None,
    key_len: 16,
    icv_len: 12,
    weak: false,
    instructions: Instructions::Aes,
};

rows! {
    Integrity, IntegrityRow {
        HmacMd5_96 => HMAC_MD5_96,
        HmacSha1_96 => HMAC_SHA1_96,
        HmacSha2_256_128 => HMAC_SHA2_256_128,
        HmacSha2_384_192 => HMAC_SHA2_384_192,
        HmacSha2_512_256 => HMAC_SHA2_512_256,
        AesXcbc96 => AES_XCBC_96,
        AesCmac96 => AES_CMAC_96,
    }
}
