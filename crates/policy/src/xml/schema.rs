//! The vocabulary of AIX_VPN: elements, what they may hold, and what is known but not supported.

use super::diagnostic::{Report, did_you_mean, nearest};
use super::document::{Attribute, Element};

/// The definition of an element.
pub(super) struct Kind {
    pub name: &'static str,
    pub required: &'static [&'static str],
    pub optional: &'static [&'static str],
    pub children: &'static [&'static str],
}

impl Kind {
    pub fn attributes(&self) -> impl Iterator<Item = &'static str> {
        self.required.iter().chain(self.optional).copied()
    }

    fn unknown_attributes<'e, 't>(
        &self,
        element: &'e Element<'t>,
    ) -> impl Iterator<Item = &'e Attribute<'t>> {
        element.attributes.iter().filter(|a| !self.attributes().any(|name| name == a.name))
    }

    /// The message and the fix for an attribute that it does not have.
    fn unknown_attribute(&self, name: &str) -> (String, String) {
        let has_it = |kind: &&Kind| kind.attributes().any(|attribute| attribute == name);
        let owners = || KINDS.iter().filter(has_it).map(|kind| kind.name);
        let help = did_you_mean(name, self.attributes(), || {
            match (self.attributes().next(), owners().next()) {
                (_, Some(_)) => format!("it belongs to {}", listed(owners())),
                (None, None) => "it takes none".to_owned(),
                (Some(_), None) => format!("it takes {}", listed(self.attributes())),
            }
        });
        (format!("{} has no attribute {name}", self.name), help)
    }

    /// The message and the fix for an element that does not belong inside.
    fn unknown_child(&self, name: &str) -> (String, String) {
        let known = kind(name).is_some();
        let message = if known {
            format!("{name} does not belong inside {}", self.name)
        } else {
            format!("unknown element {name}")
        };
        let everywhere = KINDS.iter().map(|kind| kind.name).filter(|_| !known);
        let candidates = self.children.iter().copied().chain(everywhere);
        let owners = || KINDS.iter().filter(|kind| kind.children.contains(&name));
        let mut canonical =
            self.children.iter().copied().filter(|name| !ALIASES.contains(name)).peekable();
        let help = did_you_mean(name, candidates, || {
            match (owners().next(), canonical.peek().is_some()) {
                (Some(_), _) => {
                    format!("it belongs inside {}", listed(owners().map(|kind| kind.name)))
                }
                (None, true) => format!("{} may hold {}", self.name, listed(canonical)),
                (None, false) => format!("{} holds no elements", self.name),
            }
        });
        (message, help)
    }
}

const fn element(
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
    children: &'static [&'static str],
) -> Kind {
    Kind { name, required, optional, children }
}

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
    "IDGroup",
    "Group",
];

const MEMBERS: &[&str] = &[
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
    "IDGroup",
    "Group",
];

/// Spellings of a group of identities, defined or referred to, and of its name.
pub(super) const GROUPS: &[&str] = &["IKEGroup", "IDGroup", "Group"];
pub(crate) const GROUP_REFERENCES: &[&str] = &["IKEGroupRef", "IKEGroup", "IDGroup", "Group"];
pub(super) const GROUP_NAME: &[&str] = &["IKE_GroupName", "GroupName", "Name"];
pub(super) const GROUP_REFERENCE: &[&str] = &["Value", "IKE_GroupName", "GroupName", "Name"];

/// Names that are understood, but not suggested.
const ALIASES: &[&str] = &["IDGroup", "Group"];

/// Spellings of the algorithm of AH.
pub(super) const AH_ALGORITHM: &[&str] = &["AH_Authentication", "AH_Transform", "AH_Encryption"];

/// Spellings of a subnet's two attributes: the address, the mask.
pub(crate) const SUBNET_ADDRESS: &[&str] = &["Value", "IPAddr", "From_IPAddr"];
pub(crate) const SUBNET_MASK: &[&str] = &["Netmask", "Mask", "SubnetMask", "PrefixLength"];

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
    element("IKEGroup", &[], GROUP_REFERENCE, MEMBERS),
    element("IDGroup", &[], GROUP_REFERENCE, MEMBERS),
    element("Group", &[], GROUP_REFERENCE, MEMBERS),
    element("IKEGroupRef", &[], GROUP_REFERENCE, &[]),
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
    element(
        "IPSecAHProtocol",
        &[],
        &[
            "AH_Authentication",
            "AH_Transform",
            "AH_Encryption",
            "AH_EncapsulationMode",
            "AH_ExtendedSeqNum",
            "AH_KeyRefreshMinutes",
            "AH_KeyRefreshKB",
        ],
        &[],
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

/// Every element.
pub(super) fn kinds() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter()
}

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
    kind(element).is_some_and(known)
}

/// The kind of object that the author of an unknown element inside AIX_VPN probably meant.
pub(super) fn meant(name: &str) -> Option<&'static str> {
    if kind(name).is_some() {
        return None;
    }
    nearest(name, kind("AIX_VPN")?.children.iter().copied())
}

/// Whether any element has an attribute of that name.
pub(super) fn is_attribute(name: &str) -> bool {
    KINDS.iter().any(|kind| kind.attributes().any(|attribute| attribute == name))
}

/// Reports, for an element and all below it, what the vocabulary does not have or have there, and what is missing.
pub(super) fn check(element: &Element<'_>, report: &mut Report) {
    let Some(kind) = kind(element.name) else { return };
    let mut misspelt = false;
    for attribute in kind.unknown_attributes(element) {
        misspelt = true;
        let (message, help) = kind.unknown_attribute(attribute.name);
        report.error(attribute.name_place(element), message, help);
    }
    for name in kind.required {
        // With a damaged tag the attribute may stand in the part that was not understood, and a misspelt one has
        // been reported.
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
        let (message, help) = kind.unknown_child(child.name);
        report.error(child.place(), message, help);
    }
}

/// Leaves out, of an element and all below it, what has a name that is not known anywhere or, of an attribute, there;
/// with a warning of each.
pub(super) fn leave_out_unknown(element: &mut Element<'_>, report: &mut Report) {
    let Some(kind) = kind(element.name) else { return };
    for attribute in kind.unknown_attributes(element) {
        let (message, help) = kind.unknown_attribute(attribute.name);
        report.warning(attribute.name_place(element), message + ": it is ignored", help);
    }
    for child in element.children.iter().filter(|child| self::kind(child.name).is_none()) {
        let (message, help) = kind.unknown_child(child.name);
        report.warning(child.place(), message + ": it is ignored, with all in it", help);
    }
    element.attributes.retain(|a| kind.attributes().any(|known| known == a.name));
    element.children.retain(|child| self::kind(child.name).is_some());
    for child in &mut element.children {
        leave_out_unknown(child, report);
    }
}

/// Names with commas between.
pub(super) fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
