//! The offloads to try for an SA, and why the others are not tried: a pure function.

#![forbid(unsafe_code)]

use super::{Card, OffloadMode, Reason, Wanted, suites};
use crypto::Suite;
use esp::plane::Encapsulation;
use policy::Protection;

/// The features that an SA needs of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Its suite.
    pub suite: Suite,
    /// The outer protocol of its packets.
    pub encapsulation: Encapsulation,
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The offload to try; never [`OffloadMode::Software`], which is left if all fail.
    pub place: OffloadMode,
    /// By which card.
    pub card: Card,
}

/// Attempts in their order; where all fail, the kernel does it in software.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// The offloads to try, in order.
    pub tries: Vec<Step>,
    /// The reason why a wanted offload is not tried at all, with the card if there is one.
    pub passed: Option<(Option<Card>, Reason)>,
}

/// The offloads to try with a card, or the reason why there is none.
pub fn steps(wanted: Wanted, card: Result<Card, Reason>, need: &Need) -> Steps {
    let places: &[OffloadMode] = match wanted {
        Wanted::Off => return Steps::default(),
        Wanted::Auto => &[OffloadMode::Packet, OffloadMode::Crypto],
        Wanted::Packet => &[OffloadMode::Packet],
        Wanted::Crypto => &[OffloadMode::Crypto],
    };
    let card = match card {
        Ok(card) => card,
        Err(reason) => return Steps { tries: Vec::new(), passed: Some((None, reason)) },
    };
    let obstacle = match card.esp {
        None => Some(Reason::NoFeature),
        Some(false) => Some(Reason::FeatureOff),
        Some(true) => need.obstacle().map(Reason::Unsupported).or_else(|| unknown(&card, need)),
    };
    if let Some(reason) = obstacle {
        return Steps { tries: Vec::new(), passed: Some((Some(card), reason)) };
    }
    let tries = places.iter().map(|place| Step { place: *place, card: card.clone() }).collect();
    Steps { tries, passed: None }
}

/// The driver of a card is known to refuse a suite.
fn unknown(card: &Card, need: &Need) -> Option<Reason> {
    let driver = card.driver.as_deref()?;
    let known = suites(driver).filter(|known| !known.contains(&need.suite))?;
    Some(Reason::Unknown(driver.to_owned(), known))
}

impl Need {
    /// The property of an SA that the kernel or all its drivers refuse (net/xfrm/xfrm_device.c, and the drivers' checks
    /// of an SA).
    pub fn obstacle(&self) -> Option<&'static str> {
        match (self.suite.protection(), self.encapsulation) {
            (Protection::Ah(_), _) => Some("cards do not know AH"),
            (_, Encapsulation::Udp) => Some("the kernel offloads no ESP in UDP"),
            (Protection::Esp { integrity: None, .. }, _) => None,
            _ => Some("cards know no cipher with a MAC of its own; use AES-GCM"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::{Integrity, KeyBits};

    const GCM: Need =
        Need { suite: Suite::AesGcm16(KeyBits::B128), encapsulation: Encapsulation::Native };

    fn card(esp: Option<bool>) -> Card {
        Card {
            index: 4,
            name: "eth4".to_owned(),
            esp,
            driver: None,
            checksum: false,
            addresses: None,
        }
    }

    fn places(steps: &Steps) -> Vec<&'static str> {
        steps.tries.iter().map(|step| step.place.name()).collect()
    }

    #[test]
    fn the_best_place_comes_first() {
        for (wanted, expected) in [
            (Wanted::Auto, vec!["packet", "crypto"]),
            (Wanted::Packet, vec!["packet"]),
            (Wanted::Crypto, vec!["crypto"]),
            (Wanted::Off, vec![]),
        ] {
            let steps = steps(wanted, Ok(card(Some(true))), &GCM);
            assert_eq!((places(&steps), steps.passed), (expected, None));
        }
    }

    #[test]
    fn an_impossible_offload_is_told_and_not_tried() {
        let cbc = Suite::AesCbcMac(KeyBits::B256, Integrity::HmacSha2_256_128);
        for (esp, need, name) in [
            (None, GCM, "no_feature"),
            (Some(false), GCM, "feature_off"),
            (Some(true), Need { encapsulation: Encapsulation::Udp, ..GCM }, "unsupported"),
            (Some(true), Need { suite: cbc, ..GCM }, "unsupported"),
        ] {
            let steps = steps(Wanted::Auto, Ok(card(esp)), &need);
            assert!(steps.tries.is_empty());
            assert_eq!(steps.passed.map(|(_, reason)| reason.name()), Some(name));
        }
        let intel = Card { driver: Some("ixgbe".to_owned()), ..card(Some(true)) };
        let long = Need { suite: Suite::AesGcm16(KeyBits::B256), ..GCM };
        assert_eq!(steps(Wanted::Auto, Ok(intel.clone()), &GCM).tries.len(), 2);
        let passed = steps(Wanted::Auto, Ok(intel), &long).passed.expect("it is not tried");
        assert_eq!(
            passed.1.to_string(),
            "cards of the driver ixgbe do only AES-GCM-16-128: put it first in the policy's proposals"
        );
        let none = steps(Wanted::Auto, Err(Reason::NoRoute), &GCM);
        assert_eq!(none.passed, Some((None, Reason::NoRoute)));
    }
}
