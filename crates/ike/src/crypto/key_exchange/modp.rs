//! MODP groups: powers of 2 modulo safe primes.
//!
//! The arithmetic with secret exponents takes the same time for all of them.

use crypto_bigint::modular::{FixedMontyForm, FixedMontyParams};
use crypto_bigint::{Odd, U320, U1024, U1536, U2048, Uint};
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

/// A group.
#[derive(Clone, Copy)]
pub(super) enum Modp {
    Bits1024,
    Bits1536,
    Bits2048,
}

/// A private exponent. RFC 3526 §8 asks for up to 320 bits with the largest of these groups.
pub(super) struct Exponent(Zeroizing<U320>);

impl Exponent {
    /// Makes a fresh one.
    pub(super) fn generate() -> Self {
        let mut octets = Zeroizing::new([0; U320::BYTES]);
        aws_lc_rs::rand::fill(&mut *octets).expect("the system's randomness never runs dry");
        Self::from_octets(&octets)
    }

    /// Takes it as octets in network order.
    pub(super) fn from_octets(octets: &[u8; U320::BYTES]) -> Self {
        Self(Zeroizing::new(U320::from_be_slice(octets)))
    }
}

impl Modp {
    /// 2 to the exponent, padded to the modulus' length.
    pub(super) fn public_value(self, exponent: &Exponent) -> Vec<u8> {
        match self {
            Self::Bits1024 => to_octets(&power(&MODULUS_1024, &Uint::from_u8(2), exponent)),
            Self::Bits1536 => to_octets(&power(&MODULUS_1536, &Uint::from_u8(2), exponent)),
            Self::Bits2048 => to_octets(&power(&MODULUS_2048, &Uint::from_u8(2), exponent)),
        }
    }

    /// Whether a value is one that the peer may send.
    pub(super) fn admits(self, peer: &[u8]) -> bool {
        match self {
            Self::Bits1024 => admitted(&MODULUS_1024, peer).is_some(),
            Self::Bits1536 => admitted(&MODULUS_1536, peer).is_some(),
            Self::Bits2048 => admitted(&MODULUS_2048, peer).is_some(),
        }
    }

    /// The peer's public value to the exponent, padded to the modulus' length; `None` if it is no public value.
    pub(super) fn agree(self, peer: &[u8], exponent: &Exponent) -> Option<Secret> {
        match self {
            Self::Bits1024 => agree(&MODULUS_1024, peer, exponent),
            Self::Bits1536 => agree(&MODULUS_1536, peer, exponent),
            Self::Bits2048 => agree(&MODULUS_2048, peer, exponent),
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
    let mut power = FixedMontyForm::new(base, modulus).pow(&exponent.0);
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
