//! Elements → values: every attribute read, every reference resolved.

mod algorithm;
mod child;
mod ike;
mod key;
mod party;
mod table;
mod value;

use super::diagnostic::{Place, Report};
use super::document::Element;
use super::schema;
use crate::{IkeTunnel, Policy};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What lowering carries along.
struct Cx<'r> {
    report: &'r mut Report,
    /// Values with blanks around them, by offset.
    padded: BTreeMap<usize, Place>,
}

/// Makes a policy of the root element; `None` if that is none. With `whole` false some tags were not understood, so
/// nothing is called missing that might stand in them.
pub(super) fn lower(root: &Element<'_>, whole: bool, report: &mut Report) -> Option<Policy> {
    if root.name != "AIX_VPN" {
        let message = format!("the root element is {}, not AIX_VPN", root.name);
        report.error(root.place(), message, "a policy is one <AIX_VPN Version=\"2.1\">…</AIX_VPN>");
        return None;
    }
    schema::check(root, report);
    let mut cx = Cx { report, padded: BTreeMap::new() };
    cx.version(root);

    let protections = ike::protections(&mut cx, root);
    let keys = key::keys(&mut cx, root);
    let offers = child::offers(&mut cx, root);
    let child_protections = child::protections(&mut cx, root, &offers);
    let mut tunnels = ike::tunnels(&mut cx, root, &protections, &keys);
    child::tunnels(&mut cx, root, &child_protections, &mut tunnels);

    if whole && !cx.report.has_errors() {
        protections.warn_unused(&mut cx);
        offers.warn_unused(&mut cx);
        child_protections.warn_unused(&mut cx);
        keys.warn_unused(&mut cx);
        ike::warn_idle(&mut cx, &tunnels);
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
    let tunnels = tunnels.in_order().map(|draft| Arc::new(draft.finish())).collect();
    Some(Policy { tunnels })
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
fn warn_shared_names(cx: &mut Cx<'_>, tunnels: &table::Table<ike::Draft>) {
    let phase1: BTreeMap<&str, &IkeTunnel> =
        tunnels.in_order().map(|draft| (draft.tunnel.name.as_str(), &draft.tunnel)).collect();
    for (child, place) in tunnels.in_order().flat_map(|draft| &draft.children) {
        if phase1.contains_key(child.name.as_str()) {
            let message = format!("an IKETunnel is named {:?} as well", child.name);
            let help = "give them different names, so that commands can tell them apart";
            cx.report.warning(place.clone(), message, help);
        }
    }
}
