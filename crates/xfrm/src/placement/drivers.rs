//! The suites that the drivers of network cards take, and the size of their tables of addresses, where their sources say
//! so. The kernel tells neither.

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

/// The number of addresses to which SAs in a card of a driver can receive; `None` if that is not known here, or has no
/// limit of its own.
pub(super) fn addresses(driver: &str) -> Option<usize> {
    match driver {
        // IXGBE_IPSEC_MAX_RX_IP_COUNT of ixgbe_ipsec.h.
        "ixgbe" => Some(128),
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

    #[test]
    fn the_card_of_the_document_has_room_for_128_addresses() {
        assert_eq!((addresses("ixgbe"), addresses("mlx5_core")), (Some(128), None));
    }
}
