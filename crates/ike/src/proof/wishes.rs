//! The kinds of proofs that each side takes, as both tell each other before they prove who they are.

use super::trust::KeyHash;
use crate::wire::payload::Payload;
use crate::wire::registry::{CertEncoding, HashId, NotifyType};
use policy::{Credential, IkeTunnel};

/// Hash algorithms and authorities of a peer that are remembered.
const MOST_WISHES: usize = 256;

/// The kinds of proofs that a peer has said it takes.
#[derive(Clone, Default)]
pub(crate) struct Wishes {
    /// `None`: it knows only the methods of RFC 7296 and RFC 4754.
    pub hashes: Option<Vec<HashId>>,
    pub authorities: Vec<KeyHash>,
    /// It wants answers of OCSP responders (RFC 4806).
    pub ocsp: bool,
}

impl Wishes {
    pub fn of(payloads: &[Payload]) -> Self {
        let mut wishes = Self::default();
        wishes.add(payloads);
        wishes
    }

    /// Takes in those of a further message.
    pub fn add(&mut self, payloads: &[Payload]) {
        for payload in payloads {
            match payload {
                Payload::Notify(n) if n.kind == NotifyType::SIGNATURE_HASH_ALGORITHMS => {
                    let hashes = n.data.chunks_exact(2).take(MOST_WISHES);
                    let hashes = hashes.map(|h| HashId(u16::from_be_bytes([h[0], h[1]])));
                    self.hashes = Some(hashes.collect());
                }
                Payload::CertificateRequest { encoding, authorities }
                    if *encoding == CertEncoding::X509_SIGNATURE =>
                {
                    let room = MOST_WISHES.saturating_sub(self.authorities.len());
                    let named =
                        authorities.chunks_exact(20).filter_map(|h| KeyHash::try_from(h).ok());
                    self.authorities.extend(named.take(room));
                }
                Payload::CertificateRequest { encoding, .. }
                    if *encoding == CertEncoding::OCSP_CONTENT =>
                {
                    self.ocsp = true;
                }
                _ => {}
            }
        }
    }
}

/// The kinds of proofs that some tunnels take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    /// One of them has signatures.
    pub signatures: bool,
    /// One of them wants to know what is revoked.
    pub revocation: bool,
    /// One of them has postquantum preshared keys.
    pub ppk: bool,
}

impl Wanted {
    pub fn of(tunnel: &IkeTunnel) -> Self {
        let ppk = tunnel.ppk.is_some();
        match &tunnel.credential {
            Credential::Signature(rules) => {
                Self { signatures: true, revocation: rules.use_crl, ppk }
            }
            Credential::PresharedKey(_) => Self { ppk, ..Self::default() },
        }
    }

    pub fn or(self, other: Self) -> Self {
        Self {
            signatures: self.signatures || other.signatures,
            revocation: self.revocation || other.revocation,
            ppk: self.ppk || other.ppk,
        }
    }
}
