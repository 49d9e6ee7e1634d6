//! Objects found by their kind and name, however many there are.

use super::object::{Kind, Object};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Places of objects by kind and name.
pub(super) struct Names<'o> {
    objects: &'o [Object],
    places: HashMap<(Kind, u64), Vec<usize>>,
}

impl<'o> Names<'o> {
    /// The names of these objects.
    pub fn of(objects: &'o [Object]) -> Self {
        let mut places: HashMap<_, Vec<usize>> = HashMap::with_capacity(objects.len());
        for (place, object) in objects.iter().enumerate() {
            if let Some(key) = key(object) {
                places.entry(key).or_default().push(place);
            }
        }
        Self { objects, places }
    }

    /// The place of the first object that has the kind and the name of this one.
    pub fn place(&self, object: &Object) -> Option<usize> {
        let places = self.places.get(&key(object)?)?;
        places.iter().copied().find(|place| self.objects[*place].has_name_of(object))
    }
}

/// The same for objects that have the same kind and name; others may have it, too.
fn key(object: &Object) -> Option<(Kind, u64)> {
    let name = match object.peer() {
        Some(peer) => peer.fingerprint(),
        None => {
            let mut hasher = DefaultHasher::new();
            object.name().hash(&mut hasher);
            hasher.finish()
        }
    };
    Some((object.kind()?, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml::Node;
    use proptest::prelude::*;

    fn object() -> impl Strategy<Value = Object> {
        let kinds = ["IKETunnel", "IPSecTunnel", "IKEPresharedKey", "IKEGroup", "Other"];
        let names = ["a", "A", "a.example", "A.example", "192.0.2.1", ""];
        let identities = ["PK_FQDN", "PK_User_FQDN", "PK_IPV4_Address", "PK_KEY_ID"];
        let of = |texts: &[&'static str]| prop::sample::select(texts.to_vec());
        (of(&kinds), of(&names), of(&identities)).prop_map(|(kind, name, identity)| {
            let node = Node::new(kind);
            Object::new(match kind {
                "IKEPresharedKey" => node.holding(
                    Node::new("IKEPresharedRemoteID")
                        .holding(Node::new(identity).with("Value", name)),
                ),
                "IKETunnel" => node.with("IKE_TunnelName", name),
                "IPSecTunnel" => node.with("IPSec_TunnelName", name),
                _ => node.with("IKE_GroupName", name),
            })
        })
    }

    proptest! {
        /// The index finds what a search finds.
        #[test]
        fn finds_what_a_search_finds(
            objects in prop::collection::vec(object(), 0..30), other in object(),
        ) {
            let searched = objects.iter().position(|object| object.has_name_of(&other));
            prop_assert_eq!(Names::of(&objects).place(&other), searched);
        }
    }
}
