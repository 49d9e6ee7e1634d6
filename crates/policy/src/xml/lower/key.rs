//! Preshared keys, found by the identity of the peer.

use super::context::Context;
use crate::validate::rules;
use crate::xml::diagnostic::Span;
use crate::xml::element::Element;
use crate::{Endpoint, Identity, Secret};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Octets below which a key can be guessed from a recorded handshake.
const SHORT: usize = 16;

/// The values of the samples' keys, which everybody knows.
const PLACEHOLDERS: [&str; 2] =
    ["replace-with-the-output-of-openssl-rand-hex-32", "replace-this-key-before-use"];

/// All preshared keys.
pub(super) struct Keys {
    keys: Vec<Key>,
    /// Places in `keys` by the fingerprint of the identity.
    by_peer: BTreeMap<u64, Vec<usize>>,
    /// True if a key's identity could not be read, so that one that seems missing may be that one.
    anonymous: bool,
}

struct Key {
    identity: Identity,
    span: Span,
    used: Cell<bool>,
    /// `None` where the key is wrong, which is reported.
    secret: Option<Secret>,
}

/// Reads all keys of the file.
pub(super) fn keys(cx: &mut Context<'_>, root: &Element<'_>) -> Keys {
    let anonymous = cx.misspelt.contains("IKEPresharedKey");
    let mut keys = Keys { keys: Vec::new(), by_peer: BTreeMap::new(), anonymous };
    for element in root.children_named("IKEPresharedKey") {
        let secret = secret(cx, element);
        let side = cx.only(element, Some("IKEPresharedRemoteID"));
        let inner = side.and_then(|side| cx.only(side, None));
        let identity = inner.and_then(|inner| cx.identity(inner));
        let (Some(inner), Some(identity)) = (inner, identity) else {
            keys.anonymous = true;
            continue;
        };
        let span = inner.attribute("Value").map_or_else(|| inner.span(), |a| a.span(inner));
        if keys.find(&identity).is_some() {
            let message = format!("a second preshared key for {identity}");
            cx.report.error(span, message, "there is one key for each remote identity: remove one");
            continue;
        }
        keys.by_peer.entry(identity.fingerprint()).or_default().push(keys.keys.len());
        keys.keys.push(Key { identity, span, used: Cell::new(false), secret });
    }
    keys
}

fn secret(cx: &mut Context<'_>, element: &Element<'_>) -> Option<Secret> {
    const FORMATS: &[(&str, Result<bool, &str>)] = &[
        ("ASCII", Ok(false)),
        ("HEX", Ok(true)),
        ("Hex", Ok(true)),
        ("EBCDIC", Err("write the octets of the key as HEX")),
    ];
    let hex = match element.attribute("Format") {
        None => false,
        Some(_) => cx.word(element, "Format", FORMATS)?,
    };
    let attribute = element.attribute("Value")?;
    let span = attribute.span(element);
    if PLACEHOLDERS.contains(&attribute.value.trim()) {
        let help = "write a key that only both sides know, with Format=\"HEX\"; make one with: openssl rand -hex 32";
        cx.report.error(span, "placeholder not replaced: this key is not secret", help);
        return None;
    }
    let secret = if hex {
        let digits = attribute.value.trim();
        let digits = digits.strip_prefix("0x").or(digits.strip_prefix("0X")).unwrap_or(digits);
        if digits.len() % 2 == 1 {
            let help = "two digits are one octet: add the missing one";
            cx.report.error(span, "the key has an odd number of hexadecimal digits", help);
            return None;
        }
        let Some(secret) = Secret::from_hex(digits) else {
            let help = "write only 0-9 and a-f, or Format=\"ASCII\"";
            cx.report.error(span, "the key is not hexadecimal", help);
            return None;
        };
        secret
    } else {
        // Blanks are part of the key.
        if !attribute.value.is_ascii() {
            let help = "write the octets of the key as Format=\"HEX\"";
            cx.report.error(span, "the key has characters that are not ASCII", help);
            return None;
        }
        Secret::new(attribute.value.as_bytes().to_vec())
    };
    if rules::key(secret.expose()).is_err() {
        cx.report.error(span, "the key is empty", "make one with: openssl rand -hex 32");
        return None;
    }
    if secret.len() < SHORT {
        let message = format!("the key has fewer than {SHORT} octets and can be guessed");
        cx.report.warning(span, message, "make one with: openssl rand -hex 32 (Format=\"HEX\")");
    }
    Some(secret)
}

impl Keys {
    fn find(&self, identity: &Identity) -> Option<&Key> {
        let alike = self.by_peer.get(&identity.fingerprint()).into_iter().flatten();
        alike.map(|at| &self.keys[*at]).find(|key| key.identity.matches(identity))
    }

    /// A key for an identity with the same value and another type.
    fn of_another_type(&self, identity: &Identity) -> Option<&Key> {
        identity.of_other_types().iter().find_map(|other| self.find(other))
    }

    /// The key of one peer among many; the inner `None` is one that is wrong, which is reported.
    pub fn of(&self, remote: &Identity) -> Option<Option<Secret>> {
        let key = self.find(remote)?;
        key.used.set(true);
        Some(key.secret.clone())
    }

    /// Returns `true` if a key that seems to be missing may be one whose identity could not be read.
    pub fn may_lack(&self) -> bool {
        self.anonymous
    }

    /// Notes that a tunnel which cannot be read might want a key.
    pub fn touch(&self, remote: &Identity) {
        if let Some(key) = self.find(remote) {
            key.used.set(true);
        }
    }

    /// The key for the peer of a tunnel; if there is none, that is reported.
    pub fn for_peer(
        &self,
        cx: &mut Context<'_>,
        span: Span,
        local: &Endpoint,
        remote: &Endpoint,
    ) -> Option<Secret> {
        if let Some(key) = self.find(&remote.identity) {
            key.used.set(true);
            return key.secret.clone();
        }
        // A key in the file counts before one from elsewhere.
        let asked = cx.options.keys.and_then(|keys| keys(&remote.identity));
        if let Some(key) = asked.filter(|key| rules::key(key.expose()).is_ok()) {
            return Some(key);
        }
        // The key may be one that could not be read, whose mistake is reported already.
        if self.anonymous {
            return None;
        }
        let remote = &remote.identity;
        let mut message = format!("no preshared key for the remote identity {remote}");
        let element_of_remote = remote.element().replacen('<', "<PK_", 1);
        let help = match (self.find(&local.identity), self.of_another_type(remote)) {
            (Some(key), _) => {
                key.used.set(true);
                message += &format!("; one exists for this tunnel's own identity {}", key.identity);
                format!(
                    "the IKEPresharedRemoteID of that key must name the other side: swap local for remote there, \
                     {} for {remote}",
                    key.identity
                )
            }
            (None, Some(key)) => {
                key.used.set(true);
                message = format!(
                    "no preshared key for the remote identity {}; one exists for {}, which is of another type",
                    remote.qualified(),
                    key.identity.qualified()
                );
                format!(
                    "write {element_of_remote} into the IKEPresharedRemoteID of that key, or {} into the \
                     IKERemoteIdentity; the peer must name itself by the same type",
                    key.identity.element()
                )
            }
            (None, None) => {
                format!("add an IKEPresharedKey whose IKEPresharedRemoteID has {element_of_remote}")
            }
        };
        cx.report.error(span, message, help);
        None
    }

    /// Warns of keys that no tunnel uses.
    pub fn warn_unused(&self, cx: &mut Context<'_>) {
        for key in self.keys.iter().filter(|key| !key.used.get()) {
            let message = format!("no tunnel has the remote identity {} of this key", key.identity);
            cx.report.warning(key.span.clone(), message, "");
        }
    }
}
