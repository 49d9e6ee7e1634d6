//! All tunnels at one time, and counts that outlive their SAs.

use ike::status::{ChildStatus, IkeStatus, State};
use std::collections::HashMap;
use std::sync::Arc;

/// Counts of one phase 2 tunnel, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Packets received and sent.
    pub packets: [u64; 2],
    /// Octets of inner packets received and sent.
    pub octets: [u64; 2],
    /// Packets refused.
    pub refused: u64,
    /// Rekeys.
    pub rekeys: u64,
}

impl Counts {
    fn of(child: &ChildStatus) -> Self {
        let Some(sa) = &child.sa else { return Self::default() };
        Self {
            packets: [sa.packets_in, sa.packets_out],
            octets: [sa.bytes_in, sa.bytes_out],
            refused: sa.refused,
            rekeys: sa.rekeys,
        }
    }

    fn each(self) -> [u64; 6] {
        let Self { packets: [p, q], octets: [o, r], refused, rekeys } = self;
        [p, q, o, r, refused, rekeys]
    }

    fn from_each([p, q, o, r, refused, rekeys]: [u64; 6]) -> Self {
        Self { packets: [p, q], octets: [o, r], refused, rekeys }
    }

    fn add(&mut self, other: Self) {
        let (mut sum, other) = (self.each(), other.each());
        sum.iter_mut().zip(other).for_each(|(sum, more)| *sum += more);
        *self = Self::from_each(sum);
    }

    /// The part that is new since `before`: all of it if the tunnel has come up again since, so that it counts from 0.
    fn since(self, before: Self) -> Self {
        let (mut now, before) = (self.each(), before.each());
        if now.iter().zip(before).all(|(now, before)| *now >= before) {
            now.iter_mut().zip(before).for_each(|(now, before)| *now -= before);
        }
        Self::from_each(now)
    }
}

/// The counts of a tunnel since the daemon has known it.
#[derive(Debug, Default)]
struct Account {
    last: Counts,
    sum: Counts,
}

impl Account {
    /// Returns the sum, and the part of it that is new.
    fn note(&mut self, counts: Counts) -> (Counts, Counts) {
        let new = counts.since(self.last);
        self.last = counts;
        self.sum.add(new);
        (self.sum, new)
    }
}

#[derive(Debug, Default)]
struct TunnelAccount {
    /// The round in which the tunnel was met last.
    round: u64,
    own: Account,
    children: HashMap<String, ChildAccount>,
}

#[derive(Debug, Default)]
struct ChildAccount {
    /// The round in which the phase 2 tunnel was met last.
    round: u64,
    own: Account,
}

/// Counts that go on when a tunnel comes up again: the gateway counts from 0 then, and a counter of OpenMetrics must
/// not go back.
#[derive(Debug, Default)]
pub struct Ledger {
    round: u64,
    tunnels: HashMap<String, TunnelAccount>,
    children: Counts,
    rekeys: u64,
}

impl Ledger {
    /// Begins to read all tunnels. Of phase 1 and phase 2 tunnels together, `limit` have series of their own.
    pub fn round(&mut self, limit: usize) -> Round<'_> {
        self.round += 1;
        Round { ledger: self, limit, room: limit, fleet: Fleet::default() }
    }
}

/// One reading of all tunnels.
#[derive(Debug)]
pub struct Round<'l> {
    ledger: &'l mut Ledger,
    limit: usize,
    /// The series that are left of them.
    room: usize,
    fleet: Fleet,
}

impl Round<'_> {
    /// Begins again: the policy has been replaced meanwhile.
    pub fn begin_again(&mut self) {
        self.ledger.round += 1;
        (self.room, self.fleet) = (self.limit, Fleet::default());
    }

    /// Takes in some of the tunnels, in the order of the policy. The first of them may be the rest of the last one before.
    pub fn add(&mut self, tunnels: &[IkeStatus]) {
        for tunnel in tunnels {
            self.add_one(tunnel);
        }
    }

    fn add_one(&mut self, tunnel: &IkeStatus) {
        let Ledger { round, tunnels, children: all, rekeys } = &mut *self.ledger;
        let account = match tunnels.get_mut(&tunnel.name) {
            Some(account) => account,
            None => tunnels.entry(tunnel.name.clone()).or_default(),
        };
        let fleet = &mut self.fleet;
        let room = &mut self.room;
        let lines = Lines::of(tunnel);
        // No series may be told twice.
        if std::mem::replace(&mut account.round, *round) != *round {
            let own = tunnel.sa.as_ref().map_or(0, |sa| sa.rekeys);
            let (own, new) = account.own.note(Counts { rekeys: own, ..Counts::default() });
            *rekeys += new.rekeys;
            fleet.states[0][tunnel.state.number()] += 1;
            if fleet.lists_one_more(room) {
                let (name, state) = (tunnel.name.clone(), tunnel.state);
                let children = Vec::new();
                fleet.tunnels.push(Tunnel { name, state, rekeys: own.rekeys, children });
            }
            if tunnel.children.is_empty() {
                fleet.lines.push(lines.line(None));
            }
        }
        for child in &tunnel.children {
            let of_child = match account.children.get_mut(&child.name) {
                Some(account) => account,
                None => account.children.entry(child.name.clone()).or_default(),
            };
            if std::mem::replace(&mut of_child.round, *round) == *round {
                continue;
            }
            let (counts, new) = of_child.own.note(Counts::of(child));
            all.add(new);
            fleet.states[1][child.state.number()] += 1;
            fleet.lines.push(lines.line(Some(child)));
            if fleet.lists_one_more(room)
                && let Some(listed) = fleet.tunnels.last_mut()
            {
                let (name, state) = (child.name.clone(), child.state);
                listed.children.push(Child { name, state, counts });
            }
        }
    }

    /// The tunnels that were taken in. The counts of others are forgotten.
    pub fn finish(self) -> Fleet {
        let Self { ledger, mut fleet, .. } = self;
        let round = ledger.round;
        ledger.tunnels.retain(|_, account| account.round == round);
        // Peers may name children of their own.
        for account in ledger.tunnels.values_mut() {
            account.children.retain(|_, child| child.round == round);
        }
        fleet.total = ledger.children;
        fleet.ike_rekeys = ledger.rekeys;
        fleet
    }
}

/// All tunnels at the time of a scrape.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// Numbers of phase 1 and of phase 2 tunnels by the number of the state.
    pub(crate) states: [[usize; State::ALL.len()]; 2],
    /// Those with series of their own.
    pub(crate) tunnels: Vec<Tunnel>,
    pub(crate) omitted: usize,
    /// The lines of the page, in the order of the policy.
    pub(crate) lines: Vec<Line>,
    /// The counts of all phase 2 tunnels, also of those that are gone.
    pub(crate) total: Counts,
    /// Rekeys of all IKE SAs.
    pub(crate) ike_rekeys: u64,
}

impl Fleet {
    /// Returns `true` if there is room for one more series. Otherwise the tunnel is omitted.
    fn lists_one_more(&mut self, room: &mut usize) -> bool {
        let left = room.checked_sub(1);
        self.omitted += usize::from(left.is_none());
        *room = left.unwrap_or(0);
        left.is_some()
    }

    /// The number of phase 1 and phase 2 tunnels without series of their own.
    pub fn omitted(&self) -> usize {
        self.omitted
    }
}

/// A phase 1 tunnel.
#[derive(Clone, Debug)]
pub(crate) struct Tunnel {
    pub name: String,
    pub state: State,
    pub rekeys: u64,
    pub children: Vec<Child>,
}

/// A phase 2 tunnel.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub name: String,
    pub state: State,
    pub counts: Counts,
}

/// A line of the page: a phase 2 tunnel, or a phase 1 tunnel without any.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub tunnel: Arc<str>,
    pub child: Option<String>,
    pub state: State,
    /// The peer's identity and address in lower case: text that a reader may look for.
    pub peer: Arc<str>,
}

/// Makes the lines of a phase 1 tunnel.
struct Lines<'t> {
    status: &'t IkeStatus,
    tunnel: Arc<str>,
    peer: Arc<str>,
}

impl<'t> Lines<'t> {
    fn of(status: &'t IkeStatus) -> Self {
        let address = status.sa.as_ref().map(|sa| sa.remote.ip()).or(status.remote_address);
        let address = address.map(|address| address.to_string()).unwrap_or_default();
        let peer = format!("{} {address}", status.remote_id.to_lowercase()).into();
        Self { status, tunnel: status.name.as_str().into(), peer }
    }

    fn line(&self, child: Option<&ChildStatus>) -> Line {
        let state = match child {
            // A child that waits for its IKE SA is being negotiated, too.
            Some(child)
                if (child.state, self.status.state) != (State::Down, State::Negotiating) =>
            {
                child.state
            }
            _ => self.status.state,
        };
        let (tunnel, peer) = (Arc::clone(&self.tunnel), Arc::clone(&self.peer));
        Line { tunnel, child: child.map(|child| child.name.clone()), state, peer }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use esp::plane::Spi;
    use ike::negotiation::suite::ChildSuite;
    use ike::status::ChildSaStatus;
    use policy::{EspEncryption, KeyBits, Lifetime, Mode, Protection};

    /// A tunnel with one child, which is up and has received so many packets, or is down.
    pub fn tunnel(name: &str, packets: Option<u64>) -> IkeStatus {
        let state = if packets.is_some() { State::Established } else { State::Down };
        let mut child = ChildStatus::new(format!("{name}_lan"), Mode::Tunnel);
        child.state = state;
        child.sa = packets.map(|packets| {
            let suite = ChildSuite::new(Protection::aead(EspEncryption::AesGcm16(KeyBits::B128)));
            let mut sa = ChildSaStatus::new(suite, (Spi(1), Spi(2)), Lifetime::default());
            (sa.packets_in, sa.bytes_in) = (packets, packets * 100);
            (sa.packets_out, sa.bytes_out) = (packets * 2, packets * 200);
            sa
        });
        let mut tunnel = IkeStatus::new(name);
        tunnel.state = state;
        tunnel.children = vec![child];
        tunnel
    }

    fn scrape(ledger: &mut Ledger, limit: usize, tunnels: &[IkeStatus]) -> Fleet {
        let mut round = ledger.round(limit);
        tunnels.chunks(1).for_each(|page| round.add(page));
        round.finish()
    }

    fn received(fleet: &Fleet) -> u64 {
        fleet.tunnels[0].children[0].counts.packets[0]
    }

    #[test]
    fn counts_go_on_when_a_tunnel_comes_up_again() {
        let mut ledger = Ledger::default();
        let told = [Some(7), Some(9), None, Some(3), Some(4)].map(|packets| {
            let fleet = scrape(&mut ledger, 10, &[tunnel("site", packets)]);
            assert_eq!(fleet.total.packets[0], received(&fleet));
            received(&fleet)
        });
        assert_eq!(told, [7, 9, 9, 12, 13]);
        // Another tunnel in its place: the total goes on.
        let fleet = scrape(&mut ledger, 10, &[tunnel("other", Some(5))]);
        assert_eq!((received(&fleet), fleet.total.packets), (5, [18, 36]));
        let fleet = scrape(&mut ledger, 10, &[tunnel("site", Some(1))]);
        assert_eq!((received(&fleet), fleet.total.octets), (1, [1_900, 3_800]));
    }

    #[test]
    fn tunnels_beyond_the_limit_are_in_the_sums() {
        let all = ["a", "b", "c"].map(|name| tunnel(name, Some(10)));
        for (limit, listed, omitted) in [(6, 3, 0), (5, 3, 1), (3, 2, 3), (1, 1, 5), (0, 0, 6)] {
            let fleet = scrape(&mut Ledger::default(), limit, &all);
            assert_eq!((fleet.tunnels.len(), fleet.omitted()), (listed, omitted), "{limit}");
            assert_eq!(fleet.total.packets, [30, 60]);
            assert_eq!(fleet.states[1][State::Established.number()], 3);
        }
    }

    #[test]
    fn the_pieces_of_a_tunnel_are_one_tunnel() {
        let mut whole = tunnel("site", Some(1));
        let child = |number| {
            let mut child = whole.children[0].clone();
            child.name = format!("net{number}");
            child
        };
        whole.children = (0..5).map(child).collect();
        let piece = |children: std::ops::Range<usize>| {
            let mut piece = whole.clone();
            piece.children = whole.children[children].to_vec();
            piece
        };
        let pieces =
            [tunnel("before", None), piece(0..2), piece(2..4), piece(4..5), tunnel("z", None)];
        let told = |limit, tunnels: &[IkeStatus]| {
            let mut ledger = Ledger::default();
            let rounds = [0; 2].map(|_| scrape(&mut ledger, limit, tunnels));
            rounds.map(|fleet| format!("{fleet:?}"))
        };
        for limit in 0..10 {
            let all = [tunnel("before", None), whole.clone(), tunnel("z", None)];
            assert_eq!(told(limit, &pieces), told(limit, &all), "{limit}");
        }
        let fleet = scrape(&mut Ledger::default(), 10, &pieces);
        assert_eq!((fleet.lines.len(), fleet.total.packets, fleet.tunnels.len()), (7, [5, 10], 3));
    }

    #[test]
    fn a_tunnel_that_is_met_twice_counts_once() {
        let mut ledger = Ledger::default();
        let mut round = ledger.round(10);
        round.add(&[tunnel("a", Some(1)), tunnel("b", None)]);
        round.add(&[tunnel("b", None)]);
        let fleet = round.finish();
        assert_eq!((fleet.tunnels.len(), fleet.states[0][0]), (2, 1));
    }
}
