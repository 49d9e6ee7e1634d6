//! The words for values: the other direction of the reader's tables. Each value has the first of its words.

use super::algorithm::{
    AH_INTEGRITY, ESP_AUTHENTICATION, ESP_ENCRYPTION, IKE_ENCRYPTION, IKE_HASH, IKE_PRF,
};
use super::value::{ROLE, Word};
use crate::{AhIntegrity, EspEncryption, Group, Integrity, Role};
use std::fmt::Display;

fn word<T: Copy + PartialEq>(words: &[Word<T>], value: T) -> Option<&'static str> {
    words.iter().find(|(_, meaning)| *meaning == Ok(value)).map(|(word, _)| *word)
}

pub(crate) fn role(role: Role) -> &'static str {
    word(ROLE, role).expect("every role has a word")
}

pub(crate) fn esp_encryption(encryption: EspEncryption) -> Option<&'static str> {
    word(&ESP_ENCRYPTION, encryption)
}

pub(crate) fn esp_authentication(integrity: Option<Integrity>) -> Option<&'static str> {
    word(&ESP_AUTHENTICATION, integrity)
}

pub(crate) fn ah_integrity(integrity: AhIntegrity) -> Option<&'static str> {
    word(&AH_INTEGRITY, integrity)
}

/// The word that an attribute of a policy has for an algorithm, by the name under which operators see it:
/// `ESP_AES256_GCM_16` for `AES-GCM-16-256` in `ESP_Encryption`.
///
/// `None` if the attribute is none of an algorithm, or has no word for this one.
///
/// ```
/// assert_eq!(policy::xml::word_for("IKE_DHGroup", "ECP-256").as_deref(), Some("19"));
/// assert_eq!(policy::xml::word_for("IKE_Hash", "HMAC-SHA2-256-128").as_deref(), Some("HMAC_SHA2_256"));
/// assert_eq!(policy::xml::word_for("ESP_Authentication", "none").as_deref(), Some("NONE"));
/// ```
pub fn word_for(attribute: &str, shown: &str) -> Option<String> {
    fn named<T: Copy + Display>(words: &[Word<T>], shown: &str) -> Option<&'static str> {
        words
            .iter()
            .find(|(_, meaning)| meaning.is_ok_and(|m| m.to_string() == shown))
            .map(|(word, _)| *word)
    }

    let word = match attribute {
        "IKE_Encryption" => named(&IKE_ENCRYPTION, shown),
        "IKE_Hash" => named(&IKE_HASH, shown),
        "IKE_PRF" => named(&IKE_PRF, shown),
        "ESP_Encryption" => named(&ESP_ENCRYPTION, shown),
        "ESP_Authentication" => {
            let mut words = ESP_AUTHENTICATION.iter();
            words
                .find(|(_, meaning)| {
                    meaning.is_ok_and(|integrity| match integrity {
                        Some(integrity) => integrity.to_string() == shown,
                        None => shown == "none",
                    })
                })
                .map(|(word, _)| *word)
        }
        "AH_Authentication" => named(&AH_INTEGRITY, shown),
        "ESP_ExtendedSeqNum" | "AH_ExtendedSeqNum" => match shown {
            "ESN" => Some("1"),
            "no ESN" => Some("0"),
            _ => None,
        },
        "IKE_DHGroup" | "IPSec_InitiatorDHGroup" | "IPSec_ResponderDHGroup" => {
            let group = Group::ALL.into_iter().find(|group| group.to_string() == shown)?;
            return Some(group.row().number.to_string());
        }
        _ => None,
    };
    word.map(str::to_owned)
}
