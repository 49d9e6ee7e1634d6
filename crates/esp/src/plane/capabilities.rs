//! Optional capabilities of a data plane: one trait for each idea, found through [`Capabilities`].
//!
//! [`Capabilities`] returns `None` for a capability that a plane lacks. Each capability is implemented for that
//! `Option`, too, with the answer of a plane without it. So a caller, or a plane that wraps another one, just calls:
//!
//! ```
//! use esp::filter::Filter;
//! use esp::plane::{DataPlane, Filtering, PlaneError};
//!
//! fn allow_nothing(plane: &mut dyn DataPlane) -> Result<(), PlaneError> {
//!     // An error if the plane has no filter.
//!     plane.filtering().set_filter(Filter::default().into())
//! }
//! ```

use super::{DataPlane, PlaneError, Restored, Resynced, Rule, RuleId, SaId, Spi};
use crate::families::Families;
use crate::filter::{Filter, FilterStatus};
use crate::path_mtu::Fit;
use crate::trace::Trace;
use crate::traffic::PacketSummary;
use policy::Binding;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The capabilities of a data plane. A plane overrides the method of each capability that it has, to return itself.
pub trait Capabilities {
    /// Adds and removes many rules faster than one by one.
    fn bulk_rules(&mut self) -> Option<&mut dyn BulkRules> {
        None
    }
    /// Has to prepare for a rule, which takes time.
    fn preparation(&mut self) -> Option<&mut dyn Preparation> {
        None
    }
    /// Serves SAs without IKE, whose keys outlive a restart.
    fn manual_keying(&mut self) -> Option<&mut dyn ManualKeying> {
        None
    }
    /// Can skip sequence numbers of SAs in use.
    fn replay_counters(&mut self) -> Option<&mut dyn ReplayCounters> {
        None
    }
    /// Decides about traffic that belongs to no tunnel.
    fn filtering(&mut self) -> Option<&mut dyn Filtering> {
        None
    }
    /// Knows the path MTU of its SAs.
    fn path_mtu(&mut self) -> Option<&mut dyn PathMtu> {
        None
    }
    /// Keeps packets that come before their SA.
    fn early_packets(&mut self) -> Option<&mut dyn EarlyPackets> {
        None
    }
    /// Keeps the host from dropping the packets of a peer.
    fn peer_exceptions(&mut self) -> Option<&mut dyn PeerExceptions> {
        None
    }
    /// Keeps SAs in the kernel or in network cards, where they can get lost.
    fn maintenance(&mut self) -> Option<&mut dyn Maintenance> {
        None
    }
    /// Blocks the tunnels' traffic of one address family.
    fn family_switching(&mut self) -> Option<&mut dyn FamilySwitching> {
        None
    }
    /// Has its cryptography done elsewhere, where it has to be counted.
    fn crypto_accounting(&mut self) -> Option<&mut dyn CryptoAccounting> {
        None
    }
    /// The mark and the interface that the packets of a tunnel ([`Rule::tunnel`]) must have beside matching its
    /// selectors, so that tunnels with equal selectors can have packets of their own. By default, selectors alone
    /// decide.
    fn binding_of(&self, _tunnel: &str) -> Binding {
        Binding::default()
    }
}

/// Many rules at once.
pub trait BulkRules {
    /// As [`DataPlane::add_rule`] for each of them. Returns the rules that cannot be added, and why.
    fn add_rules(&mut self, rules: Vec<Rule>) -> Vec<(RuleId, PlaneError)>;
    /// As [`DataPlane::remove_rule`] for each of them.
    fn remove_rules(&mut self, rules: &[RuleId]);
}

/// Adds rules to a plane: at once if it can do so, otherwise one by one. Returns the rules that cannot be added, and
/// why.
pub fn add_rules<P>(plane: &mut P, rules: Vec<Rule>) -> Vec<(RuleId, PlaneError)>
where
    P: DataPlane + ?Sized,
{
    if let Some(bulk) = plane.bulk_rules() {
        return bulk.add_rules(rules);
    }
    let add = |rule: Rule| (rule.id, plane.add_rule(rule));
    rules.into_iter().map(add).filter_map(|(id, added)| Some((id, added.err()?))).collect()
}

/// Removes rules from a plane: at once if it can do so, otherwise one by one.
pub fn remove_rules<P: DataPlane + ?Sized>(plane: &mut P, rules: &[RuleId]) {
    match plane.bulk_rules() {
        Some(bulk) => bulk.remove_rules(rules),
        None => rules.iter().for_each(|rule| plane.remove_rule(*rule)),
    }
}

/// Rules for which the plane has to prepare: it may ask another program to block their traffic first.
pub trait Preparation {
    /// Begins to prepare for a rule that is going to be added. Returns `true` once the plane is prepared:
    /// [`DataPlane::add_rule`] does not wait then. `false`: a [`Notice::Prepared`](super::Notice::Prepared) follows,
    /// and this is to be called again. A rule that is not added after all is to be removed
    /// ([`DataPlane::remove_rule`]).
    fn prepare(&mut self, rule: &Rule) -> bool;
}

impl<T: Preparation + ?Sized> Preparation for Option<&mut T> {
    /// Without the capability, nothing has to be prepared.
    fn prepare(&mut self, rule: &Rule) -> bool {
        self.as_mut().is_none_or(|plane| plane.prepare(rule))
    }
}

/// SAs without IKE ([`manual`](crate::manual)).
pub trait ManualKeying {
    /// Lets the operator choose the number (reqid) by which the system knows a rule's SAs. It is called before the rule
    /// has SAs. A plane whose SAs the system does not know ignores it.
    ///
    /// # Errors
    /// If the number is taken or reserved, or there is no such rule.
    fn set_reqid(&mut self, rule: RuleId, reqid: u32) -> Result<(), PlaneError>;
    /// Lets an outbound SA in standby continue after the sequence number `used`, the last one that its key was used
    /// with.
    ///
    /// # Errors
    /// If the plane cannot, or there is no such SA.
    fn resume(&mut self, sa: SaId, used: u64) -> Result<(), PlaneError>;
    /// Lets an outbound SA use the sequence numbers up to `last` and none above it. Before the first call an SA may use
    /// every number; later calls raise the limit. An SA at its limit sends nothing until the limit is raised.
    ///
    /// # Errors
    /// If the plane cannot, or there is no such SA. Then the former limit holds.
    fn allow(&mut self, sa: SaId, last: u64) -> Result<(), PlaneError>;
    /// The last sequence number that an outbound SA has used; `None` if there is no such SA.
    fn last_sequence(&mut self, sa: SaId) -> Option<u64>;
    /// Removes an outbound SA. Returns the last sequence number that it has used, or where that is not known, one that
    /// it has not passed; `None` if there is no such SA.
    fn retire(&mut self, sa: SaId) -> Option<u64>;
}

impl<T: ManualKeying + ?Sized> ManualKeying for Option<&mut T> {
    /// Without the capability, nothing happens.
    fn set_reqid(&mut self, rule: RuleId, reqid: u32) -> Result<(), PlaneError> {
        self.as_mut().map_or(Ok(()), |plane| plane.set_reqid(rule, reqid))
    }

    /// Without the capability, an error.
    fn resume(&mut self, sa: SaId, used: u64) -> Result<(), PlaneError> {
        let absent = || PlaneError::System {
            what: format!("going on with SA {} after packet {used}", sa.0),
            why: "this data plane always begins with the first one".to_owned(),
        };
        self.as_mut().ok_or_else(absent)?.resume(sa, used)
    }

    /// Without the capability, an error.
    fn allow(&mut self, sa: SaId, last: u64) -> Result<(), PlaneError> {
        let absent = || PlaneError::System {
            what: format!("limiting SA {} to sequence number {last}", sa.0),
            why: "this data plane keeps no such limit".to_owned(),
        };
        self.as_mut().ok_or_else(absent)?.allow(sa, last)
    }

    /// Without the capability, `None`.
    fn last_sequence(&mut self, sa: SaId) -> Option<u64> {
        self.as_mut()?.last_sequence(sa)
    }

    /// Without the capability, `None`.
    fn retire(&mut self, sa: SaId) -> Option<u64> {
        self.as_mut()?.retire(sa)
    }
}

/// The replay counters of SAs in use, where two cluster members use an SA one after the other (RFC 6311 §5.2).
pub trait ReplayCounters {
    /// Skips the next `count` sequence numbers of an SA of either direction. An outbound SA uses none of them; if it
    /// has not so many, it is exhausted. An inbound SA accepts none of them, and none up to there: it goes on as if all
    /// had been received.
    ///
    /// # Errors
    /// If the plane cannot, or there is no such SA.
    fn skip(&mut self, sa: SaId, count: u64) -> Result<(), PlaneError>;
}

impl<T: ReplayCounters + ?Sized> ReplayCounters for Option<&mut T> {
    /// Without the capability, an error.
    fn skip(&mut self, sa: SaId, count: u64) -> Result<(), PlaneError> {
        let absent = || PlaneError::System {
            what: format!("skipping {count} sequence numbers of SA {}", sa.0),
            why: "this data plane uses every number".to_owned(),
        };
        self.as_mut().ok_or_else(absent)?.skip(sa, count)
    }
}

/// Reads the filter in force with its counters.
pub type FilterReader = Box<dyn FnOnce() -> Option<FilterStatus> + Send>;

/// A part of a change of the filter, which any thread may do.
#[must_use = "the change is not complete without it"]
pub struct FilterWork(Box<dyn FnOnce() -> Result<(), PlaneError> + Send>);

impl FilterWork {
    /// Work.
    pub fn new(work: impl FnOnce() -> Result<(), PlaneError> + Send + 'static) -> Self {
        Self(Box::new(work))
    }

    /// There is nothing to do.
    pub fn nothing() -> Self {
        Self::new(|| Ok(()))
    }

    /// Does it.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn run(self) -> Result<(), PlaneError> {
        (self.0)()
    }
}

/// The filter for traffic that belongs to no tunnel.
pub trait Filtering {
    /// Replaces the filter.
    ///
    /// # Errors
    /// If the plane has no filter or the system refuses; the old filter stays in force.
    fn set_filter(&mut self, filter: Arc<Filter>) -> Result<(), PlaneError>;
    /// Begins to replace the filter. Returns the part of the change that may wait for another program. Any thread may
    /// run it; then its result goes to [`finish_filter`](Self::finish_filter), before another change begins.
    ///
    /// # Errors
    /// As [`set_filter`](Self::set_filter).
    fn begin_filter(&mut self, filter: Arc<Filter>) -> Result<FilterWork, PlaneError> {
        self.set_filter(filter).map(|()| FilterWork::nothing())
    }
    /// Ends a change of the filter that has begun. The new filter is in force once the work that this returns is done.
    ///
    /// # Errors
    /// As [`set_filter`](Self::set_filter).
    fn finish_filter(&mut self, outcome: Result<(), PlaneError>) -> Result<FilterWork, PlaneError> {
        outcome.map(|()| FilterWork::nothing())
    }
    /// The work that puts back the parts of the filter on the host that others have changed. `None` if there are none,
    /// or while the filter is being changed.
    fn restore_filter(&mut self) -> Option<FilterWork> {
        None
    }
    /// The filter in force, and its counters; `None` if the plane has none.
    fn filter_status(&mut self) -> Option<FilterStatus>;
    /// As [`filter_status`](Self::filter_status), but the function that this returns, for any thread, waits for another
    /// program if one has the counters.
    fn filter_reader(&mut self) -> FilterReader {
        let status = self.filter_status();
        Box::new(move || status)
    }
    /// Predicts the tunnel or the filter's rule that decides about a packet; `None` if the plane cannot tell.
    fn trace(&mut self, packet: &PacketSummary) -> Option<Trace>;
}

impl<T: Filtering + ?Sized> Filtering for Option<&mut T> {
    /// Without the capability, an error.
    fn set_filter(&mut self, filter: Arc<Filter>) -> Result<(), PlaneError> {
        let absent = || PlaneError::System {
            what: "setting the filter".to_owned(),
            why: "this data plane has none".to_owned(),
        };
        self.as_mut().ok_or_else(absent)?.set_filter(filter)
    }

    /// Without the capability, an error.
    fn begin_filter(&mut self, filter: Arc<Filter>) -> Result<FilterWork, PlaneError> {
        match self {
            Some(plane) => plane.begin_filter(filter),
            None => self.set_filter(filter).map(|()| FilterWork::nothing()),
        }
    }

    /// Without the capability, the outcome.
    fn finish_filter(&mut self, outcome: Result<(), PlaneError>) -> Result<FilterWork, PlaneError> {
        match self {
            Some(plane) => plane.finish_filter(outcome),
            None => outcome.map(|()| FilterWork::nothing()),
        }
    }

    /// Without the capability, `None`.
    fn restore_filter(&mut self) -> Option<FilterWork> {
        self.as_mut()?.restore_filter()
    }

    /// Without the capability, `None`.
    fn filter_reader(&mut self) -> FilterReader {
        match self {
            Some(plane) => plane.filter_reader(),
            None => Box::new(|| None),
        }
    }

    /// Without the capability, `None`.
    fn filter_status(&mut self) -> Option<FilterStatus> {
        self.as_mut()?.filter_status()
    }

    /// Without the capability, `None`.
    fn trace(&mut self, packet: &PacketSummary) -> Option<Trace> {
        self.as_mut()?.trace(packet)
    }
}

/// The path MTU of SAs.
pub trait PathMtu {
    /// The length that packets of an outbound SA may have; `None` if there is no such SA, or the plane cannot tell.
    fn fit(&mut self, sa: SaId) -> Option<Fit>;
}

impl<T: PathMtu + ?Sized> PathMtu for Option<&mut T> {
    /// Without the capability, `None`.
    fn fit(&mut self, sa: SaId) -> Option<Fit> {
        self.as_mut()?.fit(sa)
    }
}

/// Packets that come before their SA: a peer may send on it right behind the answer that creates it.
pub trait EarlyPackets {
    /// Keeps a few ESP packets with this SPI from this address until [`DataPlane::add_inbound`] adds the SA, which then
    /// opens them.
    fn expect_sa(&mut self, spi: Spi, peer: IpAddr);
    /// No SA with this SPI comes: drops the packets that were kept, and counts them.
    fn expect_no_sa(&mut self, spi: Spi);
}

impl<T: EarlyPackets + ?Sized> EarlyPackets for Option<&mut T> {
    /// Without the capability, nothing happens.
    fn expect_sa(&mut self, spi: Spi, peer: IpAddr) {
        if let Some(plane) = self {
            plane.expect_sa(spi, peer);
        }
    }

    /// Without the capability, nothing happens.
    fn expect_no_sa(&mut self, spi: Spi) {
        if let Some(plane) = self {
            plane.expect_no_sa(spi);
        }
    }
}

/// Peers whose own address may lie in the remote selectors of a rule.
pub trait PeerExceptions {
    /// Accepts the packets of a peer, also if its address lies in the remote selectors of a rule: its IKE messages must
    /// arrive before there is an SA. It is called once the rules are there.
    fn expect_peer(&mut self, peer: IpAddr);
}

impl<T: PeerExceptions + ?Sized> PeerExceptions for Option<&mut T> {
    /// Without the capability, nothing happens.
    fn expect_peer(&mut self, peer: IpAddr) {
        if let Some(plane) = self {
            plane.expect_peer(peer);
        }
    }
}

/// SAs and policies outside this process: in the kernel, and in network cards.
pub trait Maintenance {
    /// Puts back the SAs and policies that other programs have removed or changed, and moves SAs into or out of network
    /// cards as the settings want it.
    ///
    /// # Errors
    /// If the system refuses something; the rest is put back all the same.
    fn resync(&mut self) -> Result<Resynced, PlaneError>;
    /// Moves SAs into network cards that had no room for them before and have room now.
    fn use_room(&mut self);
    /// The host's links, addresses or routes have changed: looks for devices that are gone.
    fn network_changed(&mut self);
    /// Puts back the parts of the plane that others have removed from the host: its device, routing rules, routes and
    /// tables of nftables, and what [`resync`](Self::resync) could not put back. Parts that take time are among the
    /// result of a later call, after a [`Notice::HostChanged`](super::Notice::HostChanged).
    ///
    /// # Errors
    /// If the system refuses something; the rest is put back all the same.
    fn restore(&mut self) -> Result<Restored, PlaneError>;
    /// A part of the plane that an SA needs is missing on the host and could not be put back: packets may not pass, or
    /// only the routes keep them from leaving in the clear.
    fn fault(&mut self, sa: SaId) -> Option<String>;
    /// Packets that the plane has taken and dropped because no SA served them, by the name of the tunnel; without the
    /// tunnels that have dropped none, and empty if the plane does not count them.
    fn unserved(&mut self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

impl<T: Maintenance + ?Sized> Maintenance for Option<&mut T> {
    /// Without the capability, nothing was missing.
    fn resync(&mut self) -> Result<Resynced, PlaneError> {
        self.as_mut().map_or(Ok(Resynced::default()), |plane| plane.resync())
    }

    /// Without the capability, nothing happens.
    fn use_room(&mut self) {
        if let Some(plane) = self {
            plane.use_room();
        }
    }

    /// Without the capability, nothing happens.
    fn network_changed(&mut self) {
        if let Some(plane) = self {
            plane.network_changed();
        }
    }

    /// Without the capability, nothing was missing.
    fn restore(&mut self) -> Result<Restored, PlaneError> {
        self.as_mut().map_or(Ok(Restored::default()), |plane| plane.restore())
    }

    /// Without the capability, there is no fault.
    fn fault(&mut self, sa: SaId) -> Option<String> {
        self.as_mut().and_then(|plane| plane.fault(sa))
    }

    /// Without the capability, there are none.
    fn unserved(&mut self) -> BTreeMap<String, u64> {
        self.as_mut().map_or_else(BTreeMap::new, |plane| plane.unserved())
    }
}

/// IPsec of one address family, switched off and on.
pub trait FamilySwitching {
    /// From now on, no packet of a family that is off passes an SA, and no packet passes an SA between addresses of
    /// such a family, in either direction. The traffic of the rules is dropped and counted. At first, both families are
    /// on.
    ///
    /// # Errors
    /// If the plane cannot, or the system refuses a part of it.
    fn set_families(&mut self, families: Families) -> Result<(), PlaneError>;
}

impl<T: FamilySwitching + ?Sized> FamilySwitching for Option<&mut T> {
    /// Without the capability, an error unless both are on.
    fn set_families(&mut self, families: Families) -> Result<(), PlaneError> {
        match self {
            Some(plane) => plane.set_families(families),
            None if families == Families::default() => Ok(()),
            None => Err(PlaneError::System {
                what: "switching off an address family".to_owned(),
                why: "this data plane cannot".to_owned(),
            }),
        }
    }
}

/// Cryptography that is done elsewhere.
pub trait CryptoAccounting {
    /// Brings the counters of [`CryptoProviders`](crypto::CryptoProviders) up to date with the packets that the kernel
    /// and network cards have protected. The counters of this process are always up to date.
    fn count_work(&mut self);
}

impl<T: CryptoAccounting + ?Sized> CryptoAccounting for Option<&mut T> {
    /// Without the capability, nothing happens.
    fn count_work(&mut self) {
        if let Some(plane) = self {
            plane.count_work();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::Datapath;

    #[test]
    fn a_plane_without_a_capability_says_so_or_does_nothing() {
        let mut none: Option<&mut Datapath> = None;
        assert_eq!(none.set_reqid(RuleId(1), 7), Ok(()));
        assert_eq!(
            none.resume(SaId(3), 9).expect_err("it cannot").to_string(),
            "going on with SA 3 after packet 9: this data plane always begins with the first one"
        );
        assert_eq!(none.last_sequence(SaId(3)), None);
        assert_eq!(
            none.skip(SaId(3), 9).expect_err("it cannot").to_string(),
            "skipping 9 sequence numbers of SA 3: this data plane uses every number"
        );
        assert_eq!(
            none.set_filter(Arc::default()).expect_err("it cannot").to_string(),
            "setting the filter: this data plane has none"
        );
        assert!(none.filter_status().is_none());
        assert_eq!(none.fit(SaId(3)), None);
    }
}
