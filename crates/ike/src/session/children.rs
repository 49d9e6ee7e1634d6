//! The Child SAs of a session in the order in which they were made, found by what names them however many there are.

use crate::deadlines::Deadline;
use crate::sa::child::ChildSa;
use crate::wire::registry::ProtocolId;
use esp::plane::Spi;
use policy::IkeTunnel;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::time::Instant;

/// Child SAs that a peer may have for each phase 2 tunnel: what bounds the memory it can take.
const CHILDREN_PER_TUNNEL: usize = 8;

/// Phase 2 tunnels that a peer may ask for beyond those of the policy, where that lets it.
const ASKED_FOR: usize = 8;

/// Child SAs of one session.
pub(crate) fn most_children(tunnel: &IkeTunnel) -> usize {
    let asked_for = if tunnel.generic.is_some() { ASKED_FOR } else { 0 };
    CHILDREN_PER_TUNNEL * (tunnel.children.len() + asked_for).max(1)
}

/// So many are looked through; for more there is an index. Most sessions have one.
const FEW: usize = 16;

/// Child SAs, none of them twice.
#[derive(Default)]
pub(crate) struct Children {
    /// Each behind its number, which rises.
    all: Vec<(u64, Box<ChildSa>)>,
    index: Option<Box<Index>>,
}

/// Numbers of Child SAs.
#[derive(Default)]
struct Index {
    by_name: BTreeSet<(Name, u64)>,
    /// By when they have something to do next.
    by_time: BTreeSet<(Instant, u64)>,
}

/// A key that finds a Child SA. None of them changes while the Child SA is there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Inbound(Spi),
    Outbound(Spi),
    /// A number made of its phase 2 tunnel's name; others may have it, too.
    Tunnel(u64),
}

impl Name {
    fn of_tunnel(name: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self::Tunnel(hasher.finish())
    }

    fn all_of(child: &ChildSa) -> [Self; 3] {
        let tunnel = Self::of_tunnel(&child.tunnel.name);
        [Self::Inbound(child.spi_in), Self::Outbound(child.spi_out), tunnel]
    }
}

impl Index {
    fn enter(&mut self, number: u64, child: &ChildSa) {
        self.by_name.extend(Name::all_of(child).map(|name| (name, number)));
        self.by_time.insert((child.deadline().at, number));
    }

    fn leave(&mut self, number: u64, child: &ChildSa) {
        Name::all_of(child).iter().for_each(|name| _ = self.by_name.remove(&(*name, number)));
        self.by_time.remove(&(child.deadline().at, number));
    }
}

impl Children {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &ChildSa> {
        self.all.iter().map(|(_, child)| &**child)
    }

    /// The one made last.
    pub fn last(&self) -> Option<&ChildSa> {
        self.all.last().map(|(_, child)| &**child)
    }

    pub fn by_inbound(&self, spi: Spi) -> Option<&ChildSa> {
        self.under(Name::Inbound(spi)).find(|c| c.spi_in == spi)
    }

    /// The peer's SPIs of ESP and of AH are different ones (RFC 4301 §4.1).
    pub fn by_outbound(&self, protocol: ProtocolId, spi: Spi) -> Option<&ChildSa> {
        self.under(Name::Outbound(spi))
            .find(|c| c.spi_out == spi && c.choice.protocol() == protocol)
    }

    /// Those of a phase 2 tunnel.
    pub fn of_tunnel<'s, 'n>(
        &'s self,
        name: &'n str,
    ) -> impl Iterator<Item = &'s ChildSa> + use<'s, 'n> {
        self.under(Name::of_tunnel(name)).filter(move |c| c.tunnel.name == name)
    }

    /// When one of them has something to do, and what.
    pub fn deadline(&self) -> Option<Deadline> {
        match &self.index {
            Some(index) => self.at(index.by_time.first()?.1).map(|child| child.deadline()),
            None => self.iter().map(ChildSa::deadline).min_by_key(|deadline| deadline.at),
        }
    }

    /// Those that have something to do by now, by inbound SPI.
    pub fn due(&self, now: Instant) -> Vec<Spi> {
        let Some(index) = &self.index else {
            return self.iter().filter(|c| c.deadline().at <= now).map(|c| c.spi_in).collect();
        };
        let due = index.by_time.range(..=(now, u64::MAX)).map(|(_, number)| *number);
        let in_order: BTreeSet<u64> = due.collect();
        in_order.into_iter().filter_map(|number| Some(self.at(number)?.spi_in)).collect()
    }

    /// One that is to be changed.
    pub fn get_mut(&mut self, spi_in: Spi) -> Option<Changing<'_>> {
        let place = self.place(spi_in)?;
        let due = self.all[place].1.deadline().at;
        Some(Changing { children: self, place, due })
    }

    pub fn push(&mut self, child: ChildSa) {
        let number = self.all.last().map_or(0, |(number, _)| number + 1);
        if let Some(index) = &mut self.index {
            index.enter(number, &child);
        }
        self.all.push((number, Box::new(child)));
        if self.index.is_none() && self.all.len() > FEW {
            let mut index = Box::<Index>::default();
            self.all.iter().for_each(|(number, child)| index.enter(*number, child));
            self.index = Some(index);
        }
    }

    pub fn remove(&mut self, spi_in: Spi) -> Option<ChildSa> {
        let (number, child) = self.all.remove(self.place(spi_in)?);
        match &mut self.index {
            Some(_) if self.all.len() < FEW / 2 => self.index = None,
            Some(index) => index.leave(number, &child),
            None => {}
        }
        Some(*child)
    }

    /// Takes all of them.
    pub fn take(&mut self) -> impl Iterator<Item = ChildSa> + use<> {
        std::mem::take(self).all.into_iter().map(|(_, child)| *child)
    }

    /// Gives back room.
    pub fn rest(&mut self) {
        if self.all.capacity() >= 2 * self.all.len() {
            self.all.shrink_to_fit();
        }
    }

    /// Those that may have that name, in order.
    fn under(&self, name: Name) -> impl Iterator<Item = &ChildSa> {
        let found = self.index.iter().flat_map(move |index| {
            index.by_name.range((name, 0)..=(name, u64::MAX)).filter_map(|(_, n)| self.at(*n))
        });
        let all = if self.index.is_none() { &self.all[..] } else { &[] };
        all.iter().map(|(_, child)| &**child).chain(found)
    }

    fn at(&self, number: u64) -> Option<&ChildSa> {
        let place = self.all.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&self.all[place].1)
    }

    fn place(&self, spi_in: Spi) -> Option<usize> {
        let Some(index) = &self.index else {
            return self.all.iter().position(|(_, child)| child.spi_in == spi_in);
        };
        let name = Name::Inbound(spi_in);
        let (_, number) = index.by_name.range((name, 0)..=(name, u64::MAX)).next()?;
        self.all.binary_search_by_key(number, |(number, _)| *number).ok()
    }
}

/// A Child SA that is being changed; when it is let go, its session knows when it is due.
pub(crate) struct Changing<'a> {
    children: &'a mut Children,
    place: usize,
    /// When it was due before.
    due: Instant,
}

impl Deref for Changing<'_> {
    type Target = ChildSa;

    fn deref(&self) -> &ChildSa {
        &self.children.all[self.place].1
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut ChildSa {
        &mut self.children.all[self.place].1
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let due = self.deadline().at;
        let (number, _) = self.children.all[self.place];
        if let Some(index) = &mut self.children.index
            && due != self.due
        {
            index.by_time.remove(&(self.due, number));
            index.by_time.insert((due, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::negotiation::suite::{ChildChoice, ChildSuite};
    use crate::originator::Originator;
    use crate::sa::child::{ChildState, History};
    use crate::sa::lowest_nonce::LowestNonce;
    use esp::plane::{SaId, TrafficSelectors};
    use policy::{AhIntegrity, ChildTunnel, Integrity, Lifetime, Mode, Pfs, Protection, Role};
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::time::Duration;

    fn child(now: Instant, spi_in: u32, spi_out: u32, tunnel: u8, due: u64) -> ChildSa {
        let tunnel = ChildTunnel {
            name: format!("net{tunnel}"),
            role: Role::Both,
            mode: Mode::Tunnel,
            local: vec![],
            remote: vec![],
            proposals: vec![],
            pfs: Pfs::default(),
            auto_start: false,
            on_demand: false,
        };
        let lifetime = Lifetime::new(Duration::from_secs(1));
        let protection = Protection::Ah(AhIntegrity::Mac(Integrity::HmacSha2_256_128));
        ChildSa {
            is_quantum_safe: false,
            tunnel: Arc::new(tunnel),
            choice: ChildChoice { algorithms: ChildSuite::new(protection), lifetime },
            mode: Mode::Tunnel,
            selectors: Arc::new(TrafficSelectors { local: vec![], remote: vec![] }),
            asked: None,
            inbound: SaId(0),
            outbound: SaId(1),
            spi_in: Spi(spi_in),
            spi_out: Spi(spi_out),
            state: ChildState::Established,
            standby: false,
            originator: Originator::ThisSide,
            lowest_nonce: LowestNonce::default(),
            rekey_at: now + Duration::from_secs(due),
            expire_at: now + Duration::from_secs(due + 5),
            rekey_failed: false,
            history: History::new(now),
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push { spi_out: u32, tunnel: u8, due: u64 },
        Remove(u32),
        Replace(u32),
        Renew(u32, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let push = (0..20_u32, 0..20_u8, 0..40_u64);
        prop_oneof![
            6 => push.prop_map(|(spi_out, tunnel, due)| Step::Push { spi_out, tunnel, due }),
            3 => (0..60_u32).prop_map(Step::Remove),
            2 => (0..60_u32).prop_map(Step::Replace),
            2 => (0..60_u32, 0..40_u64).prop_map(|(spi, due)| Step::Renew(spi, due)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        /// The index finds the same Child SAs as a search of all of them, in the same order.
        #[test]
        fn finds_what_a_search_finds(steps in prop::collection::vec(step(), 1..120), at in 0..50_u64) {
            let now = Instant::now();
            let mut children = Children::default();
            let mut made = 0;
            for step in steps {
                match step {
                    Step::Push { spi_out, tunnel, due } => {
                        children.push(child(now, made, spi_out, tunnel, due));
                        made += 1;
                    }
                    Step::Remove(spi) => {
                        let there = children.iter().any(|c| c.spi_in == Spi(spi));
                        prop_assert_eq!(children.remove(Spi(spi)).is_some(), there);
                    }
                    Step::Replace(spi) => {
                        if let Some(mut child) = children.get_mut(Spi(spi)) {
                            child.state = ChildState::Unwanted;
                        }
                    }
                    Step::Renew(spi, due) => {
                        if let Some(mut child) = children.get_mut(Spi(spi)) {
                            child.rekey_at = now + Duration::from_secs(due);
                        }
                    }
                }
                prop_assert!(children.iter().is_sorted_by_key(|c| c.spi_in));
                for n in 0..60 {
                    let searched = children.iter().find(|c| c.spi_in == Spi(n));
                    let found = children.by_inbound(Spi(n));
                    prop_assert_eq!(found.map(|c| c.spi_in), searched.map(|c| c.spi_in));
                }
                for n in 0..20 {
                    let searched = children.iter().find(|c| c.spi_out == Spi(n));
                    let found = children.by_outbound(ProtocolId::AH, Spi(n));
                    prop_assert_eq!(found.map(|c| c.spi_in), searched.map(|c| c.spi_in));
                    prop_assert!(children.by_outbound(ProtocolId::ESP, Spi(n)).is_none());
                    let name = format!("net{n}");
                    let searched = children.iter().filter(|c| c.tunnel.name == name);
                    prop_assert!(children.of_tunnel(&name).map(|c| c.spi_in).eq(searched.map(|c| c.spi_in)));
                }
                let first = children.iter().map(|c| c.deadline().at).min();
                prop_assert_eq!(children.deadline().map(|d| d.at), first);
                let time = now + Duration::from_secs(at);
                let due = children.iter().filter(|c| c.deadline().at <= time).map(|c| c.spi_in);
                prop_assert_eq!(children.due(time), due.collect::<Vec<_>>());
            }
            let indexed = children.index.as_ref().map_or(children.len(), |i| i.by_time.len());
            prop_assert_eq!(indexed, children.len());
            prop_assert_eq!(children.take().count(), indexed);
        }
    }
}
