//! The lines of the elements that define a tunnel, for the operator who wants to change it.

use super::element::Element;
use super::schema::{REFERENCES, name_attributes};
use super::source::Sources;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The elements that define the tunnels of a policy, with their lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definitions {
    file: Arc<str>,
    /// Each once, however many tunnels refer to it.
    all: Vec<Definition>,
    /// Places in `all`.
    by_tunnel: BTreeMap<String, Box<[u32]>>,
}

/// An element of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its kind.
    pub element: String,
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: Arc<str>,
    /// Its line, from 1.
    pub line: usize,
}

impl Definitions {
    pub(super) fn of_document(root: &Element<'_>, sources: &Sources<'_>) -> Self {
        let mut document = Document::default();
        for element in &root.children {
            document.add(element, sources);
        }
        let mut by_tunnel: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for ((_, name), at) in document.by_name.iter().filter(|((kind, _), _)| is_tunnel(kind)) {
            let found = by_tunnel.entry((*name).to_owned()).or_default();
            document.collect(*at, found);
            found.extend(document.preshared_key(*at));
        }
        let by_tunnel =
            by_tunnel.into_iter().map(|(name, places)| (name, places.into_boxed_slice()));
        let file =
            sources.place(&root.name_range).map(|(source, _)| Arc::clone(source.file_name()));
        Self { file: file.unwrap_or_default(), all: document.all, by_tunnel: by_tunnel.collect() }
    }

    /// The file; of several, the first one. Each [`Definition`] tells its own.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The elements that define a phase 1 tunnel or a phase 2 tunnel: its own, and those it refers to.
    pub fn of(&self, tunnel: &str) -> impl Iterator<Item = &Definition> {
        let places = self.by_tunnel.get(tunnel).map_or(&[][..], |places| &**places);
        places.iter().filter_map(move |place| self.all.get(*place as usize))
    }
}

fn is_tunnel(kind: &str) -> bool {
    kind.ends_with("Tunnel")
}

/// The objects of all texts.
#[derive(Default)]
struct Document<'a> {
    elements: Vec<&'a Element<'a>>,
    /// The definitions of `elements`.
    all: Vec<Definition>,
    /// The first object of each kind and name.
    by_name: BTreeMap<(&'a str, &'a str), u32>,
    /// The first preshared key for each kind and value of a remote identity.
    keys: BTreeMap<(&'a str, &'a str), u32>,
}

impl<'a> Document<'a> {
    fn add(&mut self, element: &'a Element<'a>, sources: &Sources<'_>) {
        let Some((source, line)) = sources.place(&element.name_range) else { return };
        let peer = peer_of_key(element);
        let mut names = name_attributes(element.name).iter();
        let named = names.find_map(|name| element.attribute(name)).map(|name| name.trimmed());
        let Some(name) = named.or(peer.map(|(_, value)| value)) else { return };
        let Ok(at) = u32::try_from(self.all.len()) else { return };
        if let Some(peer) = peer {
            self.keys.entry(peer).or_insert(at);
        }
        if named.is_some() {
            self.by_name.entry((element.name, name)).or_insert(at);
        }
        self.elements.push(element);
        self.all.push(Definition {
            element: element.name.to_owned(),
            name: name.to_owned(),
            file: Arc::clone(source.file_name()),
            line,
        });
    }

    fn collect(&self, at: u32, found: &mut Vec<u32>) {
        let Some(element) = self.elements.get(at as usize) else { return };
        found.push(at);
        // Neither the phase 1 tunnel that carries a phase 2 tunnel nor the generic policy of a phase 1 tunnel defines it.
        for reference in REFERENCES
            .iter()
            .filter(|r| r.from != "IKEProtection" && r.to != "IKETunnel")
            .filter(|r| r.from == element.name)
        {
            let value = element.attribute(reference.attribute).map_or("", |a| a.trimmed());
            for name in value.split([',', ' ']).filter(|n| !n.is_empty()) {
                if let Some(at) = self.by_name.get(&(reference.to, name)) {
                    self.collect(*at, found);
                }
            }
        }
    }

    /// The preshared key of a tunnel: that of the same remote identity.
    fn preshared_key(&self, tunnel: u32) -> Option<u32> {
        let tunnel = self.elements.get(tunnel as usize)?;
        let remote =
            tunnel.children_named("IKERemoteIdentity").find_map(|side| side.children.first())?;
        let wanted = (remote.name, remote.attribute("Value")?.trimmed());
        self.keys.get(&wanted).copied()
    }
}

/// Kind and value of the remote identity that a preshared key is for.
fn peer_of_key<'a>(key: &'a Element<'a>) -> Option<(&'a str, &'a str)> {
    if key.name != "IKEPresharedKey" {
        return None;
    }
    let id = key.children_named("IKEPresharedRemoteID").find_map(|side| side.children.first())?;
    let kind = id.name.strip_prefix("PK_").unwrap_or(id.name);
    Some((kind, id.attribute("Value")?.trimmed()))
}

#[cfg(test)]
mod tests {
    use crate::xml::read;

    #[test]
    fn a_tunnel_leads_to_everything_it_refers_to() {
        let text = include_str!("../../../../tests/policies/site/left.xml");
        let definitions = read("left.xml", text).expect("the sample is valid").definitions;
        let of = |tunnel| {
            let found = definitions.of(tunnel);
            found.map(|d| (d.element.as_str(), d.name.as_str(), d.line)).collect::<Vec<_>>()
        };
        let line =
            |start: &str| 1 + text.lines().position(|l| l.trim().starts_with(start)).unwrap();
        assert_eq!(
            of("site"),
            [
                ("IKETunnel", "site", line("<IKETunnel")),
                ("IKEProtection", "site_p1", line("<IKEProtection")),
                ("IKEPresharedKey", "192.0.2.2", line("<IKEPresharedKey"))
            ]
        );
        assert_eq!(
            of("site_lan"),
            [
                ("IPSecTunnel", "site_lan", line("<IPSecTunnel")),
                ("IPSecProtection", "site_p2", line("<IPSecProtection")),
                ("IPSecProposal", "site_gcm", line("<IPSecProposal"))
            ]
        );
        assert!(of("elsewhere").is_empty());
        assert_eq!(definitions.file(), "left.xml");
        assert!(definitions.of("site").all(|d| &*d.file == "left.xml"));
    }
}
