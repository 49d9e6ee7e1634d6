//! A policy as XML that reads back to the same policy.

use super::elements::{ike_algorithms, ike_transform};
use super::lower::words;
use super::schema::{ADDITIONAL_KE, RESUMPTION};
use super::{Node, elements, read, write};
use crate::{
    AdditionalKe, ChildProposal, ChildTunnel, Credential, Group, Identity, IkeProposal, IkeTunnel,
    InvalidPolicy, Lifetime, LifetimeBounds, Mode, Pfs, Policy, Protection, Secret, Selector,
    Signature,
};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

/// The reason why a policy cannot be written as XML.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unwritable {
    /// It is not valid.
    #[error(transparent)]
    Invalid(#[from] InvalidPolicy),
    /// The format has no words for a value.
    #[error("tunnel {tunnel:?}, {field}: {why}")]
    NoWords {
        /// The tunnel, by the name of the phase 1 tunnel or of the phase 2 tunnel.
        tunnel: String,
        /// The field, as Rust code writes it.
        field: &'static str,
        /// The problem, and the fix.
        why: &'static str,
    },
    /// The text would be read as another policy.
    #[error("the text would not be read as the same policy: {0}")]
    ReadsOtherwise(String),
}

crate::readable_debug!(Unwritable);

impl Policy {
    /// Writes the text of an AIX_VPN file that [`xml::read`](crate::xml::read) reads as this policy. It holds the
    /// preshared keys, and is wiped when dropped.
    ///
    /// Proposals of phase 2 tunnels keep their names if no other proposal has the same name; otherwise they get a
    /// number.
    ///
    /// ```
    /// use policy::{Policy, Secret};
    ///
    /// let policy = Policy::site_to_site("partner")
    ///     .local("192.0.2.1")
    ///     .remote("192.0.2.2")
    ///     .psk(Secret::new(b"correct horse battery staple".to_vec()))
    ///     .protect("10.1.0.0/24", "10.2.0.0/24")
    ///     .build()?;
    /// let text = policy.to_xml()?;
    /// assert_eq!(policy::xml::read("partner.xml", &text)?.policy, policy);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the policy is invalid, or the format has no words for a value.
    pub fn to_xml(&self) -> Result<Zeroizing<String>, Unwritable> {
        self.validate()?;
        let mut objects = Objects::default();
        for tunnel in &self.tunnels {
            objects.add(tunnel)?;
        }
        let text = write(&objects.nodes);
        let again = read("policy.xml", &text);
        let again = again.map_err(|errors| Unwritable::ReadsOtherwise(errors.to_string()))?;
        match without_names(&again.policy) == without_names(self) {
            true => Ok(text),
            false => {
                Err(Unwritable::ReadsOtherwise("a value of it is beyond the format".to_owned()))
            }
        }
    }
}

/// The policy without the names of proposals, which other tunnels may have taken.
fn without_names(policy: &Policy) -> Vec<IkeTunnel> {
    let mut tunnels: Vec<IkeTunnel> =
        policy.tunnels.iter().map(|tunnel| tunnel.as_ref().clone()).collect();
    for child in tunnels.iter_mut().flat_map(|tunnel| &mut tunnel.children) {
        Arc::make_mut(child).proposals.iter_mut().for_each(|proposal| proposal.name.clear());
    }
    tunnels
}

/// The elements, and the names that are taken.
#[derive(Default)]
struct Objects {
    nodes: Vec<Node>,
    keys: Vec<(Identity, Secret)>,
    proposals: BTreeMap<String, Node>,
}

type Outcome<T> = Result<T, Unwritable>;

fn no_words(tunnel: &str, field: &'static str, why: &'static str) -> Unwritable {
    Unwritable::NoWords { tunnel: tunnel.to_owned(), field, why }
}

impl Objects {
    fn add(&mut self, tunnel: &IkeTunnel) -> Outcome<()> {
        let name = checked(&tunnel.name)?;
        if tunnel.generic.is_some() {
            return Err(no_words(name, "generic", "the writer has no words for it; leave it out"));
        }
        let protection = format!("{name}_p1");
        self.nodes.push(ike_protection(tunnel, &protection)?);
        let IkeTunnel { local, remote, .. } = tunnel;
        writable(name, "local", &local.identity)?;
        writable(name, "remote", &remote.identity)?;
        let sides = [local, remote];
        let node = elements::ike_tunnel(name, &protection, tunnel.auto_start, sides);
        self.nodes.push(match tunnel.resumption {
            true => node.with(RESUMPTION, "Yes"),
            false => node,
        });
        if let Credential::PresharedKey(key) = &tunnel.credential {
            self.key(name, &tunnel.remote.identity, key)?;
        }
        tunnel.children.iter().try_for_each(|child| self.child(name, child))
    }

    /// A key is found by the identity of the peer, so that there is one for each.
    fn key(&mut self, name: &str, peer: &Identity, key: &Secret) -> Outcome<()> {
        if let Some((_, other)) = self.keys.iter().find(|(other, _)| other.matches(peer)) {
            let why = "another tunnel has another key for the same identity of the peer; use the same key for both";
            return if other == key { Ok(()) } else { Err(no_words(name, "credential", why)) };
        }
        self.keys.push((peer.clone(), key.clone()));
        let mut digits = Zeroizing::new(String::with_capacity(key.len() * 2));
        for octet in key.expose() {
            let _ = write!(digits, "{octet:02x}");
        }
        self.nodes.push(elements::preshared_key("HEX", &digits, peer));
        Ok(())
    }

    fn child(&mut self, carrier: &str, child: &ChildTunnel) -> Outcome<()> {
        let name = checked(&child.name)?;
        let first = child.proposals.first().map(|proposal| proposal.lifetime).unwrap_or_default();
        let mut names = String::new();
        for proposal in &child.proposals {
            let Lifetime { overlap_percent, as_responder, .. } = proposal.lifetime;
            // A file has both once for the IPSecProtection, not for each proposal.
            if (overlap_percent, as_responder) != (first.overlap_percent, first.as_responder) {
                let why =
                    "the overlap and the bounds of all proposals of a tunnel have to be the same";
                return Err(no_words(name, "proposals", why));
            }
            let _ = write!(names, "{} ", self.proposal(name, child.mode, proposal)?);
        }
        let volume = child.proposals.iter().any(|proposal| proposal.lifetime.bytes.is_some());
        let Pfs { offer, accept, accept_none, additional } = &child.pfs;
        if offer.is_empty() && !accept_none {
            let why = "without an offer, the absence of a key exchange is accepted, too; set `accept_none`";
            return Err(no_words(name, "pfs", why));
        }
        let initiator = if offer.is_empty() { "0".into() } else { group_numbers(offer) };
        let responder =
            format!("{}{}", group_numbers(accept), if *accept_none { " NO_PFS" } else { "" });
        let protection = format!("{name}_p2");
        let mut node = Node::from(elements::IpsecProtection {
            name: &protection,
            proposals: names.trim_end(),
            role: child.role,
            overlap_percent: first.overlap_percent,
            by_volume: volume,
            offered: &initiator,
            accepted: responder.trim(),
        });
        if !additional.is_empty() {
            node = node.with(ADDITIONAL_KE, &exchanges(additional));
        }
        self.nodes.push(bounded(name, node, "IPSec", first.as_responder)?);
        let (local, remote) =
            (single(name, "local", &child.local)?, single(name, "remote", &child.remote)?);
        self.nodes.push(Node::from(elements::IpsecTunnel {
            name,
            carrier,
            protection: &protection,
            auto_start: child.auto_start,
            on_demand: child.on_demand,
            local,
            remote,
        }));
        Ok(())
    }

    /// The name of a proposal in the file.
    fn proposal(&mut self, tunnel: &str, mode: Mode, proposal: &ChildProposal) -> Outcome<String> {
        let Lifetime { hard, bytes, .. } = proposal.lifetime;
        // A cipher that this build lacks has no word.
        let word = match proposal.protection {
            Protection::Esp { encryption, integrity } => {
                words::esp_encryption(encryption).and(words::esp_authentication(integrity))
            }
            Protection::Ah(integrity) => words::ah_integrity(integrity),
        };
        let why = "this build has no word for the algorithm";
        word.ok_or(no_words(tunnel, "proposals", why))?;
        let protocol = Node::from(elements::Protocol {
            protection: proposal.protection,
            mode,
            esn: proposal.esn,
            minutes: minutes(tunnel, hard)?,
            kilobytes: kilobytes(tunnel, bytes.unwrap_or(0))?,
        });
        let wanted = proposal.name.split_whitespace().collect::<Vec<_>>().join("_");
        let numbered = (2..).map(|number| format!("{wanted}_{number}"));
        let names = std::iter::once(wanted.clone()).filter(|name| !name.is_empty()).chain(numbered);
        // Tunnels with the same proposal share one element. Another proposal of that name gets a number.
        for name in names {
            match self.proposals.get(&name) {
                Some(other) if *other == protocol => return Ok(name),
                Some(_) => {}
                None => {
                    self.proposals.insert(name.clone(), protocol.clone());
                    self.nodes.push(elements::ipsec_proposal(&name, [protocol]));
                    return Ok(name);
                }
            }
        }
        unreachable!("the numbers do not end")
    }
}

/// A name that is read as it is written.
fn checked(name: &str) -> Outcome<&str> {
    // Those of its protections are longer by three.
    let good = name.trim() == name && name.len() <= 252;
    let why = "a name in a file has at most 252 octets, and no blanks around it";
    if good { Ok(name) } else { Err(no_words(name, "name", why)) }
}

fn ike_protection(tunnel: &IkeTunnel, name: &str) -> Outcome<Node> {
    let Lifetime { hard, bytes, overlap_percent, as_responder } = tunnel.lifetime;
    if bytes.is_some() {
        let why = "an IKE SA has no limit by volume in a file; set `bytes` to `None`";
        return Err(no_words(&tunnel.name, "lifetime", why));
    }
    let signature = match &tunnel.credential {
        Credential::PresharedKey(_) => None,
        Credential::Signature(signature) => Some(signature),
    };
    let use_crl = signature.is_some_and(|signature| signature.use_crl);
    let mut node = elements::ike_protection(name, tunnel.role, overlap_percent, use_crl);
    node = bounded(&tunnel.name, node, "IKE", as_responder)?;
    for transform in offers(&tunnel.name, &tunnel.proposals)? {
        node = node.holding(transform);
    }
    for method in methods(signature) {
        node = node.holding(ike_transform([("IKE_AuthenticationMethod", method)]));
    }
    let minutes = minutes(&tunnel.name, hard)?.to_string();
    Ok(node.holding(ike_transform([("IKE_KeyRefreshMinutes", &*minutes)])))
}

fn methods(signature: Option<&Signature>) -> Vec<&'static str> {
    match signature {
        None => vec!["Preshared_key"],
        Some(signature) => signature.keys.iter().copied().map(elements::method).collect(),
    }
}

/// The transforms of all proposals. Several proposals are several transforms with one algorithm of each kind; a single
/// one, or two that differ in the cipher alone, may have many.
fn offers(tunnel: &str, proposals: &[IkeProposal]) -> Outcome<Vec<Node>> {
    let shared = match proposals {
        [_] => true,
        [first, other] => {
            other.prf == first.prf
                && other.groups == first.groups
                && other.additional == first.additional
                && other.encryption[0].is_aead() != first.encryption[0].is_aead()
        }
        _ => false,
    };
    if shared {
        return Ok(shared_offer(proposals));
    }
    let why = "several proposals need one algorithm of each kind in a file; write a proposal for each combination";
    proposals
        .iter()
        .map(|proposal| {
            let IkeProposal { encryption, integrity, prf, groups, additional } = proposal;
            let counts = [encryption.len(), integrity.len(), prf.len(), groups.len()];
            if !counts.iter().all(|count| *count <= 1) {
                return Err(no_words(tunnel, "proposals", why));
            }
            let words = ike_algorithms(proposal);
            let node = ike_transform(words.iter().map(|(name, word)| (*name, &**word)));
            Ok(match additional.is_empty() {
                true => node,
                false => node.with(ADDITIONAL_KE, &exchanges(additional)),
            })
        })
        .collect()
}

fn shared_offer(proposals: &[IkeProposal]) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for (name, word) in proposals.iter().flat_map(ike_algorithms) {
        let node = ike_transform([(name, &*word)]);
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }
    let additional = &proposals[0].additional;
    if !additional.is_empty() {
        nodes.push(ike_transform([(ADDITIONAL_KE, &*exchanges(additional))]));
    }
    nodes
}

fn exchanges(additional: &[AdditionalKe]) -> String {
    additional
        .iter()
        .map(|exchange| {
            let methods = exchange.methods.iter().copied().map(elements::number);
            let none = exchange.optional.then(|| "NONE".to_owned());
            methods.chain(none).collect::<Vec<_>>().join("|")
        })
        .collect::<Vec<_>>()
        .join(" ")
}

fn group_numbers(groups: &[Group]) -> String {
    groups.iter().copied().map(elements::number).collect::<Vec<_>>().join(" ")
}

fn minutes(tunnel: &str, age: Duration) -> Outcome<u64> {
    let seconds = age.as_secs();
    let whole = age.subsec_nanos() == 0 && seconds.is_multiple_of(60);
    let why = "a lifetime in a file is 1 to 525,600 whole minutes";
    match seconds / 60 {
        minutes @ 1..=525_600 if whole => Ok(minutes),
        _ => Err(no_words(tunnel, "lifetime", why)),
    }
}

fn kilobytes(tunnel: &str, bytes: u64) -> Outcome<u64> {
    let kilobytes = bytes / 1024;
    let good = bytes.is_multiple_of(1024) && u32::try_from(kilobytes).is_ok();
    let why = "a volume in a file is a whole number of 1024 octets below 2^32";
    if good { Ok(kilobytes) } else { Err(no_words(tunnel, "lifetime", why)) }
}

/// With the bounds of lifetimes as responder, as far as there are any.
fn bounded(tunnel: &str, node: Node, prefix: &str, bounds: LifetimeBounds) -> Outcome<Node> {
    let LifetimeBounds { age: [shortest, longest], bytes: [smallest, largest] } = bounds;
    let mut values = Vec::new();
    if !shortest.is_zero() {
        values.push(("MinMinutes", minutes(tunnel, shortest)?));
    }
    if longest != Duration::MAX {
        values.push(("MaxMinutes", minutes(tunnel, longest)?));
    }
    if smallest > 0 {
        values.push(("MinKB", kilobytes(tunnel, smallest)?));
    }
    if largest != u64::MAX {
        values.push(("MaxKB", kilobytes(tunnel, largest)?));
    }
    Ok(values.into_iter().fold(node, |node, (bound, value)| {
        node.with(&format!("{prefix}_ResponderKeyRefresh{bound}"), &value.to_string())
    }))
}

/// Checks that an element can have an identity.
fn writable(tunnel: &str, field: &'static str, identity: &Identity) -> Outcome<()> {
    let Identity::KeyId(octets) = identity else { return Ok(()) };
    match std::str::from_utf8(octets) {
        Ok(text) if !text.chars().any(char::is_control) => Ok(()),
        _ => {
            let why = "a key ID in a file is text; use printable characters";
            Err(no_words(tunnel, field, why))
        }
    }
}

/// Checks that a side has as many selectors as a file can say.
fn single<'s>(tunnel: &str, field: &'static str, side: &'s [Selector]) -> Outcome<&'s [Selector]> {
    let why = "a phase 2 tunnel in a file has one selector on each side; make a phase 2 tunnel for each pair";
    if side.len() == 1 { Ok(side) } else { Err(no_words(tunnel, field, why)) }
}
