//! The vocabulary of AIX_VPN: elements, what they may hold, and what is known but not supported.

use super::diagnostic::{Report, did_you_mean};
use super::document::Element;

/// What is known of an element.
pub(super) struct Kind {
    pub name: &'static str,
    pub required: &'static [&'static str],
    pub optional: &'static [&'static str],
    pub children: &'static [&'static str],
    /// Why it cannot be used, and what to use in its place.
    unsupported: Option<(&'static str, &'static str)>,
}

impl Kind {
    /// Those it may have, in the order in which they are written.
    pub fn attributes(&self) -> impl Iterator<Item = &'static str> {
        self.required.iter().chain(self.optional).copied()
    }
}

const fn element(
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
    children: &'static [&'static str],
) -> Kind {
    Kind { name, required, optional, children, unsupported: None }
}

const fn unsupported(name: &'static str, why: &'static str, instead: &'static str) -> Kind {
    Kind { name, required: &[], optional: &[], children: &[], unsupported: Some((why, instead)) }
}

const GROUPS: (&str, &str) = (
    "identity groups are not supported",
    "write one IKETunnel for each peer, with the IKE_Role \"Responder\" where its address is not known",
);

const ADDRESSES: &[&str] = &["IPV4_Address", "IPV6_Address"];

const IDENTITIES: &[&str] = &[
    "IPV4_Address",
    "IPV6_Address",
    "FQDN",
    "User_FQDN",
    "Key_ID",
    "ASN1_DN",
    "IPV4_Address_Range",
    "IPV6_Address_Range",
    "IPV4_Subnet",
    "IPV6_Subnet",
    "IKEGroupRef",
    "IKEGroup",
    "Group",
];

const SELECTORS: &[&str] = &[
    "IPV4_Address_Range",
    "IPV6_Address_Range",
    "IPV4_Address",
    "IPV6_Address",
    "IPV4_Subnet",
    "IPV6_Subnet",
    "IKEGroupRef",
    "IKEGroup",
    "Group",
];

/// Spellings of a subnet's two attributes: the address, the mask.
pub(super) const SUBNET_ADDRESS: &[&str] = &["Value", "IPAddr", "From_IPAddr"];
pub(super) const SUBNET_MASK: &[&str] = &["Netmask", "Mask", "SubnetMask", "PrefixLength"];

const SUBNET: &[&str] =
    &["Value", "Netmask", "IPAddr", "From_IPAddr", "Mask", "SubnetMask", "PrefixLength"];

const KINDS: &[Kind] = &[
    element(
        "AIX_VPN",
        &[],
        &["Version"],
        &[
            "IKEProtection",
            "IKETunnel",
            "IKEPresharedKey",
            "IPSecProposal",
            "IPSecProtection",
            "IPSecTunnel",
            "IKEGroup",
            "IDGroup",
            "Group",
        ],
    ),
    element(
        "IKEProtection",
        &["IKE_ProtectionName"],
        &[
            "IKE_Role",
            "IKE_Version",
            "IKE_XCHGMode",
            "IKE_KeyOverlap",
            "IKE_Flags_UseCRL",
            "IKE_ResponderKeyRefreshMinMinutes",
            "IKE_ResponderKeyRefreshMaxMinutes",
            "IKE_ResponderKeyRefreshMinKB",
            "IKE_ResponderKeyRefreshMaxKB",
            "IKE_IPSecDefaultProtectionRef",
            "IKE_IPSecDefaultAllowedTypes",
        ],
        &["IKETransform"],
    ),
    element(
        "IKETransform",
        &[],
        &[
            "IKE_AuthenticationMethod",
            "IKE_Encryption",
            "IKE_Hash",
            "IKE_PRF",
            "IKE_DHGroup",
            "IKE_KeyRefreshMinutes",
            "IKE_KeyRefreshKB",
        ],
        &[],
    ),
    element(
        "IKETunnel",
        &["IKE_TunnelName", "IKE_ProtectionRef"],
        &["IKE_Flags_AutoStart", "IKE_Flags_MakeRuleWithOptionalIP"],
        &["IKELocalIdentity", "IKERemoteIdentity"],
    ),
    element("IKELocalIdentity", &[], &[], IDENTITIES),
    element("IKERemoteIdentity", &[], &[], IDENTITIES),
    element("IKEPresharedKey", &["Value"], &["Format"], &["IKEPresharedRemoteID"]),
    element(
        "IKEPresharedRemoteID",
        &[],
        &[],
        &[
            "PK_IPV4_Address",
            "PK_IPV6_Address",
            "PK_FQDN",
            "PK_User_FQDN",
            "PK_Key_ID",
            "PK_ASN1_DN",
        ],
    ),
    element("PK_IPV4_Address", &["Value"], &[], &[]),
    element("PK_IPV6_Address", &["Value"], &[], &[]),
    element("PK_FQDN", &["Value"], &[], &[]),
    element("PK_User_FQDN", &["Value"], &[], &[]),
    element("PK_Key_ID", &["Value"], &[], &[]),
    element("PK_ASN1_DN", &["Value"], &[], &[]),
    element("IPV4_Address", &["Value"], &[], &[]),
    element("IPV6_Address", &["Value"], &[], &[]),
    element("FQDN", &["Value"], &[], ADDRESSES),
    element("User_FQDN", &["Value"], &[], ADDRESSES),
    element("Key_ID", &["Value"], &[], ADDRESSES),
    element("ASN1_DN", &["Value"], &[], ADDRESSES),
    element("IPV4_Address_Range", &["From_IPAddr", "To_IPAddr"], &[], &[]),
    element("IPV6_Address_Range", &["From_IPAddr", "To_IPAddr"], &[], &[]),
    element("IPV4_Subnet", &[], SUBNET, &[]),
    element("IPV6_Subnet", &[], SUBNET, &[]),
    unsupported("IKEGroup", GROUPS.0, GROUPS.1),
    unsupported("IDGroup", GROUPS.0, GROUPS.1),
    unsupported("Group", GROUPS.0, GROUPS.1),
    unsupported("IKEGroupRef", GROUPS.0, GROUPS.1),
    element(
        "IPSecProposal",
        &["IPSec_ProposalName"],
        &[],
        &["IPSecESPProtocol", "IPSecAHProtocol"],
    ),
    element(
        "IPSecESPProtocol",
        &["ESP_Encryption"],
        &[
            "ESP_Authentication",
            "ESP_EncapsulationMode",
            "ESP_ExtendedSeqNum",
            "ESP_KeyRefreshMinutes",
            "ESP_KeyRefreshKB",
        ],
        &[],
    ),
    unsupported(
        "IPSecAHProtocol",
        "AH is not supported",
        "use IPSecESPProtocol with ESP_Encryption=\"ESP_AES256_GCM_16\" on both sides: it protects integrity as well",
    ),
    element(
        "IPSecProtection",
        &["IPSec_ProtectionName", "IPSec_ProposalRefs"],
        &[
            "IPSec_Role",
            "IPSec_KeyOverlap",
            "IPSec_Flags_UseLifeSize",
            "IPSec_Flags_UseCommitBit",
            "IPSec_InitiatorDHGroup",
            "IPSec_ResponderDHGroup",
            "IPSec_ResponderKeyRefreshMinMinutes",
            "IPSec_ResponderKeyRefreshMaxMinutes",
            "IPSec_ResponderKeyRefreshMinKB",
            "IPSec_ResponderKeyRefreshMaxKB",
        ],
        &[],
    ),
    element(
        "IPSecTunnel",
        &["IPSec_TunnelName", "IKE_TunnelName", "IPSec_ProtectionRef"],
        &["IPSec_Flags_AutoStart", "IPSec_Flags_OnDemand"],
        &["IPSecLocalIdentity", "IPSecRemoteIdentity"],
    ),
    element("IPSecLocalIdentity", &[], &["Protocol", "Port", "EndPort"], SELECTORS),
    element("IPSecRemoteIdentity", &[], &["Protocol", "Port", "EndPort"], SELECTORS),
];

/// The element of that name.
pub(super) fn kind(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}

/// Whether a value is that of a known attribute that holds no key, so that it may be shown. In a key's element only
/// the word for its format is, since key and format are easily exchanged.
pub(super) fn is_public(element: &str, attribute: &str, value: &str) -> bool {
    if element == "IKEPresharedKey" {
        let is_word = |word: &str| word.eq_ignore_ascii_case(value.trim());
        return attribute == "Format" && ["ASCII", "HEX", "EBCDIC"].into_iter().any(is_word);
    }
    let known = |kind: &Kind| kind.attributes().any(|name| name == attribute);
    kind(element).is_some_and(|kind| kind.unsupported.is_some() || known(kind))
}

/// Whether any element has an attribute of that name.
pub(super) fn is_attribute(name: &str) -> bool {
    KINDS.iter().any(|kind| kind.attributes().any(|attribute| attribute == name))
}

/// Whether an element is known and can be used.
pub(super) fn is_supported(name: &str) -> bool {
    kind(name).is_some_and(|kind| kind.unsupported.is_none())
}

/// Reports, for an element and all below it, what the vocabulary does not have or have there, what is missing, and
/// what is known but not supported.
pub(super) fn check(element: &Element<'_>, report: &mut Report) {
    let Some(kind) = kind(element.name) else { return };
    if let Some((why, instead)) = kind.unsupported {
        return report.error(element.place(), why, instead);
    }
    for attribute in &element.attributes {
        if !kind.attributes().any(|name| name == attribute.name) {
            let message = format!("{} has no attribute {}", kind.name, attribute.name);
            let help = did_you_mean(attribute.name, kind.attributes(), || {
                match kind.attributes().next() {
                    None => "it takes none".to_owned(),
                    Some(_) => format!("it takes {}", listed(kind.attributes())),
                }
            });
            report.error(attribute.name_place(element), message, help);
        }
    }
    for name in kind.required {
        // With a damaged tag the attribute may stand in the part that was not understood, and a misspelt one has
        // been reported.
        let misspelt = element.attributes.iter().any(|a| !kind.attributes().any(|n| n == a.name));
        if element.attribute(name).is_none() && !element.damaged && !misspelt {
            let message = format!("{} lacks the attribute {name}", kind.name);
            report.error(element.place(), message, format!("add {name}=\"…\""));
        }
    }
    for child in &element.children {
        if kind.children.contains(&child.name) {
            check(child, report);
            continue;
        }
        let known = self::kind(child.name).is_some();
        let message = if known {
            format!("{} does not belong inside {}", child.name, kind.name)
        } else {
            format!("unknown element {}", child.name)
        };
        let everywhere = KINDS.iter().map(|kind| kind.name).filter(|_| !known);
        let help = did_you_mean(
            child.name,
            kind.children.iter().copied().chain(everywhere),
            || match kind.children {
                [] => format!("{} holds no elements", kind.name),
                children => format!("{} may hold {}", kind.name, listed(children.iter().copied())),
            },
        );
        report.error(child.place(), message, help);
    }
}

/// Names with commas between.
pub(super) fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
