//! IKETunnel: both sides of phase 1, and the key they share.

use super::context::Context;
use super::draft::Draft;
use super::group::Group;
use super::ike::IkeProtection;
use super::key::Keys;
use super::ppk::ppk;
use super::table::Table;
use crate::validate::{Problem, rules};
use crate::xml::element::Element;
use crate::xml::schema::{RESUMPTION, is_group_reference};
use crate::{Credential, Endpoint, Identity, IkeTunnel, Role};
use std::collections::BTreeMap;

/// Reads every IKETunnel.
pub(super) fn tunnels(
    cx: &mut Context<'_>,
    root: &Element<'_>,
    groups: &Table<Group>,
    protections: &Table<IkeProtection>,
    keys: &Keys,
) -> Table<Draft> {
    let mut table = Table::new("IKETunnel");
    for element in root.children_named("IKETunnel") {
        let draft = tunnel(cx, element, groups, protections, keys);
        table.insert(cx, element, "IKE_TunnelName", draft);
    }
    table
}

/// The peer, or the peers of a group.
enum Remote {
    One(Endpoint),
    Group { name: String, peers: Vec<Endpoint> },
}

fn tunnel(
    cx: &mut Context<'_>,
    element: &Element<'_>,
    groups: &Table<Group>,
    protections: &Table<IkeProtection>,
    keys: &Keys,
) -> Option<Draft> {
    let auto_start = cx.flag(element, "IKE_Flags_AutoStart");
    let optional_ip = cx.flag(element, "IKE_Flags_MakeRuleWithOptionalIP");
    let ppk = ppk(cx, element);
    let resumption = cx.flag(element, RESUMPTION);
    let protection = protections.resolve(cx, element, "IKE_ProtectionRef");
    let local_side = cx.only(element, Some("IKELocalIdentity"));
    let remote_side = cx.only(element, Some("IKERemoteIdentity"));
    let local = local_side.and_then(|side| cx.endpoint(side));
    let role = protection.map(|protection| protection.role);
    let remote = remote_side.and_then(|side| remote(cx, side, role, groups));
    let (local, remote, local_side, remote_side) = (local?, remote?, local_side?, remote_side?);
    if protection.is_some_and(|protection| protection.signature.is_some()) {
        warn_key_id(cx, local_side, &[&local]);
        let all: Vec<&Endpoint> = match &remote {
            Remote::One(remote) => vec![remote],
            Remote::Group { peers, .. } => peers.iter().collect(),
        };
        warn_key_id(cx, remote_side, &all);
    }
    let (remote, credential, peers) = match remote {
        Remote::One(remote) => {
            if let Err(problem) = rules::sides(&local, &remote) {
                let (message, help) = in_the_file(&problem);
                keys.touch(&remote.identity);
                cx.report.error(remote_side.span(), message, help);
                return None;
            }
            let credential = credential(cx, remote_side, protection, keys, &local, &remote);
            (remote, credential?, None)
        }
        Remote::Group { name, peers } => {
            let peers = peers_of(cx, remote_side, protection?, keys, &local, &name, peers)?;
            let (remote, credential) = peers.first().cloned()?;
            (remote, credential, Some(peers))
        }
    };
    let protection = protection?;
    if peers.is_none() {
        let sides = [(local_side, &local), (remote_side, &remote)];
        check_addresses(cx, protection.role, optional_ip, &sides)?;
    } else {
        check_addresses(cx, protection.role, optional_ip, &[(local_side, &local)])?;
    }
    if let (true, false, Some(attribute)) =
        (auto_start, protection.role.may_initiate(), element.attribute("IKE_Flags_AutoStart"))
    {
        let message = "IKE_Flags_AutoStart has no effect: the IKE_Role is Responder";
        cx.report.warning(attribute.span(element), message, "write IKE_Flags_AutoStart=\"No\"");
    }
    let name = element.attribute("IKE_TunnelName")?;
    let tunnel = IkeTunnel {
        // A wrong one is reported where the tunnel is entered into the table.
        name: name.trimmed().to_owned(),
        role: protection.role,
        local,
        remote,
        credential,
        ppk: ppk?,
        resumption,
        proposals: protection.proposals.clone(),
        lifetime: protection.lifetime,
        auto_start,
        children: Vec::new(),
        generic: protection.generic.clone(),
    };
    Some(Draft { tunnel, peers, children: Vec::new(), carries: false, span: name.span(element) })
}

fn remote(
    cx: &mut Context<'_>,
    side: &Element<'_>,
    role: Option<Role>,
    groups: &Table<Group>,
) -> Option<Remote> {
    let element = cx.only(side, None)?;
    if !is_group_reference(element.name) {
        return cx.party(element).map(Remote::One);
    }
    let group = cx.group_of(element, groups)??;
    if let Some(role) = role.filter(|role| *role != Role::Responder) {
        let message = format!(
            "a group as the remote identity is for responders, but the IKE_Role is {role:?}"
        );
        let help = "write IKE_Role=\"Responder\" in the IKEProtection: the peers start";
        cx.report.error(element.span(), message, help);
        return None;
    }
    let peers = cx.peers(element, group)?;
    Some(Remote::Group { name: group.name.clone(), peers })
}

fn warn_key_id(cx: &mut Context<'_>, side: &Element<'_>, endpoints: &[&Endpoint]) {
    if endpoints.iter().any(|endpoint| matches!(endpoint.identity, Identity::KeyId(_))) {
        let message = "a certificate has no Key_ID: its subject key identifier is compared with it";
        let help = "name the side by ASN1_DN, FQDN, User_FQDN or its address";
        cx.report.warning(side.span(), message, help);
    }
}

fn credential(
    cx: &mut Context<'_>,
    remote_side: &Element<'_>,
    protection: Option<&IkeProtection>,
    keys: &Keys,
    local: &Endpoint,
    remote: &Endpoint,
) -> Option<Credential> {
    let Some(protection) = protection else {
        keys.touch(&remote.identity);
        return None;
    };
    match &protection.signature {
        Some(signature) => Some(Credential::Signature(signature.clone())),
        None => keys.for_peer(cx, remote_side.span(), local, remote).map(Credential::PresharedKey),
    }
}

/// The message and the fix for two sides that cannot be those of one tunnel.
fn in_the_file(problem: &Problem) -> (String, &'static str) {
    match problem {
        Problem::FamiliesDiffer(..) => (problem.to_string(), "both sides need IPv4, or both IPv6"),
        Problem::SameAddress(_) => (problem.to_string(), "write the peer's address here"),
        Problem::SameIdentity(identity) => {
            (format!("both sides have the identity {identity}"), "name the peer here")
        }
        other => (other.to_string(), other.help()),
    }
}

/// The members of a group that can be peers, with their credentials. A warning names the members that are left out.
fn peers_of(
    cx: &mut Context<'_>,
    side: &Element<'_>,
    protection: &IkeProtection,
    keys: &Keys,
    local: &Endpoint,
    group: &str,
    peers: Vec<Endpoint>,
) -> Option<Vec<(Endpoint, Credential)>> {
    let all = peers.len();
    let (fit, unfit): (Vec<_>, Vec<_>) =
        peers.into_iter().partition(|peer| rules::sides(local, peer).is_ok());
    if let Some(first) = unfit.first() {
        let message = format!(
            "{} of the {all} members of the group {group:?} cannot be peers here, the first is {}: they are left out",
            unfit.len(),
            first.identity
        );
        let help = "a peer has another address and identity than this side, and the same family";
        cx.report.warning(side.span(), message, help);
    }
    let mut with_key = Vec::new();
    let mut without = Vec::new();
    for peer in fit {
        let credential = match &protection.signature {
            Some(signature) => Some(Credential::Signature(signature.clone())),
            None => match keys.of(&peer.identity) {
                Some(secret) => Some(Credential::PresharedKey(secret?)),
                None => None,
            },
        };
        match credential {
            Some(credential) => with_key.push((peer, credential)),
            None => without.push(peer),
        }
    }
    let help = "add an IKEPresharedKey for each, with the member as IKEPresharedRemoteID";
    match (without.first(), with_key.is_empty()) {
        (Some(first), true) if !keys.may_lack() => {
            let message = format!(
                "no member of the group {group:?} has a preshared key, the first is {}",
                first.identity
            );
            cx.report.error(side.span(), message, help);
        }
        (Some(first), false) => {
            let message = format!(
                "{} of the {all} members of the group {group:?} have no preshared key, the first is {}: they are left out",
                without.len(),
                first.identity
            );
            cx.report.warning(side.span(), message, help);
        }
        (None, true) => {
            let message = format!("no member of the group {group:?} can be a peer");
            cx.report.error(side.span(), message, "name the peers in the group");
        }
        _ => {}
    }
    (!with_key.is_empty()).then_some(with_key)
}

/// Checks that an initiator has the addresses it needs, and warns others that lack them.
fn check_addresses(
    cx: &mut Context<'_>,
    role: Role,
    optional_ip: bool,
    sides: &[(&Element<'_>, &Endpoint)],
) -> Option<()> {
    for (side, endpoint) in sides {
        if endpoint.address.is_some() {
            continue;
        }
        let message = format!("{} is named without an address", endpoint.identity);
        let help = "put the address inside the identity: <FQDN Value=\"…\"><IPV4_Address Value=\"…\"/></FQDN>";
        match role {
            _ if rules::located(role, endpoint).is_err() => {
                let message = format!("{message}, which an initiator needs");
                cx.report.error(side.span(), message, help);
                return None;
            }
            Role::Both | Role::Initiator => {
                let message = format!("{message}: only the peer can start this tunnel");
                let help = format!("{help}, or write IKE_Role=\"Responder\"");
                cx.report.warning(side.span(), message, help);
            }
            Role::Responder if optional_ip => {
                let message =
                    format!("{message}: IKE_Flags_MakeRuleWithOptionalIP has none to use");
                cx.report.warning(side.span(), message, help);
            }
            Role::Responder => {}
        }
    }
    Some(())
}

/// Warns of tunnels that carry nothing, and of those that a responder cannot tell apart.
pub(super) fn warn_idle(cx: &mut Context<'_>, tunnels: &Table<Draft>) {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for draft in tunnels.in_order() {
        let tunnel = &draft.tunnel;
        if !draft.carries && tunnel.generic.is_none() {
            let message =
                format!("no IPSecTunnel refers to {:?}: it protects no traffic", tunnel.name);
            let help = format!("add an IPSecTunnel with IKE_TunnelName={:?}", tunnel.name);
            cx.report.warning(draft.span.clone(), message, help);
        }
        warn_beginning(cx, draft);
        let of_group = draft.peers.iter().flatten().map(|(peer, _)| peer);
        let one = std::iter::once(&tunnel.remote).filter(|_| draft.peers.is_none());
        for remote in one.chain(of_group) {
            let pair = format!("{:?} {remote:?}", tunnel.local).to_ascii_lowercase();
            if let Some(other) = seen.insert(pair, &tunnel.name) {
                let message = format!("{:?} has the same two sides as {other:?}", tunnel.name);
                let help = "a peer that starts cannot say which it means: make them one IKETunnel";
                cx.report.warning(draft.span.clone(), message, help);
                break;
            }
        }
    }
}

/// Warns of a tunnel that neither side can begin, since IKEv2 makes an IKE SA together with its first Child SA
/// (RFC 7296 §1.2).
fn warn_beginning(cx: &mut Context<'_>, draft: &Draft) {
    let (one, other) = match draft.tunnel.role {
        Role::Both => return,
        Role::Initiator => ("starts", "answer"),
        Role::Responder => ("answers", "start"),
    };
    let children = &draft.children;
    if draft.tunnel.generic.is_some()
        || children.is_empty()
        || children
            .iter()
            .any(|child| child.tunnel.role == Role::Both || child.tunnel.role == draft.tunnel.role)
    {
        return;
    }
    let message = format!(
        "{:?} cannot come up: it only {one}, but what it carries may only {other}",
        draft.tunnel.name
    );
    let help = "IKEv2 makes an IKE SA together with its first Child SA: write the same IKE_Role and IPSec_Role, or \
                \"Both\"";
    cx.report.warning(draft.span.clone(), message, help);
}
