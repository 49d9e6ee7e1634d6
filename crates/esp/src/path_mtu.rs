//! The path MTU to each peer: the configured one, the one of the first hop, and the one that ICMP messages report
//! (RFC 1191, RFC 8201, RFC 4301 §8).
//!
//! ICMP messages are not authentic. One is believed only if it quotes the SPI of a packet that this side has sent. It
//! can only lower the MTU, not below the minimum of every network, and not often, and it is forgotten after a while.

#![forbid(unsafe_code)]

use crate::discard::Discard;
use crate::plane::{SaId, Spi};
use crate::rate::Bucket;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// The treatment of the Don't Fragment bit of the outer IPv4 header in tunnel mode (RFC 4301 §8.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Df {
    /// Set: routers tell of what is too long, and packets are made to fit.
    #[default]
    Set,
    /// Clear: routers fragment what is too long, and nobody tells.
    Clear,
    /// As in the inner packet; set for IPv6, which has none.
    Copy,
}

/// The settings for the networks between the peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// Octets of the longest packet that every path carries. `None`: nobody knows it. Then packets of every length are
    /// sent until a path is known to carry less, and devices and TCP connections are limited to packets that fit 1500.
    pub mtu: Option<u16>,
    /// The bit Don't Fragment.
    pub df: Df,
    /// The time for which a path MTU from an ICMP message is used; `None`: such messages are ignored.
    pub learned_for: Option<Duration>,
}

impl Outer {
    /// RFC 1191 §6.3.
    pub const LEARNED_FOR: Duration = Duration::from_secs(600);

    /// As the default, with paths of unknown MTUs.
    pub const UNKNOWN: Self = Self { mtu: None, df: Df::Set, learned_for: Some(Self::LEARNED_FOR) };

    /// The MTU of Ethernet (RFC 894).
    const ETHERNET: u16 = 1500;

    /// Octets of the longest outer packet by which the lengths of inner packets are chosen beforehand: the MTU of
    /// devices and the MSS of TCP.
    pub fn mtu(&self) -> u16 {
        self.mtu.unwrap_or(Self::ETHERNET)
    }

    /// Octets of the longest outer packet that is sent before a path is known to carry less.
    pub(crate) fn longest(&self) -> usize {
        self.mtu.map_or(usize::MAX, usize::from)
    }
}

impl Default for Outer {
    fn default() -> Self {
        Self { mtu: Some(Self::ETHERNET), ..Self::UNKNOWN }
    }
}

/// The length that packets of an SA may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Fit {
    /// Octets of the longest outer packet that the path carries.
    pub path_mtu: usize,
    /// Octets of the longest inner packet that goes in one piece.
    pub inner_mtu: usize,
    /// The path MTU comes from an ICMP message.
    pub learned: bool,
}

/// The changes of one path's MTU that are accepted at once: a path may have several narrow links. Later changes are
/// accepted now and then.
const CHANGES: u32 = 4;
const CHANGES_EVERY: Duration = Duration::from_secs(10);

/// Common MTUs, for routers that do not name theirs (RFC 1191 §7.1), down to the smallest one that is used.
const PLATEAUS: [usize; 8] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 576];

/// Octets below which nobody is believed: what every host takes in IPv4, and every link carries in IPv6.
pub fn floor(peer: IpAddr) -> usize {
    if peer.is_ipv4() { 576 } else { 1280 }
}

/// The message of a router about a packet that was too long for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooBig {
    /// Octets that it carries; 0: it does not say.
    pub(crate) mtu: usize,
    /// To whom it went.
    pub(crate) peer: IpAddr,
    /// Octets of the packet.
    pub(crate) len: usize,
    /// Of the SA.
    pub(crate) spi: Spi,
}

/// The paths to all peers that SAs go to.
#[derive(Debug, Default)]
pub(crate) struct Paths(BTreeMap<IpAddr, Path>);

/// The path to one peer.
#[derive(Debug)]
struct Path {
    /// SAs of both directions.
    sas: BTreeSet<SaId>,
    /// The SPIs of those that send.
    spis: BTreeSet<Spi>,
    bound: Option<Bound>,
    changes: Bucket,
}

/// A path carries less than is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Octets of the longest packet that it carries.
    pub mtu: usize,
    /// The time at which the system is asked again, since the epoch of the datapath.
    pub until: Duration,
    /// The MTU comes from an ICMP message, not from the system.
    pub learned: bool,
}

/// The path to a peer, as another process goes on with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrozenPath {
    /// The peer.
    pub peer: IpAddr,
    /// The knowledge of the path; `None`: it carries what is configured.
    pub bound: Option<Bound>,
}

impl Paths {
    /// An SA goes to a peer; `spi` is that of one that sends. `system` is asked about peers that are new; returns
    /// whether it is to be asked [again](Self::age) when it matters.
    pub(crate) fn enter(
        &mut self,
        peer: IpAddr,
        sa: SaId,
        spi: Option<Spi>,
        system: &dyn Fn(IpAddr) -> Option<usize>,
    ) -> bool {
        let path = self.0.entry(peer).or_insert_with(|| Path {
            sas: BTreeSet::new(),
            spis: BTreeSet::new(),
            bound: system(peer).map(|mtu| Bound { mtu, until: Duration::ZERO, learned: false }),
            changes: Bucket::new(CHANGES, CHANGES_EVERY),
        });
        path.sas.insert(sa);
        path.spis.extend(spi);
        path.bound.is_some_and(|bound| bound.until.is_zero())
    }

    /// An SA no longer goes to a peer. The path is forgotten with its last SA.
    pub(crate) fn leave(&mut self, peer: IpAddr, sa: SaId, spi: Option<Spi>) {
        let Some(path) = self.0.get_mut(&peer) else { return };
        path.sas.remove(&sa);
        if let Some(spi) = spi {
            path.spis.remove(&spi);
        }
        if path.sas.is_empty() {
            self.0.remove(&peer);
        }
    }

    /// Octets of the longest packet that is known to reach the peer, and whether a network has said so.
    pub(crate) fn mtu(&self, peer: IpAddr) -> (usize, bool) {
        let bound = self.0.get(&peer).and_then(|path| path.bound);
        bound.map_or((usize::MAX, false), |bound| (bound.mtu, bound.learned))
    }

    /// Takes note of what a router says, for as long as `lifetime`. Returns the SAs whose packets must be shorter from
    /// now on; `at_most` is what is configured. A forged message can at worst cause fragmentation.
    pub(crate) fn learn(
        &mut self,
        now: Duration,
        told: &TooBig,
        lifetime: Duration,
        at_most: usize,
    ) -> Result<Vec<SaId>, Discard> {
        let path = self.0.get_mut(&told.peer).ok_or(Discard::MtuUnknown)?;
        if !path.spis.contains(&told.spi) {
            return Err(Discard::MtuUnknown);
        }
        let mtu = match told.mtu {
            // RFC 1191 §5: an old router.
            0 => PLATEAUS.into_iter().find(|plateau| *plateau < told.len).unwrap_or(0),
            mtu => mtu,
        };
        // RFC 8201 §4: no link of IPv6 carries less.
        if told.peer.is_ipv6() && mtu < floor(told.peer) {
            return Err(Discard::MtuRefused);
        }
        let mtu = mtu.max(floor(told.peer));
        let bound = Bound { mtu, until: now.saturating_add(lifetime), learned: true };
        let before = path.bound.map_or(usize::MAX, |bound| bound.mtu);
        if mtu == before {
            path.bound = Some(bound);
            return Ok(Vec::new());
        }
        // Of packets that were on their way when the first of them was told of, or no news.
        if mtu >= before.min(at_most) {
            return Ok(Vec::new());
        }
        if !path.changes.take(now) {
            return Err(Discard::MtuRefused);
        }
        path.bound = Some(bound);
        Ok(path.sas.iter().copied().collect())
    }

    /// Forgets what was learned too long ago, and has `system` say what it knows. Returns the SAs of the paths that
    /// have changed.
    pub(crate) fn age(
        &mut self,
        now: Duration,
        lifetime: Duration,
        system: &dyn Fn(IpAddr) -> Option<usize>,
    ) -> Vec<SaId> {
        let mut changed = Vec::new();
        for (peer, path) in &mut self.0 {
            let Some(before) = path.bound.filter(|bound| bound.until <= now) else { continue };
            let until = now.saturating_add(lifetime);
            path.bound = system(*peer).map(|mtu| Bound { mtu, until, learned: false });
            if path.bound.map(|bound| bound.mtu) != Some(before.mtu) {
                changed.extend(&path.sas);
            }
        }
        changed
    }

    /// The paths to all peers.
    pub(crate) fn frozen(&self) -> Vec<FrozenPath> {
        self.0.iter().map(|(peer, path)| FrozenPath { peer: *peer, bound: path.bound }).collect()
    }

    /// Goes on with a path; no SA goes to the peer yet. Returns `false` if no network can have said that.
    pub(crate) fn go_on(&mut self, FrozenPath { peer, bound }: FrozenPath) -> bool {
        if bound.is_some_and(|bound| bound.mtu == 0 || bound.learned && bound.mtu < floor(peer)) {
            return false;
        }
        let changes = Bucket::new(CHANGES, CHANGES_EVERY);
        let path = Path { sas: BTreeSet::new(), spis: BTreeSet::new(), bound, changes };
        self.0.insert(peer, path);
        true
    }

    /// Forgets the paths that no SA has come to.
    pub(crate) fn forget_unused(&mut self) {
        self.0.retain(|_, path| !path.sas.is_empty());
    }

    /// The time of the next check of a path.
    pub(crate) fn next_age(&self) -> Option<Duration> {
        self.0.values().filter_map(|path| Some(path.bound?.until)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(600);
    const SPI: Spi = Spi(0x1000);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn peer(ipv6: bool) -> IpAddr {
        if ipv6 { [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2].into() } else { [192, 0, 2, 2].into() }
    }

    fn paths() -> Paths {
        let mut paths = Paths::default();
        for ipv6 in [false, true] {
            paths.enter(peer(ipv6), SaId(1), Some(SPI), &|_| None);
            paths.enter(peer(ipv6), SaId(2), None, &|_| None);
        }
        paths
    }

    fn told(ipv6: bool, mtu: usize) -> TooBig {
        TooBig { mtu, peer: peer(ipv6), len: 1500, spi: SPI }
    }

    fn learn(paths: &mut Paths, seconds: u64, told: TooBig) -> Result<usize, Discard> {
        paths.learn(at(seconds), &told, LIFETIME, 1500).map(|sas| sas.len())
    }

    #[test]
    fn a_reported_mtu_is_believed_and_forgotten() {
        for ipv6 in [false, true] {
            let mut paths = paths();
            assert_eq!(learn(&mut paths, 0, told(ipv6, 1400)), Ok(2));
            assert_eq!(paths.mtu(peer(ipv6)), (1400, true));
            assert_eq!(paths.mtu(peer(!ipv6)), (usize::MAX, false), "the other path");
            // Said again: no change, and a longer life.
            assert_eq!(learn(&mut paths, 300, told(ipv6, 1400)), Ok(0));
            assert_eq!(paths.age(at(600), LIFETIME, &|_| None), []);
            assert_eq!(paths.next_age(), Some(at(900)));
            assert_eq!(paths.age(at(900), LIFETIME, &|_| Some(1450)), [SaId(1), SaId(2)]);
            assert_eq!(paths.mtu(peer(ipv6)), (1450, false));
            assert_eq!(paths.next_age(), Some(at(1500)));
            assert_eq!(paths.age(at(1500), LIFETIME, &|_| None), [SaId(1), SaId(2)]);
            assert_eq!((paths.mtu(peer(ipv6)).0, paths.next_age()), (usize::MAX, None));
        }
    }

    #[test]
    fn nobody_raises_it_or_lowers_it_without_end() {
        let mut paths = paths();
        assert_eq!(learn(&mut paths, 0, told(false, 1500)), Ok(0));
        assert_eq!(learn(&mut paths, 0, told(false, 1400)), Ok(2));
        assert_eq!(learn(&mut paths, 0, told(false, 1450)), Ok(0));
        assert_eq!(learn(&mut paths, 0, told(false, 68)), Ok(2));
        assert_eq!(paths.mtu(peer(false)).0, 576);
        assert_eq!(learn(&mut paths, 0, told(true, 1279)), Err(Discard::MtuRefused));
        assert_eq!(learn(&mut paths, 0, told(true, 1280)), Ok(2));
    }

    #[test]
    fn changes_come_slowly() {
        let mut paths = paths();
        let outcomes = (0..10).map(|n| learn(&mut paths, 0, told(false, 1400 - n)));
        let changes = outcomes.filter(Result::is_ok).count();
        assert_eq!(changes, CHANGES as usize);
        assert_eq!(learn(&mut paths, 9, told(false, 1000)), Err(Discard::MtuRefused));
        assert_eq!(learn(&mut paths, 10, told(false, 1000)), Ok(2));
        assert_eq!(learn(&mut paths, 10, told(true, 1400)), Ok(2), "another path");
    }

    #[test]
    fn only_who_has_seen_a_packet_is_believed() {
        let mut paths = paths();
        let foreign = TooBig { spi: Spi(0x1001), ..told(false, 1400) };
        assert_eq!(learn(&mut paths, 0, foreign), Err(Discard::MtuUnknown));
        let elsewhere = TooBig { peer: [198, 51, 100, 1].into(), ..told(false, 1400) };
        assert_eq!(learn(&mut paths, 0, elsewhere), Err(Discard::MtuUnknown));
        paths.leave(peer(false), SaId(1), Some(SPI));
        assert_eq!(learn(&mut paths, 0, told(false, 1400)), Err(Discard::MtuUnknown));
        paths.leave(peer(false), SaId(2), None);
        assert_eq!(paths.0.len(), 1);
    }

    #[test]
    fn a_router_that_does_not_say_is_guessed() {
        let mut paths = paths();
        assert_eq!(learn(&mut paths, 0, told(false, 0)), Ok(2));
        assert_eq!(paths.mtu(peer(false)).0, 1492);
        let shorter = TooBig { len: 1492, ..told(false, 0) };
        assert_eq!(learn(&mut paths, 0, shorter), Ok(2));
        assert_eq!(paths.mtu(peer(false)).0, 1006);
        assert_eq!(learn(&mut paths, 0, told(true, 0)), Ok(2), "a plateau above 1280");
    }

    #[test]
    fn the_system_is_asked_too() {
        let mut paths = Paths::default();
        paths.enter(peer(false), SaId(1), Some(SPI), &|_| Some(1400));
        assert_eq!(paths.mtu(peer(false)), (1400, false));
        // As long as it says the same, nothing changes.
        assert_eq!(paths.next_age(), Some(Duration::ZERO));
        assert_eq!(paths.age(at(5), LIFETIME, &|_| Some(1400)), []);
        assert_eq!(paths.next_age(), Some(at(605)));
        assert_eq!(learn(&mut paths, 6, told(false, 1300)), Ok(1));
        assert_eq!(paths.mtu(peer(false)), (1300, true));
    }
}
