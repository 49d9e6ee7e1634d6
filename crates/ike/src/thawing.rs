//! The surroundings in which a part of an engine is thawed: the clock, the policy, and the rules that are thawed already.

use crate::frozen::values::{identity, write_identity};
use crate::policy_index::PolicyIndex;
use crate::rules::Rules;
use ::crypto::CryptoProviders;
use ::frozen::{Clock, Field, Reader, Unthawable, Writer};
use policy::{ChildTunnel, Credential, Endpoint, IkeTunnel, Mode, Pfs, Role, Secret};
use std::sync::Arc;

const NAME: Field = Field::new(1);
/// Of a tunnel that is not the policy's any more.
const LOCAL: Field = Field::new(2);
const REMOTE: Field = Field::new(3);

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
    /// The phase 2 tunnel that a field names: that of a rule, which may be made up by a peer. One without a rule has been
    /// taken down meanwhile; only its name counts from then on.
    pub fn child(
        &self,
        from: &mut Reader<'_>,
        field: Field,
    ) -> Result<Arc<ChildTunnel>, Unthawable> {
        let name = from.text(field)?;
        if name.is_empty() {
            return Err(from.missing(field));
        }
        let child = self.rules.child(name).cloned();
        Ok(child.unwrap_or_else(|| Arc::new(former_child(name))))
    }

    /// The tunnel of [`write_tunnel`].
    pub fn tunnel(&self, mut from: Reader<'_>) -> Result<Arc<IkeTunnel>, Unthawable> {
        let name = from.text(NAME)?;
        let local = from.record_if_any(LOCAL, "an identity")?;
        let remote = from.record_if_any(REMOTE, "an identity")?;
        let tunnel = match (local, remote) {
            (None, None) => self.policy.tunnel(name).cloned().ok_or_else(|| from.invalid(NAME))?,
            (Some(local), Some(remote)) => {
                Arc::new(former_tunnel(name, identity(local)?, identity(remote)?))
            }
            _ => return Err(from.missing(REMOTE)),
        };
        from.end()?;
        Ok(tunnel)
    }
}

/// Writes the name of a tunnel, and the identities of both ends if the policy has it no more.
pub(crate) fn write_tunnel(to: &mut Writer<'_>, tunnel: &Arc<IkeTunnel>, policy: &PolicyIndex) {
    to.text(NAME, &tunnel.name);
    if !policy.has(tunnel) {
        for (at, end) in [(LOCAL, &tunnel.local), (REMOTE, &tunnel.remote)] {
            to.record_if_any(at, Some(&end.identity), write_identity);
        }
    }
}

fn former_child(name: &str) -> ChildTunnel {
    ChildTunnel {
        name: name.to_owned(),
        role: Role::Responder,
        mode: Mode::Tunnel,
        local: Vec::new(),
        remote: Vec::new(),
        proposals: Vec::new(),
        pfs: Pfs::default(),
        auto_start: false,
        on_demand: false,
    }
}

/// As much of a tunnel as a session needs to close. It authenticates nobody any more.
fn former_tunnel(name: &str, local: policy::Identity, remote: policy::Identity) -> IkeTunnel {
    let end = |identity| Endpoint { address: None, identity };
    let nothing = Credential::PresharedKey(Secret::new(Vec::new()));
    IkeTunnel::new(name, end(local), end(remote), nothing)
}
