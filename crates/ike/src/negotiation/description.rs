//! Offers in words, for the operator.

use super::transforms::group_of;
use crate::failure::facts::{Alternatives, KEPT, Offer, described};
use crate::wire::payload::{Proposal, Transform};
use crate::wire::registry::{EncryptionId, GroupId, IntegrityId, PrfId, ProtocolId, TransformType};

/// A peer's offer in words: `[AES-GCM-16-256 | PRF-HMAC-SHA1 | ECP-384]`, proposals separated by "or".
pub fn describe(proposals: &[Proposal]) -> String {
    described(&offers(proposals))
}

/// Proposals by name, a bounded number of them: a stranger may have written them.
pub fn offers(proposals: &[Proposal]) -> Vec<Offer> {
    proposals.iter().take(KEPT).map(offer).collect()
}

fn offer(proposal: &Proposal) -> Offer {
    let mut transforms: Vec<Alternatives> = Vec::new();
    if proposal.protocol == ProtocolId::AH {
        transforms.push(Alternatives { kind: "protocol", names: vec!["AH".into()] });
    }
    for transform in &proposal.transforms {
        let (kind, name) = (describe_kind(transform.kind), describe_transform(transform));
        match transforms.iter_mut().find(|t| t.kind == kind) {
            Some(alternatives) if alternatives.names.len() < KEPT => alternatives.names.push(name),
            Some(_) => {}
            None => transforms.push(Alternatives { kind, names: vec![name] }),
        }
    }
    Offer { transforms }
}

fn describe_kind(kind: TransformType) -> &'static str {
    match kind {
        TransformType::ENCR => "encryption",
        TransformType::PRF => "PRF",
        TransformType::INTEG => "integrity",
        TransformType::KE => "group",
        TransformType::ESN => "sequence numbers",
        TransformType::ADDKE1 => "first additional key exchange",
        TransformType::ADDKE2 => "second additional key exchange",
        kind if TransformType::ADDITIONAL.contains(&kind) => "further additional key exchange",
        _ => "other",
    }
}

/// A group as the policy and the log of what was agreed call it.
pub fn describe_group(id: GroupId) -> String {
    group_of(id).map_or_else(|| plain_name(&id.to_string()), |group| group.to_string())
}

/// The registry's names with hyphens.
fn plain_name(name: &str) -> String {
    name.trim_start_matches("ENCR_").trim_start_matches("AUTH_").replace('_', "-")
}

fn describe_transform(transform: &Transform) -> String {
    let name = match transform.kind {
        TransformType::ENCR => plain_name(&EncryptionId(transform.id).to_string()),
        TransformType::PRF => plain_name(&PrfId(transform.id).to_string()),
        TransformType::INTEG => plain_name(&IntegrityId(transform.id).to_string()),
        TransformType::KE => describe_group(GroupId(transform.id)),
        kind if TransformType::ADDITIONAL.contains(&kind) => describe_group(GroupId(transform.id)),
        TransformType::ESN => {
            return if transform.id == 1 { "ESN".into() } else { "no ESN".into() };
        }
        other => format!("{other}:{}", transform.id),
    };
    match transform.key_length {
        Some(bits) => format!("{name}-{bits}"),
        None => name,
    }
}
