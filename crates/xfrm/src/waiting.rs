//! SAs that are in software because a network card had no room for them, and the places that have become free since.
//!
//! A place that becomes free goes to an SA of the tunnel that had it, where one waits: so a tunnel whose SAs are
//! rekeyed stays in its card. Then it goes to who has waited longest.

#![forbid(unsafe_code)]

use esp::plane::{RuleId, SaId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A table of a network card that may be full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Room {
    /// That of SAs that receive.
    Inbound,
    /// That of SAs that send.
    Outbound,
    /// That of the addresses to which SAs receive, each of which several SAs share.
    Address,
}

impl Room {
    /// The table of SAs of a direction.
    pub(super) fn of(inbound: bool) -> Self {
        if inbound { Self::Inbound } else { Self::Outbound }
    }
}

/// A card's index, and its table.
type Table = (u32, Room);

/// The SAs that wait for a place in a card.
#[derive(Default)]
pub(super) struct Waiting {
    /// In the order in which they came.
    queues: BTreeMap<Table, BTreeSet<(u64, SaId)>>,
    of_rule: BTreeSet<(Table, RuleId, SaId)>,
    places: BTreeMap<SaId, (Table, RuleId, u64)>,
    free: VecDeque<(Table, RuleId)>,
    turn: u64,
}

impl Waiting {
    /// An SA of a rule waits for room in a card.
    pub(super) fn add(&mut self, sa: SaId, rule: RuleId, table: Table) {
        if self.places.get(&sa).is_some_and(|place| (place.0, place.1) == (table, rule)) {
            // In its turn.
            return;
        }
        self.remove(sa);
        self.turn += 1;
        self.queues.entry(table).or_default().insert((self.turn, sa));
        self.of_rule.insert((table, rule, sa));
        self.places.insert(sa, (table, rule, self.turn));
    }

    /// An SA waits no more.
    pub(super) fn remove(&mut self, sa: SaId) {
        let Some((table, rule, turn)) = self.places.remove(&sa) else { return };
        self.of_rule.remove(&(table, rule, sa));
        if let Some(queue) = self.queues.get_mut(&table) {
            queue.remove(&(turn, sa));
            if queue.is_empty() {
                self.queues.remove(&table);
            }
        }
    }

    /// An SA is of another rule now.
    pub(super) fn rename(&mut self, sa: SaId, to: RuleId) {
        if let Some((table, rule, _)) = self.places.get_mut(&sa) {
            self.of_rule.remove(&(*table, *rule, sa));
            *rule = to;
            self.of_rule.insert((*table, to, sa));
        }
    }

    /// A place in a card has become free, which an SA of a rule had. Returns whether somebody waits for one of that
    /// card.
    pub(super) fn free(&mut self, rule: RuleId, table: Table) -> bool {
        let wanted = usable(table).any(|table| self.queues.contains_key(&table));
        if wanted {
            self.free.push_back((table, rule));
        }
        wanted
    }

    /// The SA that gets the next free place.
    pub(super) fn next(&mut self) -> Option<SaId> {
        while let Some((table, rule)) = self.free.pop_front() {
            let found = usable(table).find_map(|table| {
                let of_rule = (table, rule, SaId(0))..=(table, rule, SaId(u64::MAX));
                let own = self.of_rule.range(of_rule).next_back().map(|(.., sa)| *sa);
                own.or_else(|| self.queues.get(&table)?.first().map(|(_, sa)| *sa))
            });
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The SAs that wait for an address of a card, each with its rule.
    pub(super) fn for_address(&self, card: u32) -> Vec<(SaId, RuleId)> {
        let queue = self.queues.get(&(card, Room::Address)).into_iter().flatten();
        queue.filter_map(|(_, sa)| Some((*sa, self.places.get(sa)?.1))).collect()
    }

    /// Returns `true` if there is a free place for which no SA has been chosen.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Returns `true` if an SA waits.
    pub(super) fn has(&self, sa: SaId) -> bool {
        self.places.contains_key(&sa)
    }

    /// The number of waiting SAs.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }
}

/// The tables whose SAs may use a free place. Where both directions share what room there is, either may use it.
fn usable((card, room): Table) -> impl Iterator<Item = Table> {
    let other = match room {
        Room::Inbound => Some(Room::Outbound),
        Room::Outbound => Some(Room::Inbound),
        Room::Address => None,
    };
    [Some(room), other].into_iter().flatten().map(move |room| (card, room))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN: Table = (4, Room::Inbound);
    const OUT: Table = (4, Room::Outbound);
    const ADDRESS: Table = (4, Room::Address);
    const A: RuleId = RuleId(1);
    const B: RuleId = RuleId(2);
    const C: RuleId = RuleId(3);

    #[test]
    fn a_place_goes_to_the_tunnel_that_had_it_and_then_to_who_waits_longest() {
        let mut waiting = Waiting::default();
        for (sa, rule) in [(1, A), (2, B), (3, C)] {
            waiting.add(SaId(sa), rule, IN);
        }
        let next = |waiting: &mut Waiting| {
            let sa = waiting.next()?;
            waiting.remove(sa);
            Some(sa.0)
        };
        assert_eq!(next(&mut waiting), None, "nothing is free");
        assert!(waiting.free(C, IN) && waiting.free(C, IN));
        assert_eq!([next(&mut waiting), next(&mut waiting)], [Some(3), Some(1)]);
        // An outbound SA may leave room for an inbound one.
        assert!(waiting.free(A, OUT));
        assert_eq!((next(&mut waiting), waiting.len()), (Some(2), 0));
        assert!(!waiting.free(A, IN), "nobody waits");
        assert_eq!(next(&mut waiting), None);
    }

    #[test]
    fn an_sa_that_has_gone_or_waits_for_another_card_is_not_chosen() {
        let mut waiting = Waiting::default();
        waiting.add(SaId(1), A, IN);
        waiting.add(SaId(2), A, (5, Room::Inbound));
        waiting.add(SaId(3), B, IN);
        waiting.rename(SaId(3), C);
        waiting.remove(SaId(1));
        waiting.remove(SaId(9));
        assert!(waiting.free(A, IN));
        assert_eq!(waiting.next(), Some(SaId(3)));
        waiting.remove(SaId(3));
        assert!(!waiting.free(C, IN));
        assert!(waiting.free(C, (5, Room::Outbound)));
        assert_eq!((waiting.next(), waiting.len()), (Some(SaId(2)), 1));
    }

    #[test]
    fn an_sa_that_waits_for_an_address_does_not_get_the_place_of_an_sa() {
        let mut waiting = Waiting::default();
        waiting.add(SaId(1), A, ADDRESS);
        assert!(!waiting.free(A, IN) && !waiting.free(A, OUT));
        assert_eq!(waiting.for_address(4), [(SaId(1), A)]);
        assert!(waiting.free(B, ADDRESS));
        assert_eq!(waiting.next(), Some(SaId(1)));
    }
}
