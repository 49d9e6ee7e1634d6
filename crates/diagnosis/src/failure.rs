//! The explanation of a failure.

mod advice;
mod cause;
mod comparison;
mod peer_settings;

use crate::explanation::{Element, Explanation};
pub(crate) use cause::{by_icmp, obstructed};
use ike::failure::Failure;
use ike::product::Product;

/// The circumstances of a failure's tunnel, beside its facts, as far as the caller knows them. The default knows none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Background<'a> {
    /// The elements of the policy that may have to do with it.
    pub elements: &'a [Element],
    /// The other side may be a stranger in place of the tunnel's peer.
    pub by_stranger: bool,
    /// The peer's daemon, if it is known.
    pub product: Option<&'a Product>,
}

/// Explains a failure.
pub fn explain(failure: &Failure, background: Background<'_>) -> Explanation {
    let comparison = comparison::of(&failure.facts);
    let facts = failure.facts.to_string();
    Explanation {
        cause: cause::of(failure),
        evidence: if facts.is_empty() { Vec::new() } else { vec![facts] },
        cures: advice::on(failure, background, &comparison),
        comparison,
    }
}

#[cfg(test)]
mod tests;
