//! Features of the guest's kernel: without them the other groups would test nothing.

use crate::guest::{Group, Kernel, scenario};
use std::fs;
use testkit::Need;
use testkit::space::Space;

pub fn group() -> Group {
    Group {
        name: "guest",
        kernel: Kernel::Any,
        scenarios: vec![
            scenario("ESP and AH between two namespaces", &[Need::Program("ping")], protects),
            scenario("nothing is written on the host", &[], leaves_nothing),
        ],
    }
}

/// A pair of SAs in transport mode for each protocol, in both namespaces; a ping needs them all.
fn protects() {
    let key = |octets: usize| format!("0x{}", "5a".repeat(octets));
    let protocols = [
        ("esp", format!("aead rfc4106(gcm(aes)) {} 128", key(36))),
        ("ah", format!("auth-trunc hmac(sha256) {} 128", key(32))),
    ];
    for (protocol, algorithm) in protocols {
        let [left, right] = [Space::new("left"), Space::new("right")];
        Space::connect((&left, "wire", &["192.0.2.1/24"]), (&right, "wire", &["192.0.2.2/24"]));
        let ends = ["192.0.2.1", "192.0.2.2"];
        for (space, out) in [(&left, ends), (&right, [ends[1], ends[0]])] {
            for (direction, [from, to]) in [("out", out), ("in", [out[1], out[0]])] {
                space.ip(&format!(
                    "xfrm state add src {from} dst {to} proto {protocol} spi 0x1000 mode transport {algorithm}"
                ));
                space.ip(&format!(
                    "xfrm policy add dir {direction} src {from} dst {to} \
                     tmpl src {from} dst {to} proto {protocol} mode transport"
                ));
            }
        }
        left.echoes("", 5, ends[1]).expect("echoes");
        for space in [&left, &right] {
            let states = space.ip("-s xfrm state");
            assert_eq!(states.matches("5(packets)").count(), 2, "{protocol}: {states}");
        }
    }
}

/// The job's directory is the only one that the guest shares for writing.
fn leaves_nothing() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/written-in-a-guest");
    fs::write(file, "no more than a dream").expect("the guest's own layer takes it");
    assert!(std::path::Path::new("/.host").join(&env!("CARGO_MANIFEST_DIR")[1..]).exists());
    assert!(!std::path::Path::new("/.host").join(&file[1..]).exists());
}
