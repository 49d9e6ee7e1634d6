//! scapy as the other end (`tests/scapy/peer.py`): it opens what the datapath made, and the datapath what scapy made,
//! for every algorithm, in either protocol, mode and family, with and without extended sequence numbers and UDP.

use super::*;
use crate::ah;
use policy::{AhIntegrity, DesKeys};
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const PEER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scapy/peer.py");

/// Of both halves something is in it.
const SEQUENCE: u64 = (7 << 32) | 41;

/// The peer's names for the cipher and the integrity of a suite.
fn names(suite: Suite) -> (&'static str, &'static str) {
    let mac = |integrity| match integrity {
        Integrity::HmacMd5_96 => "HMAC-MD5-96",
        Integrity::HmacSha1_96 => "HMAC-SHA1-96",
        Integrity::HmacSha2_256_128 => "SHA2-256-128",
        Integrity::HmacSha2_384_192 => "SHA2-384-192",
        Integrity::HmacSha2_512_256 => "SHA2-512-256",
        Integrity::AesCmac96 => "AES-CMAC-96",
        Integrity::AesXcbc96 => "AES-XCBC-96",
    };
    match suite {
        Suite::AesGcm16(_) => ("AES-GCM", "NULL"),
        Suite::AesGmac(_) => ("AES-NULL-GMAC", "NULL"),
        Suite::ChaCha20Poly1305 => ("CHACHA20-POLY1305", "NULL"),
        Suite::AesCbcMac(_, integrity) => ("AES-CBC", mac(integrity)),
        Suite::DesCbcMac(DesKeys::One, integrity) => ("DES", mac(integrity)),
        Suite::DesCbcMac(DesKeys::Three, integrity) => ("3DES", mac(integrity)),
        Suite::NullMac(integrity) => ("NULL", mac(integrity)),
        Suite::Ah(AhIntegrity::Mac(integrity)) => ("NULL", mac(integrity)),
        Suite::Ah(AhIntegrity::AesGmac(_)) => ("NULL", "AES-GMAC"),
    }
}

/// Every suite of ESP and AH.
pub(super) fn suites() -> impl Iterator<Item = Suite> {
    const KEYS: [KeyBits; 3] = [KeyBits::B128, KeyBits::B192, KeyBits::B256];
    let macs = authentication::MACS;
    let legacy = [DesKeys::One, DesKeys::Three].into_iter();
    let legacy = legacy.flat_map(move |keys| macs.map(|i| Suite::DesCbcMac(keys, i)));
    KEYS.into_iter()
        .flat_map(|k| [Suite::AesGcm16(k), Suite::AesGmac(k), Suite::Ah(AhIntegrity::AesGmac(k))])
        .chain(KEYS.into_iter().flat_map(move |k| macs.map(|i| Suite::AesCbcMac(k, i))))
        .chain(macs.into_iter().flat_map(|i| [Suite::NullMac(i), Suite::Ah(AhIntegrity::Mac(i))]))
        .chain([Suite::ChaCha20Poly1305])
        .chain(legacy.filter(|_| cfg!(feature = "legacy")))
}

fn kinds() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for suite in suites() {
        let ways = match suite {
            Suite::Ah(_) => &[Encapsulation::Ah][..],
            _ => &[Encapsulation::Native, Encapsulation::Udp],
        };
        for mode in [Mode::Tunnel, Mode::Transport] {
            for encapsulation in ways.iter().copied() {
                for (esn, ipv6) in [(false, false), (false, true), (true, false), (true, true)] {
                    kinds.push(Kind { suite, mode, encapsulation, esn, ipv6 });
                }
            }
        }
    }
    kinds
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

pub(super) fn octets(text: &Value) -> Vec<u8> {
    let text = text.as_str().expect("a text");
    let octet = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("two digits");
    (0..text.len()).step_by(2).map(octet).collect()
}

/// One SA, a packet for it, and what the peer is told.
struct Case {
    pair: Pair,
    inner: Vec<u8>,
    told: Value,
}

impl Case {
    fn new(kind: Kind, inner: Vec<u8>) -> Self {
        let pair = Pair::new(kind);
        pair.outbound().resume(if kind.esn { SEQUENCE - 1 } else { SEQUENCE & 0xff });
        pair.inbound().set_top(if kind.esn { SEQUENCE - 1 } else { 0 });
        let sealed = on_the_wire(kind, &pair.protect(&inner).expect("an SA serves it"));
        let mut spoiled = sealed.clone();
        *spoiled.last_mut().expect("not empty") ^= 1;
        let (crypt, auth) = names(kind.suite);
        let key = kind.key();
        // NULL has no key; the salt of an AEAD stands behind its key.
        let mac_len = match kind.suite {
            Suite::AesCbcMac(_, integrity) | Suite::DesCbcMac(_, integrity) => {
                crypto::integrity_key_len(integrity)
            }
            Suite::NullMac(_) | Suite::Ah(_) => key.len(),
            _ => 0,
        };
        let (crypt_key, auth_key) = key.expose().split_at(key.len() - mac_len);
        let path = kind.path();
        let told = json!({
            "ah": kind.suite.is_ah(),
            "crypt": crypt, "crypt_key": hex(crypt_key), "auth": auth, "auth_key": hex(auth_key),
            "spi": SPI, "low": 42, "high": if kind.esn { SEQUENCE >> 32 } else { 0 }, "esn": kind.esn,
            "tunnel": kind.mode == Mode::Tunnel, "udp": kind.encapsulation == Encapsulation::Udp,
            "ipv6": kind.ipv6,
            "source": path.local.ip().to_string(), "destination": path.remote.ip().to_string(),
            "inner": hex(&inner), "sealed": hex(&sealed), "spoiled": hex(&spoiled),
        });
        Self { pair, inner, told }
    }

    fn judge(&self, outcome: &Value) {
        let kind = self.pair.kind;
        assert_eq!(outcome["spoiled"], "refused", "{kind:?}");
        let (made, opened) = (octets(&outcome["made"]), octets(&outcome["opened"]));
        let mut spoiled = off_the_wire(kind, &made).to_vec();
        *spoiled.last_mut().expect("not empty") ^= 1;
        assert_eq!(self.pair.open(&spoiled), Err(Discard::Forged), "{kind:?}");
        let ours = self.pair.open(off_the_wire(kind, &made)).expect("authentic");
        if kind.mode == Mode::Tunnel || kind.suite.is_ah() {
            assert_eq!(opened, self.inner, "{kind:?}");
            assert_eq!(ours, self.inner, "{kind:?}");
        } else {
            assert_eq!(upper_layer(&opened), upper_layer(&self.inner), "{kind:?}");
            assert_eq!(upper_layer(&ours), upper_layer(&self.inner), "{kind:?}");
        }
    }
}

/// The IP packet that a socket makes of an ESP packet; AH is one already.
fn on_the_wire(kind: Kind, packet: &[u8]) -> Vec<u8> {
    let path = kind.path();
    let (source, destination) = (path.local.ip(), path.remote.ip());
    match kind.encapsulation {
        Encapsulation::Ah => packet.to_vec(),
        Encapsulation::Native => sample::ip(source, destination, 50, packet),
        Encapsulation::Udp => {
            let datagram = sample::udp_between(source, destination, (4500, 4500), packet);
            sample::ip(source, destination, UDP, &datagram)
        }
    }
}

fn off_the_wire(kind: Kind, packet: &[u8]) -> &[u8] {
    let header = Header::parse(packet).expect("a whole packet");
    match kind.encapsulation {
        Encapsulation::Ah => packet,
        Encapsulation::Native => &packet[header.transport..],
        Encapsulation::Udp => &packet[header.transport + 8..],
    }
}

/// Transport mode of AH keeps options and extension headers: those that may change on the way and those that must not.
fn with_options() -> Vec<Case> {
    let v4 = Kind {
        suite: Suite::Ah(AhIntegrity::Mac(Integrity::HmacSha2_256_128)),
        mode: Mode::Transport,
        encapsulation: Encapsulation::Ah,
        esn: true,
        ipv6: false,
    };
    let plain = sample::udp(false, (7, 9), b"payload");
    // Router Alert, Record Route, Security.
    let security = [130, 11, 0xab, 0xcd, 1, 2, 3, 4, 5, 6, 7];
    let options = [&[148, 4, 0, 0][..], &[7, 7, 4, 0, 0, 0, 0], &security, &[1, 1]].concat();
    let mut inner = [&plain[..20], &options, &plain[20..]].concat();
    inner[0] = 0x4b;
    ah::set_len(&mut inner, plain.len() + options.len());
    ah::set_checksum(&mut inner[..44]);
    let routed = Case::new(v4, inner);

    let plain = sample::udp(true, (7, 9), b"payload");
    // Hop-by-hop with Router Alert, then options for the destination: one may change, one may not.
    let extensions =
        [&[60, 0, 5, 2, 0, 0, 1, 0][..], &[UDP, 1, 0x3e, 2, 1, 2, 0x1e, 6, 1, 2, 3, 4, 5, 6, 1, 0]]
            .concat();
    let mut inner = [&plain[..40], &extensions, &plain[40..]].concat();
    inner[6] = 0;
    ah::set_len(&mut inner, plain.len() + extensions.len());
    vec![routed, Case::new(Kind { ipv6: true, ..v4 }, inner)]
}

/// The Python that has scapy: the one named in the environment, the one that `tests/setup` makes, or the usual one.
fn ask(cases: &Value) -> Result<Value, String> {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/scapy/bin/python");
    let usual = if made.exists() { made.into() } else { "python3".into() };
    let python = std::env::var_os("VPN_TEST_PYTHON").unwrap_or(usual);
    let mut peer = Command::new(&python)
        .arg(PEER)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{}: {error}", python.display()))?;
    // One that cannot start does not read.
    let _ = peer.stdin.take().expect("it is piped").write_all(cases.to_string().as_bytes());
    let output = peer.wait_with_output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    match said.lines().last() {
        Some(line) if line.contains("No module named") || line.starts_with("lacking") => {
            Err(format!("{}: {line}", python.display()))
        }
        _ if output.status.success() => {
            Ok(serde_json::from_slice(&output.stdout).expect("the peer answers in JSON"))
        }
        _ => panic!("{}: {said}", python.display()),
    }
}

#[test]
fn scapy_and_this_datapath_read_each_other() {
    let message = |len| sample::payload(len);
    let mut cases: Vec<Case> = (kinds().into_iter().enumerate())
        .map(|(n, kind)| {
            // Every length of padding.
            let ipv6 = if kind.mode == Mode::Tunnel { n % 2 == 0 } else { kind.ipv6 };
            Case::new(kind, sample::udp(ipv6, (4000, 53), &message(n % 61)))
        })
        .collect();
    cases.extend(with_options());
    let told = cases.iter().map(|case| case.told.clone()).collect();
    match ask(&told) {
        Ok(outcomes) => {
            let outcomes = outcomes.as_array().expect("a list");
            assert_eq!(outcomes.len(), cases.len());
            cases.iter().zip(outcomes).for_each(|(case, outcome)| case.judge(outcome));
        }
        Err(reason) => left_out::skip(&reason),
    }
}
