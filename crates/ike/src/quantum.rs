//! Whether somebody who records the packets of an SA can read them with a quantum computer later.

use crate::sa::keys::Shield;
use policy::{AdditionalKe, Group, IkeTunnel, Pfs};
use std::fmt;

/// Whether the keys of an SA withstand a quantum computer, or why they do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum QuantumSafety {
    /// ML-KEM or a postquantum preshared key (PPK) is in them.
    Safe,
    /// Those of its successor will.
    AfterRekey,
    /// The peer has not agreed to what the policy allows.
    NotAgreed,
    /// The policy has nothing for it.
    NotInPolicy,
}

impl QuantumSafety {
    pub(crate) fn of_ike(tunnel: &IkeTunnel, shield: Shield) -> Self {
        match shield {
            Shield { messages: true, .. } => Self::Safe,
            // A PPK in the proofs protects all but the first IKE SA.
            Shield { derived: true, .. } => Self::AfterRekey,
            _ if allows(tunnel) => Self::NotAgreed,
            _ => Self::NotInPolicy,
        }
    }

    /// `is_safe`: whether its own keys are. `ike`: of the IKE SA that the Child SA belongs to.
    pub(crate) fn of_child(
        tunnel: &IkeTunnel,
        ike: Option<Shield>,
        pfs: &Pfs,
        is_safe: bool,
    ) -> Self {
        match is_safe {
            true => Self::Safe,
            false if ike.is_some_and(|shield| shield.derived) => Self::AfterRekey,
            false if allows(tunnel) || can(&pfs.offer, &pfs.additional) => Self::NotAgreed,
            false => Self::NotInPolicy,
        }
    }
}

fn allows(tunnel: &IkeTunnel) -> bool {
    let by_exchange = tunnel.proposals.iter().any(|p| can(&p.groups, &p.additional));
    by_exchange || tunnel.ppk.is_some()
}

fn can(groups: &[Group], additional: &[AdditionalKe]) -> bool {
    let mut all = additional.iter().flat_map(|a| &a.methods).chain(groups);
    all.any(|group| group.is_quantum_safe())
}

impl fmt::Display for QuantumSafety {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Safe => "ML-KEM or a PPK is in its keys",
            Self::AfterRekey => "it will be after its next rekey",
            Self::NotAgreed => "ML-KEM or a PPK is allowed by the policy, but not agreed on",
            Self::NotInPolicy => "the policy names neither ML-KEM nor a PPK",
        })
    }
}
