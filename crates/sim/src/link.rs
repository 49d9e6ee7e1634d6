//! The wire between hosts: loss, repetition, delay, and messages that a scenario holds or drops.

use crate::chance::Chance;
use crate::host::HostId;
use crate::ladder::Label;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

/// The content of a packet on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// An IKE message.
    Ike(Vec<u8>),
    /// A NAT keepalive.
    Keepalive,
    /// An ESP packet in UDP.
    EspInUdp(Vec<u8>),
    /// An ESP packet as IP protocol 50; it has no ports.
    Esp(Vec<u8>),
    /// An IP packet with AH.
    Ah(Vec<u8>),
}

/// A datagram under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// As the last NAT on the way shows it.
    pub source: SocketAddr,
    /// Where it goes.
    pub destination: SocketAddr,
    /// Its content.
    pub content: Content,
}

/// How the wire treats what a host sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// Datagrams lost of 1,000.
    pub loss: u32,
    /// Datagrams of 1,000 that arrive twice, each copy with its own delay.
    pub repetition: u32,
    /// Time to the other end, drawn for every copy: a wide range reorders.
    pub delay: Range<Duration>,
    /// Whether ESP suffers loss and repetition, too.
    pub spoil_esp: bool,
    /// Further time that ESP and AH take: IKE messages sent later overtake them.
    pub esp_behind: Duration,
}

impl Default for Conditions {
    /// A good link: 10 ms, nothing lost.
    fn default() -> Self {
        Self {
            loss: 0,
            repetition: 0,
            delay: Duration::from_millis(10)..Duration::from_millis(10),
            spoil_esp: false,
            esp_behind: Duration::ZERO,
        }
    }
}

impl Conditions {
    /// A bad link: so many of 1,000 IKE messages lost and as many repeated, and a delay of 1 to 80 ms that reorders
    /// them. ESP is delayed alike, but all of it arrives.
    pub fn bad(permille: u32) -> Self {
        Self {
            loss: permille,
            repetition: permille,
            delay: Duration::from_millis(1)..Duration::from_millis(80),
            spoil_esp: false,
            esp_behind: Duration::ZERO,
        }
    }

    /// Draws the delays of the copies that arrive: none if the datagram is lost.
    pub(crate) fn copies(&self, content: &Content, chance: &mut Chance) -> Vec<Duration> {
        let is_ike = matches!(content, Content::Ike(_) | Content::Keepalive);
        let behind = if is_ike { Duration::ZERO } else { self.esp_behind };
        let spoiled = self.spoil_esp || is_ike;
        if spoiled && chance.happens(self.loss) {
            return Vec::new();
        }
        let mut copies = vec![behind + chance.time(&self.delay)];
        if spoiled && chance.happens(self.repetition) {
            copies.push(behind + chance.time(&self.delay));
        }
        copies
    }
}

/// Names a hold of [`World::hold`](crate::World::hold).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gate(u64);

type Predicate = Box<dyn Fn(&Label) -> bool + Send>;

/// The messages that a scenario picks out.
#[derive(Default)]
pub(crate) struct Gates {
    last: u64,
    closed: Vec<ClosedGate>,
    drops: Vec<PendingDrop>,
}

struct ClosedGate {
    name: Gate,
    from: HostId,
    matches: Predicate,
    held: Vec<Parcel>,
}

struct PendingDrop {
    from: HostId,
    matches: Predicate,
    remaining: u32,
}

/// The outcome for a message at the scenario's gates.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// It goes its way.
    Free(Parcel),
    /// It was kept.
    Held,
    /// It is gone.
    Dropped,
}

impl Gates {
    pub(crate) fn hold(&mut self, from: HostId, matches: Predicate) -> Gate {
        self.last += 1;
        let name = Gate(self.last);
        self.closed.push(ClosedGate { name, from, matches, held: Vec::new() });
        name
    }

    pub(crate) fn drop_next(&mut self, from: HostId, count: u32, matches: Predicate) {
        self.drops.push(PendingDrop { from, matches, remaining: count });
    }

    /// Opens a gate and hands out what it held, in the order sent.
    pub(crate) fn open(&mut self, gate: Gate) -> (Option<HostId>, Vec<Parcel>) {
        match self.closed.iter().position(|g| g.name == gate) {
            Some(at) => {
                let gate = self.closed.remove(at);
                (Some(gate.from), gate.held)
            }
            None => (None, Vec::new()),
        }
    }

    /// Hands out the first of what a gate holds.
    pub(crate) fn take_first(&mut self, gate: Gate) -> Option<Parcel> {
        let gate = self.closed.iter_mut().find(|g| g.name == gate)?;
        (!gate.held.is_empty()).then(|| gate.held.remove(0))
    }

    pub(crate) fn held(&self, gate: Gate) -> &[Parcel] {
        self.closed.iter().find(|g| g.name == gate).map_or(&[], |g| &g.held)
    }

    pub(crate) fn pass(&mut self, from: HostId, parcel: Parcel) -> Passage {
        let Content::Ike(octets) = &parcel.content else { return Passage::Free(parcel) };
        let Some(label) = Label::read(octets) else { return Passage::Free(parcel) };
        let drop = self
            .drops
            .iter_mut()
            .find(|d| d.from == from && d.remaining > 0 && (d.matches)(&label));
        if let Some(drop) = drop {
            drop.remaining -= 1;
            return Passage::Dropped;
        }
        match self.closed.iter_mut().find(|g| g.from == from && (g.matches)(&label)) {
            Some(gate) => {
                gate.held.push(parcel);
                Passage::Held
            }
            None => Passage::Free(parcel),
        }
    }
}

impl fmt::Debug for Gates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gates")
            .field(
                "closed",
                &self.closed.iter().map(|g| (g.name, g.held.len())).collect::<Vec<_>>(),
            )
            .field("drops", &self.drops.iter().map(|d| d.remaining).collect::<Vec<_>>())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::Exchange;

    fn parcel(exchange: u8) -> Parcel {
        let mut octets = vec![0; 28];
        octets[18] = exchange;
        Parcel {
            source: SocketAddr::from(([192, 0, 2, 1], 500)),
            destination: SocketAddr::from(([192, 0, 2, 2], 500)),
            content: Content::Ike(octets),
        }
    }

    #[test]
    fn a_gate_holds_what_matches_until_it_opens() {
        let (left, right) = (HostId(0), HostId(1));
        let mut gates = Gates::default();
        let gate = gates.hold(left, Box::new(|l| l.is_request(Exchange::CreateChild)));
        assert_eq!(gates.pass(left, parcel(36)), Passage::Held);
        assert_eq!(gates.pass(left, parcel(37)), Passage::Free(parcel(37)));
        assert_eq!(gates.pass(right, parcel(36)), Passage::Free(parcel(36)));
        assert_eq!(gates.held(gate), [parcel(36)]);
        assert_eq!(gates.open(gate), (Some(left), vec![parcel(36)]));
        assert_eq!(gates.pass(left, parcel(36)), Passage::Free(parcel(36)));
        assert_eq!(gates.open(gate), (None, vec![]));
    }

    #[test]
    fn a_drop_takes_so_many_and_no_more() {
        let mut gates = Gates::default();
        gates.drop_next(HostId(0), 2, Box::new(|_| true));
        assert_eq!(gates.pass(HostId(0), parcel(36)), Passage::Dropped);
        assert_eq!(gates.pass(HostId(0), parcel(36)), Passage::Dropped);
        assert_eq!(gates.pass(HostId(0), parcel(36)), Passage::Free(parcel(36)));
    }

    #[test]
    fn loss_and_repetition_come_as_often_as_told() {
        let mut chance = Chance::new(3, 0);
        let conditions = Conditions::bad(250);
        let ike = Content::Ike(vec![0; 28]);
        let copies: Vec<usize> =
            (0..10_000).map(|_| conditions.copies(&ike, &mut chance).len()).collect();
        let lost = copies.iter().filter(|&&n| n == 0).count();
        let repeated = copies.iter().filter(|&&n| n == 2).count();
        assert!((2300..2700).contains(&lost), "{lost} of 10000 lost");
        assert!((1700..2100).contains(&repeated), "{repeated} of 10000 repeated");
        let esp = Content::Esp(vec![0; 28]);
        assert!((0..1000).all(|_| conditions.copies(&esp, &mut chance).len() == 1));
    }
}
