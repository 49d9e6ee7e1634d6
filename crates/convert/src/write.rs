//! A policy → the text of an AIX_VPN document.

use super::Options;
use super::assemble::keys;
use super::finding::Finding;
use super::proposal::fits_one_offer;
use policy::{
    AdditionalKe, ChildProposal, Credential, Endpoint, Group, Identity, IkeProposal, IkeTunnel,
    KeyKind, Lifetime, Mode, Policy, Ppk, Protection, Role, Selector,
};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;
use zeroize::Zeroizing;

/// The whole document: what it was made of, what is not the same in it, and the policy.
pub(super) fn document(
    text: &mut Zeroizing<String>,
    file: &str,
    findings: &[Finding],
    options: &Options,
    body: &str,
) {
    let end = if options.peer { "the other end of " } else { "" };
    // The comment comes behind the declaration, if there is one.
    let declared = body.strip_prefix("<?xml").and_then(|rest| rest.find("?>\n"));
    let (declaration, body) = body.split_at(declared.map_or(0, |at| at + 8));
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

/// The root element with all objects.
pub(super) fn policy(policy: &Policy) -> Zeroizing<String> {
    let length = 4096 + 4096 * policy.tunnels.iter().map(|t| 1 + t.children.len()).sum::<usize>();
    let mut out =
        Writer { text: Zeroizing::new(String::with_capacity(length)), offers: BTreeSet::new() };
    let mut root = vec![("Version", "2.1")];
    if policy.tunnels.iter().any(|tunnel| needs_namespace(tunnel)) {
        root.push(("xmlns:vpn", "urn:vpnd:policy"));
    }
    out.open("AIX_VPN", &root);
    for tunnel in &policy.tunnels {
        out.protection(tunnel);
        out.tunnel(tunnel);
    }
    for (identity, secret) in keys(policy) {
        out.key(&identity, secret.expose());
    }
    for tunnel in &policy.tunnels {
        for child in &tunnel.children {
            out.child(tunnel, child);
        }
    }
    out.close("AIX_VPN");
    out.text
}

/// Returns `true` for a tunnel that AIX has no words for.
fn needs_namespace(tunnel: &IkeTunnel) -> bool {
    tunnel.ppk.is_some()
        || [&tunnel.local, &tunnel.remote].into_iter().any(|side| elsewhere(side).is_some())
        || tunnel.proposals.iter().any(|proposal| !proposal.additional.is_empty())
        || tunnel.children.iter().any(|child| !child.pfs.additional.is_empty())
}

fn additional(exchanges: &[AdditionalKe]) -> String {
    exchanges
        .iter()
        .map(|exchange| {
            let methods = exchange.methods.iter().map(ToString::to_string);
            let methods =
                exchange.methods.iter().zip(methods).map(|(group, name)| {
                    if group.is_quantum_safe() { name } else { number(*group) }
                });
            let none = exchange.optional.then(|| "NONE".to_owned());
            methods.chain(none).collect::<Vec<_>>().join("|")
        })
        .collect::<Vec<_>>()
        .join(" ")
}

fn group_words(groups: &[Group], or_none: bool) -> String {
    let none = or_none.then(|| "NO_PFS".to_owned());
    let groups = groups.iter().map(|group| format!("GROUP_{}", number(*group)));
    groups.chain(none).collect::<Vec<_>>().join(" ")
}

fn ppk(ppk: &Ppk) -> String {
    let none = (!ppk.required).then_some("NONE");
    ppk.ids.iter().map(String::as_str).chain(none).collect::<Vec<_>>().join(" ")
}

/// Writes elements; how they are laid out is the business of [`policy::Database::to_xml`].
struct Writer {
    text: Zeroizing<String>,
    /// Offers of phase 2 that are written already: several tunnels may share one.
    offers: BTreeSet<String>,
}

impl Writer {
    fn line(&mut self, name: &str, attributes: &[(&str, &str)], end: &str) {
        // Writing to a String cannot fail, here and below.
        let _ = write!(self.text, "<{name}");
        for (attribute, value) in attributes {
            let _ = write!(self.text, " {attribute}=\"");
            for c in value.chars() {
                match c {
                    '&' => self.text.push_str("&amp;"),
                    '<' => self.text.push_str("&lt;"),
                    '>' => self.text.push_str("&gt;"),
                    '"' => self.text.push_str("&quot;"),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        let _ = writeln!(self.text, "{end}");
    }

    fn open(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.line(name, attributes, ">");
    }

    fn empty(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.line(name, attributes, "/>");
    }

    fn close(&mut self, name: &str) {
        let _ = writeln!(self.text, "</{name}>");
    }

    fn protection(&mut self, tunnel: &IkeTunnel) {
        let use_crl = matches!(&tunnel.credential, Credential::Signature(s) if s.use_crl);
        self.open(
            "IKEProtection",
            &[
                ("IKE_ProtectionName", &format!("{}_p1", tunnel.name)),
                ("IKE_Role", role(tunnel.role)),
                ("IKE_Version", "2"),
                ("IKE_XCHGMode", "None"),
                ("IKE_KeyOverlap", &tunnel.lifetime.overlap_percent.to_string()),
                ("IKE_Flags_UseCRL", yes(use_crl)),
            ],
        );
        if fits_one_offer(&tunnel.proposals) {
            self.lists(&tunnel.proposals);
        } else {
            for proposal in &tunnel.proposals {
                self.offer(proposal);
            }
        }
        for method in methods(&tunnel.credential) {
            self.empty("IKETransform", &[("IKE_AuthenticationMethod", method)]);
        }
        self.empty("IKETransform", &[("IKE_KeyRefreshMinutes", &minutes(&tunnel.lifetime))]);
        self.close("IKEProtection");
    }

    /// One algorithm in each element; the reader parts AEAD and other ciphers.
    fn lists(&mut self, proposals: &[IkeProposal]) {
        for proposal in proposals {
            for encryption in &proposal.encryption {
                self.empty("IKETransform", &[("IKE_Encryption", encryption.row().xml_ike[0])]);
            }
        }
        for integrity in proposals.iter().flat_map(|proposal| &proposal.integrity) {
            self.empty("IKETransform", &[("IKE_Hash", integrity.row().xml_ike[0])]);
        }
        let Some(first) = proposals.first() else { return };
        for function in &first.prf {
            self.empty("IKETransform", &[("IKE_PRF", function.row().xml[0])]);
        }
        for group in &first.groups {
            self.empty("IKETransform", &[("IKE_DHGroup", &number(*group))]);
        }
        if !first.additional.is_empty() {
            let exchanges = additional(&first.additional);
            self.empty("IKETransform", &[("vpn:AdditionalKE", &exchanges)]);
        }
    }

    /// One element for a whole offer.
    fn offer(&mut self, proposal: &IkeProposal) {
        let (Some(encryption), Some(function), Some(group)) =
            (proposal.encryption.first(), proposal.prf.first(), proposal.groups.first())
        else {
            return;
        };
        let (encryption, group) = (encryption.row().xml_ike[0], number(*group));
        let mut attributes = vec![("IKE_Encryption", encryption)];
        let hash = proposal.integrity.first().map(|integrity| integrity.row().xml_ike[0]);
        attributes.extend(hash.map(|hash| ("IKE_Hash", hash)));
        attributes.extend([("IKE_PRF", function.row().xml[0]), ("IKE_DHGroup", &group)]);
        let exchanges = additional(&proposal.additional);
        if !exchanges.is_empty() {
            attributes.push(("vpn:AdditionalKE", &exchanges));
        }
        self.empty("IKETransform", &attributes);
    }

    fn tunnel(&mut self, tunnel: &IkeTunnel) {
        let protection = format!("{}_p1", tunnel.name);
        let mut attributes = vec![
            ("IKE_TunnelName", tunnel.name.as_str()),
            ("IKE_ProtectionRef", &protection),
            ("IKE_Flags_AutoStart", yes(tunnel.auto_start)),
            ("IKE_Flags_MakeRuleWithOptionalIP", "No"),
        ];
        let ppk = tunnel.ppk.as_ref().map(ppk);
        attributes.extend(ppk.as_deref().map(|ppk| ("vpn:PPK", ppk)));
        self.open("IKETunnel", &attributes);
        for (name, endpoint) in
            [("IKELocalIdentity", &tunnel.local), ("IKERemoteIdentity", &tunnel.remote)]
        {
            self.open(name, &[]);
            self.endpoint(endpoint);
            self.close(name);
        }
        self.close("IKETunnel");
    }

    fn endpoint(&mut self, endpoint: &Endpoint) {
        let (kind, value) = (endpoint.identity.kind(), value_of(&endpoint.identity));
        if endpoint.identity.address().is_some() {
            let elsewhere = elsewhere(endpoint);
            let elsewhere = elsewhere.as_deref().map(|address| ("vpn:Address", address));
            let attributes: Vec<_> = [("Value", &*value)].into_iter().chain(elsewhere).collect();
            return self.empty(kind, &attributes);
        }
        match endpoint.address {
            None => self.empty(kind, &[("Value", &value)]),
            Some(address) => {
                self.open(kind, &[("Value", &value)]);
                let name = if address.is_ipv4() { "IPV4_Address" } else { "IPV6_Address" };
                self.empty(name, &[("Value", &address.to_string())]);
                self.close(kind);
            }
        }
    }

    fn key(&mut self, remote: &Identity, octets: &[u8]) {
        // Blanks and signs are themselves in ASCII; characters that an XML attribute would change are written as HEX.
        let plain = octets.iter().all(|octet| octet.is_ascii_graphic() || *octet == b' ');
        let (format, value) = match std::str::from_utf8(octets) {
            Ok(text) if plain => ("ASCII", Zeroizing::new(text.to_owned())),
            _ => {
                let mut hex = Zeroizing::new(String::with_capacity(2 * octets.len()));
                for octet in octets {
                    let _ = write!(hex, "{octet:02x}");
                }
                ("HEX", hex)
            }
        };
        self.open("IKEPresharedKey", &[("Format", format), ("Value", &value)]);
        self.open("IKEPresharedRemoteID", &[]);
        self.empty(&format!("PK_{}", remote.kind()), &[("Value", &value_of(remote))]);
        self.close("IKEPresharedRemoteID");
        self.close("IKEPresharedKey");
    }

    fn child(&mut self, tunnel: &IkeTunnel, child: &policy::ChildTunnel) {
        // One IPSecProposal for all alternatives: the reader gives each its name.
        let offer = child.proposals.first().map_or("", |proposal| proposal.name.as_str());
        let protection = format!("{offer}_p2");
        if self.offers.insert(offer.to_owned()) {
            self.offer_of_child(child, offer, &protection);
        }
        self.open(
            "IPSecTunnel",
            &[
                ("IPSec_TunnelName", &child.name),
                ("IKE_TunnelName", &tunnel.name),
                ("IPSec_ProtectionRef", &protection),
                ("IPSec_Flags_AutoStart", yes(child.auto_start)),
                ("IPSec_Flags_OnDemand", yes(child.on_demand)),
            ],
        );
        for (name, selectors) in
            [("IPSecLocalIdentity", &child.local), ("IPSecRemoteIdentity", &child.remote)]
        {
            for selector in selectors {
                self.selector(name, selector);
            }
        }
        self.close("IPSecTunnel");
    }

    fn offer_of_child(&mut self, child: &policy::ChildTunnel, offer: &str, protection: &str) {
        self.open("IPSecProposal", &[("IPSec_ProposalName", offer)]);
        for proposal in &child.proposals {
            self.proposal(proposal, child.mode);
        }
        self.close("IPSecProposal");
        let lifetime = child.proposals.first().map(|proposal| proposal.lifetime);
        let overlap = lifetime.map_or(10, |lifetime| lifetime.overlap_percent).to_string();
        let offered = match child.pfs.offer.as_slice() {
            [] => "0".to_owned(),
            [one] => number(*one),
            several => group_words(several, false),
        };
        let accepted = group_words(&child.pfs.accept, child.pfs.accept_none);
        let mut attributes = vec![
            ("IPSec_ProtectionName", protection),
            ("IPSec_ProposalRefs", offer),
            ("IPSec_Role", role(child.role)),
            ("IPSec_KeyOverlap", &overlap),
            ("IPSec_Flags_UseLifeSize", yes(lifetime.is_some_and(|l| l.bytes.is_some()))),
            ("IPSec_Flags_UseCommitBit", "No"),
            ("IPSec_InitiatorDHGroup", &offered),
            ("IPSec_ResponderDHGroup", &accepted),
        ];
        let exchanges = additional(&child.pfs.additional);
        if !exchanges.is_empty() {
            attributes.push(("vpn:AdditionalKE", &exchanges));
        }
        self.empty("IPSecProtection", &attributes);
    }

    fn proposal(&mut self, proposal: &ChildProposal, mode: Mode) {
        let mode = match mode {
            Mode::Transport => "Transport",
            Mode::Tunnel => "Tunnel",
        };
        let kilobytes = proposal.lifetime.bytes.map_or(0, |bytes| bytes / 1024).to_string();
        let minutes = minutes(&proposal.lifetime);
        let esn = if proposal.esn { "1" } else { "0" };
        match proposal.protection {
            Protection::Esp { encryption, integrity } => self.empty(
                "IPSecESPProtocol",
                &[
                    ("ESP_Encryption", encryption.row().xml_esp[0]),
                    ("ESP_Authentication", integrity.map_or("NONE", |mac| mac.row().xml_esp[0])),
                    ("ESP_EncapsulationMode", mode),
                    ("ESP_ExtendedSeqNum", esn),
                    ("ESP_KeyRefreshMinutes", &minutes),
                    ("ESP_KeyRefreshKB", &kilobytes),
                ],
            ),
            Protection::Ah(integrity) => self.empty(
                "IPSecAHProtocol",
                &[
                    ("AH_Authentication", integrity.row().xml[0]),
                    ("AH_EncapsulationMode", mode),
                    ("AH_ExtendedSeqNum", esn),
                    ("AH_KeyRefreshMinutes", &minutes),
                    ("AH_KeyRefreshKB", &kilobytes),
                ],
            ),
        }
    }

    fn selector(&mut self, name: &str, selector: &Selector) {
        let ports = [selector.ports.start(), selector.ports.end()].map(|port| port.to_string());
        let protocol = selector.protocol.to_string();
        self.open(name, &[("Protocol", &protocol), ("Port", &ports[0]), ("EndPort", &ports[1])]);
        let (from, to): (IpAddr, IpAddr) = (selector.addresses.start(), selector.addresses.end());
        let kind = if from.is_ipv4() { "IPV4_Address_Range" } else { "IPV6_Address_Range" };
        self.empty(kind, &[("From_IPAddr", &from.to_string()), ("To_IPAddr", &to.to_string())]);
        self.close(name);
    }
}

fn yes(yes: bool) -> &'static str {
    if yes { "Yes" } else { "No" }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Both => "Both",
        Role::Initiator => "Initiator",
        Role::Responder => "Responder",
    }
}

fn minutes(lifetime: &Lifetime) -> String {
    (lifetime.hard.as_secs() / 60).max(1).to_string()
}

fn methods(credential: &Credential) -> Vec<&'static str> {
    const ECDSA: [KeyKind; 3] = [KeyKind::EcdsaP256, KeyKind::EcdsaP384, KeyKind::EcdsaP521];
    let Credential::Signature(signature) = credential else { return vec!["Preshared_key"] };
    match signature.keys.as_slice() {
        keys if keys == KeyKind::ALL => vec!["Digital_signatures"],
        keys if keys == ECDSA => vec!["ECDSA_signatures"],
        keys => keys
            .iter()
            .map(|kind| match kind {
                KeyKind::Rsa => "RSA_signatures",
                KeyKind::EcdsaP256 => "ECDSA-256",
                KeyKind::EcdsaP384 => "ECDSA-384",
                KeyKind::EcdsaP521 => "ECDSA-521",
                KeyKind::Ed25519 => "Ed25519",
            })
            .collect(),
    }
}

/// The attribute of an identity. A key ID has been read from text.
fn value_of(identity: &Identity) -> Cow<'_, str> {
    match identity {
        Identity::KeyId(octets) => String::from_utf8_lossy(octets),
        other => other.value(),
    }
}

/// The address of a side whose identity is another address; `any` is any address.
fn elsewhere(side: &Endpoint) -> Option<String> {
    let identity = side.identity.address()?;
    let at = side.address.map_or_else(|| "any".to_owned(), |address| address.to_string());
    (side.address != Some(identity)).then_some(at)
}

/// The number of a group (RFC 7296 §3.3.2).
fn number(group: Group) -> String {
    group.row().number.to_string()
}
