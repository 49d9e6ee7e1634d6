//! Ciphers of ESP packets and of IKE's Encrypted payload behind one trait, and the providers they come from.

#![forbid(unsafe_code)]

mod aws_lc;
mod choice;
mod cipher;
mod cpu;
#[cfg(feature = "legacy")]
mod des;
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
#[cfg(feature = "ring")]
mod ring;
mod speed;
mod suite;
mod with_mac;
mod work;

pub use aws_lc::fill_random;
pub use choice::{Algorithm, Choice, NoSuchAlgorithm, NoSuchProvider};
pub use cipher::{Aad, Cipher, Forged};
pub use cpu::{Cpu, HIDING};
pub use function::Function;
pub use keyed::Keyed;
pub use name::NoSuchSuite;
pub use provider::{CipherError, Provider};
pub use providers::{CryptoProviders, KeyedSa, KeyedSas, NoInstructions};
pub use speed::Speed;
pub use suite::{Suite, integrity_key_len};
pub use work::{Amount, Direction, Place, Work};
