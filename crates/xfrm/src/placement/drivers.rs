//! The suites that the drivers of network cards take, where their sources say so. The kernel gives no list of them.

#![forbid(unsafe_code)]

use crypto::Suite;
use policy::KeyBits;

/// The suites that a driver takes; `None` for a driver that is not known here.
pub fn suites(driver: &str) -> Option<&'static [Suite]> {
    const GCM_128: Suite = Suite::AesGcm16(KeyBits::B128);
    const GCM_256: Suite = Suite::AesGcm16(KeyBits::B256);
    match driver {
        // ixgbe_ipsec.c, ipsec.c of ixgbevf: rfc4106(gcm(aes)) with a key of 128 bits.
        "ixgbe" | "ixgbevf" | "netdevsim" => Some(&[GCM_128]),
        // en_accel/ipsec.c: rfc4106(gcm(aes)) with a key of 128 or 256 bits.
        "mlx5_core" => Some(&[GCM_128, GCM_256]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_of_the_first_generation_do_the_short_key_only() {
        let does =
            |driver, bits| suites(driver).map(|known| known.contains(&Suite::AesGcm16(bits)));
        for (driver, long) in [("ixgbe", Some(false)), ("mlx5_core", Some(true)), ("vmxnet3", None)]
        {
            assert_eq!(does(driver, KeyBits::B128), long.map(|_| true), "{driver}");
            assert_eq!(does(driver, KeyBits::B256), long, "{driver}");
        }
    }
}
