//! The report of SAs in network cards, and of offloads that failed.

#![forbid(unsafe_code)]

use super::{Card, OffloadMode, Reason};
use esp::plane::{SaId, Spi};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The offload of an SA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its tunnel.
    pub tunnel: String,
    /// It is an inbound SA.
    pub inbound: bool,
    /// Its SPI.
    pub spi: Spi,
    /// The address to which it receives; `None`: it sends.
    pub address: Option<IpAddr>,
    /// The offload in force, as read back from the kernel.
    pub place: OffloadMode,
    /// The card that it is in, or that did not take it.
    pub card: Option<String>,
    /// The offloads that failed before, each with its reason.
    pub declined: Vec<(OffloadMode, Reason)>,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// By name.
    pub cards: Vec<CardReport>,
    /// Every SA of the kernel plane.
    pub sas: Vec<Placed>,
    /// The offloads that failed for no fault of a card: no route leads to the peer.
    pub fallbacks: Vec<Fallback>,
}

/// The state of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardReport {
    /// Its name.
    pub name: String,
    /// The card; `None`: it is not there.
    pub card: Option<Card>,
    /// SAs in it, those that receive and those that send.
    pub inside: [usize; 2],
    /// For how many of each direction it had room when one more was refused; `None`: none was.
    pub room: [Option<usize>; 2],
    /// Addresses to which the SAs in it receive.
    pub addresses: usize,
    /// For how many addresses it had room when one more was refused; `None`: none was.
    pub address_room: Option<usize>,
    /// The offloads that it refused.
    pub fallbacks: Vec<Fallback>,
}

/// The number of times that an offload failed for one reason, since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The offload that failed.
    pub place: OffloadMode,
    /// The last reason.
    pub reason: Reason,
    /// The number of times.
    pub count: u64,
}

#[derive(Default)]
pub(super) struct Ledger {
    sas: BTreeMap<SaId, Placed>,
    cards: BTreeMap<String, Kept>,
    cardless: Fallbacks,
}

#[derive(Default)]
struct Kept {
    /// SAs in it, those that receive and those that send.
    inside: [usize; 2],
    room: [Option<usize>; 2],
    /// The SAs in it that receive, by address.
    addresses: BTreeMap<IpAddr, usize>,
    address_room: Option<usize>,
    fallbacks: Fallbacks,
}

type Fallbacks = BTreeMap<(OffloadMode, &'static str), (u64, Reason)>;

impl Ledger {
    pub(super) fn note(&mut self, sa: SaId, placed: Placed) {
        self.forget(sa);
        let way = usize::from(!placed.inbound);
        let mut kept = placed.card.as_ref().map(|card| self.cards.entry(card.clone()).or_default());
        if let Some(kept) = &mut kept {
            kept.note_address(&placed);
        }
        let (fallbacks, mut card) = match kept {
            Some(kept) => (&mut kept.fallbacks, Some((&mut kept.inside[way], &mut kept.room[way]))),
            None => (&mut self.cardless, None),
        };
        for (place, reason) in &placed.declined {
            let entry = fallbacks.entry((*place, reason.name())).or_insert((0, reason.clone()));
            *entry = (entry.0 + 1, reason.clone());
            if let (Reason::Full, Some((inside, room))) = (reason, &mut card) {
                **room = Some(**inside);
            }
        }
        if let (true, Some((inside, room))) = (placed.place != OffloadMode::Software, card) {
            *inside += 1;
            // It has more than was known.
            if room.is_some_and(|room| room < *inside) {
                *room = None;
            }
        }
        self.sas.insert(sa, placed);
    }

    pub(super) fn placed(&self, sa: SaId) -> Option<&Placed> {
        self.sas.get(&sa)
    }

    pub(super) fn sas(&self) -> impl Iterator<Item = &Placed> {
        self.sas.values()
    }

    pub(super) fn forget(&mut self, sa: SaId) {
        let Some(placed) = self.sas.remove(&sa) else { return };
        if placed.place != OffloadMode::Software
            && let Some(kept) = placed.card.and_then(|card| self.cards.get_mut(&card))
        {
            kept.inside[usize::from(!placed.inbound)] -= 1;
            if let Some(address) = placed.address {
                kept.forget_address(address);
            }
        }
    }

    pub(super) fn cards(&self) -> impl Iterator<Item = &str> {
        self.cards.keys().map(String::as_str)
    }

    pub(super) fn report(&self, present: BTreeMap<String, Option<Card>>) -> Report {
        Report {
            cards: present
                .into_iter()
                .map(|(name, card)| {
                    let kept = self.cards.get(&name);
                    CardReport {
                        card,
                        inside: kept.map_or([0; 2], |kept| kept.inside),
                        room: kept.map_or([None; 2], |kept| kept.room),
                        addresses: kept.map_or(0, |kept| kept.addresses.len()),
                        address_room: kept.and_then(|kept| kept.address_room),
                        fallbacks: kept.map(|kept| listed(&kept.fallbacks)).unwrap_or_default(),
                        name,
                    }
                })
                .collect(),
            sas: self.sas.values().cloned().collect(),
            fallbacks: listed(&self.cardless),
        }
    }
}

fn listed(fallbacks: &Fallbacks) -> Vec<Fallback> {
    let each = fallbacks.iter().map(|((place, _), (count, reason))| Fallback {
        place: *place,
        reason: reason.clone(),
        count: *count,
    });
    each.collect()
}

impl Kept {
    fn note_address(&mut self, placed: &Placed) {
        for (_, reason) in &placed.declined {
            if let Reason::AddressesFull(most) = reason {
                self.address_room = Some(*most);
            }
        }
        if let (Some(address), true) = (placed.address, placed.place != OffloadMode::Software) {
            *self.addresses.entry(address).or_default() += 1;
        }
    }

    fn forget_address(&mut self, address: IpAddr) {
        if let Some(sas) = self.addresses.get_mut(&address) {
            *sas -= 1;
            if *sas == 0 {
                self.addresses.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(place: OffloadMode, declined: Vec<(OffloadMode, Reason)>) -> Placed {
        let (tunnel, card) = ("t".to_owned(), Some("eth4".to_owned()));
        Placed { tunnel, inbound: false, spi: Spi(256), address: None, place, card, declined }
    }

    #[test]
    fn sas_in_a_card_and_sas_that_found_no_room_are_counted() {
        let mut ledger = Ledger::default();
        for number in 0..3 {
            ledger.note(SaId(number), placed(OffloadMode::Crypto, vec![]));
        }
        for number in 3..5 {
            let full =
                vec![(OffloadMode::Packet, Reason::Full), (OffloadMode::Crypto, Reason::Full)];
            ledger.note(SaId(number), placed(OffloadMode::Software, full));
        }
        let cards = |ledger: &Ledger| {
            ledger.report(BTreeMap::from([("eth4".to_owned(), None)])).cards.remove(0)
        };
        let card = cards(&ledger);
        assert_eq!((card.inside, card.room), ([0, 3], [None, Some(3)]));
        let counts: Vec<_> =
            card.fallbacks.iter().map(|f| (f.place.name(), f.reason.name(), f.count)).collect();
        assert_eq!(counts, [("packet", "full", 2), ("crypto", "full", 2)]);

        // A card may get more room, or had less for a while.
        ledger.note(SaId(5), placed(OffloadMode::Crypto, vec![]));
        assert_eq!((cards(&ledger).inside, cards(&ledger).room), ([0, 4], [None, None]));
        ledger.forget(SaId(5));

        // An SA that is noted again has moved.
        ledger.note(
            SaId(0),
            placed(OffloadMode::Software, vec![(OffloadMode::Crypto, Reason::Gone)]),
        );
        ledger.forget(SaId(1));
        assert_eq!(cards(&ledger).inside, [0, 1]);
    }
}
