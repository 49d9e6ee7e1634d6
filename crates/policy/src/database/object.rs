//! One object: its kind and its name.

use crate::Identity;
use crate::wording::nearest;
use crate::xml::Node;
use crate::xml::schema::{GROUPS, name_attributes};
use std::fmt;
use std::str::FromStr;

/// The kinds of objects, by the element that defines them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Phase 1 policy.
    IkeProtection,
    /// Phase 1 tunnel.
    IkeTunnel,
    /// Preshared key, named by the remote identity.
    IkePresharedKey,
    /// Group of identities.
    IkeGroup,
    /// Phase 2 algorithms.
    IpsecProposal,
    /// Phase 2 policy.
    IpsecProtection,
    /// Phase 2 tunnel.
    IpsecTunnel,
}

/// No kind has that name.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no kind of object; {1}")]
pub struct UnknownKind(String, String);

crate::readable_debug!(UnknownKind);

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::IkeProtection,
        Self::IkeTunnel,
        Self::IkePresharedKey,
        Self::IkeGroup,
        Self::IpsecProposal,
        Self::IpsecProtection,
        Self::IpsecTunnel,
    ];

    /// The element that defines it.
    pub fn element(self) -> &'static str {
        match self {
            Self::IkeProtection => "IKEProtection",
            Self::IkeTunnel => "IKETunnel",
            Self::IkePresharedKey => "IKEPresharedKey",
            Self::IkeGroup => "IKEGroup",
            Self::IpsecProposal => "IPSecProposal",
            Self::IpsecProtection => "IPSecProtection",
            Self::IpsecTunnel => "IPSecTunnel",
        }
    }

    /// The kind that an element defines.
    pub(super) fn of_element(name: &str) -> Option<Self> {
        match name {
            group if GROUPS.contains(&group) => Some(Self::IkeGroup),
            _ => Self::ALL.into_iter().find(|kind| kind.element() == name),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.element())
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    /// Reads the name of an element, in any case.
    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        let known = Self::ALL.into_iter().find(|k| k.element().eq_ignore_ascii_case(text));
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::element);
            let hint = match nearest(text, names) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("there are {}", names.join(", ")),
            };
            UnknownKind(text.to_owned(), hint)
        })
    }
}

/// An element directly under `AIX_VPN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    kind: Option<Kind>,
    node: Node,
    /// The peer that a preshared key is for.
    peer: Option<Identity>,
}

impl Object {
    /// An object as an element says it.
    pub fn new(node: Node) -> Self {
        let kind = Kind::of_element(node.name());
        let mut object = Self { kind, node, peer: None };
        object.peer = object.peer_element().and_then(Node::identity);
        object
    }

    /// Its kind; `None` for an element that defines nothing.
    pub fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// The element.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The name of its element.
    pub fn element(&self) -> &str {
        match self.kind {
            Some(kind) => kind.element(),
            None => self.node.name(),
        }
    }

    /// Returns `true` if an attribute of an element holds the name of an object.
    pub(super) fn is_name(element: &str, attribute: &str) -> bool {
        name_attributes(element).contains(&attribute)
    }

    /// Its name: that of a preshared key is the remote identity as written.
    pub fn name(&self) -> &str {
        let mut names = name_attributes(self.node.name()).iter();
        let named = match self.peer_element() {
            Some(peer) => peer.attribute("Value"),
            None => names.find_map(|name| self.node.attribute(name)),
        };
        named.unwrap_or_default()
    }

    /// Kind of a preshared key's remote identity, as in `User_FQDN`.
    pub fn id_type(&self) -> Option<&str> {
        self.peer_element()?.name().strip_prefix("PK_")
    }

    /// The element of a preshared key's remote identity.
    fn peer_element(&self) -> Option<&Node> {
        let key = self.kind == Some(Kind::IkePresharedKey);
        self.node.children().first().filter(|_| key)?.children().first()
    }

    /// The peer that a preshared key is for.
    pub(super) fn peer(&self) -> Option<&Identity> {
        self.peer.as_ref()
    }

    /// Returns `true` if it has that name; domain names are compared without regard to case.
    pub(super) fn is_named(&self, name: &str) -> bool {
        match (self.peer_element(), &self.peer) {
            (Some(element), Some(peer)) => {
                let other = Node::new(element.name()).with("Value", name);
                other.identity().is_some_and(|other| other.matches(peer))
            }
            _ => self.name() == name,
        }
    }

    /// Returns `true` if both have the same kind and name, even with different definitions.
    pub(super) fn has_name_of(&self, other: &Self) -> bool {
        if self.kind.is_none() || self.kind != other.kind {
            return false;
        }
        match (&self.peer, &other.peer) {
            (Some(one), Some(other)) => one.matches(other),
            (None, None) => self.name() == other.name(),
            _ => false,
        }
    }
}

impl fmt::Display for Object {
    /// Kind and name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.element(), self.name().escape_debug())
    }
}
