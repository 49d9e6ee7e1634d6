//! The registry of algorithms: one row for each, with everything that other crates and other programs call it.
//!
//! A policy names an algorithm by a value such as [`EspEncryption::ChaCha20Poly1305`]. The row of that value has the
//! number that IKE sends, the word of AIX_VPN, the name in logs, the words of strongSwan, libreswan and OpenIKED, the
//! names in the kernel and in Wireshark, the lengths of key, IV and ICV, and whether the algorithm is weak.
//!
//! ```text
//!                       ┌── xml_esp, xml_ike ──► policy: AIX_VPN in and out
//!  EspEncryption ─┐     ├── number, key_length ► ike: transforms of an offer, and their names
//!  IkeEncryption ─┤     ├── strongswan, libreswan ──► convert: other daemons' files
//!  Integrity ─────┼─► row() ── kernel ─────────► xfrm: the kernel's SAs
//!  Prf ───────────┤     ├── key_len, iv, icv_len … ─► crypto: suites
//!  Group ─────────┘     ├── wireshark_esp, wireshark_ike ─► vpnd: exported keys
//!                       └── weak, hides ───────► remarks about a policy
//! ```
//!
//! A value without a row is an error of the compiler, and every row is in `ALL` of its type.
//!
//! # Example
//!
//! ```
//! use algorithms::{EspEncryption, Group, Integrity, KeyBits};
//!
//! let gcm = EspEncryption::AesGcm16(KeyBits::B256).row();
//! assert_eq!((gcm.number, gcm.name), (20, "AES-GCM-16-256"));
//! assert_eq!((gcm.xml_esp[0], gcm.strongswan[0]), ("ESP_AES256_GCM_16", "aes256gcm16"));
//! assert_eq!((gcm.kernel[0], gcm.icv_len), ("rfc4106(gcm(aes))", Some(16)));
//!
//! // From a word back to the value.
//! let cipher = EspEncryption::ALL.into_iter().find(|e| e.row().strongswan.contains(&"aes128"));
//! assert_eq!(cipher, Some(EspEncryption::AesCbc(KeyBits::B128)));
//!
//! // AES-CBC has no ICV of its own: it needs an integrity algorithm.
//! assert_eq!(EspEncryption::AesCbc(KeyBits::B128).row().icv_len, None);
//! assert_eq!(Integrity::HmacSha2_256_128.row().icv_len, 16);
//! assert_eq!(Group::of_number(19), Some(Group::Ecp256));
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | How is a cipher added, and which properties does its row have? | `cipher.rs` |
//! | How is a MAC added, for ESP, AH or the IKE SA? | `integrity.rs`; AH's own ones: `ah.rs` |
//! | How is a PRF added? | `prf.rs` |
//! | How is a key exchange method added? | `group.rs` |
//! | Which lengths does a key have? | `key.rs` |
//! | How do values get their rows? | `rows.rs` |
//! | How is a value serialized? | `serialize.rs` |
#![forbid(unsafe_code)]

#[macro_use]
mod rows;

mod ah;
mod cipher;
mod group;
mod integrity;
mod key;
mod prf;
#[cfg(feature = "serde")]
mod serialize;

pub use ah::{AhIntegrity, AhRow};
pub use cipher::{CipherRow, EspEncryption, IkeEncryption, Iv, MAC_CHOICE, choices};
pub use group::{Group, GroupRow};
pub use integrity::{Integrity, IntegrityRow};
pub use key::{DesKeys, Instructions, KeyBits};
pub use prf::{Prf, PrfRow};
