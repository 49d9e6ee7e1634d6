//! What it takes to thaw a part of an engine: the clock, the policy, and the rules that are thawed already.

use crate::policy_index::PolicyIndex;
use crate::rules::Rules;
use ::crypto::CryptoProviders;
use ::frozen::{Clock, Field, Reader, Unthawable};
use policy::ChildTunnel;
use std::sync::Arc;

/// Everything but the part itself.
#[derive(Clone, Copy)]
pub(crate) struct Thawing<'a> {
    pub clock: Clock,
    /// The policy under which the engine was frozen.
    pub policy: &'a PolicyIndex,
    /// The rules of the plane.
    pub rules: &'a Rules,
    pub crypto: &'a Arc<CryptoProviders>,
}

impl Thawing<'_> {
    /// The phase 2 tunnel that a field names, of the policy or made up by a peer. Its rule is there.
    pub fn child(
        &self,
        from: &mut Reader<'_>,
        field: Field,
    ) -> Result<Arc<ChildTunnel>, Unthawable> {
        let name = from.text(field)?;
        self.rules.child(name).cloned().ok_or_else(|| from.invalid(field))
    }
}
