//! One function for each rule. The reader of XML calls them, too.

use super::problem::{MAX_IKE_ALGORITHMS, MAX_PROPOSALS, Problem};
use crate::{
    AdditionalKe, AddressRange, Endpoint, Identity, IkeProposal, Lifetime, LifetimeBounds,
    MAX_ADDITIONAL, Pfs, PortRange, Ppk, Protection, Role, Selector, is_built,
};
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};

/// Longest name and longest key ID, in octets.
const LONGEST_ID: usize = 255;

pub(crate) fn name(name: &str) -> Result<(), Problem> {
    let good = !name.is_empty() && !name.chars().any(char::is_control);
    if good { Ok(()) } else { Err(Problem::BadName(name.to_owned())) }
}

pub(crate) fn not_empty<T>(what: &'static str, list: &[T]) -> Result<(), Problem> {
    if list.is_empty() { Err(Problem::Missing(what)) } else { Ok(()) }
}

/// A list without repetitions is never long: it has at most one entry for each algorithm.
pub(crate) fn distinct<T: PartialEq + Display>(list: &[T]) -> Result<(), Problem> {
    let mut seen: Vec<&T> = Vec::new();
    for item in list {
        if seen.contains(&item) {
            return Err(Problem::Repeated(item.to_string()));
        }
        seen.push(item);
    }
    Ok(())
}

pub(crate) fn key(octets: &[u8]) -> Result<(), Problem> {
    if octets.is_empty() { Err(Problem::EmptyKey) } else { Ok(()) }
}

/// The names of postquantum preshared keys.
pub(crate) fn ppk(ppk: &Ppk) -> Result<(), Problem> {
    not_empty("PPK", &ppk.ids)?;
    if ppk.ids.len() > Ppk::MOST {
        return Err(Problem::TooManyPpks(ppk.ids.len()));
    }
    if let Some(id) = ppk.ids.iter().find(|id| !Ppk::is_id(id)) {
        return Err(Problem::NotAPpkId(id.clone()));
    }
    distinct(&ppk.ids)
}

// ---- who

pub(crate) fn identity(identity: &Identity) -> Result<(), Problem> {
    match identity {
        Identity::Ipv4(address) => host((*address).into()),
        Identity::Ipv6(address) => host((*address).into()),
        // The peer decides which text it sends (RFC 7296 §3.5): `Identity::doubt` has remarks, and no text is refused.
        Identity::Fqdn(name) | Identity::UserFqdn(name) => {
            let good = (1..=LONGEST_ID).contains(&name.len()) && !name.contains(char::is_control);
            if good { Ok(()) } else { Err(Problem::NotAnIdentity(name.clone())) }
        }
        Identity::KeyId(octets) if (1..=LONGEST_ID).contains(&octets.len()) => Ok(()),
        Identity::KeyId(octets) => Err(Problem::KeyIdLength(octets.len())),
        // Its type admits no empty and no overlong one.
        Identity::Dn(_) => Ok(()),
    }
}

pub(crate) fn host(address: IpAddr) -> Result<(), Problem> {
    let is_broadcast = address == IpAddr::from(Ipv4Addr::BROADCAST);
    let good = !address.is_unspecified() && !address.is_multicast() && !is_broadcast;
    if good { Ok(()) } else { Err(Problem::NoHost(address)) }
}

/// An address from which this host sends, or to which it does. Nothing here says on which link it is.
pub(crate) fn place(address: IpAddr) -> Result<(), Problem> {
    host(address)?;
    match address {
        IpAddr::V6(address) if address.is_unicast_link_local() => Err(Problem::OfLink(address)),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => Err(Problem::Mapped(mapped)),
            None => Ok(()),
        },
        IpAddr::V4(_) => Ok(()),
    }
}

/// An initiator must know where both sides are.
pub(crate) fn located(role: Role, endpoint: &Endpoint) -> Result<(), Problem> {
    match (role, endpoint.address) {
        (Role::Initiator, None) => Err(Problem::NoAddress(endpoint.identity.clone())),
        (_, Some(address)) => place(address),
        (Role::Both | Role::Responder, None) => Ok(()),
    }
}

/// The two sides of a phase 1 tunnel.
pub(crate) fn sides(local: &Endpoint, remote: &Endpoint) -> Result<(), Problem> {
    if let (Some(a), Some(b)) = (local.address, remote.address) {
        if a.is_ipv4() != b.is_ipv4() {
            return Err(Problem::FamiliesDiffer(a.to_string(), b.to_string()));
        }
        if a == b {
            return Err(Problem::SameAddress(a));
        }
    }
    match local.identity.matches(&remote.identity) {
        true => Err(Problem::SameIdentity(local.identity.clone())),
        false => Ok(()),
    }
}

// ---- algorithms

pub(crate) fn number_of_proposals(count: usize) -> Result<(), Problem> {
    match count {
        0 => Err(Problem::Missing("proposal")),
        1..=MAX_PROPOSALS => Ok(()),
        _ => Err(Problem::TooManyProposals(count)),
    }
}

pub(crate) fn number_of_algorithms(proposals: &[IkeProposal]) -> Result<(), Problem> {
    let all = proposals
        .iter()
        .map(|p| {
            let additional: usize = p.additional.iter().map(|a| a.methods.len() + 1).sum();
            p.encryption.len() + p.integrity.len() + p.prf.len() + p.groups.len() + additional
        })
        .sum();
    match all {
        0..=MAX_IKE_ALGORITHMS => Ok(()),
        all => Err(Problem::TooManyAlgorithms(all)),
    }
}

/// The lists of a proposal for an IKE SA that are wrong.
pub(crate) fn ike_proposal(proposal: &IkeProposal) -> Vec<(&'static str, Problem)> {
    let IkeProposal { encryption, integrity, prf, groups, additional } = proposal;
    let aead = encryption.iter().find(|e| e.is_aead());
    let other = encryption.iter().find(|e| !e.is_aead());
    let together = match (aead, other, integrity.is_empty()) {
        (Some(_), Some(_), _) => Err(Problem::MixedCiphers),
        (Some(aead), None, false) => Err(Problem::IkeIntegrityUnused(*aead)),
        (None, Some(other), true) => Err(Problem::IkeIntegrityMissing(*other)),
        _ => Ok(()),
    };
    let outcomes = [
        ("encryption", not_empty("cipher", encryption)),
        ("encryption", distinct(encryption)),
        ("integrity", together),
        ("integrity", distinct(integrity)),
        ("prf", not_empty("PRF", prf)),
        ("prf", distinct(prf)),
        ("groups", not_empty("group", groups)),
        ("groups", distinct(groups)),
        ("additional", self::additional(additional)),
    ];
    outcomes.into_iter().filter_map(|(field, outcome)| Some((field, outcome.err()?))).collect()
}

/// Additional key exchanges (RFC 9370 §2.2.1).
pub(crate) fn additional(additional: &[AdditionalKe]) -> Result<(), Problem> {
    if additional.len() > MAX_ADDITIONAL {
        return Err(Problem::TooManyKeyExchanges(additional.len()));
    }
    for exchange in additional {
        not_empty("method", &exchange.methods)?;
        distinct(&exchange.methods)?;
    }
    Ok(())
}

/// The algorithms of a Child SA.
pub(crate) fn protection(protection: Protection) -> Result<(), Problem> {
    let Protection::Esp { encryption, integrity } = protection else { return Ok(()) };
    match (encryption.is_aead(), integrity) {
        (true, Some(_)) => Err(Problem::EspIntegrityUnused(encryption)),
        (false, None) => Err(Problem::EspIntegrityMissing(encryption)),
        _ if !is_built(encryption) => Err(Problem::NotBuilt(encryption)),
        _ => Ok(()),
    }
}

pub(crate) fn pfs(pfs: &Pfs) -> Result<(), Problem> {
    match pfs.accept.is_empty() && !pfs.accept_none {
        true => Err(Problem::AcceptsNothing),
        false => additional(&pfs.additional),
    }
}

/// The fields of a lifetime that are wrong.
pub(crate) fn lifetime(lifetime: &Lifetime) -> Vec<(&'static str, Problem)> {
    let mut wrong = Vec::new();
    if lifetime.hard < Lifetime::SHORTEST {
        wrong.push(("hard", Problem::TooShort(lifetime.hard)));
    }
    if let Some(bytes) = lifetime.bytes.filter(|bytes| *bytes < Lifetime::SMALLEST) {
        wrong.push(("bytes", Problem::TooSmall(bytes)));
    }
    if !(1..=50).contains(&lifetime.overlap_percent) {
        wrong.push(("overlap_percent", Problem::Overlap(lifetime.overlap_percent)));
    }
    let LifetimeBounds { age: [shortest, longest], bytes: [smallest, largest] } =
        lifetime.as_responder;
    if shortest > longest
        || smallest > largest
        || longest < Lifetime::SHORTEST
        || largest < Lifetime::SMALLEST
    {
        wrong.push(("as_responder", Problem::Bounds));
    }
    wrong
}

// ---- traffic

/// Ports go with a protocol that has them.
pub(crate) fn ports(protocol: u8, ports: PortRange) -> Result<(), Problem> {
    match ports.fits(protocol) {
        true => Ok(()),
        false => Err(Problem::NoPorts(protocol)),
    }
}

/// The two ends of a phase 2 tunnel's traffic.
pub(crate) fn ends(local: &Selector, remote: &Selector) -> Result<(), Problem> {
    if local.protocol != remote.protocol {
        return Err(Problem::ProtocolsDiffer(local.protocol, remote.protocol));
    }
    let (here, there) = (&local.addresses, &remote.addresses);
    match here.start().is_ipv4() == there.start().is_ipv4() {
        true => Ok(()),
        false => Err(Problem::FamiliesDiffer(here.to_string(), there.to_string())),
    }
}

/// Transport mode protects packets between the two gateways themselves (RFC 4301 §4.1).
pub(crate) fn transport(range: &AddressRange, address: Option<IpAddr>) -> Result<(), Problem> {
    let fits = range.start() == range.end() && address.is_none_or(|a| a == range.start());
    if fits { Ok(()) } else { Err(Problem::NotTheGateway(range.to_string(), address)) }
}
