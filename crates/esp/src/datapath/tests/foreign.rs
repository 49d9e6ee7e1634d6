//! Whole packets in tunnel mode that others made: RFC 7634, and scapy for what has no published packets.

use super::*;
use crypto::Aad;
use serde_json::Value;

const FILES: [&str; 3] = [
    include_str!("../../../tests/vectors/rfc7634_esp.json"),
    include_str!("../../../tests/vectors/scapy_esp.json"),
    include_str!("../../../tests/vectors/scapy_cbc.json"),
];

struct Case {
    suite: Suite,
    key: Secret,
    spi: u32,
    sequence: u64,
    esn: bool,
    iv: Vec<u8>,
    inner: Vec<u8>,
    /// The plaintext between IV and ICV.
    text: Vec<u8>,
    packet: Vec<u8>,
}

impl Case {
    fn kind(&self) -> Kind {
        Kind { suite: self.suite, esn: self.esn, ..Kind::PLAIN }
    }

    fn header(&self) -> Aad<'static> {
        Aad::Esp { spi: self.spi, sequence: self.sequence, esn: self.esn }
    }
}

fn cases() -> Vec<Case> {
    let case = |case: &Value| {
        let text = |name: &str| case[name].as_str().expect("a text").to_owned();
        let number = |name: &str| u64::from_str_radix(&text(name), 16).expect("a number");
        let octets = |name: &str| {
            let digits = text(name);
            (0..digits.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits"))
                .collect::<Vec<u8>>()
        };
        let suite = scapy::suites().find(|suite| suite.to_string() == text("suite"));
        Case {
            suite: suite.expect("a suite of this crate"),
            key: Secret::new(octets("key_material")),
            spi: u32::try_from(number("spi")).expect("32 bits"),
            sequence: number("sequence"),
            esn: case["esn"].as_bool().expect("a truth value"),
            iv: octets("iv"),
            inner: octets("inner"),
            text: octets("text"),
            packet: octets("packet"),
        }
    };
    let files = FILES.map(|file| serde_json::from_str::<Value>(file).expect("JSON"));
    let cases: Vec<_> = files
        .iter()
        .flat_map(|file| file["cases"].as_array().expect("a list").iter().map(case))
        .collect();
    assert_eq!(cases.len(), 1 + 19 + 3 * 7);
    cases
}

#[test]
fn all_providers_seal_what_others_made() {
    let mut by_ring = 0;
    for provider in Provider::ALL {
        for case in cases().iter().filter(|case| provider.supports(case.suite)) {
            let cipher = provider.cipher(case.suite, &case.key).expect("supported");
            let mut out = vec![0; case.packet.len() - 8];
            let (plaintext, trailer) = case.text.split_at(case.inner.len());
            cipher.seal(&case.iv, case.header(), plaintext, trailer, &mut out);
            assert_eq!(out, case.packet[8..], "{provider:?} {}", case.suite);
            by_ring += usize::from(provider == Provider::Ring);
        }
    }
    assert_eq!(by_ring, 3 + 2 * 3);
}

/// Header, IV, padding and trailer are this datapath's own; where the IV is the sequence number, or there is none, the
/// other implementation must have made the same packet.
#[test]
fn the_way_out_makes_the_same_packets() {
    let alike = |case: &&Case| case.iv.is_empty() || case.iv == case.sequence.to_be_bytes();
    let cases = cases();
    let mut suites = std::collections::HashSet::new();
    for case in cases.iter().filter(alike) {
        let kind = case.kind();
        let sa = OutboundSa { spi: Spi(case.spi), key: case.key.clone(), ..kind.outbound() };
        let pair = Pair::with(kind, sa, kind.inbound());
        pair.outbound().resume(case.sequence - 1);
        assert_eq!(pair.protect(&case.inner), Ok(case.packet.clone()), "{}", case.suite);
        suites.insert(case.suite);
    }
    assert_eq!(suites.len(), 1 + 3 + 4, "every new suite");
}

#[test]
fn the_way_in_opens_them_and_nothing_else() {
    for case in cases() {
        let kind = case.kind();
        let sa = InboundSa { spi: Spi(case.spi), key: case.key.clone(), ..kind.inbound() };
        let pair = Pair::with(kind, kind.outbound(), sa);
        let inbound = pair.receiver.0.sad.find_any(Spi(case.spi)).expect("just added");
        inbound.set_top(case.sequence - 1);
        for at in [4, 8, case.packet.len() / 2, case.packet.len() - 1] {
            let mut forged = case.packet.clone();
            forged[at] ^= 0x10;
            let refused = pair.open(&forged);
            // A changed sequence number may also be out of the window.
            let expected = matches!(refused, Err(Discard::Forged | Discard::Replayed));
            assert!(expected || at == 4 && refused.is_err(), "{} {at}: {refused:?}", case.suite);
        }
        assert_eq!(pair.open(&case.packet), Ok(case.inner.clone()), "{}", case.suite);
    }
}

/// The point of these suites, and what an operator is warned of.
#[test]
fn without_a_cipher_the_packet_can_be_read_on_the_way() {
    for suite in SUITES {
        let pair = Pair::new(Kind { suite, ..Kind::PLAIN });
        let packet = sample::udp(false, (1, 2), &sample::payload(200));
        let sealed = pair.protect(&packet).expect("an SA serves it");
        let readable = sealed.windows(packet.len()).any(|window| window == packet);
        let meant = matches!(suite, Suite::AesGmac(_) | Suite::NullMac(_));
        assert_eq!(readable, meant, "{suite}");
    }
}
