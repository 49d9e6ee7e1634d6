//! Elements → values: every attribute read, every reference resolved.

mod additional;
mod address;
mod algorithm;
mod child;
mod context;
mod draft;
mod generic;
mod group;
mod identity;
mod ike;
mod ikev1;
mod key;
mod offer;
mod ppk;
mod protection;
mod shadowed;
mod table;
mod traffic;
mod tunnel;
mod value;
pub(crate) mod words;

use super::conformance;
use super::diagnostic::Span;
use super::element::Element;
use super::options::Options;
use super::report::Report;
use crate::{IkeTunnel, Invalid, Policy, Problem};
use context::Context;
use draft::Draft;
use ikev1::Ikev1;
use std::collections::BTreeMap;
use std::sync::Arc;
use table::Table;

/// Limits on a policy: groups and lists let a short text make many tunnels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Tunnels of both phases, groups multiplied.
    tunnels: usize,
    /// Offers of all tunnels: each is copied to every tunnel that refers to it.
    offers: usize,
}

impl Limits {
    /// The limits on a policy that is read from so many texts.
    pub fn of(texts: usize) -> Self {
        match texts {
            0 | 1 => Self { tunnels: 40_000, offers: 200_000 },
            _ => Self { tunnels: 200_000, offers: 1_000_000 },
        }
    }
}

/// Checks the root element of a text against the vocabulary. Returns `true` if it is that of a policy.
pub(crate) fn check_root(root: &Element<'_>, report: &mut Report) -> bool {
    if root.name != "AIX_VPN" {
        let message = format!("the root element is {}, not AIX_VPN", root.name);
        report.error(root.span(), message, "a policy is one <AIX_VPN Version=\"2.1\">…</AIX_VPN>");
        return false;
    }
    conformance::check_tag(root, report);
    check_version(root, report);
    additional::check_namespace(root, report);
    true
}

/// Makes a policy of the objects in a root element that [`check_root`] has found to be one; `None` after an error. With
/// `whole` false some tags were not understood, so nothing is called missing that might stand in them.
pub(crate) fn lower(
    root: &Element<'_>,
    whole: bool,
    limits: Limits,
    options: &Options<'_>,
    report: &mut Report,
) -> Option<Policy> {
    conformance::check_children(root, report);
    ikev1::check_main_mode(root, report);
    let ikev1 = Ikev1::of(root);
    let misspelt =
        root.children.iter().filter_map(|child| conformance::meant(child.name)).collect();
    let padded = BTreeMap::new();
    let mut cx = Context { report, options, ikev1, misspelt, peers_of_groups: 0, padded };

    let keys = key::keys(&mut cx, root);
    let groups = group::groups(&mut cx, root);
    let offers = offer::offers(&mut cx, root);
    let child_protections = protection::protections(&mut cx, root, &offers);
    let protections = ike::protections(&mut cx, root, &child_protections);
    let mut tunnels = tunnel::tunnels(&mut cx, root, &groups, &protections, &keys);
    child::tunnels(&mut cx, root, &groups, &child_protections, &mut tunnels);

    if whole && !cx.report.has_errors() {
        protections.warn_unused(&mut cx);
        groups.warn_unused(&mut cx);
        offers.warn_unused(&mut cx);
        child_protections.warn_unused(&mut cx);
        keys.warn_unused(&mut cx);
        tunnel::warn_idle(&mut cx, &tunnels);
        warn_shared_names(&mut cx, &tunnels);
        if root.children.is_empty() {
            cx.report.warning(root.span(), "the policy is empty", "");
        }
    }
    let padded = cx.padded.len();
    if let Some((_, span)) = cx.padded.pop_first() {
        let message = match padded {
            1 => "blanks around a value are ignored".to_owned(),
            count => {
                format!("blanks around {count} values are ignored, of which this is the first")
            }
        };
        cx.report.warning(span, message, "");
    }
    // Nothing may be left out in silence, not even by a mistake made here.
    let written = ["IKETunnel", "IPSecTunnel"].map(|name| root.children_named(name).count());
    let carried = tunnels.in_order().map(|draft| draft.children.len()).sum();
    if !cx.report.has_errors() && [tunnels.in_order().count(), carried] != written {
        let message = "not every tunnel of the file was understood";
        cx.report.error(root.span(), message, "please report this file, with its keys replaced");
    }
    check_size(&mut cx, limits, &tunnels);
    if cx.report.has_errors() {
        return None;
    }
    let places = places(&tunnels);
    let origins = shadowed::Origins::of(&tunnels);
    let drafts = tunnels.into_order();
    let policy = Policy { tunnels: drafts.flat_map(Draft::finish).map(Arc::new).collect() };
    let refused = policy.validate().err();
    let mut taken = false;
    for invalid in refused.iter().flatten() {
        // One name that is taken is enough to say: a group can repeat it for each of its peers.
        let again =
            matches!(invalid.problem, Problem::NameTaken(_)) && std::mem::replace(&mut taken, true);
        if !again {
            refuse(&mut cx, root, &places, invalid);
        }
    }
    if refused.is_none() && whole {
        origins.warn_shadowed(&mut cx, &policy);
    }
    refused.is_none().then_some(policy)
}

/// The spans of the names of phase 1 tunnels (`false`) and phase 2 tunnels (`true`).
fn places(tunnels: &Table<Draft>) -> BTreeMap<(bool, String), Span> {
    tunnels
        .in_order()
        .flat_map(|draft| {
            let children = draft.children.iter().map(|c| (true, &c.tunnel.name, &c.span));
            let all = [(false, &draft.tunnel.name, &draft.span)].into_iter().chain(children);
            all.map(|(child, name, span)| ((child, name.clone()), span.clone())).collect::<Vec<_>>()
        })
        .collect()
}

/// Reports a value that the policy's own rules refuse and no element has shown, as a name that a group's peer has
/// taken.
fn refuse(
    cx: &mut Context<'_>,
    root: &Element<'_>,
    places: &BTreeMap<(bool, String), Span>,
    invalid: &Invalid,
) {
    if let Problem::NameTaken(name) = &invalid.problem {
        let message = format!("two tunnels are named {name:?}, one of them as a group's peer");
        let help = "rename the one that is not of a group";
        return cx.report.error(root.span(), message, help);
    }
    let key = match &invalid.child {
        Some(child) => (true, child.clone()),
        None => (false, invalid.tunnel.clone()),
    };
    let span = places.get(&key).cloned().unwrap_or_else(|| root.span());
    let message = format!("{}: {}", invalid.field, invalid.problem);
    cx.report.error(span, message, invalid.problem.help());
}

/// Limits the number of tunnels and proposals, which a small file can make large by groups and lists.
fn check_size(cx: &mut Context<'_>, limits: Limits, tunnels: &Table<Draft>) {
    let (mut made, mut offers) = (0, 0);
    for draft in tunnels.in_order() {
        made += draft.weight();
        let of_children: usize = draft.children.iter().map(|c| c.tunnel.proposals.len()).sum();
        let peers = draft.peers.as_ref().map_or(1, Vec::len);
        offers += peers * (draft.tunnel.proposals.len() + of_children);
        let (what, most) = match (made > limits.tunnels, offers > limits.offers) {
            (true, _) => ("tunnels", limits.tunnels),
            (_, true) => ("proposals", limits.offers),
            _ => continue,
        };
        let message = format!("the tunnels up to this one come to more than {most} {what}");
        let help = "split the policy, or let its groups and lists name less";
        return cx.report.error(draft.span.clone(), message, help);
    }
}

/// Warns where the version is missing or unknown.
fn check_version(root: &Element<'_>, report: &mut Report) {
    let Some(attribute) = root.attribute("Version") else {
        let message = "AIX_VPN has no Version; 2.1 is assumed";
        return report.warning(root.span(), message, "add Version=\"2.1\"");
    };
    if !attribute.value.trim().starts_with("2.") {
        let message = "unknown Version; the file is read as 2.1";
        report.warning(attribute.span(root), message, "write Version=\"2.1\"");
    }
}
/// Commands name tunnels of both phases alike.
fn warn_shared_names(cx: &mut Context<'_>, tunnels: &Table<Draft>) {
    let phase1: BTreeMap<&str, &IkeTunnel> =
        tunnels.in_order().map(|draft| (draft.tunnel.name.as_str(), &draft.tunnel)).collect();
    for child in tunnels.in_order().flat_map(|draft| &draft.children) {
        let name = &child.tunnel.name;
        if phase1.contains_key(name.as_str()) {
            let message = format!("an IKETunnel is named {name:?} as well");
            let help = "give them different names, so that commands can tell them apart";
            cx.report.warning(child.span.clone(), message, help);
        }
    }
}
