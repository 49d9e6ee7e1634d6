//! The file's words for algorithms.

use super::context::Context;
use super::value::Word;
#[cfg(feature = "legacy")]
use crate::DesKeys;
use crate::wording::{nearest, quoted};
use crate::xml::element::{Attribute, Element};
use crate::xml::options::Algorithm;
use crate::{AhIntegrity, EspEncryption, Group, IkeEncryption, Integrity, KeyBits, Prf};

use KeyBits::{B128, B192, B256};

const WEAK_CIPHER: &str = "it is too weak; use AES-CBC-256 or AES-GCM-16-256 on both sides";

/// Triple DES and DES, where they are built in.
#[cfg(feature = "legacy")]
const LEGACY_ESP: [Result<EspEncryption, &str>; 2] =
    [Ok(EspEncryption::DesCbc(DesKeys::Three)), Ok(EspEncryption::DesCbc(DesKeys::One))];
#[cfg(not(feature = "legacy"))]
const LEGACY_ESP: [Result<EspEncryption, &str>; 2] = [Err(
    "it is too weak; use ESP_AES256_GCM_16 on both sides, or, for a peer that has nothing better, a vpnd that is built \
     with --features legacy",
); 2];

pub(super) const IKE_ENCRYPTION: &[Word<IkeEncryption>] = &[
    ("AES-CBC-256", Ok(IkeEncryption::AesCbc(B256))),
    ("AES-CBC-192", Ok(IkeEncryption::AesCbc(B192))),
    ("AES-CBC-128", Ok(IkeEncryption::AesCbc(B128))),
    ("AES-GCM-16-256", Ok(IkeEncryption::AesGcm16(B256))),
    ("AES-GCM-16-192", Ok(IkeEncryption::AesGcm16(B192))),
    ("AES-GCM-16-128", Ok(IkeEncryption::AesGcm16(B128))),
    ("CHACHA20-POLY1305", Ok(IkeEncryption::ChaCha20Poly1305)),
    ("3DES-CBC", Err(WEAK_CIPHER)),
    ("DES-CBC", Err(WEAK_CIPHER)),
];

pub(super) const IKE_HASH: &[Word<Integrity>] = &[
    ("SHA", Ok(Integrity::HmacSha1_96)),
    ("HMAC_SHA2_256", Ok(Integrity::HmacSha2_256_128)),
    ("HMAC_SHA2_384", Ok(Integrity::HmacSha2_384_192)),
    ("HMAC_SHA2_512", Ok(Integrity::HmacSha2_512_256)),
    ("SHA2_256", Ok(Integrity::HmacSha2_256_128)),
    ("SHA2_384", Ok(Integrity::HmacSha2_384_192)),
    ("SHA2_512", Ok(Integrity::HmacSha2_512_256)),
    ("SHA2-256", Ok(Integrity::HmacSha2_256_128)),
    ("SHA2-384", Ok(Integrity::HmacSha2_384_192)),
    ("SHA2-512", Ok(Integrity::HmacSha2_512_256)),
    ("CMAC_AES_XCBC", Ok(Integrity::AesXcbc96)),
    ("AES-XCBC", Ok(Integrity::AesXcbc96)),
    ("AES_XCBC", Ok(Integrity::AesXcbc96)),
    ("AES-XCBC-MAC-96", Ok(Integrity::AesXcbc96)),
    ("AES_XCBC_MAC_96", Ok(Integrity::AesXcbc96)),
    ("AES-CMAC", Ok(Integrity::AesCmac96)),
    ("AES_CMAC", Ok(Integrity::AesCmac96)),
    ("AES-CMAC-96", Ok(Integrity::AesCmac96)),
    ("AES_CMAC_96", Ok(Integrity::AesCmac96)),
    ("MD5", Ok(Integrity::HmacMd5_96)),
];

pub(super) const IKE_PRF: &[Word<Prf>] = &[
    ("PRF_HMAC_SHA1", Ok(Prf::HmacSha1)),
    ("PRF_HMAC_SHA2_256", Ok(Prf::HmacSha2_256)),
    ("PRF_HMAC_SHA2_384", Ok(Prf::HmacSha2_384)),
    ("PRF_HMAC_SHA2_512", Ok(Prf::HmacSha2_512)),
    ("PRF_SHA2_256", Ok(Prf::HmacSha2_256)),
    ("PRF_SHA2_384", Ok(Prf::HmacSha2_384)),
    ("PRF_SHA2_512", Ok(Prf::HmacSha2_512)),
    ("PRF_AES128_XCBC", Ok(Prf::Aes128Xcbc)),
    ("PRF_AES128_CMAC", Ok(Prf::Aes128Cmac)),
    ("PRF_HMAC_MD5", Ok(Prf::HmacMd5)),
];

pub(super) const ESP_ENCRYPTION: &[Word<EspEncryption>] = &[
    ("ESP_AES256_GCM_16", Ok(EspEncryption::AesGcm16(B256))),
    ("ESP_AES192_GCM_16", Ok(EspEncryption::AesGcm16(B192))),
    ("ESP_AES128_GCM_16", Ok(EspEncryption::AesGcm16(B128))),
    ("ESP_AES_CBC_256", Ok(EspEncryption::AesCbc(B256))),
    ("ESP_AES_CBC_192", Ok(EspEncryption::AesCbc(B192))),
    ("ESP_AES_CBC_128", Ok(EspEncryption::AesCbc(B128))),
    ("ESP_AES_256", Ok(EspEncryption::AesCbc(B256))),
    ("ESP_AES_192", Ok(EspEncryption::AesCbc(B192))),
    ("ESP_AES_128", Ok(EspEncryption::AesCbc(B128))),
    ("ESP_AES256_CBC", Ok(EspEncryption::AesCbc(B256))),
    ("ESP_AES192_CBC", Ok(EspEncryption::AesCbc(B192))),
    ("ESP_AES128_CBC", Ok(EspEncryption::AesCbc(B128))),
    ("ESP_AES256", Ok(EspEncryption::AesCbc(B256))),
    ("ESP_AES192", Ok(EspEncryption::AesCbc(B192))),
    ("ESP_AES128", Ok(EspEncryption::AesCbc(B128))),
    ("ESP_CHACHA20_POLY1305", Ok(EspEncryption::ChaCha20Poly1305)),
    ("ESP_AES256_GMAC", Ok(EspEncryption::AesGmac(B256))),
    ("ESP_AES192_GMAC", Ok(EspEncryption::AesGmac(B192))),
    ("ESP_AES128_GMAC", Ok(EspEncryption::AesGmac(B128))),
    ("ESP_NULL", Ok(EspEncryption::Null)),
    ("ESP_3DES", LEGACY_ESP[0]),
    ("ESP_DES", LEGACY_ESP[1]),
];

pub(super) const ESP_AUTHENTICATION: &[Word<Option<Integrity>>] = &[
    ("NONE", Ok(None)),
    ("HMAC-SHA", Ok(Some(Integrity::HmacSha1_96))),
    ("HMAC-SHA1", Ok(Some(Integrity::HmacSha1_96))),
    ("HMAC-SHA2-256", Ok(Some(Integrity::HmacSha2_256_128))),
    ("HMAC-SHA2-384", Ok(Some(Integrity::HmacSha2_384_192))),
    ("HMAC-SHA2-512", Ok(Some(Integrity::HmacSha2_512_256))),
    ("HMAC_SHA2_256", Ok(Some(Integrity::HmacSha2_256_128))),
    ("HMAC_SHA2_384", Ok(Some(Integrity::HmacSha2_384_192))),
    ("HMAC_SHA2_512", Ok(Some(Integrity::HmacSha2_512_256))),
    ("AES-XCBC-MAC-96", Ok(Some(Integrity::AesXcbc96))),
    ("AES_XCBC_MAC_96", Ok(Some(Integrity::AesXcbc96))),
    ("AES-XCBC", Ok(Some(Integrity::AesXcbc96))),
    ("AES-CMAC-96", Ok(Some(Integrity::AesCmac96))),
    ("AES_CMAC_96", Ok(Some(Integrity::AesCmac96))),
    ("AES-CMAC", Ok(Some(Integrity::AesCmac96))),
    ("HMAC-MD5", Ok(Some(Integrity::HmacMd5_96))),
];

pub(super) const AH_INTEGRITY: &[Word<AhIntegrity>] = &[
    ("AH_AES_256_GMAC", Ok(AhIntegrity::AesGmac(B256))),
    ("AH_AES_192_GMAC", Ok(AhIntegrity::AesGmac(B192))),
    ("AH_AES_128_GMAC", Ok(AhIntegrity::AesGmac(B128))),
    ("AH_AES256_GMAC", Ok(AhIntegrity::AesGmac(B256))),
    ("AH_AES192_GMAC", Ok(AhIntegrity::AesGmac(B192))),
    ("AH_AES128_GMAC", Ok(AhIntegrity::AesGmac(B128))),
    ("AH_SHA", Ok(AhIntegrity::Mac(Integrity::HmacSha1_96))),
    ("AH_SHA1", Ok(AhIntegrity::Mac(Integrity::HmacSha1_96))),
    ("AH_SHA2_256", Ok(AhIntegrity::Mac(Integrity::HmacSha2_256_128))),
    ("AH_SHA2_384", Ok(AhIntegrity::Mac(Integrity::HmacSha2_384_192))),
    ("AH_SHA2_512", Ok(AhIntegrity::Mac(Integrity::HmacSha2_512_256))),
    ("HMAC-SHA", Ok(AhIntegrity::Mac(Integrity::HmacSha1_96))),
    ("HMAC-SHA2-256", Ok(AhIntegrity::Mac(Integrity::HmacSha2_256_128))),
    ("HMAC-SHA2-384", Ok(AhIntegrity::Mac(Integrity::HmacSha2_384_192))),
    ("HMAC-SHA2-512", Ok(AhIntegrity::Mac(Integrity::HmacSha2_512_256))),
    ("AH_AES_XCBC_MAC", Ok(AhIntegrity::Mac(Integrity::AesXcbc96))),
    ("AH_AES_XCBC", Ok(AhIntegrity::Mac(Integrity::AesXcbc96))),
    ("AES-XCBC-MAC-96", Ok(AhIntegrity::Mac(Integrity::AesXcbc96))),
    ("AH_AES_CMAC", Ok(AhIntegrity::Mac(Integrity::AesCmac96))),
    ("AH_MD5", Ok(AhIntegrity::Mac(Integrity::HmacMd5_96))),
    ("HMAC-MD5", Ok(AhIntegrity::Mac(Integrity::HmacMd5_96))),
];

/// Groups accepted where the policy names none.
pub(super) const STRONG_GROUPS: &[Group] = &[
    Group::Ecp384,
    Group::Ecp256,
    Group::Curve25519,
    Group::Ecp521,
    Group::Modp2048,
    Group::Modp3072,
    Group::Modp4096,
];

impl Context<'_> {
    /// Reports the caller's advice on an attribute's algorithm.
    pub fn advise(&mut self, element: &Element<'_>, attribute: &str, algorithm: Algorithm) {
        let Some(attribute) = element.attribute(attribute) else { return };
        if let Some(advice) = self.options.advise.and_then(|advise| advise(algorithm)) {
            self.report.warning(attribute.span(element), advice.message, advice.help);
        }
    }

    /// Warns of an attribute's algorithm that is weak.
    pub fn warn_weak(&mut self, element: &Element<'_>, attribute: &str, instead: &str) {
        let Some(attribute) = element.attribute(attribute) else { return };
        let message = format!("{} {} is weak", attribute.name, quoted(attribute.trimmed()));
        let help = format!("use {instead} on both sides");
        self.report.warning(attribute.span(element), message, help);
    }

    /// A group by its number, `19` or `GROUP_19`; the inner `None` is `0`, `NONE` or `NO_PFS`.
    pub fn group(
        &mut self,
        element: &Element<'_>,
        attribute: &Attribute<'_>,
        value: &str,
    ) -> Option<Option<Group>> {
        let upper = value.to_ascii_uppercase();
        if matches!(upper.as_str(), "NO_PFS" | "NONE") {
            return Some(None);
        }
        let digits = upper.strip_prefix("GROUP_").unwrap_or(&upper);
        let number = digits
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| digits.parse::<u16>().ok())
            .flatten();
        let group = match number {
            Some(0) => return Some(None),
            Some(2) => Some(Group::Modp1024),
            Some(5) => Some(Group::Modp1536),
            Some(14) => Some(Group::Modp2048),
            Some(15) => Some(Group::Modp3072),
            Some(16) => Some(Group::Modp4096),
            Some(19) => Some(Group::Ecp256),
            Some(20) => Some(Group::Ecp384),
            Some(21) => Some(Group::Ecp521),
            Some(24) => Some(Group::Modp2048Sub256),
            Some(31) => Some(Group::Curve25519),
            Some(35) => Some(Group::MlKem512),
            Some(36) => Some(Group::MlKem768),
            Some(37) => Some(Group::MlKem1024),
            _ => None,
        };
        let span = attribute.part(element, value);
        let Some(group) = group else {
            let (message, help) = match number {
                Some(1 | 22 | 23) => (
                    format!(
                        "{} {} is not supported: the group is too weak",
                        attribute.name,
                        quoted(value)
                    ),
                    "use 14, 19 or 20 on both sides".to_owned(),
                ),
                _ => (
                    format!("{} cannot be {}", attribute.name, quoted(value)),
                    match nearest(value, ["NO_PFS", "GROUP_14", "GROUP_19", "GROUP_20"]) {
                        Some(near) => format!("did you mean {near:?}?"),
                        None => {
                            "known are 2, 5, 14, 15, 16, 19, 20, 21, 24, 31, and 35 to 37 (ML-KEM)"
                                .to_owned()
                        }
                    },
                ),
            };
            self.report.error(span, message, help);
            return None;
        };
        if group.is_weak() {
            let message = format!(
                "Diffie-Hellman group {} ({group}) is weak",
                digits.trim_start_matches('0')
            );
            self.report.warning(span, message, "use 14, 19 or 20 on both sides");
        }
        Some(Some(group))
    }
}
