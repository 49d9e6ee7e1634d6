//! The packets of draft-mcgrew-gcm-test-01, all of which carry next header 1.

use super::*;
use crypto::Aad;
use serde_json::Value;

const FILE: &str = include_str!("../../../tests/vectors/draft_mcgrew_gcm_esp.json");
const ICMP: u8 = 1;

struct Case {
    suite: Suite,
    key: Secret,
    iv: Vec<u8>,
    spi: u32,
    sequence: u64,
    esn: bool,
    plaintext: Vec<u8>,
    packet: Vec<u8>,
}

fn cases() -> Vec<Case> {
    let file: Value = serde_json::from_str(FILE).expect("JSON");
    let cases = file["tests"].as_array().expect("a list").iter().map(|case| {
        let octets = |name: &str| {
            let digits = case[name].as_str().expect("hexadecimal digits");
            (0..digits.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits"))
                .collect::<Vec<u8>>()
        };
        let number =
            |octets: Vec<u8>| octets.iter().fold(0u64, |n, octet| n << 8 | u64::from(*octet));
        let bits = match octets("key").len() {
            16 => KeyBits::B128,
            24 => KeyBits::B192,
            _ => KeyBits::B256,
        };
        Case {
            suite: Suite::AesGcm16(bits),
            key: Secret::new([octets("key"), octets("salt")].concat()),
            iv: octets("iv"),
            spi: number(octets("spi")) as u32,
            sequence: number(octets("seq")),
            esn: case["esn"].as_bool().expect("a truth value"),
            plaintext: octets("plaintext_with_trailer"),
            packet: octets("esp_packet"),
        }
    });
    cases.collect()
}

#[test]
fn sealed_as_published() {
    for provider in Provider::ALL {
        for case in cases().iter().filter(|case| provider.supports(case.suite)) {
            let cipher = provider.cipher(case.suite, &case.key).expect("supported");
            let aad = Aad::Esp { spi: case.spi, sequence: case.sequence, esn: case.esn };
            let mut out = vec![0; case.packet.len() - 8];
            let (plaintext, trailer) = case.plaintext.split_at(case.plaintext.len() - 2);
            cipher.seal(&case.iv, aad, plaintext, trailer, &mut out);
            assert_eq!(out, case.packet[8..]);
        }
    }
}

#[test]
fn opened_as_published() {
    assert_eq!(cases().len(), 14);
    for provider in Provider::ALL {
        for case in cases().iter().filter(|case| provider.supports(case.suite)) {
            let now = Instant::now();
            let datapath = Datapath::new(Settings::default(), now);
            let kind = Kind { mode: Mode::Transport, ..Kind::PLAIN };
            let sa = InboundSa {
                spi: Spi(case.spi),
                suite: case.suite,
                key: case.key.clone(),
                esn: case.esn,
                ..kind.inbound()
            };
            let room = datapath.0.room(&kind.path());
            // Past the plane's door: some of the SPIs are reserved ones.
            let inbound =
                Inbound::new(sa, provider, room, Arc::default()).map(Arc::new).expect("supported");
            datapath.0.sad.insert(Arc::clone(&inbound));
            inbound.set_top(case.sequence - 1);
            let mut queue = ReceiveQueue::new(0, Coalesce::default());
            datapath.decapsulate(now, &case.packet, kind.arrival(), &mut queue).expect("authentic");
            let (packet, _) = queue.packets().next().expect("just accepted");
            let (_, _, protocol, payload) = upper_layer(packet);
            let padding = usize::from(case.plaintext[case.plaintext.len() - 2]);
            assert_eq!(protocol, ICMP);
            assert_eq!(payload, case.plaintext[..case.plaintext.len() - 2 - padding]);

            let mut forged = case.packet.clone();
            *forged.last_mut().expect("not empty") ^= 1;
            inbound.set_top(case.sequence - 1);
            let outcome = datapath.decapsulate(now, &forged, kind.arrival(), &mut queue);
            assert_eq!(outcome, Err(Discard::Forged));
        }
    }
}
