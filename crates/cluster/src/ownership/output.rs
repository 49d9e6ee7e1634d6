//! The effects of a node, and its knowledge of a service.

use super::waivers::{Ask, Waiver};
use crate::moment::Moment;
use crate::store::{Epoch, NodeId, Record, Request, Revision, ServiceId};

/// Tells to which request an answer belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub(super) u64);

/// An effect. They are to be carried out in their order: a fence is closed before the request that follows it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this to the store.
    Request {
        /// The name of the request.
        id: RequestId,
        /// The request.
        request: Request,
    },
    /// Ask another node.
    Ask {
        /// The node.
        to: NodeId,
        /// The question.
        ask: Ask,
    },
    /// Promise this to another node.
    Waive {
        /// The node.
        to: NodeId,
        /// The promise.
        waiver: Waiver,
    },
    /// This node owns a service now: its tunnels are to be taken over.
    Taken {
        /// The service.
        service: ServiceId,
        /// The claim.
        claim: Record,
    },
    /// Packets of a service may be sealed and accepted before this moment, and not from it on. [`Moment::ZERO`]: no
    /// longer.
    Fence {
        /// The service.
        service: ServiceId,
        /// The moment.
        until: Moment,
    },
    /// This node does not own a service any more: its address and SAs are to be removed.
    Lost {
        /// The service.
        service: ServiceId,
    },
    /// The store shows an earlier state than before: it was restored from a backup.
    StoreWentBack {
        /// The highest revision that it had shown.
        from: Revision,
        /// Its present revision.
        to: Revision,
    },
}

/// The standing of a service, as a node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing yet.
    Unknown,
    /// Another process owns it.
    Owned(NodeId),
    /// Nobody owns it.
    Vacant,
    /// This node has claimed it, and the store has not answered.
    Claiming,
    /// This node owns it.
    Held {
        /// The number of the claim.
        epoch: Epoch,
        /// The fence.
        until: Moment,
    },
    /// This node is giving it up.
    Releasing,
}
