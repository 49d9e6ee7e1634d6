//! A discarded packet costs no more than one that is let in, so that nobody wins by sending such packets.
//!
//! Measured in this thread's processor time, which others on the machine do not add to, and as the least of many
//! rounds; `cargo test --release -p vpn-esp --lib cost -- --nocapture` prints the table.

use super::hostile::sealed_by_hand;
use super::*;
use policy::AhIntegrity;
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 40;
const PACKETS: u32 = 25;

/// A refusal that does the same work may take longer by this factor: by chance, and because it wipes the opened octets.
/// An attack would have to gain far more.
const BOUND: f64 = 1.5;

const LONG: usize = 1_372;

fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Processor time of one packet, each of which the receiver takes as often as it comes.
fn cost(receiver: &Datapath, kind: Kind, packet: &[u8], expected: Result<(), Discard>) -> Duration {
    let now = Instant::now();
    let mut queue = ReceiveQueue::new(1 << 20, Coalesce::default());
    let began = processor_time();
    for _ in 0..PACKETS {
        let outcome = match kind.encapsulation {
            Encapsulation::Ah => {
                let cut = crate::ah::split(packet).expect("headers before AH");
                receiver.decapsulate_ah(now, cut, kind.arrival(), &mut queue)
            }
            _ => receiver.decapsulate(now, packet, kind.arrival(), &mut queue),
        };
        assert_eq!(outcome, expected, "{kind:?}");
    }
    (processor_time() - began) / PACKETS
}

#[test]
fn a_refused_packet_costs_no_more_than_an_accepted_one() {
    let ah =
        |suite| Kind { suite: Suite::Ah(suite), encapsulation: Encapsulation::Ah, ..Kind::PLAIN };
    let esp = |suite| Kind { suite, ..Kind::PLAIN };
    for kind in [
        esp(GCM),
        esp(Suite::ChaCha20Poly1305),
        esp(Suite::AesGmac(KeyBits::B128)),
        esp(Suite::AesCbcMac(KeyBits::B128, Integrity::HmacSha2_256_128)),
        esp(Suite::NullMac(Integrity::HmacSha1_96)),
        ah(AhIntegrity::AesGmac(KeyBits::B128)),
        ah(AhIntegrity::Mac(Integrity::HmacSha2_256_128)),
    ] {
        let inbound = InboundSa { replay_window: 0, ..kind.inbound() };
        let pair = Pair::with(kind, kind.outbound(), inbound);
        let inner = sample::udp(false, (1, 2), &sample::payload(LONG));
        let valid = pair.protect(&inner).expect("an SA");
        let mut forged = valid.clone();
        *forged.last_mut().expect("not empty") ^= 1;
        let mut refused = vec![("wrong ICV", forged, Discard::Forged)];
        if kind.suite == GCM {
            // As the peer alone can send them; 1,400 octets leave two of padding.
            let trailer = |tail: &[u8]| sealed_by_hand(kind, 1, &[&inner[..], tail].concat());
            refused.push(("wrong padding", trailer(&[1, 3, 2, 4]), Discard::Padding));
            refused.push(("wrong next header", trailer(&[1, 2, 2, 6]), Discard::NextHeader));
        }
        let mut stray = valid.clone();
        let spi = if kind.suite.is_ah() { 24 } else { 0 };
        stray[spi + 3] ^= 1;
        refused.push(("unknown SPI", stray, Discard::UnknownSpi));

        let mut accepted = Duration::MAX;
        let mut least = vec![Duration::MAX; refused.len()];
        for _ in 0..ROUNDS {
            accepted = accepted.min(cost(&pair.receiver, kind, &valid, Ok(())));
            for ((_, packet, discard), least) in refused.iter().zip(&mut least) {
                *least = (*least).min(cost(&pair.receiver, kind, packet, Err(*discard)));
            }
        }
        for ((name, _, discard), least) in refused.iter().zip(least) {
            let ratio = least.as_secs_f64() / accepted.as_secs_f64();
            println!("{}: {name} {least:?}, let in {accepted:?}: {ratio:.2}", kind.suite);
            assert!(ratio < BOUND, "{}: {name} costs {ratio:.2} of a packet let in", kind.suite);
            let counted = pair.receiver.counters()[discard.name()];
            assert_eq!(counted, ROUNDS as u64 * u64::from(PACKETS), "{name}");
        }
    }
}
