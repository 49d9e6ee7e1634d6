//! The userspace plane and the kernel's ESP and AH, with keys that nobody negotiated: the kernel has them from
//! `ip xfrm`, or from the kernel plane.

mod pair;
mod words;

use crate::guest::{Group, Kernel, Scenario, scenario};
use crypto::Suite;
use esp::plane::Encapsulation;
use pair::{By, Pair, Setup};
use policy::{Integrity, KeyBits, Mode};
use testkit::traffic::Stream;
use testkit::until;

/// Sizes around every boundary of padding, and the largest that goes in one packet everywhere.
const SIZES: [usize; 6] = [0, 1, 2, 15, 16, 1200];

pub fn groups() -> [Group; 4] {
    let group = |name, scenarios| Group { name, kernel: Kernel::Any, scenarios };
    let both = |by| {
        every_way(by, Mode::Tunnel, "tunnel").chain(every_way(by, Mode::Transport, "transport"))
    };
    [
        group("manual keys", both(By::Hand).collect()),
        group("manual keys, kernel plane", both(By::Plane).collect()),
        group("manual keys, traffic", more()),
        Group {
            name: "manual keys, card",
            kernel: Kernel::Built,
            scenarios: vec![
                scenario("a card does the cryptography", &[], || card(false)),
                scenario("a card does everything", &[], || card(true)),
            ],
        },
    ]
}

fn every_way(by: By, mode: Mode, mode_name: &str) -> impl Iterator<Item = Scenario> {
    let ways = [
        (Encapsulation::Native, "ESP"),
        (Encapsulation::Udp, "ESP in UDP"),
        (Encapsulation::Ah, "AH"),
    ];
    ways.into_iter().flat_map(move |(encapsulation, name)| {
        [(false, "IPv4"), (true, "IPv6")].map(|(outer_v6, family)| {
            let setup = Setup { mode, encapsulation, outer_v6, ..Setup::plain() };
            let title = format!("every suite of {name} in {mode_name} mode over {family}");
            scenario(title, &[], move || every_suite(by, setup))
        })
    })
}

fn more() -> Vec<Scenario> {
    vec![
        scenario("TCP and packets larger than the wire", &[], large),
        scenario("replays are refused by either side", &[], replays),
        scenario("a packet sealed with another key is refused by either side", &[], forgeries),
        scenario("the kernel's sequence numbers pass 2^32", &[], wraps),
        scenario("Linux has no AH with AES-GMAC", &[], lacks_ah_gmac),
    ]
}

/// The driver has the SAs that the kernel plane was told of, and counts their packets.
fn card(packet: bool) {
    let kind = if packet { "packet" } else { "crypto" };
    let mut pair = Pair::new(By::Card { packet });
    for bits in [KeyBits::B128, KeyBits::B192, KeyBits::B256] {
        for esn in [false, true] {
            let suite = Suite::AesGcm16(bits);
            let setup = Setup { suite, mode: Mode::Transport, esn, ..Setup::plain() };
            pair.install(setup);
            pair.exchange(&setup, &SIZES);
            let counters = crate::card::counters();
            for direction in ["in", "out"] {
                let begins = format!("sa dev=wire dir={direction} type={kind} ");
                let found = counters.lines().find(|line| line.starts_with(&begins));
                let found = found.unwrap_or_else(|| panic!("{setup:?}: {counters}"));
                assert!(found.contains(&format!(" pkts={} ", SIZES.len())), "{setup:?}: {found}");
            }
            let packets = pair.usage().map(|usage| usage.packets);
            assert_eq!(packets, [SIZES.len() as u64; 2], "{setup:?}");
        }
    }
    assert_eq!(pair.kernel_errors(), [].into());
    assert_eq!(pair.discards(), [].into());
}

/// Each suite, with extended sequence numbers in either mode, and both families inside a tunnel.
fn every_suite(by: By, setup: Setup) {
    let mut pair = Pair::new(by);
    let suites = match setup.encapsulation {
        Encapsulation::Ah => words::ah(),
        Encapsulation::Native | Encapsulation::Udp => words::esp(),
    };
    let sizes = match (setup.encapsulation, setup.outer_v6) {
        // Linux drops datagrams of less than 48 octets: it counts the IPv6 header among those of UDP.
        (Encapsulation::Udp, true) => SIZES.map(|size| size.max(8)),
        _ => SIZES,
    };
    for (number, suite) in suites.into_iter().enumerate() {
        let esn = (number % 2 == 0) == (setup.mode == Mode::Tunnel);
        let inner_v6 = number % 3 == 0;
        let replay_window = [32, 64, 128, 1024][number % 4];
        let setup = Setup { suite, esn, inner_v6, replay_window, ..setup };
        pair.install(setup);
        pair.exchange(&setup, &sizes);
        let packets = pair.usage().map(|usage| usage.packets);
        assert_eq!(packets, [sizes.len() as u64; 2], "{setup:?}");
        if let Some(there) = pair.usage_there() {
            assert_eq!(there.map(|usage| usage.packets), packets, "{setup:?}");
        }
    }
    assert_eq!(pair.kernel_errors(), [].into(), "{setup:?}");
    assert_eq!(pair.discards(), [].into(), "{setup:?}");
}

fn large() {
    let mut pair = Pair::new(By::Hand);
    let cbc = Suite::AesCbcMac(KeyBits::B128, Integrity::HmacSha2_256_128);
    let plain = Setup::plain();
    for setup in [
        plain,
        Setup { encapsulation: Encapsulation::Udp, esn: true, ..plain },
        Setup { mode: Mode::Transport, suite: cbc, ..plain },
        Setup { outer_v6: true, inner_v6: true, ..plain },
    ] {
        pair.install(setup);
        if setup.mode == Mode::Tunnel {
            // In pieces, of which either side makes and joins some.
            pair.exchange(&setup, &[1400, 1500, 3000, 9000]);
        }
        let [here, there] = setup.inner();
        let ends = [(&pair.ours.0, here), (&pair.theirs.0, there)];
        for [from, to] in [[ends[0], ends[1]], [ends[1], ends[0]]] {
            let stream = Stream::start(from, to, 0).expect("a connection");
            let enough = || (stream.received() > 1 << 20).then_some(());
            until("a megabyte", enough, || {
                format!("{setup:?}: {:?} {:?}", pair.discards(), pair.kernel_errors())
            });
            stream.finish().expect("every octet is right");
        }
        assert_eq!(pair.kernel_errors(), [].into(), "{setup:?}");
        assert_eq!(pair.discards(), [].into(), "{setup:?}");
    }
}

/// A sender that restarts its sequence numbers sends numbers that the other side has seen.
fn replays() {
    for (esn, replay_window) in [(false, 32), (true, 256)] {
        let mut pair = Pair::new(By::Hand);
        let setup = Setup { esn, replay_window, ..Setup::plain() };
        pair.install(setup);
        pair.exchange(&setup, &[10; 5]);
        let [ours, theirs] = pair.sockets(&setup);

        pair.begin_anew(&setup);
        for _ in 0..3 {
            ours.send(b"seen").expect("it is sent");
        }
        let refused = || pair.kernel_errors().get("XfrmInStateSeqError").copied();
        let look = || (refused() == Some(3)).then_some(());
        until("three refusals by the kernel", look, || format!("{:?}", pair.kernel_errors()));
        assert_eq!(pair.kernel_errors().len(), 1, "{:?}", pair.kernel_errors());

        // That began our inbound SA again, too: it has to see numbers first.
        for _ in 0..3 {
            theirs.send(b"new").expect("it is sent");
            ours.recv(&mut [0; 8]).expect("it is new");
        }
        pair.kernel_begins(&setup, "replay-oseq 5");
        for _ in 0..3 {
            theirs.send(b"seen").expect("it is sent");
        }
        let look = || (pair.usage()[1].refused == 3).then_some(());
        until("three refusals here", look, || format!("{:?} {:?}", pair.usage(), pair.discards()));
        assert_eq!(pair.discards(), [("replayed", 3)].into());
        theirs.send(b"new again").expect("it is sent");
        let mut buffer = [0; 16];
        let length = ours.recv(&mut buffer).expect("what came after them is new");
        assert_eq!(&buffer[..length], b"new again");
    }
}

fn forgeries() {
    let mut pair = Pair::new(By::Hand);
    for suite in [
        Suite::AesGcm16(KeyBits::B128),
        Suite::AesGmac(KeyBits::B256),
        Suite::ChaCha20Poly1305,
        Suite::AesCbcMac(KeyBits::B256, Integrity::HmacSha1_96),
        Suite::NullMac(Integrity::HmacSha2_512_256),
    ] {
        let setup = Setup { suite, ..Setup::plain() };
        let before = (pair.kernel_errors(), pair.discards());
        let count = |errors: &std::collections::BTreeMap<String, u64>| {
            errors.get("XfrmInStateProtoError").copied().unwrap_or(0)
        };
        pair.install_with_other_keys(setup);
        let [ours, theirs] = pair.sockets(&setup);
        ours.send(b"sealed with another key").expect("it is sent");
        theirs.send(b"sealed with another key").expect("it is sent");
        let refused = || count(&pair.kernel_errors()) == count(&before.0) + 1;
        until(
            "a refusal by the kernel",
            || refused().then_some(()),
            || format!("{suite}: {:?}", pair.kernel_errors()),
        );
        let forged = before.1.get("forged").copied().unwrap_or(0) + 1;
        let look = || (pair.discards().get("forged") == Some(&forged)).then_some(());
        until("a refusal here", look, || format!("{suite}: {:?}", pair.discards()));
    }
}

/// RFC 4303 §2.2.1: the upper half is not sent, and yet authenticated.
fn wraps() {
    let mut pair = Pair::new(By::Hand);
    for suite in [
        Suite::AesGcm16(KeyBits::B256),
        Suite::AesCbcMac(KeyBits::B128, Integrity::HmacSha2_256_128),
    ] {
        let setup = Setup { suite, esn: true, replay_window: 64, ..Setup::plain() };
        pair.install(setup);
        let [ours, theirs] = pair.sockets(&setup);
        let pass = |count: u32| {
            for number in 0..count {
                theirs.send(&number.to_be_bytes()).expect("it is sent");
                let mut buffer = [0; 4];
                ours.recv(&mut buffer)
                    .unwrap_or_else(|e| panic!("{number}: {e}; {:?}", pair.discards()));
                assert_eq!(u32::from_be_bytes(buffer), number);
            }
        };
        // A receiver takes a number for one within half the range of its own (RFC 4303 appendix A2).
        for begin in ["replay-oseq 0x60000000", "replay-oseq 0xc0000000", "replay-oseq 0xfffffff0"]
        {
            pair.kernel_begins(&setup, begin);
            pass(40);
        }
        let states = pair.theirs.ip("xfrm state");
        assert!(states.contains("oseq-hi 0x1"), "{states}");
        assert_eq!(pair.discards(), [].into());
    }
}

fn lacks_ah_gmac() {
    let pair = Pair::new(By::Hand);
    let key = format!("0x{}", "11".repeat(20));
    let (taken, said) = pair.theirs.try_sh(&format!(
        "ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto ah spi 0x1000 mode tunnel aead rfc4543(gcm(aes)) {key} 128"
    ));
    assert!(!taken, "it does now, and is to be tested with it: {said}");
}
