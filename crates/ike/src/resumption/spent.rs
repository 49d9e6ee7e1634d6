//! Tickets of this side that count no more, although they have not expired: they were used, or their IKE SA was deleted
//! or rekeyed (RFC 5723 §4.3.1, §6.2).

use crate::ticket::TicketId;
use std::collections::BTreeMap;

/// Tickets of one tunnel that are remembered.
const MOST: usize = 64;

/// By the tunnel's name.
#[derive(Default)]
pub(crate) struct Spent(pub BTreeMap<String, Of>);

/// The tickets of one tunnel. Times are in seconds since 1970.
#[derive(Default)]
pub(crate) struct Of {
    /// With the time at which each expires.
    pub tickets: Vec<(TicketId, u64)>,
    /// There was no room for one that expires then: until then, no ticket counts.
    pub closed_until: u64,
}

impl Spent {
    /// A ticket counts no more.
    pub fn add(&mut self, tunnel: &str, (id, expires): (TicketId, u64), unix: u64) {
        if expires <= unix {
            return;
        }
        let of = self.0.entry(tunnel.to_owned()).or_default();
        of.tickets.retain(|(known, expires)| *expires > unix && *known != id);
        match of.tickets.len() < MOST {
            true => of.tickets.push((id, expires)),
            false => of.closed_until = of.closed_until.max(expires),
        }
    }

    /// Returns `true` if a ticket may count.
    pub fn admits(&self, tunnel: &str, id: TicketId, unix: u64) -> bool {
        self.0.get(tunnel).is_none_or(|of| {
            of.closed_until <= unix && of.tickets.iter().all(|(known, _)| *known != id)
        })
    }

    /// Returns `true` if there is room for another ticket of the tunnel.
    pub fn has_room(&self, tunnel: &str, unix: u64) -> bool {
        self.0.get(tunnel).is_none_or(|of| {
            let counting = of.tickets.iter().filter(|(_, expires)| *expires > unix);
            of.closed_until <= unix && counting.count() < MOST
        })
    }

    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.0.retain(|tunnel, _| is_there(tunnel));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spent_ticket_counts_no_more_and_a_full_list_closes_the_tunnel() {
        let (mut spent, ids) = (Spent::default(), (0..=64).map(TicketId::numbered));
        let ids: Vec<TicketId> = ids.collect();
        assert!(spent.admits("a", ids[0], 0) && spent.has_room("a", 0));
        for id in &ids[..64] {
            spent.add("a", (*id, 100), 0);
        }
        assert!(!spent.admits("a", ids[0], 99) && spent.admits("a", ids[64], 99));
        assert!(!spent.has_room("a", 99) && spent.has_room("a", 100) && spent.has_room("b", 0));
        // One more than is remembered: none counts until that one has expired.
        spent.add("a", (ids[64], 200), 50);
        assert!(!spent.admits("a", TicketId::numbered(65), 199));
        assert!(spent.admits("a", TicketId::numbered(65), 200));
        assert!(spent.admits("b", ids[0], 0));
        spent.retain(|tunnel| tunnel != "a");
        assert!(spent.admits("a", ids[0], 0));
    }

    #[test]
    fn expired_tickets_leave_room() {
        let mut spent = Spent::default();
        for n in 0..1000 {
            spent.add("a", (TicketId::numbered(n), u64::from(n) + 10), u64::from(n));
            assert!(spent.has_room("a", u64::from(n)));
        }
        spent.add("a", (TicketId::numbered(0), 5), 5);
        assert!(spent.0["a"].tickets.len() <= 10, "what has expired is not remembered");
    }
}
