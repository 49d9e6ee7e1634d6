//! Where in the file a tunnel and what it refers to are defined, for those who are to change it.

use super::document::Element;
use super::source::Source;
use std::collections::BTreeMap;

/// Where the tunnels of a policy are defined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
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

/// Elements with names, and the attribute of the name.
const NAMED: [(&str, &str); 5] = [
    ("IKETunnel", "IKE_TunnelName"),
    ("IKEProtection", "IKE_ProtectionName"),
    ("IPSecTunnel", "IPSec_TunnelName"),
    ("IPSecProtection", "IPSec_ProtectionName"),
    ("IPSecProposal", "IPSec_ProposalName"),
];

/// Elements that refer to others: the attribute, and which elements it names.
const REFERENCES: [(&str, &str, &str); 3] = [
    ("IKETunnel", "IKE_ProtectionRef", "IKEProtection"),
    ("IPSecTunnel", "IPSec_ProtectionRef", "IPSecProtection"),
    ("IPSecProtection", "IPSec_ProposalRefs", "IPSecProposal"),
];

impl Places {
    pub(super) fn of_document(root: &Element<'_>, source: &Source<'_>) -> Self {
        let mut all: BTreeMap<(&str, &str), (&Element<'_>, Definition)> = BTreeMap::new();
        for element in &root.children {
            let Some((kind, name)) = NAMED.iter().find(|(kind, ..)| *kind == element.name) else {
                continue;
            };
            let Some(name) = element.attribute(name).map(|a| a.trimmed()) else { continue };
            let (line, _) = source.locate(element.place().span.start);
            let definition = Definition { element: (*kind).into(), name: name.to_owned(), line };
            all.entry((*kind, name)).or_insert((element, definition));
        }
        let mut by_tunnel: BTreeMap<String, Vec<Definition>> = BTreeMap::new();
        for (kind, name) in all.keys().filter(|(kind, _)| kind.ends_with("Tunnel")) {
            let mut found = Vec::new();
            collect(&all, (kind, name), &mut found);
            by_tunnel.entry((*name).to_owned()).or_default().extend(found);
        }
        Self { file: source.file_name().to_owned(), by_tunnel }
    }

    /// The file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The elements that define an IKE tunnel or a child tunnel: its own, and those it refers to.
    pub fn of(&self, tunnel: &str) -> &[Definition] {
        self.by_tunnel.get(tunnel).map_or(&[], Vec::as_slice)
    }
}

fn collect<'a>(
    all: &BTreeMap<(&'a str, &'a str), (&'a Element<'a>, Definition)>,
    key: (&'a str, &'a str),
    found: &mut Vec<Definition>,
) {
    let Some((element, definition)) = all.get(&key) else { return };
    found.push(definition.clone());
    for (_, attribute, kind) in REFERENCES.iter().filter(|(from, ..)| *from == key.0) {
        let value = element.attribute(attribute).map_or("", |a| a.trimmed());
        for name in value.split([',', ' ']).filter(|n| !n.is_empty()) {
            collect(all, (kind, name), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::xml::read;

    #[test]
    fn a_tunnel_leads_to_everything_it_refers_to() {
        let text = include_str!("../../../../config/left.xml");
        let places = read("left.xml", text).expect("the sample is valid").places;
        let of = |tunnel| {
            let definitions = places.of(tunnel).iter();
            definitions.map(|d| (d.element.as_str(), d.name.as_str(), d.line)).collect::<Vec<_>>()
        };
        let line =
            |start: &str| 1 + text.lines().position(|l| l.trim().starts_with(start)).unwrap();
        assert_eq!(
            of("site"),
            [
                ("IKETunnel", "site", line("<IKETunnel")),
                ("IKEProtection", "site_p1", line("<IKEProtection"))
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
        assert_eq!(places.file(), "left.xml");
    }
}
