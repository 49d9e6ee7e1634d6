//! The kernel's name of a suite, and the form of its key.

#![forbid(unsafe_code)]

use crypto::{Suite, integrity_key_len};
use esp::plane::PlaneError;
use netlink_packet_xfrm::{Alg, AlgAead, AlgAuth, XFRM_ALG_NAME_LEN, XfrmAttrs};
use policy::{AhIntegrity, DesKeys, Integrity};
use zeroize::Zeroize;

/// The attributes of a suite with its key material ([`Suite::key_material_len`] octets). The sender is to [`wipe`] them
/// afterwards.
pub(super) fn attributes(suite: Suite, key: &[u8]) -> Result<Vec<XfrmAttrs>, PlaneError> {
    if key.len() != suite.key_material_len() {
        return Err(refusal(suite, "the key has the wrong length"));
    }
    // Key material is the cipher's key and then the integrity key (RFC 7296 §2.17).
    let keyed = |cipher: &str, integrity: Integrity| {
        let (cipher_key, mac_key) = key.split_at(key.len() - integrity_key_len(integrity));
        vec![authentication(integrity, mac_key), encryption(cipher, cipher_key)]
    };
    Ok(match suite {
        Suite::AesGcm16(_) => vec![aead("rfc4106(gcm(aes))", key)],
        Suite::AesGmac(_) => vec![aead("rfc4543(gcm(aes))", key)],
        Suite::ChaCha20Poly1305 => vec![aead("rfc7539esp(chacha20,poly1305)", key)],
        Suite::AesCbcMac(_, integrity) => keyed("cbc(aes)", integrity),
        Suite::DesCbcMac(DesKeys::One, integrity) => keyed("cbc(des)", integrity),
        Suite::DesCbcMac(DesKeys::Three, integrity) => keyed("cbc(des3_ede)", integrity),
        Suite::NullMac(integrity) => keyed("ecb(cipher_null)", integrity),
        Suite::Ah(AhIntegrity::Mac(integrity)) => vec![authentication(integrity, key)],
        Suite::Ah(AhIntegrity::AesGmac(_)) => {
            return Err(refusal(suite, "the kernel's AH has no AES-GMAC"));
        }
    })
}

/// Overwrites the keys among attributes.
pub(super) fn wipe(attributes: &mut [XfrmAttrs]) {
    for attribute in attributes {
        match attribute {
            XfrmAttrs::EncryptionAlgAead(aead) => aead.alg_key.zeroize(),
            XfrmAttrs::EncryptionAlg(alg) | XfrmAttrs::AuthenticationAlg(alg) => {
                alg.alg_key.zeroize();
            }
            XfrmAttrs::AuthenticationAlgTrunc(alg) => alg.alg_key.zeroize(),
            _ => {}
        }
    }
}

fn aead(name: &str, key: &[u8]) -> XfrmAttrs {
    let (alg_name, alg_key_len) = (padded(name), bits(key.len()));
    XfrmAttrs::EncryptionAlgAead(AlgAead {
        alg_name,
        alg_key_len,
        alg_icv_len: 128,
        alg_key: key.to_vec(),
    })
}

fn encryption(name: &str, key: &[u8]) -> XfrmAttrs {
    let (alg_name, alg_key_len) = (padded(name), bits(key.len()));
    XfrmAttrs::EncryptionAlg(Alg { alg_name, alg_key_len, alg_key: key.to_vec() })
}

/// The kernel is told how long the ICV is: by itself it would take a draft's 96 bits for HMAC-SHA2-256.
fn authentication(integrity: Integrity, key: &[u8]) -> XfrmAttrs {
    let (name, icv) = match integrity {
        Integrity::HmacMd5_96 => ("hmac(md5)", 96),
        Integrity::HmacSha1_96 => ("hmac(sha1)", 96),
        Integrity::HmacSha2_256_128 => ("hmac(sha256)", 128),
        Integrity::HmacSha2_384_192 => ("hmac(sha384)", 192),
        Integrity::HmacSha2_512_256 => ("hmac(sha512)", 256),
        Integrity::AesXcbc96 => ("xcbc(aes)", 96),
        Integrity::AesCmac96 => ("cmac(aes)", 96),
    };
    let (alg_name, alg_key_len) = (padded(name), bits(key.len()));
    XfrmAttrs::AuthenticationAlgTrunc(AlgAuth {
        alg_name,
        alg_key_len,
        alg_trunc_len: icv,
        alg_key: key.to_vec(),
    })
}

fn bits(octets: usize) -> u32 {
    u32::try_from(octets * 8).expect("a key has few octets")
}

fn padded(name: &str) -> [u8; XFRM_ALG_NAME_LEN] {
    let mut field = [0; XFRM_ALG_NAME_LEN];
    field[..name.len()].copy_from_slice(name.as_bytes());
    field
}

fn refusal(suite: Suite, why: &str) -> PlaneError {
    PlaneError::System { what: format!("giving {suite} to the kernel"), why: why.to_owned() }
}
