//! Offers for an IKE SA in the form and the number that a document and a message can hold.

use super::words::push;
use policy::validate::MAX_IKE_ALGORITHMS;
use policy::{Group, IkeEncryption, IkeProposal, Integrity, KeyBits, MAX_PROPOSALS, Prf};
use std::mem;

/// An offer, and whether the file names its algorithms or leaves them to the daemon.
pub(super) struct Offer {
    pub proposal: IkeProposal,
    pub is_default: bool,
}

/// Returns `true` if the document can say it by single algorithms: one offer, or one of AEAD and one of other ciphers
/// that share the rest.
pub(crate) fn fits_one_offer(proposals: &[IkeProposal]) -> bool {
    match proposals {
        [_] => true,
        [a, b] => {
            (a.prf == b.prf && a.groups == b.groups && a.additional == b.additional)
                && a.integrity.is_empty() != b.integrity.is_empty()
        }
        _ => false,
    }
}

/// The proposals of offers, and the number of those that found no room.
pub(super) fn fitted(offers: Vec<Offer>) -> (Vec<IkeProposal>, usize) {
    let offers = merged(offers);
    let whole: Vec<IkeProposal> = offers.iter().map(|offer| offer.proposal.clone()).collect();
    if fits_one_offer(&whole) {
        return (whole, 0);
    }
    let mut single: Vec<(IkeProposal, [usize; 2])> = Vec::new();
    for (proposal, rank) in offers.iter().flat_map(expand) {
        if !single.iter().any(|(other, _)| *other == proposal) {
            single.push((proposal, rank));
        }
    }
    if single.len() > MAX_PROPOSALS
        || algorithms(single.iter().map(|(p, _)| p)) > MAX_IKE_ALGORITHMS
    {
        // Of each kind of algorithm some have to remain.
        single.sort_by_key(|(_, rank)| *rank);
    }
    let all = single.len();
    let mut room = MAX_IKE_ALGORITHMS;
    let mut kept = Vec::new();
    for (proposal, _) in single.into_iter().take(MAX_PROPOSALS) {
        let Some(rest) = room.checked_sub(algorithms([&proposal])) else { break };
        room = rest;
        kept.push(proposal);
    }
    let missing = all - kept.len();
    (kept, missing)
}

fn algorithms<'p>(proposals: impl IntoIterator<Item = &'p IkeProposal>) -> usize {
    proposals
        .into_iter()
        .map(|p| {
            let additional: usize = p.additional.iter().map(|a| a.methods.len() + 1).sum();
            p.encryption.len() + p.integrity.len() + p.prf.len() + p.groups.len() + additional
        })
        .sum()
}

/// Neighbours that differ in one list are one offer with both lists: that is the same offer in fewer words.
fn merged(offers: Vec<Offer>) -> Vec<Offer> {
    let mut merged: Vec<Offer> = Vec::new();
    for offer in offers {
        let mut offer = offer;
        let joined = merged.last_mut().is_some_and(|last| {
            last.is_default == offer.is_default && join(&mut last.proposal, &mut offer.proposal)
        });
        if !joined {
            merged.push(offer);
        }
    }
    merged
}

/// Adds an offer to another one, if they differ in no more than one list.
fn join(one: &mut IkeProposal, other: &mut IkeProposal) -> bool {
    let same_kind = one.integrity.is_empty() == other.integrity.is_empty();
    let differ = [
        one.encryption != other.encryption,
        one.integrity != other.integrity,
        one.prf != other.prf,
        one.groups != other.groups,
    ];
    if !same_kind || one.additional != other.additional || differ.iter().filter(|d| **d).count() > 1
    {
        return false;
    }
    mem::take(&mut other.encryption).into_iter().for_each(|e| push(&mut one.encryption, e));
    mem::take(&mut other.integrity).into_iter().for_each(|i| push(&mut one.integrity, i));
    mem::take(&mut other.prf).into_iter().for_each(|p| push(&mut one.prf, p));
    mem::take(&mut other.groups).into_iter().for_each(|g| push(&mut one.groups, g));
    true
}

/// Splits an offer so that each has one algorithm of each kind, and ranks each: the file's own before defaults, then by
/// their places in the lists or by their use.
fn expand(offer: &Offer) -> Vec<(IkeProposal, [usize; 2])> {
    let proposal = &offer.proposal;
    let integrity: Vec<Option<Integrity>> = match proposal.integrity.as_slice() {
        [] => vec![None],
        some => some.iter().copied().map(Some).collect(),
    };
    let mut all = Vec::new();
    for (e, encryption) in proposal.encryption.iter().enumerate() {
        for (i, integrity) in integrity.iter().enumerate() {
            for (p, prf) in proposal.prf.iter().enumerate() {
                for (g, group) in proposal.groups.iter().enumerate() {
                    let rank = match offer.is_default {
                        true => rarity(*encryption, *integrity, *prf, *group),
                        false => e + i + p + g,
                    };
                    let single = IkeProposal {
                        encryption: vec![*encryption],
                        integrity: integrity.iter().copied().collect(),
                        prf: vec![*prf],
                        groups: vec![*group],
                        additional: proposal.additional.clone(),
                    };
                    all.push((single, [usize::from(offer.is_default), rank]));
                }
            }
        }
    }
    all
}

/// How rare a combination is among the gateways that people connect to: 0 is the most common one.
fn rarity(
    encryption: IkeEncryption,
    integrity: Option<Integrity>,
    prf: Prf,
    group: Group,
) -> usize {
    let of_cipher = match encryption {
        IkeEncryption::AesCbc(KeyBits::B256) | IkeEncryption::AesGcm16(KeyBits::B256) => 0,
        IkeEncryption::AesCbc(KeyBits::B128) | IkeEncryption::AesGcm16(KeyBits::B128) => 1,
        IkeEncryption::ChaCha20Poly1305 => 2,
        _ => 4,
    };
    let of_group = match group {
        Group::Modp2048 => 0,
        Group::Ecp256 => 1,
        Group::Ecp384 | Group::Curve25519 => 2,
        Group::Modp3072 => 3,
        _ => 4,
    };
    let of_hash = match prf {
        Prf::HmacSha2_256 => 0,
        Prf::HmacSha2_384 => 1,
        _ => 2,
    };
    // Hardly anybody has two hashes in one proposal.
    let mixed = integrity.is_some_and(|integrity| Prf::of(integrity) != prf);
    of_cipher + of_group + of_hash + if mixed { 8 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposal(ciphers: &[IkeEncryption], groups: &[Group]) -> IkeProposal {
        IkeProposal {
            encryption: ciphers.to_vec(),
            integrity: Vec::new(),
            prf: vec![Prf::HmacSha2_256],
            groups: groups.to_vec(),
            additional: Vec::new(),
        }
    }

    #[test]
    fn neighbours_that_differ_in_one_list_are_one_offer() {
        let gcm = |bits| IkeEncryption::AesGcm16(bits);
        let own = |proposal| Offer { proposal, is_default: false };
        let groups = [Group::Ecp256, Group::Ecp384];
        let (fitted, missing) = fitted(vec![
            own(proposal(&[gcm(KeyBits::B256)], &groups)),
            own(proposal(&[gcm(KeyBits::B128)], &groups)),
        ]);
        assert_eq!(fitted, [proposal(&[gcm(KeyBits::B256), gcm(KeyBits::B128)], &groups)]);
        assert_eq!(missing, 0);
    }

    #[test]
    fn what_finds_no_room_is_rare() {
        let own = proposal(&[IkeEncryption::AesGcm16(KeyBits::B192)], &[Group::Modp1024]);
        let defaults = super::super::defaults::ike(crate::dialect::Dialect::Strongswan);
        let offers = std::iter::once((own.clone(), false))
            .chain(defaults.into_iter().map(|proposal| (proposal, true)))
            .map(|(proposal, is_default)| Offer { proposal, is_default });
        let (fitted, missing) = fitted(offers.collect());
        assert_eq!(fitted.len(), MAX_PROPOSALS);
        assert!(missing > 0);
        assert_eq!(fitted[0], own);
        let has = |test: &dyn Fn(&IkeProposal) -> bool| fitted.iter().any(test);
        for group in
            super::super::defaults::ike(crate::dialect::Dialect::Strongswan)[0].groups.iter()
        {
            assert!(has(&|p| p.groups == [*group]), "{group}");
        }
        assert!(has(&|p| p.encryption == [IkeEncryption::ChaCha20Poly1305]));
        assert!(has(&|p| p.integrity == [Integrity::HmacSha2_512_256]));
    }
}
