//! Algorithms in strongSwan's words: `aes256gcm16-prfsha384-ecp384`.

use super::draft::Times;
use super::finding::Report;
use super::source::Value;
use policy::{
    AdditionalKe, AhIntegrity, ChildProposal, EspEncryption, Group, IkeEncryption, IkeProposal,
    Integrity, KeyBits, Lifetime, MAX_ADDITIONAL, Pfs, Prf, Protection,
};

use KeyBits::{B128, B192, B256};

/// Offers of one protection; IKEv2 numbers them by one octet (RFC 7296 §3.3.1).
const MAX_PROPOSALS: usize = 255;

/// Keywords in one list, above which it is none that anybody wrote.
const MAX_WORDS: usize = 64;

#[derive(Clone, Copy, PartialEq)]
enum Cipher {
    Cbc(KeyBits),
    Gcm(KeyBits),
    ChaCha,
    Gmac(KeyBits),
    Null,
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

/// An additional key exchange, as far as it is read.
#[derive(Default)]
struct Exchange {
    methods: Vec<Group>,
    none: bool,
}

/// The transforms that one text lists.
#[derive(Default)]
struct Lists {
    ciphers: Vec<Cipher>,
    integrity: Vec<Integrity>,
    prf: Vec<Prf>,
    groups: Vec<Group>,
    no_group: bool,
    additional: [Exchange; MAX_ADDITIONAL],
    esn: Vec<bool>,
}

impl Lists {
    /// Adds a method of an additional key exchange; `false` if there is no such method.
    fn add(&mut self, (number, method): (usize, String)) -> bool {
        let exchange = &mut self.additional[number - 1];
        match WORDS.iter().find(|(known, _)| *known == method).map(|(_, meaning)| *meaning) {
            Some(Word::Group(group)) => push(&mut exchange.methods, group),
            _ if method == "none" => exchange.none = true,
            _ => return false,
        }
        true
    }

    /// The additional key exchanges. In a policy they have no numbers: one behind a gap is not the same.
    fn additional(&self, value: &Value, report: &mut Report) -> Vec<AdditionalKe> {
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
    fn esp(&self) -> Vec<Protection> {
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
    fn ah(&self) -> Vec<Protection> {
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

fn push<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// Reads one text; `None`, reported, where something is missing that cannot be done without.
fn lists(text: &str, value: &Value, report: &mut Report) -> Option<Lists> {
    let mut lists = Lists::default();
    let lower = text.trim_end_matches('!').to_ascii_lowercase();
    // Libreswan parts groups by a semicolon.
    let words: Vec<&str> = lower.split(['-', ';']).filter(|word| !word.is_empty()).collect();
    if words.len() > MAX_WORDS {
        report.dropped(&value.location, "a proposal of more than 64 words", "");
        return None;
    }
    let mut unknown = Vec::new();
    for word in words {
        if let Some(place) = exchange(word) {
            if !lists.add(place) {
                unknown.push(word);
            }
            continue;
        }
        match WORDS.iter().find(|(known, _)| *known == word).map(|(_, meaning)| *meaning) {
            Some(Word::Cipher(cipher)) => push(&mut lists.ciphers, cipher),
            Some(Word::Integrity(integrity)) => push(&mut lists.integrity, integrity),
            Some(Word::Prf(prf)) => push(&mut lists.prf, prf),
            Some(Word::Group(group)) => push(&mut lists.groups, group),
            Some(Word::NoGroup) => lists.no_group = true,
            Some(Word::Esn(esn)) => push(&mut lists.esn, esn),
            None => unknown.push(word),
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

/// Phase 1 offers, at least one.
pub(super) fn ike(values: &[Value], report: &mut Report) -> Option<Vec<IkeProposal>> {
    let mut proposals = Vec::new();
    for value in values {
        for text in value.list() {
            if text.trim_end_matches('!') == "default" {
                ike_defaults().into_iter().for_each(|proposal| push(&mut proposals, proposal));
                continue;
            }
            let Some(lists) = lists(text, value, report) else { continue };
            let additional = lists.additional(value, report);
            if let Some(proposal) = ike_proposal(lists, &additional) {
                proposal.into_iter().for_each(|proposal| push(&mut proposals, proposal));
            } else {
                let message = format!("the proposal {:?}", cut(text));
                let help =
                    "it needs a cipher, an integrity algorithm or PRF, and a group that vpnd has";
                report.dropped(&value.location, message, help);
            }
        }
    }
    if values.is_empty() {
        proposals = ike_defaults();
    }
    let proposals = if fits_one_offer(&proposals) { proposals } else { expand(&proposals) };
    if proposals.len() > MAX_PROPOSALS
        && let Some(value) = values.first()
    {
        let message = format!("more than {MAX_PROPOSALS} proposals: the last are missing");
        report.changed(&value.location, message, "list fewer");
    }
    let proposals: Vec<_> = proposals.into_iter().take(MAX_PROPOSALS).collect();
    (!proposals.is_empty()).then_some(proposals)
}

fn ike_proposal(mut lists: Lists, additional: &[AdditionalKe]) -> Option<Vec<IkeProposal>> {
    let encryption = lists.ciphers.iter().filter_map(|cipher| match cipher {
        Cipher::Cbc(bits) => Some(IkeEncryption::AesCbc(*bits)),
        Cipher::Gcm(bits) => Some(IkeEncryption::AesGcm16(*bits)),
        Cipher::ChaCha => Some(IkeEncryption::ChaCha20Poly1305),
        Cipher::Gmac(_) | Cipher::Null => None,
    });
    let (aead, other): (Vec<_>, Vec<_>) = encryption.partition(|encryption| encryption.is_aead());
    if lists.prf.is_empty() {
        for integrity in &lists.integrity {
            push(&mut lists.prf, Prf::of(*integrity));
        }
    }
    if lists.prf.is_empty() || lists.groups.is_empty() {
        return None;
    }
    let (prf, groups) = (lists.prf, lists.groups);
    let proposal = |encryption: Vec<IkeEncryption>, integrity| IkeProposal {
        encryption,
        integrity,
        prf: prf.clone(),
        groups: groups.clone(),
        additional: additional.to_vec(),
    };
    let mut proposals = Vec::new();
    if !aead.is_empty() {
        proposals.push(proposal(aead, Vec::new()));
    }
    if !other.is_empty() && !lists.integrity.is_empty() {
        proposals.push(proposal(other, lists.integrity));
    }
    (!proposals.is_empty()).then_some(proposals)
}

/// strongSwan's default proposals, without the weak algorithms among them.
fn ike_defaults() -> Vec<IkeProposal> {
    let prf = vec![Prf::HmacSha2_256, Prf::HmacSha2_384, Prf::HmacSha2_512];
    let groups = vec![
        Group::Curve25519,
        Group::Ecp256,
        Group::Ecp384,
        Group::Ecp521,
        Group::Modp3072,
        Group::Modp4096,
        Group::Modp2048,
    ];
    let aead = vec![
        IkeEncryption::AesGcm16(B256),
        IkeEncryption::AesGcm16(B128),
        IkeEncryption::ChaCha20Poly1305,
    ];
    let other = [B256, B192, B128].map(IkeEncryption::AesCbc).to_vec();
    let integrity =
        vec![Integrity::HmacSha2_256_128, Integrity::HmacSha2_384_192, Integrity::HmacSha2_512_256];
    vec![
        IkeProposal {
            encryption: aead,
            integrity: Vec::new(),
            prf: prf.clone(),
            groups: groups.clone(),
            additional: Vec::new(),
        },
        IkeProposal { encryption: other, integrity, prf, groups, additional: Vec::new() },
    ]
}

/// Returns `true` if the document can say it by single algorithms: one offer, or one of AEAD and one of other ciphers
/// that share the rest.
pub(super) fn fits_one_offer(proposals: &[IkeProposal]) -> bool {
    match proposals {
        [_] => true,
        [a, b] => {
            (a.prf == b.prf && a.groups == b.groups && a.additional == b.additional)
                && a.integrity.is_empty() != b.integrity.is_empty()
        }
        _ => false,
    }
}

/// Splits offers so that each has one algorithm of each kind.
fn expand(proposals: &[IkeProposal]) -> Vec<IkeProposal> {
    let mut all = Vec::new();
    for proposal in proposals {
        let none = [None];
        let integrity: Vec<Option<Integrity>> = match proposal.integrity.as_slice() {
            [] => none.to_vec(),
            some => some.iter().copied().map(Some).collect(),
        };
        for (encryption, integrity) in pairs(&proposal.encryption, &integrity) {
            for (prf, group) in pairs(&proposal.prf, &proposal.groups) {
                if all.len() > MAX_PROPOSALS {
                    return all;
                }
                let (encryption, groups) = (vec![encryption], vec![group]);
                let integrity = integrity.into_iter().collect();
                push(
                    &mut all,
                    IkeProposal {
                        encryption,
                        integrity,
                        prf: vec![prf],
                        groups,
                        additional: proposal.additional.clone(),
                    },
                );
            }
        }
    }
    all
}

fn pairs<A: Copy, B: Copy>(a: &[A], b: &[B]) -> impl Iterator<Item = (A, B)> {
    a.iter().flat_map(move |x| b.iter().map(move |y| (*x, *y)))
}

/// Phase 2 offers, at least one, and the key exchange of rekeys.
pub(super) fn child(
    values: &[Value],
    ah: bool,
    name: &str,
    times: &Times,
    report: &mut Report,
) -> Option<(Vec<ChildProposal>, Pfs)> {
    let mut offers: Vec<(Protection, bool)> = Vec::new();
    let mut pfs = Pfs::default();
    let (mut first, mut differ) = (true, false);
    let mut read = |lists: Lists, additional: Vec<AdditionalKe>, offers: &mut Vec<_>| {
        let before = offers.len();
        let esn = if lists.esn.is_empty() { vec![false] } else { lists.esn.clone() };
        let protections = if ah { lists.ah() } else { lists.esp() };
        for (protection, esn) in pairs(&protections, &esn) {
            push(offers, (protection, esn));
        }
        if offers.len() == before {
            return false;
        }
        let without = lists.groups.is_empty() || lists.no_group;
        if first && !without {
            pfs.offer.clone_from(&lists.groups);
        }
        if first {
            pfs.additional = additional;
        } else {
            differ |= pfs.additional != additional;
        }
        first = false;
        pfs.accept_none |= without;
        lists.groups.into_iter().for_each(|group| push(&mut pfs.accept, group));
        true
    };
    for value in values {
        for text in value.list() {
            if text.trim_end_matches('!') == "default" {
                read(esp_defaults(), Vec::new(), &mut offers);
                continue;
            }
            let Some(lists) = lists(text, value, report) else { continue };
            let additional = lists.additional(value, report);
            if !read(lists, additional, &mut offers) {
                let message = format!("the proposal {:?}", cut(text));
                let help = match ah {
                    true => "it needs an integrity algorithm that vpnd has",
                    false => {
                        "it needs a cipher that vpnd has, and an integrity algorithm unless that is AEAD"
                    }
                };
                report.dropped(&value.location, message, help);
            }
        }
    }
    if values.is_empty() {
        read(esp_defaults(), Vec::new(), &mut offers);
    }
    if differ && let Some(value) = values.first() {
        let message =
            "proposals with different additional key exchanges: those of the first are taken";
        report.changed(&value.location, message, "write the same in each");
    }
    // A responder that accepts nothing else takes what it would itself offer.
    pfs.accept_none |= pfs.offer.is_empty();
    if offers.len() > MAX_PROPOSALS
        && let Some(value) = values.first()
    {
        let message = format!("more than {MAX_PROPOSALS} proposals: the last are missing");
        report.changed(&value.location, message, "list fewer");
    }
    let lifetime = lifetime(times);
    let proposals: Vec<ChildProposal> = offers
        .into_iter()
        .take(MAX_PROPOSALS)
        .map(|(protection, esn)| ChildProposal { name: name.to_owned(), protection, esn, lifetime })
        .collect();
    (!proposals.is_empty()).then_some((proposals, pfs))
}

fn esp_defaults() -> Lists {
    Lists {
        ciphers: vec![
            Cipher::Gcm(B256),
            Cipher::Gcm(B128),
            Cipher::ChaCha,
            Cipher::Cbc(B256),
            Cipher::Cbc(B192),
            Cipher::Cbc(B128),
        ],
        integrity: vec![
            Integrity::HmacSha2_256_128,
            Integrity::HmacSha2_384_192,
            Integrity::HmacSha2_512_256,
        ],
        ..Lists::default()
    }
}

/// A lifetime as a policy can say it: whole minutes and kilobytes, the overlap in percent.
pub(super) fn lifetime(times: &Times) -> Lifetime {
    let minutes = times.hard.as_secs().div_ceil(60).clamp(1, 525_600);
    let hard = std::time::Duration::from_secs(minutes * 60);
    let soft = times.soft.min(hard).as_secs();
    let percent = (hard.as_secs() - soft) * 100 / hard.as_secs();
    let bytes = times.bytes.map(|(_, hard)| hard.div_ceil(1024).clamp(1, 0xffff_ffff) * 1024);
    let overlap_percent = u8::try_from(percent.clamp(1, 50)).unwrap_or(50);
    Lifetime { bytes, overlap_percent, ..Lifetime::new(hard) }
}

fn cut(text: &str) -> String {
    text.chars().take(60).collect()
}
