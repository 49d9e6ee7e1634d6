//! Phase 2: IPSecProposal, IPSecProtection and IPSecTunnel.

use super::Cx;
use super::algorithm::{ESP_AUTHENTICATION, ESP_ENCRYPTION, STRONG_GROUPS};
use super::ike::{Draft, MAX_PROPOSALS, ROLE};
use super::table::Table;
use super::value::{Word, lifetime};
use crate::xml::diagnostic::quoted;
use crate::xml::document::Element;
use crate::{
    AddressRange, ChildProposal, ChildTunnel, Group, Integrity, Mode, Pfs,
    Protection as Algorithms, Role, Selector,
};
use std::net::IpAddr;

/// One IPSecESPProtocol; its overlap and whether its volume counts are the protection's business.
#[derive(Clone, Copy)]
pub(super) struct Offer {
    algorithms: Algorithms,
    esn: bool,
    mode: Mode,
    minutes: u64,
    kilobytes: u64,
}

/// One IPSecProtection.
pub(super) struct Protection {
    role: Role,
    mode: Mode,
    proposals: Vec<ChildProposal>,
    pfs: Pfs,
}

/// Reads every IPSecProposal: the alternatives in it, in order of preference.
pub(super) fn offers(cx: &mut Cx<'_>, root: &Element<'_>) -> Table<Vec<Offer>> {
    let mut table = Table::new("IPSecProposal");
    for element in Cx::children(root, "IPSecProposal") {
        if element.children.is_empty() && !element.damaged {
            let help = "put an <IPSecESPProtocol …/> inside it";
            cx.report.error(element.place(), "IPSecProposal holds no IPSecESPProtocol", help);
        }
        let each: Vec<_> =
            Cx::children(element, "IPSecESPProtocol").map(|esp| offer(cx, esp)).collect();
        // An AH element, or an unknown one, is reported and spoils the whole.
        let whole = each.len() == element.children.len() && !each.is_empty();
        let alternatives = each.into_iter().collect::<Option<Vec<_>>>().filter(|_| whole);
        table.insert(cx, element, "IPSec_ProposalName", alternatives);
    }
    table
}

fn offer(cx: &mut Cx<'_>, esp: &Element<'_>) -> Option<Offer> {
    const MODE: &[Word<Mode>] = &[("Tunnel", Ok(Mode::Tunnel)), ("Transport", Ok(Mode::Transport))];

    let encryption = cx.word(esp, "ESP_Encryption", ESP_ENCRYPTION);
    let integrity = match esp.attribute("ESP_Authentication") {
        None => Some(None),
        Some(_) => cx.word(esp, "ESP_Authentication", ESP_AUTHENTICATION),
    };
    let mode = match esp.attribute("ESP_EncapsulationMode") {
        None => Some(Mode::Tunnel),
        Some(_) => cx.word(esp, "ESP_EncapsulationMode", MODE),
    };
    let esn = match esp.attribute("ESP_ExtendedSeqNum") {
        None => Some(0),
        Some(_) => cx.number(esp, "ESP_ExtendedSeqNum", 0..=1),
    };
    let minutes = match esp.attribute("ESP_KeyRefreshMinutes") {
        None => Some(480),
        Some(_) => cx.minutes(esp, "ESP_KeyRefreshMinutes"),
    };
    let kilobytes = match esp.attribute("ESP_KeyRefreshKB") {
        None => Some(0),
        Some(_) => cx.kilobytes(esp, "ESP_KeyRefreshKB"),
    };
    let (encryption, integrity) = (encryption?, integrity?);
    let place = || {
        let attribute = esp.attribute("ESP_Authentication").or(esp.attribute("ESP_Encryption"));
        attribute.map_or_else(|| esp.place(), |attribute| attribute.place(esp))
    };
    match (encryption.is_aead(), integrity) {
        (true, Some(_)) => {
            let message =
                format!("{encryption} protects integrity itself: ESP_Authentication must be NONE");
            cx.report.error(place(), message, "write ESP_Authentication=\"NONE\"");
            return None;
        }
        (false, None) => {
            let message = format!("{encryption} without ESP_Authentication is not secure");
            let help = "write ESP_Authentication=\"HMAC-SHA2-256\", or use ESP_AES256_GCM_16";
            cx.report.error(place(), message, help);
            return None;
        }
        _ => {}
    }
    if integrity.is_some_and(Integrity::is_weak) {
        cx.warn_weak(esp, "ESP_Authentication", "HMAC-SHA2-256, or HMAC-SHA for an old peer,");
    }
    if let (false, Some(attribute)) = (encryption.hides(), esp.attribute("ESP_Encryption")) {
        let message = format!(
            "{} does not encrypt: everybody on the way can read the traffic",
            attribute.trimmed()
        );
        let help = "use ESP_AES256_GCM_16 on both sides, which protects integrity as well";
        cx.report.warning(attribute.place(esp), message, help);
    }
    Some(Offer {
        algorithms: Algorithms::Esp { encryption, integrity },
        esn: esn? == 1,
        mode: mode?,
        minutes: minutes?,
        kilobytes: kilobytes?,
    })
}

/// Reads every IPSecProtection.
pub(super) fn protections(
    cx: &mut Cx<'_>,
    root: &Element<'_>,
    offers: &Table<Vec<Offer>>,
) -> Table<Protection> {
    let mut table = Table::new("IPSecProtection");
    for element in Cx::children(root, "IPSecProtection") {
        let protection = protection(cx, element, offers);
        table.insert(cx, element, "IPSec_ProtectionName", protection);
    }
    table
}

fn protection(
    cx: &mut Cx<'_>,
    element: &Element<'_>,
    offers: &Table<Vec<Offer>>,
) -> Option<Protection> {
    let role = match element.attribute("IPSec_Role") {
        None => Some(Role::Both),
        Some(_) => cx.word(element, "IPSec_Role", ROLE),
    };
    let overlap = cx.overlap(element, "IPSec_KeyOverlap");
    let use_life_size = cx.flag(element, "IPSec_Flags_UseLifeSize");
    if let (true, Some(attribute)) = (
        cx.flag(element, "IPSec_Flags_UseCommitBit"),
        element.attribute("IPSec_Flags_UseCommitBit"),
    ) {
        let message = "IPSec_Flags_UseCommitBit has no meaning in IKEv2 and is ignored";
        cx.report.warning(
            attribute.place(element),
            message,
            "write IPSec_Flags_UseCommitBit=\"No\"",
        );
    }
    let pfs = pfs(cx, element);
    let named = referred(cx, element, offers);
    let (minutes, kilobytes): (Vec<u64>, Vec<u64>) = named
        .iter()
        .flatten()
        .flat_map(|(_, offers)| offers.iter())
        .map(|offer| (offer.minutes, offer.kilobytes))
        .unzip();
    let kilobytes: Vec<u64> = kilobytes.into_iter().filter(|kb| *kb > 0).collect();
    cx.window(element, "IPSec", "Minutes", &minutes);
    cx.window(element, "IPSec", "KB", if use_life_size { &kilobytes } else { &[] });
    let named = named?;
    if let (false, Some(kilobytes)) = (use_life_size, kilobytes.first()) {
        let attribute = element.attribute("IPSec_Flags_UseLifeSize");
        let place = attribute.map_or_else(|| element.place(), |a| a.place(element));
        let message =
            format!("ESP_KeyRefreshKB {kilobytes} is ignored: IPSec_Flags_UseLifeSize is No");
        let help = "write IPSec_Flags_UseLifeSize=\"Yes\", or ESP_KeyRefreshKB=\"0\"";
        cx.report.warning(place, message, help);
    }

    let refs = element.attribute("IPSec_ProposalRefs")?;
    let mut mode: Option<(Mode, &str)> = None;
    let mut proposals: Vec<ChildProposal> = Vec::new();
    for (name, offer) in named.iter().flat_map(|(name, each)| each.iter().map(move |o| (name, o))) {
        match mode {
            Some((first, other)) if first != offer.mode => {
                let message = format!(
                    "{} is for {} mode, but {} is for {first} mode",
                    quoted(name),
                    offer.mode,
                    quoted(other)
                );
                let help = "the mode of all proposals of an IPSecProtection must be the same, since IKEv2 agrees \
                            on the mode apart from the proposal: make two IPSecProtection";
                cx.report.error(refs.place(element), message, help);
                return None;
            }
            Some(_) => {}
            None => mode = Some((offer.mode, name)),
        }
        let kilobytes = if use_life_size { offer.kilobytes } else { 0 };
        proposals.push(ChildProposal {
            name: name.clone(),
            protection: offer.algorithms,
            esn: offer.esn,
            lifetime: lifetime(offer.minutes, kilobytes, overlap),
        });
    }
    if proposals.len() > MAX_PROPOSALS {
        let message = format!("{} proposals, more than {MAX_PROPOSALS}", proposals.len());
        cx.report.error(refs.place(element), message, "remove some");
        return None;
    }
    Some(Protection { role: role?, mode: mode?.0, proposals, pfs: pfs? })
}

/// The proposals a protection lists, by name; `None` after an error.
fn referred<'o>(
    cx: &mut Cx<'_>,
    element: &Element<'_>,
    offers: &'o Table<Vec<Offer>>,
) -> Option<Vec<(String, &'o Vec<Offer>)>> {
    let attribute = element.attribute("IPSec_ProposalRefs")?;
    let mut named: Vec<(String, &Vec<Offer>)> = Vec::new();
    let mut good = true;
    // AIX itself ends such lists with a blank.
    for name in attribute.value.split_ascii_whitespace() {
        if named.iter().any(|(other, _)| other == name) {
            let message = format!("{} is listed twice in IPSec_ProposalRefs", quoted(name));
            cx.report.warning(attribute.part(element, name), message, "remove one of the two");
            continue;
        }
        match offers.resolve_name(cx, element, attribute, name).flatten() {
            Some(offers) => named.push((name.to_owned(), offers)),
            None => good = false,
        }
    }
    if attribute.trimmed().is_empty() {
        let message = "IPSec_ProposalRefs lists no proposal";
        cx.report.error(attribute.place(element), message, "write the names of IPSecProposal");
        good = false;
    }
    good.then_some(named)
}

/// Which groups a rekey offers and accepts. `None` after an error.
fn pfs(cx: &mut Cx<'_>, element: &Element<'_>) -> Option<Pfs> {
    let (offer, _) = groups(cx, element, "IPSec_InitiatorDHGroup")?;
    let responder = element.attribute("IPSec_ResponderDHGroup");
    let Some(responder) = responder else {
        let mut accept = STRONG_GROUPS.to_vec();
        accept.extend(offer.iter().filter(|group| !STRONG_GROUPS.contains(group)));
        return Some(Pfs { offer, accept, accept_none: true });
    };
    let (accept, none_listed) = groups(cx, element, "IPSec_ResponderDHGroup")?;
    let accept_none = none_listed || offer.is_empty();
    if !accept_none && accept.is_empty() {
        let message = "IPSec_ResponderDHGroup accepts nothing";
        cx.report.error(
            responder.place(element),
            message,
            "list groups, like \"GROUP_19 GROUP_14\"",
        );
        return None;
    }
    if let Some(group) = offer.iter().find(|group| !accept.contains(group)) {
        let message = format!("{group} is offered as initiator, but not accepted as responder");
        let help = "a peer with the same policy would be refused: add it to IPSec_ResponderDHGroup";
        cx.report.warning(responder.place(element), message, help);
    }
    Some(Pfs { offer, accept, accept_none })
}

/// The groups in a list, and whether it names the absence of one, too. `None` after an error.
fn groups(cx: &mut Cx<'_>, element: &Element<'_>, name: &str) -> Option<(Vec<Group>, bool)> {
    let Some(attribute) = element.attribute(name) else { return Some((Vec::new(), true)) };
    let mut list = Vec::new();
    let (mut none, mut good) = (false, true);
    for token in attribute.value.split_ascii_whitespace() {
        match cx.group(element, attribute, token) {
            None => good = false,
            Some(None) => none = true,
            Some(Some(group)) if list.contains(&group) => {
                let message = format!("{} is listed twice in {name}", quoted(token));
                cx.report.warning(attribute.part(element, token), message, "remove one of the two");
            }
            Some(Some(group)) => list.push(group),
        }
    }
    let initiator = name == "IPSec_InitiatorDHGroup";
    if good && initiator && (none && !list.is_empty() || !none && list.is_empty()) {
        let message = format!("{name} {} is neither a group nor none", quoted(&attribute.value));
        cx.report.error(
            attribute.place(element),
            message,
            "write a group like \"19\", or \"0\" for none",
        );
        good = false;
    }
    good.then_some((list, none))
}

/// Reads every IPSecTunnel and hands it to the IKETunnel that carries it.
pub(super) fn tunnels(
    cx: &mut Cx<'_>,
    root: &Element<'_>,
    protections: &Table<Protection>,
    ike_tunnels: &mut Table<Draft>,
) {
    let mut names: Table<()> = Table::new("IPSecTunnel");
    for element in Cx::children(root, "IPSecTunnel") {
        names.insert(cx, element, "IPSec_TunnelName", Some(()));
        let protection = protections.resolve(cx, element, "IPSec_ProtectionRef");
        let auto_start = cx.flag(element, "IPSec_Flags_AutoStart");
        let on_demand = cx.flag(element, "IPSec_Flags_OnDemand");
        let local_side = cx.only(element, Some("IPSecLocalIdentity"));
        let remote_side = cx.only(element, Some("IPSecRemoteIdentity"));
        let local = local_side.and_then(|side| cx.selector(side));
        let remote = remote_side.and_then(|side| cx.selector(side));
        let draft = ike_tunnels.resolve_mut(cx, element, "IKE_TunnelName");

        let (Some(local), Some(remote), Some(remote_side)) = (local, remote, remote_side) else {
            draft.into_iter().for_each(|draft| draft.carries = true);
            continue;
        };
        let agree = agree(cx, remote_side, &local, &remote);
        let Some(draft) = draft else { continue };
        draft.carries = true;
        let (Some(protection), Some(name)) = (protection, element.attribute("IPSec_TunnelName"))
        else {
            continue;
        };
        if !agree
            || protection.mode == Mode::Transport
                && !transport_fits(cx, element, draft, &local, &remote)
        {
            continue;
        }
        let child = ChildTunnel {
            // A wrong one is reported where it is entered into the table.
            name: name.trimmed().to_owned(),
            role: protection.role,
            mode: protection.mode,
            local: vec![local],
            remote: vec![remote],
            proposals: protection.proposals.clone(),
            pfs: protection.pfs.clone(),
            auto_start,
            on_demand,
        };
        warn_start(cx, element, draft, &child);
        let same = |other: &ChildTunnel| other.local == child.local && other.remote == child.remote;
        if let Some((other, _)) = draft.children.iter().find(|(other, _)| same(other)) {
            let message = format!("{:?} selects the same traffic, and goes first", other.name);
            cx.report.warning(name.place(element), message, "remove one of the two");
        }
        draft.children.push((child, name.place(element)));
    }
}

/// Checks that both ends of a tunnel's traffic go together.
fn agree(cx: &mut Cx<'_>, remote_side: &Element<'_>, local: &Selector, remote: &Selector) -> bool {
    if local.protocol != remote.protocol {
        let message = format!(
            "Protocol {} here, but {} at IPSecLocalIdentity",
            remote.protocol, local.protocol
        );
        let place = remote_side
            .attribute("Protocol")
            .map_or_else(|| remote_side.place(), |attribute| attribute.place(remote_side));
        cx.report.error(place, message, "write the same protocol on both sides");
        return false;
    }
    if local.addresses.start().is_ipv4() != remote.addresses.start().is_ipv4() {
        let message =
            format!("{} and {} are of different families", local.addresses, remote.addresses);
        let help = "both sides need IPv4 addresses, or both IPv6";
        cx.report.error(remote_side.place(), message, help);
        return false;
    }
    true
}

/// Transport mode protects packets between the two gateways themselves (RFC 4301 §4.1).
fn transport_fits(
    cx: &mut Cx<'_>,
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
        if fits(&selector.addresses, address) {
            continue;
        }
        good = false;
        let place =
            Cx::children(element, name).next().map_or_else(|| element.place(), Element::place);
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
        cx.report.error(place, message, help);
    }
    good
}

fn fits(range: &AddressRange, address: Option<IpAddr>) -> bool {
    range.start() == range.end() && address.is_none_or(|address| address == range.start())
}

/// Warns of wishes to start that cannot come true.
fn warn_start(cx: &mut Cx<'_>, element: &Element<'_>, draft: &Draft, child: &ChildTunnel) {
    let tunnel = &draft.tunnel;
    let why = if !child.role.may_initiate() {
        "the IPSec_Role is Responder".to_owned()
    } else if !tunnel.role.may_initiate() {
        format!("the IKE_Role of {:?} is Responder", tunnel.name)
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
            cx.report.warning(attribute.place(element), message, format!("write {name}=\"No\""));
        }
    }
}
