//! IPSecTunnel: the traffic of phase 2.

use super::context::Context;
use super::draft::{Draft, DraftChild};
use super::group::Group;
use super::protection::ChildProtection;
use super::table::Table;
use crate::validate::{Problem, rules};
use crate::xml::element::Element;
use crate::xml::schema::is_group_reference;
use crate::{ChildTunnel, Mode, Role, Selector};

/// Reads every IPSecTunnel and hands it to the IKETunnel that carries it.
pub(super) fn tunnels(
    cx: &mut Context<'_>,
    root: &Element<'_>,
    groups: &Table<Group>,
    protections: &Table<ChildProtection>,
    ike_tunnels: &mut Table<Draft>,
) {
    let mut names: Table<()> = Table::new("IPSecTunnel");
    for element in root.children_named("IPSecTunnel") {
        names.insert(cx, element, "IPSec_TunnelName", Some(()));
        let protection = protections.resolve(cx, element, "IPSec_ProtectionRef");
        let carrier = element.attribute("IKE_TunnelName").map_or("", |name| name.trimmed());
        if cx.ikev1.tunnels.contains(carrier) {
            continue;
        }
        let auto_start = cx.flag(element, "IPSec_Flags_AutoStart");
        let on_demand = cx.flag(element, "IPSec_Flags_OnDemand");
        let local_side = cx.only(element, Some("IPSecLocalIdentity"));
        let remote_side = cx.only(element, Some("IPSecRemoteIdentity"));
        let local = local_side.and_then(|side| local_traffic(cx, side, groups));
        let remote = remote_side.and_then(|side| cx.traffic(side, groups));
        let draft = ike_tunnels.resolve_mut(cx, element, "IKE_TunnelName");

        let (Some(local), Some(remote), Some(remote_side)) = (local, remote, remote_side) else {
            draft.into_iter().for_each(|draft| draft.carries = true);
            continue;
        };
        let group = remote_side.children.iter().find(|child| is_group_reference(child.name));
        let agree = remote.iter().all(|remote| agree(cx, remote_side, &local, remote));
        let Some(draft) = draft else { continue };
        draft.carries = true;
        let (Some(protection), Some(name)) = (protection, element.attribute("IPSec_TunnelName"))
        else {
            continue;
        };
        if let Some(group) = group
            && protection.role != Role::Responder
            && draft.tunnel.role != Role::Responder
        {
            let message = "a group as the remote identity is for responders";
            let help = "write IPSec_Role=\"Responder\" in the IPSecProtection";
            cx.report.error(group.span(), message, help);
            continue;
        }
        let by_peer = group.is_some() && draft.peers.is_some();
        if by_peer && !each_has_its_own(cx, remote_side, draft, &remote) {
            continue;
        }
        let transport = protection.mode == Mode::Transport && !by_peer;
        if !agree
            || transport && !remote.iter().all(|to| transport_fits(cx, element, draft, &local, to))
        {
            continue;
        }
        let child = ChildTunnel {
            // A wrong one is reported where it is entered into the table.
            name: name.trimmed().to_owned(),
            role: protection.role,
            mode: protection.mode,
            local: vec![local],
            remote,
            proposals: protection.proposals.clone(),
            pfs: protection.pfs.clone(),
            auto_start,
            on_demand,
        };
        warn_start(cx, element, draft, &child);
        warn_shared(cx, remote_side, draft, by_peer);
        let span = name.span(element);
        draft.children.push(DraftChild { tunnel: child, span, by_peer });
    }
}

fn local_traffic(
    cx: &mut Context<'_>,
    side: &Element<'_>,
    groups: &Table<Group>,
) -> Option<Selector> {
    if let Some(group) = side.children.iter().find(|child| is_group_reference(child.name)) {
        let message = "a group can be the remote identity alone";
        let help = "write this side's traffic as an address range";
        cx.report.error(group.span(), message, help);
        return None;
    }
    cx.traffic(side, groups)?.pop()
}

/// Checks that each peer of a group has an address among those of the traffic's group.
fn each_has_its_own(
    cx: &mut Context<'_>,
    side: &Element<'_>,
    draft: &Draft,
    remote: &[Selector],
) -> bool {
    let mut peers = draft.peers.iter().flatten();
    let Some((peer, _)) = peers.find(|(peer, _)| {
        !peer
            .address
            .as_ref()
            .is_some_and(|address| remote.iter().any(|s| s.addresses.contains(*address)))
    }) else {
        return true;
    };
    let message = match peer.address {
        None => format!("{} has no address, by which its traffic is selected", peer.identity),
        Some(address) => format!(
            "the group has no address {address}, which is a peer of {:?}",
            draft.tunnel.name
        ),
    };
    let help = "use the same group for both phases, with addresses for all; or leave the traffic of such peers to a \
                generic policy: IKE_IPSecDefaultProtectionRef in the IKEProtection";
    cx.report.error(side.span(), message, help);
    false
}

/// Traffic goes by the first rule that covers it, so that of several peers with the same traffic one gets it.
fn warn_shared(cx: &mut Context<'_>, side: &Element<'_>, draft: &Draft, by_peer: bool) {
    let peers = draft.peers.as_ref().map_or(1, Vec::len);
    if peers > 1 && !by_peer {
        let message = format!(
            "all {peers} peers of {:?} have this traffic: only the first of them gets it",
            draft.tunnel.name
        );
        let help = "name the group here as well, so that each has its own address; or use a generic policy: \
                    IKE_IPSecDefaultProtectionRef in the IKEProtection";
        cx.report.warning(side.span(), message, help);
    }
}

/// Checks that both ends of a tunnel's traffic go together.
fn agree(
    cx: &mut Context<'_>,
    remote_side: &Element<'_>,
    local: &Selector,
    remote: &Selector,
) -> bool {
    let Err(problem) = rules::ends(local, remote) else { return true };
    match problem {
        Problem::ProtocolsDiffer(local, remote) => {
            let message = format!("Protocol {remote} here, but {local} at IPSecLocalIdentity");
            let span = remote_side
                .attribute("Protocol")
                .map_or_else(|| remote_side.span(), |attribute| attribute.span(remote_side));
            cx.report.error(span, message, "write the same protocol on both sides");
        }
        Problem::FamiliesDiffer(..) => {
            let help = "both sides need IPv4 addresses, or both IPv6";
            cx.report.error(remote_side.span(), problem.to_string(), help);
        }
        other => cx.report.error(remote_side.span(), other.to_string(), other.help()),
    }
    false
}

/// Transport mode protects packets between the two gateways themselves (RFC 4301 §4.1).
fn transport_fits(
    cx: &mut Context<'_>,
    element: &Element<'_>,
    draft: &Draft,
    local: &Selector,
    remote: &Selector,
) -> bool {
    let sides = [
        ("IPSecLocalIdentity", local, draft.tunnel.local.address, "IKELocalIdentity"),
        ("IPSecRemoteIdentity", remote, draft.tunnel.remote.address, "IKERemoteIdentity"),
    ];
    let mut good = true;
    for (name, selector, address, ike_name) in sides {
        if rules::transport(&selector.addresses, address).is_ok() {
            continue;
        }
        good = false;
        let span =
            element.children_named(name).next().map_or_else(|| element.span(), Element::span);
        let (message, host) = match address {
            Some(address) => (
                format!(
                    "in transport mode {name} must be {address}, the address of {ike_name}, not {}",
                    selector.addresses
                ),
                address.to_string(),
            ),
            None => (
                format!("in transport mode {name} must be one address, not {}", selector.addresses),
                selector.addresses.start().to_string(),
            ),
        };
        let help = format!(
            "write From_IPAddr=\"{host}\" To_IPAddr=\"{host}\", or use ESP_EncapsulationMode=\"Tunnel\" on both sides"
        );
        cx.report.error(span, message, help);
    }
    good
}

/// Warns of flags that cannot start the tunnel.
fn warn_start(cx: &mut Context<'_>, element: &Element<'_>, draft: &Draft, child: &ChildTunnel) {
    let tunnel = &draft.tunnel;
    let why = if !child.role.may_initiate() {
        "the IPSec_Role is Responder".to_owned()
    } else if !tunnel.role.may_initiate() {
        format!("the IKE_Role of {:?} is Responder", tunnel.name)
    } else if draft.peers.is_some() {
        return;
    } else if tunnel.local.address.is_none() || tunnel.remote.address.is_none() {
        format!("{:?} has a side without an address", tunnel.name)
    } else {
        return;
    };
    let flags =
        [(child.auto_start, "IPSec_Flags_AutoStart"), (child.on_demand, "IPSec_Flags_OnDemand")];
    for (_, name) in flags.iter().filter(|(set, _)| *set) {
        if let Some(attribute) = element.attribute(name) {
            let message = format!("{name} has no effect: {why}");
            cx.report.warning(attribute.span(element), message, format!("write {name}=\"No\""));
        }
    }
}
