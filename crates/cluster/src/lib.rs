//! The decision which node of a cluster serves which service address, without I/O.
//!
//! Several gateways share tunnels through a store (etcd). Each *service address* is served by one node at a time, its
//! *owner*, and the tunnels with this address go with it. [`Node`] decides when this node claims a service, and until
//! when it may seal and accept packets for it: the *fence*.
//!
//! ```text
//!  handle_answer  (store)   ┐                       ┌ Request  to the store
//!  handle_hint    (watch)   │    ┌─────────────┐    │ Ask, Waive  to another node
//!  handle_ask     (node)    ├───▶│    Node     │───▶│ Fence    may seal until then
//!  handle_waiver  (node)    │    └─────────────┘poll│ Taken, Lost
//!  handle_timeout (clock)   ┘                       └ StoreWentBack
//! ```
//!
//! # Why there is one owner at a time
//!
//! The owner reads its own claim in the store again and again. A read is linearizable, so a claim that it shows was in
//! force when the read was sent. The fence is that moment, plus [`Settings::hold`], less a margin for the rates of
//! clocks. Another node that finds a service without an owner first waits for `hold` and the margin on its own clock,
//! counted from the answer that showed it. By then the fence of the last owner has passed, whatever ended its claim.
//! Leases of the store only tell that a node is dead; nothing depends on how exactly the store keeps them.
//!
//! If the store does not answer, the owner asks all other members to *waive* their claims for a while. Who waives sends
//! no claim until then. One member that answers the store, or cannot be reached, waives nothing; the fence passes.
//!
//! Times are of CLOCK_BOOTTIME ([`Moment`]), which counts while a machine sleeps, and which nobody can step.
//!
//! # Example
//!
//! A cluster of one node, which claims its only service:
//!
//! ```
//! use cluster::store::{Answer, Attempt, Lease, Member, Record, Request, Revision, View};
//! use cluster::{Life, Moment, Node, NodeId, Output, ServiceId, Settings};
//! use std::collections::BTreeMap;
//! use std::time::Duration;
//!
//! let (me, life, service) = (NodeId(1), Life(7), ServiceId(1));
//! let start = Moment::ZERO;
//! let mut node = Node::new(Settings::default(), me, life, start)?;
//! let view = View {
//!     revision: Revision(9),
//!     members_at: Revision(1),
//!     members: vec![Member { node: me, joined: Revision(1), acknowledged: Revision(1) }],
//!     attempt: Attempt { at: Revision(9), life, number: 1 },
//!     services: BTreeMap::from([(service, Record::default())]),
//! };
//! let (mut now, mut claimed) = (start, false);
//! while !claimed {
//!     now = node.deadline();
//!     node.handle_timeout(now);
//!     while let Some(output) = node.poll() {
//!         let Output::Request { id, request } = output else { continue };
//!         match request {
//!             Request::Grant { .. } => node.handle_answer(now, id, Answer::Granted(Lease(5))),
//!             Request::Read { .. } => node.handle_answer(now, id, Answer::View(view.clone())),
//!             Request::Claim(_) => claimed = true,
//!             _ => {}
//!         }
//!     }
//! }
//! // Nothing is claimed in the first moments of a node's life.
//! assert!(now.since(start) > Settings::default().waiver);
//! # Ok::<(), cluster::InvalidSettings>(())
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | When does a node claim, renew, lose and release a service? | `ownership.rs`, `ownership/service.rs` |
//! | What does a node ask its caller to do? | `ownership/output.rs` |
//! | Which promises do nodes make while the store is away? | `ownership/waivers.rs` |
//! | What does a store have to do? | `store.rs` |
//! | How long does each step take? | `settings.rs` |
//! | Which node claims first? | `rank.rs` |
//!
//! The simulated store, and nodes that are stopped, cut off and killed around it, are in `tests/simulated/`.
#![forbid(unsafe_code)]

mod moment;
mod ownership;
mod rank;
mod settings;
pub mod store;

pub use moment::Moment;
pub use ownership::{Ask, Node, Output, RequestId, Standing, Waiver};
pub use settings::{InvalidSettings, Settings};
pub use store::{Epoch, Life, NodeId, ServiceId};
