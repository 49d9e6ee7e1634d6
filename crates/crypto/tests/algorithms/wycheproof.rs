//! Wycheproof's sets of AES-GCM and ChaCha20-Poly1305 through all providers. A nonce of 12 octets is salt ‖ IV here.

use crypto::{Aad, Forged, Provider, Suite};
use policy::{KeyBits, Secret};
use wycheproof::TestResult;
use wycheproof::aead::{TestName, TestSet};

#[test]
fn aes_gcm() {
    let (accepted, refused) = run(TestName::AesGcm, |key_size| match key_size {
        128 => Suite::AesGcm16(KeyBits::B128),
        192 => Suite::AesGcm16(KeyBits::B192),
        256 => Suite::AesGcm16(KeyBits::B256),
        other => panic!("AES has no key of {other} bits"),
    });
    assert!(accepted > 150 && refused > 100, "{accepted} {refused}");
}

#[test]
fn chacha20_poly1305() {
    let (accepted, refused) = run(TestName::ChaCha20Poly1305, |key_size| {
        assert_eq!(key_size, 256);
        Suite::ChaCha20Poly1305
    });
    assert!(accepted > 300 && refused > 100, "{accepted} {refused}");
}

/// The numbers of accepted and refused cases, by all providers together.
fn run(name: TestName, suite: impl Fn(u32) -> Suite) -> (usize, usize) {
    let (mut accepted, mut refused) = (0, 0);
    let set = TestSet::load(name).expect("the set");
    // Other lengths of nonce and tag cannot be expressed by this interface.
    for group in
        set.test_groups.into_iter().filter(|group| (group.nonce_size, group.tag_size) == (96, 128))
    {
        let suite = suite(u32::try_from(group.key_size).expect("a key size"));
        for test in &group.tests {
            let (salt, iv) = test.nonce.split_at(4);
            let key = Secret::new([&test.key, salt].concat());
            let sealed = [iv, &test.ct, &test.tag].concat();
            for provider in Provider::ALL {
                if !provider.supports(suite) {
                    continue;
                }
                let cipher = provider.cipher(suite, &key).expect("the provider has the suite");
                let mut opened = vec![0; test.ct.len()];
                let result = cipher.open(Aad::Octets(&test.aad), &sealed, &mut opened);
                if test.result == TestResult::Valid {
                    assert_eq!(result, Ok(test.pt.len()), "{provider:?} {}", test.tc_id);
                    assert_eq!(opened, **test.pt, "{provider:?} {}", test.tc_id);
                    let (one, two) = test.pt.split_at(test.pt.len() / 3);
                    let mut made = vec![0; sealed.len()];
                    cipher.seal(iv, Aad::Octets(&test.aad), one, two, &mut made);
                    assert_eq!(made, sealed, "{provider:?} {}", test.tc_id);
                    accepted += 1;
                } else {
                    assert_eq!(result, Err(Forged), "{provider:?} {}", test.tc_id);
                    assert!(opened.iter().all(|octet| *octet == 0), "{}", test.tc_id);
                    refused += 1;
                }
            }
        }
    }
    (accepted, refused)
}
