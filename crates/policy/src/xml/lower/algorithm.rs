//! The file's words for algorithms. The registry of algorithms has them.

use super::context::Context;
use super::value::Word;
use crate::wording::{nearest, quoted};
use crate::xml::element::{Attribute, Element};
use crate::xml::options::Algorithm;
use crate::{AhIntegrity, EspEncryption, Group, IkeEncryption, Integrity, Prf, is_built};
use std::sync::LazyLock;

const WEAK_CIPHER: &str = "it is too weak; use AES-CBC-256 or AES-GCM-16-256 on both sides";

/// The advice on a cipher that only builds with the feature `legacy` have.
const LEGACY_CIPHER: &str = "it is too weak; use ESP_AES256_GCM_16 on both sides, or, for a peer that has nothing better, \
                             a vpnd that is built with --features legacy";

pub(super) static IKE_ENCRYPTION: LazyLock<Vec<Word<IkeEncryption>>> = LazyLock::new(|| {
    // CBC, which every peer has, is named first.
    let all = sorted(IkeEncryption::all(), |encryption| encryption.is_aead());
    let mut words = words(all, |encryption| encryption.row().xml_ike);
    words.extend([("3DES-CBC", Err(WEAK_CIPHER)), ("DES-CBC", Err(WEAK_CIPHER))]);
    words
});

pub(super) static IKE_HASH: LazyLock<Vec<Word<Integrity>>> =
    LazyLock::new(|| words(macs(), |integrity| integrity.row().xml_ike));

pub(super) static IKE_PRF: LazyLock<Vec<Word<Prf>>> =
    LazyLock::new(|| words(sorted(Prf::ALL, Prf::is_weak), |prf| prf.row().xml));

pub(super) static ESP_ENCRYPTION: LazyLock<Vec<Word<EspEncryption>>> = LazyLock::new(|| {
    let all = sorted(EspEncryption::ALL, |encryption| (encryption.is_weak(), !encryption.hides()));
    let mut words = words(all, |encryption| encryption.row().xml_esp);
    for (_, meaning) in &mut words {
        if meaning.is_ok_and(|encryption| !is_built(encryption)) {
            *meaning = Err(LEGACY_CIPHER);
        }
    }
    words
});

pub(super) static ESP_AUTHENTICATION: LazyLock<Vec<Word<Option<Integrity>>>> =
    LazyLock::new(|| {
        let all = [None].into_iter().chain(macs().into_iter().map(Some));
        words(all, |integrity| integrity.map_or(&["NONE"], |integrity| integrity.row().xml_esp))
    });

pub(super) static AH_INTEGRITY: LazyLock<Vec<Word<AhIntegrity>>> = LazyLock::new(|| {
    words(sorted(AhIntegrity::all(), AhIntegrity::is_weak), |integrity| integrity.row().xml)
});

/// Weak ones are named last.
fn macs() -> Vec<Integrity> {
    sorted(Integrity::ALL, Integrity::is_weak)
}

/// Values in the order in which messages name them.
fn sorted<T: Copy, K: Ord>(values: impl IntoIterator<Item = T>, key: impl Fn(T) -> K) -> Vec<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort_by_key(|value| key(*value));
    values
}

/// Each value with each of its words.
fn words<T: Copy>(
    values: impl IntoIterator<Item = T>,
    words: impl Fn(T) -> &'static [&'static str],
) -> Vec<Word<T>> {
    values
        .into_iter()
        .flat_map(|value| words(value).iter().map(move |word| (*word, Ok(value))))
        .collect()
}

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
        if number == Some(0) {
            return Some(None);
        }
        let group = number.and_then(Group::of_number);
        let span = attribute.part(element, value);
        let Some(group) = group else {
            let (message, help) = match number {
                // RFC 8247 §2.4: MUST NOT for 1 and 22, SHOULD NOT for 23.
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
