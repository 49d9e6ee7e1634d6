//! The lines of the elements that define a tunnel, for the operator who wants to change it.

use super::element::Element;
use super::schema::{REFERENCES, name_attributes};
use super::source::Source;
use std::collections::BTreeMap;

/// The elements that define the tunnels of a policy, with their lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definitions {
    file: String,
    by_tunnel: BTreeMap<String, Vec<Definition>>,
}

/// An element of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its kind.
    pub element: String,
    /// Its name.
    pub name: String,
    /// Its line, from 1.
    pub line: usize,
}

impl Definitions {
    pub(super) fn of_document(root: &Element<'_>, source: &Source<'_>) -> Self {
        let mut all: BTreeMap<(&str, &str), (&Element<'_>, Definition)> = BTreeMap::new();
        for element in &root.children {
            let mut attributes = name_attributes(element.name).iter();
            let Some(name) = attributes.find_map(|name| element.attribute(name)) else { continue };
            let name = name.trimmed();
            let (line, _) = source.locate(element.span().range.start);
            let definition =
                Definition { element: element.name.to_owned(), name: name.to_owned(), line };
            all.entry((element.name, name)).or_insert((element, definition));
        }
        let mut by_tunnel: BTreeMap<String, Vec<Definition>> = BTreeMap::new();
        for (kind, name) in all.keys().filter(|(kind, _)| kind.ends_with("Tunnel")) {
            let mut found = Vec::new();
            collect(&all, (kind, name), &mut found);
            if let Some((tunnel, _)) = all.get(&(*kind, *name)) {
                found.extend(preshared_key(root, tunnel, source));
            }
            by_tunnel.entry((*name).to_owned()).or_default().extend(found);
        }
        Self { file: source.file_name().to_owned(), by_tunnel }
    }

    /// The file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The elements that define a phase 1 tunnel or a phase 2 tunnel: its own, and those it refers to.
    pub fn of(&self, tunnel: &str) -> &[Definition] {
        self.by_tunnel.get(tunnel).map_or(&[], Vec::as_slice)
    }
}

/// The preshared key of a tunnel: that of the same remote identity.
fn preshared_key(
    root: &Element<'_>,
    tunnel: &Element<'_>,
    source: &Source<'_>,
) -> Option<Definition> {
    let remote =
        tunnel.children_named("IKERemoteIdentity").find_map(|side| side.children.first())?;
    let wanted = (remote.name, remote.attribute("Value")?.trimmed());
    let key = root.children_named("IKEPresharedKey").find(|key| {
        let side =
            key.children_named("IKEPresharedRemoteID").find_map(|side| side.children.first());
        side.is_some_and(|id| {
            let kind = id.name.strip_prefix("PK_").unwrap_or(id.name);
            id.attribute("Value").is_some_and(|value| (kind, value.trimmed()) == wanted)
        })
    })?;
    let (line, _) = source.locate(key.span().range.start);
    Some(Definition { element: key.name.to_owned(), name: wanted.1.to_owned(), line })
}

fn collect<'a>(
    all: &BTreeMap<(&'a str, &'a str), (&'a Element<'a>, Definition)>,
    key: (&'a str, &'a str),
    found: &mut Vec<Definition>,
) {
    let Some((element, definition)) = all.get(&key) else { return };
    found.push(definition.clone());
    // Neither the phase 1 tunnel that carries a phase 2 tunnel nor the generic policy of a phase 1 tunnel defines it.
    for reference in REFERENCES
        .iter()
        .filter(|r| r.from != "IKEProtection" && r.to != "IKETunnel")
        .filter(|r| r.from == key.0)
    {
        let value = element.attribute(reference.attribute).map_or("", |a| a.trimmed());
        for name in value.split([',', ' ']).filter(|n| !n.is_empty()) {
            collect(all, (reference.to, name), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::xml::read;

    #[test]
    fn a_tunnel_leads_to_everything_it_refers_to() {
        let text = include_str!("../../../../tests/policies/site/left.xml");
        let definitions = read("left.xml", text).expect("the sample is valid").definitions;
        let of = |tunnel| {
            let found = definitions.of(tunnel).iter();
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
    }
}
