//! A store in memory, with one order of all that it does. Its leases are as unreliable as those of etcd may be: they end
//! late after an election, and an old leader that was stuck may end them early.

use cluster::store::{
    Answer, Attempt, Claim, Lease, Member, NodeId, Record, Request, Revision, ServiceId, View,
};
use cluster::{Epoch, Life};
use std::collections::BTreeMap;
use std::time::Duration;

/// Microseconds of the world's time.
pub type Time = u64;

/// The contents of the store. A clone is a backup.
#[derive(Clone, Default)]
pub struct Store {
    revision: u64,
    members_at: u64,
    /// When each joined, and what it has acknowledged.
    members: BTreeMap<NodeId, (u64, u64)>,
    attempts: BTreeMap<NodeId, Attempt>,
    records: BTreeMap<ServiceId, Record>,
    owners: BTreeMap<ServiceId, Lease>,
    /// When they end.
    leases: BTreeMap<Lease, (Time, Duration)>,
    last_lease: i64,
}

impl Store {
    pub fn new(
        members: impl Iterator<Item = NodeId>,
        services: impl Iterator<Item = ServiceId>,
    ) -> Self {
        let mut store = Self { revision: 1, members_at: 1, ..Self::default() };
        store.members = members.map(|node| (node, (1, 1))).collect();
        store.records = services.map(|service| (service, Record::default())).collect();
        store
    }

    /// A node joins. It may claim once all others have acknowledged it.
    pub fn join(&mut self, node: NodeId) {
        let revision = self.change();
        self.members_at = revision.0;
        self.members.insert(node, (revision.0, 0));
    }

    /// A node is removed from the list.
    pub fn remove(&mut self, node: NodeId) {
        if self.members.remove(&node).is_some() {
            self.members_at = self.change().0;
        }
    }

    pub fn answer(&mut self, now: Time, request: &Request) -> Answer {
        match request {
            Request::Grant { ttl } => {
                self.last_lease += 1;
                let lease = Lease(self.last_lease);
                self.leases.insert(lease, (now + micros(*ttl), *ttl));
                Answer::Granted(lease)
            }
            Request::KeepAlive(lease) => {
                let kept = self.leases.get_mut(lease);
                Answer::Kept(kept.map(|(end, ttl)| *end = now + micros(*ttl)).is_some())
            }
            Request::Read { node } => Answer::View(self.view(*node)),
            Request::Attempt { node, seen, life, number } => {
                let present = self.attempts.get(node).map_or(Revision(0), |attempt| attempt.at);
                if present == *seen {
                    let at = self.change();
                    self.attempts.insert(*node, Attempt { at, life: *life, number: *number });
                }
                Answer::Done
            }
            Request::Acknowledge { node, members_at } => {
                // Only the list that is in force is acknowledged.
                if let Some((_, acknowledged)) = self.members.get_mut(node)
                    && self.members_at == members_at.0
                {
                    *acknowledged = members_at.0;
                    self.revision += 1;
                }
                Answer::Done
            }
            Request::Claim(claim) => self.claim(claim),
            Request::Release { service, claim } => {
                if self.owners.contains_key(service) && self.records[service].is_claim_of(claim) {
                    self.owners.remove(service);
                    let at = self.change();
                    let record = self.records.get_mut(service).expect("it has a record");
                    (record.at, record.released) = (at, true);
                }
                Answer::Done
            }
        }
    }

    /// Ends the leases that have run out.
    pub fn expire(&mut self, now: Time) {
        let ended: Vec<Lease> = self
            .leases
            .iter()
            .filter(|(_, (end, _))| *end <= now)
            .map(|(lease, _)| *lease)
            .collect();
        ended.into_iter().for_each(|lease| self.revoke(lease));
    }

    /// Puts a backup in place of what the store has. Names of leases are random numbers in etcd, and none comes twice.
    pub fn put_back(&mut self, backup: Self) {
        *self = Self { last_lease: self.last_lease, ..backup };
    }

    /// As an old leader does: whoever has kept it.
    pub fn revoke_some(&mut self, choice: u64) {
        let leases: Vec<Lease> = self.leases.keys().copied().collect();
        if let Some(lease) =
            usize::try_from(choice).ok().and_then(|n| leases.get(n % leases.len().max(1)))
        {
            self.revoke(*lease);
        }
    }

    /// A new leader gives all leases their time again.
    pub fn elect(&mut self, now: Time) {
        self.leases.values_mut().for_each(|(end, ttl)| *end = now + micros(*ttl) + 1_000_000);
    }

    fn revoke(&mut self, lease: Lease) {
        self.leases.remove(&lease);
        self.owners.retain(|_, of| *of != lease);
        self.revision += 1;
    }

    fn claim(&mut self, claim: &Claim) -> Answer {
        let record = self.records[&claim.service];
        let attempt = self.attempts.get(&claim.node).copied().unwrap_or_default();
        let takes_effect = !self.owners.contains_key(&claim.service)
            && record == claim.seen
            && self.members_at == claim.members_at.0
            && (attempt.life, attempt.number) == (claim.life, claim.attempt)
            && self.leases.contains_key(&claim.lease);
        if !takes_effect {
            return Answer::Refused;
        }
        let at = self.change();
        let epoch = Epoch(record.epoch.0 + 1);
        let Claim { service, node, life, attempt, lease, .. } = *claim;
        let record = Record { at, epoch, node, life, attempt, in_force: false, released: false };
        self.records.insert(service, record);
        self.owners.insert(service, lease);
        Answer::Claimed(at, epoch)
    }

    fn view(&self, node: NodeId) -> View {
        let services = self.records.iter().map(|(service, record)| {
            (*service, Record { in_force: self.owners.contains_key(service), ..*record })
        });
        let members = self.members.iter().map(|(node, (joined, acknowledged))| Member {
            node: *node,
            joined: Revision(*joined),
            acknowledged: Revision(*acknowledged),
        });
        View {
            revision: Revision(self.revision),
            members_at: Revision(self.members_at),
            members: members.collect(),
            attempt: self.attempts.get(&node).copied().unwrap_or_default(),
            services: services.collect(),
        }
    }

    fn change(&mut self) -> Revision {
        self.revision += 1;
        Revision(self.revision)
    }
}

/// The claim of a service, whoever has it.
pub type Holder = (NodeId, Life);

fn micros(duration: Duration) -> Time {
    u64::try_from(duration.as_micros()).unwrap_or(Time::MAX)
}
