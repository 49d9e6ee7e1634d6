//! IKEProtection: role, proposals, lifetime and authentication of phase 1 tunnels.

use super::additional::additional;
use super::algorithm::{IKE_ENCRYPTION, IKE_HASH, IKE_PRF};
use super::context::Context;
use super::generic::generic;
use super::ikev1::{self, is_ikev1};
use super::protection::ChildProtection;
use super::table::Table;
use super::value::{ROLE, Word, lifetime};
use crate::validate::rules;
use crate::wording::quoted;
use crate::xml::element::Element;
use crate::xml::options::Algorithm;
use crate::xml::schema::ADDITIONAL_KE;
use crate::{
    AdditionalKe, GenericChild, Group, IkeEncryption, IkeProposal, Integrity, KeyKind, Lifetime,
    Prf, Role, Signature,
};
use std::sync::Arc;

/// An authentication method: the kinds of keys that may sign, or none for a preshared key.
type Method = &'static [KeyKind];

const PRESHARED: Method = &[];
const ECDSA: Method = &[KeyKind::EcdsaP256, KeyKind::EcdsaP384, KeyKind::EcdsaP521];

const METHOD: &[Word<Method>] = &[
    ("Preshared_key", Ok(PRESHARED)),
    ("RSA_signatures", Ok(&[KeyKind::Rsa])),
    ("ECDSA-256", Ok(&[KeyKind::EcdsaP256])),
    ("ECDSA_256", Ok(&[KeyKind::EcdsaP256])),
    ("ECDSA-384", Ok(&[KeyKind::EcdsaP384])),
    ("ECDSA_384", Ok(&[KeyKind::EcdsaP384])),
    ("ECDSA-521", Ok(&[KeyKind::EcdsaP521])),
    ("ECDSA_521", Ok(&[KeyKind::EcdsaP521])),
    ("ECDSA_signatures", Ok(ECDSA)),
    ("Ed25519", Ok(&[KeyKind::Ed25519])),
    ("Digital_signatures", Ok(&KeyKind::ALL)),
];

/// One IKEProtection.
pub(super) struct IkeProtection {
    pub role: Role,
    pub proposals: Vec<IkeProposal>,
    pub lifetime: Lifetime,
    /// `None`: a preshared key.
    pub signature: Option<Signature>,
    pub generic: Option<Arc<GenericChild>>,
}

/// Reads every IKEProtection.
pub(super) fn protections(
    cx: &mut Context<'_>,
    root: &Element<'_>,
    child_protections: &Table<ChildProtection>,
) -> Table<IkeProtection> {
    let mut table = Table::new("IKEProtection");
    for element in root.children_named("IKEProtection") {
        let protection = if is_ikev1(element) {
            ikev1::refuse(element, cx.report);
            None
        } else {
            protection(cx, element, child_protections)
        };
        table.insert(cx, element, "IKE_ProtectionName", protection);
    }
    table
}

fn protection(
    cx: &mut Context<'_>,
    element: &Element<'_>,
    child_protections: &Table<ChildProtection>,
) -> Option<IkeProtection> {
    const VERSION: &[Word<()>] = &[("2", Ok(()))];
    const MODE: &[Word<bool>] =
        &[("None", Ok(false)), ("Main", Ok(true)), ("Aggressive", Ok(true))];

    // All values are read before the first `?`: one run reports every mistake.
    let role = cx.word(element, "IKE_Role", ROLE);
    let version = cx.word(element, "IKE_Version", VERSION);
    let mode = cx.word(element, "IKE_XCHGMode", MODE);
    if let (Some(()), Some(true), Some(attribute)) =
        (version, mode, element.attribute("IKE_XCHGMode"))
    {
        let message = "IKE_XCHGMode has no meaning in IKEv2 and is ignored";
        cx.report.warning(attribute.span(element), message, "write IKE_XCHGMode=\"None\"");
    }
    let use_crl = cx.flag(element, "IKE_Flags_UseCRL");
    let generic = generic(cx, element, role, child_protections);
    let overlap = cx.overlap(element, "IKE_KeyOverlap");
    let offers = proposals(cx, element);
    let (keys, minutes) = method_and_minutes(cx, element).unzip();
    if let (true, Some(true), Some(attribute)) =
        (use_crl, keys.as_ref().map(Vec::is_empty), element.attribute("IKE_Flags_UseCRL"))
    {
        let message = "IKE_Flags_UseCRL has no effect: preshared keys are not on revocation lists";
        cx.report.warning(attribute.span(element), message, "write IKE_Flags_UseCRL=\"No\"");
    }
    let bounds = cx.bounds(element, "IKE", [&minutes.map_or_else(Vec::new, |m| vec![m]), &[]]);
    let why = ["phase 1 is renewed by time alone", "remove its attributes, or write \"0\""];
    cx.idle_window(element, "IKE", bounds, why);
    let role = if element.attribute("IKE_Role").is_some() { role? } else { Role::Both };
    let (keys, offers) = (keys?, offers?);
    let sha1 = keys.contains(&KeyKind::Rsa) && offers.iter().any(IkeProposal::names_sha1);
    if sha1 {
        let message = "SHA is named: a peer that knows nothing better may sign with SHA-1, which can be forged";
        let help = "write HMAC_SHA2_256 and PRF_HMAC_SHA2_256 on both sides as soon as the peer takes them";
        cx.report.warning(element.span(), message, help);
    }
    let signature = (!keys.is_empty()).then_some(Signature { keys, use_crl, sha1 });
    Some(IkeProtection {
        role,
        proposals: offers,
        lifetime: lifetime(minutes?, 0, overlap, bounds),
        signature,
        generic: generic?,
    })
}

/// Reads the values of transforms that concern the whole protection: the keys that may sign (none: a preshared key),
/// and the lifetime in minutes. `None` after an error.
fn method_and_minutes(cx: &mut Context<'_>, element: &Element<'_>) -> Option<(Vec<KeyKind>, u64)> {
    let mut methods = 0;
    let mut keys: Option<Vec<KeyKind>> = None;
    let mut wrong = false;
    let mut minutes: Option<u64> = None;
    for transform in element.children_named("IKETransform") {
        if let Some(attribute) = transform.attribute("IKE_AuthenticationMethod") {
            methods += 1;
            match (cx.word(transform, "IKE_AuthenticationMethod", METHOD), &mut keys) {
                (None, _) => wrong = true,
                (Some(method), None) => keys = Some(method.to_vec()),
                (Some(method), Some(keys)) if method.is_empty() != keys.is_empty() => {
                    let message = "preshared key and signatures in one IKEProtection";
                    let help =
                        "both sides prove themselves one way: write an IKEProtection for each";
                    cx.report.error(attribute.span(transform), message, help);
                    wrong = true;
                }
                (Some(method), Some(keys)) => append(keys, method),
            }
        }
        if let Some(attribute) = transform.attribute("IKE_KeyRefreshMinutes") {
            match (cx.minutes(transform, "IKE_KeyRefreshMinutes"), minutes) {
                (None, _) => wrong = true,
                (Some(new), Some(old)) if new != old => {
                    let shorter = new.min(old);
                    let message = format!(
                        "IKE_KeyRefreshMinutes is {old} above: the shorter, {shorter}, is used"
                    );
                    let help = "one lifetime serves all transforms in IKEv2: write the same";
                    cx.report.warning(attribute.span(transform), message, help);
                    minutes = Some(shorter);
                }
                (Some(new), _) => minutes = Some(new),
            }
        }
        if let Some(kilobytes) = cx.kilobytes(transform, "IKE_KeyRefreshKB").filter(|kb| *kb > 0)
            && let Some(attribute) = transform.attribute("IKE_KeyRefreshKB")
        {
            let message = format!(
                "IKE_KeyRefreshKB {kilobytes} is ignored: phase 1 is renewed by time alone"
            );
            cx.report.warning(attribute.span(transform), message, "write IKE_KeyRefreshKB=\"0\"");
        }
    }
    if methods == 0 && element.children_named("IKETransform").next().is_some() {
        let message = "no IKETransform has an IKE_AuthenticationMethod; Preshared_key is assumed";
        let help = "add <IKETransform IKE_AuthenticationMethod=\"Preshared_key\"/>";
        cx.report.warning(element.span(), message, help);
    }
    (!wrong).then(|| (keys.unwrap_or_default(), minutes.unwrap_or(480)))
}

/// Algorithms that are offered together.
#[derive(Clone, Default)]
struct Offer {
    encryption: Vec<IkeEncryption>,
    integrity: Vec<Integrity>,
    prf: Vec<Prf>,
    groups: Vec<Group>,
    additional: Vec<AdditionalKe>,
}

/// Transforms with several algorithms are offers of their own, those with one are part of every offer; without any
/// of the former, all of the latter are the one offer. `None` after an error.
fn proposals(cx: &mut Context<'_>, element: &Element<'_>) -> Option<Vec<IkeProposal>> {
    const ALGORITHMS: [&str; 4] = ["IKE_Encryption", "IKE_Hash", "IKE_PRF", "IKE_DHGroup"];
    let mut whole: Vec<(&Element<'_>, Offer)> = Vec::new();
    let mut shared = Offer::default();
    // An unknown element is reported, and may hold what seems to be missing.
    let mut good = !element.damaged && element.children.iter().all(|c| c.name == "IKETransform");
    let mut any = false;
    for transform in element.children_named("IKETransform") {
        any = true;
        good &= !transform.damaged;
        let named = ALGORITHMS.iter().filter(|name| transform.attribute(name).is_some()).count();
        if named < 2 {
            good &= read_transform(cx, transform, &mut shared);
        } else {
            let mut offer = Offer::default();
            good &= read_transform(cx, transform, &mut offer);
            whole.push((transform, offer));
        }
        if transform.attributes.is_empty() && !transform.damaged {
            cx.report.warning(transform.span(), "this IKETransform says nothing", "remove it");
        }
    }
    if !any {
        if !element.damaged && element.children.is_empty() {
            let help = "add <IKETransform …/> with IKE_Encryption, IKE_PRF, IKE_Hash, IKE_DHGroup";
            cx.report.error(element.span(), "IKEProtection holds no IKETransform", help);
        }
        return None;
    }
    if !good {
        return None;
    }
    let offers = if whole.is_empty() {
        vec![(element, shared)]
    } else {
        for (_, offer) in &mut whole {
            append(&mut offer.encryption, &shared.encryption);
            append(&mut offer.integrity, &shared.integrity);
            append(&mut offer.prf, &shared.prf);
            append(&mut offer.groups, &shared.groups);
            if offer.additional.is_empty() {
                offer.additional.clone_from(&shared.additional);
            }
        }
        whole
    };
    let mut proposals = Vec::new();
    for (at, offer) in offers {
        good &= split(cx, at, offer, &mut proposals);
    }
    if !good {
        return None;
    }
    let number = rules::number_of_proposals(proposals.len());
    if let Err(problem) = number.and_then(|()| rules::number_of_algorithms(&proposals)) {
        cx.report.error(element.span(), problem.to_string(), "remove some IKETransform");
        return None;
    }
    Some(proposals)
}

fn append<T: PartialEq + Copy>(list: &mut Vec<T>, more: &[T]) {
    for item in more {
        if !list.contains(item) {
            list.push(*item);
        }
    }
}

/// Adds a transform's algorithms to an offer; false after an error.
fn read_transform(cx: &mut Context<'_>, transform: &Element<'_>, offer: &mut Offer) -> bool {
    let encryption = cx.word(transform, "IKE_Encryption", &IKE_ENCRYPTION);
    if let Some(encryption) = encryption {
        cx.advise(transform, "IKE_Encryption", Algorithm::Ike(encryption));
    }
    let integrity = cx.word(transform, "IKE_Hash", &IKE_HASH);
    let prf = cx.word(transform, "IKE_PRF", &IKE_PRF);
    let group = transform.attribute("IKE_DHGroup").and_then(|attribute| {
        let value = cx.trimmed(transform, attribute);
        let group = cx.group(transform, attribute, value)?;
        if group.is_none() {
            let message = "the IKE SA needs a Diffie-Hellman group";
            cx.report.error(attribute.span(transform), message, "use 14, 19 or 20");
        }
        group
    });
    if integrity.is_some_and(Integrity::is_weak) {
        cx.warn_weak(transform, "IKE_Hash", "HMAC_SHA2_256, or SHA for an old peer,");
    }
    if prf.is_some_and(Prf::is_weak) {
        cx.warn_weak(transform, "IKE_PRF", "PRF_HMAC_SHA2_256, or PRF_HMAC_SHA1 for an old peer,");
    }
    // `&=` and not `&&`: each attribute is read, and each mistake reported.
    let mut good = true;
    good &= add(cx, transform, "IKE_Encryption", &mut offer.encryption, encryption);
    good &= add(cx, transform, "IKE_Hash", &mut offer.integrity, integrity);
    good &= add(cx, transform, "IKE_PRF", &mut offer.prf, prf);
    good &= add(cx, transform, "IKE_DHGroup", &mut offer.groups, group);
    good &= match additional(cx, transform) {
        None => false,
        Some(additional) if additional.is_empty() || offer.additional == additional => true,
        Some(additional) if offer.additional.is_empty() => {
            offer.additional = additional;
            true
        }
        Some(_) => {
            let span =
                transform.attribute(ADDITIONAL_KE).map_or(transform.span(), |a| a.span(transform));
            let message =
                format!("another IKETransform has other key exchanges in {ADDITIONAL_KE}");
            cx.report.error(
                span,
                message,
                "write all of them into one, separated by blanks or by |",
            );
            false
        }
    };
    good
}

fn add<T: PartialEq>(
    cx: &mut Context<'_>,
    transform: &Element<'_>,
    name: &str,
    list: &mut Vec<T>,
    item: Option<T>,
) -> bool {
    match (transform.attribute(name), item) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(attribute), Some(item)) => {
            if list.contains(&item) {
                let message = format!("{name} {} is repeated", quoted(&attribute.value));
                cx.report.warning(attribute.span(transform), message, "remove it");
            } else {
                list.push(item);
            }
            true
        }
    }
}

/// Makes proposals of an offer; false after an error. AEAD and other ciphers part, in the order of their first
/// (RFC 7296 §3.3).
fn split(
    cx: &mut Context<'_>,
    at: &Element<'_>,
    mut offer: Offer,
    proposals: &mut Vec<IkeProposal>,
) -> bool {
    // IKE_Hash is the integrity algorithm in IKEv2; without IKE_PRF its hash serves both.
    if offer.prf.is_empty() {
        let prf: Vec<Prf> = offer.integrity.iter().copied().map(Prf::of).collect();
        append(&mut offer.prf, &prf);
    }
    let first_is_aead = offer.encryption.first().is_some_and(|first| first.is_aead());
    let first = offer.encryption.first().copied();
    let (aead, other): (Vec<_>, Vec<_>) =
        offer.encryption.iter().partition(|encryption| encryption.is_aead());
    let missing = [
        (offer.encryption.is_empty(), "IKE_Encryption", "AES-CBC-256"),
        (!other.is_empty() && offer.integrity.is_empty(), "IKE_Hash", "HMAC_SHA2_256"),
        (offer.prf.is_empty(), "IKE_PRF", "PRF_HMAC_SHA2_256"),
        (offer.groups.is_empty(), "IKE_DHGroup", "19"),
    ];
    let mut complete = true;
    for (_, name, example) in missing.iter().filter(|(missing, ..)| *missing) {
        complete = false;
        let message = format!("no {name} is offered");
        let help = format!("add <IKETransform {name}=\"{example}\"/>");
        cx.report.error(at.span(), message, help);
    }
    if !complete {
        return false;
    }
    let [aead, other] =
        [(aead, Vec::new()), (other, offer.integrity)].map(|(encryption, integrity)| {
            (!encryption.is_empty()).then(|| IkeProposal {
                encryption,
                integrity,
                prf: offer.prf.clone(),
                groups: offer.groups.clone(),
                additional: offer.additional.clone(),
            })
        });
    if let (None, Some(first)) = (&other, first)
        && let Some((transform, attribute)) = at
            .children_named("IKETransform")
            .chain([at])
            .find_map(|e| e.attribute("IKE_Hash").map(|a| (e, a)))
    {
        let message = format!("{first} protects integrity itself: IKE_Hash is not used for that");
        cx.report.warning(attribute.span(transform), message, "write IKE_PRF in its place");
    }
    let pair = if first_is_aead { [aead, other] } else { [other, aead] };
    for proposal in pair.into_iter().flatten() {
        if !proposals.contains(&proposal) {
            proposals.push(proposal);
        }
    }
    true
}
