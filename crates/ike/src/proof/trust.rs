//! Whom this side trusts, and how it proves who it is: made once from octets, then never changed.

use super::certificate::Certificate;
use super::crl::Crl;
use super::key::PrivateKey;
pub use super::listing::{Listed, Role};
use super::ocsp::Ocsp;
use super::outside::OutsideKey;
use crate::crypto::tally;
use crate::ticket::{Fingerprint, TicketKey, fingerprint};
use crypto::asymmetric::Hash;
use policy::{Identity, KeyKind, Secret};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Certificates between one of a side and its authority.
const DEEPEST: usize = 6;
/// RSA keys below this many bits prove nothing (RFC 8247 §3.1.1).
pub(crate) const RSA_BITS: usize = 2048;

/// Octets with the name of where they came from, which messages about them begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item<T = Vec<u8>> {
    /// A file's path, or whatever tells a person which one is meant.
    pub name: String,
    /// One value in DER.
    pub der: T,
}

/// The parts of a [`Trust`].
#[derive(Clone, Debug, Default)]
pub struct Material {
    /// Certificates that are trusted to sign others.
    pub authorities: Vec<Item>,
    /// Certificates of this side, and those between them and their authorities, in any order.
    pub certificates: Vec<Item>,
    /// Private keys (PKCS#8, PKCS#1 or SEC1) of this side's certificates.
    pub keys: Vec<Item<Secret>>,
    /// Private keys outside of this process, with the names of where they are configured.
    pub outside_keys: Vec<(String, OutsideKey)>,
    /// Revocation lists.
    pub crls: Vec<Item>,
    /// Answers of OCSP responders about this side's certificates, for peers that want them (RFC 4806).
    pub ocsp: Vec<Item>,
    /// Postquantum preshared keys by their names (RFC 8784).
    pub ppks: BTreeMap<String, Secret>,
    /// Keys of tickets of session resumption (RFC 5723): the first seals, all of them open. Without any, tickets end
    /// with the engine.
    pub ticket_keys: Vec<TicketKey>,
    /// Where a policy wants revocation lists and there is none: whether the certificate passes all the same.
    pub lenient_revocation: bool,
    /// The age that an OCSP response may have; `None`: the response itself decides.
    pub ocsp_max_age: Option<Duration>,
}

/// An item that cannot be used, or not for what it seems to be meant.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{item}: {problem}")]
pub struct Defect {
    /// Its name.
    pub item: String,
    /// The mistake, and a remedy.
    pub problem: String,
}

policy::readable_debug!(Defect);

/// Authorities, own certificates with their keys, and revocation lists.
#[derive(Default)]
pub struct Trust {
    pub(crate) authorities: Vec<Certificate>,
    pub(crate) intermediates: Vec<Certificate>,
    pub(crate) own: Vec<Own>,
    /// The newest first.
    pub(crate) crls: Vec<Arc<Crl>>,
    ppks: BTreeMap<String, Secret>,
    ticket_keys: Vec<TicketKey>,
    digest: Fingerprint,
    pub(crate) lenient_revocation: bool,
    pub(crate) ocsp_max_age: Option<Duration>,
    listing: Vec<Listed>,
}

/// A certificate of this side with its key.
pub(crate) struct Own {
    /// The name of the certificate when it was handed over.
    pub item: String,
    /// The certificate, then its issuer, and so on; without the authority.
    pub chain: Vec<Certificate>,
    /// Names of its authorities as requests for certificates have them: those of its chain and of its anchor.
    pub authorities: BTreeSet<KeyHash>,
    pub key: Arc<PrivateKey>,
    /// Answers of OCSP responders about the chain.
    pub staples: Vec<Ocsp>,
}

/// SHA-1 of a SubjectPublicKeyInfo: how CERTREQ names an authority (RFC 7296 §3.7).
pub(crate) type KeyHash = [u8; 20];

impl Trust {
    /// Reads the material: what can be used, and the defects of the rest.
    pub fn new(material: Material) -> (Self, Vec<Defect>) {
        let mut defects = Vec::new();
        let mut trust = Self {
            lenient_revocation: material.lenient_revocation,
            ocsp_max_age: material.ocsp_max_age,
            digest: digest(&material),
            ppks: material.ppks,
            ticket_keys: material.ticket_keys,
            ..Self::default()
        };
        for (item, certificate) in read(material.authorities, &mut defects) {
            if !certificate.is_authority() {
                let problem = "is not the certificate of an authority (CA:TRUE); if it belongs to this side, it \
                               stands among the certificates";
                defects.push(Defect { item, problem: problem.into() });
                continue;
            }
            trust.listing.push(Listed::certificate(Role::Authority, &item, &certificate));
            trust.authorities.push(certificate);
        }
        let mut keys = Vec::new();
        for Item { name, der } in material.keys {
            match PrivateKey::read(&der) {
                Ok(key) => keys.push((name, Arc::new(key), false)),
                Err(error) => defects.push(Defect { item: name, problem: error.to_string() }),
            }
        }
        for (name, key) in material.outside_keys {
            let key = Arc::new(OutsideKey { item: name.clone(), ..key });
            keys.push((name, Arc::new(PrivateKey::Outside(key)), false));
        }
        let mut own = Vec::new();
        let mut keyless = Vec::new();
        for (item, certificate) in read(material.certificates, &mut defects) {
            let mut found = None;
            // Every copy of the key counts as used: none of them is a stray.
            for (name, key, used) in keys.iter_mut().filter(|k| k.1.belongs_to(certificate.key())) {
                *used = true;
                found = Some((name.clone(), Arc::clone(key)));
            }
            match found {
                Some((name, key)) => {
                    trust.listing.push(Listed::own(&item, &certificate, name, key.place()));
                    own.push((item, certificate, key));
                }
                None if certificate.is_authority() => {
                    trust.listing.push(Listed::certificate(
                        Role::Intermediate,
                        &item,
                        &certificate,
                    ));
                    trust.intermediates.push(certificate);
                }
                None => {
                    let problem =
                        "has no private key here: put the key that it was made with among the keys";
                    keyless.push(item.clone());
                    defects.push(Defect { item, problem: problem.into() });
                }
            }
        }
        for (item, key, _) in keys.into_iter().filter(|(.., used)| !used) {
            defects.push(Defect { item, problem: stray(&key, &keyless) });
        }
        trust.own = own.into_iter().map(|(item, c, key)| trust.complete(item, c, key)).collect();
        for Item { name, der } in material.crls {
            match Crl::read(&der) {
                Ok(crl) => {
                    trust.listing.push(Listed::crl(&name, &crl));
                    trust.crls.push(Arc::new(crl));
                }
                Err(error) => defects
                    .push(Defect { item: name, problem: format!("the revocation list {error}") }),
            }
        }
        for Item { name, der } in material.ocsp {
            match Ocsp::read(&der) {
                Ok(answer) => trust.staple(name, &answer, &mut defects),
                Err(error) => defects
                    .push(Defect { item: name, problem: format!("the OCSP response {error}") }),
            }
        }
        trust.crls.sort_by_key(|crl| std::cmp::Reverse(crl.this_update()));
        (trust, defects)
    }

    /// Everything that is loaded and can be used.
    pub fn listing(&self) -> &[Listed] {
        &self.listing
    }

    /// The postquantum preshared key of this name.
    pub fn ppk(&self, id: &str) -> Option<&Secret> {
        self.ppks.get(id)
    }

    /// The keys of tickets of session resumption: the first seals, all of them open.
    pub fn ticket_keys(&self) -> &[TicketKey] {
        &self.ticket_keys
    }

    /// The fingerprint of everything that a peer's certificate is checked with.
    pub(crate) fn digest(&self) -> &Fingerprint {
        &self.digest
    }

    /// Checks that this side can prove that it is `identity`, with a key of one of these kinds.
    ///
    /// # Errors
    /// The reason and the remedy, for the operator.
    pub fn check_own(&self, identity: &Identity, kinds: &[KeyKind]) -> Result<(), String> {
        self.own_for(identity, kinds).map(|_| ())
    }

    /// The items with which this side can prove that it is `identity`, with a key of one of these kinds.
    pub fn own_items(&self, identity: &Identity, kinds: &[KeyKind]) -> Vec<&str> {
        let own = self.own_for(identity, kinds).unwrap_or_default();
        own.into_iter().map(|own| own.item.as_str()).collect()
    }

    /// The certificates with which this side can prove that it is `identity`, at least one.
    pub(crate) fn own_for(
        &self,
        identity: &Identity,
        kinds: &[KeyKind],
    ) -> Result<Vec<&Own>, String> {
        let named: Vec<&Own> = self.own.iter().filter(|o| o.leaf().is_for(identity)).collect();
        if named.is_empty() {
            let have: Vec<String> = self.own.iter().map(|o| o.leaf().all_names()).collect();
            let have = match have.as_slice() {
                [] => "there is none with its private key at all".to_owned(),
                have => format!("those with a private key are for {}", have.join("; ")),
            };
            return Err(format!(
                "no certificate of this side is for {identity}: {have}; add one, or name this side as its certificate does"
            ));
        }
        let fitting: Vec<&Own> =
            named.iter().copied().filter(|o| kinds.contains(&o.key.kind())).collect();
        if fitting.is_empty() {
            let have: Vec<String> = named.iter().map(|o| o.key.kind().to_string()).collect();
            return Err(format!(
                "the certificate for {identity} has a key of the kind {}, the policy wants {}",
                have.join(", "),
                listed(kinds)
            ));
        }
        Ok(fitting)
    }

    /// The names of the authorities for a request for certificates, each once.
    pub(crate) fn authority_hashes(&self) -> Vec<KeyHash> {
        let hashes: BTreeSet<KeyHash> = self.authorities.iter().map(key_hash).collect();
        hashes.into_iter().collect()
    }

    /// Puts an answer to the certificates that it is about.
    fn staple(&mut self, item: String, answer: &Ocsp, defects: &mut Vec<Defect>) {
        let mut listed = None;
        for own in &mut self.own {
            if let Some(about) = own.chain.iter().find(|c| answer.is_about(c)) {
                listed = Some(Listed::ocsp(&item, answer, about));
                own.staples.push(answer.clone());
            }
        }
        match listed {
            Some(listed) => self.listing.push(listed),
            None => {
                let problem = "the OCSP response is about no certificate of this side; those of peers are theirs to send";
                defects.push(Defect { item, problem: problem.into() });
            }
        }
    }

    fn complete(&self, item: String, leaf: Certificate, key: Arc<PrivateKey>) -> Own {
        let mut chain = vec![leaf];
        let mut authorities = BTreeSet::new();
        while let Some(last) =
            chain.last().filter(|c| !c.is_self_issued() && chain.len() <= DEEPEST)
        {
            authorities
                .extend(self.authorities.iter().filter(|a| last.may_be_issued_by(a)).map(key_hash));
            let Some(next) = self
                .intermediates
                .iter()
                .find(|i| last.may_be_issued_by(i) && !chain.iter().any(|c| c.der() == i.der()))
            else {
                break;
            };
            authorities.insert(key_hash(next));
            chain.push(next.clone());
        }
        // The peer has its authorities itself (RFC 7296 §3.6).
        if chain.len() > 1 && chain.last().is_some_and(Certificate::is_self_issued) {
            chain.pop();
        }
        Own { item, chain, authorities, key, staples: Vec::new() }
    }
}

impl Own {
    pub fn leaf(&self) -> &Certificate {
        &self.chain[0]
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own: Vec<&Certificate> = self.own.iter().map(Own::leaf).collect();
        f.debug_struct("Trust").field("authorities", &self.authorities).field("own", &own).finish()
    }
}

/// The text for a key without a certificate. `keyless` are certificates without a key.
fn stray(key: &PrivateKey, keyless: &[String]) -> String {
    let mut text = "belongs to no certificate here: put the certificate that was made with it among the certificates".to_owned();
    if matches!(key, PrivateKey::Outside(_)) && !keyless.is_empty() {
        text += &format!(
            ", or name the object that has the key of {}: its public key and that of this object differ",
            keyless.join(", ")
        );
    }
    text
}

/// Reads certificates, each once.
fn read(items: Vec<Item>, defects: &mut Vec<Defect>) -> Vec<(String, Certificate)> {
    let mut seen = BTreeSet::new();
    let mut read = Vec::new();
    for Item { name, der } in items {
        match Certificate::read(&der) {
            Ok(certificate) => {
                let key = certificate.key();
                if key.kind == KeyKind::Rsa && key.bits < RSA_BITS {
                    let problem = format!(
                        "the certificate has an RSA key of {} bits, {RSA_BITS} are needed",
                        key.bits
                    );
                    defects.push(Defect { item: name, problem });
                } else if seen.insert(der) {
                    read.push((name, certificate));
                }
            }
            Err(error) => {
                defects.push(Defect { item: name, problem: format!("the certificate {error}") });
            }
        }
    }
    read
}

fn key_hash(certificate: &Certificate) -> KeyHash {
    let hash = tally::digest(Hash::Sha1, &certificate.key().info);
    hash.try_into().expect("SHA-1 makes 20 octets")
}

/// The fingerprint of the authorities, the certificates between, the revocation lists and their treatment, in whatever
/// order they come.
fn digest(material: &Material) -> Fingerprint {
    let lists = [&material.authorities, &material.certificates, &material.crls];
    let mut parts: Vec<Fingerprint> = (lists.iter().zip(0_u8..))
        .flat_map(|(list, kind)| list.iter().map(move |item| fingerprint(&[&[kind], &item.der])))
        .collect();
    parts.sort_unstable();
    let age = format!("{:?} {:?}", material.lenient_revocation, material.ocsp_max_age);
    fingerprint(&[parts.as_flattened(), age.as_bytes()])
}

/// Kinds of keys with "or" between.
pub(crate) fn listed(kinds: &[KeyKind]) -> String {
    kinds.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests;
