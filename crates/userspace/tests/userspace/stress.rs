//! Everything at once for a long time: full load, rekeys, workers coming and going, and the schedule switched. To be
//! run by hand:
//! `STRESS_SECONDS=600 cargo test --release -p vpn-userspace --test userspace stress -- --ignored --nocapture`.

use crate::network::{Gateway, Network, inside, udp};
use crate::{Agreement, GCM, Side, TUNNEL, setup, silent};
use esp::plane::{DataPlane, InboundSa, OutboundSa, Path, SaId, Spi};
use policy::Secret;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use userspace::Wait;
use userspace::workers::{Change, Count, Schedule, Settings, Workers};

const REKEY_EVERY: Duration = Duration::from_secs(5);
const CHANGE_EVERY: Duration = Duration::from_millis(700);

/// How long an SA that was replaced still receives.
const LINGER: Duration = Duration::from_millis(500);

/// Octets of one write, whose content tells where in the stream it belongs.
const BLOCK: usize = 1 << 16;

#[test]
#[ignore = "takes as long as STRESS_SECONDS says"]
fn stress() {
    let seconds = std::env::var("STRESS_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(30);
    let Some(network) = Network::make() else { return };
    let workers = [Workers::new(Settings::default()), Workers::new(Settings::default())];
    let gateways = [Side::A, Side::B].map(|side| {
        let mut setup = setup(network.state_dir(side as usize));
        setup.plane.workers = workers[side as usize].clone();
        let gateway = Gateway::start(network.space(side as usize), setup, silent());
        gateway.with(move |plane| plane.add_rule(TUNNEL.rule(side)).expect("the rule is added"));
        gateway
    });
    let mut sas = Sas { gateways: &gateways, generation: 0, done: [Done::default(); 2] };
    sas.install();

    let (over, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    let (changes, datagrams) = std::thread::scope(|scope| {
        let streams = [Side::A, Side::B].map(|side| stream(&network, side));
        for (from, to) in streams {
            scope.spawn(|| pour(from, &over));
            scope.spawn(|| drain(to, &moved));
        }
        let flow = (udp_end(&network, Side::A), udp_end(&network, Side::B));
        let flow = scope.spawn(|| count(flow, &over));
        let (mut changes, mut next_rekey) = (0, REKEY_EVERY);
        while began.elapsed() < Duration::from_secs(seconds) {
            std::thread::sleep(CHANGE_EVERY);
            changes += 1;
            for workers in &workers {
                workers.change(&change(changes)).expect("changed");
            }
            if began.elapsed() >= next_rekey {
                next_rekey += REKEY_EVERY;
                sas.rekey();
            }
        }
        over.store(true, Ordering::Relaxed);
        (changes, flow.join().expect("the flow ends"))
    });
    sas.finish();

    let octets = moved.load(Ordering::Relaxed);
    let rate = octets as f64 * 8.0 / began.elapsed().as_secs_f64() / 1e9;
    println!(
        "{seconds} s: {:.1} GB in two TCP streams, {rate:.2} Gbit/s; {changes} changes on each side, {} rekeys",
        octets as f64 / 1e9,
        sas.generation - 1
    );
    println!("datagrams beside them: {datagrams:?}");
    let mut counted = 0;
    for (gateway, side) in gateways.iter().zip([Side::A, Side::B]) {
        let drops: BTreeMap<_, _> =
            gateway.with(|plane| plane.counters()).into_iter().filter(|(_, n)| *n > 0).collect();
        counted += drops.values().sum::<u64>();
        println!("{side:?} dropped {drops:?}; {:?}", sas.done[side as usize]);
        for reason in ["replayed", "replay_too_old", "forged", "no_sa", "unknown_spi"] {
            assert_eq!(drops.get(reason), None, "{side:?}");
        }
    }
    assert!(octets > 0);
    let [a, b] = sas.done;
    for (sent, received) in [(a.sent, b.received), (b.sent, a.received)] {
        assert!(sent == received || counted > 0, "{sent} sent, {received} received, none counted");
    }
    assert!(datagrams.lost == 0 || counted > 0, "lost and not counted");
}

fn change(number: usize) -> Change {
    let schedules = [Schedule::RunToCompletion, Schedule::Pipeline];
    Change {
        workers: Some(Count::Exactly(1 + number % 4)),
        schedule: Some(schedules[number / 2 % 2]),
        wait: Some([Wait::Adaptive, Wait::Event][number / 3 % 2]),
        affinity: None,
    }
}

/// The packet counters of the SAs of one side.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    sent: u64,
    received: u64,
}

/// The SAs of both sides, each generation with keys and SPIs of its own.
struct Sas<'g> {
    gateways: &'g [Gateway; 2],
    generation: u32,
    done: [Done; 2],
}

impl Sas<'_> {
    fn names(generation: u32) -> [SaId; 2] {
        [SaId(u64::from(generation) * 2), SaId(u64::from(generation) * 2 + 1)]
    }

    /// As a rekey does: both sides receive before either sends.
    fn install(&mut self) {
        self.generation += 1;
        let generation = self.generation;
        let [inbound, outbound] = Self::names(generation);
        let form = Agreement { suite: GCM, ..TUNNEL };
        // Differs in every bit sooner or later, so that SAs are of different queue pairs.
        let spi = move |side: Side| {
            Spi(0x1000_0000 + generation.wrapping_mul(0x0123_4567) % 0x0fff_fff0 + side as u32)
        };
        let key = move |side: Side| {
            let length = form.suite.key_material_len();
            Secret::new((0..length).map(|n| n as u8 ^ side as u8 ^ generation as u8).collect())
        };
        let path = |side| Path { ..form.path(side) };
        for (gateway, side) in self.gateways.iter().zip([Side::A, Side::B]) {
            let peer = side.other();
            let sa = InboundSa {
                id: inbound,
                spi: spi(peer),
                key: key(peer),
                path: path(side),
                ..form.inbound(side)
            };
            gateway.with(move |plane| plane.add_inbound(sa).expect("the SA is added"));
        }
        for (gateway, side) in self.gateways.iter().zip([Side::A, Side::B]) {
            let sa =
                OutboundSa { id: outbound, spi: spi(side), key: key(side), ..form.outbound(side) };
            gateway.with(move |plane| plane.add_outbound(sa).expect("the SA is added"));
        }
    }

    fn rekey(&mut self) {
        let old = self.generation;
        self.install();
        std::thread::sleep(LINGER);
        self.remove(old);
    }

    fn finish(&mut self) {
        // Packets on their way arrive.
        std::thread::sleep(LINGER);
        self.remove(self.generation);
    }

    fn remove(&mut self, generation: u32) {
        let [inbound, outbound] = Self::names(generation);
        for (gateway, done) in self.gateways.iter().zip(&mut self.done) {
            let (sent, received) = gateway.with(move |plane| {
                let packets = |usage: Option<esp::plane::Usage>| usage.expect("it exists").packets;
                (packets(plane.remove(outbound)), packets(plane.remove(inbound)))
            });
            done.sent += sent;
            done.received += received;
        }
    }
}

fn stream(network: &Network, from: Side) -> (TcpStream, TcpStream) {
    let (here, there) = (network.space(from as usize), network.space(from.other() as usize));
    let target = from.other().inner(false);
    let listener = inside(there, move || TcpListener::bind((target, 0)).expect("bound"));
    let address = listener.local_addr().expect("bound");
    let sender = inside(here, move || TcpStream::connect(address).expect("connected"));
    (sender, listener.accept().expect("a connection").0)
}

/// Sends as much as goes.
fn pour(mut stream: TcpStream, over: &AtomicBool) {
    let mut block = vec![0; BLOCK];
    for number in 0u64.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        block[..8].copy_from_slice(&number.to_be_bytes());
        stream.write_all(&block).expect("the connection lives");
    }
}

/// Receives until the sender ends.
fn drain(mut stream: TcpStream, moved: &AtomicU64) {
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    let mut block = vec![0; BLOCK];
    for number in 0u64.. {
        if stream.read_exact(&mut block).is_err() {
            return;
        }
        assert_eq!(block[..8], number.to_be_bytes(), "the stream is whole");
        moved.fetch_add(BLOCK as u64, Ordering::Relaxed);
    }
}

fn udp_end(network: &Network, side: Side) -> UdpSocket {
    udp(network.space(side as usize), side.inner(false))
}

/// The fate of numbered datagrams.
#[derive(Debug, Default)]
struct Datagrams {
    sent: u64,
    lost: u64,
    overtaken: u64,
}

/// Sends a few at a time, and waits for them.
fn count((from, to): (UdpSocket, UdpSocket), over: &AtomicBool) -> Datagrams {
    from.connect(to.local_addr().expect("bound")).expect("connected");
    to.set_read_timeout(Some(Duration::from_secs(1))).expect("set");
    let mut datagrams = Datagrams::default();
    let mut newest = 0;
    while !over.load(Ordering::Relaxed) {
        for _ in 0..16 {
            datagrams.sent += 1;
            from.send(&datagrams.sent.to_be_bytes()).expect("the kernel takes it");
        }
        let mut buffer = [0; 8];
        let mut missing = 16;
        while missing > 0 {
            if to.recv(&mut buffer).is_err() {
                datagrams.lost += missing;
                break;
            }
            let number = u64::from_be_bytes(buffer);
            if number < newest {
                datagrams.overtaken += 1;
            }
            newest = newest.max(number);
            missing -= 1;
        }
    }
    datagrams
}
