//! The speed of a cipher in this process.

use crate::cipher::Aad;
use crate::provider::{CipherError, Provider};
use crate::suite::Suite;
use policy::Secret;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Packets in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Packets protected.
    pub seal: f64,
    /// Packets checked and opened.
    pub open: f64,
}

impl Speed {
    /// Seals and opens packets of `size` octets (whole blocks of the suite) for about half of `time` each.
    ///
    /// # Errors
    /// If the provider lacks the suite.
    pub fn measure(
        provider: Provider,
        suite: Suite,
        size: usize,
        time: Duration,
    ) -> Result<Self, CipherError> {
        let key = Secret::new(vec![0x5a; suite.key_material_len()]);
        let cipher = provider.cipher(suite, &key)?;
        let size = size.next_multiple_of(suite.block_len());
        let plaintext = vec![0xa5; size];
        let mut opened = vec![0; size];
        let mut sealed = vec![0; suite.iv_len() + size + suite.icv_len()];
        let iv = vec![7; suite.iv_len()];
        let header = |sequence| Aad::Esp { spi: 0x1000, sequence, esn: false };
        let seal = rate(time / 2, |n| {
            cipher.seal(&iv, header(n), black_box(&plaintext), &[], &mut sealed);
        });
        cipher.seal(&iv, header(1), &plaintext, &[], &mut sealed);
        let open = rate(time / 2, |_| {
            let outcome = cipher.open(header(1), black_box(&sealed), &mut opened);
            assert_eq!(outcome, Ok(size), "what was sealed opens");
        });
        Ok(Self { seal, open })
    }
}

/// The rate per second of an action. The clock is read so seldom that it does not count.
fn rate(time: Duration, mut act: impl FnMut(u64)) -> f64 {
    let (mut done, mut batch) = (0_u64, 1_u64);
    let start = Instant::now();
    loop {
        for _ in 0..batch {
            done += 1;
            act(done);
        }
        let elapsed = start.elapsed();
        if elapsed >= time {
            return done as f64 / elapsed.as_secs_f64();
        }
        // A batch takes a twentieth of the time at most, as far as one can tell.
        let wanted = time.as_secs_f64() / 20.0 * done as f64 / elapsed.as_secs_f64().max(1e-9);
        batch = (wanted as u64).clamp(1, batch * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::{Integrity, KeyBits};

    #[test]
    fn every_provider_has_a_speed_and_says_what_it_lacks() {
        let cbc = Suite::AesCbcMac(KeyBits::B128, Integrity::HmacSha2_256_128);
        for (provider, suite) in [
            (Provider::AwsLc, cbc),
            (Provider::Portable, cbc),
            (Provider::Ring, Suite::AesGcm16(KeyBits::B128)),
        ] {
            let speed = Speed::measure(provider, suite, 100, Duration::from_millis(4));
            let Speed { seal, open } = speed.expect("it has the suite");
            assert!(seal > 0.0 && open > 0.0, "{provider} {suite}: {seal} {open}");
        }
        assert!(Speed::measure(Provider::Ring, cbc, 64, Duration::ZERO).is_err());
    }
}
