//! The elements of a policy, made of the values that they hold. Every writer of policies makes its elements here. The
//! writer decides which elements there are and how they are called, and `xml/write.rs` lays out the text.
//!
//! ```
//! use policy::Endpoint;
//! use policy::xml::{elements, write};
//! use std::net::IpAddr;
//!
//! let [local, remote] = [1, 2].map(|n| Endpoint::from(IpAddr::from([192, 0, 2, n])));
//! let tunnel = elements::ike_tunnel("site", "site_p1", true, [&local, &remote]);
//! assert!(write([&tunnel]).contains("<IPV4_Address Value=\"192.0.2.2\"/>"));
//! ```

use super::Node;
use super::lower::words;
use super::schema::{ADDRESS, AH_ALGORITHM};
use crate::{
    AddressRange, Endpoint, Group, Identity, IkeProposal, KeyKind, Mode, PortRange, Protection,
    Role, Selector,
};
use std::net::IpAddr;

/// An `IKEProtection`, which then takes its transforms.
pub fn ike_protection(name: &str, role: Role, overlap_percent: u8, use_crl: bool) -> Node {
    Node::new("IKEProtection")
        .with("IKE_ProtectionName", name)
        .with("IKE_Role", words::role(role))
        .with("IKE_Version", "2")
        .with("IKE_XCHGMode", "None")
        .with("IKE_KeyOverlap", &overlap_percent.to_string())
        .with("IKE_Flags_UseCRL", yes(use_crl))
}

/// An `IKETransform` with these attributes and their words.
pub fn ike_transform<'w>(attributes: impl IntoIterator<Item = (&'w str, &'w str)>) -> Node {
    let attributes = attributes.into_iter();
    attributes.fold(Node::new("IKETransform"), |node, (name, word)| node.with(name, word))
}

/// The algorithms of an offer as attributes of `IKETransform` and their words: encryption, integrity, PRF, groups.
pub fn ike_algorithms(proposal: &IkeProposal) -> Vec<(&'static str, String)> {
    let IkeProposal { encryption, integrity, prf, groups, .. } = proposal;
    let encryption = encryption.iter().map(|e| ("IKE_Encryption", first(e.row().xml_ike)));
    let integrity = integrity.iter().map(|i| ("IKE_Hash", first(i.row().xml_ike)));
    let prf = prf.iter().map(|prf| ("IKE_PRF", first(prf.row().xml)));
    let groups = groups.iter().map(|group| ("IKE_DHGroup", number(*group)));
    encryption.chain(integrity).chain(prf).chain(groups).collect()
}

/// The word for the method of authentication with a kind of key.
pub fn method(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::Rsa => "RSA_signatures",
        KeyKind::EcdsaP256 => "ECDSA-256",
        KeyKind::EcdsaP384 => "ECDSA-384",
        KeyKind::EcdsaP521 => "ECDSA-521",
        KeyKind::Ed25519 => "Ed25519",
    }
}

/// An `IKETunnel` with its local and its remote side.
pub fn ike_tunnel(name: &str, protection: &str, auto_start: bool, sides: [&Endpoint; 2]) -> Node {
    let [local, remote] = sides;
    Node::new("IKETunnel")
        .with("IKE_TunnelName", name)
        .with("IKE_ProtectionRef", protection)
        .with("IKE_Flags_AutoStart", yes(auto_start))
        .with("IKE_Flags_MakeRuleWithOptionalIP", "No")
        .holding(Node::new("IKELocalIdentity").holding(side(local)))
        .holding(Node::new("IKERemoteIdentity").holding(side(remote)))
}

/// The identity of a side, with its address if that is another one.
fn side(side: &Endpoint) -> Node {
    let node = identity("", &side.identity);
    match (side.identity.address(), side.address) {
        (Some(identity), at) if at != Some(identity) => {
            let at = at.map_or_else(|| "any".to_owned(), |at| at.to_string());
            node.with(ADDRESS, &at)
        }
        (None, Some(at)) => node.holding(identity("", &Identity::from(at))),
        _ => node,
    }
}

/// The element of an identity. A key ID has to be text.
fn identity(prefix: &str, identity: &Identity) -> Node {
    let value = match identity {
        Identity::KeyId(octets) => String::from_utf8_lossy(octets),
        other => other.value(),
    };
    Node::new(&format!("{prefix}{}", identity.kind())).with("Value", &value)
}

/// The `IKEPresharedKey` for a peer. `format` is `ASCII` or `HEX`.
pub fn preshared_key(format: &str, value: &str, peer: &Identity) -> Node {
    Node::new("IKEPresharedKey")
        .with("Format", format)
        .with("Value", value)
        .holding(Node::new("IKEPresharedRemoteID").holding(identity("PK_", peer)))
}

/// An `IPSecProposal` with the protocols that are its alternatives.
pub fn ipsec_proposal(name: &str, protocols: impl IntoIterator<Item = Node>) -> Node {
    let node = Node::new("IPSecProposal").with("IPSec_ProposalName", name);
    protocols.into_iter().fold(node, Node::holding)
}

/// The values of an `IPSecESPProtocol` or an `IPSecAHProtocol`.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// The algorithms.
    pub protection: Protection,
    /// The mode.
    pub mode: Mode,
    /// Extended sequence numbers.
    pub esn: bool,
    /// The lifetime in minutes.
    pub minutes: u64,
    /// The lifetime in units of 1024 octets; 0: no limit.
    pub kilobytes: u64,
}

impl From<Protocol> for Node {
    fn from(protocol: Protocol) -> Self {
        let Protocol { protection, mode, esn, minutes, kilobytes } = protocol;
        let (kind, node) = match protection {
            Protection::Esp { encryption, integrity } => {
                let authentication = integrity.map_or("NONE", |mac| mac.row().xml_esp[0]);
                let node = Node::new("IPSecESPProtocol")
                    .with("ESP_Encryption", encryption.row().xml_esp[0])
                    .with("ESP_Authentication", authentication);
                ("ESP", node)
            }
            Protection::Ah(integrity) => {
                let node = Node::new("IPSecAHProtocol");
                ("AH", node.with(AH_ALGORITHM[0], integrity.row().xml[0]))
            }
        };
        let mode = match mode {
            Mode::Transport => "Transport",
            Mode::Tunnel => "Tunnel",
        };
        node.with(&format!("{kind}_EncapsulationMode"), mode)
            .with(&format!("{kind}_ExtendedSeqNum"), if esn { "1" } else { "0" })
            .with(&format!("{kind}_KeyRefreshMinutes"), &minutes.to_string())
            .with(&format!("{kind}_KeyRefreshKB"), &kilobytes.to_string())
    }
}

/// The values of an `IPSecProtection`.
#[derive(Clone, Copy, Debug)]
pub struct IpsecProtection<'v> {
    /// Its name.
    pub name: &'v str,
    /// The names of the proposals, in the order of preference.
    pub proposals: &'v str,
    /// The role.
    pub role: Role,
    /// The overlap of the lifetimes of both SAs at a rekey.
    pub overlap_percent: u8,
    /// The lifetime has a limit by volume.
    pub by_volume: bool,
    /// The words for the groups that the initiator offers.
    pub offered: &'v str,
    /// The words for the groups that the responder accepts.
    pub accepted: &'v str,
}

impl From<IpsecProtection<'_>> for Node {
    fn from(protection: IpsecProtection<'_>) -> Self {
        Node::new("IPSecProtection")
            .with("IPSec_ProtectionName", protection.name)
            .with("IPSec_ProposalRefs", protection.proposals)
            .with("IPSec_Role", words::role(protection.role))
            .with("IPSec_KeyOverlap", &protection.overlap_percent.to_string())
            .with("IPSec_Flags_UseLifeSize", yes(protection.by_volume))
            .with("IPSec_Flags_UseCommitBit", "No")
            .with("IPSec_InitiatorDHGroup", protection.offered)
            .with("IPSec_ResponderDHGroup", protection.accepted)
    }
}

/// The values of an `IPSecTunnel`.
#[derive(Clone, Copy, Debug)]
pub struct IpsecTunnel<'v> {
    /// Its name.
    pub name: &'v str,
    /// The name of the phase 1 tunnel that carries it.
    pub carrier: &'v str,
    /// The name of its `IPSecProtection`.
    pub protection: &'v str,
    /// The daemon's start starts it.
    pub auto_start: bool,
    /// The first packet starts it.
    pub on_demand: bool,
    /// This side's traffic.
    pub local: &'v [Selector],
    /// The peer's traffic.
    pub remote: &'v [Selector],
}

impl From<IpsecTunnel<'_>> for Node {
    fn from(tunnel: IpsecTunnel<'_>) -> Self {
        let node = Node::new("IPSecTunnel")
            .with("IPSec_TunnelName", tunnel.name)
            .with("IKE_TunnelName", tunnel.carrier)
            .with("IPSec_ProtectionRef", tunnel.protection)
            .with("IPSec_Flags_AutoStart", yes(tunnel.auto_start))
            .with("IPSec_Flags_OnDemand", yes(tunnel.on_demand));
        let local = tunnel.local.iter().map(|selector| traffic("IPSecLocalIdentity", selector));
        let remote = tunnel.remote.iter().map(|selector| traffic("IPSecRemoteIdentity", selector));
        local.chain(remote).fold(node, Node::holding)
    }
}

fn traffic(element: &str, selector: &Selector) -> Node {
    let Selector { protocol, addresses, ports } = selector;
    Node::new(element)
        .with("Protocol", &protocol.to_string())
        .with("Port", &PortRange::start(ports).to_string())
        .with("EndPort", &PortRange::end(ports).to_string())
        .holding(range(addresses))
}

fn range(range: &AddressRange) -> Node {
    let (from, to): (IpAddr, IpAddr) = (range.start(), range.end());
    let kind = if from.is_ipv4() { "IPV4_Address_Range" } else { "IPV6_Address_Range" };
    Node::new(kind).with("From_IPAddr", &from.to_string()).with("To_IPAddr", &to.to_string())
}

/// The number of a group (RFC 7296 §3.3.2), which is its word in a policy.
pub fn number(group: Group) -> String {
    group.row().number.to_string()
}

/// The word that is written: the first one of a row in the registry of algorithms.
fn first(words: &[&str]) -> String {
    words.first().copied().unwrap_or_default().to_owned()
}

fn yes(yes: bool) -> &'static str {
    if yes { "Yes" } else { "No" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AhIntegrity, EspEncryption, Integrity, KeyBits};

    fn at(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn a_side_tells_its_address_unless_that_is_its_identity() {
        let same = side(&Endpoint::from(at(1)));
        assert_eq!((same.attribute("Value"), same.attribute(ADDRESS)), (Some("192.0.2.1"), None));
        let translated = side(&Endpoint::at(at(1), Identity::from(at(9))));
        assert_eq!(translated.attribute("Value"), Some("192.0.2.9"));
        assert_eq!(translated.attribute(ADDRESS), Some("192.0.2.1"));
        let anywhere = side(&Endpoint::anywhere(Identity::from(at(9))));
        assert_eq!(anywhere.attribute(ADDRESS), Some("any"));

        let name = Identity::Fqdn("gate.example".to_owned());
        let named = side(&Endpoint::at(at(1), name.clone()));
        assert_eq!((named.name(), named.attribute(ADDRESS)), ("FQDN", None));
        let address = named.child("IPV4_Address").expect("inside the name");
        assert_eq!(address.attribute("Value"), Some("192.0.2.1"));
        assert!(side(&Endpoint::anywhere(name)).children().is_empty());
    }

    #[test]
    fn an_identity_of_text_is_written_as_it_is() {
        let key = preshared_key("HEX", "00", &Identity::KeyId(b"a \"b\"".to_vec()));
        let peer = key.child("IKEPresharedRemoteID").and_then(|peer| peer.child("PK_Key_ID"));
        assert_eq!(peer.and_then(|peer| peer.attribute("Value")), Some("a \"b\""));
    }

    #[test]
    fn a_protocol_has_the_attributes_of_its_kind() {
        let node = |protection| {
            let mode = Mode::Transport;
            Node::from(Protocol { protection, mode, esn: true, minutes: 60, kilobytes: 0 })
        };
        let encryption = EspEncryption::AesCbc(KeyBits::B256);
        let integrity = Some(Integrity::HmacSha2_256_128);
        let esp = node(Protection::Esp { encryption, integrity });
        let attributes: Vec<_> = esp.attributes().collect();
        assert_eq!(
            attributes,
            [
                ("ESP_Encryption", "ESP_AES_CBC_256"),
                ("ESP_Authentication", "HMAC-SHA2-256"),
                ("ESP_EncapsulationMode", "Transport"),
                ("ESP_ExtendedSeqNum", "1"),
                ("ESP_KeyRefreshMinutes", "60"),
                ("ESP_KeyRefreshKB", "0"),
            ]
        );
        let gcm = node(Protection::aead(EspEncryption::AesGcm16(KeyBits::B128)));
        assert_eq!(gcm.attribute("ESP_Authentication"), Some("NONE"));
        let ah = node(Protection::Ah(AhIntegrity::Mac(Integrity::HmacSha2_256_128)));
        assert_eq!((ah.name(), ah.attribute("AH_ExtendedSeqNum")), ("IPSecAHProtocol", Some("1")));
        assert!(ah.attribute("AH_Authentication").is_some());
    }
}
