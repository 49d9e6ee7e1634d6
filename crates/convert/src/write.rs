//! A policy → the text of an AIX_VPN document.

use super::Options;
use super::assemble::keys;
use super::finding::Finding;
use super::proposal::fits_one_offer;
use policy::xml::elements::{ike_algorithms, ike_transform, number};
use policy::xml::{self, Node, elements};
use policy::{
    AdditionalKe, ChildTunnel, Credential, Group, Identity, IkeProposal, IkeTunnel, KeyKind,
    Lifetime, Policy, Ppk,
};
use std::collections::BTreeSet;
use std::fmt::Write;
use zeroize::Zeroizing;

/// The attribute for additional key exchanges (RFC 9370).
const ADDITIONAL_KE: &str = "vpn:AdditionalKE";

/// The whole document: what it was made of, what is not the same in it, and the policy.
pub(super) fn document(
    text: &mut Zeroizing<String>,
    file: &str,
    findings: &[Finding],
    options: &Options,
    body: &str,
) {
    let end = if options.peer { "the other end of " } else { "" };
    // The comment comes behind the declaration.
    let (declaration, body) = body.split_at(body.find('\n').map_or(0, |end| end + 1));
    text.push_str(declaration);
    text.push_str(&format!("<!-- Converted from {end}{}", comment(file)));
    if !findings.is_empty() {
        text.push_str(". What is not the same here:");
        for Finding { loss, location, message, .. } in findings {
            let line = format!("\n  {}:{} {loss}: {message}", location.file, location.line);
            text.push_str(&comment(&line));
        }
    }
    text.push_str(" -->\n");
    text.push_str(body);
}

/// Text that cannot end a comment.
fn comment(text: &str) -> String {
    let mut text: String = text
        .chars()
        .map(|c: char| if c.is_control() && c != '\n' { ' ' } else { c })
        .filter(|c| !matches!(c, '\u{fffe}' | '\u{ffff}'))
        .collect();
    while text.contains("--") {
        text = text.replace("--", "- -");
    }
    text
}

/// The text of the policy: phase 1 tunnels, keys, phase 2 tunnels.
pub(super) fn policy(policy: &Policy) -> Zeroizing<String> {
    let mut nodes = Vec::new();
    for tunnel in &policy.tunnels {
        nodes.extend([protection(tunnel), phase_1(tunnel)]);
    }
    nodes.extend(keys(policy).iter().map(|(identity, secret)| key(identity, secret.expose())));
    // Several tunnels may share an offer of phase 2.
    let mut offers = BTreeSet::new();
    for tunnel in &policy.tunnels {
        for child in &tunnel.children {
            // One IPSecProposal for all alternatives: the reader gives each its name.
            let offer = child.proposals.first().map_or("", |proposal| proposal.name.as_str());
            let protection = format!("{offer}_p2");
            if offers.insert(offer) {
                nodes.extend(offer_of_child(child, offer, &protection));
            }
            nodes.push(Node::from(elements::IpsecTunnel {
                name: &child.name,
                carrier: &tunnel.name,
                protection: &protection,
                auto_start: child.auto_start,
                on_demand: child.on_demand,
                local: &child.local,
                remote: &child.remote,
            }));
        }
    }
    xml::write(&nodes)
}

fn additional(exchanges: &[AdditionalKe]) -> String {
    exchanges
        .iter()
        .map(|exchange| {
            let methods = exchange.methods.iter().map(|group| match group.is_quantum_safe() {
                true => group.to_string(),
                false => number(*group),
            });
            let none = exchange.optional.then(|| "NONE".to_owned());
            methods.chain(none).collect::<Vec<_>>().join("|")
        })
        .collect::<Vec<_>>()
        .join(" ")
}

fn ppk(ppk: &Ppk) -> String {
    let none = (!ppk.required).then_some("NONE");
    ppk.ids.iter().map(String::as_str).chain(none).collect::<Vec<_>>().join(" ")
}

fn protection(tunnel: &IkeTunnel) -> Node {
    let name = format!("{}_p1", tunnel.name);
    let use_crl = matches!(&tunnel.credential, Credential::Signature(s) if s.use_crl);
    let node =
        elements::ike_protection(&name, tunnel.role, tunnel.lifetime.overlap_percent, use_crl);
    let offers = match fits_one_offer(&tunnel.proposals) {
        true => lists(&tunnel.proposals),
        false => tunnel.proposals.iter().filter_map(offer).collect(),
    };
    let methods = methods(&tunnel.credential);
    let methods =
        methods.iter().map(|method| ike_transform([("IKE_AuthenticationMethod", *method)]));
    let minutes = minutes(&tunnel.lifetime).to_string();
    let lifetime = ike_transform([("IKE_KeyRefreshMinutes", &*minutes)]);
    offers.into_iter().chain(methods).chain([lifetime]).fold(node, Node::holding)
}

/// One algorithm in each element; the reader parts AEAD and other ciphers.
fn lists(proposals: &[IkeProposal]) -> Vec<Node> {
    let words: Vec<_> = proposals.iter().map(ike_algorithms).collect();
    // The proposals differ in ciphers and integrity alone.
    let first = words.first().into_iter().flatten();
    let shared = first.filter(|(name, _)| matches!(*name, "IKE_PRF" | "IKE_DHGroup"));
    let own = ["IKE_Encryption", "IKE_Hash"]
        .into_iter()
        .flat_map(|kind| words.iter().flatten().filter(move |(name, _)| *name == kind));
    let mut nodes: Vec<Node> =
        own.chain(shared).map(|(name, word)| ike_transform([(*name, &**word)])).collect();
    if let Some(first) = proposals.first().filter(|first| !first.additional.is_empty()) {
        nodes.push(ike_transform([(ADDITIONAL_KE, &*additional(&first.additional))]));
    }
    nodes
}

/// One element for a whole offer.
fn offer(proposal: &IkeProposal) -> Option<Node> {
    let IkeProposal { encryption, integrity, prf, groups, additional: exchanges } = proposal;
    let whole = IkeProposal {
        encryption: vec![*encryption.first()?],
        integrity: integrity.first().copied().into_iter().collect(),
        prf: vec![*prf.first()?],
        groups: vec![*groups.first()?],
        additional: Vec::new(),
    };
    let node = ike_transform(ike_algorithms(&whole).iter().map(|(name, word)| (*name, &**word)));
    Some(match exchanges.is_empty() {
        true => node,
        false => node.with(ADDITIONAL_KE, &additional(exchanges)),
    })
}

fn phase_1(tunnel: &IkeTunnel) -> Node {
    let protection = format!("{}_p1", tunnel.name);
    let sides = [&tunnel.local, &tunnel.remote];
    let node = elements::ike_tunnel(&tunnel.name, &protection, tunnel.auto_start, sides);
    match &tunnel.ppk {
        None => node,
        Some(keys) => node.with("vpn:PPK", &ppk(keys)),
    }
}

fn key(remote: &Identity, octets: &[u8]) -> Node {
    // Blanks and signs are themselves in ASCII; characters that an XML attribute would change are written as HEX.
    let plain = octets.iter().all(|octet| octet.is_ascii_graphic() || *octet == b' ');
    match std::str::from_utf8(octets) {
        Ok(text) if plain => elements::preshared_key("ASCII", text, remote),
        _ => {
            let mut hex = Zeroizing::new(String::with_capacity(2 * octets.len()));
            for octet in octets {
                // Writing to a String cannot fail.
                let _ = write!(hex, "{octet:02x}");
            }
            elements::preshared_key("HEX", &hex, remote)
        }
    }
}

fn offer_of_child(child: &ChildTunnel, offer: &str, protection: &str) -> [Node; 2] {
    let protocols = child.proposals.iter().map(|proposal| {
        Node::from(elements::Protocol {
            protection: proposal.protection,
            mode: child.mode,
            esn: proposal.esn,
            minutes: minutes(&proposal.lifetime),
            kilobytes: proposal.lifetime.bytes.map_or(0, |bytes| bytes / 1024),
        })
    });
    let lifetime = child.proposals.first().map(|proposal| proposal.lifetime);
    let offered = match child.pfs.offer.as_slice() {
        [] => "0".to_owned(),
        [one] => number(*one),
        several => groups(several, false),
    };
    let node = Node::from(elements::IpsecProtection {
        name: protection,
        proposals: offer,
        role: child.role,
        overlap_percent: lifetime.map_or(10, |lifetime| lifetime.overlap_percent),
        by_volume: lifetime.is_some_and(|lifetime| lifetime.bytes.is_some()),
        offered: &offered,
        accepted: &groups(&child.pfs.accept, child.pfs.accept_none),
    });
    let node = match child.pfs.additional.as_slice() {
        [] => node,
        exchanges => node.with(ADDITIONAL_KE, &additional(exchanges)),
    };
    [elements::ipsec_proposal(offer, protocols), node]
}

fn groups(groups: &[Group], none: bool) -> String {
    let none = none.then(|| "NO_PFS".to_owned());
    let groups = groups.iter().map(|group| format!("GROUP_{}", number(*group)));
    groups.chain(none).collect::<Vec<_>>().join(" ")
}

fn minutes(lifetime: &Lifetime) -> u64 {
    (lifetime.hard.as_secs() / 60).max(1)
}

fn methods(credential: &Credential) -> Vec<&'static str> {
    const ECDSA: [KeyKind; 3] = [KeyKind::EcdsaP256, KeyKind::EcdsaP384, KeyKind::EcdsaP521];
    let Credential::Signature(signature) = credential else { return vec!["Preshared_key"] };
    match signature.keys.as_slice() {
        keys if keys == KeyKind::ALL => vec!["Digital_signatures"],
        keys if keys == ECDSA => vec!["ECDSA_signatures"],
        keys => keys.iter().copied().map(elements::method).collect(),
    }
}
