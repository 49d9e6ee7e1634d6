//! Messages that wait for the engine, in order of urgency: public-key work of some peers delays no sign of life of
//! others.
//!
//! Messages of one IKE SA stay in order. Messages that cost nothing to answer go first; then requests of established
//! peers, which may take a key exchange; then handshakes, which do.
//!
//! Key exchanges stay in the engine's thread, so that an urgent message waits for the key exchange of one other message
//! at most (1.5 ms with MODP-2048). Signatures are jobs.

use crate::wire::registry::ExchangeType;
use std::collections::{HashMap, VecDeque};

/// Kinds of urgency.
const LEVELS: usize = 3;

/// Messages that may wait in one level; more are dropped, as a full socket would.
const MOST: usize = 1024;

/// After so many messages in a row that went ahead of a level one of that goes, so that nobody waits for ever.
const IN_A_ROW: u32 = 64;

/// Messages that wait.
pub struct PriorityQueue<T> {
    levels: [VecDeque<(Spis, T)>; LEVELS],
    /// The level in which messages of an IKE SA wait, and how many do.
    waiting: HashMap<Spis, (usize, u32)>,
    /// The number of messages in a row that have been taken before those of each level.
    passed_over: [u32; LEVELS],
}

/// Both SPIs as they stand in the header.
type Spis = [u8; 16];

impl<T> Default for PriorityQueue<T> {
    fn default() -> Self {
        let levels = [VecDeque::new(), VecDeque::new(), VecDeque::new()];
        Self { levels, waiting: HashMap::new(), passed_over: [0; LEVELS] }
    }
}

impl<T> PriorityQueue<T> {
    /// Takes in a message with these octets. `false`: too many wait, and it is dropped.
    pub fn push(&mut self, message: T, octets: impl Fn(&T) -> &[u8]) -> bool {
        let octets = octets(&message);
        let spis = octets.first_chunk().copied().unwrap_or_default();
        let of_kind = octets.get(18).map_or(0, |exchange| urgency(ExchangeType(*exchange)));
        // Behind those of its IKE SA that wait already.
        let level = self.waiting.get(&spis).map_or(of_kind, |(level, _)| of_kind.max(*level));
        if self.levels[level].len() >= MOST {
            return false;
        }
        let waiting = self.waiting.entry(spis).or_insert((level, 0));
        *waiting = (level, waiting.1 + 1);
        self.levels[level].push_back((spis, message));
        true
    }

    /// The message whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        let waits = self.levels.each_ref().map(|level| !level.is_empty());
        let waiting = (0..LEVELS).filter(|level| waits[*level]);
        let overdue = waiting.clone().find(|level| self.passed_over[*level] >= IN_A_ROW);
        let level = overdue.or_else(|| waiting.clone().next())?;
        waiting.for_each(|other| self.passed_over[other] += 1);
        self.passed_over[level] = 0;
        let (spis, message) = self.levels[level].pop_front()?;
        if let Some((_, waiting)) = self.waiting.get_mut(&spis) {
            *waiting -= 1;
            if *waiting == 0 {
                self.waiting.remove(&spis);
            }
        }
        Some(message)
    }

    /// Returns `true` if no message waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

fn urgency(exchange: ExchangeType) -> usize {
    match exchange {
        ExchangeType::IKE_SA_INIT | ExchangeType::IKE_SESSION_RESUME | ExchangeType::IKE_AUTH => 2,
        ExchangeType::CREATE_CHILD_SA => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(sa: u8, exchange: ExchangeType) -> Vec<u8> {
        let mut octets = vec![sa; 28];
        octets[18] = exchange.0;
        octets
    }

    #[test]
    fn whoever_begins_an_ike_sa_waits_behind_those_that_are_up() {
        let mut queue = PriorityQueue::default();
        push(&mut queue, 1, ExchangeType::IKE_SESSION_RESUME, 0);
        push(&mut queue, 2, ExchangeType::IKE_SA_INIT, 1);
        push(&mut queue, 3, ExchangeType::INFORMATIONAL, 2);
        assert_eq!(all(&mut queue), [2, 0, 1]);
    }

    fn push(
        queue: &mut PriorityQueue<(u32, Vec<u8>)>,
        sa: u8,
        exchange: ExchangeType,
        number: u32,
    ) -> bool {
        let octets = message(sa, exchange);
        queue.push((number, octets), |(_, octets)| octets)
    }

    fn all(queue: &mut PriorityQueue<(u32, Vec<u8>)>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop()).map(|(number, _)| number).collect()
    }

    #[test]
    fn a_sign_of_life_overtakes_others_handshakes_and_nothing_of_its_own() {
        let mut queue = PriorityQueue::default();
        push(&mut queue, 1, ExchangeType::IKE_SA_INIT, 0);
        push(&mut queue, 2, ExchangeType::CREATE_CHILD_SA, 1);
        push(&mut queue, 3, ExchangeType::INFORMATIONAL, 2);
        push(&mut queue, 2, ExchangeType::INFORMATIONAL, 3);
        assert_eq!(all(&mut queue), [2, 1, 3, 0]);
        assert!(queue.is_empty());
        // Once nothing of it waits any more, its messages are as urgent as any.
        push(&mut queue, 1, ExchangeType::IKE_AUTH, 4);
        push(&mut queue, 2, ExchangeType::INFORMATIONAL, 5);
        assert_eq!(all(&mut queue), [5, 4]);
    }

    #[test]
    fn nobody_waits_for_ever() {
        let mut queue = PriorityQueue::default();
        push(&mut queue, 1, ExchangeType::IKE_SA_INIT, 1);
        let popped = (0..=IN_A_ROW).map(|_| {
            push(&mut queue, 2, ExchangeType::INFORMATIONAL, 2);
            queue.pop().map(|(number, _)| number)
        });
        assert_eq!(popped.filter(|p| *p == Some(1)).count(), 1);
    }

    #[test]
    fn nobody_waits_for_ever_between_two_floods() {
        let mut queue = PriorityQueue::default();
        push(&mut queue, 1, ExchangeType::CREATE_CHILD_SA, 1);
        let popped = (0..=IN_A_ROW).map(|_| {
            push(&mut queue, 2, ExchangeType::INFORMATIONAL, 2);
            push(&mut queue, 3, ExchangeType::IKE_SA_INIT, 3);
            queue.pop().map(|(number, _)| number)
        });
        assert_eq!(popped.filter(|p| *p == Some(1)).count(), 1);
    }

    #[test]
    fn a_lane_holds_only_so_much() {
        let mut queue = PriorityQueue::default();
        let taken =
            (0..2000).filter(|n| push(&mut queue, 1, ExchangeType::IKE_SA_INIT, *n)).count();
        assert_eq!(taken, MOST);
        assert!(push(&mut queue, 2, ExchangeType::INFORMATIONAL, 1), "other levels have room");
        assert!(PriorityQueue::default().push((), |()| &[]), "what is no message is nobody's");
    }
}
