//! Algorithms of the policy as transforms of a proposal, and back (RFC 7296 §3.3.2).

use crate::wire::payload::Transform;
use crate::wire::registry::{EncryptionId, GroupId, IntegrityId, PrfId, ProtocolId, TransformType};
use policy::{
    AhIntegrity, DesKeys, EspEncryption, Group, IkeEncryption, Integrity, KeyBits, Prf, Protection,
};

/// The number of a group.
pub fn group_id(group: Group) -> GroupId {
    match group {
        Group::Modp1024 => GroupId::MODP_1024,
        Group::Modp1536 => GroupId::MODP_1536,
        Group::Modp2048 => GroupId::MODP_2048,
        Group::Modp3072 => GroupId::MODP_3072,
        Group::Modp4096 => GroupId::MODP_4096,
        Group::Ecp256 => GroupId::ECP_256,
        Group::Ecp384 => GroupId::ECP_384,
        Group::Ecp521 => GroupId::ECP_521,
        Group::Modp2048Sub256 => GroupId::MODP_2048_256,
        Group::Curve25519 => GroupId::CURVE25519,
        Group::MlKem512 => GroupId::ML_KEM_512,
        Group::MlKem768 => GroupId::ML_KEM_768,
        Group::MlKem1024 => GroupId::ML_KEM_1024,
    }
}

/// The group of a number, where this implementation has it.
pub fn group_of(id: GroupId) -> Option<Group> {
    Group::ALL.into_iter().find(|g| group_id(*g) == id)
}

pub(super) fn plain(kind: TransformType, id: u16) -> Transform {
    Transform { kind, id, key_length: None, unknown_attribute: false }
}

pub(super) fn keyed(id: EncryptionId, key: KeyBits) -> Transform {
    Transform {
        kind: TransformType::ENCR,
        id: id.0,
        key_length: Some(key.bits()),
        unknown_attribute: false,
    }
}

/// A cipher with keys of one length only, which takes no Key Length attribute (RFC 7296 §3.3.5, RFC 7634 §4).
pub(super) fn unkeyed(id: EncryptionId) -> Transform {
    plain(TransformType::ENCR, id.0)
}

pub(super) fn ike_encryption(encryption: IkeEncryption) -> Transform {
    match encryption {
        IkeEncryption::AesCbc(k) => keyed(EncryptionId::ENCR_AES_CBC, k),
        IkeEncryption::AesGcm16(k) => keyed(EncryptionId::ENCR_AES_GCM_16, k),
        IkeEncryption::ChaCha20Poly1305 => unkeyed(EncryptionId::ENCR_CHACHA20_POLY1305),
    }
}

pub(super) fn esp_encryption(encryption: EspEncryption) -> Transform {
    match encryption {
        EspEncryption::AesCbc(k) => keyed(EncryptionId::ENCR_AES_CBC, k),
        EspEncryption::AesGcm16(k) => keyed(EncryptionId::ENCR_AES_GCM_16, k),
        EspEncryption::ChaCha20Poly1305 => unkeyed(EncryptionId::ENCR_CHACHA20_POLY1305),
        EspEncryption::AesGmac(k) => keyed(EncryptionId::ENCR_NULL_AUTH_AES_GMAC, k),
        EspEncryption::Null => unkeyed(EncryptionId::ENCR_NULL),
        EspEncryption::DesCbc(DesKeys::One) => unkeyed(EncryptionId::ENCR_DES),
        EspEncryption::DesCbc(DesKeys::Three) => unkeyed(EncryptionId::ENCR_3DES),
    }
}

pub(super) fn prf(prf: Prf) -> Transform {
    let id = match prf {
        Prf::HmacMd5 => PrfId::PRF_HMAC_MD5,
        Prf::HmacSha1 => PrfId::PRF_HMAC_SHA1,
        Prf::HmacSha2_256 => PrfId::PRF_HMAC_SHA2_256,
        Prf::HmacSha2_384 => PrfId::PRF_HMAC_SHA2_384,
        Prf::HmacSha2_512 => PrfId::PRF_HMAC_SHA2_512,
        Prf::Aes128Xcbc => PrfId::PRF_AES128_XCBC,
        Prf::Aes128Cmac => PrfId::PRF_AES128_CMAC,
    };
    plain(TransformType::PRF, id.0)
}

pub(super) fn integrity(integrity: Integrity) -> Transform {
    let id = match integrity {
        Integrity::HmacMd5_96 => IntegrityId::AUTH_HMAC_MD5_96,
        Integrity::HmacSha1_96 => IntegrityId::AUTH_HMAC_SHA1_96,
        Integrity::HmacSha2_256_128 => IntegrityId::AUTH_HMAC_SHA2_256_128,
        Integrity::HmacSha2_384_192 => IntegrityId::AUTH_HMAC_SHA2_384_192,
        Integrity::HmacSha2_512_256 => IntegrityId::AUTH_HMAC_SHA2_512_256,
        Integrity::AesXcbc96 => IntegrityId::AUTH_AES_XCBC_96,
        Integrity::AesCmac96 => IntegrityId::AUTH_AES_CMAC_96,
    };
    plain(TransformType::INTEG, id.0)
}

pub(super) fn key_exchange(group: Group) -> Transform {
    plain(TransformType::KE, group_id(group).0)
}

/// A method of an additional key exchange; `None`: none takes place.
pub(super) fn additional(kind: TransformType, method: Option<Group>) -> Transform {
    plain(kind, method.map_or(0, |method| group_id(method).0))
}

pub(super) fn esn(esn: bool) -> Transform {
    plain(TransformType::ESN, u16::from(esn))
}

/// The protocol of what a policy proposes.
pub(super) fn protocol(protection: Protection) -> ProtocolId {
    match protection {
        Protection::Esp { .. } => ProtocolId::ESP,
        Protection::Ah(_) => ProtocolId::AH,
    }
}

/// Its algorithms. GMAC has a transform of its own for each length of key in AH (RFC 4543 §5.3).
pub(super) fn algorithms(protection: Protection) -> impl Iterator<Item = Transform> {
    let (encryption, mac) = match protection {
        Protection::Esp { encryption, integrity: mac } => {
            (Some(esp_encryption(encryption)), mac.map(integrity))
        }
        Protection::Ah(AhIntegrity::Mac(mac)) => (None, Some(integrity(mac))),
        Protection::Ah(AhIntegrity::AesGmac(key)) => {
            let id = match key {
                KeyBits::B128 => IntegrityId::AUTH_AES_128_GMAC,
                KeyBits::B192 => IntegrityId::AUTH_AES_192_GMAC,
                KeyBits::B256 => IntegrityId::AUTH_AES_256_GMAC,
            };
            (None, Some(plain(TransformType::INTEG, id.0)))
        }
    };
    encryption.into_iter().chain(mac)
}
