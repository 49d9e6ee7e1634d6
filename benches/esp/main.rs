//! The cost of a packet: sealing, opening, and the steps of both, beside the call of the crypto library alone.
//!
//! `cargo bench -p vpn-esp --bench esp [-- NAME]`; with `-- --test` each is done once. Times are those of one packet
//! where nothing else is said. `docs/understand/measurements/packets.md` has results.

mod ends;
mod library;

use criterion::measurement::WallTime;
use criterion::{Bencher, BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use criterion::{criterion_group, criterion_main};
use crypto::{Aad, Provider, Suite};
use ends::{Ends, FIRST_SPI, HEADERS, host, super_packet};
use esp::plane::Spi;
use esp::queue::{Coalesce, ReceiveQueue};
use esp::steps::{self, Replay};
use library::Library;
use policy::{Integrity, KeyBits, Secret};
use std::hint::black_box;
use std::time::{Duration, Instant};

const GCM: Suite = Suite::AesGcm16(KeyBits::B128);

/// Octets of texts.
const TEXTS: [usize; 5] = [64, 512, 1400, 8192, 65_536];

/// Octets of packets that come one by one.
const PACKETS: [usize; 5] = [64, 256, 512, 1400, 8192];

/// Octets of super-packets, which are cut into packets of [`SEGMENT`] octets.
const SUPER_PACKETS: [usize; 4] = [4096, 16_384, 32_768, 65_536];
const SEGMENT: usize = 1400;

fn group<'c>(criterion: &'c mut Criterion, name: &str) -> BenchmarkGroup<'c, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.warm_up_time(Duration::from_millis(100));
    group.measurement_time(Duration::from_millis(400));
    group.sample_size(20);
    group
}

/// Times `work`, which does so many things after each `prepare`, by the thing.
fn each<S>(
    bencher: &mut Bencher<'_, WallTime>,
    things: usize,
    state: &mut S,
    mut prepare: impl FnMut(&mut S),
    mut work: impl FnMut(&mut S),
) {
    bencher.iter_custom(|iterations| {
        let rounds = iterations.div_ceil(things as u64);
        let mut spent = Duration::ZERO;
        for _ in 0..rounds {
            prepare(state);
            let begun = Instant::now();
            work(state);
            spent += begun.elapsed();
        }
        spent.mul_f64(iterations as f64 / (rounds * things as u64) as f64)
    });
}

/// Segments of a super-packet of so many octets at most.
fn segments(octets: usize) -> usize {
    (octets - HEADERS) / (SEGMENT - HEADERS)
}

/// The library alone.
fn library(criterion: &mut Criterion) {
    let mut group = group(criterion, "library");
    for len in TEXTS {
        group.throughput(Throughput::Bytes(len as u64));
        let mut library = Library::new(len);
        group.bench_function(BenchmarkId::new("seal", len), |b| b.iter(|| library.seal()));
        group.bench_function(BenchmarkId::new("seal scattered", len), |b| {
            b.iter(|| library.seal_scattered());
        });
        group.bench_function(BenchmarkId::new("open", len), |b| b.iter(|| library.open()));
    }
}

/// Every suite's cipher by every provider that has it.
fn cipher(criterion: &mut Criterion) {
    let suites = [
        GCM,
        Suite::AesGcm16(KeyBits::B256),
        Suite::ChaCha20Poly1305,
        Suite::AesGmac(KeyBits::B128),
        Suite::AesCbcMac(KeyBits::B128, Integrity::HmacSha2_256_128),
        Suite::NullMac(Integrity::HmacSha2_256_128),
    ];
    for suite in suites {
        for provider in Provider::ALL.into_iter().filter(|provider| provider.supports(suite)) {
            let mut group =
                group(criterion, &format!("cipher/{suite}/{provider}").replace("/HMAC", "+HMAC"));
            let key = Secret::new(vec![7; suite.key_material_len()]);
            let cipher = provider.cipher(suite, &key).expect("it has the suite");
            for len in TEXTS {
                group.throughput(Throughput::Bytes(len as u64));
                // CBC takes whole blocks.
                let padded = len.next_multiple_of(suite.block_len());
                let (plain, iv) = (vec![3; padded], vec![9; suite.iv_len()]);
                let mut sealed = vec![0; suite.iv_len() + padded + suite.icv_len()];
                let mut opened = vec![0; padded];
                let aad = Aad::Esp { spi: FIRST_SPI, sequence: 1, esn: true };
                group.bench_function(BenchmarkId::new("seal", len), |b| {
                    b.iter(|| cipher.seal(&iv, aad, &plain, &[], &mut sealed));
                });
                cipher.seal(&iv, aad, &plain, &[], &mut sealed);
                group.bench_function(BenchmarkId::new("open", len), |b| {
                    b.iter(|| cipher.open(aad, &sealed, &mut opened).expect("it is authentic"));
                });
            }
        }
    }
}

/// From what a device hands over to what a socket takes, and from what a socket hands over to what a device takes.
fn path(criterion: &mut Criterion) {
    let forms = (PACKETS.map(|len| ("packet", len, len, 1)).into_iter())
        .chain(SUPER_PACKETS.map(|len| ("super-packet", len, SEGMENT, segments(len))));
    for (kind, octets, len, segments) in forms {
        let mut ends = Ends::new(GCM, Provider::AwsLc).carry(len, segments);
        let packets = ends.packets();
        let mut group = group(criterion, "path");
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(BenchmarkId::new(format!("seal {kind}"), octets), |bencher| {
            each(bencher, packets, &mut ends, |_| {}, Ends::seal);
        });
        group.bench_function(BenchmarkId::new(format!("open {kind}"), octets), |bencher| {
            each(bencher, packets, &mut ends, Ends::seal, Ends::open);
        });
    }
}

/// One number and the next, and numbers whose neighbours come in the other order.
fn replay(criterion: &mut Criterion) {
    let mut group = group(criterion, "replay");
    for size in [64, 4096, 65_536] {
        for (order, swap) in [("in order", 0), ("swapped", 1)] {
            let (mut window, mut number) = (Replay::new(size), 1);
            group.bench_function(BenchmarkId::new(order, size), |bencher| {
                bencher.iter(|| {
                    number += 1;
                    window.take(black_box(number ^ swap)).expect("a new number")
                });
            });
        }
    }
}

/// The SA of an outbound packet by its flow and by search, and that of an inbound one, of so many.
fn lookup(criterion: &mut Criterion) {
    let mut group = group(criterion, "lookup");
    for rules in [1, 100, 10_000, 20_000] {
        let mut ends = Ends::with_hosts(GCM, Provider::AwsLc, rules);
        let packet = |n: u32| super_packet(host(n), 64, 1).0;
        let packets: Vec<_> = (0..64).map(|n| packet(n * 2_654_435_761 % rules)).collect();
        let mut next = packets.iter().cycle();
        group.bench_function(BenchmarkId::new("flow", rules), |bencher| {
            bencher.iter(|| {
                next.next().is_some_and(|packet| steps::look_up(&mut ends.sender, packet))
            });
        });
        let mut next = packets.iter().cycle();
        group.bench_function(BenchmarkId::new("search", rules), |bencher| {
            bencher.iter(|| next.next().is_some_and(|packet| steps::search(&ends.sending, packet)));
        });
        let spis: Vec<_> = (0..64).map(|n| Spi(FIRST_SPI + n * 2_654_435_761 % rules)).collect();
        let mut next = spis.iter().cycle();
        group.bench_function(BenchmarkId::new("spi", rules), |bencher| {
            bencher.iter(|| next.next().is_some_and(|spi| steps::find(&ends.receiving, *spi)));
        });
    }
}

/// Cutting super-packets, and putting the segments together again; a copy of each is in the time of the latter.
fn segment(criterion: &mut Criterion) {
    let mut group = group(criterion, "segment");
    // Where the payload is shorter than the headers, a super-packet cannot be cut twice.
    for len in PACKETS.into_iter().filter(|len| *len > 2 * HEADERS) {
        let (mut packet, offload) = super_packet(host(0), len, (65_000 / len).min(64));
        let mut cut = Vec::new();
        steps::segment(&mut packet, offload, |segment| cut.push(segment.to_vec()));
        let count = cut.len();
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(BenchmarkId::new("cut", len), |bencher| {
            let cut = |packet: &mut Vec<u8>| {
                steps::segment(packet, offload, |segment| _ = black_box(segment));
            };
            each(bencher, count, &mut packet, |_| {}, cut);
        });
        let mut queue = ReceiveQueue::new(1 << 20, Coalesce { tcp: true, udp: true });
        group.bench_function(BenchmarkId::new("join", len), |bencher| {
            let join = |queue: &mut ReceiveQueue| {
                cut.iter().for_each(|segment| steps::join(queue, segment));
                black_box(queue.packets().count());
            };
            each(bencher, count, &mut queue, ReceiveQueue::clear, join);
        });
        let octets = vec![5; len];
        group.bench_function(BenchmarkId::new("checksum", len), |bencher| {
            bencher.iter(|| steps::checksum(black_box(&octets)));
        });
    }
}

criterion_group!(benches, library, cipher, path, replay, lookup, segment);
criterion_main!(benches);
