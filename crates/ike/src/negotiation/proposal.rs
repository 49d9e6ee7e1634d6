//! Offers and choices of algorithms (RFC 7296 §2.7, §3.3).
//!
//! A responder takes the first proposal of its own policy that the peer offers too, and within it the first algorithm
//! of its own. In CREATE_CHILD_SA, which cannot be forged, it prefers the group whose public value the peer already
//! sent. In IKE_SA_INIT it does not: an attacker who forges INVALID_KE_PAYLOAD can have an initiator send the public
//! value of any group that it offers.
//!
//! So a responder asks for its own choice of group with INVALID_KE_PAYLOAD, which costs a round trip. The initiator
//! offers all of its groups again, the responder chooses from them by its own order, and both proofs cover that offer
//! (RFC 7296 §1.2, §2.15). The attacker can still keep the IKE SA from coming up. A responder of another implementation
//! may take the group that it is sent: then only the initiator's policy bounds the choice.

use super::suite::{Additional, ChildChoice, ChildSuite, IkeSuite};
use super::transforms::{
    additional, algorithms, esn, group_of, ike_encryption, integrity, key_exchange, plain, prf,
    protocol,
};
use crate::wire::payload::{Proposal, Transform};
use crate::wire::registry::{GroupId, ProtocolId, TransformType};
use esp::plane::Spi;
use policy::{AdditionalKe, ChildProposal, Group, IkeProposal, Pfs};

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

    /// Returns `true` if the type may go unanswered: it is absent or offers NONE (RFC 7296 §3.3.6).
    fn none(&self, kind: TransformType) -> bool {
        !self.offers(kind) || self.offered.transforms.contains(&plain(kind, 0))
    }

    /// Takes additional key exchanges; no method is used twice (RFC 9370 §2.2.2). `first`: the method of the first key
    /// exchange, without which there are no additional ones.
    fn take_additional(
        &mut self,
        ours: &[AdditionalKe],
        first: Option<Group>,
    ) -> Option<Additional> {
        let mut chosen = Additional::default();
        for (i, kind) in TransformType::ADDITIONAL.into_iter().enumerate() {
            let our = ours.get(i).filter(|_| first.is_some());
            let free: Vec<Group> = our
                .iter()
                .flat_map(|our| &our.methods)
                .copied()
                .filter(|m| first != Some(*m) && !chosen.methods().any(|c| c == *m))
                .collect();
            let taken = self.take(&free, |method| additional(kind, Some(method)));
            if taken.is_none() {
                let may_be_left_out = our.is_none_or(|our| our.optional) && self.none(kind);
                may_be_left_out.then_some(())?;
                if self.offers(kind) {
                    self.chosen.push(additional(kind, None));
                }
            }
            chosen.0[i] = taken;
        }
        Some(chosen)
    }

    /// The answer, if every type that was offered is known.
    fn finish(self, known: &[TransformType], spi: Vec<u8>) -> Option<Proposal> {
        // RFC 7296 §3.3.6: a proposal with a transform type that is not understood must not be chosen.
        self.offered
            .transforms
            .iter()
            .all(|t| known.contains(&t.kind) || TransformType::ADDITIONAL.contains(&t.kind))
            .then_some(Proposal {
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

/// The transforms of additional key exchanges.
fn offer_additional(ours: &[AdditionalKe]) -> impl Iterator<Item = Transform> + '_ {
    TransformType::ADDITIONAL.into_iter().zip(ours).flat_map(|(kind, our)| {
        let methods = our.methods.iter().map(move |method| additional(kind, Some(*method)));
        methods.chain(our.optional.then(|| additional(kind, None)))
    })
}

fn number(index: usize) -> u8 {
    u8::try_from(index + 1).unwrap_or(u8::MAX)
}

/// The SA payload of a request for an IKE SA; `spi` is empty in IKE_SA_INIT, the new SPI when rekeying.
pub fn offer_ike(ours: &[IkeProposal], spi: &[u8]) -> Vec<Proposal> {
    (ours.iter().enumerate().take(255))
        .map(|(i, p)| Proposal {
            number: number(i),
            protocol: ProtocolId::IKE,
            spi: spi.to_vec(),
            transforms: (p.encryption.iter().map(|e| ike_encryption(*e)))
                .chain(p.integrity.iter().map(|i| integrity(*i)))
                .chain(p.prf.iter().map(|p| prf(*p)))
                .chain(p.groups.iter().map(|g| key_exchange(*g)))
                .chain(offer_additional(&p.additional))
                .collect(),
        })
        .collect()
}

/// The proposal that has the algorithms of a suite and no others.
pub fn proposal_of(suite: &IkeSuite) -> Proposal {
    let additional_kinds = TransformType::ADDITIONAL.into_iter().zip(suite.additional.0);
    let first = [ike_encryption(suite.encryption), prf(suite.prf), key_exchange(suite.group)];
    let transforms = (first.into_iter())
        .chain(suite.integrity.map(integrity))
        .chain(additional_kinds.filter_map(|(kind, m)| Some(additional(kind, Some(m?)))))
        .collect();
    Proposal { number: 1, protocol: ProtocolId::IKE, spi: Vec::new(), transforms }
}

/// The responder's choice from an offer for an IKE SA, and the proposal it answers with; `None`: nothing in common.
/// Among acceptable groups `sent_group` goes first; with [`GroupId::NONE`] the order of `ours` decides, as it must
/// where the request is not protected.
pub fn choose_ike(
    ours: &[IkeProposal],
    theirs: &[Proposal],
    sent_group: GroupId,
    spi: &[u8],
) -> Option<(IkeSuite, Proposal)> {
    ours.iter()
        .find_map(|our| theirs.iter().find_map(|their| answer_to_ike(our, their, sent_group, spi)))
}

fn answer_to_ike(
    our: &IkeProposal,
    their: &Proposal,
    sent_group: GroupId,
    spi: &[u8],
) -> Option<(IkeSuite, Proposal)> {
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
    let additional = chooser.take_additional(&our.additional, Some(group))?;
    let answer = chooser.finish(&IKE_TYPES, spi.to_vec())?;
    Some((IkeSuite { encryption, integrity, prf, group, additional }, answer))
}

/// Checks that the answer to an offer of `ours` is one of its combinations (RFC 7296 §2.7).
pub fn accept_ike(ours: &[IkeProposal], answer: &[Proposal]) -> Option<IkeSuite> {
    let [answer] = answer else { return None };
    let our = ours.get(usize::from(answer.number).checked_sub(1)?)?;
    let (suite, chosen) =
        choose_ike(std::slice::from_ref(our), std::slice::from_ref(answer), GroupId::NONE, &[])?;
    exactly(answer, &chosen).then_some(suite)
}

/// Returns `true` if an answer holds the chosen transforms and, at most, explicit NONEs.
fn exactly(answer: &Proposal, chosen: &Proposal) -> bool {
    let rest = answer.transforms.iter().filter(|t| !chosen.transforms.contains(t));
    let are_none = rest.clone().all(|t| {
        t.id == 0
            && (matches!(t.kind, TransformType::INTEG | TransformType::KE)
                || TransformType::ADDITIONAL.contains(&t.kind))
    });
    are_none && answer.transforms.len() - rest.count() == chosen.transforms.len()
}

/// The key exchanges that a request for a Child SA offers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offered<'a> {
    /// Of these, one takes place.
    pub groups: &'a [Group],
    /// And then these.
    pub additional: &'a [AdditionalKe],
}

impl<'a> Offered<'a> {
    /// One of these, and no other.
    pub fn one_of(groups: &'a [Group]) -> Self {
        Self { groups, additional: &[] }
    }

    /// The offer of a request outside of IKE_AUTH.
    pub fn by(pfs: &'a Pfs) -> Self {
        let additional = if pfs.offer.is_empty() { &[][..] } else { &pfs.additional };
        Self { groups: &pfs.offer, additional }
    }
}

/// The SA payload of a request for a Child SA.
pub fn offer_child(ours: &[ChildProposal], offered: Offered<'_>, spi: Spi) -> Vec<Proposal> {
    (ours.iter().enumerate().take(255))
        .map(|(i, p)| Proposal {
            number: number(i),
            protocol: protocol(p.protection),
            spi: spi.0.to_be_bytes().to_vec(),
            transforms: algorithms(p.protection)
                .chain(offered.groups.iter().map(|g| key_exchange(*g)))
                .chain(std::iter::once(esn(p.esn)))
                .chain(offer_additional(offered.additional))
                .collect(),
        })
        .collect()
}

/// The key exchange that a responder accepts for a Child SA.
#[derive(Clone, Copy, Debug)]
pub enum ChildKeyExchange<'a> {
    /// In IKE_AUTH there is none, whatever the proposals say (RFC 7296 §1.2).
    Never,
    /// In CREATE_CHILD_SA, by the policy; the second is the group whose public value came along.
    Policy(&'a Pfs, Option<GroupId>),
}

/// The responder's choice from an offer for a Child SA: the choice, the peer's SPI, and the proposal to answer with,
/// which carries `spi`.
pub fn choose_child(
    ours: &[ChildProposal],
    key_exchange_wanted: ChildKeyExchange<'_>,
    theirs: &[Proposal],
    spi: Spi,
) -> Option<(ChildChoice, Spi, Proposal)> {
    ours.iter().find_map(|our| {
        theirs.iter().find_map(|their| answer_to_child(our, key_exchange_wanted, their, spi))
    })
}

fn answer_to_child(
    our: &ChildProposal,
    key_exchange_wanted: ChildKeyExchange<'_>,
    their: &Proposal,
    spi: Spi,
) -> Option<(ChildChoice, Spi, Proposal)> {
    let peer_spi = peer_spi(their, protocol(our.protection))?;
    let mut chooser = Chooser::new(their);
    for algorithm in algorithms(our.protection) {
        chooser.take(&[algorithm], |transform| transform)?;
    }
    for kind in [TransformType::ENCR, TransformType::INTEG] {
        let chosen = algorithms(our.protection).any(|algorithm| algorithm.kind == kind);
        (chosen || chooser.none(kind)).then_some(())?;
    }
    let (group, additional): (_, &[AdditionalKe]) = match key_exchange_wanted {
        ChildKeyExchange::Never => (None, &[]),
        ChildKeyExchange::Policy(pfs, sent) => {
            (choose_group(pfs, sent, &mut chooser)?, &pfs.additional)
        }
    };
    // RFC 7296 §3.3.2: ESN is mandatory in proposals of ESP and AH; some peers leave it out to mean "no".
    if chooser.offers(TransformType::ESN) {
        chooser.take(&[our.esn], esn)?;
    } else if our.esn {
        return None;
    }
    // RFC 7296 §1.2: in IKE_AUTH nothing is made of key exchanges, whatever is offered.
    let additional = match key_exchange_wanted {
        ChildKeyExchange::Never => Additional::default(),
        ChildKeyExchange::Policy(..) => chooser.take_additional(additional, group)?,
    };
    let answer = chooser.finish(&CHILD_TYPES, spi.0.to_be_bytes().to_vec())?;
    let ChildProposal { protection, esn, lifetime, .. } = *our;
    let algorithms = ChildSuite { protection, group, additional, esn };
    Some((ChildChoice { algorithms, lifetime }, peer_spi, answer))
}

fn choose_group(
    pfs: &Pfs,
    sent: Option<GroupId>,
    chooser: &mut Chooser<'_>,
) -> Option<Option<Group>> {
    if let Some(group) = sent.and_then(group_of).filter(|g| pfs.accept.contains(g))
        && chooser.take(&[group], key_exchange).is_some()
    {
        return Some(Some(group));
    }
    if pfs.accept_none && chooser.none(TransformType::KE) {
        return Some(None);
    }
    chooser.take(&pfs.accept, key_exchange).map(Some)
}

fn peer_spi(proposal: &Proposal, protocol: ProtocolId) -> Option<Spi> {
    let spi = u32::from_be_bytes(proposal.spi.as_slice().try_into().ok()?);
    // RFC 4303 §2.1, RFC 4302 §2.4: 0 to 255 are reserved.
    (proposal.protocol == protocol && spi > 255).then_some(Spi(spi))
}

/// Checks that the answer to an offer of `ours` with these key exchanges is one of its combinations; returns the peer's
/// SPI, too.
pub fn accept_child(
    ours: &[ChildProposal],
    offered: Offered<'_>,
    answer: &[Proposal],
) -> Option<(ChildChoice, Spi)> {
    let [answer] = answer else { return None };
    let our = ours.get(usize::from(answer.number).checked_sub(1)?)?;
    let pfs = Pfs {
        offer: Vec::new(),
        accept: offered.groups.to_vec(),
        accept_none: offered.groups.is_empty(),
        additional: offered.additional.to_vec(),
    };
    let wanted = ChildKeyExchange::Policy(&pfs, None);
    let (choice, spi, chosen) =
        choose_child(std::slice::from_ref(our), wanted, std::slice::from_ref(answer), Spi(0))?;
    exactly(answer, &chosen).then_some((choice, spi))
}

#[cfg(test)]
mod tests;
