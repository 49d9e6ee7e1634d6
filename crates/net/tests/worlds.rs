//! Random worlds: a wire with its own faults, streams in both directions, and rekeys while they carry octets.
//!
//! `NET_WORLDS=10000 cargo test --release -p vpn-net --test worlds` for many, `NET_FIRST` for the number of the first.

mod ends;

use ends::{End, PATIENCE, connected, faulty, octets, pair, rekey};
use esp::plane::{DataPlane, SaId};
use net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use std::{iter, thread};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A number of a world, below a bound.
fn draw(seed: u64, what: u64, below: u64) -> u64 {
    let mixed = (seed ^ what.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 33) % below
}

/// How far an end of a stream has come, for the message of a test that hangs.
#[derive(Debug, Default)]
struct Course {
    written: AtomicUsize,
    shut: AtomicBool,
    received: AtomicUsize,
}

/// Sends octets to the peer and receives the peer's: all of them, or the first ones and an error, if the wire has lost
/// so much that an end gave up.
async fn carries(stream: TcpStream, sent: Vec<u8>, expected: Vec<u8>, course: Arc<Course>) {
    let (mut reader, mut writer) = stream.into_split();
    let writes = async {
        for part in sent.chunks(1_000) {
            if writer.write_all(part).await.is_err() {
                return;
            }
            course.written.fetch_add(part.len(), Relaxed);
        }
        let _ = writer.shutdown().await;
        course.shut.store(true, Relaxed);
    };
    let mut received = Vec::new();
    let reads = async {
        loop {
            match reader.read_buf(&mut received).await {
                Ok(0) => break true,
                Ok(_) => course.received.store(received.len(), Relaxed),
                Err(_) => break false,
            }
        }
    };
    let (_, in_order) = tokio::join!(writes, reads);
    let is_whole = received.len() == expected.len() || !in_order;
    assert!(
        is_whole && expected.starts_with(&received),
        "{} of {} octets",
        received.len(),
        expected.len()
    );
}

/// Replaces both SAs some times, at moments that have nothing to do with the streams.
async fn rekeys(ends: &mut [End; 2], seed: u64) {
    for generation in 2..2 + draw(seed, 1, 6) as u8 {
        tokio::time::sleep(Duration::from_millis(draw(seed, u64::from(generation), 120))).await;
        rekey(ends, generation);
        // As IKE does it: packets under way still arrive for a while.
        if generation > 2 {
            for end in ends.iter_mut() {
                let old = u64::from(generation - 2);
                end.plane.remove(SaId(old * 2)).expect("it was there");
                end.plane.remove(SaId(old * 2 + 1)).expect("it was there");
            }
        }
    }
}

async fn world(seed: u64) {
    // More losses than one in thirty make the timer of TCP, which doubles with each, the measure of everything.
    let one_in = 10 + draw(seed, 100, 60);
    let mut ends = pair(faulty(seed, one_in), |_| {});
    let (mut streams, mut courses) = (JoinSet::new(), Vec::new());
    for stream in 0..1 + draw(seed, 101, 3) {
        let ipv6 = draw(seed, 110 + stream, 2) == 1;
        let size = |way| draw(seed, 120 + 2 * stream + way, 40_000) as usize;
        let octets = [octets(size(0), seed ^ stream), octets(size(1), !seed ^ stream)];
        let [left, right] = connected(&ends, ipv6).await;
        let [to_right, to_left] = octets;
        let course: [Arc<Course>; 2] = Default::default();
        let [of_left, of_right] = course.clone();
        courses.push(([to_right.len(), to_left.len()], course));
        streams.spawn(carries(left, to_right.clone(), to_left.clone(), of_left));
        streams.spawn(carries(right, to_left, to_right, of_right));
    }
    rekeys(&mut ends, seed).await;
    let all = async {
        while let Some(ended) = streams.join_next().await {
            ended.expect("no panic");
        }
    };
    // An end gives up after 300 seconds without an answer.
    if tokio::time::timeout(PATIENCE * 4, all).await.is_err() {
        let counters = ends.each_ref().map(|end| end.plane.counters());
        panic!("it hangs: {courses:?}\n{counters:?}");
    }
}

/// Plays a world in virtual time: while both ends wait, the clock goes on to the next timer.
fn play(seed: u64) -> Result<(), String> {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
    let ended = runtime.expect("a runtime").block_on(async { tokio::spawn(world(seed)).await });
    ended.map_err(|panic| format!("world {seed}: {panic}"))
}

#[test]
fn octets_arrive_in_order_in_every_world() {
    let first = number_from("NET_FIRST").unwrap_or(0);
    let end = first + number_from("NET_WORLDS").unwrap_or(1_000);
    let next = AtomicU64::new(first);
    let plays = || {
        let seeds = iter::from_fn(|| Some(next.fetch_add(1, Relaxed)).filter(|seed| *seed < end));
        seeds.filter_map(|seed| play(seed).err()).collect::<Vec<_>>()
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let failed = thread::scope(|scope| {
        let threads: Vec<_> = (0..processors).map(|_| scope.spawn(plays)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
    });
    assert_eq!(failed, Vec::<String>::new());
}
