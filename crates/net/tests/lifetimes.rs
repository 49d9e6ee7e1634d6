//! Peers that fall silent, in virtual time.

mod ends;

use ends::{End, PATIENCE, connected, octets, pair, perfect};
use net::ConnectError;
use net::datagrams::{Fate, Wire};
use std::future::Future;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DAY: Duration = Duration::from_secs(86_400);

/// A wire that can be cut.
fn cable() -> (Wire, Arc<AtomicBool>) {
    let cut = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&cut);
    (Arc::new(move |_| if seen.load(Relaxed) { Fate::Lost } else { Fate::Arrives }), cut)
}

fn at(end: &End, port: u16) -> SocketAddr {
    SocketAddr::new(end.address(false), port)
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it hangs")
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_lives_for_days_and_then_carries_octets() {
    let ends = pair(perfect(), |_| {});
    let [mut left, mut right] = connected(&ends, false).await;
    for (round, octet) in (0..3).zip(b'a'..) {
        tokio::time::sleep(DAY).await;
        left.write_u8(octet).await.unwrap_or_else(|error| panic!("day {round}: {error}"));
        let read = in_time(right.read_u8()).await;
        assert_eq!(read.unwrap_or_else(|error| panic!("day {round}: {error}")), octet);
    }
    tokio::time::sleep(DAY).await;
    // Its end does not come late, either.
    drop(left);
    assert_eq!(in_time(right.read(&mut [0])).await.expect("the end"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_acknowledge_ends_the_stream() {
    let (wire, cut) = cable();
    let ends = pair(wire, |_| {});
    let [mut left, _right] = connected(&ends, false).await;
    tokio::time::sleep(DAY).await;
    cut.store(true, Relaxed);
    let begun = tokio::time::Instant::now();
    left.write_all(b"into the void").await.expect("written");
    let error = left.read(&mut [0]).await.expect_err("nobody answers");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    // In virtual time, a limit is exact.
    let waited = begun.elapsed().as_secs();
    assert!((300..=301).contains(&waited), "{waited} s");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_acknowledges_late_keeps_the_stream() {
    let (wire, cut) = cable();
    let ends = pair(wire, |_| {});
    let [mut left, right] = connected(&ends, false).await;
    let sent = octets(2_000_000, 3);
    let expected = sent.clone();
    let reading = tokio::spawn(async move {
        let mut octets = Vec::new();
        let mut right = right;
        right.read_to_end(&mut octets).await.map(|_| octets == expected)
    });
    // The tunnel is down three times, 200 of the 300 seconds each.
    for part in sent.chunks(sent.len().div_ceil(3)) {
        cut.store(true, Relaxed);
        let (written, ()) = tokio::join!(left.write_all(part), async {
            tokio::time::sleep(Duration::from_secs(200)).await;
            cut.store(false, Relaxed);
            // The timer of TCP is at 60 seconds by then.
            tokio::time::sleep(Duration::from_secs(90)).await;
        });
        written.expect("written");
    }
    drop(left);
    assert!(in_time(reading).await.expect("no panic").expect("read"));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_answer_a_probe_ends_the_stream() {
    let (wire, cut) = cable();
    let ends = pair(wire, |_| {});
    let [mut left, _right] = connected(&ends, false).await;
    tokio::time::sleep(DAY).await;
    // Longer than the time that the peer has for an answer.
    for interval in [Duration::from_secs(900), Duration::from_secs(60)] {
        left.set_keep_alive(Some(interval));
        let silence = tokio::time::timeout(DAY, left.read(&mut [0])).await;
        assert!(silence.is_err(), "the peer answers the probes, and sends nothing");
    }
    cut.store(true, Relaxed);
    let begun = tokio::time::Instant::now();
    let error = left.read(&mut [0]).await.expect_err("nobody answers");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let waited = begun.elapsed().as_secs();
    assert!((300..=361).contains(&waited), "{waited} s");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_answer_is_told_from_one_that_refuses() {
    let (wire, cut) = cable();
    let ends = pair(wire, |_| {});
    cut.store(true, Relaxed);
    let begun = tokio::time::Instant::now();
    let error = ends[0].network.connect_to(at(&ends[1], 80)).await.expect_err("nobody answers");
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
    let waited = begun.elapsed().as_secs();
    assert!((30..=31).contains(&waited), "{waited} s");
}
