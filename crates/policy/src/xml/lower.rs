//! Elements → values: every attribute read, every reference resolved.

mod algorithm;
mod child;
mod generic;
mod group;
mod ike;
mod ikev1;
mod key;
mod offer;
mod party;
mod protection;
mod table;
mod tunnel;
mod value;

use super::diagnostic::{Place, Report};
use super::document::Element;
use super::options::Options;
use super::schema;
use crate::{IkeTunnel, Invalid, Policy, Problem};
use ikev1::Ikev1;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The state that all functions of `lower` share.
struct Cx<'r> {
    report: &'r mut Report,
    options: &'r Options<'r>,
    ikev1: Ikev1,
    /// Kinds of objects of which some may be missing because their element is misspelt.
    misspelt: BTreeSet<&'static str>,
    /// How many peers the groups named so far stand for.
    peers_of_groups: usize,
    /// Values with blanks around them, by offset.
    padded: BTreeMap<usize, Place>,
}

/// Tunnels of both phases that a file may make, groups multiplied.
const MAX_TUNNELS: usize = 40_000;

/// Offers of all tunnels: each is copied to every tunnel that refers to it.
const MAX_OFFERS: usize = 200_000;

/// Makes a policy of the root element; `None` if that is none. With `whole` false some tags were not understood, so
/// nothing is called missing that might stand in them.
pub(super) fn lower(
    root: &Element<'_>,
    whole: bool,
    options: &Options<'_>,
    report: &mut Report,
) -> Option<Policy> {
    if root.name != "AIX_VPN" {
        let message = format!("the root element is {}, not AIX_VPN", root.name);
        report.error(root.place(), message, "a policy is one <AIX_VPN Version=\"2.1\">…</AIX_VPN>");
        return None;
    }
    schema::check(root, report);
    let ikev1 = Ikev1::of(root);
    let misspelt = root.children.iter().filter_map(|child| schema::meant(child.name)).collect();
    let padded = BTreeMap::new();
    let mut cx = Cx { report, options, ikev1, misspelt, peers_of_groups: 0, padded };
    cx.version(root);
    cx.check_main_mode(root);

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
            cx.report.warning(root.place(), "the policy is empty", "");
        }
    }
    let padded = cx.padded.len();
    if let Some((_, place)) = cx.padded.pop_first() {
        let message = match padded {
            1 => "blanks around a value are ignored".to_owned(),
            count => {
                format!("blanks around {count} values are ignored, of which this is the first")
            }
        };
        cx.report.warning(place, message, "");
    }
    // Nothing may be left out in silence, not even by a mistake made here.
    let written = |name| Cx::children(root, name).count();
    let carried: usize = tunnels.in_order().map(|draft| draft.children.len()).sum();
    if !cx.report.has_errors()
        && (tunnels.in_order().count() != written("IKETunnel") || carried != written("IPSecTunnel"))
    {
        let message = "not every tunnel of the file was understood";
        cx.report.error(root.place(), message, "please report this file, with its keys replaced");
    }
    check_size(&mut cx, &tunnels);
    if cx.report.has_errors() {
        return None;
    }
    let places = places(&tunnels);
    let drafts = tunnels.into_order();
    let policy = Policy { tunnels: drafts.flat_map(tunnel::Draft::finish).map(Arc::new).collect() };
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
    refused.is_none().then_some(policy)
}

/// Where each tunnel of the file is named: those of IKE, and child tunnels.
fn places(tunnels: &table::Table<tunnel::Draft>) -> BTreeMap<(bool, String), Place> {
    let of = |draft: &tunnel::Draft| {
        let children = draft.children.iter().map(|c| (true, &c.tunnel.name, &c.place));
        let all = [(false, &draft.tunnel.name, &draft.place)].into_iter().chain(children);
        all.map(|(child, name, place)| ((child, name.clone()), place.clone())).collect::<Vec<_>>()
    };
    tunnels.in_order().flat_map(of).collect()
}

/// Reports what the policy's own rules find, and what no element has shown: a name that a group's peer has taken.
fn refuse(
    cx: &mut Cx<'_>,
    root: &Element<'_>,
    places: &BTreeMap<(bool, String), Place>,
    invalid: &Invalid,
) {
    if let Problem::NameTaken(name) = &invalid.problem {
        let message = format!("two tunnels are named {name:?}, one of them as a group's peer");
        let help = "rename the one that is not of a group";
        return cx.report.error(root.place(), message, help);
    }
    let key = match &invalid.child {
        Some(child) => (true, child.clone()),
        None => (false, invalid.tunnel.clone()),
    };
    let place = places.get(&key).cloned().unwrap_or_else(|| root.place());
    let message = format!("{}: {}", invalid.field, invalid.problem);
    cx.report.error(place, message, invalid.problem.help());
}

/// Bounds what a small file can make large.
fn check_size(cx: &mut Cx<'_>, tunnels: &table::Table<tunnel::Draft>) {
    let (mut made, mut offers) = (0, 0);
    for draft in tunnels.in_order() {
        made += draft.weight();
        let of_children: usize = draft.children.iter().map(|c| c.tunnel.proposals.len()).sum();
        let peers = draft.peers.as_ref().map_or(1, Vec::len);
        offers += peers * (draft.tunnel.proposals.len() + of_children);
        let (what, most) = match (made > MAX_TUNNELS, offers > MAX_OFFERS) {
            (true, _) => ("tunnels", MAX_TUNNELS),
            (_, true) => ("proposals", MAX_OFFERS),
            _ => continue,
        };
        let message = format!("the tunnels up to this one come to more than {most} {what}");
        let help = "split the policy, or let its groups and lists name less";
        return cx.report.error(draft.place.clone(), message, help);
    }
}

impl Cx<'_> {
    fn version(&mut self, root: &Element<'_>) {
        let Some(attribute) = root.attribute("Version") else {
            let message = "AIX_VPN has no Version; 2.1 is assumed";
            return self.report.warning(root.place(), message, "add Version=\"2.1\"");
        };
        if !attribute.value.trim().starts_with("2.") {
            let message = "unknown Version; the file is read as 2.1";
            self.report.warning(attribute.place(root), message, "write Version=\"2.1\"");
        }
    }
}

/// Commands name tunnels of both phases alike.
fn warn_shared_names(cx: &mut Cx<'_>, tunnels: &table::Table<tunnel::Draft>) {
    let phase1: BTreeMap<&str, &IkeTunnel> =
        tunnels.in_order().map(|draft| (draft.tunnel.name.as_str(), &draft.tunnel)).collect();
    for child in tunnels.in_order().flat_map(|draft| &draft.children) {
        let name = &child.tunnel.name;
        if phase1.contains_key(name.as_str()) {
            let message = format!("an IKETunnel is named {name:?} as well");
            let help = "give them different names, so that commands can tell them apart";
            cx.report.warning(child.place.clone(), message, help);
        }
    }
}
