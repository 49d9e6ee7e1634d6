//! Algorithms of the policy as transforms of a proposal, and back (RFC 7296 §3.3.2).

use crate::wire::payload::Transform;
use crate::wire::registry::{EncryptionId, GroupId, ProtocolId, TransformType};
use algorithms::CipherRow;
use policy::{EspEncryption, Group, IkeEncryption, Integrity, KeyBits, Prf, Protection};

/// The number of a group.
pub fn group_id(group: Group) -> GroupId {
    GroupId::from(group)
}

/// The group of a number, where this implementation has it.
pub fn group_of(id: GroupId) -> Option<Group> {
    Group::of_number(id.0)
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

fn cipher(row: &CipherRow) -> Transform {
    let id = EncryptionId(row.number);
    row.key_length.map_or_else(|| unkeyed(id), |length| keyed(id, length))
}

pub(super) fn ike_encryption(encryption: IkeEncryption) -> Transform {
    cipher(encryption.row())
}

pub(super) fn esp_encryption(encryption: EspEncryption) -> Transform {
    cipher(encryption.row())
}

pub(super) fn prf(prf: Prf) -> Transform {
    plain(TransformType::PRF, prf.row().number)
}

pub(super) fn integrity(integrity: Integrity) -> Transform {
    plain(TransformType::INTEG, integrity.row().number)
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
        Protection::Ah(mac) => (None, Some(plain(TransformType::INTEG, mac.row().number))),
    };
    encryption.into_iter().chain(mac)
}
