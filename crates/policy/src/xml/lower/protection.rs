//! IPSecProtection: role, mode, proposals and PFS of phase 2 tunnels.

use super::additional::additional;
use super::algorithm::STRONG_GROUPS;
use super::context::Context;
use super::offer::Offer;
use super::table::Table;
use super::value::ROLE;
use super::value::lifetime;
use crate::validate::rules;
use crate::wording::quoted;
use crate::xml::element::Element;
use crate::xml::schema::ADDITIONAL_KE;
use crate::{ChildProposal, Group, Mode, Pfs, Protection, Role};

/// One IPSecProtection.
#[derive(Clone)]
pub(super) struct ChildProtection {
    pub role: Role,
    pub mode: Mode,
    pub proposals: Vec<ChildProposal>,
    pub pfs: Pfs,
}

/// Reads every IPSecProtection.
pub(super) fn protections(
    cx: &mut Context<'_>,
    root: &Element<'_>,
    offers: &Table<Vec<Offer>>,
) -> Table<ChildProtection> {
    let mut table = Table::new("IPSecProtection");
    for element in root.children_named("IPSecProtection") {
        let name = element.attribute("IPSec_ProtectionName");
        let of_ikev1 = name.is_some_and(|name| cx.ikev1.protections.contains(name.trimmed()));
        let protection = if of_ikev1 { None } else { protection(cx, element, offers) };
        table.insert(cx, element, "IPSec_ProtectionName", protection);
    }
    table
}

fn protection(
    cx: &mut Context<'_>,
    element: &Element<'_>,
    offers: &Table<Vec<Offer>>,
) -> Option<ChildProtection> {
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
            attribute.span(element),
            message,
            "write IPSec_Flags_UseCommitBit=\"No\"",
        );
    }
    // Errors of these count at the end: until then each mistake is reported.
    let pfs = pfs(cx, element);
    let named = referred(cx, element, offers);
    let (minutes, kilobytes): (Vec<u64>, Vec<u64>) = named
        .iter()
        .flatten()
        .flat_map(|(_, offers)| offers.iter())
        .map(|offer| (offer.minutes, offer.kilobytes))
        .unzip();
    let mut all = named.iter().flatten().flat_map(|(_, offers)| offers.iter());
    let volume = all.find(|offer| offer.kilobytes > 0).copied();
    let kilobytes: Vec<u64> = kilobytes.into_iter().filter(|kb| *kb > 0).collect();
    // A window of the responder is compared only with limits that are in force.
    let limited = if use_life_size { &kilobytes[..] } else { &[] };
    let bounds = cx.bounds(element, "IPSec", [&minutes, limited]);
    let named = named?;
    if limited.is_empty() {
        let why = [
            "no proposal has a limit by volume",
            "write IPSec_Flags_UseLifeSize=\"Yes\" and the limit in ESP_KeyRefreshKB or AH_KeyRefreshKB, or remove the window",
        ];
        cx.idle_window(element, "IPSec", bounds, why);
    }
    if let (false, Some(offer)) = (use_life_size, volume) {
        let attribute = element.attribute("IPSec_Flags_UseLifeSize");
        let span = attribute.map_or_else(|| element.span(), |a| a.span(element));
        let name = match offer.protection {
            Protection::Esp { .. } => "ESP_KeyRefreshKB",
            Protection::Ah(_) => "AH_KeyRefreshKB",
        };
        let kilobytes = offer.kilobytes;
        let message = format!("{name} {kilobytes} is ignored: IPSec_Flags_UseLifeSize is No");
        let help = format!("write IPSec_Flags_UseLifeSize=\"Yes\", or {name}=\"0\"");
        cx.report.warning(span, message, help);
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
                cx.report.error(refs.span(element), message, help);
                return None;
            }
            Some(_) => {}
            None => mode = Some((offer.mode, name)),
        }
        let kilobytes = if use_life_size { offer.kilobytes } else { 0 };
        proposals.push(ChildProposal {
            name: name.clone(),
            protection: offer.protection,
            esn: offer.esn,
            lifetime: lifetime(offer.minutes, kilobytes, overlap, bounds),
        });
    }
    if let Err(problem) = rules::number_of_proposals(proposals.len()) {
        cx.report.error(refs.span(element), problem.to_string(), "remove some");
        return None;
    }
    Some(ChildProtection { role: role?, mode: mode?.0, proposals, pfs: pfs? })
}

/// The proposals a protection lists, by name; `None` after an error.
fn referred<'o>(
    cx: &mut Context<'_>,
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
        cx.report.error(attribute.span(element), message, "write the names of IPSecProposal");
        good = false;
    }
    good.then_some(named)
}

/// The groups that a rekey offers and accepts. `None` after an error.
fn pfs(cx: &mut Context<'_>, element: &Element<'_>) -> Option<Pfs> {
    let additional = additional(cx, element)?;
    let (offer, _) = groups(cx, element, "IPSec_InitiatorDHGroup")?;
    if !additional.is_empty() && offer.is_empty() {
        let message = format!("{ADDITIONAL_KE} needs a key exchange that it adds to");
        let help = "write IPSec_InitiatorDHGroup, too, like \"GROUP_19\"";
        cx.report.error(element.span(), message, help);
        return None;
    }
    let responder = element.attribute("IPSec_ResponderDHGroup");
    let Some(responder) = responder else {
        let mut accept = STRONG_GROUPS.to_vec();
        accept.extend(offer.iter().filter(|group| !STRONG_GROUPS.contains(group)));
        let accept_none = additional.is_empty();
        return Some(Pfs { offer, accept, accept_none, additional });
    };
    let (accept, none_listed) = groups(cx, element, "IPSec_ResponderDHGroup")?;
    let accept_none = none_listed || offer.is_empty();
    let pfs = Pfs { offer, accept, accept_none, additional };
    if rules::pfs(&pfs).is_err() {
        let message = "IPSec_ResponderDHGroup accepts nothing";
        cx.report.error(
            responder.span(element),
            message,
            "list groups, like \"GROUP_19 GROUP_14\"",
        );
        return None;
    }
    if let Some(group) = pfs.offer.iter().find(|group| !pfs.accept.contains(group)) {
        let message = format!("{group} is offered as initiator, but not accepted as responder");
        let help = "a peer with the same policy would be refused: add it to IPSec_ResponderDHGroup";
        cx.report.warning(responder.span(element), message, help);
    }
    Some(pfs)
}

/// The groups in a list, and whether it names the absence of one, too. `None` after an error.
fn groups(cx: &mut Context<'_>, element: &Element<'_>, name: &str) -> Option<(Vec<Group>, bool)> {
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
            attribute.span(element),
            message,
            "write a group like \"19\", or \"0\" for none",
        );
        good = false;
    }
    good.then_some((list, none))
}
