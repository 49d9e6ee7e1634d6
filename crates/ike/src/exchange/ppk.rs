//! Postquantum preshared keys: which of them both sides have, before the proofs and in CREATE_CHILD_SA (RFC 9867), and
//! how an initiator announces that it uses them in the proofs or before (RFC 8784).

use crate::config::Config;
use crate::failure::Failure;
use crate::failure::facts::{self, PpkLack};
use crate::proof::trust::Trust;
use crate::sa::keys::{Base, CONFIRMATION, Confirmation, Keys, PpkUse, UsedPpk};
use crate::wire::header::IkeSpi;
use crate::wire::parts::{Parts, status};
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::NotifyType;
use policy::{IkeTunnel, Ppk, Secret};

/// The type of a `PPK_ID` with a fixed name (RFC 8784 §5.1).
const FIXED: u8 = 2;

/// The keys of a tunnel that this side has, by their names.
fn known<'a>(
    tunnel: &'a IkeTunnel,
    trust: &'a Trust,
) -> impl Iterator<Item = (&'a str, &'a Secret)> {
    let ids = tunnel.ppk.iter().flat_map(|ppk| &ppk.ids);
    ids.filter_map(|id| Some((id.as_str(), trust.ppk(id)?)))
}

/// The first key of a tunnel that this side has.
pub(super) fn first<'a>(
    tunnel: &'a IkeTunnel,
    trust: &'a Trust,
) -> Result<(&'a str, &'a Secret), Failure> {
    known(tunnel, trust).next().ok_or_else(|| failure(tunnel, PpkLack::Key, None))
}

pub(super) fn is_required(tunnel: &IkeTunnel) -> bool {
    tunnel.ppk.as_ref().is_some_and(|ppk| ppk.required)
}

pub(super) fn failure(tunnel: &IkeTunnel, lack: PpkLack, asked: Option<String>) -> Failure {
    let known = tunnel.ppk.as_ref().map_or_else(Vec::new, |ppk| ppk.ids.clone());
    let required = is_required(tunnel);
    facts::Ppk { lack, known, asked, required, remote: tunnel.remote.identity.to_string() }.into()
}

/// A name as it goes over the wire.
pub(super) fn ppk_id(id: &str) -> Vec<u8> {
    [&[FIXED], id.as_bytes()].concat()
}

/// The name that the peer has sent; `None` if it is of another type, or no text.
pub(super) fn read_id(data: &[u8]) -> Option<&str> {
    let (&FIXED, id) = data.split_first()? else { return None };
    std::str::from_utf8(id).ok()
}

/// A name that the peer has sent, for the operator.
pub(super) fn printed(data: &[u8]) -> String {
    let octets = data.iter().skip(1).take(Ppk::LONGEST).copied().collect::<Vec<u8>>();
    String::from_utf8_lossy(&octets).escape_debug().to_string()
}

// ---- IKE_SA_INIT

/// Returns `true` if an initiator announces PPKs. Without a key, it announces none that is optional: it could not keep
/// to it.
fn announces(tunnel: &IkeTunnel, trust: &Trust) -> bool {
    is_required(tunnel) || known(tunnel, trust).next().is_some()
}

/// The announcements of an initiator.
pub(crate) fn announcements(tunnel: &IkeTunnel, trust: &Trust, config: &Config) -> Vec<Payload> {
    if !announces(tunnel, trust) {
        return Vec::new();
    }
    let before = config.ppk_before_auth.then(|| status(NotifyType::USE_PPK_INT, vec![]));
    before.into_iter().chain([status(NotifyType::USE_PPK, vec![])]).collect()
}

/// The use of PPKs that a peer's announcements lead to, where this side uses PPKs. Before the proofs is better: it
/// protects the identities, too.
fn common(config: &Config, parts: &Parts<'_>) -> PpkUse {
    let [goes_on, before_proofs, in_proofs] =
        [NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED, NotifyType::USE_PPK_INT, NotifyType::USE_PPK]
            .map(|kind| parts.notify(kind).is_some());
    if config.ppk_before_auth && goes_on && before_proofs {
        PpkUse::BeforeProofs
    } else if in_proofs {
        PpkUse::InProofs
    } else {
        PpkUse::None
    }
}

/// Takes a responder's announcement. Returns an error if the initiator must give up (RFC 8784 §3).
pub(crate) fn agreed(
    tunnel: &IkeTunnel,
    trust: &Trust,
    config: &Config,
    parts: &Parts<'_>,
) -> Result<PpkUse, Failure> {
    let ppk = match announces(tunnel, trust) {
        true => common(config, parts),
        false => PpkUse::None,
    };
    let lacking = is_required(tunnel) && ppk == PpkUse::None;
    if lacking { Err(failure(tunnel, PpkLack::Unannounced, None)) } else { Ok(ppk) }
}

/// The use of PPKs that a responder agrees to, and the one announcement that says so (RFC 9867 §3.1).
pub(crate) fn agree(wanted: bool, config: &Config, parts: &Parts<'_>) -> (PpkUse, Option<Payload>) {
    let ppk = if wanted { common(config, parts) } else { PpkUse::None };
    let announced = match ppk {
        PpkUse::None => None,
        PpkUse::InProofs => Some(status(NotifyType::USE_PPK, vec![])),
        PpkUse::BeforeProofs => Some(status(NotifyType::USE_PPK_INT, vec![])),
    };
    (ppk, announced)
}

// ---- Proposals

/// The keys that an initiator proposes before the proofs.
pub(crate) fn to_propose(
    tunnel: &IkeTunnel,
    trust: &Trust,
) -> Result<Vec<(String, Secret)>, Failure> {
    first(tunnel, trust)?;
    Ok(known(tunnel, trust).map(|(id, ppk)| (id.to_owned(), ppk.clone())).collect())
}

/// Proposes a key whose confirmation is this.
pub(crate) fn proposal(id: &str, confirmation: &Confirmation) -> Payload {
    status(NotifyType::PPK_IDENTITY_KEY, [&ppk_id(id)[..], confirmation.octets()].concat())
}

/// A key that the peer proposes.
struct Proposed<'a> {
    ppk_id: &'a [u8],
    confirmation: &'a [u8],
}

/// The PPKs that the peer proposes; more than this side can have configured are ignored.
fn proposals<'a>(parts: &Parts<'a>) -> impl Iterator<Item = Proposed<'a>> {
    let kind = NotifyType::PPK_IDENTITY_KEY;
    let notifies: Vec<&Notify> =
        parts.notifies.iter().filter(|n| n.kind == kind).copied().collect();
    notifies.into_iter().take(Ppk::MOST).filter_map(|notify| {
        let (ppk_id, confirmation) = notify.data.split_last_chunk::<CONFIRMATION>()?;
        Some(Proposed { ppk_id, confirmation })
    })
}

/// Returns `true` if the peer proposes any key.
pub(crate) fn proposes(parts: &Parts<'_>) -> bool {
    parts.notify(NotifyType::PPK_IDENTITY_KEY).is_some()
}

/// Selects the first proposed key that this side has, with the same octets. Otherwise it says why the first is none.
pub(crate) fn select<'a>(
    parts: &Parts<'_>,
    trust: &'a Trust,
    names: impl Fn(&str) -> bool,
    confirm: impl Fn(&Secret) -> Confirmation,
) -> Result<(String, &'a Secret), (PpkLack, Option<String>)> {
    let mut why = None;
    for Proposed { ppk_id, confirmation } in proposals(parts) {
        let id = read_id(ppk_id).filter(|id| names(id));
        let lack = match (id, id.and_then(|id| trust.ppk(id))) {
            (Some(id), Some(ppk)) if confirm(ppk).is(confirmation) => {
                return Ok((id.to_owned(), ppk));
            }
            (_, Some(_)) => PpkLack::Differs,
            (Some(_), None) => PpkLack::Key,
            (None, None) => PpkLack::Unknown,
        };
        why.get_or_insert_with(|| (lack, Some(printed(ppk_id))));
    }
    Err(why.unwrap_or((PpkLack::Unnamed, None)))
}

/// The answer that selects a key.
pub(crate) fn selection(id: &str) -> Payload {
    status(NotifyType::PPK_IDENTITY, ppk_id(id))
}

/// The place, in the proposals, of the key that the peer has selected; `None`: none of them.
pub(crate) fn selected<'a>(
    mut proposed: impl Iterator<Item = &'a str>,
    parts: &Parts<'_>,
) -> Result<Option<usize>, &'static str> {
    let Some(answer) = parts.notify(NotifyType::PPK_IDENTITY) else { return Ok(None) };
    // RFC 9867 §3.1
    let place = proposed.position(|id| ppk_id(id) == answer.data);
    place.map(Some).ok_or("the peer has selected a PPK that was not proposed")
}

// ---- CREATE_CHILD_SA

/// The key to propose for a new SA: one that the keys of the IKE SA do not have yet (RFC 9867 §3.2).
pub(crate) fn fresh(
    tunnel: &IkeTunnel,
    trust: &Trust,
    keys: &Keys,
    nonce: &[u8],
    spis: (IkeSpi, IkeSpi),
) -> Option<(Base, Payload)> {
    let (id, ppk) = known(tunnel, trust).next()?;
    if keys.ppk.as_deref() == Some(&UsedPpk::of(id, ppk)) {
        return None;
    }
    let told = proposal(id, &keys.confirmation(ppk, &[nonce], spis));
    Some((keys.base(id, ppk), told))
}

/// Takes the answer to a request that has proposed this key: the base of the new SA's keys, where it is not SK_d
/// itself.
pub(crate) fn base_of<'a>(
    proposed: Option<&'a Base>,
    parts: &Parts<'_>,
) -> Result<Option<&'a Base>, &'static str> {
    let Some(base) = proposed else { return Ok(None) };
    Ok(selected([base.ppk.id.as_str()].into_iter(), parts)?.map(|_| base))
}

/// Selects a key for a new SA that the peer asks for.
pub(crate) fn for_new_sa(
    tunnel: &IkeTunnel,
    trust: &Trust,
    keys: &Keys,
    nonce: &[u8],
    spis: (IkeSpi, IkeSpi),
    parts: &Parts<'_>,
) -> Option<(Base, Payload)> {
    let (id, ppk) = select(
        parts,
        trust,
        |id| tunnel.ppk.as_ref().is_some_and(|ppk| ppk.ids.iter().any(|i| i == id)),
        |ppk| keys.confirmation(ppk, &[nonce], spis),
    )
    .ok()?;
    Some((keys.base(&id, ppk), selection(&id)))
}
