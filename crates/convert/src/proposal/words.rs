//! The words of one proposal → lists of algorithms, by the registry of algorithms.

use crate::dialect::Dialect;
use crate::finding::Report;
use crate::source::Value;
use policy::{
    AdditionalKe, AhIntegrity, EspEncryption, Group, Integrity, KeyBits, MAX_ADDITIONAL, Prf,
    Protection,
};

/// Keywords in one list, above which it is none that anybody wrote.
const MAX_WORDS: usize = 64;

#[derive(Clone, Copy)]
enum Word {
    Cipher(EspEncryption),
    Integrity(Integrity),
    Prf(Prf),
    Group(Group),
    NoGroup,
    Esn(bool),
}

/// The ciphers that a policy can name in this build.
fn ciphers() -> impl Iterator<Item = EspEncryption> {
    EspEncryption::ALL.into_iter().filter(|encryption| policy::is_built(*encryption))
}

/// A word that files of each daemon may have.
fn known(word: &str) -> Option<Word> {
    match word {
        "modpnone" => return Some(Word::NoGroup),
        "noesn" => return Some(Word::Esn(false)),
        "esn" => return Some(Word::Esn(true)),
        _ => {}
    }
    (ciphers().find(|cipher| cipher.row().strongswan.contains(&word)).map(Word::Cipher))
        .or_else(|| {
            Integrity::ALL
                .into_iter()
                .find(|i| i.row().strongswan.contains(&word))
                .map(Word::Integrity)
        })
        .or_else(|| {
            Prf::ALL.into_iter().find(|prf| prf.row().strongswan.contains(&word)).map(Word::Prf)
        })
        .or_else(|| {
            Group::ALL
                .into_iter()
                .find(|group| group.row().strongswan.contains(&word))
                .map(Word::Group)
        })
}

/// The phase that a proposal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Ike,
    Child,
}

/// The ciphers of a word of libreswan. Without a length it means the longest key and the shortest one, in an order that
/// differs between the phases.
fn sized(word: &str, phase: Phase) -> Option<Vec<EspEncryption>> {
    let mut named: Vec<EspEncryption> = ciphers()
        .filter(|encryption| {
            let row = encryption.row();
            row.libreswan.iter().any(|stem| {
                word.strip_prefix(stem).is_some_and(|rest| {
                    let bits = rest.strip_prefix('_').unwrap_or(rest);
                    rest.is_empty()
                        || row.key_length.is_some_and(|length| length.to_string() == bits)
                })
            })
        })
        .collect();
    if named.len() > 1 {
        named.retain(|encryption| encryption.row().key_length != Some(KeyBits::B192));
    }
    if phase == Phase::Child {
        named.reverse();
    }
    (!named.is_empty()).then_some(named)
}

/// Other names that libreswan has for integrity algorithms and groups.
fn libreswan(word: &str) -> Option<Word> {
    if word == "dh0" {
        return Some(Word::NoGroup);
    }
    let mac = word.strip_prefix("hmac_").unwrap_or(word);
    let integrity = Integrity::ALL.into_iter().find(|i| i.row().libreswan.contains(&mac));
    integrity.map(Word::Integrity).or_else(|| {
        Group::ALL.into_iter().find(|group| group.row().libreswan.contains(&word)).map(Word::Group)
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
    pub ciphers: Vec<EspEncryption>,
    pub integrity: Vec<Integrity>,
    pub prf: Vec<Prf>,
    pub groups: Vec<Group>,
    pub no_group: bool,
    pub additional: [Exchange; MAX_ADDITIONAL],
    pub esn: Vec<bool>,
}

impl Lists {
    /// Adds the methods of an additional key exchange; `false` if there is no such method.
    fn add_exchange(&mut self, (number, methods): (usize, &str)) -> bool {
        let exchange = &mut self.additional[number - 1];
        methods.split('+').fold(true, |good, method| {
            match known(method).or_else(|| libreswan(method)) {
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
        let found: Vec<_> = self
            .additional
            .iter()
            .filter_map(|exchange| {
                let Exchange { methods, none } = exchange;
                (!methods.is_empty())
                    .then(|| AdditionalKe { methods: methods.clone(), optional: *none })
            })
            .collect();
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
        for encryption in &self.ciphers {
            match encryption.is_aead() {
                true => protections.push(Protection::aead(*encryption)),
                false => protections.extend(
                    self.integrity.iter().map(|mac| Protection::encrypt_and_mac(*encryption, *mac)),
                ),
            }
        }
        protections
    }

    /// The proposals for AH.
    pub fn ah(&self) -> Vec<Protection> {
        let gmac = self.ciphers.iter().filter_map(|cipher| match cipher {
            EspEncryption::AesGmac(bits) => Some(AhIntegrity::AesGmac(*bits)),
            _ => None,
        });
        let macs = self.integrity.iter().map(|mac| AhIntegrity::Mac(*mac));
        gmac.chain(macs).map(Protection::Ah).collect()
    }
}

/// The number of an additional key exchange, and its method: `ke1_mlkem768`, or `addke1=ml_kem_768`, as libreswan has
/// it.
fn exchange(word: &str) -> Option<(usize, &str)> {
    let (rest, between) = match word.strip_prefix("addke") {
        Some(rest) => (rest, '='),
        None => (word.strip_prefix("ke")?, '_'),
    };
    let (number, method) = rest.split_once(between)?;
    let number = number.parse().ok().filter(|n| (1..=MAX_ADDITIONAL).contains(n))?;
    Some((number, method))
}

pub(super) fn push<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
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
        let help = "algorithms are in docs/reference/algorithms.md; at least one that both ends know must remain";
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
