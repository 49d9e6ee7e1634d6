//! Ciphers from the outside: round trips, what is authenticated, and what a forgery leaves behind.

use crypto::{Aad, Cipher, CipherError, Forged, Provider, Suite};
use policy::{EspEncryption, Integrity, KeyBits, Protection, Secret};

/// Every suite of ESP, with each provider that has it.
fn suites() -> impl Iterator<Item = (Provider, Suite)> {
    let all = || Suite::all().filter(|suite| !suite.is_ah());
    Provider::ALL
        .into_iter()
        .flat_map(move |provider| all().map(move |suite| (provider, suite)))
        .filter(|(provider, suite)| provider.supports(*suite))
}

/// Octets that differ from place to place.
fn octets(len: usize, start: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(7).wrapping_add(start)).collect()
}

fn cipher(provider: Provider, suite: Suite) -> Box<dyn Cipher> {
    let key = Secret::new(octets(suite.key_material_len(), 3));
    provider.cipher(suite, &key).expect("the provider has the suite")
}

fn seal(
    cipher: &dyn Cipher,
    suite: Suite,
    aad: Aad<'_>,
    plaintext: &[u8],
    trailer: &[u8],
) -> Vec<u8> {
    let len = suite.iv_len() + plaintext.len() + trailer.len() + suite.icv_len();
    let mut out = vec![0xaa; len];
    cipher.seal(&octets(suite.iv_len(), 99), aad, plaintext, trailer, &mut out);
    out
}

const ESP: Aad<'static> = Aad::Esp { spi: 0x1234_5678, sequence: 0x1_0000_0002, esn: true };

#[test]
fn a_sealed_packet_opens_wherever_plaintext_and_trailer_were_split() {
    for (provider, suite) in suites() {
        let cipher = cipher(provider, suite);
        for (plaintext, trailer) in
            [(0, 0), (16, 0), (0, 16), (30, 2), (33, 15), (1398, 10), (9000, 248)]
        {
            let (plaintext, trailer) = (octets(plaintext, 1), octets(trailer, 2));
            let whole = [plaintext.clone(), trailer.clone()].concat();
            let sealed = seal(&*cipher, suite, ESP, &plaintext, &trailer);
            assert_eq!(sealed[..suite.iv_len()], octets(suite.iv_len(), 99), "{suite}");
            // The split is invisible in the result.
            assert_eq!(sealed, seal(&*cipher, suite, ESP, &whole, &[]), "{suite}");
            let mut out = vec![0; whole.len() + 5];
            assert_eq!(cipher.open(ESP, &sealed, &mut out), Ok(whole.len()), "{suite}");
            assert_eq!(out[..whole.len()], whole, "{suite}");
            assert_eq!(out[whole.len()..], [0; 5], "{suite}: wrote beyond the plaintext");
        }
    }
}

#[test]
fn every_bit_counts_and_a_forgery_leaves_nothing() {
    for (provider, suite) in suites() {
        let cipher = cipher(provider, suite);
        let sealed = seal(&*cipher, suite, ESP, &octets(48, 1), &[]);
        for bit in 0..sealed.len() * 8 {
            let mut forged = sealed.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            let mut out = [0; 48];
            assert_eq!(cipher.open(ESP, &forged, &mut out), Err(Forged), "{suite} bit {bit}");
            assert_eq!(out, [0; 48], "{suite} bit {bit}");
        }
        for len in 0..sealed.len() {
            let mut out = [0; 48];
            assert_eq!(cipher.open(ESP, &sealed[..len], &mut out), Err(Forged), "{suite} {len}");
            assert_eq!(out, [0; 48], "{suite} {len}");
        }
        let mut short = [0; 47];
        assert_eq!(cipher.open(ESP, &sealed, &mut short), Err(Forged), "{suite}: no room");
    }
}

#[test]
fn header_and_both_halves_of_the_sequence_number_are_authenticated() {
    for (provider, suite) in suites() {
        let cipher = cipher(provider, suite);
        let sealed = seal(&*cipher, suite, ESP, &octets(48, 1), &[]);
        for aad in [
            Aad::Esp { spi: 0x1234_5679, sequence: 0x1_0000_0002, esn: true },
            Aad::Esp { spi: 0x1234_5678, sequence: 0x1_0000_0003, esn: true },
            Aad::Esp { spi: 0x1234_5678, sequence: 0x2_0000_0002, esn: true },
            Aad::Esp { spi: 0x1234_5678, sequence: 0x1_0000_0002, esn: false },
            Aad::Octets(&[]),
        ] {
            assert_eq!(cipher.open(aad, &sealed, &mut [0; 48]), Err(Forged), "{suite} {aad:?}");
        }
        // Without ESN the high half is not there.
        let aad = Aad::Esp { spi: 1, sequence: 2, esn: false };
        let sealed = seal(&*cipher, suite, aad, &octets(16, 1), &[]);
        let other = Aad::Esp { spi: 1, sequence: 0x7_0000_0002, esn: false };
        assert_eq!(cipher.open(other, &sealed, &mut [0; 16]), Ok(16), "{suite}");
    }
}

/// RFC 4106 §5 and RFC 4303 §2.2.1, spelled out as octets: an AEAD takes the high half between SPI and low half, a
/// MAC takes it after everything else.
#[test]
fn esp_headers_are_authenticated_in_the_places_the_rfcs_say() {
    for (provider, suite) in suites() {
        let cipher = cipher(provider, suite);
        let plain = Aad::Esp { spi: 0x1234_5678, sequence: 0x9_0000_0002, esn: false };
        let octets_of_plain = [0x12, 0x34, 0x56, 0x78, 0, 0, 0, 2];
        assert_eq!(
            seal(&*cipher, suite, plain, &octets(32, 1), &[]),
            seal(&*cipher, suite, Aad::Octets(&octets_of_plain), &octets(32, 1), &[]),
            "{suite}"
        );
        if matches!(suite.protection(), Protection::Esp { integrity: None, .. }) {
            let octets_of_esn = [0x12, 0x34, 0x56, 0x78, 0, 0, 0, 1, 0, 0, 0, 2];
            assert_eq!(
                seal(&*cipher, suite, ESP, &octets(32, 1), &[]),
                seal(&*cipher, suite, Aad::Octets(&octets_of_esn), &octets(32, 1), &[]),
                "{suite}"
            );
        }
    }
}

#[test]
fn all_providers_make_the_same_packets() {
    let mut compared = [0; Provider::ALL.len()];
    for (provider, suite) in suites() {
        let (reference, other) = (cipher(Provider::AwsLc, suite), cipher(provider, suite));
        for len in [0, 1, 15, 16, 127, 128, 129, 1001] {
            let len = len / suite.block_len() * suite.block_len();
            let sealed = seal(&*reference, suite, ESP, &octets(len, 1), &[]);
            assert_eq!(sealed, seal(&*other, suite, ESP, &octets(len, 1), &[]), "{suite}");
            assert_eq!(other.open(ESP, &sealed, &mut vec![0; len]), Ok(len), "{provider} {suite}");
        }
        compared[provider as usize] += 1;
    }
    let complete = if cfg!(feature = "legacy") { 49 } else { 35 };
    assert_eq!(compared, [complete, 5, complete]);
}

/// RFC 3602 §4 case 2 for the cipher; the MAC is computed here over the octets RFC 4303 §2.2.1 lists.
#[test]
fn cbc_is_the_cipher_of_rfc_3602_under_an_hmac_over_everything() {
    use aws_lc_rs::hmac;
    let key = hex("c286696d887c9aa0611bbb3e2025a45a");
    let iv = hex("562e17996d093d28ddb3ba695a2e6f58");
    let plaintext: Vec<u8> = (0..32).collect();
    let ciphertext = hex("d296cd94c2cccf8a3a863028b5e1dc0a7586602d253cfff91b8266bea6d61ab1");
    let integrity = [
        Integrity::HmacSha1_96,
        Integrity::HmacSha2_256_128,
        Integrity::HmacSha2_384_192,
        Integrity::HmacSha2_512_256,
    ];
    let hashes = [
        hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        hmac::HMAC_SHA256,
        hmac::HMAC_SHA384,
        hmac::HMAC_SHA512,
    ];
    let all = integrity.into_iter().zip(hashes);
    for ((integrity, hash), provider) in
        all.flat_map(|pair| [Provider::AwsLc, Provider::Portable].map(|p| (pair, p)))
    {
        let suite = Suite::AesCbcMac(KeyBits::B128, integrity);
        let mac_key = octets(suite.key_material_len() - 16, 77);
        let cipher = provider
            .cipher(suite, &Secret::new([key.clone(), mac_key.clone()].concat()))
            .expect("they have every suite");
        let mut out = vec![0; 16 + 32 + suite.icv_len()];
        cipher.seal(&iv, ESP, &plaintext[..20], &plaintext[20..], &mut out);
        let header = [0x12, 0x34, 0x56, 0x78, 0, 0, 0, 2];
        let high_half = [0, 0, 0, 1];
        let input = [&header[..], &iv, &ciphertext, &high_half].concat();
        let tag = hmac::sign(&hmac::Key::new(hash, &mac_key), &input);
        let icv = &tag.as_ref()[..suite.icv_len()];
        assert_eq!(out, [&iv[..], &ciphertext, icv].concat(), "{suite}");
    }
}

/// RFC 4543 §3.3 and §3.4: GMAC is GCM that encrypts nothing and authenticates header, IV and text.
#[test]
fn gmac_is_gcm_of_no_text_over_the_whole_packet() {
    use aws_lc_rs::aead::{AES_256_GCM, Aad as Data, LessSafeKey, Nonce, UnboundKey};
    let suite = Suite::AesGmac(KeyBits::B256);
    let key = octets(36, 3);
    let header = [0x12, 0x34, 0x56, 0x78, 0, 0, 0, 1, 0, 0, 0, 2];
    let (iv, text) = (octets(8, 99), octets(52, 1));
    let nonce = [&key[32..], &iv].concat();
    let tag = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key[..32]).expect("a key"))
        .seal_in_place_separate_tag(
            Nonce::try_assume_unique_for_key(&nonce).expect("12 octets"),
            Data::from([&header[..], &iv, &text].concat()),
            &mut [],
        )
        .expect("seals");
    let sealed = seal(&*cipher(Provider::AwsLc, suite), suite, ESP, &text[..50], &text[50..]);
    assert_eq!(sealed, [&iv[..], &text, tag.as_ref()].concat());
}

/// Two threads share what a packet is put together in.
#[test]
fn gmac_serves_several_threads_at_once() {
    let suite = Suite::AesGmac(KeyBits::B128);
    let cipher = cipher(Provider::AwsLc, suite);
    let cipher = &*cipher;
    std::thread::scope(|scope| {
        for start in 0..4 {
            scope.spawn(move || {
                for len in 0..500 {
                    let plaintext = octets(len, start);
                    let sealed = seal(cipher, suite, ESP, &plaintext, &[]);
                    let mut out = vec![0; len];
                    assert_eq!(cipher.open(ESP, &sealed, &mut out), Ok(len));
                    assert_eq!(out, plaintext);
                }
            });
        }
    });
}

#[test]
fn an_authentic_packet_of_broken_blocks_is_refused() {
    use aws_lc_rs::hmac;
    let suite = Suite::AesCbcMac(KeyBits::B128, Integrity::HmacSha2_256_128);
    let key = octets(suite.key_material_len(), 3);
    let mut sealed = octets(16 + 17, 1);
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key[16..]), &sealed);
    sealed.extend_from_slice(&tag.as_ref()[..16]);
    let opened = cipher(Provider::AwsLc, suite).open(Aad::Octets(&[]), &sealed, &mut [0; 64]);
    assert_eq!(opened, Err(Forged));
}

#[test]
fn a_provider_says_what_it_lacks_and_which_key_it_wants() {
    let gcm = Suite::AesGcm16(KeyBits::B192);
    for suite in [gcm, Suite::AesGmac(KeyBits::B192), Suite::NullMac(Integrity::HmacSha1_96)] {
        let key = Secret::new(vec![0; suite.key_material_len()]);
        let error = Provider::Ring.cipher(suite, &key).err();
        assert_eq!(error, Some(CipherError::Unsupported { provider: Provider::Ring, suite }));
    }
    for (provider, suite) in suites() {
        for got in [0, suite.key_material_len() - 1, suite.key_material_len() + 1] {
            let error = provider.cipher(suite, &Secret::new(vec![0; got])).err();
            assert_eq!(error, Some(CipherError::KeyLength { suite, got }));
        }
    }
    let error = CipherError::KeyLength { suite: gcm, got: 24 };
    assert_eq!(error.to_string(), "AES-GCM-16-192 takes 28 octets of key material, not 24");
}

/// RFC 2410 §3 and RFC 4303 §1: neither cipher nor integrity is nothing at all.
#[test]
fn only_what_protects_integrity_is_a_suite() {
    let hmac = Some(Integrity::HmacSha2_256_128);
    let esp = |encryption, integrity| Protection::Esp { encryption, integrity };
    for encryption in EspEncryption::ALL {
        assert_eq!(
            Suite::of(Protection::aead(encryption)).is_some(),
            encryption.is_aead(),
            "{encryption}"
        );
        assert_eq!(
            Suite::of(esp(encryption, hmac)).is_some(),
            !encryption.is_aead(),
            "{encryption}"
        );
        let integrity = if encryption.is_aead() { None } else { hmac };
        let suite = Suite::of(esp(encryption, integrity)).expect("they go together");
        assert!(suite.to_string().starts_with(&encryption.to_string()), "{suite}");
    }
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("a constant of this file"))
        .collect()
}
