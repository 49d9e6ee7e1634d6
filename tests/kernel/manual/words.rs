//! Suites in the words of `ip xfrm`.

use crypto::{Suite, integrity_key_len};
use policy::{AhIntegrity, Integrity, KeyBits};

/// Every integrity algorithm.
pub const MACS: [Integrity; 7] = [
    Integrity::HmacMd5_96,
    Integrity::HmacSha1_96,
    Integrity::HmacSha2_256_128,
    Integrity::HmacSha2_384_192,
    Integrity::HmacSha2_512_256,
    Integrity::AesXcbc96,
    Integrity::AesCmac96,
];

const SIZES: [KeyBits; 3] = [KeyBits::B128, KeyBits::B192, KeyBits::B256];

/// Every suite of ESP; of ciphers with a MAC, each cipher and each MAC.
pub fn esp() -> Vec<Suite> {
    let sizes = SIZES.into_iter().flat_map(|k| [Suite::AesGcm16(k), Suite::AesGmac(k)]);
    let cbc = MACS.into_iter().zip(SIZES.into_iter().cycle());
    sizes
        .chain([Suite::ChaCha20Poly1305])
        .chain(cbc.map(|(mac, k)| Suite::AesCbcMac(k, mac)))
        .chain(MACS.map(Suite::NullMac))
        .collect()
}

/// Every suite of AH that Linux has: AES-GMAC is none of them.
pub fn ah() -> Vec<Suite> {
    MACS.map(|mac| Suite::Ah(AhIntegrity::Mac(mac))).into()
}

/// The algorithms of `ip xfrm state add` for a suite with these keys, as RFC 7296 §2.17 cuts them: the cipher's first.
pub fn algorithms(suite: Suite, key: &[u8]) -> String {
    match suite {
        Suite::AesGcm16(_) => format!("aead rfc4106(gcm(aes)) {} 128", hex(key)),
        Suite::AesGmac(_) => format!("aead rfc4543(gcm(aes)) {} 128", hex(key)),
        Suite::ChaCha20Poly1305 => format!("aead rfc7539esp(chacha20,poly1305) {} 128", hex(key)),
        Suite::AesCbcMac(_, mac) => {
            let (cipher, integrity) = key.split_at(key.len() - integrity_key_len(mac));
            format!("enc cbc(aes) {} {}", hex(cipher), integrity_words(mac, integrity))
        }
        Suite::NullMac(mac) => format!("enc ecb(cipher_null) \"\" {}", integrity_words(mac, key)),
        Suite::Ah(AhIntegrity::Mac(mac)) => integrity_words(mac, key),
        other => panic!("Linux has no {other}"),
    }
}

fn integrity_words(mac: Integrity, key: &[u8]) -> String {
    let (name, bits) = match mac {
        Integrity::HmacMd5_96 => ("hmac(md5)", 96),
        Integrity::HmacSha1_96 => ("hmac(sha1)", 96),
        Integrity::HmacSha2_256_128 => ("hmac(sha256)", 128),
        Integrity::HmacSha2_384_192 => ("hmac(sha384)", 192),
        Integrity::HmacSha2_512_256 => ("hmac(sha512)", 256),
        Integrity::AesXcbc96 => ("xcbc(aes)", 96),
        Integrity::AesCmac96 => ("cmac(aes)", 96),
    };
    format!("auth-trunc {name} {} {bits}", hex(key))
}

fn hex(octets: &[u8]) -> String {
    octets.iter().fold("0x".to_owned(), |text, octet| format!("{text}{octet:02x}"))
}
