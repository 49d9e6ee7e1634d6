//! All tunnels at one time, and counts that outlive their SAs.

use ike::status::{ChildSaStatus, ChildStatus, IkeStatus, State};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Counts of one phase 2 tunnel, or of all. `of` says what each of them is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts([u64; 6]);

impl Counts {
    fn of(sa: &ChildSaStatus) -> Self {
        Self([sa.packets_in, sa.packets_out, sa.bytes_in, sa.bytes_out, sa.refused, sa.rekeys])
    }

    fn of_rekeys(rekeys: u64) -> Self {
        Self([0, 0, 0, 0, 0, rekeys])
    }

    /// Packets received and sent.
    pub fn packets(self) -> [u64; 2] {
        [self.0[0], self.0[1]]
    }

    /// Octets of inner packets received and sent.
    pub fn octets(self) -> [u64; 2] {
        [self.0[2], self.0[3]]
    }

    /// Packets refused.
    pub fn refused(self) -> u64 {
        self.0[4]
    }

    /// Rekeys.
    pub fn rekeys(self) -> u64 {
        self.0[5]
    }

    fn each(self, other: Self, operation: fn(u64, u64) -> u64) -> Self {
        Self(std::array::from_fn(|at| operation(self.0[at], other.0[at])))
    }
}

/// The counts of a tunnel since the gateway has known it.
#[derive(Debug, Default)]
struct Account {
    last: Counts,
    sum: Counts,
    /// The tunnel of `last` had come up by then.
    up_by: Option<Instant>,
}

impl Account {
    /// Takes the counts of a tunnel that has been up for `age`, read between two moments. Returns the part that is new.
    fn note(&mut self, counts: Counts, age: Duration, [from, to]: [Instant; 2]) -> Counts {
        let came_up_after = from.checked_sub(age);
        let came_up_again = came_up_after.zip(self.up_by).is_some_and(|(after, by)| after > by);
        let before = if came_up_again { Counts::default() } else { self.last };
        // No count goes back, whatever order the planes are read in.
        self.last = before.each(counts, u64::max);
        self.up_by = to.checked_sub(age);
        let new = self.last.each(before, u64::saturating_sub);
        self.sum = self.sum.each(new, u64::saturating_add);
        new
    }

    /// Notes that the tunnel is down: it counts from 0 when it comes up again.
    fn end(&mut self) {
        (self.last, self.up_by) = (Counts::default(), None);
    }
}

#[derive(Debug, Default)]
struct TunnelAccount {
    /// The round in which the tunnel was met last.
    round: u64,
    own: Account,
    children: HashMap<String, ChildAccount>,
    /// The sum of the phase 2 tunnels that peers have asked for, once there was one and they have one series.
    asked_for: Option<Counts>,
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
    /// See [`Ledger::of_lasting_series`].
    joins_asked_for: bool,
}

impl Ledger {
    /// For a reader that never takes a series back. The phase 2 tunnels that peers have asked for under a generic policy
    /// have one series for each phase 1 tunnel, whose label `child` is `*`: the peer makes up their names.
    pub fn of_lasting_series() -> Self {
        Self { joins_asked_for: true, ..Self::default() }
    }

    /// Begins now to read all tunnels. Of phase 1 and phase 2 tunnels together, `limit` have series of their own.
    pub fn round(&mut self, limit: usize, now: Instant) -> Round<'_> {
        self.round += 1;
        Round { ledger: self, limit, room: limit, read: now, fleet: Fleet::default() }
    }
}

/// One reading of all tunnels.
#[derive(Debug)]
pub struct Round<'l> {
    ledger: &'l mut Ledger,
    limit: usize,
    /// The series that are left of them.
    room: usize,
    /// The end of the last reading of some tunnels.
    read: Instant,
    fleet: Fleet,
}

impl Round<'_> {
    /// Begins again: the policy has been replaced meanwhile.
    pub fn begin_again(&mut self) {
        self.ledger.round += 1;
        (self.room, self.fleet) = (self.limit, Fleet::default());
    }

    /// Takes in some of the tunnels, in the order of the policy, which were read between the last call and now. The first
    /// of them may be the rest of the last one before.
    pub fn add(&mut self, tunnels: &[IkeStatus], now: Instant) {
        let read = [std::mem::replace(&mut self.read, now), now];
        for tunnel in tunnels {
            self.add_one(tunnel, read);
        }
    }

    fn add_one(&mut self, tunnel: &IkeStatus, read: [Instant; 2]) {
        let Ledger { round, tunnels, children: all, rekeys, joins_asked_for } = &mut *self.ledger;
        let account = match tunnels.get_mut(&tunnel.name) {
            Some(account) => account,
            None => tunnels.entry(tunnel.name.clone()).or_default(),
        };
        let fleet = &mut self.fleet;
        let room = &mut self.room;
        let lines = Lines::of(tunnel);
        // No series may be told twice.
        if std::mem::replace(&mut account.round, *round) != *round {
            match &tunnel.sa {
                Some(sa) => {
                    let counts = Counts::of_rekeys(sa.rekeys);
                    let age = sa.established_for.unwrap_or_default();
                    *rekeys += account.own.note(counts, age, read).rekeys();
                }
                None => account.own.end(),
            }
            fleet.states[0][tunnel.state.number()] += 1;
            if fleet.lists_one_more(room) {
                fleet.tunnels.push(Tunnel {
                    name: tunnel.name.clone(),
                    state: tunnel.state,
                    rekeys: account.own.sum.rekeys(),
                    children: Vec::new(),
                    asked_for: account.asked_for.map(Child::asked_for),
                });
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
            let new = match &child.sa {
                Some(sa) => of_child.own.note(Counts::of(sa), sa.established_for, read),
                None => {
                    of_child.own.end();
                    Counts::default()
                }
            };
            *all = all.each(new, u64::saturating_add);
            fleet.states[1][child.state.number()] += 1;
            fleet.lines.push(lines.line(Some(child)));
            if child.is_asked_for && *joins_asked_for {
                let sum = account.asked_for.unwrap_or_default().each(new, u64::saturating_add);
                account.asked_for = Some(sum);
                if let Some(listed) = fleet.tunnels.last_mut() {
                    let series = listed.asked_for.get_or_insert(Child::asked_for(sum));
                    series.counts = sum;
                    if !series.state.is_up() {
                        series.state = child.state;
                    }
                }
            } else if fleet.lists_one_more(room)
                && let Some(listed) = fleet.tunnels.last_mut()
            {
                let (name, state, counts) = (child.name.clone(), child.state, of_child.own.sum);
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
    /// The phase 2 tunnels that peers have asked for, where they have one series.
    pub asked_for: Option<Child>,
}

/// A phase 2 tunnel.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub name: String,
    pub state: State,
    pub counts: Counts,
}

impl Child {
    /// All those together that peers have asked for, none of which is up so far.
    fn asked_for(counts: Counts) -> Self {
        Self { name: "*".to_owned(), state: State::Down, counts }
    }
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
        scrape_at(ledger, limit, tunnels, Instant::now())
    }

    fn scrape_at(ledger: &mut Ledger, limit: usize, tunnels: &[IkeStatus], now: Instant) -> Fleet {
        let mut round = ledger.round(limit, now);
        tunnels.chunks(1).for_each(|page| round.add(page, now));
        round.finish()
    }

    fn received(fleet: &Fleet) -> u64 {
        fleet.tunnels[0].children[0].counts.packets()[0]
    }

    #[test]
    fn counts_go_on_when_a_tunnel_comes_up_again() {
        let mut ledger = Ledger::default();
        let now = Instant::now();
        let told = [Some(7), Some(9), None, Some(3), Some(4)].map(|packets| {
            let fleet = scrape_at(&mut ledger, 10, &[tunnel("site", packets)], now);
            assert_eq!(fleet.total.packets()[0], received(&fleet));
            received(&fleet)
        });
        assert_eq!(told, [7, 9, 9, 12, 13]);
        // Another tunnel in its place: the total goes on.
        let fleet = scrape(&mut ledger, 10, &[tunnel("other", Some(5))]);
        assert_eq!((received(&fleet), fleet.total.packets()), (5, [18, 36]));
        let fleet = scrape(&mut ledger, 10, &[tunnel("site", Some(1))]);
        assert_eq!((received(&fleet), fleet.total.octets()), (1, [1_900, 3_800]));
    }

    /// A reading in which the only tunnel has been up for so many seconds.
    fn read_with_age(ledger: &mut Ledger, packets: u64, age: u64, now: Instant) -> u64 {
        let mut site = tunnel("site", Some(packets));
        let sa = site.children[0].sa.as_mut().expect("it is up");
        sa.established_for = Duration::from_secs(age);
        received(&scrape_at(ledger, 10, &[site], now))
    }

    #[test]
    fn a_tunnel_that_is_younger_than_the_last_reading_counts_as_a_whole() {
        let mut ledger = Ledger::default();
        let start = Instant::now() + Duration::from_secs(1_000);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(read_with_age(&mut ledger, 10, 100, at(0)), 10);
        assert_eq!(read_with_age(&mut ledger, 15, 160, at(60)), 15);
        // A count that goes back counts nothing.
        assert_eq!(read_with_age(&mut ledger, 14, 220, at(120)), 15);
        assert_eq!(read_with_age(&mut ledger, 18, 20, at(180)), 33);
        assert_eq!(read_with_age(&mut ledger, 19, 80, at(240)), 34);
    }

    #[test]
    fn a_tunnel_that_comes_up_while_it_is_read_counts_once() {
        let mut ledger = Ledger::default();
        let start = Instant::now() + Duration::from_secs(1_000);
        let at = |millis| start + Duration::from_millis(millis);
        for (begun, read, age) in [(0, 500, 100), (1_000, 1_010, 700)] {
            let mut site = tunnel("site", Some(5));
            let sa = site.children[0].sa.as_mut().expect("it is up");
            sa.established_for = Duration::from_millis(age);
            let mut round = ledger.round(10, at(begun));
            round.add(&[site], at(read));
            assert_eq!(received(&round.finish()), 5);
        }
    }

    #[test]
    fn tunnels_that_peers_have_asked_for_have_one_lasting_series() {
        let asked = |number: u64, packets: Option<u64>| {
            let mut site = tunnel("site", packets);
            site.children[0].name = format!("site:10.0.{number}");
            site.children[0].is_asked_for = true;
            site
        };
        let mut ledger = Ledger::of_lasting_series();
        for (number, packets, state) in [
            (1, Some(7), State::Established),
            (2, Some(9), State::Established),
            (3, None, State::Down),
        ] {
            let fleet = scrape(&mut ledger, usize::MAX, &[asked(number, packets)]);
            let [site] = fleet.tunnels.as_slice() else { panic!("{fleet:?}") };
            let series = site.asked_for.as_ref().expect("one for all");
            assert_eq!((series.name.as_str(), series.state), ("*", state));
            assert_eq!(series.counts, fleet.total);
            assert!(site.children.is_empty());
        }
        let mut none = asked(0, None);
        none.children.clear();
        let fleet = scrape(&mut ledger, usize::MAX, &[none]);
        let series = fleet.tunnels[0].asked_for.as_ref().expect("it stays");
        assert_eq!((series.state, series.counts.packets()), (State::Down, [16, 32]));
        // On the page, each has its own name, as long as it is there.
        let fleet = scrape(&mut Ledger::default(), 10, &[asked(1, Some(7))]);
        assert_eq!(fleet.tunnels[0].children[0].name, "site:10.0.1");
    }

    #[test]
    fn tunnels_beyond_the_limit_are_in_the_sums() {
        let all = ["a", "b", "c"].map(|name| tunnel(name, Some(10)));
        for (limit, listed, omitted) in [(6, 3, 0), (5, 3, 1), (3, 2, 3), (1, 1, 5), (0, 0, 6)] {
            let fleet = scrape(&mut Ledger::default(), limit, &all);
            assert_eq!((fleet.tunnels.len(), fleet.omitted()), (listed, omitted), "{limit}");
            assert_eq!(fleet.total.packets(), [30, 60]);
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
        let now = Instant::now();
        let told = |limit, tunnels: &[IkeStatus]| {
            let mut ledger = Ledger::default();
            let rounds = [0; 2].map(|_| scrape_at(&mut ledger, limit, tunnels, now));
            rounds.map(|fleet| format!("{fleet:?}"))
        };
        for limit in 0..10 {
            let all = [tunnel("before", None), whole.clone(), tunnel("z", None)];
            assert_eq!(told(limit, &pieces), told(limit, &all), "{limit}");
        }
        let fleet = scrape(&mut Ledger::default(), 10, &pieces);
        assert_eq!(
            (fleet.lines.len(), fleet.total.packets(), fleet.tunnels.len()),
            (7, [5, 10], 3)
        );
    }

    #[test]
    fn a_tunnel_that_is_met_twice_counts_once() {
        let mut ledger = Ledger::default();
        let now = Instant::now();
        let mut round = ledger.round(10, now);
        round.add(&[tunnel("a", Some(1)), tunnel("b", None)], now);
        round.add(&[tunnel("b", None)], now);
        let fleet = round.finish();
        assert_eq!((fleet.tunnels.len(), fleet.states[0][0]), (2, 1));
    }
}
