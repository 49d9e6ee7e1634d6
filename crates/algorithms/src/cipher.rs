//! Ciphers of ESP and of the IKE SA (IANA, IKEv2 transform type 1).
//!
//! A new cipher needs its value in [`EspEncryption`], its row, and the line at the end that gives the value its row. If
//! the IKE SA may have it, [`IkeEncryption`] needs a value, too. The lists of a row have the word first that is written;
//! the others are read.

use crate::key::{DesKeys, Instructions, KeyBits};
use std::fmt;

/// Encryption of the IKE SA (transform type 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IkeEncryption {
    /// ENCR_AES_CBC (RFC 3602), needs an integrity transform.
    AesCbc(KeyBits),
    /// ENCR_AES_GCM with a 16-octet ICV (RFC 5282).
    AesGcm16(KeyBits),
    /// ENCR_CHACHA20_POLY1305 (RFC 7634).
    ChaCha20Poly1305,
}

impl IkeEncryption {
    /// Every value.
    pub fn all() -> impl Iterator<Item = Self> {
        EspEncryption::ALL.into_iter().filter_map(|encryption| encryption.row().ike)
    }

    /// The same cipher in ESP.
    pub const fn in_esp(self) -> EspEncryption {
        match self {
            Self::AesCbc(bits) => EspEncryption::AesCbc(bits),
            Self::AesGcm16(bits) => EspEncryption::AesGcm16(bits),
            Self::ChaCha20Poly1305 => EspEncryption::ChaCha20Poly1305,
        }
    }

    /// Everything that is known about it.
    pub const fn row(self) -> &'static CipherRow {
        self.in_esp().row()
    }

    /// Returns `true` if it protects integrity itself.
    pub const fn is_aead(self) -> bool {
        self.row().icv_len.is_some()
    }
}

impl fmt::Display for IkeEncryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().name)
    }
}

/// Encryption of ESP (transform type 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EspEncryption {
    /// ENCR_AES_GCM with a 16-octet ICV (RFC 4106).
    AesGcm16(KeyBits),
    /// ENCR_NULL_AUTH_AES_GMAC (RFC 4543): integrity without secrecy.
    AesGmac(KeyBits),
    /// ENCR_AES_CBC (RFC 3602), needs an integrity transform.
    AesCbc(KeyBits),
    /// ENCR_DES and ENCR_3DES in CBC mode, need an integrity transform; weak, only where the policy names them and the
    /// build has the feature `legacy`.
    DesCbc(DesKeys),
    /// ENCR_CHACHA20_POLY1305 (RFC 7634).
    ChaCha20Poly1305,
    /// ENCR_NULL (RFC 2410): no secrecy; needs an integrity transform.
    Null,
}

impl EspEncryption {
    /// Returns `true` if it protects integrity itself.
    pub const fn is_aead(self) -> bool {
        self.row().icv_len.is_some()
    }

    /// Returns `true` if it keeps the traffic secret: without that, everybody on the way can read it.
    pub const fn hides(self) -> bool {
        self.row().hides
    }

    /// Returns `true` if RFC 8221 forbids it or advises against it: only peers without anything better need it.
    pub const fn is_weak(self) -> bool {
        self.row().weak.is_some()
    }
}

/// The name by which an operator chooses the provider of all suites that protect integrity with a MAC alone.
pub const MAC_CHOICE: &str = "mac";

/// Every name by which an operator chooses a provider, in the order of reports: those of ciphers, shorter keys first, and
/// [`MAC_CHOICE`].
pub fn choices() -> impl Iterator<Item = &'static str> {
    let mut ciphers = EspEncryption::ALL;
    ciphers.sort();
    ciphers.into_iter().filter_map(|cipher| cipher.row().choice).chain([MAC_CHOICE])
}

/// The IV that a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Iv {
    /// No IV.
    None,
    /// It must be unique, as the sequence number is (RFC 4106 §3.1, RFC 4543 §3.1, RFC 7634 §2). One that is used twice
    /// with a key reveals the plaintext, and lets others forge packets.
    Unique,
    /// It must be unpredictable (RFC 3602 §3, RFC 2451 §3).
    Random,
}

/// A cipher with keys of one length.
#[derive(Clone, Copy, Debug)]
pub struct CipherRow {
    /// Its name in logs, reports and JSON.
    pub name: &'static str,
    /// Its name where it is measured and counted beside other functions of the crypto providers.
    pub function: &'static str,
    /// The name by which an operator chooses its provider; `None`: only one provider has it.
    pub choice: Option<&'static str>,
    /// IANA's name of the transform.
    pub iana: &'static str,
    /// IANA's number of the transform.
    pub number: u16,
    /// The transform's attribute Key Length. `None`: all keys have one length, and there is no attribute (RFC 7296
    /// §3.3.5).
    pub key_length: Option<KeyBits>,
    /// The value for the IKE SA; `None`: it is for ESP alone.
    pub ike: Option<IkeEncryption>,
    /// Words of AIX_VPN in `ESP_Encryption`.
    pub xml_esp: &'static [&'static str],
    /// Words of AIX_VPN in `IKE_Encryption`.
    pub xml_ike: &'static [&'static str],
    /// Words in `proposals` and `esp_proposals` of swanctl.conf, and in `ike` and `esp` of ipsec.conf.
    pub strongswan: &'static [&'static str],
    /// Further words in libreswan's ipsec.conf. The length of the key may follow; without it, a word means both 128 and
    /// 256 bits.
    pub libreswan: &'static [&'static str],
    /// The word behind `enc` in iked.conf of OpenIKED, which has some for `childsa` only.
    pub openiked: Option<&'static str>,
    /// The kernel's names. `ip xfrm` has them behind `aead` if the cipher has an ICV, otherwise behind `enc`.
    pub kernel: &'static [&'static str],
    /// The name in Wireshark's table for ESP; `None`: not every version that is in use has one.
    pub wireshark_esp: Option<&'static str>,
    /// The name in Wireshark's table for IKE.
    pub wireshark_ike: Option<&'static str>,
    /// Octets of the key.
    pub key_len: usize,
    /// Octets of the salt behind the key, which is the constant part of the nonce.
    pub salt_len: usize,
    /// The kind of its IV.
    pub iv: Iv,
    /// Octets of the IV that travels in the packet.
    pub iv_len: usize,
    /// Octets to which the cipher itself aligns the plaintext with its padding.
    pub block_len: usize,
    /// Octets of its ICV; `None`: it needs an integrity algorithm.
    pub icv_len: Option<usize>,
    /// True if it keeps the traffic secret.
    pub hides: bool,
    /// The reason why it is weak. Weak ones need the feature `legacy`.
    pub weak: Option<&'static str>,
    /// The processor's instructions for it.
    pub instructions: Instructions,
}

const AES_GCM_256: CipherRow = CipherRow {
    name: "AES-GCM-16-256",
    function: "AES-GCM-256",
    choice: Some("aes-gcm-256"),
    iana: "ENCR_AES_GCM_16",
    number: 20,
    key_length: Some(KeyBits::B256),
    ike: Some(IkeEncryption::AesGcm16(KeyBits::B256)),
    xml_esp: &["ESP_AES256_GCM_16"],
    xml_ike: &["AES-GCM-16-256"],
    strongswan: &["aes256gcm16", "aes256gcm128", "aes_gcm256", "aes_gcm"],
    libreswan: &["aes_gcm", "aes_gcm_16", "aes_gcm_c"],
    openiked: Some("aes-256-gcm"),
    kernel: &["rfc4106(gcm(aes))"],
    wireshark_esp: Some("AES-GCM with 16 octet ICV [RFC4106]"),
    wireshark_ike: Some("AES-GCM-256 with 16 octet ICV [RFC5282]"),
    key_len: KeyBits::B256.octets(),
    salt_len: 4,
    iv: Iv::Unique,
    iv_len: 8,
    block_len: 1,
    icv_len: Some(16),
    hides: true,
    weak: None,
    instructions: Instructions::AesGcm,
};

const AES_GCM_192: CipherRow = CipherRow {
    name: "AES-GCM-16-192",
    function: "AES-GCM-192",
    choice: Some("aes-gcm-192"),
    key_length: Some(KeyBits::B192),
    ike: Some(IkeEncryption::AesGcm16(KeyBits::B192)),
    xml_esp: &["ESP_AES192_GCM_16"],
    xml_ike: &["AES-GCM-16-192"],
    strongswan: &["aes192gcm16", "aes192gcm128"],
    openiked: Some("aes-192-gcm"),
    wireshark_ike: Some("AES-GCM-192 with 16 octet ICV [RFC5282]"),
    key_len: KeyBits::B192.octets(),
    ..AES_GCM_256
};

const AES_GCM_128: CipherRow = CipherRow {
    name: "AES-GCM-16-128",
    function: "AES-GCM-128",
    choice: Some("aes-gcm-128"),
    key_length: Some(KeyBits::B128),
    ike: Some(IkeEncryption::AesGcm16(KeyBits::B128)),
    xml_esp: &["ESP_AES128_GCM_16"],
    xml_ike: &["AES-GCM-16-128"],
    strongswan: &["aes128gcm16", "aes128gcm128", "aes_gcm128"],
    openiked: Some("aes-128-gcm"),
    wireshark_ike: Some("AES-GCM-128 with 16 octet ICV [RFC5282]"),
    key_len: KeyBits::B128.octets(),
    ..AES_GCM_256
};

const AES_GMAC_256: CipherRow = CipherRow {
    name: "NULL-AUTH-AES-GMAC-256",
    function: "AES-GMAC-256",
    choice: Some("aes-gmac-256"),
    iana: "ENCR_NULL_AUTH_AES_GMAC",
    number: 21,
    key_length: Some(KeyBits::B256),
    ike: None,
    xml_esp: &["ESP_AES256_GMAC"],
    xml_ike: &[],
    strongswan: &["aes256gmac"],
    libreswan: &["aes_gmac", "null_auth_aes_gmac"],
    openiked: Some("aes-256-gmac"),
    kernel: &["rfc4543(gcm(aes))"],
    wireshark_esp: None,
    wireshark_ike: None,
    key_len: KeyBits::B256.octets(),
    salt_len: 4,
    iv: Iv::Unique,
    iv_len: 8,
    block_len: 1,
    icv_len: Some(16),
    hides: false,
    weak: None,
    instructions: Instructions::AesGcm,
};

const AES_GMAC_192: CipherRow = CipherRow {
    name: "NULL-AUTH-AES-GMAC-192",
    function: "AES-GMAC-192",
    choice: Some("aes-gmac-192"),
    key_length: Some(KeyBits::B192),
    xml_esp: &["ESP_AES192_GMAC"],
    strongswan: &["aes192gmac"],
    openiked: Some("aes-192-gmac"),
    key_len: KeyBits::B192.octets(),
    ..AES_GMAC_256
};

const AES_GMAC_128: CipherRow = CipherRow {
    name: "NULL-AUTH-AES-GMAC-128",
    function: "AES-GMAC-128",
    choice: Some("aes-gmac-128"),
    key_length: Some(KeyBits::B128),
    xml_esp: &["ESP_AES128_GMAC"],
    strongswan: &["aes128gmac"],
    openiked: Some("aes-128-gmac"),
    key_len: KeyBits::B128.octets(),
    ..AES_GMAC_256
};

const AES_CBC_256: CipherRow = CipherRow {
    name: "AES-CBC-256",
    function: "AES-CBC-256",
    choice: Some("aes-cbc-256"),
    iana: "ENCR_AES_CBC",
    number: 12,
    key_length: Some(KeyBits::B256),
    ike: Some(IkeEncryption::AesCbc(KeyBits::B256)),
    xml_esp: &["ESP_AES_CBC_256", "ESP_AES_256", "ESP_AES256_CBC", "ESP_AES256"],
    xml_ike: &["AES-CBC-256"],
    strongswan: &["aes256"],
    libreswan: &["aes", "aes_cbc"],
    openiked: Some("aes-256"),
    kernel: &["cbc(aes)"],
    wireshark_esp: Some("AES-CBC [RFC3602]"),
    wireshark_ike: Some("AES-CBC-256 [RFC3602]"),
    key_len: KeyBits::B256.octets(),
    salt_len: 0,
    iv: Iv::Random,
    iv_len: 16,
    block_len: 16,
    icv_len: None,
    hides: true,
    weak: None,
    instructions: Instructions::Aes,
};

const AES_CBC_192: CipherRow = CipherRow {
    name: "AES-CBC-192",
    function: "AES-CBC-192",
    choice: Some("aes-cbc-192"),
    key_length: Some(KeyBits::B192),
    ike: Some(IkeEncryption::AesCbc(KeyBits::B192)),
    xml_esp: &["ESP_AES_CBC_192", "ESP_AES_192", "ESP_AES192_CBC", "ESP_AES192"],
    xml_ike: &["AES-CBC-192"],
    strongswan: &["aes192"],
    openiked: Some("aes-192"),
    wireshark_ike: Some("AES-CBC-192 [RFC3602]"),
    key_len: KeyBits::B192.octets(),
    ..AES_CBC_256
};

const AES_CBC_128: CipherRow = CipherRow {
    name: "AES-CBC-128",
    function: "AES-CBC-128",
    choice: Some("aes-cbc-128"),
    key_length: Some(KeyBits::B128),
    ike: Some(IkeEncryption::AesCbc(KeyBits::B128)),
    xml_esp: &["ESP_AES_CBC_128", "ESP_AES_128", "ESP_AES128_CBC", "ESP_AES128"],
    xml_ike: &["AES-CBC-128"],
    strongswan: &["aes128", "aes"],
    openiked: Some("aes-128"),
    wireshark_ike: Some("AES-CBC-128 [RFC3602]"),
    key_len: KeyBits::B128.octets(),
    ..AES_CBC_256
};

const TRIPLE_DES_CBC: CipherRow = CipherRow {
    name: "3DES-CBC",
    function: "3DES-CBC",
    choice: None,
    iana: "ENCR_3DES",
    number: 3,
    key_length: None,
    ike: None,
    xml_esp: &["ESP_3DES"],
    xml_ike: &[],
    strongswan: &["3des"],
    libreswan: &["3des_cbc"],
    openiked: Some("3des"),
    kernel: &["cbc(des3_ede)"],
    wireshark_esp: None,
    wireshark_ike: None,
    key_len: DesKeys::Three.octets(),
    salt_len: 0,
    iv: Iv::Random,
    iv_len: 8,
    block_len: 8,
    icv_len: None,
    hides: true,
    weak: Some("blocks of 64 bits repeat"),
    instructions: Instructions::None,
};

const DES_CBC: CipherRow = CipherRow {
    name: "DES-CBC",
    function: "DES-CBC",
    iana: "ENCR_DES",
    number: 2,
    xml_esp: &["ESP_DES"],
    strongswan: &["des"],
    libreswan: &["des_cbc"],
    openiked: None,
    kernel: &["cbc(des)"],
    key_len: DesKeys::One.octets(),
    weak: Some("key of 56 bits is found by trying all"),
    ..TRIPLE_DES_CBC
};

const CHACHA20_POLY1305: CipherRow = CipherRow {
    name: "CHACHA20-POLY1305",
    function: "ChaCha20-Poly1305",
    choice: Some("chacha20-poly1305"),
    iana: "ENCR_CHACHA20_POLY1305",
    number: 28,
    key_length: None,
    ike: Some(IkeEncryption::ChaCha20Poly1305),
    xml_esp: &["ESP_CHACHA20_POLY1305"],
    xml_ike: &["CHACHA20-POLY1305"],
    strongswan: &["chacha20poly1305", "chacha20_poly1305"],
    libreswan: &[],
    openiked: Some("chacha20-poly1305"),
    kernel: &["rfc7539esp(chacha20,poly1305)"],
    wireshark_esp: None,
    wireshark_ike: None,
    key_len: 32,
    salt_len: 4,
    iv: Iv::Unique,
    iv_len: 8,
    block_len: 1,
    icv_len: Some(16),
    hides: true,
    weak: None,
    instructions: Instructions::None,
};

const NULL: CipherRow = CipherRow {
    name: "NULL",
    function: "NULL",
    choice: None,
    iana: "ENCR_NULL",
    number: 11,
    key_length: None,
    ike: None,
    xml_esp: &["ESP_NULL"],
    xml_ike: &[],
    strongswan: &["null"],
    libreswan: &[],
    openiked: Some("null"),
    kernel: &["ecb(cipher_null)", "cipher_null"],
    wireshark_esp: Some("NULL"),
    wireshark_ike: None,
    key_len: 0,
    salt_len: 0,
    iv: Iv::None,
    iv_len: 0,
    block_len: 1,
    icv_len: None,
    hides: false,
    weak: None,
    instructions: Instructions::None,
};

// The order of kinds is that of reports. Of one kind, the longest key is the preferred one.
rows! {
    EspEncryption, CipherRow {
        AesGcm16(KeyBits::B256) => AES_GCM_256,
        AesGcm16(KeyBits::B192) => AES_GCM_192,
        AesGcm16(KeyBits::B128) => AES_GCM_128,
        AesGmac(KeyBits::B256) => AES_GMAC_256,
        AesGmac(KeyBits::B192) => AES_GMAC_192,
        AesGmac(KeyBits::B128) => AES_GMAC_128,
        AesCbc(KeyBits::B256) => AES_CBC_256,
        AesCbc(KeyBits::B192) => AES_CBC_192,
        AesCbc(KeyBits::B128) => AES_CBC_128,
        DesCbc(DesKeys::Three) => TRIPLE_DES_CBC,
        DesCbc(DesKeys::One) => DES_CBC,
        ChaCha20Poly1305 => CHACHA20_POLY1305,
        Null => NULL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_of_the_ike_sa_has_the_row_that_names_it() {
        for encryption in EspEncryption::ALL {
            let row = encryption.row();
            assert_eq!(row.ike.map(IkeEncryption::in_esp), row.ike.map(|_| encryption));
            assert_eq!(row.ike.is_some(), !row.xml_ike.is_empty(), "{encryption}");
        }
        assert_eq!(IkeEncryption::all().count(), 7);
    }

    #[test]
    fn a_key_length_is_that_of_the_key() {
        for row in EspEncryption::ALL.map(EspEncryption::row) {
            let bits = row.key_length.map_or(row.key_len, KeyBits::octets);
            assert_eq!(bits, row.key_len, "{}", row.name);
            assert_eq!(row.iv == Iv::None, row.iv_len == 0, "{}", row.name);
        }
    }
}
