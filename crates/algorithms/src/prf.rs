//! Pseudorandom functions of the IKE SA (IANA, IKEv2 transform type 2).
//!
//! The lists of a row have the word first that is written; the others are read.

use crate::integrity::Integrity;

/// Pseudorandom function (transform type 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Prf {
    /// PRF_HMAC_MD5; weak, only where the policy names it.
    HmacMd5,
    /// PRF_HMAC_SHA1.
    HmacSha1,
    /// PRF_HMAC_SHA2_256.
    HmacSha2_256,
    /// PRF_HMAC_SHA2_384.
    HmacSha2_384,
    /// PRF_HMAC_SHA2_512.
    HmacSha2_512,
    /// PRF_AES128_XCBC (RFC 4434).
    Aes128Xcbc,
    /// PRF_AES128_CMAC (RFC 4615).
    Aes128Cmac,
}

impl Prf {
    /// The PRF of the same hash function or cipher as an integrity algorithm.
    pub const fn of(integrity: Integrity) -> Self {
        integrity.row().prf
    }

    /// Returns `true` if RFC 8247 forbids it: only peers without anything better need it.
    pub const fn is_weak(self) -> bool {
        self.row().weak
    }
}

/// A PRF.
#[derive(Clone, Copy, Debug)]
pub struct PrfRow {
    /// Its name in logs, reports and JSON.
    pub name: &'static str,
    /// IANA's name of the transform.
    pub iana: &'static str,
    /// IANA's number of the transform.
    pub number: u16,
    /// Words of AIX_VPN in `IKE_PRF`.
    pub xml: &'static [&'static str],
    /// Words in proposals of swanctl.conf and ipsec.conf. Libreswan has none: it takes the PRF of the integrity
    /// algorithm.
    pub strongswan: &'static [&'static str],
    /// The word behind `prf` in iked.conf of OpenIKED.
    pub openiked: Option<&'static str>,
    /// True if RFC 8247 forbids it.
    pub weak: bool,
}

const HMAC_MD5: PrfRow = PrfRow {
    name: "PRF-HMAC-MD5",
    iana: "PRF_HMAC_MD5",
    number: 1,
    xml: &["PRF_HMAC_MD5"],
    strongswan: &["prfmd5"],
    openiked: Some("hmac-md5"),
    weak: true,
};

const HMAC_SHA1: PrfRow = PrfRow {
    name: "PRF-HMAC-SHA1",
    iana: "PRF_HMAC_SHA1",
    number: 2,
    xml: &["PRF_HMAC_SHA1"],
    strongswan: &["prfsha1"],
    openiked: Some("hmac-sha1"),
    weak: false,
};

const HMAC_SHA2_256: PrfRow = PrfRow {
    name: "PRF-HMAC-SHA2-256",
    iana: "PRF_HMAC_SHA2_256",
    number: 5,
    xml: &["PRF_HMAC_SHA2_256", "PRF_SHA2_256"],
    strongswan: &["prfsha256"],
    openiked: Some("hmac-sha2-256"),
    weak: false,
};

const HMAC_SHA2_384: PrfRow = PrfRow {
    name: "PRF-HMAC-SHA2-384",
    iana: "PRF_HMAC_SHA2_384",
    number: 6,
    xml: &["PRF_HMAC_SHA2_384", "PRF_SHA2_384"],
    strongswan: &["prfsha384"],
    openiked: Some("hmac-sha2-384"),
    weak: false,
};

const HMAC_SHA2_512: PrfRow = PrfRow {
    name: "PRF-HMAC-SHA2-512",
    iana: "PRF_HMAC_SHA2_512",
    number: 7,
    xml: &["PRF_HMAC_SHA2_512", "PRF_SHA2_512"],
    strongswan: &["prfsha512"],
    openiked: Some("hmac-sha2-512"),
    weak: false,
};

const AES128_XCBC: PrfRow = PrfRow {
    name: "PRF-AES128-XCBC",
    iana: "PRF_AES128_XCBC",
    number: 4,
    xml: &["PRF_AES128_XCBC"],
    strongswan: &["prfaesxcbc"],
    openiked: None,
    weak: false,
};

const AES128_CMAC: PrfRow = PrfRow {
    name: "PRF-AES128-CMAC",
    iana: "PRF_AES128_CMAC",
    number: 8,
    xml: &["PRF_AES128_CMAC"],
    strongswan: &["prfaescmac"],
    openiked: None,
    weak: false,
};

rows! {
    Prf, PrfRow {
        HmacMd5 => HMAC_MD5,
        HmacSha1 => HMAC_SHA1,
        HmacSha2_256 => HMAC_SHA2_256,
        HmacSha2_384 => HMAC_SHA2_384,
        HmacSha2_512 => HMAC_SHA2_512,
        Aes128Xcbc => AES128_XCBC,
        Aes128Cmac => AES128_CMAC,
    }
}
