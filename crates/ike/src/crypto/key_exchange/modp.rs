//! MODP groups: powers of 2 modulo safe primes.
//!
//! The arithmetic with secret exponents takes the same time for all of them.

use crypto_bigint::modular::{FixedMontyForm, FixedMontyParams};
use crypto_bigint::{Odd, U512, U1024, U1536, U2048, U3072, U4096, Uint};
use policy::Secret;
use std::sync::LazyLock;
use zeroize::{Zeroize, Zeroizing};

type Modulus<const LIMBS: usize> = FixedMontyParams<LIMBS>;

/// RFC 7296 B.2.
static MODULUS_1024: LazyLock<Modulus<{ U1024::LIMBS }>> = LazyLock::new(|| {
    FixedMontyParams::new_vartime(Odd::<U1024>::from_be_hex(
        "\
     FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74\
     020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B302B0A6DF25F1437\
     4FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
     EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE65381FFFFFFFFFFFFFFFF",
    ))
});

/// RFC 3526 §2.
static MODULUS_1536: LazyLock<Modulus<{ U1536::LIMBS }>> = LazyLock::new(|| {
    FixedMontyParams::new_vartime(Odd::<U1536>::from_be_hex(
        "\
     FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74\
     020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B302B0A6DF25F1437\
     4FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
     EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF05\
     98DA48361C55D39A69163FA8FD24CF5F83655D23DCA3AD961C62F356208552BB\
     9ED529077096966D670C354E4ABC9804F1746C08CA237327FFFFFFFFFFFFFFFF",
    ))
});

/// RFC 3526 §3.
static MODULUS_2048: LazyLock<Modulus<{ U2048::LIMBS }>> = LazyLock::new(|| {
    FixedMontyParams::new_vartime(Odd::<U2048>::from_be_hex(
        "\
     FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74\
     020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B302B0A6DF25F1437\
     4FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
     EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF05\
     98DA48361C55D39A69163FA8FD24CF5F83655D23DCA3AD961C62F356208552BB\
     9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B\
     E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF695581718\
     3995497CEA956AE515D2261898FA051015728E5A8AACAA68FFFFFFFFFFFFFFFF",
    ))
});

/// RFC 3526 §4.
static MODULUS_3072: LazyLock<Modulus<{ U3072::LIMBS }>> = LazyLock::new(|| {
    FixedMontyParams::new_vartime(Odd::<U3072>::from_be_hex(
        "\
     FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74\
     020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B302B0A6DF25F1437\
     4FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
     EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF05\
     98DA48361C55D39A69163FA8FD24CF5F83655D23DCA3AD961C62F356208552BB\
     9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B\
     E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF695581718\
     3995497CEA956AE515D2261898FA051015728E5A8AAAC42DAD33170D04507A33\
     A85521ABDF1CBA64ECFB850458DBEF0A8AEA71575D060C7DB3970F85A6E1E4C7\
     ABF5AE8CDB0933D71E8C94E04A25619DCEE3D2261AD2EE6BF12FFA06D98A0864\
     D87602733EC86A64521F2B18177B200CBBE117577A615D6C770988C0BAD946E2\
     08E24FA074E5AB3143DB5BFCE0FD108E4B82D120A93AD2CAFFFFFFFFFFFFFFFF",
    ))
});

/// RFC 3526 §5.
static MODULUS_4096: LazyLock<Modulus<{ U4096::LIMBS }>> = LazyLock::new(|| {
    FixedMontyParams::new_vartime(Odd::<U4096>::from_be_hex(
        "\
     FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74\
     020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B302B0A6DF25F1437\
     4FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
     EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF05\
     98DA48361C55D39A69163FA8FD24CF5F83655D23DCA3AD961C62F356208552BB\
     9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B\
     E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF695581718\
     3995497CEA956AE515D2261898FA051015728E5A8AAAC42DAD33170D04507A33\
     A85521ABDF1CBA64ECFB850458DBEF0A8AEA71575D060C7DB3970F85A6E1E4C7\
     ABF5AE8CDB0933D71E8C94E04A25619DCEE3D2261AD2EE6BF12FFA06D98A0864\
     D87602733EC86A64521F2B18177B200CBBE117577A615D6C770988C0BAD946E2\
     08E24FA074E5AB3143DB5BFCE0FD108E4B82D120A92108011A723C12A787E6D7\
     88719A10BDBA5B2699C327186AF4E23C1A946834B6150BDA2583E9CA2AD44CE8\
     DBBBC2DB04DE8EF92E8EFC141FBECAA6287C59474E6BC05D99B2964FA090C3A2\
     233BA186515BE7ED1F612970CEE2D7AFB81BDD762170481CD0069127D5B05AA9\
     93B4EA988D8FDDC186FFB7DC90A6C08F4DF435C934063199FFFFFFFFFFFFFFFF",
    ))
});

/// A group.
#[derive(Clone, Copy)]
pub(super) enum Modp {
    Bits1024,
    Bits1536,
    Bits2048,
    Bits3072,
    Bits4096,
}

/// A private exponent.
pub(super) struct Exponent {
    value: Zeroizing<U512>,
    /// How many there may be: all that the time of a power tells.
    bits: u32,
}

impl Modp {
    /// Octets of an exponent: RFC 3526 §8's higher estimate for the largest of the groups it serves.
    fn exponent_len(self) -> usize {
        match self {
            Self::Bits1024 | Self::Bits1536 | Self::Bits2048 => 320 / 8,
            Self::Bits3072 | Self::Bits4096 => 480 / 8,
        }
    }

    /// Makes a fresh exponent.
    pub(super) fn exponent(self) -> Exponent {
        let mut octets = Zeroizing::new([0; U512::BYTES]);
        let octets = &mut octets[..self.exponent_len()];
        aws_lc_rs::rand::fill(octets).expect("the system's randomness never runs dry");
        self.exponent_from(octets)
    }

    /// Takes an exponent as octets in network order, as many as a fresh one has.
    pub(super) fn exponent_from(self, octets: &[u8]) -> Exponent {
        assert_eq!(octets.len(), self.exponent_len(), "octets of an exponent");
        let mut whole = Zeroizing::new([0; U512::BYTES]);
        whole[U512::BYTES - octets.len()..].copy_from_slice(octets);
        let value = Zeroizing::new(U512::from_be_slice(&*whole));
        Exponent { value, bits: 8 * self.exponent_len() as u32 }
    }

    /// 2 to the exponent, padded to the modulus' length.
    pub(super) fn public_value(self, exponent: &Exponent) -> Vec<u8> {
        match self {
            Self::Bits1024 => to_octets(&power(&MODULUS_1024, &Uint::from_u8(2), exponent)),
            Self::Bits1536 => to_octets(&power(&MODULUS_1536, &Uint::from_u8(2), exponent)),
            Self::Bits2048 => to_octets(&power(&MODULUS_2048, &Uint::from_u8(2), exponent)),
            Self::Bits3072 => to_octets(&power(&MODULUS_3072, &Uint::from_u8(2), exponent)),
            Self::Bits4096 => to_octets(&power(&MODULUS_4096, &Uint::from_u8(2), exponent)),
        }
    }

    /// Whether a value is one that the peer may send.
    pub(super) fn admits(self, peer: &[u8]) -> bool {
        match self {
            Self::Bits1024 => admitted(&MODULUS_1024, peer).is_some(),
            Self::Bits1536 => admitted(&MODULUS_1536, peer).is_some(),
            Self::Bits2048 => admitted(&MODULUS_2048, peer).is_some(),
            Self::Bits3072 => admitted(&MODULUS_3072, peer).is_some(),
            Self::Bits4096 => admitted(&MODULUS_4096, peer).is_some(),
        }
    }

    /// The peer's public value to the exponent, padded to the modulus' length; `None` if it is no public value.
    pub(super) fn agree(self, peer: &[u8], exponent: &Exponent) -> Option<Secret> {
        match self {
            Self::Bits1024 => agree(&MODULUS_1024, peer, exponent),
            Self::Bits1536 => agree(&MODULUS_1536, peer, exponent),
            Self::Bits2048 => agree(&MODULUS_2048, peer, exponent),
            Self::Bits3072 => agree(&MODULUS_3072, peer, exponent),
            Self::Bits4096 => agree(&MODULUS_4096, peer, exponent),
        }
    }
}

fn agree<const LIMBS: usize>(
    modulus: &Modulus<LIMBS>,
    peer: &[u8],
    exponent: &Exponent,
) -> Option<Secret> {
    let peer = admitted(modulus, peer)?;
    Some(Secret::new(to_octets(&power(modulus, &peer, exponent))))
}

fn admitted<const LIMBS: usize>(modulus: &Modulus<LIMBS>, peer: &[u8]) -> Option<Uint<LIMBS>> {
    if peer.len() != Uint::<LIMBS>::BYTES {
        return None;
    }
    let peer = Uint::from_be_slice(peer);
    // RFC 6989 §2.1: 1 < peer < p − 1. The value is public, so the comparison need not hide it.
    let p_minus_1 = modulus.modulus().as_ref().wrapping_sub(&Uint::ONE);
    (peer > Uint::ONE && peer < p_minus_1).then_some(peer)
}

fn power<const LIMBS: usize>(
    modulus: &Modulus<LIMBS>,
    base: &Uint<LIMBS>,
    exponent: &Exponent,
) -> Zeroizing<Uint<LIMBS>> {
    let mut power =
        FixedMontyForm::new(base, modulus).pow_bounded_exp(&*exponent.value, exponent.bits);
    let value = Zeroizing::new(power.retrieve());
    power.zeroize();
    value
}

fn to_octets<const LIMBS: usize>(value: &Uint<LIMBS>) -> Vec<u8> {
    let mut encoded = value.to_be_bytes();
    let octets = encoded.as_ref().to_vec();
    encoded.as_mut().zeroize();
    octets
}
