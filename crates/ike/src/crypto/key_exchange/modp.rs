//! MODP groups: powers of 2 modulo safe primes, and group 24's subgroup.
//!
//! The arithmetic with secret exponents takes the same time for all of them.

use crypto_bigint::modular::{FixedMontyForm, FixedMontyParams};
use crypto_bigint::{Odd, U256, U512, U1024, U1536, U2048, U3072, U4096, Uint};
use policy::Secret;
use std::sync::LazyLock;
use zeroize::{Zeroize, Zeroizing};

/// The operations that all groups have.
pub(super) trait Modp: Sync {
    /// Octets of an exponent.
    fn exponent_len(&self) -> usize;

    /// The generator to the exponent, padded to the modulus' length.
    fn public_value(&self, exponent: &Exponent) -> Vec<u8>;

    /// Returns `true` if a value is in the range of those that the peer may send (RFC 6989 §2.1).
    fn admits(&self, peer: &[u8]) -> bool;

    /// The peer's public value to the exponent, padded to the modulus' length; `None` if it is no public value.
    fn agree(&self, peer: &[u8], exponent: &Exponent) -> Option<Secret>;
}

/// A group's numbers.
pub(super) struct Parameters<const LIMBS: usize> {
    modulus: FixedMontyParams<LIMBS>,
    generator: Uint<LIMBS>,
    exponent_len: usize,
    /// The order of the subgroup, where there are others.
    order: Option<Exponent>,
}

macro_rules! safe_primes {
    ($($(#[$source:meta])* $name:ident: $number:ident, $exponent_len:ident, $modulus:literal;)*) => {
        $($(#[$source])*
        pub(super) static $name: LazyLock<Parameters<{ $number::LIMBS }>> = LazyLock::new(|| {
            Parameters::safe_prime(Odd::<$number>::from_be_hex($modulus), $exponent_len)
        });)*
    };
}

// The digits stand as in the RFCs, so that they can be compared line by line.
safe_primes! {
    /// RFC 7296 B.2.
    MODP_1024: U1024, ESTIMATE_2048, "\
     FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74\
     020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B302B0A6DF25F1437\
     4FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
     EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE65381FFFFFFFFFFFFFFFF";
    /// RFC 3526 §2.
    MODP_1536: U1536, ESTIMATE_2048, "\
     FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74\
     020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B302B0A6DF25F1437\
     4FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
     EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF05\
     98DA48361C55D39A69163FA8FD24CF5F83655D23DCA3AD961C62F356208552BB\
     9ED529077096966D670C354E4ABC9804F1746C08CA237327FFFFFFFFFFFFFFFF";
    /// RFC 3526 §3.
    MODP_2048: U2048, ESTIMATE_2048, "\
     FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74\
     020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B302B0A6DF25F1437\
     4FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
     EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF05\
     98DA48361C55D39A69163FA8FD24CF5F83655D23DCA3AD961C62F356208552BB\
     9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B\
     E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF695581718\
     3995497CEA956AE515D2261898FA051015728E5A8AACAA68FFFFFFFFFFFFFFFF";
    /// RFC 3526 §4.
    MODP_3072: U3072, ESTIMATE_4096, "\
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
     08E24FA074E5AB3143DB5BFCE0FD108E4B82D120A93AD2CAFFFFFFFFFFFFFFFF";
    /// RFC 3526 §5.
    MODP_4096: U4096, ESTIMATE_4096, "\
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
     93B4EA988D8FDDC186FFB7DC90A6C08F4DF435C934063199FFFFFFFFFFFFFFFF";
}

/// RFC 5114 §2.3.
pub(super) static MODP_2048_256: LazyLock<Parameters<{ U2048::LIMBS }>> = LazyLock::new(|| {
    let modulus = FixedMontyParams::new_vartime(Odd::<U2048>::from_be_hex(
        "\
     87A8E61DB4B6663CFFBBD19C651959998CEEF608660DD0F25D2CEED4435E3B00\
     E00DF8F1D61957D4FAF7DF4561B2AA3016C3D91134096FAA3BF4296D830E9A7C\
     209E0C6497517ABD5A8A9D306BCF67ED91F9E6725B4758C022E0B1EF4275BF7B\
     6C5BFC11D45F9088B941F54EB1E59BB8BC39A0BF12307F5C4FDB70C581B23F76\
     B63ACAE1CAA6B7902D52526735488A0EF13C6D9A51BFA4AB3AD8347796524D8E\
     F6A167B5A41825D967E144E5140564251CCACB83E6B486F6B3CA3F7971506026\
     C0B857F689962856DED4010ABD0BE621C3A3960A54E710C375F26375D7014103\
     A4B54330C198AF126116D2276E11715F693877FAD7EF09CADB094AE91E1A1597",
    ));
    let generator = U2048::from_be_hex(
        "\
     3FB32C9B73134D0B2E77506660EDBD484CA7B18F21EF205407F4793A1A0BA125\
     10DBC15077BE463FFF4FED4AAC0BB555BE3A6C1B0C6B47B1BC3773BF7E8C6F62\
     901228F8C28CBB18A55AE31341000A650196F931C77A57F2DDF463E5E9EC144B\
     777DE62AAAB8A8628AC376D282D6ED3864E67982428EBC831D14348F6F2F9193\
     B5045AF2767164E1DFC967C1FB3F2E55A4BD1BFFE83B9C80D052B985D182EA0A\
     DB2A3B7313D3FE14C8484B1E052588B9B7D2BBD2DF016199ECD06E1557CD0915\
     B3353BBB64E0EC377FD028370DF92B52C7891428CDC67EB6184B523D1DB246C3\
     2F63078490F00EF8D647D148D47954515E2327CFEF98C582664B4C0F6CC41659",
    );
    let order = U256::from_be_hex(
        "\
     8CF83642A709A097B447997640129DA299B1A47D1EB3750BA308B0FE64F5FBD3",
    );
    let order = Exponent { value: Zeroizing::new(order.resize()), bits: U256::BITS };
    Parameters { modulus, generator, exponent_len: ESTIMATE_2048, order: Some(order) }
});

/// Octets of an exponent for a modulus of up to 2048 bits, and of up to 4096: RFC 3526 §8's higher estimates.
const ESTIMATE_2048: usize = 320 / 8;
const ESTIMATE_4096: usize = 480 / 8;

/// A private exponent.
pub(super) struct Exponent {
    value: Zeroizing<U512>,
    /// The most bits that an exponent of the group has. The time of a power depends on this number alone.
    bits: u32,
}

impl Exponent {
    /// Makes a fresh exponent.
    pub(super) fn generate(group: &dyn Modp) -> Self {
        let mut octets = Zeroizing::new([0; U512::BYTES]);
        let octets = &mut octets[..group.exponent_len()];
        crypto::fill_random(octets);
        Self::of(group, octets)
    }

    /// The octets of an exponent in network order.
    pub(super) fn octets(&self) -> Secret {
        let whole = Zeroizing::new(to_octets(&*self.value));
        Secret::new(whole[whole.len() - self.bits as usize / 8..].to_vec())
    }

    /// Takes an exponent as octets in network order, as many as a fresh one has.
    pub(super) fn of(group: &dyn Modp, octets: &[u8]) -> Self {
        assert_eq!(octets.len(), group.exponent_len(), "octets of an exponent");
        let mut whole = Zeroizing::new([0; U512::BYTES]);
        whole[U512::BYTES - octets.len()..].copy_from_slice(octets);
        let value = Zeroizing::new(U512::from_be_slice(&*whole));
        Self { value, bits: 8 * octets.len() as u32 }
    }
}

impl<const LIMBS: usize> Parameters<LIMBS> {
    /// Powers of 2, of which a safe prime leaves no small subgroup to hide in.
    fn safe_prime(modulus: Odd<Uint<LIMBS>>, exponent_len: usize) -> Self {
        let modulus = FixedMontyParams::new_vartime(modulus);
        Self { modulus, generator: Uint::from_u8(2), exponent_len, order: None }
    }

    fn in_range(&self, peer: &[u8]) -> Option<Uint<LIMBS>> {
        if peer.len() != Uint::<LIMBS>::BYTES {
            return None;
        }
        let peer = Uint::from_be_slice(peer);
        // RFC 6989 §2.1: 1 < peer < p − 1. The value is public, so the comparison need not hide it.
        let p_minus_1 = self.modulus.modulus().as_ref().wrapping_sub(&Uint::ONE);
        (peer > Uint::ONE && peer < p_minus_1).then_some(peer)
    }

    fn power(&self, base: &Uint<LIMBS>, exponent: &Exponent) -> Zeroizing<Uint<LIMBS>> {
        let mut power = FixedMontyForm::new(base, &self.modulus)
            .pow_bounded_exp(&*exponent.value, exponent.bits);
        let value = Zeroizing::new(power.retrieve());
        power.zeroize();
        value
    }
}

impl<const LIMBS: usize> Modp for Parameters<LIMBS> {
    fn exponent_len(&self) -> usize {
        self.exponent_len
    }

    fn public_value(&self, exponent: &Exponent) -> Vec<u8> {
        to_octets(&self.power(&self.generator, exponent))
    }

    fn admits(&self, peer: &[u8]) -> bool {
        self.in_range(peer).is_some()
    }

    fn agree(&self, peer: &[u8], exponent: &Exponent) -> Option<Secret> {
        let peer = self.in_range(peer)?;
        // RFC 6989 §2.2: a value of another subgroup would tell parts of the exponent.
        if self.order.as_ref().is_some_and(|order| *self.power(&peer, order) != Uint::ONE) {
            return None;
        }
        Some(Secret::new(to_octets(&self.power(&peer, exponent))))
    }
}

fn to_octets<const LIMBS: usize>(value: &Uint<LIMBS>) -> Vec<u8> {
    let mut encoded = value.to_be_bytes();
    let octets = encoded.as_ref().to_vec();
    encoded.as_mut().zeroize();
    octets
}
