//! Offers and choices of algorithms (RFC 7296 §2.7, §3.3).
//!
//! A responder takes the first proposal of its own policy that the peer offers too, and within it the first algorithm
//! of its own; among acceptable groups it takes the one whose public value the peer already sent.

use crate::failure::facts::{Alternatives, KEPT, Offer, described};
use crate::wire::payload::{Proposal, Transform};
use crate::wire::registry::{EncryptionId, GroupId, IntegrityId, PrfId, ProtocolId, TransformType};
use ::crypto::Suite;
use esp::plane::Spi;
use policy::{
    AhIntegrity, ChildProposal, DesKeys, EspEncryption, Group, IkeEncryption, IkeProposal,
    Integrity, KeyBits, Lifetime, Pfs, Prf, Protection,
};
use std::fmt;

/// The algorithms of an IKE SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IkeSuite {
    /// Cipher of SK payloads.
    pub encryption: IkeEncryption,
    /// Its integrity; `None` with AEAD.
    pub integrity: Option<Integrity>,
    /// PRF.
    pub prf: Prf,
    /// Key exchange.
    pub group: Group,
}

impl IkeSuite {
    /// The suite of SK payloads; `None` if cipher and integrity do not go together.
    pub fn protection(&self) -> Option<Suite> {
        match (self.encryption, self.integrity) {
            (IkeEncryption::AesGcm16(k), None) => Some(Suite::AesGcm16(k)),
            (IkeEncryption::ChaCha20Poly1305, None) => Some(Suite::ChaCha20Poly1305),
            (IkeEncryption::AesCbc(k), Some(i)) => Some(Suite::AesCbcMac(k, i)),
            _ => None,
        }
    }
}

impl fmt::Display for IkeSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.encryption)?;
        if let Some(integrity) = self.integrity {
            write!(f, "/{integrity}")?;
        }
        write!(f, "/{}/{}", self.prf, self.group)
    }
}

/// The algorithms of a Child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildChoice {
    /// Protocol and algorithms.
    pub protection: Protection,
    /// Extended sequence numbers.
    pub esn: bool,
    /// Lifetime, by the policy's proposal that it comes from.
    pub lifetime: Lifetime,
    /// Key exchange of its own (PFS).
    pub group: Option<Group>,
}

impl ChildChoice {
    /// The protocol of these SAs.
    pub fn protocol(&self) -> ProtocolId {
        protocol(self.protection)
    }

    /// The suite that protects packets.
    pub fn suite(&self) -> Option<Suite> {
        Suite::of(self.protection)
    }
}

impl fmt::Display for ChildChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.protection)?;
        if let Some(group) = self.group {
            write!(f, "/{group}")?;
        }
        f.write_str(if self.esn { "/ESN" } else { "" })
    }
}

/// The number of a group.
pub fn group_id(group: Group) -> GroupId {
    match group {
        Group::Modp1024 => GroupId::MODP_1024,
        Group::Modp1536 => GroupId::MODP_1536,
        Group::Modp2048 => GroupId::MODP_2048,
        Group::Modp3072 => GroupId::MODP_3072,
        Group::Modp4096 => GroupId::MODP_4096,
        Group::Ecp256 => GroupId::ECP_256,
        Group::Ecp384 => GroupId::ECP_384,
        Group::Ecp521 => GroupId::ECP_521,
        Group::Modp2048Sub256 => GroupId::MODP_2048_256,
        Group::Curve25519 => GroupId::CURVE25519,
        _ => unreachable!("every Group has its number here"),
    }
}

const GROUPS: [Group; 10] = [
    Group::Modp1024,
    Group::Modp1536,
    Group::Modp2048,
    Group::Modp3072,
    Group::Modp4096,
    Group::Ecp256,
    Group::Ecp384,
    Group::Ecp521,
    Group::Modp2048Sub256,
    Group::Curve25519,
];

/// The group of a number, where this implementation has it.
pub fn group_of(id: GroupId) -> Option<Group> {
    GROUPS.into_iter().find(|g| group_id(*g) == id)
}

fn plain(kind: TransformType, id: u16) -> Transform {
    Transform { kind, id, key_length: None, unknown_attribute: false }
}

fn keyed(id: EncryptionId, key: KeyBits) -> Transform {
    Transform {
        kind: TransformType::ENCR,
        id: id.0,
        key_length: Some(key.bits()),
        unknown_attribute: false,
    }
}

/// A cipher with keys of one length only, which takes no Key Length attribute (RFC 7296 §3.3.5, RFC 7634 §4).
fn unkeyed(id: EncryptionId) -> Transform {
    plain(TransformType::ENCR, id.0)
}

fn ike_encryption(encryption: IkeEncryption) -> Transform {
    match encryption {
        IkeEncryption::AesCbc(k) => keyed(EncryptionId::ENCR_AES_CBC, k),
        IkeEncryption::AesGcm16(k) => keyed(EncryptionId::ENCR_AES_GCM_16, k),
        IkeEncryption::ChaCha20Poly1305 => unkeyed(EncryptionId::ENCR_CHACHA20_POLY1305),
        _ => unreachable!("every IkeEncryption has its transform here"),
    }
}

fn esp_encryption(encryption: EspEncryption) -> Transform {
    match encryption {
        EspEncryption::AesCbc(k) => keyed(EncryptionId::ENCR_AES_CBC, k),
        EspEncryption::AesGcm16(k) => keyed(EncryptionId::ENCR_AES_GCM_16, k),
        EspEncryption::ChaCha20Poly1305 => unkeyed(EncryptionId::ENCR_CHACHA20_POLY1305),
        EspEncryption::AesGmac(k) => keyed(EncryptionId::ENCR_NULL_AUTH_AES_GMAC, k),
        EspEncryption::Null => unkeyed(EncryptionId::ENCR_NULL),
        EspEncryption::DesCbc(DesKeys::One) => unkeyed(EncryptionId::ENCR_DES),
        EspEncryption::DesCbc(DesKeys::Three) => unkeyed(EncryptionId::ENCR_3DES),
        _ => unreachable!("every EspEncryption has its transform here"),
    }
}

fn prf(prf: Prf) -> Transform {
    let id = match prf {
        Prf::HmacMd5 => PrfId::PRF_HMAC_MD5,
        Prf::HmacSha1 => PrfId::PRF_HMAC_SHA1,
        Prf::HmacSha2_256 => PrfId::PRF_HMAC_SHA2_256,
        Prf::HmacSha2_384 => PrfId::PRF_HMAC_SHA2_384,
        Prf::HmacSha2_512 => PrfId::PRF_HMAC_SHA2_512,
        Prf::Aes128Xcbc => PrfId::PRF_AES128_XCBC,
        Prf::Aes128Cmac => PrfId::PRF_AES128_CMAC,
        _ => unreachable!("every Prf has its transform here"),
    };
    plain(TransformType::PRF, id.0)
}

fn integrity(integrity: Integrity) -> Transform {
    let id = match integrity {
        Integrity::HmacMd5_96 => IntegrityId::AUTH_HMAC_MD5_96,
        Integrity::HmacSha1_96 => IntegrityId::AUTH_HMAC_SHA1_96,
        Integrity::HmacSha2_256_128 => IntegrityId::AUTH_HMAC_SHA2_256_128,
        Integrity::HmacSha2_384_192 => IntegrityId::AUTH_HMAC_SHA2_384_192,
        Integrity::HmacSha2_512_256 => IntegrityId::AUTH_HMAC_SHA2_512_256,
        Integrity::AesXcbc96 => IntegrityId::AUTH_AES_XCBC_96,
        Integrity::AesCmac96 => IntegrityId::AUTH_AES_CMAC_96,
        _ => unreachable!("every Integrity has its transform here"),
    };
    plain(TransformType::INTEG, id.0)
}

fn key_exchange(group: Group) -> Transform {
    plain(TransformType::KE, group_id(group).0)
}

fn esn(esn: bool) -> Transform {
    plain(TransformType::ESN, u16::from(esn))
}

/// One transform of a chosen proposal per type, and whether any type went unanswered.
struct Chooser<'a> {
    offered: &'a Proposal,
    chosen: Vec<Transform>,
}

impl<'a> Chooser<'a> {
    fn new(offered: &'a Proposal) -> Self {
        Self { offered, chosen: Vec::new() }
    }

    fn offers(&self, kind: TransformType) -> bool {
        self.offered.transforms.iter().any(|t| t.kind == kind)
    }

    /// Takes the first of `ours` that is offered.
    fn take<T: Copy>(&mut self, ours: &[T], transform: impl Fn(T) -> Transform) -> Option<T> {
        let found =
            ours.iter().copied().find(|o| self.offered.transforms.contains(&transform(*o)))?;
        self.chosen.push(transform(found));
        Some(found)
    }

    /// Whether the type may go unanswered: it is absent or offers NONE (RFC 7296 §3.3.6).
    fn none(&self, kind: TransformType) -> bool {
        !self.offers(kind) || self.offered.transforms.contains(&plain(kind, 0))
    }

    /// The answer, if every type that was offered is known.
    fn finish(self, known: &[TransformType], spi: Vec<u8>) -> Option<Proposal> {
        // RFC 7296 §3.3.6: a proposal with a transform type that is not understood must not be chosen.
        self.offered.transforms.iter().all(|t| known.contains(&t.kind)).then_some(Proposal {
            number: self.offered.number,
            protocol: self.offered.protocol,
            spi,
            transforms: self.chosen,
        })
    }
}

const IKE_TYPES: [TransformType; 4] =
    [TransformType::ENCR, TransformType::PRF, TransformType::INTEG, TransformType::KE];
const CHILD_TYPES: [TransformType; 4] =
    [TransformType::ENCR, TransformType::INTEG, TransformType::KE, TransformType::ESN];

fn number(index: usize) -> u8 {
    u8::try_from(index + 1).unwrap_or(u8::MAX)
}

/// The SA payload of a request for an IKE SA; `spi` is empty in IKE_SA_INIT, the new SPI when rekeying.
pub fn offer_ike(ours: &[IkeProposal], spi: &[u8]) -> Vec<Proposal> {
    let transforms = |p: &IkeProposal| {
        (p.encryption.iter().map(|e| ike_encryption(*e)))
            .chain(p.integrity.iter().map(|i| integrity(*i)))
            .chain(p.prf.iter().map(|p| prf(*p)))
            .chain(p.groups.iter().map(|g| key_exchange(*g)))
            .collect()
    };
    (ours.iter().enumerate().take(255))
        .map(|(i, p)| Proposal {
            number: number(i),
            protocol: ProtocolId::IKE,
            spi: spi.to_vec(),
            transforms: transforms(p),
        })
        .collect()
}

/// The responder's choice from an offer for an IKE SA, and the proposal it answers with; `None`: nothing in common.
pub fn choose_ike(
    ours: &[IkeProposal],
    theirs: &[Proposal],
    sent_group: GroupId,
    spi: &[u8],
) -> Option<(IkeSuite, Proposal)> {
    let choose = |our: &IkeProposal, their: &Proposal| {
        if their.protocol != ProtocolId::IKE {
            return None;
        }
        let mut chooser = Chooser::new(their);
        let encryption = chooser.take(&our.encryption, ike_encryption)?;
        let prf = chooser.take(&our.prf, prf)?;
        let integrity = match our.integrity.as_slice() {
            [] => chooser.none(TransformType::INTEG).then_some(None)?,
            some => Some(chooser.take(some, integrity)?),
        };
        let sent = group_of(sent_group).filter(|g| our.groups.contains(g));
        let group = (sent.and_then(|g| chooser.take(&[g], key_exchange)))
            .or_else(|| chooser.take(&our.groups, key_exchange))?;
        let answer = chooser.finish(&IKE_TYPES, spi.to_vec())?;
        Some((IkeSuite { encryption, integrity, prf, group }, answer))
    };
    ours.iter().find_map(|our| theirs.iter().find_map(|their| choose(our, their)))
}

/// Checks that the answer to an offer of `ours` is one of its combinations (RFC 7296 §2.7).
pub fn accept_ike(ours: &[IkeProposal], answer: &[Proposal]) -> Option<IkeSuite> {
    let [answer] = answer else { return None };
    let our = ours.get(usize::from(answer.number).checked_sub(1)?)?;
    let (suite, chosen) =
        choose_ike(std::slice::from_ref(our), std::slice::from_ref(answer), GroupId::NONE, &[])?;
    exactly(answer, &chosen).then_some(suite)
}

/// Whether an answer holds the chosen transforms and nothing else but explicit NONEs.
fn exactly(answer: &Proposal, chosen: &Proposal) -> bool {
    let rest = answer.transforms.iter().filter(|t| !chosen.transforms.contains(t));
    rest.clone().all(|t| t.id == 0 && matches!(t.kind, TransformType::INTEG | TransformType::KE))
        && answer.transforms.len() - rest.count() == chosen.transforms.len()
}

/// The protocol of what a policy proposes.
fn protocol(protection: Protection) -> ProtocolId {
    match protection {
        Protection::Esp { .. } => ProtocolId::ESP,
        Protection::Ah(_) => ProtocolId::AH,
    }
}

/// Its algorithms. GMAC has a transform of its own for each length of key in AH (RFC 4543 §5.3).
fn algorithms(protection: Protection) -> impl Iterator<Item = Transform> {
    let (encryption, mac) = match protection {
        Protection::Esp { encryption, integrity: mac } => {
            (Some(esp_encryption(encryption)), mac.map(integrity))
        }
        Protection::Ah(AhIntegrity::Mac(mac)) => (None, Some(integrity(mac))),
        Protection::Ah(AhIntegrity::AesGmac(key)) => {
            let id = match key {
                KeyBits::B128 => IntegrityId::AUTH_AES_128_GMAC,
                KeyBits::B192 => IntegrityId::AUTH_AES_192_GMAC,
                KeyBits::B256 => IntegrityId::AUTH_AES_256_GMAC,
            };
            (None, Some(plain(TransformType::INTEG, id.0)))
        }
    };
    encryption.into_iter().chain(mac)
}

/// The SA payload of a request for a Child SA.
pub fn offer_child(ours: &[ChildProposal], groups: &[Group], spi: Spi) -> Vec<Proposal> {
    (ours.iter().enumerate().take(255))
        .map(|(i, p)| Proposal {
            number: number(i),
            protocol: protocol(p.protection),
            spi: spi.0.to_be_bytes().to_vec(),
            transforms: algorithms(p.protection)
                .chain(groups.iter().map(|g| key_exchange(*g)))
                .chain(std::iter::once(esn(p.esn)))
                .collect(),
        })
        .collect()
}

/// Which key exchange a responder accepts for a Child SA.
#[derive(Clone, Copy, Debug)]
pub enum ChildKeyExchange<'a> {
    /// In IKE_AUTH there is none, whatever the proposals say (RFC 7296 §1.2).
    Never,
    /// In CREATE_CHILD_SA, by the policy; the second is the group whose public value came along.
    Policy(&'a Pfs, Option<GroupId>),
}

/// The responder's choice from an offer for a Child SA: the choice, the peer's SPI, and the proposal to answer with,
/// which
/// carries `spi`.
pub fn choose_child(
    ours: &[ChildProposal],
    key_exchange_wanted: ChildKeyExchange<'_>,
    theirs: &[Proposal],
    spi: Spi,
) -> Option<(ChildChoice, Spi, Proposal)> {
    let choose = |our: &ChildProposal, their: &Proposal| {
        let peer_spi = peer_spi(their, protocol(our.protection))?;
        let mut chooser = Chooser::new(their);
        for algorithm in algorithms(our.protection) {
            chooser.take(&[algorithm], |transform| transform)?;
        }
        for kind in [TransformType::ENCR, TransformType::INTEG] {
            let chosen = algorithms(our.protection).any(|algorithm| algorithm.kind == kind);
            (chosen || chooser.none(kind)).then_some(())?;
        }
        let group = match key_exchange_wanted {
            ChildKeyExchange::Never => None,
            ChildKeyExchange::Policy(pfs, sent) => choose_group(pfs, sent, &mut chooser)?,
        };
        // RFC 7296 §3.3.2: ESN is mandatory in proposals of ESP and AH; some peers leave it out to mean "no".
        if chooser.offers(TransformType::ESN) {
            chooser.take(&[our.esn], esn)?;
        } else if our.esn {
            return None;
        }
        let answer = chooser.finish(&CHILD_TYPES, spi.0.to_be_bytes().to_vec())?;
        let ChildProposal { protection, esn, lifetime, .. } = *our;
        Some((ChildChoice { protection, esn, lifetime, group }, peer_spi, answer))
    };
    ours.iter().find_map(|our| theirs.iter().find_map(|their| choose(our, their)))
}

fn choose_group(
    pfs: &Pfs,
    sent: Option<GroupId>,
    chooser: &mut Chooser<'_>,
) -> Option<Option<Group>> {
    let acceptable: Vec<Group> = pfs.offer.iter().chain(&pfs.accept).copied().collect();
    if let Some(group) = sent.and_then(group_of).filter(|g| acceptable.contains(g))
        && chooser.take(&[group], key_exchange).is_some()
    {
        return Some(Some(group));
    }
    if pfs.accept_none && chooser.none(TransformType::KE) {
        return Some(None);
    }
    chooser.take(&acceptable, key_exchange).map(Some)
}

fn peer_spi(proposal: &Proposal, protocol: ProtocolId) -> Option<Spi> {
    let spi = u32::from_be_bytes(proposal.spi.as_slice().try_into().ok()?);
    // RFC 4303 §2.1, RFC 4302 §2.4: 0 to 255 are reserved.
    (proposal.protocol == protocol && spi > 255).then_some(Spi(spi))
}

/// Checks that the answer to an offer of `ours` with `groups` is one of its combinations; returns the peer's SPI, too.
pub fn accept_child(
    ours: &[ChildProposal],
    groups: &[Group],
    answer: &[Proposal],
) -> Option<(ChildChoice, Spi)> {
    let [answer] = answer else { return None };
    let our = ours.get(usize::from(answer.number).checked_sub(1)?)?;
    let pfs = Pfs { offer: groups.to_vec(), accept: Vec::new(), accept_none: groups.is_empty() };
    let wanted = ChildKeyExchange::Policy(&pfs, None);
    let (choice, spi, chosen) =
        choose_child(std::slice::from_ref(our), wanted, std::slice::from_ref(answer), Spi(0))?;
    exactly(answer, &chosen).then_some((choice, spi))
}

/// A peer's offer in words: `[AES-GCM-16-256 | PRF-HMAC-SHA1 | ECP-384]`, proposals separated by "or".
pub fn describe(proposals: &[Proposal]) -> String {
    described(&offers(proposals))
}

/// Proposals by name, a bounded number of them: a stranger may have written them.
pub fn offers(proposals: &[Proposal]) -> Vec<Offer> {
    proposals.iter().take(KEPT).map(offer).collect()
}

fn offer(proposal: &Proposal) -> Offer {
    let mut transforms: Vec<Alternatives> = Vec::new();
    if proposal.protocol == ProtocolId::AH {
        transforms.push(Alternatives { kind: "protocol", names: vec!["AH".into()] });
    }
    for transform in &proposal.transforms {
        let (kind, name) = (describe_kind(transform.kind), describe_transform(transform));
        match transforms.iter_mut().find(|t| t.kind == kind) {
            Some(alternatives) if alternatives.names.len() < KEPT => alternatives.names.push(name),
            Some(_) => {}
            None => transforms.push(Alternatives { kind, names: vec![name] }),
        }
    }
    Offer { transforms }
}

fn describe_kind(kind: TransformType) -> &'static str {
    match kind {
        TransformType::ENCR => "encryption",
        TransformType::PRF => "PRF",
        TransformType::INTEG => "integrity",
        TransformType::KE => "group",
        TransformType::ESN => "sequence numbers",
        _ => "other",
    }
}

/// A group as the policy and the log of what was agreed call it.
pub fn describe_group(id: GroupId) -> String {
    group_of(id).map_or_else(|| plain_name(&id.to_string()), |group| group.to_string())
}

/// The registry's names with hyphens.
fn plain_name(name: &str) -> String {
    name.trim_start_matches("ENCR_").trim_start_matches("AUTH_").replace('_', "-")
}

fn describe_transform(transform: &Transform) -> String {
    let name = match transform.kind {
        TransformType::ENCR => plain_name(&EncryptionId(transform.id).to_string()),
        TransformType::PRF => plain_name(&PrfId(transform.id).to_string()),
        TransformType::INTEG => plain_name(&IntegrityId(transform.id).to_string()),
        TransformType::KE => describe_group(GroupId(transform.id)),
        TransformType::ESN => {
            return if transform.id == 1 { "ESN".into() } else { "no ESN".into() };
        }
        other => format!("{other}:{}", transform.id),
    };
    match transform.key_length {
        Some(bits) => format!("{name}-{bits}"),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::Lifetime;
    use std::time::Duration;

    fn cbc() -> IkeProposal {
        IkeProposal {
            encryption: vec![
                IkeEncryption::AesCbc(KeyBits::B256),
                IkeEncryption::AesCbc(KeyBits::B128),
            ],
            integrity: vec![Integrity::HmacSha2_256_128, Integrity::HmacSha1_96],
            prf: vec![Prf::HmacSha2_256, Prf::HmacSha1],
            groups: vec![Group::Ecp384, Group::Curve25519],
        }
    }

    fn gcm() -> IkeProposal {
        IkeProposal {
            encryption: vec![IkeEncryption::AesGcm16(KeyBits::B128)],
            integrity: vec![],
            prf: vec![Prf::HmacSha2_256],
            groups: vec![Group::Curve25519],
        }
    }

    fn esp(key: KeyBits, esn: bool) -> ChildProposal {
        ChildProposal {
            name: "p".into(),
            protection: Protection::aead(EspEncryption::AesGcm16(key)),
            esn,
            lifetime: Lifetime {
                hard: Duration::from_secs(3600),
                bytes: None,
                overlap_percent: 10,
            },
        }
    }

    #[test]
    fn own_order_decides_and_sent_group_is_preferred() {
        let (suite, answer) =
            choose_ike(&[gcm(), cbc()], &offer_ike(&[cbc(), gcm()], &[]), GroupId::CURVE25519, &[])
                .unwrap();
        assert_eq!(suite.encryption, IkeEncryption::AesGcm16(KeyBits::B128));
        assert_eq!(answer.number, 2);
        let (suite, _) =
            choose_ike(&[cbc()], &offer_ike(&[cbc()], &[]), GroupId::CURVE25519, &[]).unwrap();
        assert_eq!(suite.group, Group::Curve25519);
        let (suite, _) =
            choose_ike(&[cbc()], &offer_ike(&[cbc()], &[]), GroupId::MODP_2048, &[]).unwrap();
        assert_eq!(suite.group, Group::Ecp384);
    }

    #[test]
    fn every_choice_is_accepted_and_nothing_else() {
        let ours = [gcm(), cbc()];
        let offer = offer_ike(&ours, &[]);
        let (suite, answer) = choose_ike(&[cbc()], &offer, GroupId::NONE, &[]).unwrap();
        assert_eq!(accept_ike(&ours, std::slice::from_ref(&answer)), Some(suite));
        assert_eq!(accept_ike(&ours, &[answer.clone(), answer.clone()]), None);
        let mut doubled = answer.clone();
        doubled.transforms.push(integrity(Integrity::HmacSha1_96));
        assert_eq!(accept_ike(&ours, &[doubled]), None);
        let mut foreign = answer.clone();
        foreign.transforms[0].key_length = Some(192);
        assert_eq!(accept_ike(&ours, &[foreign]), None);
        let mut other = answer;
        other.number = 9;
        assert_eq!(accept_ike(&ours, &[other]), None);
    }

    #[test]
    fn a_proposal_with_an_unknown_transform_type_is_not_chosen() {
        let mut offer = offer_ike(&[gcm()], &[]);
        offer[0].transforms.push(plain(TransformType(6), 36));
        assert!(choose_ike(&[gcm()], &offer, GroupId::CURVE25519, &[]).is_none());
        let mut offer = offer_ike(&[gcm()], &[]);
        offer[0].transforms[0].unknown_attribute = true;
        assert!(choose_ike(&[gcm()], &offer, GroupId::CURVE25519, &[]).is_none());
    }

    /// RFC 7634 §4 and RFC 2410 §3: no Key Length attribute; RFC 4543 §5.2: one for GMAC. An integrity algorithm goes
    /// with NULL and with nothing else here.
    #[test]
    fn transforms_of_the_esp_suites_are_as_registered() {
        let offer = |encryption, integrity| ChildProposal {
            protection: Protection::Esp { encryption, integrity },
            ..esp(KeyBits::B128, false)
        };
        let sha1 = Some(Integrity::HmacSha1_96);
        let cases = [
            (offer(EspEncryption::ChaCha20Poly1305, None), 28, None, "CHACHA20-POLY1305"),
            (
                offer(EspEncryption::AesGmac(KeyBits::B192), None),
                21,
                Some(192),
                "NULL-AUTH-AES-GMAC-192",
            ),
            (offer(EspEncryption::Null, sha1), 11, None, "NULL | HMAC-SHA1-96"),
        ];
        for (ours, id, key_length, words) in &cases {
            let ours = std::slice::from_ref(ours);
            let offered = offer_child(ours, &[], Spi(0x1000));
            let cipher = &offered[0].transforms[0];
            assert_eq!((cipher.id, cipher.key_length), (*id, *key_length));
            assert_eq!(describe(&offered), format!("[{words} | no ESN]"));
            let never = ChildKeyExchange::Never;
            let (choice, _, answer) =
                choose_child(ours, never, &offered, Spi(0x2000)).expect("our own offer");
            let suite = choice.suite().expect("they go together").to_string();
            assert_eq!(choice.to_string(), suite);
            assert_eq!(accept_child(ours, &[], &[answer]).map(|(c, _)| c), Some(choice));
            // None of them is taken for another one.
            for (other, ..) in cases.iter().filter(|(_, other, ..)| other != id) {
                let other = std::slice::from_ref(other);
                assert!(choose_child(other, never, &offered, Spi(0x2000)).is_none());
            }
            let mut longer = offered.clone();
            longer[0].transforms[0].key_length = Some(256);
            assert!(choose_child(ours, never, &longer, Spi(0x2000)).is_none());
            let mut bare = offered.clone();
            bare[0].transforms.retain(|t| t.kind != TransformType::INTEG);
            let chosen = choose_child(ours, never, &bare, Spi(0x2000)).is_some();
            let mac = match ours[0].protection {
                Protection::Esp { integrity, .. } => integrity,
                Protection::Ah(_) => None,
            };
            assert_eq!(chosen, mac.is_none(), "NULL needs its integrity");
            let mut doubled = offered.clone();
            doubled[0].transforms.push(integrity(Integrity::HmacSha2_512_256));
            assert!(choose_child(ours, never, &doubled, Spi(0x2000)).is_none() || sha1 == mac);
        }
    }

    /// RFC 7296 §3.3, RFC 4543 §5.3: AH has an integrity transform and none for encryption.
    #[test]
    fn ah_is_negotiated_by_its_integrity() {
        let ah = |integrity| ChildProposal {
            protection: Protection::Ah(integrity),
            ..esp(KeyBits::B128, true)
        };
        let gmac = |key| AhIntegrity::AesGmac(key);
        let cases = [
            (gmac(KeyBits::B128), 9, "AES-128-GMAC"),
            (gmac(KeyBits::B192), 10, "AES-192-GMAC"),
            (gmac(KeyBits::B256), 11, "AES-256-GMAC"),
            (AhIntegrity::Mac(Integrity::HmacSha2_256_128), 12, "HMAC-SHA2-256-128"),
        ];
        let never = ChildKeyExchange::Never;
        for (algorithm, id, words) in cases {
            let ours = [ah(algorithm)];
            let offered = offer_child(&ours, &[], Spi(0x1000));
            assert_eq!(offered[0].protocol, ProtocolId::AH);
            assert_eq!(offered[0].transforms[0], plain(TransformType::INTEG, id));
            assert_eq!(describe(&offered), format!("[AH | {words} | ESN]"));
            let (choice, spi, answer) =
                choose_child(&ours, never, &offered, Spi(0x2000)).expect("our own offer");
            assert_eq!((choice.protocol(), spi), (ProtocolId::AH, Spi(0x1000)));
            assert_eq!(choice.suite(), Some(Suite::Ah(algorithm)));
            assert_eq!(accept_child(&ours, &[], &[answer]).map(|(c, _)| c), Some(choice));
            let mut encrypting = offered.clone();
            encrypting[0].transforms.push(keyed(EncryptionId::ENCR_AES_CBC, KeyBits::B128));
            assert!(choose_child(&ours, never, &encrypting, Spi(0x2000)).is_none());
            let mut as_esp = offered.clone();
            as_esp[0].protocol = ProtocolId::ESP;
            assert!(choose_child(&ours, never, &as_esp, Spi(0x2000)).is_none());
        }
        // In one list with ESP, the first of the responder's that is offered at all.
        let ours = [esp(KeyBits::B128, true), ah(gmac(KeyBits::B256))];
        let offered = offer_child(&ours, &[], Spi(0x1000));
        let numbers: Vec<_> = offered.iter().map(|p| (p.number, p.protocol)).collect();
        assert_eq!(numbers, [(1, ProtocolId::ESP), (2, ProtocolId::AH)]);
        let (choice, ..) = choose_child(&ours[1..], never, &offered, Spi(0x2000)).expect("AH");
        assert_eq!(choice.to_string(), "AH/AES-GMAC-256/ESN");
    }

    #[test]
    fn chacha20_and_the_large_groups_are_chosen() {
        let ours = [IkeProposal {
            encryption: vec![
                IkeEncryption::ChaCha20Poly1305,
                IkeEncryption::AesGcm16(KeyBits::B256),
            ],
            groups: vec![Group::Modp3072, Group::Modp4096],
            ..gcm()
        }];
        let offered = offer_ike(&ours, &[]);
        let (suite, answer) = choose_ike(&ours, &offered, GroupId::MODP_4096, &[]).unwrap();
        assert_eq!(
            (suite.group, suite.protection()),
            (Group::Modp4096, Some(Suite::ChaCha20Poly1305))
        );
        assert_eq!(suite.to_string(), "CHACHA20-POLY1305/PRF-HMAC-SHA2-256/MODP-4096");
        assert_eq!(answer.transforms[0], plain(TransformType::ENCR, 28));
        assert_eq!(accept_ike(&ours, &[answer]), Some(suite));
        assert_eq!(
            describe(&offered),
            "[CHACHA20-POLY1305 or AES-GCM-16-256 | PRF-HMAC-SHA2-256 | MODP-3072 or MODP-4096]"
        );
    }

    #[test]
    fn words_for_an_offer_stay_few_whatever_it_holds() {
        assert_eq!(
            describe(&offer_ike(&[gcm()], &[])),
            "[AES-GCM-16-128 | PRF-HMAC-SHA2-256 | CURVE25519]"
        );
        let mut offer = offer_ike(&[gcm()], &[]);
        offer[0].transforms =
            (0..255).map(|n| plain(TransformType((n % 2) as u8 + 1), n)).collect();
        let offers = vec![offer[0].clone(); 64];
        let words = describe(&offers);
        assert!(words.len() < 16 * 1024, "{} octets", words.len());
    }

    #[test]
    fn child_choices_follow_pfs_and_esn() {
        let offer = offer_child(
            &[esp(KeyBits::B256, true), esp(KeyBits::B128, false)],
            &[Group::Ecp256],
            Spi(0x1000),
        );
        let pfs = Pfs { offer: vec![], accept: vec![Group::Ecp256], accept_none: true };
        let wanted = ChildKeyExchange::Policy(&pfs, Some(GroupId::ECP_256));
        let (choice, spi, _) =
            choose_child(&[esp(KeyBits::B128, false)], wanted, &offer, Spi(0x2000)).unwrap();
        assert_eq!((choice.group, spi), (Some(Group::Ecp256), Spi(0x1000)));
        assert!(choose_child(&[esp(KeyBits::B256, false)], wanted, &offer, Spi(0x2000)).is_none());
        let never =
            choose_child(&[esp(KeyBits::B256, true)], ChildKeyExchange::Never, &offer, Spi(0x2000))
                .unwrap();
        assert_eq!(never.0.group, None);
        let none = offer_child(&[esp(KeyBits::B128, false)], &[], Spi(0x1000));
        let strict = Pfs { accept_none: false, ..pfs };
        let wanted = ChildKeyExchange::Policy(&strict, None);
        assert!(choose_child(&[esp(KeyBits::B128, false)], wanted, &none, Spi(0x2000)).is_none());
    }

    #[test]
    fn a_child_answer_must_name_a_usable_spi_and_the_offered_group() {
        let ours = [esp(KeyBits::B128, false)];
        let mut answer = offer_child(&ours, &[Group::Ecp256], Spi(0x1000));
        assert!(accept_child(&ours, &[Group::Ecp256], &answer).is_some());
        assert!(accept_child(&ours, &[], &answer).is_none());
        assert!(accept_child(&ours, &[Group::Ecp384], &answer).is_none());
        answer[0].spi = 255u32.to_be_bytes().to_vec();
        assert!(accept_child(&ours, &[Group::Ecp256], &answer).is_none());
    }
}
