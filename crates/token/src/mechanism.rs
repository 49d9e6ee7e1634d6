//! Signature algorithms as mechanisms of a token. It is given the hash, as all tokens can sign that; one that cannot is
//! given the octets.

use aws_lc_rs::digest;
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsPssParams};
use cryptoki::mechanism::{Mechanism, MechanismType};
use ike::proof::outside::{Hash, Order, Scheme};

/// The DigestInfo of PKCS#1 before a hash: SHA-256, SHA-384 and SHA-512.
const PREFIXES: [[u8; 19]; 3] = {
    const fn prefix(length: u8, oid: u8) -> [u8; 19] {
        let all = length + 17;
        [0x30, all, 0x30, 0x0d, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, oid, 5, 0, 4, length]
    }
    [prefix(32, 1), prefix(48, 2), prefix(64, 3)]
};

/// The hashes that tokens sign.
#[derive(Clone, Copy)]
struct Sha2 {
    digest: &'static digest::Algorithm,
    prefix: [u8; 19],
    mechanism: MechanismType,
    mask: PkcsMgfType,
    octets: u8,
}

fn sha2(hash: Hash) -> Option<Sha2> {
    let (digest, prefix, mechanism, mask, octets) = match hash {
        Hash::Sha1 => return None,
        Hash::Sha256 => (&digest::SHA256, 0, MechanismType::SHA256, PkcsMgfType::MGF1_SHA256, 32),
        Hash::Sha384 => (&digest::SHA384, 1, MechanismType::SHA384, PkcsMgfType::MGF1_SHA384, 48),
        Hash::Sha512 => (&digest::SHA512, 2, MechanismType::SHA512, PkcsMgfType::MGF1_SHA512, 64),
    };
    Some(Sha2 { digest, prefix: PREFIXES[prefix], mechanism, mask, octets })
}

/// The mechanism for an order and the octets that the token is given; `None` if it has no mechanism that fits.
pub(crate) fn choose(
    order: &Order,
    known: &[MechanismType],
) -> Option<(Mechanism<'static>, Vec<u8>)> {
    use {Mechanism as M, MechanismType as T};
    let (Scheme::Pkcs1(hash) | Scheme::Pss(hash) | Scheme::Ecdsa(hash)) = order.scheme else {
        return None;
    };
    let sha2 = sha2(hash)?;
    let parameters = PkcsPssParams {
        hash_alg: sha2.mechanism,
        mgf: sha2.mask,
        s_len: u64::from(sha2.octets).into(),
    };
    let (of_hash, of_octets) = match (order.scheme, sha2.mechanism) {
        (Scheme::Pkcs1(_), T::SHA512) => (M::RsaPkcs, M::Sha512RsaPkcs),
        (Scheme::Pkcs1(_), T::SHA384) => (M::RsaPkcs, M::Sha384RsaPkcs),
        (Scheme::Pkcs1(_), _) => (M::RsaPkcs, M::Sha256RsaPkcs),
        (Scheme::Pss(_), T::SHA512) => (M::RsaPkcsPss(parameters), M::Sha512RsaPkcsPss(parameters)),
        (Scheme::Pss(_), T::SHA384) => (M::RsaPkcsPss(parameters), M::Sha384RsaPkcsPss(parameters)),
        (Scheme::Pss(_), _) => (M::RsaPkcsPss(parameters), M::Sha256RsaPkcsPss(parameters)),
        (_, T::SHA512) => (M::Ecdsa, M::EcdsaSha512),
        (_, T::SHA384) => (M::Ecdsa, M::EcdsaSha384),
        (_, _) => (M::Ecdsa, M::EcdsaSha256),
    };
    if known.contains(&of_hash.mechanism_type()) {
        let hashed = digest::digest(sha2.digest, &order.octets);
        let octets = match order.scheme {
            Scheme::Pkcs1(_) => [&sha2.prefix[..], hashed.as_ref()].concat(),
            _ => hashed.as_ref().to_vec(),
        };
        return Some((of_hash, octets));
    }
    known.contains(&of_octets.mechanism_type()).then(|| (of_octets, order.octets.clone()))
}

/// All mechanisms that are used, if a token has them.
pub(crate) const USED: [MechanismType; 12] = [
    MechanismType::RSA_PKCS,
    MechanismType::RSA_PKCS_PSS,
    MechanismType::ECDSA,
    MechanismType::SHA256_RSA_PKCS,
    MechanismType::SHA384_RSA_PKCS,
    MechanismType::SHA512_RSA_PKCS,
    MechanismType::SHA256_RSA_PKCS_PSS,
    MechanismType::SHA384_RSA_PKCS_PSS,
    MechanismType::SHA512_RSA_PKCS_PSS,
    MechanismType::ECDSA_SHA256,
    MechanismType::ECDSA_SHA384,
    MechanismType::ECDSA_SHA512,
];

/// Returns `true` if a token with these mechanisms can sign with RSASSA-PSS.
pub(crate) fn knows_pss(known: &[MechanismType]) -> bool {
    known.contains(&MechanismType::RSA_PKCS_PSS)
        || known.contains(&MechanismType::SHA256_RSA_PKCS_PSS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(scheme: Scheme, known: &[MechanismType]) -> Option<(MechanismType, usize)> {
        let order = Order { scheme, octets: vec![7; 1000] };
        choose(&order, known).map(|(mechanism, octets)| (mechanism.mechanism_type(), octets.len()))
    }

    #[test]
    fn a_token_hashes_only_if_it_must() {
        use MechanismType as T;
        let all = [T::RSA_PKCS, T::SHA384_RSA_PKCS, T::RSA_PKCS_PSS, T::ECDSA, T::ECDSA_SHA512];
        let pkcs1 = Scheme::Pkcs1(Hash::Sha384);
        assert_eq!(chosen(pkcs1, &all), Some((T::RSA_PKCS, 19 + 48)));
        assert_eq!(chosen(pkcs1, &all[1..]), Some((T::SHA384_RSA_PKCS, 1000)));
        assert_eq!(chosen(Scheme::Pkcs1(Hash::Sha256), &all[1..]), None);
        assert_eq!(chosen(Scheme::Pss(Hash::Sha256), &all), Some((T::RSA_PKCS_PSS, 32)));
        let ecdsa = Scheme::Ecdsa(Hash::Sha512);
        assert_eq!(chosen(ecdsa, &all), Some((T::ECDSA, 64)));
        assert_eq!(chosen(ecdsa, &all[4..]), Some((T::ECDSA_SHA512, 1000)));
        assert_eq!(chosen(Scheme::Ed25519, &all), None);
        assert_eq!(chosen(Scheme::Pkcs1(Hash::Sha1), &all), None);
        assert!(knows_pss(&all) && !knows_pss(&all[3..]));
    }
}
