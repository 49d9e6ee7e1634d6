//! The ciphers and MACs of the gateway, behind one trait, and the libraries that they come from.
//!
//! A [`Suite`] names the algorithms of one SA; a [`Provider`] (AWS-LC, ring or RustCrypto) turns a suite and a key into
//! a [`Cipher`], which seals and opens. ESP, AH and IKE's Encrypted payload use the same ciphers and the same module
//! [`mac`]. This crate knows no packet formats beyond what is authenticated with an ESP header ([`Aad`]).
//!
//! ```text
//!  policy::Protection ──► Suite::of ──► Suite ──────────────┐ lengths: key, IV, ICV, block
//!                                        │                  ▼
//!  Choice ("aes-gcm-128 from ring") ──► CryptoProviders::provider ──► Provider
//!                                                                        │ cipher(suite, key)
//!                                                                        ▼
//!         Keyed: the key of one direction of an SA ──────────────► Box<dyn Cipher>
//!           │ serve_by(other provider)                               seal(iv, aad, plaintext, trailer)
//!           ▼                                                        open(aad, sealed)
//!         a second cipher of the same key                           ▲          ▲          ▲
//!                                                                aws_lc.rs   ring.rs   portable.rs
//! ```
//!
//! # Example
//!
//! Seal the payload of an ESP packet, and open it again:
//!
//! ```
//! use crypto::{Aad, Cipher, CryptoProviders, Forged, Keyed, Suite};
//! use policy::{KeyBits, Secret};
//!
//! let suite = Suite::AesGcm16(KeyBits::B256);
//! let key = Secret::new(vec![0x42; suite.key_material_len()]);
//! let provider = CryptoProviders::default().provider(suite);
//! let keyed = Keyed::new(suite, key, provider)?;
//!
//! // ESP authenticates SPI and sequence number together with the ciphertext.
//! let header = Aad::Esp { spi: 0x1000, sequence: 1, esn: false };
//! // The IV must never repeat with one key; the trailer is padding, its length and the next header.
//! let (iv, plaintext, trailer) = ([0, 0, 0, 0, 0, 0, 0, 1], b"inner packet", [1, 2, 2, 4]);
//!
//! let mut sealed = vec![0; suite.iv_len() + plaintext.len() + trailer.len() + suite.icv_len()];
//! keyed.seal(&iv, header, plaintext, &trailer, &mut sealed);
//!
//! let mut opened = [0; 16];
//! assert_eq!(keyed.open(header, &sealed, &mut opened), Ok(16));
//! assert_eq!(&opened[..12], plaintext);
//!
//! // One bit on the way, and nothing is opened.
//! sealed[10] ^= 1;
//! assert_eq!(keyed.open(header, &sealed, &mut opened), Err(Forged));
//! # Ok::<(), crypto::CipherError>(())
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | How is a cipher added, and which lengths and names has it? | `suite.rs`, `crates/algorithms` |
//! | Which octets are authenticated but not encrypted? | `cipher.rs` |
//! | How is a MAC added? | `mac.rs`, `mac/` |
//! | How is a provider added? What does it lack? | `provider.rs`, and a file beside `aws_lc.rs` and `ring.rs` |
//! | Which provider makes a suite, and how does a running SA change it? | `choice.rs`, `providers.rs`, `keyed.rs` |
//! | Where are constant-time ciphers without AES instructions? | `portable.rs`, `portable/`, `mac/` |
//! | Where are other modes and ciphers? | `with_mac.rs`, `in_place.rs`, `gmac.rs`, `des.rs`, `null.rs` |
//! | Which instructions has a CPU, and who uses them? | `cpu.rs`, `cpu/` |
//! | Where are packets and octets per algorithm counted? | `providers.rs`, `work.rs`, `function.rs` |
//! | How is a cipher's speed measured? | `speed.rs` |
//! | Where are key exchange, signatures and hashes, and who computes them? | `asymmetric.rs`, `asymmetric/` |
//! | Where do the vectors come from? | `crates/crypto/tests/algorithms/` |
//!
//! # Providers
//!
//! AWS-LC is the default provider and has every suite (DES, of RustCrypto, only with the feature `legacy`). ring has no
//! AES-192 and no suite with a separate MAC. The portable provider is RustCrypto's software in constant time. If the
//! wanted provider lacks a suite, AWS-LC makes it.
//!
//! Each provider is a feature: `aws-lc`, `ring` and `portable`, all by default. The feature `pure-rust` has the
//! portable provider, and RustCrypto for key exchange and signatures ([`asymmetric`]), and needs no C compiler. One of
//! `aws-lc` and `pure-rust` has to be there.
//!
//! An SA keeps its key ([`Keyed`]), so that another provider can take over while packets pass. Every provider's cipher
//! makes the same octets of the same key and IV.

#![forbid(unsafe_code)]

#[cfg(not(any(feature = "aws-lc", feature = "pure-rust")))]
compile_error!(
    "vpn-crypto needs its feature aws-lc, or pure-rust, which needs no C compiler: without the default features, name one \
     of them"
);

pub mod asymmetric;
#[cfg(feature = "aws-lc")]
mod aws_lc;
mod choice;
mod cipher;
mod cpu;
#[cfg(feature = "legacy")]
mod des;
mod equal;
mod function;
mod gmac;
#[cfg(any(feature = "portable", feature = "ring"))]
mod in_place;
mod keyed;
pub mod mac;
mod name;
#[cfg(feature = "insecure-null-cipher")]
mod null;
#[cfg(feature = "portable")]
mod portable;
mod provider;
mod providers;
mod random;
#[cfg(feature = "ring")]
mod ring;
mod speed;
mod suite;
mod with_mac;
mod work;

pub use algorithms::Iv;
pub use choice::{Algorithm, Choice, NoSuchAlgorithm, NoSuchProvider};
pub use cipher::{Aad, Cipher, Forged};
pub use cpu::{Cpu, HIDING, HIDING_ALL, Processor};
pub use function::Function;
pub use keyed::Keyed;
pub use name::NoSuchSuite;
pub use provider::{CipherError, Provider};
pub use providers::{CryptoProviders, KeyedSa, KeyedSas, NoInstructions};
pub use random::{NoRandomness, fill_random, try_fill_random};
pub use speed::Speed;
pub use suite::{Suite, integrity_key_len};
pub use work::{Amount, Backend, Direction, Work};
