//! The policy of one end, with comments that say what each element is.

use super::site::Site;
use policy::xml::elements::{ike_algorithms, ike_transform};
use policy::xml::{Node, elements};
use policy::{AddressRange, Endpoint, Mode, Role, Selector};
use zeroize::Zeroizing;

/// The overlap of the lifetimes of both SAs at a rekey, in percent.
const OVERLAP: u8 = 10;

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
            "The certificates and this end's private key are in files: see docs/operate/certificates.md."
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

fn ike_protection(site: &Site) -> Commented {
    let use_crl = site.key.is_none() && site.use_crl;
    let name = format!("{}_p1", site.name);
    let algorithms = ike_algorithms(&site.suite.algorithms().ike());
    let algorithms = algorithms.iter().map(|(name, word)| (*name, &**word));
    let method = if site.key.is_some() { "Preshared_key" } else { "Digital_signatures" };
    let node = algorithms
        .chain([("IKE_AuthenticationMethod", method), ("IKE_KeyRefreshMinutes", "480")])
        .map(|attribute| ike_transform([attribute]))
        .fold(elements::ike_protection(&name, Role::Both, OVERLAP, use_crl), Node::holding);
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
    let identity = |end: usize| site.identities[end].in_policy();
    let here = Endpoint::at(site.addresses[end], identity(end));
    let there = Endpoint::at(site.outer_address(1 - end), identity(1 - end));
    let protection = format!("{}_p1", site.name);
    let node =
        elements::ike_tunnel(&site.name, &protection, site.auto_starts(end), [&here, &there]);
    let text = "The two gateways: this one (local) and the peer (remote), each with the identity that it proves. \
                IKE_Flags_AutoStart=\"Yes\" starts the tunnel with the daemon, and again after a failure.";
    (text.to_owned(), node)
}

fn key(site: &Site, end: usize) -> Option<Commented> {
    let key = site.key.as_ref()?;
    let peer = site.identities[1 - end].in_policy();
    let node = elements::preshared_key(key.format, &key.value, &peer);
    let text = "The preshared key for the peer with this identity. Both ends need the same key. Whoever knows it can \
                pass for either end.";
    Some((text.to_owned(), node))
}

fn ipsec_proposal(site: &Site) -> Commented {
    let protocol = Node::from(elements::Protocol {
        protection: site.suite.algorithms().child,
        mode: if site.transport { Mode::Transport } else { Mode::Tunnel },
        esn: false,
        minutes: 60,
        kilobytes: 0,
    });
    let node = elements::ipsec_proposal(&format!("{}_esp", site.name), [protocol]);
    let text = "Phase 2, the Child SA: the algorithms that protect the traffic, the mode, and the minutes after which \
                the keys are replaced. Both ends need the same.";
    (text.to_owned(), node)
}

fn ipsec_protection(site: &Site) -> Commented {
    let group = elements::number(site.suite.algorithms().group);
    let node = Node::from(elements::IpsecProtection {
        name: &format!("{}_p2", site.name),
        proposals: &format!("{}_esp", site.name),
        role: Role::Both,
        overlap_percent: OVERLAP,
        by_volume: false,
        offered: &group,
        accepted: &format!("GROUP_{group}"),
    });
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
    let protection = format!("{}_p2", site.name);
    let tunnel = |(name, [local, remote]): (String, [AddressRange; 2])| {
        let node = Node::from(elements::IpsecTunnel {
            name: &name,
            carrier: &site.name,
            protection: &protection,
            auto_start: site.auto_starts(end),
            on_demand: site.on_demand,
            local: &[Selector::all_of(local)],
            remote: &[Selector::all_of(remote)],
        });
        let what = if site.traffic.is_empty() { "between" } else { "between the networks" };
        let text =
            format!("Protected: the traffic {what} {local} (here) and {remote} (there).{start}");
        (text, node)
    };
    site.tunnels(end).into_iter().map(tunnel).collect()
}
