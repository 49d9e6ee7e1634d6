//! A rule of the policy: traffic that must be protected.

#![forbid(unsafe_code)]

use crate::traffic::TrafficSelectors;

/// Names one rule of the policy: the traffic of one child tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

/// Traffic that must be protected. While no outbound SA serves it, it is dropped and counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub id: RuleId,
    /// Name of the child tunnel, for counters and messages.
    pub tunnel: String,
    /// Its traffic.
    pub selectors: TrafficSelectors,
    /// A packet without an SA asks for one ([`Notice::Acquire`](crate::plane::Notice::Acquire)).
    pub trap: bool,
}
