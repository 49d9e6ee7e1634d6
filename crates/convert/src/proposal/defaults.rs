//! The algorithms that each daemon offers if the file names none. Those that `vpnd` does not have, and weak ones, are
//! left out.

use super::words::Lists;
use crate::dialect::Dialect;
use policy::{EspEncryption, Group, IkeEncryption, IkeProposal, Integrity, KeyBits, Prf};

use KeyBits::{B128, B192, B256};

/// The groups of libreswan 5; it has MODP-8192 as well.
pub(super) const GROUPS_OF_LIBRESWAN: [Group; 7] = [
    Group::Ecp256,
    Group::Ecp384,
    Group::Ecp521,
    Group::Curve25519,
    Group::Modp4096,
    Group::Modp3072,
    Group::Modp2048,
];

const GROUPS_OF_STRONGSWAN: [Group; 7] = [
    Group::Curve25519,
    Group::Ecp256,
    Group::Ecp384,
    Group::Ecp521,
    Group::Modp3072,
    Group::Modp4096,
    Group::Modp2048,
];

/// The integrity algorithms of libreswan, for ciphers that need one; its PRFs are of the same hashes.
pub(super) const INTEGRITY_OF_LIBRESWAN: [Integrity; 2] =
    [Integrity::HmacSha2_512_256, Integrity::HmacSha2_256_128];

/// The offers for an IKE SA: one of AEAD, and one of other ciphers.
pub(super) fn ike(dialect: Dialect) -> Vec<IkeProposal> {
    let (groups, integrity, lengths) = match dialect {
        Dialect::Strongswan => (
            GROUPS_OF_STRONGSWAN,
            vec![
                Integrity::HmacSha2_256_128,
                Integrity::HmacSha2_384_192,
                Integrity::HmacSha2_512_256,
            ],
            vec![B256, B192, B128],
        ),
        Dialect::Libreswan => {
            (GROUPS_OF_LIBRESWAN, INTEGRITY_OF_LIBRESWAN.to_vec(), vec![B256, B128])
        }
    };
    let prf: Vec<Prf> = integrity.iter().map(|integrity| Prf::of(*integrity)).collect();
    let aead = vec![
        IkeEncryption::AesGcm16(B256),
        IkeEncryption::AesGcm16(B128),
        IkeEncryption::ChaCha20Poly1305,
    ];
    let other = lengths.into_iter().map(IkeEncryption::AesCbc).collect();
    [(aead, Vec::new()), (other, integrity)]
        .into_iter()
        .map(|(encryption, integrity)| IkeProposal {
            encryption,
            integrity,
            prf: prf.clone(),
            groups: groups.to_vec(),
            additional: Vec::new(),
        })
        .collect()
}

/// The algorithms for ESP.
pub(super) fn esp(dialect: Dialect) -> Lists {
    let gcm = [B256, B128].map(EspEncryption::AesGcm16);
    let aead = gcm.into_iter().chain([EspEncryption::ChaCha20Poly1305]);
    let (lengths, integrity) = match dialect {
        Dialect::Strongswan => (
            vec![B256, B192, B128],
            vec![
                Integrity::HmacSha2_256_128,
                Integrity::HmacSha2_384_192,
                Integrity::HmacSha2_512_256,
            ],
        ),
        Dialect::Libreswan => (vec![B256, B128], INTEGRITY_OF_LIBRESWAN.to_vec()),
    };
    let ciphers = aead.chain(lengths.into_iter().map(EspEncryption::AesCbc)).collect();
    Lists { ciphers, integrity, ..Lists::default() }
}
