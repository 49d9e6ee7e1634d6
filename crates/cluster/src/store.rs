//! The requests of a cluster to its store, and the store's answers.
//!
//! All of it is one linearizable order of reads and transactions, as etcd has it. For each service there is a leased key
//! that says that it has an owner, and a record of the last claim, which stays when the lease ends. For each node there
//! is a key with the number of its present attempt: a claim takes effect only under this number, so that a node can make
//! sure that a claim without an answer never will.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The number of a node, never given to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

/// The number of a service address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(pub u32);

/// A random number that a process takes when it starts: tells it from earlier processes of the same node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life(pub u64);

/// Counts the claims of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// A state of the store. Each change raises it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// The store's name of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease(pub i64);

/// A request to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A lease for this node.
    Grant {
        /// Time to live, in whole seconds.
        ttl: Duration,
    },
    /// Keeps the lease.
    KeepAlive(Lease),
    /// A linearizable read of everything in [`View`].
    Read {
        /// The node that asks.
        node: NodeId,
    },
    /// If the node's attempt is still the one of revision `seen`: sets life and number.
    Attempt {
        /// The node that asks.
        node: NodeId,
        /// [`Attempt::at`] as it was read.
        seen: Revision,
        /// The life of the node.
        life: Life,
        /// The number of its claims from now on.
        number: u64,
    },
    /// Notes that a node knows the members of this revision.
    Acknowledge {
        /// The node that asks.
        node: NodeId,
        /// [`View::members_at`] as it was read.
        members_at: Revision,
    },
    /// Claims a service.
    Claim(Claim),
    /// Ends a claim, if it is still in force, and notes that nobody has to wait for its fence.
    Release {
        /// The service.
        service: ServiceId,
        /// The whole claim: a store that was restored gives revisions twice.
        claim: Record,
    },
}

/// A claim of a service. It takes effect if all of these hold: the service has no owner, its record is `seen`, the members
/// are those of `members_at`, and the node's attempt is that of `life` and `attempt`. It then writes a record with the next
/// epoch, and the leased key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The service.
    pub service: ServiceId,
    /// The node that claims.
    pub node: NodeId,
    /// Its life.
    pub life: Life,
    /// The number of its attempt.
    pub attempt: u64,
    /// The lease of the key.
    pub lease: Lease,
    /// The record as it was read.
    pub seen: Record,
    /// [`View::members_at`] as it was read.
    pub members_at: Revision,
}

/// The store's answer to a request. A request may also remain without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Request::Grant`].
    Granted(Lease),
    /// To [`Request::KeepAlive`]: `false` if there is no such lease.
    Kept(bool),
    /// To [`Request::Read`].
    View(View),
    /// To [`Request::Claim`]: [`Record::at`] and the epoch of the new record.
    Claimed(Revision, Epoch),
    /// To [`Request::Claim`]: it has not taken effect, and will not.
    Refused,
    /// To any other request. The next read tells what has become of it.
    Done,
}

/// The contents that a read shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The state that was read.
    pub revision: Revision,
    /// The last change of the list of members.
    pub members_at: Revision,
    /// The members.
    pub members: Vec<Member>,
    /// The attempt of the node that asked.
    pub attempt: Attempt,
    /// The services.
    pub services: BTreeMap<ServiceId, Record>,
}

/// A node that belongs to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub node: NodeId,
    /// The revision at which it joined.
    pub joined: Revision,
    /// The list of members that it knows.
    pub acknowledged: Revision,
}

/// The attempt under which a node's claims take effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// Its last change.
    pub at: Revision,
    /// The life of the node.
    pub life: Life,
    /// Its number.
    pub number: u64,
}

/// The last claim of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Its revision; 0 if nobody ever claimed the service.
    pub at: Revision,
    /// Its epoch.
    pub epoch: Epoch,
    /// The node that claimed.
    pub node: NodeId,
    /// Its life.
    pub life: Life,
    /// The number of its attempt.
    pub attempt: u64,
    /// The leased key is there: the claim is in force.
    pub in_force: bool,
    /// The claim was released by its node, whose fence is closed.
    pub released: bool,
}

impl Record {
    /// Returns `true` if both are of the same claim, in force or not.
    pub fn is_claim_of(&self, other: &Self) -> bool {
        (self.at, self.epoch, self.life, self.attempt)
            == (other.at, other.epoch, other.life, other.attempt)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "service {}", self.0)
    }
}
