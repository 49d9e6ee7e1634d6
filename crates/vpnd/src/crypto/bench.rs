//! `vpnctl crypto bench`: how fast each provider is with each algorithm and size, in this process.

use ::crypto::{Cpu, Function, Provider, Speed, Suite};
use serde::Serialize;
use std::time::Duration;

/// Octets of plaintext that are tried unless others are named: the ones of openssl speed, and a full packet.
pub const SIZES: [usize; 6] = [64, 256, 1024, 1400, 8192, 65_536];

/// Algorithms that are tried unless others are named.
pub const ALGORITHMS: [&str; 5] =
    ["aes-gcm-128", "aes-gcm-256", "aes-gmac-256", "chacha20-poly1305", "aes-cbc-256"];

/// The algorithms, providers and sizes to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Suites with their providers and sizes.
    steps: Vec<(Suite, Provider, usize)>,
}

/// The throughput of one provider with one algorithm and size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// As in `AES-GCM-16-256`.
    pub algorithm: String,
    /// `aws-lc`, `ring` or `portable`.
    pub provider: String,
    /// `hardware` or `software`.
    pub place: String,
    /// Octets of plaintext.
    pub size: usize,
    /// Packets sealed in a second.
    pub seal: f64,
    /// Packets opened in a second.
    pub open: f64,
}

impl Plan {
    /// Every size of every suite that one of the names stands for, by every provider that has it.
    pub fn new(names: &[String], sizes: &[usize]) -> Self {
        let suites = Function::all().map(Function::suite).filter(|suite| {
            names.iter().any(|name| suite.algorithm().to_string().eq_ignore_ascii_case(name))
        });
        let steps = suites.flat_map(|suite| {
            let providers = Provider::ALL.into_iter().filter(move |p| p.supports(suite));
            providers.flat_map(move |p| sizes.iter().map(move |size| (suite, p, *size)))
        });
        Self { steps: steps.collect() }
    }

    /// The number of measurements.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Returns `true` if there is nothing to measure.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Measures for about `time` in all, and tells `progress` before each measurement how many are done.
    pub fn run(&self, time: Duration, mut progress: impl FnMut(usize)) -> Vec<Measured> {
        let cpu = Cpu::detect();
        let share = time / u32::try_from(self.len().max(1)).unwrap_or(u32::MAX);
        let measured = self.steps.iter().enumerate().map(|(done, (suite, provider, size))| {
            progress(done);
            let speed = Speed::measure(*provider, *suite, *size, share)
                .expect("the provider has the suite");
            let hardware = suite.functions().all(|f| !cpu.instructions(*provider, f).is_empty());
            Measured {
                algorithm: suite.to_string(),
                provider: provider.to_string(),
                place: if hardware { "hardware" } else { "software" }.to_owned(),
                size: *size,
                seal: speed.seal,
                open: speed.open,
            }
        });
        measured.collect()
    }
}

impl Measured {
    /// Gigabits of plaintext sealed in a second.
    pub fn seal_gbits(&self) -> f64 {
        self.seal * self.size as f64 * 8.0 / 1e9
    }

    /// The same opened.
    pub fn open_gbits(&self) -> f64 {
        self.open * self.size as f64 * 8.0 / 1e9
    }
}
