//! A measurement, and the lengths, ciphers and schedules of which there is one.

use crate::site::Cipher;
use policy::{EspEncryption, Integrity, KeyBits, Protection};
use serde::Serialize;
use std::collections::BTreeMap;

/// The document's lengths of packets, octets.
pub(super) const LENGTHS: [usize; 6] = [64, 128, 256, 512, 1024, 1280];
/// The length at which the document has its highest throughput according to its abstract; the conclusion has 1,024.
pub(super) const MIDDLE: usize = 512;
/// Lengths that stand for short, middle and long packets.
pub(super) const THREE: [usize; 3] = [LENGTHS[0], MIDDLE, LENGTHS[5]];
/// Flows of each cipher, each with SAs of its own.
pub(super) const FLOWS: u8 = 4;

const fn gcm(name: &'static str, bits: KeyBits) -> Cipher {
    Cipher { name, protection: Protection::aead(EspEncryption::AesGcm16(bits)) }
}

const fn with_sha1(name: &'static str, encryption: EspEncryption) -> Cipher {
    let integrity = Some(Integrity::HmacSha1_96);
    Cipher { name, protection: Protection::Esp { encryption, integrity } }
}

pub(super) const GCM: Cipher = Cipher::AES_128_GCM;
pub(super) const CBC: Cipher =
    with_sha1("AES-128-CBC + SHA-1", EspEncryption::AesCbc(KeyBits::B128));

/// The document's ciphers with its MAC, and what took their place.
pub(super) const CIPHERS: &[Cipher] = &[
    GCM,
    gcm("AES-192-GCM", KeyBits::B192),
    gcm("AES-256-GCM", KeyBits::B256),
    CBC,
    with_sha1("AES-192-CBC + SHA-1", EspEncryption::AesCbc(KeyBits::B192)),
    with_sha1("AES-256-CBC + SHA-1", EspEncryption::AesCbc(KeyBits::B256)),
    #[cfg(feature = "legacy")]
    with_sha1("3DES + SHA-1", EspEncryption::DesCbc(policy::DesKeys::Three)),
    #[cfg(feature = "legacy")]
    with_sha1("DES + SHA-1", EspEncryption::DesCbc(policy::DesKeys::One)),
];

pub(super) const COMPLETION: &str = "run-to-completion";
pub(super) const PIPELINE: &str = "pipeline";

/// The cost of a stage for one packet that was delivered.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Step {
    /// Nanoseconds by the clock, in both daemons together.
    pub ns: f64,
    /// Packets that passed at once.
    pub batch: f64,
}

/// One measurement.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Row {
    pub round: usize,
    pub schedule: &'static str,
    pub workers: usize,
    pub cipher: &'static str,
    pub length: usize,
    /// Delivered in both directions together, in a second.
    pub packets_per_second: f64,
    /// Share of what was sent that did not arrive.
    pub loss: f64,
    /// Of both daemons, for one packet delivered, nanoseconds.
    pub cpu_ns: f64,
    /// Of the readers alone.
    pub reader_ns: f64,
    /// Of generator and sink.
    pub traffic_ns: f64,
    /// Misses of the caches in both daemons, for one packet delivered; `None`: the machine's counters do not tell.
    pub cache_misses: Option<f64>,
    /// Wake-ups of workers per thousand packets.
    pub wakeups: f64,
    pub stages: BTreeMap<&'static str, Step>,
}

impl Row {
    pub(super) fn gbits(&self) -> f64 {
        self.packets_per_second * self.length as f64 * 8.0 / 1e9
    }
}
