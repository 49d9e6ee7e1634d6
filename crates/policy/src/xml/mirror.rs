//! A policy as the other side has to write it: identities, keys and roles exchanged.

use super::element::Element;
use super::node::identity;
use super::report::Report;
use super::schema;
use crate::Identity;
use crate::wording::quoted;
use std::collections::BTreeSet;

/// Exchanges both sides of every tunnel, and reports settings that have no other side.
pub(crate) fn mirror<'t>(root: &mut Element<'t>, report: &mut Report) {
    let before = report.errors();
    refuse_groups(root, report);
    if report.errors() > before {
        return;
    }
    keys(root, report);
    for tunnel in &mut root.children {
        match tunnel.name {
            "IKETunnel" => {
                exchange(tunnel, "IKELocalIdentity", "IKERemoteIdentity");
                place_by_identity(tunnel);
            }
            "IPSecTunnel" => exchange(tunnel, "IPSecLocalIdentity", "IPSecRemoteIdentity"),
            _ => {}
        }
    }
    roles(root, report);
}

fn refuse_groups(root: &Element<'_>, report: &mut Report) {
    let sides = ["IKERemoteIdentity", "IPSecRemoteIdentity"];
    let sides = root.children.iter().flat_map(|t| &t.children).filter(|s| sides.contains(&s.name));
    for group in
        sides.flat_map(|side| &side.children).filter(|e| schema::is_group_reference(e.name))
    {
        let message = "the remote identity is a group, so that the other side has no one identity to be given";
        let help = "write each peer's own file by hand, or make an IKETunnel for each peer here";
        report.error(group.span(), message, help);
    }
}

/// Exchanges the contents of two elements. The spans stay: a finding is shown where it is written.
fn exchange(tunnel: &mut Element<'_>, local: &str, remote: &str) {
    let [Some(a), Some(b)] =
        [local, remote].map(|name| tunnel.children.iter().position(|side| side.name == name))
    else {
        return;
    };
    let names = [a, b].map(|at| tunnel.children[at].name);
    tunnel.children.swap(a, b);
    tunnel.children[a].name = names[0];
    tunnel.children[b].name = names[1];
}

/// Removes the addresses of sides that are named by another address. That address is hidden by the side's NAT, or given by it:
/// seen from the other end, each side is where its identity says.
fn place_by_identity(tunnel: &mut Element<'_>) {
    let sides = ["IKELocalIdentity", "IKERemoteIdentity"];
    let sides = tunnel.children.iter_mut().filter(|side| sides.contains(&side.name));
    for identity in sides.flat_map(|side| &mut side.children) {
        identity.attributes.retain(|attribute| attribute.name != schema::ADDRESS);
    }
}

/// The identity in one side of a phase 1 tunnel.
fn named<'e, 't>(tunnel: &'e Element<'t>, side: &str) -> Option<(&'e Element<'t>, Identity)> {
    let side = tunnel.children.iter().find(|child| child.name == side)?;
    let element = side.children.first()?;
    Some((element, identity(element.name, &element.attribute("Value")?.value)?))
}

/// Gives each key the identity of the side that now is remote: a copy for each, if there are several.
fn keys<'t>(root: &mut Element<'t>, report: &mut Report) {
    let tunnels: Vec<_> = root
        .children
        .iter()
        .filter(|e| e.name == "IKETunnel")
        .filter_map(|t| Some((named(t, "IKELocalIdentity")?, named(t, "IKERemoteIdentity")?)))
        .collect();
    let mut children = Vec::with_capacity(root.children.len());
    let mut given: Vec<(Identity, &Element<'t>)> = Vec::new();
    for element in &root.children {
        let side = element.children.iter().find(|_| element.name == "IKEPresharedKey");
        let peer = side
            .and_then(|side| side.children.first())
            .and_then(|inner| identity(inner.name, &inner.attribute("Value")?.value));
        let Some(peer) = peer else {
            children.push(element.clone());
            continue;
        };
        let mut owners: Vec<(&Element<'t>, &Identity)> = Vec::new();
        for ((written, local), (_, remote)) in &tunnels {
            if remote.matches(&peer) && !owners.iter().any(|(_, other)| other.matches(local)) {
                owners.push((written, local));
            }
        }
        if owners.is_empty() {
            children.push(element.clone());
        }
        for (written, owner) in owners {
            match given.iter().find(|(other, _)| other.matches(owner)) {
                Some((_, other))
                    if other.attribute("Value").map(|a| &a.value)
                        == element.attribute("Value").map(|a| &a.value) =>
                {
                    continue;
                }
                Some(_) => {
                    let message = format!(
                        "{} has another key for each of several peers, whose policies differ",
                        quoted(&owner.to_string())
                    );
                    let help = "mirror the tunnel to one peer at a time: vpnctl policy mirror FILE --tunnel NAME";
                    report.error(element.span(), message, help);
                    return;
                }
                None => given.push((owner.clone(), element)),
            }
            children.extend(key_for(element, written));
        }
    }
    root.children = children;
}

/// A key's element with another identity.
fn key_for<'t>(key: &Element<'t>, owner: &Element<'t>) -> Option<Element<'t>> {
    let kinds = schema::kind("IKEPresharedRemoteID")?.children;
    let kind = kinds.iter().find(|kind| kind.strip_prefix("PK_") == Some(owner.name))?;
    let mut named = owner.clone();
    named.name = kind;
    named.children.clear();
    named.attributes.retain(|attribute| attribute.name != schema::ADDRESS);
    let mut key = key.clone();
    key.children.first_mut()?.children = vec![named];
    Some(key)
}

/// Turns initiators into responders, and responders into initiators.
fn roles(root: &mut Element<'_>, report: &mut Report) {
    const GENERIC: [&str; 2] = ["IKE_IPSecDefaultProtectionRef", "IKE_IPSecDefaultAllowedTypes"];
    // Names of protections, and in the end of phase 1 tunnels, that only answer.
    let mut answer: BTreeSet<(&str, String)> = BTreeSet::new();
    for element in &mut root.children {
        let (role, name) = match element.name {
            "IKEProtection" => ("IKE_Role", "IKE_ProtectionName"),
            "IPSecProtection" => ("IPSec_Role", "IPSec_ProtectionName"),
            _ => continue,
        };
        if let Some(attribute) = element.attribute(GENERIC[0]) {
            let message = format!("{} is left out: it is for a side that answers", attribute.name);
            let help = "give the other side an IPSecTunnel for the traffic that it asks for";
            report.warning(attribute.name_span(element), message, help);
            element.attributes.retain(|a| !GENERIC.contains(&a.name));
        }
        let now = match value_of(element, role).as_str() {
            "Initiator" => "Responder",
            "Responder" => "Initiator",
            _ => continue,
        };
        element.set(role, now);
        if now == "Responder" {
            answer.insert((element.name, value_of(element, name)));
        }
    }
    for kind in ["IKETunnel", "IPSecTunnel"] {
        for element in root.children.iter_mut().filter(|e| e.name == kind) {
            let (protection, flags): (_, &[&str]) = match kind {
                "IKETunnel" => (
                    ("IKEProtection", value_of(element, "IKE_ProtectionRef")),
                    &["IKE_Flags_AutoStart"],
                ),
                _ => (
                    ("IPSecProtection", value_of(element, "IPSec_ProtectionRef")),
                    &["IPSec_Flags_AutoStart", "IPSec_Flags_OnDemand"],
                ),
            };
            let carrier = ("IKETunnel", value_of(element, "IKE_TunnelName"));
            let carried = kind == "IPSecTunnel" && answer.contains(&carrier);
            if !answer.contains(&protection) && !carried {
                continue;
            }
            // It would have no effect, of which the reader warns.
            flags.iter().for_each(|flag| element.set(flag, "No"));
            if kind == "IKETunnel" {
                answer.insert(carrier);
            }
        }
    }
}

fn value_of(element: &Element<'_>, name: &str) -> String {
    element.attribute(name).map_or_else(String::new, |a| a.trimmed().to_owned())
}
