//! Messages beside those that iproute2 sends for the same SA or policy.

mod families;
mod frozen;
mod ownership;
mod place;
mod probe;
mod restore;
mod room;
mod twin;
mod work;

use super::flow::{End, Flow, Port};
use super::known::Known;
use super::netlink::octets;
use super::spd::{Action, Change, Key, PolicyDirection, Template};
use super::state::Form;
use super::*;
use crypto::Suite;
use esp::plane::{
    Encapsulation, InboundSa, Limits, Notice, OutboundSa, Path, PlaneError, Rule, RuleId, SaId, Spi,
};
use netlink_packet_xfrm::{XfrmAttrs, XfrmMessage};
use policy::{AhIntegrity, Integrity, KeyBits, Mode, Secret};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// One recorded message: its type, what precedes the attributes, and those in the order of their kinds.
type Parts = (u16, Vec<u8>, BTreeSet<(u16, Vec<u8>)>);

/// Octets of what precedes the attributes, by type (linux/xfrm.h).
fn fixed(kind: u16) -> usize {
    match kind {
        0x10 => 224,
        0x11 | 0x12 => 24,
        0x14 => 64,
        0x19 => 168,
        _ => panic!("type {kind:#x}"),
    }
}

fn parts(kind: u16, octets: &[u8]) -> Parts {
    let (fixed, mut rest) = octets.split_at(fixed(kind));
    let mut attributes = BTreeSet::new();
    while let [l0, l1, k0, k1, ..] = *rest {
        let length = usize::from(u16::from_le_bytes([l0, l1]));
        attributes.insert((u16::from_le_bytes([k0, k1]), rest[4..length].to_vec()));
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    (kind, fixed.to_vec(), attributes)
}

/// The message that iproute2 has sent in a case.
fn recorded(case: &str) -> Parts {
    let mut lines =
        include_str!("tests/iproute2.txt").lines().skip_while(|line| *line != case).skip(2);
    let kind = lines.next().and_then(|line| line.strip_prefix("0x")).expect("a recorded case");
    let hex: String = lines.take_while(|line| !line.is_empty()).collect();
    let octet = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    let octets: Vec<u8> = (0..hex.len()).step_by(2).map(octet).collect();
    parts(u16::from_str_radix(kind, 16).expect("hex"), &octets)
}

fn made(message: XfrmMessage) -> Parts {
    let octets = octets(message, 0, (0, 1));
    let kind = u16::from_le_bytes([octets[4], octets[5]]);
    parts(kind, &octets[16..])
}

/// Octets 0, 1, 2 and so on, and the salt behind them.
fn aead_key() -> Secret {
    Secret::new((0..32).chain([0xaa, 0xbb, 0xcc, 0xdd]).collect())
}

fn form() -> Form {
    Form {
        inbound: true,
        spi: Spi(0x1001),
        suite: Suite::AesGcm16(KeyBits::B256),
        esn: false,
        replay_window: 32,
        mode: Mode::Tunnel,
        path: Path {
            local: ([10, 0, 0, 2], 4500).into(),
            remote: ([10, 0, 0, 1], 4500).into(),
            encapsulation: Encapsulation::Native,
        },
        flow: None,
        limits: Limits::default(),
        base: 0,
        allowed: None,
        reqid: 0x7600_0001,
        binding: Binding::default(),
        offload: None,
    }
}

fn added(form: &Form, key: &Secret) -> Parts {
    made(XfrmMessage::AddSa(form.message(key, None).expect("the kernel has it")))
}

fn end(address: &str, length: u8, port: Option<u16>) -> End {
    let address: IpAddr = address.parse().expect("an address");
    let port = port.map_or(Port::default(), |value| Port { value, mask: u16::MAX });
    End { address, length, port }
}

fn flow(source: End, destination: End, protocol: u8) -> Flow {
    Flow { source, destination, protocol }
}

#[test]
fn sas_are_written_as_iproute2_writes_them() {
    let (key, small) = (aead_key(), Secret::new((0..36).collect()));
    let tcp = flow(end("10.0.0.1", 32, None), end("10.0.0.2", 32, None), 6);
    let transport = Form { mode: Mode::Transport, flow: Some(tcp), ..form() };
    assert_eq!(added(&transport, &key), recorded("gcm-transport"));

    let esn = Form { spi: Spi(0x1002), esn: true, replay_window: 128, ..form() };
    assert_eq!(added(&esn, &key), recorded("gcm-tunnel-esn"));

    let path = Path {
        local: ("fd00::2".parse::<IpAddr>().expect("an address"), 0).into(),
        remote: ("fd00::1".parse::<IpAddr>().expect("an address"), 0).into(),
        encapsulation: Encapsulation::Native,
    };
    let (reqid, suite) = (0x7600_0002, Suite::AesGmac(KeyBits::B256));
    let gmac = Form { spi: Spi(0x1003), suite, path, reqid, ..form() };
    assert_eq!(added(&gmac, &key), recorded("gmac"));

    let suite = Suite::ChaCha20Poly1305;
    let chacha = Form { spi: Spi(0x1004), suite, reqid, ..form() };
    assert_eq!(added(&chacha, &key), recorded("chacha"));
    assert_ne!(added(&chacha, &small), recorded("chacha"), "the key is compared");
}

#[test]
fn suites_with_a_mac_are_written_as_iproute2_writes_them() {
    let reqid = 0x7600_0003;
    let path = Path {
        remote: ([10, 0, 0, 1], 4501).into(),
        encapsulation: Encapsulation::Udp,
        ..form().path
    };
    let suite = Suite::AesCbcMac(KeyBits::B128, Integrity::HmacSha2_256_128);
    let cbc = Form { spi: Spi(0x1005), suite, path, reqid, ..form() };
    let key = Secret::new((0..16).chain(0x20..0x40).collect());
    let (kind, fixed, mut attributes) = added(&cbc, &key);
    // That a peer's move is told of once a second, iproute2 6.1 cannot say: XFRMA_MTIMER_THRESH.
    assert!(attributes.remove(&(32, 1_u32.to_le_bytes().to_vec())));
    assert_eq!((kind, fixed, attributes), recorded("cbc-udp"));

    let suite = Suite::NullMac(Integrity::HmacSha1_96);
    let null = Form { spi: Spi(0x1006), suite, reqid, ..form() };
    assert_eq!(added(&null, &Secret::new((0x20..0x34).collect())), recorded("null"));

    let suite = Suite::Ah(AhIntegrity::Mac(Integrity::HmacSha2_512_256));
    let ah = Form { spi: Spi(0x1007), suite, mode: Mode::Transport, reqid, ..form() };
    assert_eq!(added(&ah, &Secret::new((0..64).collect())), recorded("ah"));

    let suite = Suite::Ah(AhIntegrity::AesGmac(KeyBits::B128));
    let refused = Form { suite, ..form() }.message(&Secret::new(vec![0; 20]), None);
    let refused = refused.expect_err("the kernel has none").to_string();
    assert!(refused.ends_with("the kernel's AH has no AES-GMAC"), "{refused}");
}

#[test]
fn limits_marks_and_offload_are_written_as_iproute2_writes_them() {
    let key = aead_key();
    let limits = Limits { soft_bytes: Some(900_000), hard_bytes: Some(1_000_000) };
    let path = Path {
        local: ([10, 0, 0, 1], 0).into(),
        remote: ([10, 0, 0, 2], 0).into(),
        encapsulation: Encapsulation::Native,
    };
    let sending = Form {
        inbound: false,
        replay_window: 0,
        spi: Spi(0x1008),
        limits,
        path,
        reqid: 0x7600_0004,
        ..form()
    };
    assert_eq!(added(&sending, &key), recorded("limits"));

    let reqid = 0x7600_0005;
    let binding = Binding { mark: Some((0x11, 0xff)), if_id: Some(7), ..Binding::default() };
    let marking = Form { spi: Spi(0x1009), binding, reqid, ..form() };
    assert_eq!(added(&marking, &key), recorded("output-mark"));
    let path = sending.path;
    let marked = Form { inbound: false, replay_window: 0, spi: Spi(0x100a), path, ..marking };
    assert_eq!(added(&marked, &key), recorded("mark"));

    let offload = Some(Offload { device: 1, packet: false });
    let offloaded = Form { spi: Spi(0x100a), offload, reqid, ..form() };
    assert_eq!(added(&offloaded, &key), recorded("offload"));
}

#[test]
fn an_sa_is_named_as_iproute2_names_it() {
    let name = Form { spi: Spi(0x1002), ..form() }.name();
    let asked = |message| {
        let (kind, fixed, attributes) = made(message);
        // iproute2 tells the source, too, which the kernel does not look at: XFRMA_SRCADDR.
        assert!(attributes.is_empty());
        (kind, fixed)
    };
    let recorded = |case| {
        let (kind, fixed, _) = recorded(case);
        (kind, fixed)
    };
    let binding = Binding::default();
    assert_eq!(asked(XfrmMessage::GetSa(name.message(&binding))), recorded("get"));
    assert_eq!(asked(XfrmMessage::DeleteSa(name.message(&binding))), recorded("delete"));
}

#[test]
fn policies_are_written_as_iproute2_writes_them() {
    let template = Template {
        protocol: 50,
        mode: Mode::Tunnel,
        reqid: 0x7600_0001,
        spi: Some(Spi(0x1001)),
        ends: Some(([10, 0, 0, 1].into(), [10, 0, 0, 2].into())),
        offload: None,
    };
    let binding = Binding::default();
    let (here, there) = (end("10.1.0.0", 16, None), end("10.2.0.0", 16, None));
    let out = Key { direction: PolicyDirection::Out, flow: flow(here, there, 0), binding };
    let change = Change::Put(out, 0x7600_0010, Action::Protect(template));
    assert_eq!(made(change.message()), recorded("policy-out"));
    assert_eq!(made(Change::Delete(out).message()), recorded("policy-delete"));

    let any = Template { spi: None, ends: None, ..template };
    let into = Key { direction: PolicyDirection::In, flow: flow(there, here, 0), binding };
    let change = Change::Put(into, 0x7600_0011, Action::Protect(any));
    assert_eq!(made(change.message()), recorded("policy-in"));

    let one = flow(end("10.1.0.0", 16, Some(443)), end("10.2.0.7", 32, None), 6);
    let forward = Key { direction: PolicyDirection::Forward, flow: one, binding };
    let change = Change::Put(forward, 0x7600_0011, Action::Block);
    assert_eq!(made(change.message()), recorded("policy-block"));

    let binding = Binding { mark: Some((0x11, 0xff)), if_id: Some(7), ..Binding::default() };
    let six = flow(end("fd01::", 64, None), end("fd02::", 64, None), 0);
    let marked = Key { direction: PolicyDirection::Out, flow: six, binding };
    let template = Template { spi: None, ..template };
    let change = Change::Put(marked, 0x7600_0011, Action::Protect(template));
    assert_eq!(made(change.message()), recorded("policy-mark"));
}
