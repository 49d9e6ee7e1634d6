//! IKEProtection's generic phase 2 policy: for requests that fit no IPSecTunnel.

use super::context::Context;
use super::protection::ChildProtection;
use super::table::Table;
use crate::wording::{did_you_mean, quoted};
use crate::xml::element::{Attribute, Element};
use crate::{AllowedTraffic, GenericChild, Mode, RangeKind, Role};
use std::sync::Arc;

const REF: &str = "IKE_IPSecDefaultProtectionRef";
const TYPES: &str = "IKE_IPSecDefaultAllowedTypes";
const PREFIX: &str = "_defIPSprot_";

const TYPES_OF_A_SIDE: &[(&str, bool, RangeKind)] = &[
    ("IPV4_Address", true, RangeKind::Address),
    ("IPV4_Subnet", true, RangeKind::Subnet),
    ("IPV4_Address_Range", true, RangeKind::Range),
    ("IPV6_Address", false, RangeKind::Address),
    ("IPV6_Subnet", false, RangeKind::Subnet),
    ("IPV6_Address_Range", false, RangeKind::Range),
];

/// Reads the generic policy of an IKEProtection, if it has one; `None` after an error.
pub(super) fn generic(
    cx: &mut Context<'_>,
    element: &Element<'_>,
    role: Option<Role>,
    protections: &Table<ChildProtection>,
) -> Option<Option<Arc<GenericChild>>> {
    let (reference, types) = match (element.attribute(REF), element.attribute(TYPES)) {
        (None, None) => return Some(None),
        (Some(reference), Some(types)) => (reference, types),
        (Some(reference), None) => {
            let message = format!("{REF} without {TYPES} allows nothing");
            let help = format!("add {TYPES}=\"Local_IPV4_Address Remote_IPV4_Address\"");
            cx.report.error(reference.name_span(element), message, help);
            return None;
        }
        (None, Some(types)) => {
            let message = format!("{TYPES} without {REF}");
            let help = format!("add {REF}=\"{PREFIX}…\", or remove the types");
            cx.report.error(types.name_span(element), message, help);
            return None;
        }
    };
    // Both are read before an error of either ends this: each mistake is reported.
    let traffic = allowed(cx, element, types);
    let protection = protections.resolve(cx, element, REF);
    let name = reference.trimmed();
    if !name.starts_with(PREFIX) {
        let message = format!("{REF} {} does not begin with {PREFIX}", quoted(name));
        let help = format!("rename that IPSecProtection to \"{PREFIX}{name}\", here and there");
        cx.report.error(reference.part(element, name), message, help);
        return None;
    }
    let (local, remote) = traffic?;
    let protection = protection?;
    if !protection.role.may_respond() {
        let message = format!("{} only starts, but a generic policy only answers", quoted(name));
        let help = "write IPSec_Role=\"Responder\" in that IPSecProtection";
        cx.report.error(reference.part(element, name), message, help);
        return None;
    }
    if role.is_some_and(|role| !role.may_respond()) {
        let message = format!("{REF} has no effect: the IKE_Role is Initiator");
        let help = format!("write IKE_Role=\"Both\" or \"Responder\", or remove {REF}");
        cx.report.warning(reference.name_span(element), message, help);
    }
    if protection.mode == Mode::Tunnel && [remote.ipv4, remote.ipv6].iter().any(is_wide) {
        let message = "each peer may draw the traffic of any addresses that no IPSecTunnel has, up to those of an IPv4 \
                       /8 and an IPv6 /32, and keep other peers from them";
        let help = "allow only Remote_IPV4_Address and Remote_IPV6_Address, or write an IPSecTunnel for what lies behind \
                    a peer";
        cx.report.warning(types.name_span(element), message, help);
    }
    Some(Some(Arc::new(GenericChild {
        name: name.to_owned(),
        mode: protection.mode,
        local,
        remote,
        proposals: protection.proposals.clone(),
        pfs: protection.pfs.clone(),
    })))
}

fn is_wide(kind: &Option<RangeKind>) -> bool {
    kind.is_some_and(|kind| kind > RangeKind::Address)
}

/// The traffic that a peer may ask for on both sides; `None` after an error.
fn allowed(
    cx: &mut Context<'_>,
    element: &Element<'_>,
    types: &Attribute<'_>,
) -> Option<(AllowedTraffic, AllowedTraffic)> {
    let (mut local, mut remote) = (AllowedTraffic::default(), AllowedTraffic::default());
    let mut good = true;
    for token in types.value.split_ascii_whitespace() {
        let (side, kind) = match token.split_once('_') {
            Some(("Local", kind)) => (&mut local, kind),
            Some(("Remote", kind)) => (&mut remote, kind),
            _ => (&mut local, ""),
        };
        match TYPES_OF_A_SIDE.iter().find(|(name, ..)| *name == kind) {
            Some((_, v4, kind)) => {
                let family = if *v4 { &mut side.ipv4 } else { &mut side.ipv6 };
                *family = (*family).max(Some(*kind));
            }
            None => {
                good = false;
                let names: Vec<String> = ["Local", "Remote"]
                    .into_iter()
                    .flat_map(|side| {
                        TYPES_OF_A_SIDE.iter().map(move |(name, ..)| format!("{side}_{name}"))
                    })
                    .collect();
                let message = format!("{TYPES} cannot have {}", quoted(token));
                let help = did_you_mean(token, names.iter().map(String::as_str), || {
                    "types are Local_ or Remote_ with IPV4_Address, IPV4_Subnet, IPV4_Address_Range, or the same with \
                     IPV6"
                        .to_owned()
                });
                cx.report.error(types.part(element, token), message, help);
            }
        }
    }
    for (traffic, side) in [(&local, "Local"), (&remote, "Remote")] {
        if good && *traffic == AllowedTraffic::default() {
            good = false;
            let message = format!("{TYPES} allows no {} type, and so nothing", side.to_lowercase());
            let help = format!("add a type like {side}_IPV4_Address");
            cx.report.error(types.span(element), message, help);
        }
    }
    good.then_some((local, remote))
}
