//! Algorithms, each set at least once in either role.

use crate::setup::{CHILD_TUNNEL, IKE_TUNNEL, Setup};
use crate::{Scenario, scenario};

const SAMPLE: &[(&str, &str)] = &[
    ("IKE_Encryption", "AES-CBC-256"),
    ("IKE_Hash", "SHA"),
    ("IKE_PRF", "PRF_HMAC_SHA1"),
    ("IKE_DHGroup", "20"),
];
const GCM: &[(&str, &str)] = &[
    ("IKE_Encryption", "AES-GCM-16-256"),
    ("IKE_PRF", "PRF_HMAC_SHA2_384"),
    ("IKE_DHGroup", "31"),
];
const MODP: &[(&str, &str)] = &[
    ("IKE_Encryption", "AES-CBC-128"),
    ("IKE_Hash", "HMAC_SHA2_256"),
    ("IKE_PRF", "PRF_HMAC_SHA2_256"),
    ("IKE_DHGroup", "14"),
];
const ECP521: &[(&str, &str)] = &[
    ("IKE_Encryption", "AES-CBC-256"),
    ("IKE_Hash", "HMAC_SHA2_512"),
    ("IKE_PRF", "PRF_HMAC_SHA2_512"),
    ("IKE_DHGroup", "21"),
];
const GCM128: &[(&str, &str)] = &[
    ("IKE_Encryption", "AES-GCM-16-128"),
    ("IKE_PRF", "PRF_HMAC_SHA2_256"),
    ("IKE_DHGroup", "19"),
];
const CBC192: &[(&str, &str)] = &[
    ("IKE_Encryption", "AES-CBC-192"),
    ("IKE_Hash", "HMAC_SHA2_384"),
    ("IKE_PRF", "PRF_HMAC_SHA2_384"),
    ("IKE_DHGroup", "19"),
];

const CHACHA20: &[(&str, &str)] = &[
    ("IKE_Encryption", "CHACHA20-POLY1305"),
    ("IKE_PRF", "PRF_HMAC_SHA2_256"),
    ("IKE_DHGroup", "15"),
];
const MODP4096: &[(&str, &str)] = &[
    ("IKE_Encryption", "AES-CBC-256"),
    ("IKE_Hash", "HMAC_SHA2_256"),
    ("IKE_PRF", "PRF_HMAC_SHA2_256"),
    ("IKE_DHGroup", "16"),
];

const XCBC: &[(&str, &str)] = &[
    ("IKE_Encryption", "AES-CBC-128"),
    ("IKE_Hash", "CMAC_AES_XCBC"),
    ("IKE_PRF", "PRF_AES128_XCBC"),
    ("IKE_DHGroup", "5"),
];
const CMAC: &[(&str, &str)] = &[
    ("IKE_Encryption", "AES-CBC-192"),
    ("IKE_Hash", "AES-CMAC"),
    ("IKE_PRF", "PRF_AES128_CMAC"),
    ("IKE_DHGroup", "2"),
];
const SUBGROUP: &[(&str, &str)] = &[
    ("IKE_Encryption", "AES-GCM-16-192"),
    ("IKE_PRF", "PRF_HMAC_SHA2_512"),
    ("IKE_DHGroup", "24"),
];
const MD5: &[(&str, &str)] = &[
    ("IKE_Encryption", "AES-CBC-256"),
    ("IKE_Hash", "MD5"),
    ("IKE_PRF", "PRF_HMAC_MD5"),
    ("IKE_DHGroup", "19"),
];

struct Suite {
    name: &'static str,
    ike: (&'static [(&'static str, &'static str)], &'static str),
    esp: (&'static [(&'static str, &'static str, &'static str)], &'static str),
    pfs: &'static str,
    /// How `vpnd` names the IKE SA's algorithms and those of the Child SA.
    chosen: [&'static str; 2],
}

const SUITES: &[Suite] = &[
    Suite {
        name: "sample_cbc256_sha1_ecp384",
        ike: (SAMPLE, "aes256-sha1-ecp384"),
        esp: (&[("ESP_AES256_GCM_16", "NONE", "0")], "aes256gcm16"),
        pfs: "0",
        chosen: ["AES-CBC-256/HMAC-SHA1-96/PRF-HMAC-SHA1/ECP-384", "AES-GCM-16-256"],
    },
    Suite {
        name: "gcm256_sha384_x25519",
        ike: (GCM, "aes256gcm16-prfsha384-x25519"),
        esp: (&[("ESP_AES128_GCM_16", "NONE", "0")], "aes128gcm16-ecp256"),
        pfs: "19",
        chosen: ["AES-GCM-16-256/PRF-HMAC-SHA2-384/CURVE25519", "AES-GCM-16-128"],
    },
    Suite {
        name: "cbc128_sha256_modp2048",
        ike: (MODP, "aes128-sha256-modp2048"),
        esp: (&[("ESP_AES128_GCM_16", "NONE", "0")], "aes128gcm16-modp2048"),
        pfs: "14",
        chosen: ["AES-CBC-128/HMAC-SHA2-256-128/PRF-HMAC-SHA2-256/MODP-2048", "AES-GCM-16-128"],
    },
    Suite {
        name: "cbc256_sha512_ecp521",
        ike: (ECP521, "aes256-sha512-ecp521"),
        esp: (&[("ESP_AES256_GCM_16", "NONE", "0")], "aes256gcm16-ecp384"),
        pfs: "20",
        chosen: ["AES-CBC-256/HMAC-SHA2-512-256/PRF-HMAC-SHA2-512/ECP-521", "AES-GCM-16-256"],
    },
    Suite {
        name: "gcm128_sha256_ecp256_cbc_esp",
        ike: (GCM128, "aes128gcm16-prfsha256-ecp256"),
        esp: (&[("ESP_AES_CBC_256", "HMAC-SHA2-256", "0")], "aes256-sha256-ecp521"),
        pfs: "21",
        chosen: ["AES-GCM-16-128/PRF-HMAC-SHA2-256/ECP-256", "AES-CBC-256/HMAC-SHA2-256-128"],
    },
    Suite {
        name: "cbc192_sha384_ecp256_sha1_esp",
        ike: (CBC192, "aes192-sha384-ecp256"),
        esp: (&[("ESP_AES_CBC_128", "HMAC-SHA", "0")], "aes128-sha1-x25519"),
        pfs: "31",
        chosen: [
            "AES-CBC-192/HMAC-SHA2-384-192/PRF-HMAC-SHA2-384/ECP-256",
            "AES-CBC-128/HMAC-SHA1-96",
        ],
    },
    Suite {
        name: "chacha20_sha256_modp3072_chacha20_esp",
        ike: (CHACHA20, "chacha20poly1305-prfsha256-modp3072"),
        esp: (&[("ESP_CHACHA20_POLY1305", "NONE", "0")], "chacha20poly1305-modp4096"),
        pfs: "16",
        chosen: ["CHACHA20-POLY1305/PRF-HMAC-SHA2-256/MODP-3072", "CHACHA20-POLY1305/MODP-4096"],
    },
    Suite {
        name: "cbc256_sha256_modp4096_null_esp",
        ike: (MODP4096, "aes256-sha256-modp4096"),
        esp: (&[("ESP_NULL", "HMAC-SHA2-256", "0")], "null-sha256-modp3072"),
        pfs: "15",
        chosen: [
            "AES-CBC-256/HMAC-SHA2-256-128/PRF-HMAC-SHA2-256/MODP-4096",
            "NULL/HMAC-SHA2-256-128/MODP-3072",
        ],
    },
    Suite {
        name: "cbc128_xcbc_modp1536_xcbc_esp",
        ike: (XCBC, "aes128-aesxcbc-prfaesxcbc-modp1536"),
        esp: (&[("ESP_AES_CBC_192", "AES-XCBC-MAC-96", "0")], "aes192-aesxcbc-modp1024"),
        pfs: "2",
        chosen: [
            "AES-CBC-128/AES-XCBC-96/PRF-AES128-XCBC/MODP-1536",
            "AES-CBC-192/AES-XCBC-96/MODP-1024",
        ],
    },
    Suite {
        name: "cbc192_cmac_modp1024_sha384_esp",
        ike: (CMAC, "aes192-aescmac-prfaescmac-modp1024"),
        esp: (&[("ESP_AES_CBC_256", "HMAC-SHA2-384", "0")], "aes256-sha384-modp1536"),
        pfs: "5",
        chosen: [
            "AES-CBC-192/AES-CMAC-96/PRF-AES128-CMAC/MODP-1024",
            "AES-CBC-256/HMAC-SHA2-384-192/MODP-1536",
        ],
    },
    Suite {
        name: "gcm192_sha512_modp2048s256_sha512_esp",
        ike: (SUBGROUP, "aes192gcm16-prfsha512-modp2048s256"),
        esp: (&[("ESP_AES_CBC_128", "HMAC-SHA2-512", "0")], "aes128-sha512-modp2048s256"),
        pfs: "24",
        chosen: [
            "AES-GCM-16-192/PRF-HMAC-SHA2-512/MODP-2048-256",
            "AES-CBC-128/HMAC-SHA2-512-256/MODP-2048-256",
        ],
    },
    Suite {
        name: "cbc256_md5_ecp256_md5_esp",
        ike: (MD5, "aes256-md5-prfmd5-ecp256"),
        esp: (&[("ESP_AES_CBC_128", "HMAC-MD5", "0")], "aes128-md5"),
        pfs: "0",
        chosen: ["AES-CBC-256/HMAC-MD5-96/PRF-HMAC-MD5/ECP-256", "AES-CBC-128/HMAC-MD5-96"],
    },
    Suite {
        name: "sample_gcm192_esp",
        ike: (SAMPLE, "aes256-sha1-ecp384"),
        esp: (&[("ESP_AES192_GCM_16", "NONE", "0")], "aes192gcm16"),
        pfs: "0",
        chosen: ["AES-CBC-256/HMAC-SHA1-96/PRF-HMAC-SHA1/ECP-384", "AES-GCM-16-192"],
    },
    Suite {
        name: "sample_cmac_esp",
        ike: (SAMPLE, "aes256-sha1-ecp384"),
        esp: (&[("ESP_AES_CBC_128", "AES-CMAC-96", "0")], "aes128-aescmac"),
        pfs: "0",
        chosen: ["AES-CBC-256/HMAC-SHA1-96/PRF-HMAC-SHA1/ECP-384", "AES-CBC-128/AES-CMAC-96"],
    },
];

pub fn all() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for suite in SUITES {
        let setup = Setup {
            ike: suite.ike.0,
            charon_ike: suite.ike.1,
            esp: suite.esp.0,
            charon_esp: suite.esp.1,
            pfs: suite.pfs,
            ..Setup::default()
        };
        for from_vpnd in [true, false] {
            let by = if from_vpnd { "vpnd" } else { "charon" };
            let name = format!("suites::{}::from_{by}", suite.name);
            scenarios.push(scenario(name, setup.clone(), move |world| {
                if from_vpnd {
                    world.up_from_vpnd();
                    world.vpnd.ctl_ok(&["rekey", CHILD_TUNNEL]);
                    world.vpnd.ctl_ok(&["rekey", IKE_TUNNEL]);
                } else {
                    world.up_from_charon();
                    super::rekey::child_by_charon(world);
                    super::rekey::ike_by_charon(world);
                }
                let tunnel = world.vpnd.tunnel();
                let ike = tunnel.ike_sa.as_ref().map(|sa| sa.suite.as_str());
                assert_eq!(ike, Some(suite.chosen[0]));
                let child = world.vpnd.child_sa();
                assert!(child.suite.starts_with(suite.chosen[1]), "{}", child.suite);
                // A rekeyed Child SA has keys of its own exchange, where there is one.
                world.exchange_traffic();
            }));
        }
    }
    scenarios.extend(sequence_numbers());
    scenarios.extend(gmac());
    scenarios
}

/// charon negotiates extended sequence numbers, but its userspace plane cannot carry them.
fn sequence_numbers() -> Vec<Scenario> {
    const EXTENDED: (&str, &str, &str) = ("ESP_AES256_GCM_16", "NONE", "1");
    const SHORT: (&str, &str, &str) = ("ESP_AES256_GCM_16", "NONE", "0");
    vec![
        scenario(
            "suites::esn::second_choice_from_vpnd",
            Setup { esp: &[EXTENDED, SHORT], ..Setup::default() },
            |world| {
                world.up_from_vpnd();
                assert!(!world.vpnd.child_sa().esn);
                world.exchange_traffic();
            },
        ),
        scenario(
            "suites::esn::not_taken_by_vpnd",
            Setup { charon_esp: "aes256gcm16-x25519-esn-noesn", ..Setup::default() },
            |world| {
                world.up_from_charon();
                assert!(!world.vpnd.child_sa().esn);
                world.exchange_traffic();
            },
        ),
        scenario(
            "suites::esn::chosen_from_charon",
            Setup { esp: &[EXTENDED], charon_esp: "aes256gcm16-x25519-esn", ..Setup::default() },
            |world| {
                world.charon.initiate().expect_err("its plane cannot do it");
                let log = world.charon.log();
                assert!(log.contains("selected proposal: ESP:AES_GCM_16_256/EXT_SEQ"));
                assert!(log.contains("ESN not supported"));
            },
        ),
        scenario(
            "suites::esn::chosen_from_vpnd",
            Setup { esp: &[EXTENDED], charon_esp: "aes256gcm16-x25519-esn", ..Setup::default() },
            |world| {
                let printed = world.vpnd.refused();
                let log = world.charon.log();
                assert!(log.contains("selected proposal: ESP:AES_GCM_16_256/EXT_SEQ"), "{printed}");
                assert!(log.contains("ESN not supported"));
            },
        ),
    ]
}

/// charon negotiates AES-GMAC, but its userspace plane has none.
fn gmac() -> Vec<Scenario> {
    const GMAC: (&str, &str, &str) = ("ESP_AES128_GMAC", "NONE", "0");
    let setup = Setup { esp: &[GMAC], charon_esp: "aes128gmac", pfs: "0", ..Setup::default() };
    vec![
        scenario("suites::gmac::chosen_from_charon", setup.clone(), |world| {
            world.charon.initiate().expect_err("its plane cannot do it");
            let log = world.charon.log();
            assert!(log.contains("selected proposal: ESP:NULL_AES_GMAC_128/NO_EXT_SEQ"));
        }),
        scenario("suites::gmac::chosen_from_vpnd", setup, |world| {
            let printed = world.vpnd.refused();
            let log = world.charon.log();
            assert!(
                log.contains("selected proposal: ESP:NULL_AES_GMAC_128/NO_EXT_SEQ"),
                "{printed}"
            );
        }),
    ]
}
