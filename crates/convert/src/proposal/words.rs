//! The words of one proposal → lists of algorithms.

use crate::dialect::Dialect;
use crate::finding::Report;
use crate::source::Value;
use policy::{
    AdditionalKe, AhIntegrity, EspEncryption, Group, Integrity, KeyBits, MAX_ADDITIONAL, Prf,
    Protection,
};

use KeyBits::{B128, B192, B256};

/// Keywords in one list, above which it is none that anybody wrote.
const MAX_WORDS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cipher {
    Cbc(KeyBits),
    Gcm(KeyBits),
    ChaCha,
    Gmac(KeyBits),
    Null,
}

impl Cipher {
    pub fn is_aead(self) -> bool {
        matches!(self, Self::Gcm(_) | Self::ChaCha | Self::Gmac(_))
    }
}

#[derive(Clone, Copy)]
enum Word {
    Cipher(Cipher),
    Integrity(Integrity),
    Prf(Prf),
    Group(Group),
    NoGroup,
    Esn(bool),
}

const WORDS: &[(&str, Word)] = &[
    ("aes", Word::Cipher(Cipher::Cbc(B128))),
    ("aes128", Word::Cipher(Cipher::Cbc(B128))),
    ("aes192", Word::Cipher(Cipher::Cbc(B192))),
    ("aes256", Word::Cipher(Cipher::Cbc(B256))),
    ("aes128gcm16", Word::Cipher(Cipher::Gcm(B128))),
    ("aes128gcm128", Word::Cipher(Cipher::Gcm(B128))),
    ("aes192gcm16", Word::Cipher(Cipher::Gcm(B192))),
    ("aes192gcm128", Word::Cipher(Cipher::Gcm(B192))),
    ("aes256gcm16", Word::Cipher(Cipher::Gcm(B256))),
    ("aes256gcm128", Word::Cipher(Cipher::Gcm(B256))),
    ("aes_gcm128", Word::Cipher(Cipher::Gcm(B128))),
    ("aes_gcm256", Word::Cipher(Cipher::Gcm(B256))),
    ("aes_gcm", Word::Cipher(Cipher::Gcm(B256))),
    ("chacha20poly1305", Word::Cipher(Cipher::ChaCha)),
    ("chacha20_poly1305", Word::Cipher(Cipher::ChaCha)),
    ("aes128gmac", Word::Cipher(Cipher::Gmac(B128))),
    ("aes192gmac", Word::Cipher(Cipher::Gmac(B192))),
    ("aes256gmac", Word::Cipher(Cipher::Gmac(B256))),
    ("null", Word::Cipher(Cipher::Null)),
    ("md5", Word::Integrity(Integrity::HmacMd5_96)),
    ("sha", Word::Integrity(Integrity::HmacSha1_96)),
    ("sha1", Word::Integrity(Integrity::HmacSha1_96)),
    ("sha2", Word::Integrity(Integrity::HmacSha2_256_128)),
    ("sha256", Word::Integrity(Integrity::HmacSha2_256_128)),
    ("sha2_256", Word::Integrity(Integrity::HmacSha2_256_128)),
    ("sha384", Word::Integrity(Integrity::HmacSha2_384_192)),
    ("sha2_384", Word::Integrity(Integrity::HmacSha2_384_192)),
    ("sha512", Word::Integrity(Integrity::HmacSha2_512_256)),
    ("sha2_512", Word::Integrity(Integrity::HmacSha2_512_256)),
    ("aesxcbc", Word::Integrity(Integrity::AesXcbc96)),
    ("aescmac", Word::Integrity(Integrity::AesCmac96)),
    ("prfmd5", Word::Prf(Prf::HmacMd5)),
    ("prfsha1", Word::Prf(Prf::HmacSha1)),
    ("prfsha256", Word::Prf(Prf::HmacSha2_256)),
    ("prfsha384", Word::Prf(Prf::HmacSha2_384)),
    ("prfsha512", Word::Prf(Prf::HmacSha2_512)),
    ("prfaesxcbc", Word::Prf(Prf::Aes128Xcbc)),
    ("prfaescmac", Word::Prf(Prf::Aes128Cmac)),
    ("modp1024", Word::Group(Group::Modp1024)),
    ("modp1536", Word::Group(Group::Modp1536)),
    ("modp2048", Word::Group(Group::Modp2048)),
    ("modp3072", Word::Group(Group::Modp3072)),
    ("modp4096", Word::Group(Group::Modp4096)),
    ("modp2048s256", Word::Group(Group::Modp2048Sub256)),
    ("ecp256", Word::Group(Group::Ecp256)),
    ("ecp384", Word::Group(Group::Ecp384)),
    ("ecp521", Word::Group(Group::Ecp521)),
    ("x25519", Word::Group(Group::Curve25519)),
    ("curve25519", Word::Group(Group::Curve25519)),
    ("mlkem512", Word::Group(Group::MlKem512)),
    ("mlkem768", Word::Group(Group::MlKem768)),
    ("mlkem1024", Word::Group(Group::MlKem1024)),
    ("dh2", Word::Group(Group::Modp1024)),
    ("dh5", Word::Group(Group::Modp1536)),
    ("dh14", Word::Group(Group::Modp2048)),
    ("dh15", Word::Group(Group::Modp3072)),
    ("dh16", Word::Group(Group::Modp4096)),
    ("dh19", Word::Group(Group::Ecp256)),
    ("dh20", Word::Group(Group::Ecp384)),
    ("dh21", Word::Group(Group::Ecp521)),
    ("dh24", Word::Group(Group::Modp2048Sub256)),
    ("dh31", Word::Group(Group::Curve25519)),
    ("modpnone", Word::NoGroup),
    ("noesn", Word::Esn(false)),
    ("esn", Word::Esn(true)),
];

type OfBits = fn(KeyBits) -> Cipher;

/// Ciphers of libreswan whose length of key may follow.
const SIZED: &[(&str, OfBits)] = &[
    ("null_auth_aes_gmac", Cipher::Gmac),
    ("aes_gmac", Cipher::Gmac),
    ("aes_gcm_16", Cipher::Gcm),
    ("aes_gcm_c", Cipher::Gcm),
    ("aes_gcm", Cipher::Gcm),
    ("aes_cbc", Cipher::Cbc),
    ("aes", Cipher::Cbc),
];

/// The phase that a proposal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Ike,
    Child,
}

/// The ciphers of a word of libreswan. Without a length it means the longest key and the shortest one, in an order that
/// differs between the phases.
fn sized(word: &str, phase: Phase) -> Option<Vec<Cipher>> {
    let (rest, cipher) =
        SIZED.iter().find_map(|(name, cipher)| Some((word.strip_prefix(name)?, cipher)))?;
    let bits = match rest.strip_prefix('_').unwrap_or(rest) {
        "" if !rest.is_empty() => return None,
        "" if phase == Phase::Ike => vec![B256, B128],
        "" => vec![B128, B256],
        "128" => vec![B128],
        "192" => vec![B192],
        "256" => vec![B256],
        _ => return None,
    };
    Some(bits.into_iter().map(cipher).collect())
}

/// Other names that libreswan has for integrity algorithms and groups.
fn libreswan(word: &str) -> Option<Word> {
    Some(match word.strip_prefix("hmac_").unwrap_or(word) {
        "md5" | "md5_96" => Word::Integrity(Integrity::HmacMd5_96),
        "sha1" | "sha1_96" => Word::Integrity(Integrity::HmacSha1_96),
        "sha2_256" | "sha2_256_128" => Word::Integrity(Integrity::HmacSha2_256_128),
        "sha2_384" | "sha2_384_192" => Word::Integrity(Integrity::HmacSha2_384_192),
        "sha2_512" | "sha2_512_256" => Word::Integrity(Integrity::HmacSha2_512_256),
        "aes_xcbc" | "aes_xcbc_96" => Word::Integrity(Integrity::AesXcbc96),
        "aes_cmac" | "aes_cmac_96" => Word::Integrity(Integrity::AesCmac96),
        "ecp_256" => Word::Group(Group::Ecp256),
        "ecp_384" => Word::Group(Group::Ecp384),
        "ecp_521" => Word::Group(Group::Ecp521),
        "dh0" => Word::NoGroup,
        _ => return None,
    })
}

/// An additional key exchange, as far as it is read.
#[derive(Clone, Default)]
pub(super) struct Exchange {
    methods: Vec<Group>,
    none: bool,
}

/// The transforms that one text lists.
#[derive(Clone, Default)]
pub(super) struct Lists {
    pub ciphers: Vec<Cipher>,
    pub integrity: Vec<Integrity>,
    pub prf: Vec<Prf>,
    pub groups: Vec<Group>,
    pub no_group: bool,
    pub additional: [Exchange; MAX_ADDITIONAL],
    pub esn: Vec<bool>,
}

impl Lists {
    /// Adds the methods of an additional key exchange; `false` if there is no such method.
    fn add_exchange(&mut self, (number, methods): (usize, String)) -> bool {
        let exchange = &mut self.additional[number - 1];
        methods.split('+').fold(true, |good, method| {
            match known(method) {
                Some(Word::Group(group)) => push(&mut exchange.methods, group),
                _ if method == "none" => exchange.none = true,
                _ => return false,
            }
            good
        })
    }

    fn add(&mut self, word: Word) {
        match word {
            Word::Cipher(cipher) => push(&mut self.ciphers, cipher),
            Word::Integrity(integrity) => push(&mut self.integrity, integrity),
            Word::Prf(prf) => push(&mut self.prf, prf),
            Word::Group(group) => push(&mut self.groups, group),
            Word::NoGroup => self.no_group = true,
            Word::Esn(esn) => push(&mut self.esn, esn),
        }
    }

    /// Returns `true` if a group is named, or its absence.
    pub fn names_group(&self) -> bool {
        self.no_group || !self.groups.is_empty()
    }

    /// The additional key exchanges. In a policy they have no numbers: one behind a gap is not the same.
    pub fn exchanges(&self, value: &Value, report: &mut Report) -> Vec<AdditionalKe> {
        let read = |exchange: &Exchange| {
            let Exchange { methods, none } = exchange;
            (!methods.is_empty())
                .then(|| AdditionalKe { methods: methods.clone(), optional: *none })
        };
        let found: Vec<_> = self.additional.iter().filter_map(read).collect();
        if self.additional[..found.len()].iter().any(|exchange| exchange.methods.is_empty()) {
            let message = "additional key exchanges with a gap in their numbers";
            let help = "number them from 1 without a gap, on both sides";
            report.changed(&value.location, message, help);
        }
        found
    }

    /// The proposals for ESP.
    pub fn esp(&self) -> Vec<Protection> {
        let mut protections = Vec::new();
        for cipher in &self.ciphers {
            let (encryption, needs) = match *cipher {
                Cipher::Cbc(bits) => (EspEncryption::AesCbc(bits), true),
                Cipher::Gcm(bits) => (EspEncryption::AesGcm16(bits), false),
                Cipher::ChaCha => (EspEncryption::ChaCha20Poly1305, false),
                Cipher::Gmac(bits) => (EspEncryption::AesGmac(bits), false),
                Cipher::Null => (EspEncryption::Null, true),
            };
            match needs {
                false => protections.push(Protection::aead(encryption)),
                true => protections.extend(
                    self.integrity.iter().map(|mac| Protection::encrypt_and_mac(encryption, *mac)),
                ),
            }
        }
        protections
    }

    /// The proposals for AH.
    pub fn ah(&self) -> Vec<Protection> {
        let gmac = self.ciphers.iter().filter_map(|cipher| match cipher {
            Cipher::Gmac(bits) => Some(AhIntegrity::AesGmac(*bits)),
            _ => None,
        });
        let macs = self.integrity.iter().map(|mac| AhIntegrity::Mac(*mac));
        gmac.chain(macs).map(Protection::Ah).collect()
    }
}

/// The number of an additional key exchange, and its method: `ke1_mlkem768`, or `addke1=ml_kem_768`, as libreswan has
/// it.
fn exchange(word: &str) -> Option<(usize, String)> {
    let (rest, between) = match word.strip_prefix("addke") {
        Some(rest) => (rest, '='),
        None => (word.strip_prefix("ke")?, '_'),
    };
    let (number, method) = rest.split_once(between)?;
    let number = number.parse().ok().filter(|n| (1..=MAX_ADDITIONAL).contains(n))?;
    Some((number, method.replace("ml_kem_", "mlkem")))
}

pub(super) fn push<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

fn known(word: &str) -> Option<Word> {
    WORDS.iter().find(|(known, _)| *known == word).map(|(_, meaning)| *meaning)
}

/// Reads one text; `None`, reported, where something is missing that cannot be done without.
pub(super) fn lists(
    text: &str,
    phase: Phase,
    dialect: Dialect,
    value: &Value,
    report: &mut Report,
) -> Option<Lists> {
    let mut lists = Lists::default();
    let lower = text.trim_end_matches('!').to_ascii_lowercase();
    // Libreswan parts groups by a semicolon, and alternatives of one kind by a plus.
    let parts = lower.split(['-', ';']).map(str::trim).filter(|part| !part.is_empty());
    let mut unknown = Vec::new();
    let mut count = 0;
    for (place, part) in parts.enumerate() {
        let exchange = exchange(part);
        let words: Vec<&str> = match exchange {
            Some(_) => vec![part],
            None => part.split('+').map(str::trim).filter(|word| !word.is_empty()).collect(),
        };
        count += words.len();
        if count > MAX_WORDS {
            report.dropped(&value.location, "a proposal of more than 64 words", "");
            return None;
        }
        if let Some(exchange) = exchange {
            if !lists.add_exchange(exchange) {
                unknown.push(part);
            }
            continue;
        }
        for word in words {
            let of_libreswan = dialect == Dialect::Libreswan;
            match sized(word, phase).filter(|_| of_libreswan) {
                Some(ciphers) => {
                    ciphers.into_iter().for_each(|cipher| lists.add(Word::Cipher(cipher)));
                }
                // An AEAD cipher has no other integrity algorithm.
                None if of_libreswan && place > 0 && matches!(word, "null" | "none") => {}
                None => match libreswan(word).filter(|_| of_libreswan).or_else(|| known(word)) {
                    Some(word) => lists.add(word),
                    None => unknown.push(word),
                },
            }
        }
    }
    for word in unknown {
        let shown: String = word.chars().take(40).collect();
        let help =
            "algorithms are in docs/algorithms.md; at least one that both ends know must remain";
        report.dropped(&value.location, format!("{shown:?}: vpnd has no such algorithm"), help);
    }
    Some(lists)
}

/// Returns `true` if each proposal of a setting names a group; nothing is reported.
pub(super) fn names_groups(values: &[Value], phase: Phase) -> bool {
    let mut silent = Report::default();
    let mut texts = values.iter().flat_map(|value| value.list().map(move |text| (text, value)));
    texts.all(|(text, value)| {
        let lists = lists(text, phase, Dialect::Libreswan, value, &mut silent);
        lists.is_none_or(|lists| lists.names_group())
    }) && !values.is_empty()
}
