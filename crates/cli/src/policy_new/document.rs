//! The policy of one end, with comments that say what each element is.

use super::site::{Identity, Site};
use policy::AddressRange;
use policy::xml::Node;
use std::net::IpAddr;
use zeroize::Zeroizing;

/// An element of the policy, and the comment before it.
type Commented = (String, Node);

/// The text of one end's file.
pub(super) fn write(site: &Site, end: usize, names: &[String; 2]) -> Zeroizing<String> {
    let elements = elements(site, end);
    let bare = policy::xml::write(elements.iter().map(|(_, node)| node));
    let comments: Vec<String> = elements.iter().map(|(text, _)| comment(text, "  ")).collect();
    let head = comment(&head(site, end, names), "");
    let more = head.len() + comments.iter().map(|text| text.len() + 1).sum::<usize>();
    // All at once: a buffer that grows leaves copies of the key in freed memory.
    let mut text = Zeroizing::new(String::with_capacity(bare.len() + more));
    let mut comments = comments.iter();
    for line in bare.split_inclusive('\n') {
        // Elements of the policy itself are indented by two blanks; those inside them by more.
        let begins = line.strip_prefix("  <").is_some_and(|rest| !rest.starts_with('/'));
        if begins && let Some(comment) = comments.next() {
            text.push('\n');
            text.push_str(comment);
        }
        if line.starts_with("<AIX_VPN") {
            text.push_str(&head);
        }
        text.push_str(line);
    }
    text
}

/// A comment of XML, in lines of at most 110 characters.
fn comment(text: &str, indent: &str) -> String {
    // Two hyphens would end it.
    let mut text = text.to_owned();
    while text.contains("--") {
        text = text.replace("--", "- -");
    }
    let mut lines = vec![format!("{indent}<!--")];
    for paragraph in text.split('\n') {
        for word in paragraph.split(' ') {
            let line = lines.last_mut().expect("there is one");
            if line.chars().count() + 1 + word.chars().count() > 110 {
                lines.push(format!("{indent}     {word}"));
            } else {
                line.push(' ');
                line.push_str(word);
            }
        }
        lines.push(format!("{indent}    "));
    }
    lines.pop();
    lines.join("\n") + " -->\n"
}

fn head(site: &Site, end: usize, names: &[String; 2]) -> String {
    let [here, there] = [site.addresses[end], site.outer_address(1 - end)];
    let secret = match site.key {
        Some(_) => "Keep this file private (mode 0600): it holds the preshared key.",
        None => {
            "The certificates and this end's private key are in files: see docs/certificates.md."
        }
    };
    format!(
        "The tunnel \"{}\" of the gateway {here} to the gateway {there}, which has {}.\nStart: {}.\n{secret}\n\
         After a change: vpnd check FILE, then vpnctl reload.",
        site.name,
        names[1 - end],
        site.starts(end),
    )
}

fn elements(site: &Site, end: usize) -> Vec<Commented> {
    let mut elements = vec![ike_protection(site), ike_tunnel(site, end)];
    elements.extend(key(site, end));
    elements.extend([ipsec_proposal(site), ipsec_protection(site)]);
    elements.extend(ipsec_tunnels(site, end));
    elements
}

fn yes(yes: bool) -> &'static str {
    if yes { "Yes" } else { "No" }
}

fn ike_protection(site: &Site) -> Commented {
    let words = site.suite.words();
    let use_crl = site.key.is_none() && site.use_crl;
    let transform = |name: &str, value: &str| Node::new("IKETransform").with(name, value);
    let mut node = Node::new("IKEProtection")
        .with("IKE_ProtectionName", &format!("{}_p1", site.name))
        .with("IKE_Role", "Both")
        .with("IKE_Version", "2")
        .with("IKE_XCHGMode", "None")
        .with("IKE_KeyOverlap", "10")
        .with("IKE_Flags_UseCRL", yes(use_crl))
        .holding(transform("IKE_Encryption", words.ike_encryption));
    if let Some(hash) = words.ike_hash {
        node = node.holding(transform("IKE_Hash", hash));
    }
    let method = if site.key.is_some() { "Preshared_key" } else { "Digital_signatures" };
    let node = node
        .holding(transform("IKE_PRF", words.prf))
        .holding(transform("IKE_DHGroup", &words.group))
        .holding(transform("IKE_AuthenticationMethod", method))
        .holding(transform("IKE_KeyRefreshMinutes", "480"));
    let mut text = "Phase 1, the IKE SA: the algorithms that protect the negotiation, the method of \
                    authentication, and the minutes after which the keys are replaced. Both ends need the same."
        .to_owned();
    if use_crl {
        text.push_str(
            "\nIKE_Flags_UseCRL: the peer's certificate counts only if a current revocation list (CRL) does not name it.",
        );
    }
    (text, node)
}

fn ike_tunnel(site: &Site, end: usize) -> Commented {
    let this = end;
    let address_of = |end: usize| match end == this {
        true => site.addresses[end],
        false => site.outer_address(end),
    };
    let side = |name: &str, end: usize| {
        Node::new(name).holding(party(&site.identities[end], address_of(end)))
    };
    let node = Node::new("IKETunnel")
        .with("IKE_TunnelName", &site.name)
        .with("IKE_ProtectionRef", &format!("{}_p1", site.name))
        .with("IKE_Flags_AutoStart", yes(site.auto_starts(end)))
        .with("IKE_Flags_MakeRuleWithOptionalIP", "No")
        .holding(side("IKELocalIdentity", end))
        .holding(side("IKERemoteIdentity", 1 - end));
    let text = "The two gateways: this one (local) and the peer (remote), each with the identity that it proves. \
                IKE_Flags_AutoStart=\"Yes\" starts the tunnel with the daemon, and again after a failure.";
    (text.to_owned(), node)
}

/// An identity with the address of its end.
fn party(identity: &Identity, address: IpAddr) -> Node {
    let (kind, value) = identity.words();
    let node = Node::new(kind).with("Value", &value);
    match identity {
        Identity::Address(own) if *own == address => node,
        // A NAT gives this end the address of its identity.
        Identity::Address(_) => node.with("vpn:Address", &address.to_string()),
        _ => {
            let (kind, value) = Identity::of(address).words();
            node.holding(Node::new(kind).with("Value", &value))
        }
    }
}

fn key(site: &Site, end: usize) -> Option<Commented> {
    let key = site.key.as_ref()?;
    let (kind, value) = site.identities[1 - end].words();
    let remote = Node::new(&format!("PK_{kind}")).with("Value", &value);
    let node = Node::new("IKEPresharedKey")
        .with("Format", key.format)
        .with("Value", &key.value)
        .holding(Node::new("IKEPresharedRemoteID").holding(remote));
    let text = "The preshared key for the peer with this identity. Both ends need the same key. Whoever knows it can \
                pass for either end.";
    Some((text.to_owned(), node))
}

fn ipsec_proposal(site: &Site) -> Commented {
    let words = site.suite.words();
    let mode = if site.transport { "Transport" } else { "Tunnel" };
    let protocol = Node::new("IPSecESPProtocol")
        .with("ESP_Encryption", words.esp_encryption)
        .with("ESP_Authentication", words.esp_authentication)
        .with("ESP_EncapsulationMode", mode)
        .with("ESP_ExtendedSeqNum", "0")
        .with("ESP_KeyRefreshMinutes", "60")
        .with("ESP_KeyRefreshKB", "0");
    let node = Node::new("IPSecProposal")
        .with("IPSec_ProposalName", &format!("{}_esp", site.name))
        .holding(protocol);
    let text = "Phase 2, the Child SA: the algorithms that protect the traffic, the mode, and the minutes after which \
                the keys are replaced. Both ends need the same.";
    (text.to_owned(), node)
}

fn ipsec_protection(site: &Site) -> Commented {
    let group = site.suite.words().group;
    let node = Node::new("IPSecProtection")
        .with("IPSec_ProtectionName", &format!("{}_p2", site.name))
        .with("IPSec_ProposalRefs", &format!("{}_esp", site.name))
        .with("IPSec_Role", "Both")
        .with("IPSec_KeyOverlap", "10")
        .with("IPSec_Flags_UseLifeSize", "No")
        .with("IPSec_Flags_UseCommitBit", "No")
        .with("IPSec_InitiatorDHGroup", &group)
        .with("IPSec_ResponderDHGroup", &format!("GROUP_{group}"));
    let text = "The proposals in the order of preference, and the Diffie-Hellman group of new keys: this end offers the \
                first group as initiator, and accepts the second one as responder (perfect forward secrecy).";
    (text.to_owned(), node)
}

fn ipsec_tunnels(site: &Site, end: usize) -> Vec<Commented> {
    let start = if site.on_demand {
        " IPSec_Flags_OnDemand=\"Yes\": the first packet starts the tunnel."
    } else {
        " IPSec_Flags_AutoStart=\"Yes\" starts the tunnel with the daemon."
    };
    let tunnel = |(name, [local, remote]): (String, [AddressRange; 2])| {
        let node = Node::new("IPSecTunnel")
            .with("IPSec_TunnelName", &name)
            .with("IKE_TunnelName", &site.name)
            .with("IPSec_ProtectionRef", &format!("{}_p2", site.name))
            .with("IPSec_Flags_AutoStart", yes(site.auto_starts(end)))
            .with("IPSec_Flags_OnDemand", yes(site.on_demand))
            .holding(traffic("IPSecLocalIdentity", local))
            .holding(traffic("IPSecRemoteIdentity", remote));
        let what = if site.traffic.is_empty() { "between" } else { "between the networks" };
        let text =
            format!("Protected: the traffic {what} {local} (here) and {remote} (there).{start}");
        (text, node)
    };
    site.tunnels(end).into_iter().map(tunnel).collect()
}

fn traffic(name: &str, range: AddressRange) -> Node {
    let v4 = range.start().is_ipv4();
    let kind = if v4 { "IPV4_Address_Range" } else { "IPV6_Address_Range" };
    let addresses = Node::new(kind)
        .with("From_IPAddr", &range.start().to_string())
        .with("To_IPAddr", &range.end().to_string());
    Node::new(name)
        .with("Protocol", "0")
        .with("Port", "0")
        .with("EndPort", "65535")
        .holding(addresses)
}
