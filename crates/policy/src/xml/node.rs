//! An element of a policy as a value of its own, in canonical form: what the database keeps and the writer writes.

use super::element::Element;
use super::lexical::is_blank;
use super::schema;
use crate::{DistinguishedName, Identity};
use std::fmt;
use std::net::IpAddr;
use zeroize::Zeroizing;

/// One element with its attributes and the elements inside it. Values are wiped when dropped.
///
/// Canonical: attributes stand in the order of the vocabulary; values have no blanks around them, numbers no zeros
/// before them, addresses the shortest form. Keys and key identifiers are as they were written.
///
/// ```
/// use policy::xml::{Node, write};
///
/// let tunnel = Node::new("IKETunnel")
///     .with("IKE_ProtectionRef", "site_p1 ")
///     .with("IKE_TunnelName", "site")
///     .holding(Node::new("IKELocalIdentity").holding(Node::new("FQDN").with("Value", "a.example.net")))
///     .holding(Node::new("IKERemoteIdentity").holding(Node::new("FQDN").with("Value", "b.example.net")));
/// assert!(write([&tunnel]).contains("<IKETunnel IKE_TunnelName=\"site\" IKE_ProtectionRef=\"site_p1\">"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Node {
    name: String,
    attributes: Vec<(String, Zeroizing<String>)>,
    children: Vec<Node>,
}

impl Node {
    /// An element without attributes.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), attributes: Vec::new(), children: Vec::new() }
    }

    /// With an attribute, in the place of one of the same name.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        let value = canonical(&self.name, name, value);
        self.attributes.retain(|(other, _)| other != name);
        let known = schema::kind(&self.name);
        let at =
            self.attributes.partition_point(|(other, _)| rank(known, other) <= rank(known, name));
        self.attributes.insert(at, (name.to_owned(), value));
        self
    }

    /// With another element inside, after those it holds.
    #[must_use]
    pub fn holding(mut self, child: Node) -> Self {
        self.children.push(child);
        self
    }

    /// The element's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of an attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Names and values, in the order they are written.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The elements inside, in order.
    pub fn children(&self) -> &[Node] {
        &self.children
    }

    /// The first element of that name inside.
    pub fn child(&self, name: &str) -> Option<&Node> {
        self.children.iter().find(|child| child.name == name)
    }

    /// Returns a copy without keys: their values are empty, which no reader takes for a key.
    #[must_use]
    pub fn without_keys(&self) -> Self {
        Self {
            name: self.name.clone(),
            attributes: self
                .attributes
                .iter()
                .map(|(name, value)| match self.shows(name, value) {
                    true => (name.clone(), value.clone()),
                    false => (name.clone(), Zeroizing::default()),
                })
                .collect(),
            children: self.children.iter().map(Self::without_keys).collect(),
        }
    }

    /// Returns `true` if an attribute's value is not kept secret.
    fn shows(&self, name: &str, value: &str) -> bool {
        schema::is_public(&self.name, name, value)
    }

    /// Lists the differences of `after` from this element, for people: attributes with both values, elements that come
    /// and go. Keys are only said to differ.
    pub fn differences(&self, after: &Self) -> Vec<String> {
        let mut found = Vec::new();
        self.compare(after, "", &mut found);
        found
    }

    fn compare(&self, after: &Self, path: &str, found: &mut Vec<String>) {
        let names = self.attributes().chain(after.attributes()).map(|(name, _)| name);
        let mut seen: Vec<&str> = Vec::new();
        for name in names {
            if seen.contains(&name) {
                continue;
            }
            seen.push(name);
            let [old, new] = [self, after].map(|node| node.attribute(name));
            if old == new {
                continue;
            }
            let shown = [(self, old), (after, new)].map(|(node, value)| match value {
                None => "none".to_owned(),
                Some(value) if node.shows(name, value) => format!("{value:?}"),
                Some(_) => "a key".to_owned(),
            });
            found.push(match shown {
                [old, new] if old == new => format!("{path}{name}: another key"),
                [old, new] => format!("{path}{name}: {old} → {new}"),
            });
        }
        for at in 0..self.children.len().max(after.children.len()) {
            match (self.children.get(at), after.children.get(at)) {
                (Some(old), Some(new)) if old.name == new.name => {
                    old.compare(new, &format!("{path}{}/", old.name), found);
                }
                (old, new) => {
                    found.extend(old.map(|old| format!("{path}{}: no longer", old.name)));
                    found.extend(new.map(|new| format!("{path}{}: new", new.name)));
                }
            }
        }
    }

    /// Makes a node of an element, without the attributes and children that the vocabulary does not allow there.
    pub(crate) fn of(element: &Element<'_>) -> Self {
        let known = schema::kind(element.name);
        let bare = Self::new(element.name);
        let mut node = element
            .attributes
            .iter()
            .filter(|a| known.is_some_and(|kind| kind.attributes().any(|n| n == a.name)))
            .fold(bare, |node, attribute| node.with(attribute.name, &attribute.value));
        node.children = element
            .children
            .iter()
            .filter(|e| known.is_some_and(|kind| kind.children.contains(&e.name)))
            .map(Self::of)
            .collect();
        node
    }

    /// The identity that an element names, with or without the prefix `PK_`; `None` if it is none, or a wrong one.
    pub(crate) fn identity(&self) -> Option<Identity> {
        identity(&self.name, self.attribute("Value")?)
    }
}

/// The place of an attribute in the vocabulary. Unknown attributes come last.
fn rank(known: Option<&schema::Kind>, attribute: &str) -> usize {
    known
        .and_then(|kind| kind.attributes().position(|name| name == attribute))
        .unwrap_or(usize::MAX)
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct(&self.name);
        for (name, value) in self.attributes() {
            match self.shows(name, value) {
                true => shown.field(name, &value),
                false => shown.field(name, &"…"),
            };
        }
        if !self.children.is_empty() {
            shown.field("children", &self.children);
        }
        shown.finish()
    }
}

/// The identity that an element of that name with that value names. The values were checked elsewhere.
pub(super) fn identity(element: &str, value: &str) -> Option<Identity> {
    let trimmed = value.trim_matches(is_blank);
    match element.strip_prefix("PK_").unwrap_or(element) {
        "IPV4_Address" | "IPV6_Address" => trimmed.parse::<IpAddr>().ok().map(Identity::from),
        "FQDN" => Some(Identity::Fqdn(trimmed.to_owned())),
        "User_FQDN" => Some(Identity::UserFqdn(trimmed.to_owned())),
        "ASN1_DN" => trimmed.parse::<DistinguishedName>().ok().map(Identity::Dn),
        "Key_ID" => Some(Identity::KeyId(value.as_bytes().to_vec())),
        _ => None,
    }
}

/// A value as it is kept.
fn canonical(element: &str, attribute: &str, value: &str) -> Zeroizing<String> {
    const LISTS: [&str; 4] = [
        "IPSec_ProposalRefs",
        "IPSec_InitiatorDHGroup",
        "IPSec_ResponderDHGroup",
        "IKE_IPSecDefaultAllowedTypes",
    ];
    // Blanks are part of these.
    let verbatim =
        matches!(element, "Key_ID" | "PK_Key_ID") || !schema::is_public(element, attribute, value);
    if verbatim {
        return Zeroizing::new(value.to_owned());
    }
    let trimmed = value.trim_matches(is_blank);
    let address = ["IPV4_", "IPV6_", "PK_IPV"].iter().any(|start| element.starts_with(start));
    Zeroizing::new(if LISTS.contains(&attribute) {
        trimmed.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
    } else if is_number(attribute) && trimmed.bytes().all(|b| b.is_ascii_digit()) {
        let digits = trimmed.trim_start_matches('0');
        if digits.is_empty() && !trimmed.is_empty() { "0" } else { digits }.to_owned()
    } else if let (true, Ok(address)) = (address, trimmed.parse::<IpAddr>()) {
        address.to_string()
    } else {
        trimmed.to_owned()
    })
}

fn is_number(attribute: &str) -> bool {
    attribute.ends_with("Minutes")
        || attribute.ends_with("KB")
        || attribute.ends_with("KeyOverlap")
        || attribute.ends_with("ExtendedSeqNum")
        || matches!(attribute, "Protocol" | "Port" | "EndPort" | "IKE_DHGroup" | "IKE_Version")
}
