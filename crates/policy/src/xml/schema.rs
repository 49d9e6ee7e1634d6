//! The vocabulary of AIX_VPN: elements, their attributes and children, names and references.

/// The definition of an element.
pub(crate) struct Kind {
    pub name: &'static str,
    pub required: &'static [&'static str],
    pub optional: &'static [&'static str],
    pub children: &'static [&'static str],
}

impl Kind {
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
    Kind { name, required, optional, children }
}

/// The attribute of the document element that declares the prefix of this project's own vocabulary, and its value.
pub(crate) const NAMESPACE: (&str, &str) = ("xmlns:vpn", "urn:vpnd:policy");

/// Additional key exchanges (RFC 9370).
pub(crate) const ADDITIONAL_KE: &str = "vpn:AdditionalKE";

/// The attribute with the names of postquantum preshared keys, in this project's own vocabulary.
pub(crate) const PPK: &str = "vpn:PPK";

/// The attribute that allows session resumption, in this project's own vocabulary.
pub(crate) const RESUMPTION: &str = "vpn:Resumption";

/// The attribute with the address of a side whose identity is another address, in this project's own vocabulary.
pub(crate) const ADDRESS: &str = "vpn:Address";

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
pub(crate) const GROUPS: &[&str] = &["IKEGroup", "IDGroup", "Group"];
const GROUP_REFERENCES: &[&str] = &["IKEGroupRef", "IKEGroup", "IDGroup", "Group"];
pub(crate) const GROUP_NAME: &[&str] = &["IKE_GroupName", "GroupName", "Name"];
pub(crate) const GROUP_REFERENCE: &[&str] = &["Value", "IKE_GroupName", "GroupName", "Name"];

/// Returns `true` if an element of that name refers to a group where an identity could stand.
pub(crate) fn is_group_reference(element: &str) -> bool {
    GROUP_REFERENCES.contains(&element)
}

/// Names that are understood, but not suggested.
pub(crate) const ALIASES: &[&str] = &["IDGroup", "Group"];

/// Spellings of the algorithm of AH.
pub(crate) const AH_ALGORITHM: &[&str] = &["AH_Authentication", "AH_Transform", "AH_Encryption"];

/// Spellings of a subnet's two attributes: the address, the mask.
pub(crate) const SUBNET_ADDRESS: &[&str] = &["Value", "IPAddr", "From_IPAddr"];
pub(crate) const SUBNET_MASK: &[&str] = &["Netmask", "Mask", "SubnetMask", "PrefixLength"];

const SUBNET: &[&str] =
    &["Value", "Netmask", "IPAddr", "From_IPAddr", "Mask", "SubnetMask", "PrefixLength"];

const KINDS: &[Kind] = &[
    element(
        "AIX_VPN",
        &[],
        &["Version", NAMESPACE.0],
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
            ADDITIONAL_KE,
            "IKE_KeyRefreshMinutes",
            "IKE_KeyRefreshKB",
        ],
        &[],
    ),
    element(
        "IKETunnel",
        &["IKE_TunnelName", "IKE_ProtectionRef"],
        &["IKE_Flags_AutoStart", "IKE_Flags_MakeRuleWithOptionalIP", PPK, RESUMPTION],
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
    element("IPV4_Address", &["Value"], &[ADDRESS], &[]),
    element("IPV6_Address", &["Value"], &[ADDRESS], &[]),
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
            ADDITIONAL_KE,
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

/// The attributes that may hold the name that an element defines.
pub(crate) fn name_attributes(element: &str) -> &'static [&'static str] {
    match element {
        "IKEProtection" => &["IKE_ProtectionName"],
        "IKETunnel" => &["IKE_TunnelName"],
        "IPSecProposal" => &["IPSec_ProposalName"],
        "IPSecProtection" => &["IPSec_ProtectionName"],
        "IPSecTunnel" => &["IPSec_TunnelName"],
        group if GROUPS.contains(&group) => GROUP_NAME,
        _ => &[],
    }
}

/// An attribute that refers to elements by their names. Only `IPSec_ProposalRefs` may list several.
pub(crate) struct Reference {
    /// The element that has the attribute.
    pub from: &'static str,
    pub attribute: &'static str,
    /// The element that has the name.
    pub to: &'static str,
}

const fn reference(from: &'static str, attribute: &'static str, to: &'static str) -> Reference {
    Reference { from, attribute, to }
}

pub(crate) const REFERENCES: &[Reference] = &[
    reference("IKEProtection", "IKE_IPSecDefaultProtectionRef", "IPSecProtection"),
    reference("IKETunnel", "IKE_ProtectionRef", "IKEProtection"),
    reference("IPSecProtection", "IPSec_ProposalRefs", "IPSecProposal"),
    reference("IPSecTunnel", "IPSec_ProtectionRef", "IPSecProtection"),
    reference("IPSecTunnel", "IKE_TunnelName", "IKETunnel"),
];

/// Every element.
pub(crate) fn kinds() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter()
}

/// The element of that name.
pub(crate) fn kind(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}

/// Returns `true` if a value is that of a known attribute that holds no key, so that it may be shown. In a key's
/// element only the word for its format is, since key and format are easily exchanged.
pub(crate) fn is_public(element: &str, attribute: &str, value: &str) -> bool {
    if element == "IKEPresharedKey" {
        return attribute == "Format"
            && ["ASCII", "HEX", "EBCDIC"]
                .into_iter()
                .any(|word| word.eq_ignore_ascii_case(value.trim()));
    }
    kind(element).is_some_and(|kind| kind.attributes().any(|name| name == attribute))
}

/// Returns `true` if any element has an attribute of that name.
pub(crate) fn is_attribute(name: &str) -> bool {
    KINDS.iter().any(|kind| kind.attributes().any(|attribute| attribute == name))
}
