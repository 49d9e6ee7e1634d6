//! Integrity algorithms of AH: those of ESP, and AES-GMAC, which has a transform for each length of key (RFC 4543 §5.3).

use crate::integrity::Integrity;
use crate::key::KeyBits;
use std::fmt;

/// Integrity of AH (transform type 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AhIntegrity {
    /// AUTH_AES_128_GMAC to AUTH_AES_256_GMAC (RFC 4543), which AH alone has.
    AesGmac(KeyBits),
    /// A MAC that ESP has as well.
    Mac(Integrity),
}

/// An integrity algorithm of AH.
#[derive(Clone, Copy, Debug)]
pub struct AhRow {
    /// Its name in logs, reports and JSON.
    pub name: &'static str,
    /// IANA's name of the transform.
    pub iana: &'static str,
    /// IANA's number of the transform.
    pub number: u16,
    /// Words of AIX_VPN in `AH_Authentication`; the first is written.
    pub xml: &'static [&'static str],
    /// True if RFC 8221 forbids it.
    pub weak: bool,
}

impl AhIntegrity {
    /// Every value.
    pub fn all() -> impl Iterator<Item = Self> {
        let gmac = KeyBits::ALL.into_iter().rev().map(Self::AesGmac);
        gmac.chain(Integrity::ALL.into_iter().map(Self::Mac))
    }

    /// Everything that is known about it.
    pub const fn row(self) -> AhRow {
        match self {
            Self::Mac(integrity) => {
                let row = integrity.row();
                AhRow {
                    name: row.name,
                    iana: row.iana,
                    number: row.number,
                    xml: row.xml_ah,
                    weak: row.weak,
                }
            }
            Self::AesGmac(KeyBits::B256) => AES_GMAC_256,
            Self::AesGmac(KeyBits::B192) => AES_GMAC_192,
            Self::AesGmac(KeyBits::B128) => AES_GMAC_128,
        }
    }

    /// Returns `true` if RFC 8221 forbids it: only peers without anything better need it.
    pub const fn is_weak(self) -> bool {
        self.row().weak
    }
}

const AES_GMAC_256: AhRow = AhRow {
    name: "AES-GMAC-256",
    iana: "AUTH_AES_256_GMAC",
    number: 11,
    xml: &["AH_AES_256_GMAC", "AH_AES256_GMAC"],
    weak: false,
};

const AES_GMAC_192: AhRow = AhRow {
    name: "AES-GMAC-192",
    iana: "AUTH_AES_192_GMAC",
    number: 10,
    xml: &["AH_AES_192_GMAC", "AH_AES192_GMAC"],
    ..AES_GMAC_256
};

const AES_GMAC_128: AhRow = AhRow {
    name: "AES-GMAC-128",
    iana: "AUTH_AES_128_GMAC",
    number: 9,
    xml: &["AH_AES_128_GMAC", "AH_AES128_GMAC"],
    ..AES_GMAC_256
};

impl fmt::Display for AhIntegrity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().name)
    }
}
