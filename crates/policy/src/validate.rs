//! The rules that every policy obeys, wherever its values come from.
//!
//! [`Policy::validate`] is the one gate: the reader of XML, the policy store, conversions, and code that builds a
//! policy all pass it, and the IKE engine refuses a policy that does not. Each rule is a function in `rules` that
//! returns a [`Problem`]; the reader of XML calls the same functions earlier, where it knows the line, and words the
//! problem in the terms of the file.

mod problem;
pub(crate) mod rules;

pub use problem::{MAX_IKE_ALGORITHMS, MAX_PROPOSALS, Problem};

use crate::{ChildProposal, ChildTunnel, Credential, IkeTunnel, Mode, Pfs, Policy, Selector};
use std::collections::BTreeSet;
use std::fmt;

/// One value of a policy that cannot be used. Its `Display` is one line: the tunnel, the field, the problem and the
/// fix.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Invalid {
    /// Name of the phase 1 tunnel.
    pub tunnel: String,
    /// Name of the phase 2 tunnel, if the value is one of its values.
    pub child: Option<String>,
    /// The field, as Rust code writes it: `proposals[1].groups`.
    pub field: String,
    /// The problem with it.
    pub problem: Problem,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tunnel, child, field, problem } = self;
        write!(f, "tunnel {tunnel:?}, ")?;
        if let Some(child) = child {
            write!(f, "phase 2 tunnel {child:?}, ")?;
        }
        write!(f, "{field}: {problem}; {}", problem.help())
    }
}

/// A policy that [`Policy::validate`] refuses: at least one invalid value. Its `Display` has a line for each.
#[derive(Clone, PartialEq, Eq)]
pub struct InvalidPolicy(Vec<Invalid>);

impl InvalidPolicy {
    /// The invalid values, in the order of the policy.
    pub fn iter(&self) -> std::slice::Iter<'_, Invalid> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a InvalidPolicy {
    type Item = &'a Invalid;
    type IntoIter = std::slice::Iter<'a, Invalid>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for InvalidPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the policy is invalid")?;
        self.0.iter().try_for_each(|invalid| write!(f, "\n{invalid}"))
    }
}

impl std::error::Error for InvalidPolicy {}

crate::readable_debug!(InvalidPolicy);

impl Policy {
    /// Checks every value of the policy.
    ///
    /// ```
    /// use policy::{Credential, Endpoint, Identity, IkeTunnel, Policy, Secret};
    ///
    /// let side = |n| Endpoint::from(std::net::IpAddr::from([192, 0, 2, n]));
    /// let empty = Credential::PresharedKey(Secret::new(Vec::new()));
    /// let tunnel = IkeTunnel::new("site", side(1), side(2), empty);
    /// let refused = Policy { tunnels: vec![tunnel.into()] }.validate().unwrap_err();
    /// assert_eq!(
    ///     refused.iter().next().unwrap().to_string(),
    ///     "tunnel \"site\", credential: the preshared key is empty; make one with: openssl rand -hex 32"
    /// );
    /// ```
    ///
    /// # Errors
    /// All values that cannot be used.
    pub fn validate(&self) -> Result<(), InvalidPolicy> {
        let mut found = Vec::new();
        let (mut tunnels, mut children) = (BTreeSet::new(), BTreeSet::new());
        for tunnel in &self.tunnels {
            let mut findings = Findings { tunnel: &tunnel.name, child: None, found: &mut found };
            if !tunnels.insert(tunnel.name.as_str()) {
                findings.add("name", Problem::NameTaken(tunnel.name.clone()));
            }
            check_tunnel(tunnel, &mut findings);
            for child in &tunnel.children {
                let mut findings = Findings { child: Some(&child.name), ..findings.reborrow() };
                if !children.insert(child.name.as_str()) {
                    findings.add("name", Problem::NameTaken(child.name.clone()));
                }
                check_child(tunnel, child, &mut findings);
            }
            if let Some(generic) = &tunnel.generic {
                let mut findings = Findings { child: Some(&generic.name), ..findings.reborrow() };
                check_child_offers(&generic.proposals, &generic.pfs, &mut findings);
            }
        }
        if found.is_empty() { Ok(()) } else { Err(InvalidPolicy(found)) }
    }
}

/// Collects findings about one tunnel.
struct Findings<'f> {
    tunnel: &'f str,
    child: Option<&'f str>,
    found: &'f mut Vec<Invalid>,
}

impl Findings<'_> {
    fn reborrow(&mut self) -> Findings<'_> {
        Findings { tunnel: self.tunnel, child: self.child, found: self.found }
    }

    fn add(&mut self, field: impl Into<String>, problem: Problem) {
        self.found.push(Invalid {
            tunnel: self.tunnel.to_owned(),
            child: self.child.map(str::to_owned),
            field: field.into(),
            problem,
        });
    }

    fn check(&mut self, field: impl Into<String>, outcome: Result<(), Problem>) {
        if let Err(problem) = outcome {
            self.add(field, problem);
        }
    }
}

fn check_tunnel(tunnel: &IkeTunnel, findings: &mut Findings<'_>) {
    findings.check("name", rules::name(&tunnel.name));
    for (side, endpoint) in [("local", &tunnel.local), ("remote", &tunnel.remote)] {
        findings.check(format!("{side}.identity"), rules::identity(&endpoint.identity));
        findings.check(format!("{side}.address"), rules::located(tunnel.role, endpoint));
    }
    findings.check("remote", rules::sides(&tunnel.local, &tunnel.remote));
    match &tunnel.credential {
        Credential::PresharedKey(key) => findings.check("credential", rules::key(key.expose())),
        Credential::Signature(signature) => {
            findings.check("credential.keys", rules::not_empty("kind of key", &signature.keys));
        }
    }
    if let Some(ppk) = &tunnel.ppk {
        findings.check("ppk", rules::ppk(ppk));
    }
    let proposals = &tunnel.proposals;
    findings.check("proposals", rules::number_of_proposals(proposals.len()));
    findings.check("proposals", rules::number_of_algorithms(proposals));
    // Proposals beyond the limit are not checked.
    for (at, proposal) in proposals.iter().take(MAX_PROPOSALS).enumerate() {
        for (list, problem) in rules::ike_proposal(proposal) {
            findings.add(format!("proposals[{at}].{list}"), problem);
        }
    }
    for (field, problem) in rules::lifetime(&tunnel.lifetime) {
        findings.add(format!("lifetime.{field}"), problem);
    }
}

fn check_child(tunnel: &IkeTunnel, child: &ChildTunnel, findings: &mut Findings<'_>) {
    findings.check("name", rules::name(&child.name));
    for (side, traffic) in [("local", &child.local), ("remote", &child.remote)] {
        findings.check(side, rules::not_empty("traffic selector", traffic));
        for (at, selector) in traffic.iter().enumerate() {
            findings.check(
                format!("{side}[{at}].ports"),
                rules::ports(selector.protocol, selector.ports),
            );
        }
    }
    for (at, remote) in child.remote.iter().enumerate() {
        // Each remote selector needs a local one that it fits.
        let outcomes = child.local.iter().map(|local| {
            let any = local.protocol == 0 || remote.protocol == 0;
            let protocol = if any { local.protocol } else { remote.protocol };
            rules::ends(local, &Selector { protocol, ..*remote })
        });
        let outcome = outcomes.reduce(|one, other| one.or(other)).unwrap_or(Ok(()));
        findings.check(format!("remote[{at}]"), outcome);
    }
    if child.mode == Mode::Transport {
        let sides = [
            ("local", &child.local, tunnel.local.address),
            ("remote", &child.remote, tunnel.remote.address),
        ];
        for (side, traffic, address) in sides {
            for (at, selector) in traffic.iter().enumerate() {
                let outcome = rules::transport(&selector.addresses, address);
                findings.check(format!("{side}[{at}].addresses"), outcome);
            }
        }
    }
    check_child_offers(&child.proposals, &child.pfs, findings);
}

fn check_child_offers(proposals: &[ChildProposal], pfs: &Pfs, findings: &mut Findings<'_>) {
    findings.check("proposals", rules::number_of_proposals(proposals.len()));
    for (at, proposal) in proposals.iter().take(MAX_PROPOSALS).enumerate() {
        let field = format!("proposals[{at}].protection");
        findings.check(field, rules::protection(proposal.protection));
        for (field, problem) in rules::lifetime(&proposal.lifetime) {
            findings.add(format!("proposals[{at}].lifetime.{field}"), problem);
        }
    }
    findings.check("pfs.offer", rules::distinct(&pfs.offer));
    findings.check("pfs.accept", rules::distinct(&pfs.accept));
    findings.check("pfs.accept", rules::pfs(pfs));
}
