//! The speed of a cipher by itself: in one thread, without packets.

use ::crypto::{CipherError, Provider, Speed, Suite};
use std::time::Duration;

/// A cipher.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cipher {
    pub name: &'static str,
    /// The suite that has it.
    suite: &'static str,
    /// The suite whose time is taken off, so that the cipher is left.
    without: Option<&'static str>,
}

pub(super) const GCM: Cipher =
    Cipher { name: "AES-128-GCM", suite: "AES-GCM-16-128", without: None };
pub(super) const CBC: Cipher = Cipher {
    name: "AES-128-CBC",
    suite: "AES-CBC-128/HMAC-SHA2-256-128",
    without: Some("NULL/HMAC-SHA2-256-128"),
};

impl Cipher {
    /// Gigabits of packets of `size` octets that a processor encrypts and decrypts in a second.
    ///
    /// # Errors
    /// If the provider lacks the cipher.
    pub(super) fn gbit_s(
        self,
        provider: Provider,
        size: usize,
        time: Duration,
    ) -> Result<[f64; 2], String> {
        let seconds = |name: &str| {
            let speed = speed(provider, name, size, time).map_err(|e| format!("{name}: {e}"))?;
            Ok::<_, String>([speed.seal, speed.open].map(f64::recip))
        };
        let mut all = seconds(self.suite)?;
        if let Some(without) = self.without {
            let [seal, open] = seconds(without)?;
            all = [all[0] - seal, all[1] - open];
        }
        Ok(all.map(|seconds| size as f64 * 8.0 / 1e9 / seconds.max(1e-10)))
    }
}

fn speed(
    provider: Provider,
    suite: &str,
    size: usize,
    time: Duration,
) -> Result<Speed, CipherError> {
    let suite: Suite = suite.parse().expect("a suite's name");
    Speed::measure(provider, suite, size, time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ciphers_have_a_speed_with_and_without_instructions() {
        for provider in [Provider::AwsLc, Provider::Portable] {
            for cipher in [GCM, CBC] {
                let speed = cipher.gbit_s(provider, 64, Duration::from_millis(2));
                let speed = speed.unwrap_or_else(|error| panic!("{provider}: {error}"));
                assert!(speed.iter().all(|gbit_s| *gbit_s > 0.0), "{provider} {speed:?}");
            }
        }
    }
}
