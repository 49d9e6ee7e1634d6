//! The kernel's name of a suite, and the form of its key.

#![forbid(unsafe_code)]

use algorithms::CipherRow;
use crypto::{Suite, integrity_key_len};
use esp::plane::PlaneError;
use netlink_packet_xfrm::{Alg, AlgAead, AlgAuth, XFRM_ALG_NAME_LEN, XfrmAttrs};
use policy::{AhIntegrity, Integrity, Protection};
use zeroize::Zeroize;

/// The attributes of a suite with its key material ([`Suite::key_material_len`] octets). The sender is to [`wipe`] them
/// afterwards.
pub(super) fn attributes(suite: Suite, key: &[u8]) -> Result<Vec<XfrmAttrs>, PlaneError> {
    if key.len() != suite.key_material_len() {
        return Err(refusal(suite, "the key has the wrong length"));
    }
    Ok(match suite.protection() {
        Protection::Esp { encryption, integrity: None } => vec![aead(encryption.row(), key)],
        Protection::Esp { encryption, integrity: Some(integrity) } => {
            // Key material is the cipher's key and then the integrity key (RFC 7296 §2.17).
            let (cipher_key, mac_key) = key.split_at(key.len() - integrity_key_len(integrity));
            vec![authentication(integrity, mac_key), cipher(encryption.row(), cipher_key)]
        }
        Protection::Ah(AhIntegrity::Mac(integrity)) => vec![authentication(integrity, key)],
        Protection::Ah(AhIntegrity::AesGmac(_)) => {
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

fn aead(row: &CipherRow, key: &[u8]) -> XfrmAttrs {
    XfrmAttrs::EncryptionAlgAead(AlgAead {
        alg_name: padded(row.kernel[0]),
        alg_key_len: bits(key.len()),
        alg_icv_len: bits(row.icv_len.unwrap_or_default()),
        alg_key: key.to_vec(),
    })
}

fn cipher(row: &CipherRow, key: &[u8]) -> XfrmAttrs {
    let (alg_name, alg_key_len) = (padded(row.kernel[0]), bits(key.len()));
    XfrmAttrs::EncryptionAlg(Alg { alg_name, alg_key_len, alg_key: key.to_vec() })
}

/// The kernel is told how long the ICV is: by itself it would take a draft's 96 bits for HMAC-SHA2-256.
fn authentication(integrity: Integrity, key: &[u8]) -> XfrmAttrs {
    let row = integrity.row();
    XfrmAttrs::AuthenticationAlgTrunc(AlgAuth {
        alg_name: padded(row.kernel),
        alg_key_len: bits(key.len()),
        alg_trunc_len: bits(row.icv_len),
        alg_key: key.to_vec(),
    })
}

/// Octets as bits.
fn bits(octets: usize) -> u32 {
    u32::try_from(octets * 8).expect("keys and ICVs have few octets")
}

fn padded(name: &str) -> [u8; XFRM_ALG_NAME_LEN] {
    let mut field = [0; XFRM_ALG_NAME_LEN];
    field[..name.len()].copy_from_slice(name.as_bytes());
    field
}

fn refusal(suite: Suite, why: &str) -> PlaneError {
    PlaneError::System { what: format!("giving {suite} to the kernel"), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names with the octets of their keys, and the bits of ICVs.
    fn names(attributes: &[XfrmAttrs]) -> Vec<(String, usize, u32)> {
        let name = |field: &[u8]| String::from_utf8_lossy(field).trim_end_matches('\0').to_owned();
        let part = |attribute: &XfrmAttrs| match attribute {
            XfrmAttrs::EncryptionAlgAead(a) => (name(&a.alg_name), a.alg_key.len(), a.alg_icv_len),
            XfrmAttrs::EncryptionAlg(a) => (name(&a.alg_name), a.alg_key.len(), 0),
            XfrmAttrs::AuthenticationAlgTrunc(a) => {
                (name(&a.alg_name), a.alg_key.len(), a.alg_trunc_len)
            }
            other => panic!("{other:?}"),
        };
        attributes.iter().map(part).collect()
    }

    #[test]
    fn the_kernel_is_given_the_names_and_the_lengths_of_the_rows() {
        let bits = |octets: usize| u32::try_from(octets * 8).expect("few");
        let mut refused = Vec::new();
        for suite in Suite::all() {
            let key = vec![7; suite.key_material_len()];
            let Ok(given) = attributes(suite, &key) else {
                refused.push(suite);
                continue;
            };
            let mac = |mac: Integrity| {
                let row = mac.row();
                (row.kernel.to_owned(), row.key_len, bits(row.icv_len))
            };
            let expected = match suite.protection() {
                Protection::Ah(AhIntegrity::Mac(integrity)) => vec![mac(integrity)],
                Protection::Ah(AhIntegrity::AesGmac(_)) => panic!("the kernel has no {suite}"),
                Protection::Esp { encryption, integrity } => {
                    let row = encryption.row();
                    let (len, icv) = (row.key_len + row.salt_len, row.icv_len.unwrap_or(0));
                    let cipher = (row.kernel[0].to_owned(), len, bits(icv));
                    integrity.map(mac).into_iter().chain([cipher]).collect()
                }
            };
            assert_eq!(names(&given), expected, "{suite}");
            assert!(given.len() == 2 || key.len() == expected[0].1);
        }
        assert!(refused.iter().all(|suite| suite.is_ah()) && refused.len() == 3, "{refused:?}");
    }
}
