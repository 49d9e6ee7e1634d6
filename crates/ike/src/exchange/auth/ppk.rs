//! Postquantum preshared keys in the proofs (RFC 8784): which one is used, and the keys that it changes.

use super::super::ppk::{failure, first, is_required, ppk_id, printed, read_id};
use crate::failure::Failure;
use crate::failure::facts::{Facts, PpkLack};
use crate::proof::trust::Trust;
use crate::rejection::Rejection;
use crate::sa::attempt::Handshake;
use crate::sa::keys::{Keys, Mixed, PpkUse, ProofKeys};
use crate::wire::parts::{Parts, status};
use crate::wire::payload::Payload;
use crate::wire::registry::NotifyType;
use policy::IkeTunnel;

/// The PPK that an initiator uses in its proof, and the keys that come of it.
pub(super) fn choose(
    tunnel: &IkeTunnel,
    trust: &Trust,
    keys: &Keys,
    handshake: &Handshake,
) -> Result<Option<Mixed>, Failure> {
    if handshake.ppk != PpkUse::InProofs {
        return Ok(None);
    }
    let (id, ppk) = first(tunnel, trust)?;
    Ok(Some(keys.mixed(id, ppk, &handshake.proof_keys)))
}

/// Returns `true` if an initiator also sends the proof that it would make without a PPK.
pub(super) fn may_do_without(tunnel: &IkeTunnel) -> bool {
    !is_required(tunnel)
}

/// The Notifies of an initiator with its proof. `without` is the proof without the PPK.
pub(super) fn request(id: &str, without: Option<&[u8]>) -> Vec<Payload> {
    let without = without.map(|data| status(NotifyType::NO_PPK_AUTH, data.to_vec()));
    [status(NotifyType::PPK_IDENTITY, ppk_id(id))].into_iter().chain(without).collect()
}

/// The Notify of a responder that has used the PPK.
pub(super) fn answer() -> Payload {
    status(NotifyType::PPK_IDENTITY, vec![])
}

/// Returns `true` if the responder has used the PPK. An error: it has not, but had to.
pub(super) fn concluded(
    tunnel: &IkeTunnel,
    mixed: Option<&Mixed>,
    parts: &Parts<'_>,
) -> Result<bool, Failure> {
    let Some(mixed) = mixed else { return Ok(false) };
    let used = parts.notify(NotifyType::PPK_IDENTITY).is_some();
    match used || may_do_without(tunnel) {
        true => Ok(used),
        false => Err(failure(tunnel, PpkLack::Unused, Some(mixed.base.ppk.id.clone()))),
    }
}

/// How a responder checks the proof of an initiator.
pub(super) enum Use<'a> {
    /// With the keys as they are.
    None,
    /// With a PPK that both have.
    Mixed(Mixed),
    /// Without one, as both sides allow: the proof that the initiator would have made then.
    Waived(&'a [u8]),
}

/// Decides how a responder checks a proof (RFC 8784 §3, table 1; RFC 9867 §3.1).
pub(super) fn judge<'a>(
    tunnel: &IkeTunnel,
    trust: &Trust,
    agreed: PpkUse,
    (keys, proof_keys): (&Keys, &ProofKeys),
    parts: &Parts<'a>,
) -> Result<Use<'a>, Rejection> {
    if agreed != PpkUse::InProofs {
        return match &keys.ppk {
            // The responder has selected it before it knew the peer's identity.
            Some(ppk) if known_id(tunnel, Some(&ppk.id)).is_none() => {
                Err(refusal(tunnel, PpkLack::Unknown, Some(ppk.id.clone())))
            }
            None if is_required(tunnel) && agreed == PpkUse::BeforeProofs => {
                Err(refusal(tunnel, PpkLack::Unshared, None))
            }
            None if is_required(tunnel) => Err(refusal(tunnel, PpkLack::Unannounced, None)),
            _ => Ok(Use::None),
        };
    }
    let Some(named) = parts.notify(NotifyType::PPK_IDENTITY) else {
        return Err(refusal(tunnel, PpkLack::Unnamed, None));
    };
    let known = known_id(tunnel, read_id(&named.data));
    if let Some((id, ppk)) = known.and_then(|id| Some((id, trust.ppk(id)?))) {
        return Ok(Use::Mixed(keys.mixed(id, ppk, proof_keys)));
    }
    match parts.notify(NotifyType::NO_PPK_AUTH) {
        Some(without) if !is_required(tunnel) => Ok(Use::Waived(&without.data)),
        _ => {
            let lack = if known.is_some() { PpkLack::Key } else { PpkLack::Unknown };
            Err(refusal(tunnel, lack, Some(printed(&named.data))))
        }
    }
}

fn refusal(tunnel: &IkeTunnel, lack: PpkLack, asked: Option<String>) -> Rejection {
    Rejection::unproven(failure(tunnel, lack, asked))
}

fn known_id<'t>(tunnel: &'t IkeTunnel, id: Option<&str>) -> Option<&'t String> {
    tunnel.ppk.iter().flat_map(|ppk| &ppk.ids).find(|known| Some(known.as_str()) == id)
}

/// The failure of a proof in which a PPK was used: its octets may be the reason, too.
pub(super) fn name_it(mut failure: Failure, id: Option<&str>) -> Failure {
    if let (Facts::Proof(proof), Some(id)) = (&mut *failure.facts, id) {
        proof.ppk = Some(id.to_owned());
    }
    failure
}

/// The warning of an IKE SA that has come up without a PPK, although the policy names one.
pub(super) fn warning(tunnel: &IkeTunnel, used: bool) -> Option<String> {
    let ppk = tunnel.ppk.as_ref().filter(|_| !used)?;
    Some(format!(
        "the IKE SA with {} is up without a PPK: the sides have none of {} in common",
        tunnel.remote.identity,
        ppk.ids.join(", ")
    ))
}
