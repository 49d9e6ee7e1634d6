//! The policy with indexes: its tunnels by name, by addresses and by the peer's identity, however many there are.
//!
//! A request for an IKE SA is answered for the tunnels between its two addresses. The peer's identity in IKE_AUTH
//! chooses among them, in the order of the policy.

use crate::proof::wishes::Wanted;
use crate::ticket::{Fingerprint, fingerprint};
use policy::{ChildTunnel, Identity, IkeProposal, IkeTunnel, Policy};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

/// A policy whose tunnels are found without a look at all of them.
#[derive(Default)]
pub(crate) struct PolicyIndex {
    policy: Arc<Policy>,
    /// Places of phase 1 tunnels by name.
    tunnels: Index<u32>,
    /// Places of phase 2 tunnels, in their phase 1 tunnel's list, by name.
    children: Index<(u32, u32)>,
    /// Places of phase 1 tunnels that allow session resumption, by the beginning of their name's fingerprint.
    resumable: Index<u32>,
    families: HashMap<Ends, Vec<Arc<Family>>>,
}

/// Addresses as the policy has them: this side's, the peer's; `None` is any.
type Ends = (Option<IpAddr>, Option<IpAddr>);

/// Tunnels with their places in the policy.
type Placed = Vec<(u32, Arc<IkeTunnel>)>;

/// Tunnels that this side may answer for, between the same addresses and with the same proposals: before the peer has
/// named itself they are one.
pub(crate) struct Family {
    /// Ascending; at least one.
    tunnels: Placed,
    /// Places in `tunnels` by the fingerprint of the peer's identity.
    by_peer: Index<u32>,
    /// The kinds of proofs that these tunnels take.
    wanted: Wanted,
}

/// The tunnels that a peer may mean that has not named itself.
#[derive(Clone, Default)]
pub(crate) struct Candidates(Vec<Arc<Family>>);

/// Places by a number, in order of both.
struct Index<T>(Vec<(u64, T)>);

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy + Ord> Index<T> {
    fn of(entries: impl Iterator<Item = (u64, T)>) -> Self {
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable();
        entries.shrink_to_fit();
        Self(entries)
    }

    fn at(&self, number: u64) -> impl Iterator<Item = T> {
        let first = self.0.partition_point(|(n, _)| *n < number);
        self.0[first..].iter().take_while(move |(n, _)| *n == number).map(|(_, place)| *place)
    }
}

fn number_of(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// The same for tunnels between the same two identities; others may have it, too.
pub(crate) fn peer_number(tunnel: &IkeTunnel) -> u64 {
    let mut hasher = DefaultHasher::new();
    tunnel.local.identity.fingerprint().hash(&mut hasher);
    tunnel.remote.identity.fingerprint().hash(&mut hasher);
    hasher.finish()
}

/// The fingerprint by which a ticket names its tunnel.
pub(crate) fn fingerprint_of_name(tunnel: &IkeTunnel) -> Fingerprint {
    fingerprint(&[tunnel.name.as_bytes()])
}

fn beginning(fingerprint: &Fingerprint) -> u64 {
    fingerprint.first_chunk().map_or(0, |octets| u64::from_be_bytes(*octets))
}

fn place(index: usize) -> u32 {
    u32::try_from(index).expect("a policy has fewer than 2^32 tunnels")
}

impl Deref for PolicyIndex {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        &self.policy
    }
}

impl PolicyIndex {
    pub fn new(policy: Arc<Policy>) -> Self {
        let numbered = policy.tunnels.iter().enumerate();
        let tunnels = Index::of(numbered.clone().map(|(at, t)| (number_of(&t.name), place(at))));
        let resumable = numbered.clone().filter(|(_, t)| t.resumption);
        let resumable =
            Index::of(resumable.map(|(at, t)| (beginning(&fingerprint_of_name(t)), place(at))));
        let children = Index::of(numbered.flat_map(|(at, t)| {
            let children = t.children.iter().enumerate();
            children.map(move |(c, child)| (number_of(&child.name), (place(at), place(c))))
        }));
        let families = families(&policy);
        Self { policy, tunnels, children, resumable, families }
    }

    /// The policy itself.
    pub fn whole(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The phase 1 tunnel of that name.
    pub fn tunnel(&self, name: &str) -> Option<&Arc<IkeTunnel>> {
        let tunnels = self.tunnels.at(number_of(name));
        tunnels.map(|at| &self.policy.tunnels[at as usize]).find(|t| t.name == name)
    }

    /// The phase 1 tunnel that allows session resumption and whose name has this fingerprint.
    pub fn resumable(&self, name: &Fingerprint) -> Option<&Arc<IkeTunnel>> {
        let tunnels = self.resumable.at(beginning(name));
        let mut tunnels = tunnels.map(|at| &self.policy.tunnels[at as usize]);
        tunnels.find(|tunnel| fingerprint_of_name(tunnel) == *name)
    }

    /// The phase 2 tunnel of that name, with the phase 1 tunnel that carries it.
    pub fn child(&self, name: &str) -> Option<(&Arc<IkeTunnel>, &Arc<ChildTunnel>)> {
        let children = self.children.at(number_of(name)).map(|(tunnel, child)| {
            let tunnel = &self.policy.tunnels[tunnel as usize];
            (tunnel, &tunnel.children[child as usize])
        });
        children.into_iter().find(|(_, c)| c.name == name)
    }

    /// The phase 2 tunnel of that name that this phase 1 tunnel carries, which need not be part of the policy any more.
    pub fn child_of<'a>(
        &'a self,
        tunnel: &'a Arc<IkeTunnel>,
        name: &str,
    ) -> Option<&'a Arc<ChildTunnel>> {
        if self.has(tunnel) {
            return self.child(name).filter(|(t, _)| Arc::ptr_eq(t, tunnel)).map(|(_, c)| c);
        }
        tunnel.children.iter().find(|c| c.name == name)
    }

    /// Returns `true` if this very tunnel is part of the policy.
    pub fn has(&self, tunnel: &Arc<IkeTunnel>) -> bool {
        self.tunnel(&tunnel.name).is_some_and(|t| Arc::ptr_eq(t, tunnel))
    }

    /// Returns `true` if a tunnel that this side may answer for names the peer's address.
    pub fn names(&self, local: IpAddr, remote: IpAddr) -> bool {
        [Some(local), None].iter().any(|l| self.families.contains_key(&(*l, Some(remote))))
    }

    /// The tunnels between these addresses that this side may answer for.
    pub fn candidates(&self, local: IpAddr, remote: IpAddr) -> Candidates {
        let (here, there) = ([Some(local), None], [Some(remote), None]);
        let ends = here.into_iter().flat_map(|l| there.into_iter().map(move |r| (l, r)));
        let mut found: Vec<_> =
            ends.filter_map(|e| self.families.get(&e)).flatten().cloned().collect();
        found.sort_by_key(|f| f.tunnels[0].0);
        Candidates(found)
    }
}

fn families(policy: &Policy) -> HashMap<Ends, Vec<Arc<Family>>> {
    let mut members: HashMap<Ends, Vec<Placed>> = HashMap::new();
    for (at, tunnel) in policy.tunnels.iter().enumerate().filter(|(_, t)| t.role.may_respond()) {
        let kin = members.entry((tunnel.local.address, tunnel.remote.address)).or_default();
        let alike = kin.iter_mut().find(|k| k[0].1.proposals == tunnel.proposals);
        let member = (place(at), Arc::clone(tunnel));
        match alike {
            Some(family) => family.push(member),
            None => kin.push(vec![member]),
        }
    }
    members
        .into_iter()
        .map(|(ends, kin)| (ends, kin.into_iter().map(Family::of).map(Arc::new).collect()))
        .collect()
}

impl Family {
    fn of(tunnels: Placed) -> Self {
        let peers = tunnels.iter().enumerate();
        let by_peer =
            Index::of(peers.map(|(at, (_, t))| (t.remote.identity.fingerprint(), place(at))));
        let wanted = tunnels.iter().map(|(_, t)| Wanted::of(t));
        let wanted = wanted.fold(Wanted::default(), Wanted::or);
        Self { tunnels, by_peer, wanted }
    }

    fn of_peer(&self, identity: &Identity) -> impl Iterator<Item = &(u32, Arc<IkeTunnel>)> {
        let found = self.by_peer.at(identity.fingerprint());
        let found = found.map(|at| &self.tunnels[at as usize]);
        found.filter(|(_, tunnel)| tunnel.remote.identity.matches(identity))
    }
}

impl Candidates {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<IkeTunnel>> {
        self.0.iter().flat_map(|f| &f.tunnels).map(|(_, tunnel)| tunnel)
    }

    /// The one there is, if there are no others.
    pub fn only(&self) -> Option<&Arc<IkeTunnel>> {
        let mut all = self.iter();
        all.next().filter(|_| all.next().is_none())
    }

    /// The kinds of proofs that these tunnels take.
    pub fn wanted(&self) -> Wanted {
        self.0.iter().map(|f| f.wanted).fold(Wanted::default(), Wanted::or)
    }

    /// The different lists of proposals, in the order of the policy.
    pub fn proposals(&self) -> impl Iterator<Item = &[IkeProposal]> {
        self.0.iter().map(|f| f.tunnels[0].1.proposals.as_slice())
    }

    /// Leaves those whose proposals fit.
    pub fn retain(&mut self, fits: impl Fn(&[IkeProposal]) -> bool) {
        self.0.retain(|f| fits(&f.tunnels[0].1.proposals));
    }

    /// Those that expect the peer to be this one, in the order of the policy.
    pub fn of_peer(&self, identity: &Identity) -> Vec<&Arc<IkeTunnel>> {
        let mut found: Vec<_> = self.0.iter().flat_map(|f| f.of_peer(identity)).collect();
        found.sort_by_key(|(place, _)| *place);
        found.into_iter().map(|(_, tunnel)| tunnel).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::{
        Credential, Endpoint, Group, IkeEncryption, KeyBits, Lifetime, Prf, Role, Secret,
    };
    use proptest::prelude::*;
    use std::time::Duration;

    fn address(n: u8) -> Option<IpAddr> {
        (n > 0).then(|| IpAddr::from([192, 0, 2, n]))
    }

    fn identity(n: u8) -> Identity {
        Identity::Fqdn(["a.example", "A.example", "b.example", "c.example"][usize::from(n)].into())
    }

    fn tunnel(name: usize, ends: (u8, u8), peer: u8, group: Group, role: Role) -> IkeTunnel {
        IkeTunnel {
            name: format!("tunnel{name}"),
            role,
            local: Endpoint { address: address(ends.0), identity: identity(3) },
            remote: Endpoint { address: address(ends.1), identity: identity(peer) },
            credential: Credential::PresharedKey(Secret::new(vec![1])),
            proposals: vec![IkeProposal {
                encryption: vec![IkeEncryption::AesGcm16(KeyBits::B128)],
                integrity: vec![],
                prf: vec![Prf::HmacSha2_256],
                groups: vec![group],
                additional: Vec::new(),
            }],
            lifetime: Lifetime::new(Duration::from_secs(1)),
            auto_start: false,
            children: vec![],
            resumption: false,
            generic: None,
            ppk: None,
        }
    }

    fn tunnels() -> impl Strategy<Value = Vec<Arc<IkeTunnel>>> {
        let group = prop_oneof![Just(Group::Ecp256), Just(Group::Ecp384)];
        let role = prop_oneof![Just(Role::Both), Just(Role::Initiator), Just(Role::Responder)];
        let one = ((0..3_u8, 0..3_u8), 0..4_u8, group, role);
        prop::collection::vec(one, 0..40).prop_map(|all| {
            let numbered = all.into_iter().enumerate();
            numbered.map(|(n, (e, p, g, r))| Arc::new(tunnel(n, e, p, g, r))).collect()
        })
    }

    proptest! {
        /// The indexes find what a look at all tunnels finds, in the same order.
        #[test]
        fn finds_what_a_search_finds(
            tunnels in tunnels(), ends in (1..4_u8, 1..4_u8), peer in 0..4_u8, ecp256 in any::<bool>(),
        ) {
            let index = PolicyIndex::new(Arc::new(Policy { tunnels: tunnels.clone() }));
            let (local, remote) = (address(ends.0), address(ends.1));
            let group = if ecp256 { Group::Ecp256 } else { Group::Ecp384 };
            let fits = |t: &&Arc<IkeTunnel>| {
                t.role.may_respond()
                    && t.local.address.is_none_or(|a| Some(a) == local)
                    && t.remote.address.is_none_or(|a| Some(a) == remote)
                    && t.proposals[0].groups == [group]
            };
            let searched: Vec<&Arc<IkeTunnel>> = tunnels.iter().filter(fits).collect();
            let mut candidates = match (local, remote) {
                (Some(local), Some(remote)) => index.candidates(local, remote),
                _ => unreachable!("addresses begin with 1"),
            };
            candidates.retain(|p| p[0].groups == [group]);
            let mut found: Vec<_> = candidates.iter().map(|t| &t.name).collect();
            found.sort();
            let mut names: Vec<_> = searched.iter().map(|t| &t.name).collect();
            names.sort();
            prop_assert_eq!(found, names);
            prop_assert_eq!(candidates.only().is_some(), searched.len() == 1);
            let is_peer = |t: &&Arc<IkeTunnel>| t.remote.identity.matches(&identity(peer));
            let of_peer: Vec<_> = searched.into_iter().filter(is_peer).collect();
            prop_assert_eq!(candidates.of_peer(&identity(peer)), of_peer);
            for (at, tunnel) in tunnels.iter().enumerate() {
                prop_assert!(index.has(tunnel));
                prop_assert_eq!(index.tunnel(&format!("tunnel{at}")), Some(tunnel));
            }
            prop_assert_eq!(index.tunnel("tunnel"), None);
        }
    }
}
