//! Advice on offers of algorithms that have nothing in common.

use super::Target;
use crate::cure::Cure;
use crate::explanation::Row;
use crate::failure::Background;
use ike::failure::facts::{Layer, Offers};

const CHILD_GROUPS: Target =
    Target::new("IPSecProtection", &["IPSec_InitiatorDHGroup", "IPSec_ResponderDHGroup"]);

impl Background<'_> {
    pub(super) fn on_offers(&self, offers: &Offers, comparison: &[Row]) -> Vec<Cure> {
        // The algorithms of one protocol do not fit the other: none of their rows has a cure.
        let protocol = comparison.iter().find(|row| row.item == "protocol");
        if let Some(Row { here, there: Some(there), differs: true, .. }) = protocol {
            let place = self.place("IPSecProposal");
            return vec![
                format!(
                    "protect with {there} as the peer does (IPSec{there}Protocol{place}), or have the peer protect with {here}"
                )
                .into(),
            ];
        }
        let is_ah =
            offers.ours.first().is_some_and(|o| o.transforms.iter().any(|t| t.kind == "protocol"));
        let differing = comparison.iter().filter(|row| {
            // A cipher of the IKE SA that protects integrity itself needs no IKE_Hash: its own row says all.
            let is_integrity = offers.layer == Layer::Ike && row.item == "integrity";
            row.differs && !(is_integrity && row.there.as_deref() == Some("none"))
        });
        let mut cure: Vec<Cure> = differing
            .filter_map(|row| {
                let (target, there) =
                    (target(offers.layer, is_ah, &row.item)?, row.there.as_ref()?);
                let words = in_policy(target, there);
                let write = match &words {
                    Some(words) if words != there => format!(" (write {words})"),
                    _ => String::new(),
                };
                // A policy takes one of several alternatives.
                let first = words.as_deref().and_then(|words| words.split(" or ").next());
                let word = first.map(str::to_owned);
                Some(match (there.as_str(), row.here.as_str()) {
                    ("none", here) if row.item == "group" => {
                        let to = format!("0 for no key exchange, or the peer's to {here}");
                        self.set(target, Some("0".to_owned()), to)
                    }
                    (there, "none") if row.item == "group" => {
                        let to = format!("the peer's {there}{write}, or have the peer want none");
                        self.set(target, word, to)
                    }
                    (there, here) => {
                        let to = format!("the peer's {there}{write}, or the peer's to {here}");
                        self.set(target, word, to)
                    }
                })
            })
            .collect();
        let unsaid = offers.theirs.is_none() && offers.wanted_group.is_none();
        if unsaid && offers.renewal && offers.layer == Layer::Child {
            let exchange = match comparison.iter().find(|row| row.item == "group") {
                Some(row) => format!(
                    "the peer may refuse a key exchange of the Child SA's own, or want another one than {}: set \
                     IPSec_InitiatorDHGroup and IPSec_ResponderDHGroup{} to its group, or to 0",
                    row.here,
                    self.place("IPSecProtection")
                ),
                None => format!(
                    "the peer may want a key exchange of the Child SA's own (PFS): set \
                     IPSec_InitiatorDHGroup and IPSec_ResponderDHGroup{} to its group",
                    self.place("IPSecProtection")
                ),
            };
            cure.push(exchange.into());
            cure.push(
                format!(
                    "if the peer's policy has changed, compare{}, too; its log says what it wants",
                    self.place("IPSecProposal").replacen(" in", "", 1)
                )
                .into(),
            );
        } else if unsaid {
            cure.push(format!(
                "compare{} with the peer's policy; a peer does not say what it would accept, but its log does (vpnctl why, if it runs vpnd)",
                match offers.layer {
                    Layer::Ike => self.place("IKEProtection"),
                    Layer::Child => self.place("IPSecProposal"),
                }
                .replacen(" in", "", 1)
            ).into());
            match offers.layer {
                // It has agreed to an IKE SA before.
                Layer::Ike if offers.renewal => {}
                Layer::Ike => cure.push(
                    "a peer also answers so if its policy has no tunnel between these addresses".into(),
                ),
                Layer::Child => cure.push(
                    "a peer also answers so if it wants another mode (ESP_EncapsulationMode) or another key exchange \
                     (IPSec_InitiatorDHGroup), or if its kernel does not take the keys: its log says so"
                        .into(),
                ),
            }
        }
        cure
    }
}

/// The place of algorithms of this kind in the policy.
fn target(layer: Layer, is_ah: bool, item: &str) -> Option<Target> {
    Some(match (layer, item) {
        (Layer::Ike, "encryption") => Target::new("IKEProtection", &["IKE_Encryption"]),
        (Layer::Ike, "integrity") => Target::new("IKEProtection", &["IKE_Hash"]),
        (Layer::Ike, "PRF") => Target::new("IKEProtection", &["IKE_PRF"]),
        (Layer::Ike, "group") => Target::new("IKEProtection", &["IKE_DHGroup"]),
        (Layer::Child, "encryption") => Target::new("IPSecProposal", &["ESP_Encryption"]),
        (Layer::Child, "integrity") if is_ah => {
            Target::new("IPSecProposal", &["AH_Authentication"])
        }
        (Layer::Child, "integrity") => Target::new("IPSecProposal", &["ESP_Authentication"]),
        (Layer::Child, "sequence numbers") if is_ah => {
            Target::new("IPSecProposal", &["AH_ExtendedSeqNum"])
        }
        (Layer::Child, "sequence numbers") => Target::new("IPSecProposal", &["ESP_ExtendedSeqNum"]),
        (Layer::Child, "group") => CHILD_GROUPS,
        _ => return None,
    })
}

/// The words of the policy for algorithms, as `ESP_AES256_GCM_16`.
fn in_policy(target: Target, shown: &str) -> Option<String> {
    let attribute = target.attributes.first()?;
    let words: Option<Vec<String>> =
        shown.split(" or ").map(|name| policy::xml::word_for(attribute, name)).collect();
    words.map(|words| words.join(" or "))
}
