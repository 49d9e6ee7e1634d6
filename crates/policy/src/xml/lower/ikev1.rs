//! Objects of IKEv1. Each is refused once and not examined further, since it must be rewritten for IKEv2.

use crate::xml::element::Element;
use crate::xml::report::Report;
use std::collections::BTreeSet;

/// Names of what serves IKEv1 alone.
#[derive(Default)]
pub(super) struct Ikev1 {
    /// IKETunnel.
    pub tunnels: BTreeSet<String>,
    /// IPSecProtection.
    pub protections: BTreeSet<String>,
    /// IPSecProposal.
    pub proposals: BTreeSet<String>,
}

/// Returns `true` if an IKEProtection is for IKEv1, as it is without an IKE_Version.
pub(super) fn is_ikev1(protection: &Element<'_>) -> bool {
    protection.attribute("IKE_Version").is_none_or(|version| version.trimmed() == "1")
        && !protection.damaged
}

impl Ikev1 {
    /// Follows the references of a file.
    pub fn of(root: &Element<'_>) -> Self {
        let (old, new): (Vec<_>, Vec<_>) =
            root.children_named("IKEProtection").partition(|protection| is_ikev1(protection));
        let old_names = names(&old, "IKE_ProtectionName");
        let tunnels: Vec<_> = root
            .children_named("IKETunnel")
            .filter(|t| refers(t, "IKE_ProtectionRef", &old_names))
            .collect();
        let tunnels = names(&tunnels, "IKE_TunnelName");
        let (old_children, new_children): (Vec<_>, Vec<_>) = root
            .children_named("IPSecTunnel")
            .partition(|child| refers(child, "IKE_TunnelName", &tunnels));
        let [old, new] = [(&old, &old_children), (&new, &new_children)].map(|(ike, children)| {
            let mut found = names(children, "IPSec_ProtectionRef");
            found.extend(names(ike, "IKE_IPSecDefaultProtectionRef"));
            found
        });
        let protections = &old - &new;
        let (old, new): (Vec<_>, Vec<_>) = root
            .children_named("IPSecProtection")
            .partition(|p| refers(p, "IPSec_ProtectionName", &protections));
        let proposals = &names(&old, "IPSec_ProposalRefs") - &names(&new, "IPSec_ProposalRefs");
        Self { tunnels, protections, proposals }
    }
}

/// The names in an attribute of several elements.
fn names(elements: &[&Element<'_>], attribute: &str) -> BTreeSet<String> {
    let values = elements.iter().filter_map(|element| element.attribute(attribute));
    values.flat_map(|a| a.value.split_ascii_whitespace()).map(str::to_owned).collect()
}

fn refers(element: &Element<'_>, attribute: &str, names: &BTreeSet<String>) -> bool {
    element.attribute(attribute).is_some_and(|a| names.contains(a.trimmed()))
}

/// Refuses an IKEProtection that is for IKEv1.
pub(super) fn refuse(protection: &Element<'_>, report: &mut Report) {
    let mode = protection.attribute("IKE_XCHGMode").map_or("", |mode| mode.trimmed());
    let (span, message, help) = match (protection.attribute("IKE_Version"), mode) {
        (None, "None") => (
            protection.span(),
            "no IKE_Version means IKEv1, which has no IKE_XCHGMode \"None\"",
            "add IKE_Version=\"2\"",
        ),
        (Some(version), "None") => (
            version.span(protection),
            "IKEv1 is not supported, and has no IKE_XCHGMode \"None\"",
            "write IKE_Version=\"2\"",
        ),
        (None, _) => {
            (protection.span(), "IKEv1 is not supported, and no IKE_Version means 1", MIGRATE)
        }
        (Some(version), _) => (version.span(protection), "IKEv1 is not supported", MIGRATE),
    };
    report.error(span, message, help);
}

/// Main mode finds a preshared key by the peer's address, because the name comes too late (RFC 2409 §5.4).
pub(super) fn check_main_mode(root: &Element<'_>, report: &mut Report) {
    let protections: Vec<_> = root
        .children_named("IKEProtection")
        .filter(|protection| is_ikev1(protection))
        .filter(|protection| {
            let main = protection.attribute("IKE_XCHGMode").is_none_or(|m| m.trimmed() == "Main");
            let methods: Vec<_> = protection
                .children_named("IKETransform")
                .filter_map(|t| Some(t.attribute("IKE_AuthenticationMethod")?.trimmed()))
                .collect();
            main && (methods.is_empty() || methods.contains(&"Preshared_key"))
        })
        .collect();
    let protections = names(&protections, "IKE_ProtectionName");
    for tunnel in
        root.children_named("IKETunnel").filter(|t| refers(t, "IKE_ProtectionRef", &protections))
    {
        for identity in tunnel.children.iter().flat_map(|side| &side.children) {
            if matches!(identity.name, "FQDN" | "User_FQDN" | "Key_ID" | "ASN1_DN") {
                let message = format!(
                    "with a preshared key, main mode knows the sides by their addresses, not by {}",
                    identity.name
                );
                let help = "IKEv2 has no such limit: write IKE_Version=\"2\" and IKE_XCHGMode=\"None\" in the \
                            IKEProtection";
                report.error(identity.span(), message, help);
            }
        }
    }
}

const MIGRATE: &str = "write IKE_Version=\"2\" and IKE_XCHGMode=\"None\" on both sides, with algorithms of today: AES-CBC-256, \
                       HMAC_SHA2_256, PRF_HMAC_SHA2_256, group 19; IKEv1 is obsolete (RFC 9395), and what serves it \
                       alone is not checked further";
